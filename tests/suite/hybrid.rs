//! Models with a recurrent state: how far it can be taken back, and what that means for drafts and for talks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qchat::engine::{Context, EngineError, Model, Rollback, Row, Save, Seq, Token};
use qchat::generate::draft::{Ngram, Speculation, Speculator};
use qchat::generate::{Answer, TurnSettings};
use qchat::sample::{Noise, Sampling};

use super::engine::{close, context, load, read, rows, text};
use super::replay::Fixed;
use super::turns::{answer, ask, session, settings};
use crate::common::Sandbox;
use crate::common::recurrent::{lfm2, mamba};
use crate::common::tiny::Tiny;

/// What `Capabilities` promises for lfm2.
const MOST: usize = 8;

const PROMPT: &str = "the quick brown fox ";
/// Prompts of three sequences, with states that differ.
const PROMPTS: [&str; 3] = [PROMPT, "pack my box with five dozen", "sphinx of black quartz,"];
/// A pending token and a draft of the greatest length.
const DRAFT: &str = "jumps ove";

fn model(tiny: &Tiny) -> Arc<dyn Model> {
    load(&Sandbox::new(), tiny)
}

/// As `read`, with logits for every row, as a draft is judged.
fn judge(context: &mut dyn Context, seq: Seq, tokens: &[Token]) -> Vec<Vec<f32>> {
    let from = context.tokens(seq).len();
    let rows: Vec<Row> = rows(seq, from, tokens).into_iter().map(|row| Row { want_logits: true, ..row }).collect();
    context.eval(&rows).unwrap();
    (0..tokens.len()).map(|row| context.logits(row).to_vec()).collect()
}

/// What follows `tokens` where nothing else was ever read.
fn fresh(model: &Arc<dyn Model>, tokens: &[Token]) -> Vec<f32> {
    read(context(model, 512, 1).0.as_mut(), 0, tokens)
}

#[test]
fn a_hybrid_says_what_it_can_and_says_the_same_twice() {
    let model = model(&Tiny { says: |id| (32..127).contains(&id), ..lfm2() });
    let (context, _) = context(&model, 256, 1);
    let capabilities = context.capabilities();
    assert_eq!((capabilities.rollback, capabilities.save), (Rollback::AtMost(MOST), Save::Whole));
    let mut talk = Vec::new();
    ask(&mut talk, "hi");
    let say = |seed| {
        let sampling = Sampling { seed, ..settings(0.8, None).sampling };
        let settings = TurnSettings { sampling, ..settings(0.8, Some(100)) };
        answer(&mut session(Arc::clone(&model), None, 512), &talk, settings).tokens
    };
    assert_eq!(say(5).len(), 100);
    assert_eq!(say(5), say(5));
    assert_ne!(say(5), say(6));
}

#[test]
fn states_differ_where_the_tests_say_that_they_are_equal() {
    // Or else nothing here would notice a state that is wrong by a token.
    for tiny in [lfm2(), mamba()] {
        let model = model(&tiny);
        let logits = |said: &str| fresh(&model, &text(said));
        for (one, other) in [("abcd", "abxd"), ("abcd", "axcd"), ("abcd", "abcdd"), ("abcdd", "abcddd")] {
            assert!(!close(&logits(one), &logits(other)), "{}: {one} and {other}", tiny.architecture);
        }
    }
}

#[test]
fn a_sequence_in_pieces_is_the_sequence() {
    for tiny in [lfm2(), mamba()] {
        let model = model(&tiny);
        let (mut context, _) = context(&model, 512, 2);
        let whole = read(context.as_mut(), 0, &text("hello hybrid world"));
        for piece in ["hel", "lo hybrid wo", "r", "l"] {
            read(context.as_mut(), 1, &text(piece));
        }
        let in_pieces = read(context.as_mut(), 1, &text("d"));
        assert!(close(&whole, &in_pieces), "{}", tiny.architecture);
    }
}

