//! An answer whose prompt came out of the prefix cache is the answer without one.
//!
//! Other batches add in another order, so a greedy answer may part at a near-tie from one whose whole prompt was read. It
//! never parts from one in memory that read in the same pieces: there the tests ask for equality.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qchat::engine::{Context, EngineError, Model, Save, Token};
use qchat::generate::draft::{Drafter, ModelDrafter};
use qchat::generate::{Answer, Cached, Content, Keep, Session, TurnSettings};
use qchat::interrupt::Interrupt;
use qchat::prefix::{About, Bounds, Inventory, Name, StateKey, Store};
use tempfile::TempDir;

use super::draft_edges::Watched;
use super::drafts::{Dice, always, printable};
use super::engine::{close, context, load, read, text};
use super::hybrid::same_up_to_a_tie;
use super::turns::{answer, ask, session, settings};
use crate::common::Sandbox;
use crate::common::recurrent::{lfm2, mamba};
use crate::common::sliding::gemma3;
use crate::common::tiny::Tiny;

/// Tokens of a block where no window is shorter.
const BLOCK: usize = 256;
/// A gain below this is not looked up, a tail below it not kept.
const LEAST: usize = 16;
/// A token that the models here never say, and that no prompt has by chance.
const UNSAID: Token = Token(200);

fn model(tiny: Tiny) -> Arc<dyn Model> {
    load(&Sandbox::new(), &Tiny { says: printable, ..tiny })
}

fn greedy(tokens: usize) -> TurnSettings {
    settings(0.0, Some(tokens))
}

/// A store's folder, which outlives the sessions that use it.
struct Shelf(TempDir);

impl Shelf {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("kv")
    }

    fn store(&self) -> Store {
        Store::new(self.root(), Bounds::default())
    }

    /// The part of a new store for the model of this content. What was measured is forgotten, since how fast a test's
    /// machine is must not decide what is loaded.
    fn cached(&self, content: &str) -> Cached {
        let store = self.store();
        for state in Inventory::of(&self.root()).about.keys() {
            store.keep_about(*state, &About::default());
        }
        Cached::new(Arc::new(store), content.into(), known(content))
    }

    /// A session as a new process has it.
    fn session(&self, model: &Arc<dyn Model>) -> Session {
        let mut session = session(Arc::clone(model), None, 2048);
        session.cache(Some(self.cached("target")), Keep::All);
        session
    }

    /// The same with its store, for a test that looks for what the same process has written.
    fn session_and_store(&self, model: &Arc<dyn Model>) -> (Session, Arc<Store>) {
        let store = Arc::new(self.store());
        let mut session = session(Arc::clone(model), None, 2048);
        session.cache(Some(Cached::new(Arc::clone(&store), "target".into(), known("target"))), Keep::All);
        (session, store)
    }

    /// An answer of a new process, saved.
    fn answer(&self, model: &Arc<dyn Model>, prompt: &[Token], settings: TurnSettings) -> Answer {
        say(&mut self.session(model), prompt, settings)
    }

    /// What is kept, as the files' headers tell (see `prefix::block`).
    fn kept(&self) -> Vec<Kept> {
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).unwrap();
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let token = |i: usize| Token(number(104 + 4 * i) as i32);
            Kept {
                state: Name(bytes[16..48].try_into().unwrap()),
                whole: number(80) == 1,
                first: number(88),
                tokens: (0..number(84)).map(token).collect(),
            }
        };
        Inventory::of(&self.root()).found.iter().map(|found| read(&found.path)).collect()
    }
}

/// A file of the store.
struct Kept {
    state: Name,
    whole: bool,
    first: usize,
    tokens: Vec<Token>,
}

fn known(content: &str) -> Content {
    let known = Content::default();
    known.set(content.into()).unwrap();
    known
}

fn say(session: &mut Session, prompt: &[Token], settings: TurnSettings) -> Answer {
    let said = answer(session, prompt, settings);
    session.save(&said);
    said
}

