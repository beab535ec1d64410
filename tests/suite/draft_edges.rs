//! What happens inside a draft: the end of a turn, a stop string, the last token, a full context, Ctrl-C, a failure. The
//! answer is the one without drafts, and what is held afterwards is true.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qchat::engine::{
    Capabilities, Context, ContextSettings, EngineError, KvLayout, Model, Row, Save, Seq, StateFormat, Token, Vocab,
};
use qchat::generate::draft::{DraftLoader, Drafter, ModelDrafter, Ngram, Source, Speculator};
use qchat::generate::{
    Answer, Ended, Finish, Lane, Limits, Part, Session, Sink, SinkClosed, Turn, TurnSettings, drive,
};
use qchat::interrupt::Interrupt;
use qchat::sample::Sampling;
use serde_json::{Value, json};

use super::drafts::{Adversary, END, Trick, always, drafts_with, printable, random, turn};
use super::engine::load;
use super::replay::Fixed;
use super::turns::{Text, answer, ask, scripted, session, settings};
use crate::common::Sandbox;
use crate::common::tiny::Tiny;

fn tokens(text: &str) -> Vec<Token> {
    text.bytes().map(|byte| Token(i32::from(byte))).collect()
}

/// A drafter that knows the answer.
fn knows(reply: &str) -> Box<dyn Drafter> {
    Box::new(Adversary::new(&tokens(reply), Trick::Right))
}

fn asked(message: &str) -> Vec<Token> {
    let mut talk = Vec::new();
    ask(&mut talk, message);
    talk
}

/// A session in which a drafter always proposes so many tokens.
fn drafting(model: &Arc<dyn Model>, drafter: Box<dyn Drafter>, length: usize) -> Session {
    let mut session = session(Arc::clone(model), None, 256);
    session.speculate(Some(always(drafter, length)));
    session
}

/// A scripted model that gives one reply, with more fields of its script.
fn says(reply: &str, fields: Value) -> Arc<dyn Model> {
    let mut script = fields;
    script["replies"] = json!([reply]);
    scripted(script)
}

type Before = Box<dyn Fn(&[Token], &[Row]) + Send + Sync>;

/// A model that shows a test what it evaluates, before it does.
pub struct Watched {
    model: Arc<dyn Model>,
    before: Before,
}

impl Watched {
    /// `before` is told what the sequence holds and the rows that come.
    pub fn over(model: Arc<dyn Model>, before: impl Fn(&[Token], &[Row]) + Send + Sync + 'static) -> Arc<dyn Model> {
        Arc::new(Self { model, before: Box::new(before) })
    }
}

impl Model for Watched {
    fn grammars(&self) -> &qchat::engine::Grammars {
        self.model.grammars()
    }

    fn vocab(&self) -> &dyn Vocab {
        self.model.vocab()
    }

    fn chat_template(&self) -> Option<String> {
        self.model.chat_template()
    }

    fn trained_context(&self) -> usize {
        self.model.trained_context()
    }

    fn with_layout(self: Arc<Self>, _: KvLayout) -> Arc<dyn Model> {
        self
    }

    fn save(&self) -> Save {
        self.model.save()
    }

    fn state_format(&self, n_ctx: usize) -> StateFormat {
        self.model.state_format(n_ctx)
    }

    fn context(self: Arc<Self>, settings: &ContextSettings) -> Result<Box<dyn Context>, EngineError> {
        let context = Arc::clone(&self.model).context(settings)?;
        Ok(Box::new(WatchedContext { context, model: self }))
    }
}

struct WatchedContext {
    context: Box<dyn Context>,
    model: Arc<Watched>,
}

impl Context for WatchedContext {
    fn capabilities(&self) -> Capabilities {
        self.context.capabilities()
    }

    fn n_ctx(&self) -> usize {
        self.context.n_ctx()
    }

    fn tokens(&self, seq: Seq) -> &[Token] {
        self.context.tokens(seq)
    }

    fn total(&self) -> usize {
        self.context.total()
    }