#[test]
fn a_draft_is_taken_back_to_any_point_within_it() {
    let model = model(&lfm2());
    let (mut context, _) = context(&model, 512, 2);
    let (prompt, draft, end) = (text(PROMPT), text(DRAFT), text("xyz"));
    for drafted in 1..=MOST {
        for accepted in 0..=drafted {
            context.trim(0, 0).unwrap();
            context.trim(1, 0).unwrap();
            read(context.as_mut(), 0, &prompt);
            judge(context.as_mut(), 0, &draft[..=drafted]);
            let kept = [&prompt[..], &draft[..=accepted]].concat();
            context.trim(0, kept.len()).unwrap();
            assert_eq!(context.tokens(0), kept);
            // A single row first and several behind it: what it left must be right too.
            let one = read(context.as_mut(), 0, &end[..1]);
            let more = read(context.as_mut(), 0, &end[1..]);
            read(context.as_mut(), 1, &kept);
            let case = format!("{accepted} of {drafted}");
            assert!(close(&one, &read(context.as_mut(), 1, &end[..1])), "{case}");
            assert!(close(&more, &read(context.as_mut(), 1, &end[1..])), "{case}");
        }
    }
}

#[test]
fn drafts_that_follow_each_other_leave_what_was_accepted() {
    let model = model(&lfm2());
    let (mut context, _) = context(&model, 1024, 1);
    read(context.as_mut(), 0, &text(PROMPT));
    let mut said = text(PROMPT);
    let words = text("pack my box with five dozen liquor jugs");
    for (round, drafted) in (0..).zip([8, 8, 0, 3, 1, 1, 8, 0, 0, 5, 8, 2, 7]) {
        let draft: Vec<Token> = words.iter().cycle().skip(5 * round).take(1 + drafted).copied().collect();
        let judged = judge(context.as_mut(), 0, &draft);
        let accepted = round * 7 % (drafted + 1);
        said.extend(&draft[..=accepted]);
        context.trim(0, said.len()).unwrap();
        assert_eq!(context.tokens(0), said);
        assert!(close(&judged[accepted], &fresh(&model, &said)), "round {round}");
    }
}

#[test]
fn a_cut_that_no_snapshot_allows_is_refused_and_changes_nothing() {
    let model = model(&lfm2());
    let (mut context, _) = context(&model, 512, 1);
    let refuse = |context: &mut dyn Context, from: usize| {
        let held = context.tokens(0).to_vec();
        assert_eq!(context.trim(0, from), Err(EngineError::CannotTrim { from }));
        assert_eq!(context.tokens(0), held);
    };
    let mut said = text(PROMPT);
    read(context.as_mut(), 0, &said);
    refuse(context.as_mut(), 1);
    refuse(context.as_mut(), said.len() - MOST - 1);
    // Where nothing is cut, nothing is used up.
    context.trim(0, said.len()).unwrap();
    context.trim(0, said.len() + 5).unwrap();
    context.trim(0, said.len() - MOST).unwrap();
    said.truncate(said.len() - MOST);
    // Once is all.
    refuse(context.as_mut(), said.len() - 1);
    // After a single row there is nothing to go back to.
    said.extend(text("x"));
    assert!(close(&read(context.as_mut(), 0, &text("x")), &fresh(&model, &said)));
    refuse(context.as_mut(), said.len() - 1);
    // The first row of an evaluation stays.
    judge(context.as_mut(), 0, &text("abcd"));
    refuse(context.as_mut(), said.len());
    said.extend(text("a"));
    context.trim(0, said.len()).unwrap();
    refuse(context.as_mut(), said.len() - 1);
    said.extend(text("!"));
    assert!(close(&read(context.as_mut(), 0, &text("!")), &fresh(&model, &said)));
    // All of it always goes.
    context.trim(0, 0).unwrap();
    assert_eq!(context.tokens(0), &[]);
    assert!(close(&read(context.as_mut(), 0, &text("abc")), &fresh(&model, &text("abc"))));
}