/// The answer of a session that has read nothing before.
fn uncached(model: &Arc<dyn Model>, prompt: &[Token], settings: TurnSettings) -> Answer {
    answer(&mut session(Arc::clone(model), None, 2048), prompt, settings)
}

/// Random letters.
fn letters(dice: &mut Dice, count: usize) -> Vec<Token> {
    (0..count).map(|_| Token(i32::from(b'a') + dice.below(26) as i32)).collect()
}

fn shared(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// A turn that was answered with the store.
struct Turn {
    prompt: Vec<Token>,
    cached: usize,
    answer: Vec<Token>,
}

impl Turn {
    /// What the context held afterwards: the last token is not read.
    fn held(&self) -> Vec<Token> {
        [&self.prompt[..], &self.answer[..self.answer.len() - 1]].concat()
    }

    fn limit(&self) -> TurnSettings {
        greedy(self.answer.len())
    }
}

/// Answers the last of `turns` in memory, from what one of the others had read when it was answered itself: that which
/// wrote what was loaded is among those.
fn in_memory(model: &Arc<dyn Model>, turns: &[Turn]) -> Vec<(Session, Vec<Token>)> {
    let (last, earlier) = turns.split_last().unwrap();
    let mut from: Vec<Session> = Vec::new();
    if last.cached == 0 {
        from.push(session(Arc::clone(model), None, 2048));
    }
    for (at, turn) in earlier.iter().enumerate() {
        if last.cached > 0 && shared(&turn.held(), &last.prompt) >= last.cached {
            from.extend(in_memory(model, &turns[..=at]).into_iter().map(|(session, _)| session));
            if from.len() > 3 {
                break;
            }
        }
    }
    let go_on = |mut session: Session| {
        // An answer of no tokens cuts back to what its prompt shares, and reads nothing.
        answer(&mut session, &last.prompt[..=last.cached.min(last.prompt.len() - 1)], greedy(0));
        assert_eq!(session.held().len(), last.cached);
        let said = answer(&mut session, &last.prompt, last.limit());
        assert_eq!(said.cached_tokens, last.cached);
        (session, said.tokens)
    };
    from.into_iter().map(go_on).collect()
}

/// A talk goes on, its last message is asked in other words, or it goes back some turns: all ends of it are kept.
fn next_prompt(dice: &mut Dice, ends: &[Vec<Token>]) -> Vec<Token> {
    let mut talk = match dice.below(4) {
        0 => ends[dice.below(ends.len())].clone(),
        _ => ends.last().unwrap().clone(),
    };
    if !talk.is_empty() {
        talk.extend([Token(258), Token(10)]);
    }
    let long = dice.one_of(&[8, 20, 40, 120, 300]);
    let length = 1 + dice.below(long);
    let message: String = letters(dice, length).iter().map(|token| char::from(token.0 as u8)).collect();
    ask(&mut talk, &message);
    talk
}

#[test]
fn random_talks_are_the_same_with_and_without_the_store() {
    let model = model(Tiny::default());
    let shelf = Shelf::new();
    let mut dice = Dice(7);
    let mut turns: Vec<Turn> = Vec::new();
    let (mut compared, mut parted, mut loaded, mut shorter) = (0, 0, 0, 0);
    for talk in 0..55 {
        let before = turns.len();
        // Some begin as others do.
        let mut system = Vec::new();
        if talk % 3 > 0 {
            system.push(Token(257));
            system.extend(text(&"be brief and kind. ".repeat(talk % 3 * 9)));
        }
        let mut ends = vec![system];
        for _ in 0..4 + dice.below(3) {
            let prompt = next_prompt(&mut dice, &ends);
            let limit = 2 + dice.below(16);
            let said = shelf.answer(&model, &prompt, greedy(limit));
            // No more than was read before, and no less but for what is not worth a look or a file.
            let best = turns.iter().map(|turn| shared(&turn.held(), &prompt[..prompt.len() - 1])).max().unwrap_or(0);
            assert!(said.cached_tokens <= best, "{} of {best}", said.cached_tokens);
            assert_eq!(said.cached_tokens, said.restored.tokens);
            shorter += usize::from(said.cached_tokens + LEAST <= best);
            loaded += said.cached_tokens;
            let plain = uncached(&model, &prompt, greedy(limit));
            assert_eq!((plain.cached_tokens, said.finish), (0, plain.finish));
            turns.push(Turn { prompt: prompt.clone(), cached: said.cached_tokens, answer: said.tokens.clone() });
            compared += 1;
            let parts = said.tokens != plain.tokens;
            parted += usize::from(parts);
            if parts || compared % 50 == 0 {
                assert!(same_up_to_a_tie(&model, &prompt, 0.0, &plain, &said), "turn {compared}");
                let replayed = in_memory(&model, &turns);
                assert!(replayed.iter().any(|(_, own)| *own == said.tokens), "turn {compared} of talk {talk}");
            }
            ends.push([prompt, said.tokens].concat());
        }
        assert!(turns.len() > before + 3);
    }
    assert!(compared > 250 && parted * 20 < compared, "{parted} of {compared} parted");
    // Names of files tell little of tokens: now and then a shorter child looks better.
    assert!(shorter * 50 < compared, "{shorter} of {compared} loaded less than was there");
    assert!(loaded > compared * 200, "{loaded} tokens loaded for {compared} answers");
    assert_eq!(shelf.store().take_trouble(), None);
}

/// Prompts that share exactly so many tokens with what is kept, from the longest to the shortest: what is loaded is what
/// arithmetic says, and the answer is that of a session that cut back in memory.
fn shares_exactly(model: &Arc<dyn Model>, kept: usize, counts: impl DoubleEndedIterator<Item = usize>) {
    let shelf = Shelf::new();
    let mut dice = Dice(3);
    let prefix = letters(&mut dice, kept);
    let said = shelf.answer(model, &prefix, greedy(1));
    assert_eq!(said.saved.tokens, if kept >= 512 { kept } else { 0 }, "a long prompt is saved before it is answered");
    let mut memory = session(Arc::clone(model), None, 2048);
    answer(&mut memory, &prefix, greedy(1));
    for count in counts.rev() {
        // Another question behind what is shared.
        let mut other = prefix[..count].to_vec();
        other.push(UNSAID);
        other.extend(letters(&mut dice, 24));
        // Then what is shared and nothing else: the last token never counts, and is read again.
        let same = &prefix[..count];
        for (prompt, hit) in [(&other[..], count), (same, count.saturating_sub(1))] {
            if prompt.is_empty() {
                continue;
            }
            let loaded = if hit < LEAST { 0 } else { hit };
            let mut session = shelf.session(model);
            let said = answer(&mut session, prompt, greedy(6));
            assert_eq!((said.cached_tokens, said.restored.tokens), (loaded, loaded), "{count} of {kept} shared");
            assert_eq!(session.held(), [prompt, &said.tokens[..said.tokens.len() - 1]].concat());
            let expected = answer(&mut memory, prompt, greedy(6));
            assert_eq!(expected.cached_tokens, hit);
            if loaded == hit {
                assert_eq!(said.tokens, expected.tokens, "{count} of {kept} shared");
            } else {
                assert_eq!(said.tokens, uncached(model, prompt, greedy(6)).tokens);
            }
        }
    }
}

#[test]
fn what_is_shared_is_loaded_to_the_token() {
    let kept = 3 * BLOCK + 100;
    let edges = (0..=40).chain(240..=272).chain(496..=528).chain(752..=784).chain(kept - 20..=kept);
    shares_exactly(&model(Tiny::default()), kept, edges.collect::<BTreeSet<_>>().into_iter());
}

#[test]
fn what_a_sliding_window_shares_is_loaded_to_the_token() {
    shares_exactly(&model(gemma3(64)), 4 * 64 + 40, (0..4 * 64 + 41).step_by(3));
}

/// The logits behind each of `tokens`, one at a time.
fn one_by_one(context: &mut dyn Context, tokens: &[Token]) -> Vec<Vec<f32>> {
    tokens.iter().map(|token| read(context, 0, &[*token])).collect()
}

#[test]
fn what_a_window_hides_is_not_what_its_layers_see() {
    // Or else nothing here would notice what a window lost.
    let model = model(Tiny { layers: 1, ..gemma3(64) });
    let mut prompt = letters(&mut Dice(1), 100);
    let mut behind = |at: usize, letter: u8| {
        prompt[at] = Token(i32::from(letter));
        read(context(&model, 256, 1).0.as_mut(), 0, &prompt)
    };
    for (at, sees) in [(30, false), (35, false), (36, true), (70, true)] {
        assert_eq!(!close(&behind(at, b'x'), &behind(at, b'#')), sees, "position {at}");
    }
}

#[test]
fn blocks_of_a_sliding_window_go_on_as_if_read() {
    let window = 64;
    let model = model(gemma3(window));
    assert_eq!(model.save(), Save::Ranges { most: window });
    let mut dice = Dice(11);
    let prompt = letters(&mut dice, 6 * window + 20);
    let (mut first, _) = context(&model, 1024, 1);
    read(first.as_mut(), 0, &prompt);
    // More than the window would come back without its beginning.
    assert!(first.save(0, 0..window + 1).is_err());
    assert!(first.save(0, 0..prompt.len()).is_err());
    let starts: Vec<usize> = (0..prompt.len()).step_by(window).collect();
    let range = |start: usize| start..(start + window).min(prompt.len());
    let blocks: Vec<Vec<u8>> = starts.iter().map(|start| first.save(0, range(*start)).unwrap()).collect();
    let load = |context: &mut dyn Context| {
        for (start, block) in starts.iter().zip(&blocks) {
            context.load(0, block, &prompt[range(*start)]).unwrap();
        }
    };
    let end = prompt.len();
    let next = letters(&mut dice, window + 20);
    let (mut second, _) = context(&model, 1024, 1);
    load(second.as_mut());
    assert_eq!(read(second.as_mut(), 0, &next), read(first.as_mut(), 0, &next), "bit-identical");
    let near_end = [end - 1, end - window + 1, end - window, end - window - 1, end - 2 * window, end];
    let near_start = [1, window - 1, window, window + 1, 3 * window, 3 * window + 1];
    for cut in near_end.into_iter().chain(near_start) {
        second.trim(0, 0).unwrap();
        load(second.as_mut());
        second.trim(0, cut).unwrap();
        let (mut fresh, _) = context(&model, 1024, 1);
        read(fresh.as_mut(), 0, &prompt[..cut]);
        let steps = one_by_one(second.as_mut(), &next).into_iter().zip(one_by_one(fresh.as_mut(), &next));
        for (step, (restored, read)) in steps.enumerate() {
            assert!(close(&restored, &read), "cut at {cut}, {step} tokens later");
        }
        // And cut once more, where some of it was loaded and some read.
        second.trim(0, cut - 1).unwrap();
        fresh.trim(0, cut - 1).unwrap();
        assert!(close(&read(second.as_mut(), 0, &next[..5]), &read(fresh.as_mut(), 0, &next[..5])), "cut at {cut}");
    }
}

/// A context whose second sequence has lost its beginning where the window of 64 has passed it, and what it holds: llama.cpp
/// gives such places to others where they lie in the way.
fn lost(model: &Arc<dyn Model>) -> (Box<dyn Context>, Vec<Token>) {
    let mut dice = Dice(12);
    let (mut context, _) = context(model, 1024, 2);
    read(context.as_mut(), 0, &letters(&mut dice, 512));
    let long = letters(&mut dice, 456);
    read(context.as_mut(), 1, &long[..256]);
    context.trim(0, 0).unwrap();
    read(context.as_mut(), 1, &long[256..]);
    read(context.as_mut(), 0, &letters(&mut dice, 500));
    context.trim(0, 0).unwrap();
    assert_eq!(context.tokens(1), long);
    (context, long)
}

#[test]
fn what_a_window_lost_is_not_cut_into() {
    let window = 64;
    let model = model(gemma3(window));
    let (mut context, long) = lost(&model);
    let refused = |context: &mut dyn Context, from: usize| {
        assert_eq!(context.trim(1, from), Err(EngineError::CannotTrim { from }));
        assert_eq!(context.tokens(1), long);
    };
    refused(context.as_mut(), 1);
    refused(context.as_mut(), 100);
    let kept = (101..long.len()).find(|from| context.trim(1, *from).is_ok());
    // Not everything is lost, and where it may be cut it goes on as if read.
    let kept = kept.unwrap();
    assert!(kept < long.len() - window, "{kept}");
    let fresh = |end: &[Token]| {
        let (mut context, _) = self::context(&model, 1024, 1);
        read(context.as_mut(), 0, &[&long[..kept], end].concat())
    };
    for end in ["a", "b"] {
        assert!(close(&read(context.as_mut(), 1, &text(end)), &fresh(&text(end))));
        context.trim(1, kept).unwrap();
    }
}

#[test]
fn what_a_window_lost_is_not_saved_as_if_it_were_there() {
    let window = 64;
    let (mut context, long) = lost(&model(gemma3(window)));
    assert!(context.save(1, 0..window).is_err());
    assert!(context.save(1, window..2 * window).is_err());
    assert!(context.fork(1, 0, 0..window).is_err());
    let last = long.len() / window * window;
    let bytes = context.save(1, last..long.len()).unwrap();
    assert!(!bytes.is_empty() && context.tokens(1) == long);
}

#[test]
fn no_block_is_longer_than_the_window() {
    for (window, longest) in [(64, 64), (63, 32), (33, 32), (300, BLOCK), (20, 20)] {
        let model = model(gemma3(window));
        let shelf = Shelf::new();
        let mut dice = Dice(window as u64);
        let mut talk = Vec::new();
        for turn in 0..4 {
            let message: String = letters(&mut dice, 150).iter().map(|token| char::from(token.0 as u8)).collect();
            ask(&mut talk, &message);
            let said = shelf.answer(&model, &talk, greedy(20));
            let plain = uncached(&model, &talk, greedy(20));
            assert!(same_up_to_a_tie(&model, &talk, 0.0, &plain, &said), "turn {turn} with a window of {window}");
            if window >= 32 && turn > 0 {
                assert!(said.cached_tokens > turn * 150, "window {window}, turn {turn}: {}", said.cached_tokens);
            }
            talk.extend(said.tokens);
            talk.push(Token(258));
        }
        // Of a shorter window than is worth a block next to nothing is kept.
        let lengths: Vec<usize> = shelf.kept().iter().map(|kept| kept.tokens.len()).collect();
        assert!(lengths.iter().all(|length| *length <= longest), "window {window}: {lengths:?}");
        assert!(window < 32 || lengths.iter().filter(|length| **length == longest).count() > 1, "{lengths:?}");
        assert_eq!(shelf.store().take_trouble(), None);
    }
}

#[test]
fn a_context_that_grows_keeps_what_the_window_has_passed() {
    let model = model(gemma3(64));
    let prompt = letters(&mut Dice(13), 40);
    let mut large = session(Arc::clone(&model), None, 4096);
    let whole = answer(&mut large, &prompt, greedy(900));
    let mut small = session(Arc::clone(&model), None, 0);
    let grown = answer(&mut small, &prompt, greedy(900));
    assert!(small.n_ctx() >= 939 && large.n_ctx() == 4096, "{} {}", small.n_ctx(), large.n_ctx());
    assert_eq!(grown.tokens, whole.tokens);
    // Grown again, then cut back far behind the window: nothing is read again, and nothing is missing.
    let said = [&prompt[..], &whole.tokens].concat();
    for shared in [930, 500, 200, 20] {
        let other = [&said[..shared], &text("#other")].concat();
        let from_large = answer(&mut large, &other, greedy(300));
        let from_small = answer(&mut small, &other, greedy(300));
        assert_eq!((from_large.cached_tokens, from_small.cached_tokens), (shared, shared));
        assert_eq!(from_small.tokens, from_large.tokens);
        assert!(same_up_to_a_tie(&model, &other, 0.0, &uncached(&model, &other, greedy(300)), &from_small));
    }
}

/// A session that stops at the same places as one with a store, and has none: its model's content is not known.
fn stopping(model: &Arc<dyn Model>, shelf: &Shelf) -> Session {
    let mut session = session(Arc::clone(model), None, 2048);
    session.cache(Some(Cached::new(Arc::new(shelf.store()), "unknown".into(), Content::default())), Keep::All);
    session
}

/// A system prompt, and where a first question parts from others.
fn system() -> (Vec<Token>, usize) {
    let mut talk = vec![Token(257)];
    talk.extend(text("system\nspeak as the old sailors did, and briefly."));
    talk.extend([Token(258), Token(10)]);
    let mut asked = talk.clone();
    ask(&mut asked, "");
    let boundary = talk.len() + 6;
    assert_eq!(&asked[boundary - 1..=boundary], [Token(10), Token(258)]);
    (talk, boundary)
}

#[test]
fn whole_states_are_restored_at_the_end_of_a_turn_and_of_the_system_prompt() {
    for tiny in [lfm2(), mamba()] {
        let name = tiny.architecture.clone();
        let model = model(tiny);
        assert_eq!(model.save(), Save::Whole);
        let shelf = Shelf::new();
        let (system, boundary) = system();
        let first = |question: &str| {
            let mut talk = system.clone();
            ask(&mut talk, question);
            talk
        };
        let marked = || TurnSettings { boundaries: vec![boundary], ..greedy(30) };
        let mut memory = stopping(&model, &shelf);
        let mut talk = first("where does the wind come from today?");
        for turn in 0..4 {
            let settings = if turn == 0 { marked() } else { greedy(30) };
            let said = shelf.answer(&model, &talk, settings.clone());
            let expected = answer(&mut memory, &talk, settings);
            assert_eq!(said.cached_tokens, expected.cached_tokens, "{name}, turn {turn}");
            assert_eq!(said.tokens, expected.tokens, "{name}, turn {turn}");
            let plain = uncached(&model, &talk, greedy(30));
            assert!(same_up_to_a_tie(&model, &talk, 0.0, &plain, &said), "{name}, turn {turn}");
            talk.extend(&said.tokens);
            assert_eq!(memory.held(), &talk[..talk.len() - 1]);
            talk.push(Token(258));
            ask(&mut talk, "and then?");
        }
        // Two other first questions: what they share with the first one is the system prompt.
        for question in ["what is for dinner?", "where is the boat?"] {
            let prompt = first(question);
            let said = shelf.answer(&model, &prompt, marked());
            assert_eq!(said.cached_tokens, boundary, "{name}");
            let expected = answer(&mut stopping(&model, &shelf), &prompt, marked());
            assert_eq!(said.tokens, expected.tokens, "{name}");
            assert!(same_up_to_a_tie(&model, &prompt, 0.0, &uncached(&model, &prompt, greedy(30)), &said));
        }
        // The second question in other words: no state ends where they part, but the turn before does.
        let mut memory = stopping(&model, &shelf);
        let mut talk = first("where is the boat?");
        talk.extend(answer(&mut memory, &talk, marked()).tokens);
        let end = talk.len() - 1;
        talk.push(Token(258));
        for question in ["who sails it?", "who built it?"] {
            let mut prompt = talk.clone();
            ask(&mut prompt, question);
            let said = shelf.answer(&model, &prompt, greedy(30));
            assert_eq!(said.cached_tokens, end, "{name}");
            assert!(same_up_to_a_tie(&model, &prompt, 0.0, &uncached(&model, &prompt, greedy(30)), &said));
        }
        // One token other inside the system prompt: nothing fits.
        let mut other = first("where is the boat?");
        other[20] = Token(35);
        let said = shelf.answer(&model, &other, marked());
        assert_eq!(said.cached_tokens, 0, "{name}");
        assert!(shelf.kept().iter().all(|kept| kept.whole));
        assert_eq!(shelf.store().take_trouble(), None);
    }
}

#[test]
fn a_talk_that_goes_on_leaves_the_system_prompts_state_to_others() {
    let model = model(lfm2());
    let shelf = Shelf::new();
    let (system, boundary) = system();
    let first = |question: &str| {
        let mut talk = system.clone();
        ask(&mut talk, question);
        talk
    };
    let marked = || TurnSettings { boundaries: vec![boundary], ..greedy(20) };
    shelf.answer(&model, &first("one?"), marked());
    // One session loads it, and then says more than two whole states' worth.
    let mut session = shelf.session(&model);
    let mut talk = first("two?");
    assert_eq!(say(&mut session, &talk, marked()).cached_tokens, boundary);
    for _ in 0..4 {
        talk = [&talk[..], &session.decoded()[talk.len()..], &[Token(258)]].concat();
        ask(&mut talk, "and then?");
        say(&mut session, &talk, greedy(20));
    }
    let said = session.decoded().to_vec();
    drop(session);
    // Of the talk itself only the last states are kept.
    let own = |kept: &&Kept| kept.tokens.len() > boundary && said.starts_with(&kept.tokens);
    assert_eq!(shelf.kept().iter().filter(own).count(), 2);
    assert_eq!(shelf.answer(&model, &first("three?"), marked()).cached_tokens, boundary);
}

#[test]
fn a_question_is_asked_in_other_words_again_and_again() {
    for tiny in [lfm2(), mamba()] {
        let name = tiny.architecture.clone();
        let model = model(tiny);
        let shelf = Shelf::new();
        let (mut session, store) = shelf.session_and_store(&model);
        // Long enough that no machine finds reading it cheaper.
        let mut talk = letters(&mut Dice(8), 900);
        talk.extend(say(&mut session, &talk, greedy(20)).tokens);
        let end = talk.len() - 1;
        talk.push(Token(258));
        for (edit, question) in ["over there?", "by the rocks?", "behind them?", "here?", "at sea?"].iter().enumerate()
        {
            let mut prompt = talk.clone();
            ask(&mut prompt, question);
            store.flush();
            let said = say(&mut session, &prompt, greedy(20));
            // The context cannot go back there: after the first time it is restored.
            let restored = if edit == 0 { 0 } else { end };
            assert_eq!((said.cached_tokens, said.restored.tokens), (end, restored), "{name}: {question}");
            assert!(same_up_to_a_tie(&model, &prompt, 0.0, &uncached(&model, &prompt, greedy(20)), &said));
        }
        // And a prompt of so many tokens is kept but for the last one, for others.
        let lengths: BTreeSet<usize> = shelf.kept().iter().map(|kept| kept.tokens.len()).collect();
        assert!(lengths.contains(&899) && lengths.contains(&end), "{lengths:?}");
    }
}

#[test]
fn the_same_long_prompt_of_a_recurrent_model_is_not_read_again() {
    for tiny in [mamba(), lfm2()] {
        let model = model(tiny);
        let shelf = Shelf::new();
        let prompt = letters(&mut Dice(5), 900);
        let first = shelf.answer(&model, &prompt, greedy(20));
        assert_eq!(first.cached_tokens, 0);
        let again = shelf.answer(&model, &prompt, greedy(20));
        // All but the last token, whose logits are needed.
        assert_eq!(again.cached_tokens, prompt.len() - 1);
        assert_eq!(again.tokens, first.tokens);
    }
}

#[test]
fn a_chat_of_32_000_tokens_goes_on_in_a_new_process() {
    let model = model(Tiny { context: 40_960, layers: 1, heads: 1, ..Tiny::default() });
    let shelf = Shelf::new();
    let mut talk = Vec::new();
    ask(&mut talk, "");
    talk.extend(letters(&mut Dice(32), 32_000));
    let mut memory = session(Arc::clone(&model), None, 2048);
    memory.cache(Some(shelf.cached("target")), Keep::All);
    let first = say(&mut memory, &talk, greedy(40));
    talk.extend(&first.tokens);
    talk.push(Token(258));
    ask(&mut talk, "and in short?");
    // The one that read it all goes on without the store.
    memory.cache(None, Keep::All);
    let expected = answer(&mut memory, &talk, greedy(40));
    let said = shelf.answer(&model, &talk, greedy(40));
    assert!(said.restored.tokens > 31_000 && talk.len() - said.cached_tokens < 60, "{}", said.cached_tokens);
    assert_eq!((said.cached_tokens, said.tokens), (expected.cached_tokens, expected.tokens));
}

/// A drafter with the model of this content, and how many rows it evaluates.
fn drafter(model: &Arc<dyn Model>, cached: Option<Cached>) -> (Box<dyn Drafter>, Arc<AtomicUsize>) {
    let rows = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rows);
    let model = Watched::over(Arc::clone(model), move |_, rows| {
        counted.fetch_add(rows.len(), Ordering::Relaxed);
    });
    let load = move || Ok(Arc::clone(&model));
    let drafter = ModelDrafter::new(Box::new(load), std::time::Duration::ZERO, 1, Interrupt::default());
    (Box::new(drafter.with_cache(cached)), rows)
}