    fn eval(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        (self.model.before)(self.context.tokens(0), rows);
        self.context.eval(rows)
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.context.logits(row)
    }

    fn trim(&mut self, seq: Seq, from: usize) -> Result<(), EngineError> {
        self.context.trim(seq, from)
    }

    fn fork(&mut self, from: Seq, to: Seq, range: std::ops::Range<usize>) -> Result<(), EngineError> {
        self.context.fork(from, to, range)
    }

    fn save(&mut self, seq: Seq, range: std::ops::Range<usize>) -> Result<Vec<u8>, EngineError> {
        self.context.save(seq, range)
    }

    fn load(&mut self, seq: Seq, bytes: &[u8], tokens: &[Token]) -> Result<(), EngineError> {
        self.context.load(seq, bytes, tokens)
    }
}

#[test]
fn an_end_of_turn_inside_a_draft_leaves_what_was_said() {
    let model = scripted(json!({ "replies": ["Hello.", "Fine."] }));
    for length in 1..=16 {
        let mut session = drafting(&model, knows("Hello."), length);
        let mut talk = asked("hi");
        let first = answer(&mut session, &talk, settings(0.0, None));
        assert_eq!((first.content.as_str(), first.finish), ("Hello.", Finish::Stop), "{length}");
        assert_eq!(first.speculation.unwrap().emitted, 5, "the first token is no round's, and the end is not emitted");
        // All that was said is read, and nothing of the draft behind it.
        talk.extend(first.tokens);
        assert_eq!(session.held(), talk, "{length}");
        let before = talk.len();
        talk.push(END);
        ask(&mut talk, "how are you?");
        let second = answer(&mut session, &talk, settings(0.0, None));
        assert_eq!((second.content.as_str(), second.cached_tokens), ("Fine.", before), "{length}");
    }
}

#[test]
fn a_stop_string_inside_a_draft_ends_the_answer_at_its_token() {
    let model = says("one two three", json!({}));
    let talk = asked("count");
    let stops = TurnSettings { stops: vec!["o th".into()], ..settings(0.0, None) };
    let plain = answer(&mut session(Arc::clone(&model), None, 256), &talk, stops.clone());
    assert_eq!((plain.content.as_str(), plain.tokens.len()), ("one tw", 10));
    for length in 1..=16 {
        let mut session = drafting(&model, knows("one two three"), length);
        let stopped = answer(&mut session, &talk, stops.clone());
        assert_eq!((stopped.content.as_str(), stopped.finish), ("one tw", Finish::Stop), "{length}");
        assert_eq!(stopped.tokens, plain.tokens, "{length}");
        goes_on(&mut session, &talk, &stopped, "one two three");
    }
}

/// What is held is true after an answer that was cut short: continued, it says the rest of the reply.
fn goes_on(session: &mut Session, talk: &[Token], cut: &Answer, reply: &str) {
    let said = [talk, &cut.tokens].concat();
    assert!(said.starts_with(session.held()), "more is held than was said");
    let held = session.held().len();
    let rest = answer(session, &said, settings(0.0, None));
    let tokens: Vec<Token> = [&cut.tokens[..], &rest.tokens].concat();
    assert_eq!(tokens, self::tokens(reply));
    assert_eq!(rest.cached_tokens, held.min(said.len() - 1), "what is held is not read again");
}

#[test]
fn no_token_beyond_the_budget_is_emitted_or_drafted() {
    let reply = "0123456789".repeat(4);
    let model = says(&reply, json!({}));
    let talk = asked("count");
    for length in [1, 3, 7, 16] {
        for budget in 1..=20 {
            let mut session = drafting(&model, knows(&reply), length);
            let cut = answer(&mut session, &talk, settings(0.0, Some(budget)));
            assert_eq!((cut.tokens.len(), cut.finish), (budget, Finish::Length));
            // A right draft is rejected only where it is longer than what may be said.
            let account = cut.speculation.as_ref().unwrap();
            assert_eq!((account.accepted, account.emitted), (account.proposed, budget - 1));
            assert_eq!(session.held().len(), talk.len() + budget - 1);
            goes_on(&mut session, &talk, &cut, &reply);
        }
    }
}