#[test]
fn a_state_is_saved_and_loaded_as_it_was_taken_back() {
    let model = model(&lfm2());
    let (mut first, _) = context(&model, 256, 1);
    let said = [text(PROMPT), text("jum")].concat();
    read(first.as_mut(), 0, &text(PROMPT));
    judge(first.as_mut(), 0, &text("jumps"));
    first.trim(0, said.len()).unwrap();
    assert!(first.save(0, 0..4).is_err(), "only the whole");
    let bytes = first.save(0, 0..said.len()).unwrap();
    // Saving is only looking.
    let after = read(first.as_mut(), 0, &text("!"));
    let expected = fresh(&model, &[said.clone(), text("!")].concat());
    assert!(close(&after, &expected));
    let (mut second, _) = context(&model, 1024, 2);
    second.load(1, &bytes, &said).unwrap();
    assert_eq!(second.tokens(1), said);
    // Loaded over nothing else.
    assert!(second.load(1, &bytes, &said[..0]).is_err());
    // A loaded state has no snapshots.
    let from = said.len() - 1;
    assert_eq!(second.trim(1, from), Err(EngineError::CannotTrim { from }));
    assert!(close(&read(second.as_mut(), 1, &text("!")), &expected));
    // And drafts can be taken back behind it.
    judge(second.as_mut(), 1, &text("wrong"));
    second.trim(1, said.len() + 2).unwrap();
    let expected = fresh(&model, &[said.clone(), text("!w?")].concat());
    assert!(close(&read(second.as_mut(), 1, &text("?")), &expected));
}

#[test]
fn snapshots_do_not_outlive_their_state() {
    let model = model(&lfm2());
    let (mut context, cancel) = context(&model, 512, 2);
    let said = text(PROMPT);
    read(context.as_mut(), 0, &said);
    let bytes = context.save(0, 0..said.len()).unwrap();
    let from = said.len() - 2;
    // The sequence had snapshots of what it held before.
    judge(context.as_mut(), 1, &text("others"));
    context.trim(1, 0).unwrap();
    context.load(1, &bytes, &said).unwrap();
    assert_eq!(context.trim(1, from), Err(EngineError::CannotTrim { from }));
    judge(context.as_mut(), 1, &text("others"));
    context.trim(1, 0).unwrap();
    context.fork(0, 1, 0..said.len()).unwrap();
    assert_eq!(context.trim(1, from), Err(EngineError::CannotTrim { from }));
    let expected = fresh(&model, &[said.clone(), text("!")].concat());
    assert!(close(&read(context.as_mut(), 1, &text("!")), &expected));
    assert!(close(&read(context.as_mut(), 0, &text("!")), &expected));
    // An evaluation that was stopped: before it began it changes nothing, inside it leaves nothing.
    judge(context.as_mut(), 1, &text("draft"));
    cancel.store(true, Ordering::Relaxed);
    let held = context.tokens(1).len();
    assert_eq!(context.eval(&rows(1, held, &text("x"))), Err(EngineError::Aborted));
    cancel.store(false, Ordering::Relaxed);
    context.trim(1, held - 4).unwrap();
    let expected = fresh(&model, &[said.clone(), text("!d?")].concat());
    assert!(close(&read(context.as_mut(), 1, &text("?")), &expected));
}

#[test]
fn a_fork_has_what_was_taken_back() {
    let model = model(&lfm2());
    let (mut context, _) = context(&model, 512, 2);
    let said = [text(PROMPT), text("ju")].concat();
    read(context.as_mut(), 0, &text(PROMPT));
    judge(context.as_mut(), 0, &text("jumps"));
    context.trim(0, said.len()).unwrap();
    assert!(context.fork(0, 1, 0..4).is_err(), "only the whole");
    context.fork(0, 1, 0..said.len()).unwrap();
    assert_eq!(context.tokens(1), said);
    for (seq, end) in [(1, "one end"), (0, "another")] {
        let expected = fresh(&model, &[said.clone(), text(end)].concat());
        assert!(close(&read(context.as_mut(), seq, &text(end)), &expected), "sequence {seq}");
    }
}