#[test]
fn a_draft_finds_what_it_has_read_before_under_its_own_key() {
    let target = model(Tiny::default());
    let draft = model(Tiny { layers: 1, ..Tiny::default() });
    let shelf = Shelf::new();
    let mut dice = Dice(21);
    let mut talk = Vec::new();
    let mut read_before = 0;
    for turn in 0..4 {
        let message: String = letters(&mut dice, 350).iter().map(|token| char::from(token.0 as u8)).collect();
        ask(&mut talk, &message);
        let mut own = shelf.session(&target);
        let (drafter, rows) = drafter(&draft, Some(shelf.cached("draft")));
        own.speculate(Some(always(drafter, 4)));
        let said = say(&mut own, &talk, greedy(40));
        let states: std::collections::BTreeSet<_> = own.take_ends().into_iter().map(|end| end.state).collect();
        assert_eq!(states.len(), 2);
        let (uncached_drafter, uncached_rows) = self::drafter(&draft, None);
        let mut plain = session(Arc::clone(&target), None, 2048);
        plain.speculate(Some(always(uncached_drafter, 4)));
        let plain = answer(&mut plain, &talk, greedy(40));
        assert!(same_up_to_a_tie(&target, &talk, 0.0, &plain, &said), "turn {turn}");
        let (rows, uncached_rows) = (rows.load(Ordering::Relaxed), uncached_rows.load(Ordering::Relaxed));
        assert!(said.speculation.unwrap().rounds > 5 && uncached_rows > talk.len());
        // It reads what is new, and what it drafts.
        assert!(rows + read_before < uncached_rows + 2 * LEAST, "turn {turn}: {rows} rows, {uncached_rows} uncached");
        read_before = talk.len() + said.tokens.len() - 40;
        talk.extend(said.tokens);
        talk.push(Token(258));
    }
    let name = |content: &str, model: &Arc<dyn Model>| {
        StateKey { content: content.into(), state: model.state_format(2048) }.name()
    };
    let of = |state: Name| {
        let kept = shelf.kept();
        let own = kept.iter().filter(|kept| kept.state == state);
        own.map(|kept| kept.first + kept.tokens.len()).max().unwrap_or(0)
    };
    let (target, draft) = (name("target", &target), name("draft", &draft));
    assert_ne!(target, draft);
    assert!(of(target) + 50 > talk.len() && of(draft) + 50 > talk.len(), "{} {}", of(target), of(draft));
    assert_eq!(shelf.kept().iter().map(|kept| kept.state).collect::<BTreeSet<_>>().len(), 2);
    // A list of the store can call both by their names.
    let names = [target, draft].map(|state| shelf.store().about(state).model);
    assert_eq!(names, ["target", "draft"]);
}