#[test]
fn drafts_end_where_the_context_does() {
    let model = says(&"x".repeat(5000), json!({ "context": 512 }));
    let talk = asked("go");
    for (length, trick) in [(1, Trick::Right), (5, Trick::Right), (16, Trick::Right), (16, Trick::Wrong)] {
        let drafter = Box::new(Adversary::new(&tokens(&"x".repeat(5000)), trick));
        let mut session = drafting(&model, drafter, length);
        let cut = answer(&mut session, &talk, settings(0.0, None));
        // Every position is used: the last token emitted is the one that found no room.
        assert_eq!((talk.len() + cut.tokens.len(), cut.finish), (513, Finish::Length), "{length} {trick:?}");
        assert_eq!(session.held().len(), 512);
        let account = cut.speculation.unwrap();
        assert!(trick == Trick::Wrong || account.accepted == account.proposed, "{length}: a draft ran over the edge");
        session.limit_context(Some(300));
        let limited = answer(&mut session, &talk, settings(0.0, None));
        assert_eq!((talk.len() + limited.tokens.len(), limited.finish), (301, Finish::Length));
    }
}

#[test]
fn a_draft_does_not_make_a_context_grow() {
    // Around the length at which plain decoding needs a larger one.
    let talk = asked("go");
    let edge = 768 - talk.len();
    let mut sizes = Vec::new();
    for len in edge - 3..edge + 3 {
        let reply = "y".repeat(len);
        let model = says(&reply, json!({}));
        let mut plain = session(Arc::clone(&model), None, 0);
        assert_eq!(answer(&mut plain, &talk, settings(0.0, None)).content, reply);
        for drafter in [knows(&reply), Box::new(Adversary::new(&[], Trick::Letters)) as Box<dyn Drafter>] {
            let mut session = session(Arc::clone(&model), None, 0);
            session.speculate(Some(always(drafter, 16)));
            assert_eq!(answer(&mut session, &talk, settings(0.0, None)).content, reply);
            assert_eq!(session.n_ctx(), plain.n_ctx(), "{len}");
        }
        sizes.push(plain.n_ctx());
    }
    assert!(sizes[0] == 768 && *sizes.last().unwrap() > 768, "{sizes:?}");
}

/// Sets the interrupt once so many bytes were said.
struct StopAfter(usize, Interrupt);

impl Sink for StopAfter {
    fn write(&mut self, _: Part, text: &str) -> Result<(), SinkClosed> {
        if self.0 > 0 && self.0 <= text.len() {
            self.1.set();
        }
        self.0 = self.0.saturating_sub(text.len());
        Ok(())
    }
}

const COUNT: &str = "one two three four five six seven";

/// An answer with a draft of 5 tokens by `draft`, and one without an interrupt afterwards.
fn interrupted(target: Arc<dyn Model>, drafter: Box<dyn Drafter>, interrupt: &Interrupt, stop_after: usize) -> Answer {
    let talk = asked("count");
    let mut session = Session::new(target, Limits { n_ctx: None, first: 256, threads: 1 }, interrupt.clone());
    session.speculate(Some(always(drafter, 5)));
    let mut sink = StopAfter(stop_after, interrupt.clone());
    let cut = session.answer(talk.clone(), settings(0.0, None), &mut sink).unwrap();
    assert_eq!(interrupt.take(), cut.finish == Finish::Interrupted || stop_after > 0);
    let whole = cut.finish == Finish::Stop && cut.content == COUNT;
    assert!(cut.finish == Finish::Interrupted && COUNT.starts_with(&cut.content) || whole);
    goes_on(&mut session, &talk, &cut, COUNT);
    cut
}

fn model_drafter(model: Arc<dyn Model>, interrupt: &Interrupt) -> Box<dyn Drafter> {
    let load: DraftLoader = Box::new(move || Ok(Arc::clone(&model)));
    Box::new(ModelDrafter::new(load, Duration::ZERO, 1, interrupt.clone()))
}