#[test]
fn drafts_of_several_sequences_in_one_evaluation_are_taken_back_apart() {
    let model = model(&lfm2());
    let draft = text(DRAFT);
    for sequences in [2, 3] {
        let (mut context, _) = context(&model, 512, sequences);
        // Rows of each in the order of the list: alike, not alike, one long, the last first.
        for order in [
            &[(0, 4), (1, 4), (2, 4)][..],
            &[(0, 5), (1, 3), (2, 3)],
            &[(1, 5), (0, 3), (2, 3)],
            &[(2, 3), (1, 9), (0, 3)],
            &[(2, 2), (0, 9)],
            &[(1, 1), (0, 2)],
        ] {
            let order: Vec<(Seq, usize)> = order.iter().copied().filter(|(seq, _)| *seq < sequences).collect();
            let prompt = |seq: Seq| text(PROMPTS[seq as usize]);
            for seq in 0..sequences {
                context.trim(seq, 0).unwrap();
                read(context.as_mut(), seq, &prompt(seq));
            }
            let all = order.iter().flat_map(|(seq, count)| {
                let from = prompt(*seq).len();
                rows(*seq, from, &draft[..*count])
            });
            context.eval(&all.collect::<Vec<_>>()).unwrap();
            for (seq, count) in &order {
                for kept in [count.div_ceil(2), 1] {
                    let from = prompt(*seq).len() + kept;
                    match context.trim(*seq, from) {
                        // Where a cut is refused the sequence is what it was.
                        Ok(()) | Err(EngineError::CannotTrim { .. }) => {}
                        error => panic!("{error:?}"),
                    }
                }
            }
            for seq in 0..sequences {
                let expected = fresh(&model, &[context.tokens(seq), &text("?")].concat());
                let after = read(context.as_mut(), seq, &text("?"));
                assert!(close(&after, &expected), "sequence {seq} of {sequences} after {order:?}");
            }
        }
    }
}

#[test]
fn a_stopped_evaluation_leaves_nothing_or_everything() {
    let model = model(&lfm2());
    let (mut context, cancel) = context(&model, 2048, 1);
    let long = text(&"lorem ipsum ".repeat(40));
    let expected = fresh(&model, &long);
    let mut aborted = 0;
    for delay in 0..30u64 {
        context.trim(0, 0).unwrap();
        judge(context.as_mut(), 0, &long[..6]);
        context.trim(0, 4).unwrap();
        let flag = Arc::clone(&cancel);
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(delay * 500));
            flag.store(true, Ordering::Relaxed);
        });
        let result = context.eval(&rows(0, 4, &long[4..]));
        other.join().unwrap();
        cancel.store(false, Ordering::Relaxed);
        if let Err(error) = result {
            assert_eq!(error, EngineError::Aborted);
            // Stopped before it began, it may still hold what it held.
            assert!([&long[..0], &long[..4]].contains(&context.tokens(0)), "{:?}", context.tokens(0));
            aborted += 1;
            let rest = long[context.tokens(0).len()..].to_vec();
            assert!(close(&read(context.as_mut(), 0, &rest), &expected), "after {delay}");
        } else {
            assert_eq!(context.tokens(0), long);
        }
    }
    assert!(aborted > 0);
}

#[test]
fn a_stopped_evaluation_of_some_harms_no_others() {
    // llama.cpp moves the state between theirs out of the way, and may be stopped before it is there.
    let model = model(&lfm2());
    let (mut context, cancel) = context(&model, 2048, 3);
    let said = PROMPTS.map(text);
    let long = text(&"lorem ipsum ".repeat(20));
    let mut aborted = 0;
    for delay in 0..40u64 {
        for (seq, said) in (0..).zip(&said) {
            context.trim(seq, 0).unwrap();
            read(context.as_mut(), seq, said);
        }
        let flag = Arc::clone(&cancel);
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(delay * 200));
            flag.store(true, Ordering::Relaxed);
        });
        let both = [0, 2].map(|seq| rows(seq, said[seq as usize].len(), &long)).concat();
        aborted += usize::from(context.eval(&both).is_err());
        other.join().unwrap();
        cancel.store(false, Ordering::Relaxed);
        for seq in 0..3 {
            let expected = fresh(&model, &[context.tokens(seq), &text("?")].concat());
            assert!(close(&read(context.as_mut(), seq, &text("?")), &expected), "sequence {seq} after {delay}");
        }
    }
    assert!(aborted > 0);
}

/// Drafts from n-grams, always so many tokens.
fn ngrams(length: usize) -> Speculator {
    Speculator::new(vec![Box::new(Ngram::default())], Box::new(Fixed(vec![length])))
}

fn sampled(temperature: f32, max_tokens: usize) -> TurnSettings {
    // No cuts in the distribution, so that a tie is one of logits and noise alone.
    let sampling = Sampling { temperature, seed: 5, ..Sampling::greedy() };
    TurnSettings { sampling, ..settings(temperature, Some(max_tokens)) }
}

/// Whether answers are the same, or part where the model hardly preferred one token.
pub fn same_up_to_a_tie(
    model: &Arc<dyn Model>,
    prompt: &[Token],
    temperature: f32,
    one: &Answer,
    other: &Answer,
) -> bool {
    let (one, other) = (&one.tokens, &other.tokens);
    let Some(at) = one.iter().zip(other).position(|(a, b)| a != b) else {
        return one.len() == other.len();
    };
    let said = [prompt, &one[..at]].concat();
    let (mut context, _) = context(model, 4096, 1);
    let mut logits = Vec::new();
    for piece in said.chunks(256) {
        logits = read(context.as_mut(), 0, piece);
    }
    let noise = Noise::new(5);
    let score = |token: Token| match temperature {
        0.0 => logits[token.index()],
        _ => logits[token.index()] / temperature + noise.gumbel(said.len(), token),
    };
    (score(one[at]) - score(other[at])).abs() < 0.05
}

fn talkative(tiny: Tiny) -> Arc<dyn Model> {
    model(&Tiny { says: |id| (97..123).contains(&id), ..tiny })
}

fn repetitive() -> Vec<Token> {
    let mut talk = Vec::new();
    ask(&mut talk, &"abracadabra simsalabim ".repeat(4));
    talk
}

#[test]
fn drafts_change_no_answer_of_a_hybrid() {
    let model = talkative(lfm2());
    let talk = repetitive();
    let mut all = Speculation::default();
    for temperature in [0.0, 0.5, 1.0] {
        let plain = answer(&mut session(Arc::clone(&model), None, 1024), &talk, sampled(temperature, 300));
        for (length, first) in [(1, 1024), (3, 1024), (8, 1024), (15, 1024), (8, 0)] {
            let mut session = session(Arc::clone(&model), None, first);
            session.speculate(Some(ngrams(length)));
            let drafted = answer(&mut session, &talk, sampled(temperature, 300));
            let case = format!("{length} tokens at temperature {temperature}");
            assert!(same_up_to_a_tie(&model, &talk, temperature, &plain, &drafted), "{case}");
            let speculation = drafted.speculation.unwrap();
            assert_eq!(speculation.blocked, None);
            assert!(speculation.rounds > 0, "{case}");
            let longest = speculation.lengths.iter().rposition(|count| *count > 0).unwrap();
            assert!(longest <= length.min(MOST), "{case}: {longest}");
            all.proposed += speculation.proposed;
            all.accepted += speculation.accepted;
        }
    }
    // Some were right and some were taken back.
    assert!(all.accepted > 50 && all.proposed > all.accepted + 50, "{} of {}", all.accepted, all.proposed);
}