/// `model`, which is interrupted inside its `number`-th evaluation.
fn interrupted_at(number: usize, interrupt: &Interrupt) -> Arc<dyn Model> {
    let (count, interrupt) = (AtomicUsize::new(0), interrupt.clone());
    Watched::over(says(COUNT, json!({})), move |_, _| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == number {
            interrupt.set();
        }
    })
}

#[test]
fn ctrl_c_inside_a_draft_leaves_a_talk_that_goes_on() {
    let interrupt = Interrupt::default();
    for stop_after in 1..=COUNT.len() {
        // Said to the end of the round, and no further.
        let cut = interrupted(says(COUNT, json!({})), knows(COUNT), &interrupt, stop_after);
        assert!((stop_after..stop_after + 6).contains(&cut.content.len()), "{stop_after}: {}", cut.content);
    }
    let mut said = Vec::new();
    for number in 1..=6 {
        let cut = interrupted(interrupted_at(number, &interrupt), knows(COUNT), &interrupt, 0);
        assert_eq!(cut.finish, Finish::Interrupted);
        said.push(cut.content.len());
    }
    assert_eq!(said, [0, 1, 7, 13, 19, 25], "what a stopped evaluation would have said is not said");
    for number in 1..=12 {
        let draft = model_drafter(interrupted_at(number, &interrupt), &interrupt);
        let cut = interrupted(says(COUNT, json!({})), draft, &interrupt, 0);
        assert_eq!(cut.finish, Finish::Interrupted);
        assert_eq!(cut.speculation.unwrap().lost, None, "{number}: stopped, not broken");
    }
}

#[test]
fn a_draft_model_that_fails_is_lost_and_the_answer_is_not() {
    let fails: DraftLoader = Box::new(|| Err(EngineError::Failed("no such file".into())));
    let loader =
        |load| -> Box<dyn Drafter> { Box::new(ModelDrafter::new(load, Duration::ZERO, 1, Interrupt::default())) };
    let with = |fields| drafts_with(&says(COUNT, fields));
    for (what, draft, why, drafts) in [
        ("loading", loader(fails), "no such file", false),
        ("the first evaluation", with(json!({ "fails_at": 1 })), "the script says so", false),
        ("a later evaluation", with(json!({ "fails_at": 9 })), "the script says so", true),
        ("a context", with(json!({ "memory": 100 })), "out of memory for a context of", false),
        ("cutting back", with(json!({ "can_trim": false })), "the draft's state cannot be cut back", false),
        ("cutting back far", with(json!({ "can_trim": false, "rollback": 3 })), "cannot be cut back", false),
    ] {
        let model = says(COUNT, json!({}));
        let mut session = session(model, None, 256);
        let drafters = vec![draft, Box::new(Ngram::default())];
        session.speculate(Some(Speculator::new(drafters, Box::new(Fixed(vec![3, 3])))));
        let talk = asked("count");
        let first = answer(&mut session, &talk, settings(0.0, None));
        assert_eq!(first.content, COUNT, "{what}");
        let account = first.speculation.unwrap();
        let lost = account.lost.clone().unwrap();
        assert!(lost.contains(why) && lost.lines().count() == 1, "{what}: {lost}");
        let rounds = account.by_drafter.iter().find(|(source, _)| *source == Source::Model).unwrap().1.rounds;
        assert_eq!(rounds > 0, drafts, "{what}: {account:?}");
        // It is not tried again, and what it lost is not said again.
        let second = answer(&mut session, &talk, settings(0.0, None));
        let account = second.speculation.unwrap();
        assert_eq!((second.content.as_str(), account.lost), (COUNT, None), "{what}");
        assert!(account.by_drafter.iter().all(|(source, _)| *source == Source::Ngram), "{what}");
    }
}