#[test]
fn a_talk_with_a_hybrid_goes_on() {
    let model = talkative(lfm2());
    let mut own = session(Arc::clone(&model), None, 1024);
    own.speculate(Some(ngrams(4)));
    let plain = |prompt: &[Token]| answer(&mut session(Arc::clone(&model), None, 1024), prompt, sampled(0.5, 120));
    let mut talk = repetitive();
    let first_prompt = talk.clone();
    let first = answer(&mut own, &talk, sampled(0.5, 120));
    assert!(same_up_to_a_tie(&model, &talk, 0.5, &plain(&talk), &first));
    talk.extend(&first.tokens);
    let before = talk.len();
    talk.push(Token(258));
    ask(&mut talk, "simsalabim, and?");
    // The last token of an answer is not read by then.
    let second = answer(&mut own, &talk, sampled(0.5, 120));
    assert_eq!(second.cached_tokens, before - 1);
    assert!(same_up_to_a_tie(&model, &talk, 0.5, &plain(&talk), &second));
    // The second question asked in other words: the state cannot go back there.
    talk.truncate(before);
    talk.push(Token(258));
    ask(&mut talk, "and simsalabim?");
    let changed = answer(&mut own, &talk, sampled(0.5, 120));
    assert_eq!(changed.cached_tokens, 0);
    assert!(same_up_to_a_tie(&model, &talk, 0.5, &plain(&talk), &changed));
    let again = answer(&mut own, &first_prompt, sampled(0.5, 120));
    assert_eq!(again.cached_tokens, 0);
    assert!(same_up_to_a_tie(&model, &first_prompt, 0.5, &first, &again));
    // One token back is within reach of the prompt's own evaluation.
    let mut other = Vec::new();
    ask(&mut other, "hocus pocus");
    let one = answer(&mut own, &other, sampled(0.5, 1));
    assert_eq!((one.cached_tokens, one.tokens.len()), (0, 1));
    let whole = answer(&mut own, &other, sampled(0.5, 120));
    assert_eq!(whole.cached_tokens, other.len() - 1);
    assert!(same_up_to_a_tie(&model, &other, 0.5, &plain(&other), &whole));
}

#[test]
fn a_state_without_snapshots_gets_no_drafts() {
    let model = talkative(mamba());
    let (mut context, _) = context(&model, 512, 2);
    let capabilities = context.capabilities();
    assert_eq!((capabilities.rollback, capabilities.save), (Rollback::AtMost(0), Save::Whole));
    let said = text(PROMPT);
    judge(context.as_mut(), 0, &said);
    let from = said.len() - 1;
    assert_eq!(context.trim(0, from), Err(EngineError::CannotTrim { from }));
    assert_eq!(context.tokens(0), said);
    let bytes = context.save(0, 0..said.len()).unwrap();
    context.load(1, &bytes, &said).unwrap();
    let expected = fresh(&model, &[said, text("!")].concat());
    assert!(close(&read(context.as_mut(), 0, &text("!")), &expected));
    assert!(close(&read(context.as_mut(), 1, &text("!")), &expected));
    // Answers are what they are without a drafter, also the second one, and where the context grows.
    let mut talk = repetitive();
    let mut own = session(Arc::clone(&model), None, 0);
    own.speculate(Some(ngrams(4)));
    for _ in 0..2 {
        let plain = answer(&mut session(Arc::clone(&model), None, 2048), &talk, sampled(0.5, 400));
        let drafted = answer(&mut own, &talk, sampled(0.5, 400));
        assert!(same_up_to_a_tie(&model, &talk, 0.5, &plain, &drafted));
        let speculation = drafted.speculation.unwrap();
        assert!(speculation.blocked.is_some());
        assert_eq!((speculation.rounds, speculation.proposed), (0, 0));
        talk.extend(&drafted.tokens);
        talk.push(Token(258));
        ask(&mut talk, "go on");
    }
}