#[test]
fn a_draft_that_cannot_be_cut_back_once_is_read_again() {
    for number in 1..6 {
        let model = says(COUNT, json!({}));
        // Wrong now and then, so that it is cut back.
        let other = COUNT.replace('e', "x");
        let mut session = drafting(&model, drafts_with(&says(&other, json!({ "trim_fails_at": number }))), 3);
        let said = answer(&mut session, &asked("count"), settings(0.0, None));
        let account = said.speculation.unwrap();
        assert_eq!((said.content.as_str(), account.lost), (COUNT, None), "{number}");
        assert!(account.accepted > 0 && account.accepted < account.proposed);
    }
}

#[test]
fn a_draft_whose_loading_was_stopped_is_loaded_by_the_next_answer() {
    let interrupt = Interrupt::default();
    let (tries, flag) = (AtomicUsize::new(0), interrupt.clone());
    let load: DraftLoader = Box::new(move || match tries.fetch_add(1, Ordering::Relaxed) {
        // As engine::open does at a Ctrl-C.
        0 => {
            flag.set();
            Err(EngineError::Aborted)
        }
        _ => Ok(says(COUNT, json!({}))),
    });
    let draft = Box::new(ModelDrafter::new(load, Duration::ZERO, 1, interrupt.clone()));
    let mut session =
        Session::new(says(COUNT, json!({})), Limits { n_ctx: None, first: 256, threads: 1 }, interrupt.clone());
    session.speculate(Some(always(draft, 3)));
    let talk = asked("count");
    let cut = answer(&mut session, &talk, settings(0.0, None));
    let account = cut.speculation.clone().unwrap();
    assert_eq!((cut.finish, account.lost, account.rounds), (Finish::Interrupted, None, 0));
    assert!(interrupt.take());
    goes_on(&mut session, &talk, &cut, COUNT);
    let again = answer(&mut session, &talk, settings(0.0, None)).speculation.unwrap();
    assert!(again.rounds > 0 && again.accepted > 0 && again.lost.is_none(), "{again:?}");
}

#[test]
fn a_draft_with_less_memory_than_the_text_stops_and_is_not_lost() {
    // It cannot grow with the target: it drafts as long as the text fits.
    let reply = "abcdefghij".repeat(60);
    let model = says(&reply, json!({}));
    for fields in [json!({ "memory": 256 }), json!({ "context": 256 }), json!({ "context": 100 })] {
        let mut session = session(Arc::clone(&model), None, 0);
        session.speculate(Some(always(drafts_with(&says(&reply, fields.clone())), 4)));
        let said = answer(&mut session, &asked("go"), settings(0.0, Some(100)));
        assert_eq!(said.content, reply[..100]);
        let said = answer(&mut session, &asked("go"), settings(0.0, None));
        assert_eq!(said.content, reply);
        let account = said.speculation.unwrap();
        assert_eq!(account.lost, None, "{fields}");
        assert!(account.rounds > 0 && account.plain_rounds > 0 && account.accepted == account.proposed, "{fields}");
    }
}

#[test]
fn a_draft_that_was_trained_for_less_than_the_prompt_is_not_lost() {
    // A shorter talk may want it.
    let model = says(COUNT, json!({}));
    let mut session = drafting(&model, drafts_with(&says(COUNT, json!({ "context": 100 }))), 4);
    let said = answer(&mut session, &asked(&"long ".repeat(30)), settings(0.0, None));
    let account = said.speculation.unwrap();
    assert_eq!((said.content.as_str(), account.rounds, account.lost), (COUNT, 0, None));
    let said = answer(&mut session, &asked("short"), settings(0.0, None));
    assert!(said.content == COUNT && said.speculation.unwrap().rounds > 0);
}

#[test]
fn a_cut_that_fails_is_made_good_by_reading_again() {
    let reply = "abcdefghij".repeat(3);
    let talk = asked(&"long ".repeat(40));
    for number in 1..8 {
        let model = says(&reply, json!({ "trim_fails_at": number }));
        for trick in [Trick::Wrong, Trick::RightThenWrong(2)] {
            let mut session = drafting(&model, Box::new(Adversary::new(&tokens(&reply), trick)), 3);
            let said = answer(&mut session, &talk, settings(0.0, None));
            assert_eq!(said.content, reply, "{number} {trick:?}");
            assert_eq!(session.held(), [&talk[..], &said.tokens].concat(), "{number} {trick:?}");
        }
    }
}

#[test]
fn without_cutting_back_there_are_no_drafts_and_the_reason_is_kept() {
    let model = says(COUNT, json!({ "can_trim": false }));
    let mut session = drafting(&model, knows(COUNT), 4);
    for _ in 0..2 {
        let said = answer(&mut session, &asked("count"), settings(0.0, None));
        let account = said.speculation.unwrap();
        assert_eq!(said.content, COUNT);
        assert_eq!((account.rounds, account.proposed), (0, 0));
        assert_eq!(account.blocked, Some("this model's state cannot be cut back"));
    }
}

#[test]
fn drafts_are_no_longer_than_what_can_be_cut_back() {
    let target = |fields: Value| {
        let mut script = fields;
        script["replies"] = json!([]);
        script["random"] = json!({ "seed": 5, "spread": 4.0 });
        scripted(script)
    };
    let settings = turn(Sampling { temperature: 0.7, seed: 3, ..Sampling::greedy() }, 120);
    let prompt = tokens("abcdef");
    let plain = answer(&mut session(target(json!({})), None, 256), &prompt, settings.clone());
    for trick in [Trick::Right, Trick::Wrong, Trick::RightThenWrong(1), Trick::RightThenWrong(3), Trick::Letters] {
        let model = target(json!({ "can_trim": false, "rollback": 3 }));
        // A token that is evaluated twice was read again after a cut that went too far.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let model = watched_prefixes(model, &seen);
        let mut session = drafting(&model, Box::new(Adversary::new(&plain.tokens, trick)), 16);
        let said = answer(&mut session, &prompt, settings.clone());
        let account = said.speculation.unwrap();
        assert_eq!((said.tokens, account.blocked), (plain.tokens.clone(), None), "{trick:?}");
        assert!(account.lengths[3] > 0 && account.lengths[4..].iter().all(|rounds| *rounds == 0), "{account:?}");
        assert_distinct(&seen);
    }
    // Two at once, and the real thing's one.
    for rollback in [1, 2] {
        let model = target(json!({ "can_trim": false, "rollback": rollback }));
        let mut session = drafting(&model, drafts_with(&random(5, 4.0, 1.0)), 16);
        let said = answer(&mut session, &prompt, settings.clone());
        assert_eq!(said.tokens, plain.tokens);
        assert_eq!(said.speculation.unwrap().by_position.len(), rollback);
    }
}

/// `model`, which notes of every row that it evaluates the whole text up to it.
pub fn watched_prefixes(model: Arc<dyn Model>, seen: &Arc<Mutex<Vec<Vec<Token>>>>) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    Watched::over(model, move |held, rows| {
        let mut text = held.to_vec();
        for row in rows {
            text.push(row.token);
            seen.lock().unwrap().push(text.clone());
        }
    })
}

/// No token was evaluated twice behind the same text.
pub fn assert_distinct(seen: &Arc<Mutex<Vec<Vec<Token>>>>) {
    let mut all = std::mem::take(&mut *seen.lock().unwrap());
    let count = all.len();
    all.sort();
    all.dedup();
    assert!(count > 0 && all.len() == count, "{} of {count} rows were evaluated before", count - all.len());
}

#[test]
fn many_turns_that_draft_say_what_each_says_alone() {
    let replies = ["Hello there.", "0123456789".repeat(9).as_str(), "x y z"].map(str::to_owned);
    let model = scripted(json!({ "replies": replies }));
    // The n-th message of a talk gets the n-th reply.
    let prompt = |lane: usize| {
        let mut talk = Vec::new();
        (0..=lane).for_each(|_| ask(&mut talk, &"long prompt ".repeat(lane * 20 + 1)));
        talk
    };
    let context_settings = ContextSettings { n_ctx: 4096, sequences: 3, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(&model).context(&context_settings).unwrap();
    let mut sinks = [Text::default(), Text::default(), Text::default()];
    let mut speculators: Vec<Speculator> = (0..3).map(|lane| always(knows(&replies[lane]), 3 + lane * 6)).collect();
    let mut turns: Vec<Turn> =
        (0..3).map(|lane| Turn::new(lane as Seq, model.vocab(), prompt(lane), 0, settings(0.0, None))).collect();
    let mut lanes: Vec<Lane> = turns
        .iter_mut()
        .zip(sinks.iter_mut().zip(&mut speculators))
        .map(|(turn, (sink, speculator))| {
            speculator.begin(&Sampling::greedy(), 4096, usize::MAX);
            Lane { turn, sink, speculator: Some(speculator) }
        })
        .collect();
    assert_eq!(drive(context.as_mut(), &mut lanes, &Interrupt::default()).unwrap(), Ended::Finished);
    for (lane, (turn, speculator)) in turns.into_iter().zip(speculators).enumerate() {
        let account = speculator.speculation();
        let together = turn.into_answer();
        assert_eq!(together.content, replies[lane]);
        assert!(account.rounds > 0 && account.accepted > 0, "{lane}: {account:?}");
        assert_eq!(context.tokens(lane as Seq), [prompt(lane), together.tokens].concat(), "{lane}");
    }
}

#[test]
fn the_drafts_of_many_turns_fit_into_one_evaluation() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny { says: printable, ..Tiny::default() });
    let turns = 5;
    let settings = ContextSettings { n_ctx: 2048, sequences: turns, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(&model).context(&settings).unwrap();
    assert!(turns as usize * 17 > context.capabilities().max_logits);
    let mut sinks: Vec<Text> = (0..turns).map(|_| Text::default()).collect();
    let letters = || always(Box::new(Adversary::new(&[], Trick::Letters)), 16);
    let mut speculators: Vec<Speculator> = (0..turns).map(|_| letters()).collect();
    let mut all: Vec<Turn> =
        (0..turns).map(|seq| Turn::new(seq, model.vocab(), tokens("abc"), 0, turn(Sampling::greedy(), 20))).collect();
    let mut lanes: Vec<Lane> = all
        .iter_mut()
        .zip(sinks.iter_mut().zip(&mut speculators))
        .map(|(turn, (sink, speculator))| {
            speculator.begin(&Sampling::greedy(), 2048, 20);
            Lane { turn, sink, speculator: Some(speculator) }
        })
        .collect();
    assert_eq!(drive(context.as_mut(), &mut lanes, &Interrupt::default()), Ok(Ended::Finished));
    let answers: Vec<Answer> = all.into_iter().map(Turn::into_answer).collect();
    assert!(answers.iter().all(|answer| answer.tokens.len() == 20));
}

#[test]
fn ids_beyond_the_targets_vocabulary_do_not_end_an_answer() {
    // A draft may have more padding than its target, and pairs with such are taken (see pairs.rs).
    let homes = [Sandbox::new(), Sandbox::new()];
    let target = load(&homes[0], &Tiny { says: printable, ..Tiny::default() });
    let padded = load(&homes[1], &Tiny { padding: 4000, layers: 1, spread: 0.01, ..Tiny::default() });
    let settings = turn(Sampling { temperature: 1.0, seed: 1, ..Sampling::greedy() }, 30);
    let prompt = tokens("Once upon a time");
    let plain = answer(&mut session(Arc::clone(&target), None, 256), &prompt, settings.clone());
    for drafter in [drafts_with(&padded), Box::new(Adversary::new(&[], Trick::Beyond))] {
        let mut session = drafting(&target, drafter, 4);
        let said = session.answer(prompt.clone(), settings.clone(), &mut Text::default());
        let said = said.unwrap_or_else(|error| panic!("the answer failed: {error}"));
        assert_eq!(said.tokens.len(), plain.tokens.len());
    }
}
