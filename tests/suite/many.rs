//! Many prompts in one context: each answer is the one that its prompt gets alone, whatever runs beside it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qchat::engine::{Model, Token};
use qchat::error::{Kind, Result};
use qchat::generate::draft::{Adaptive, Costs, Ngram, Source, Speculator};
use qchat::generate::{Answer, Next, Request, Requests, Share, TurnSettings, answer_many};
use qchat::interrupt::Interrupt;
use qchat::sample::Sampling;
use serde_json::json;

use super::engine::load;
use super::turns::{answer, ask, scripted, session, settings};
use crate::common::Sandbox;
use crate::common::recurrent::{lfm2, mamba};
use crate::common::sliding::gemma3;
use crate::common::tiny::Tiny;

#[derive(Default)]
struct Queue {
    left: VecDeque<(Vec<Token>, TurnSettings)>,
    drafts: bool,
    given: usize,
    done: BTreeMap<usize, Result<Answer>>,
    order: Vec<usize>,
    /// Tokens of the first turn, and as many when the last answer but its own was there.
    long: usize,
    long_when_last: usize,
}

impl Requests for Queue {
    fn next(&mut self, _: bool) -> Next {
        let Some((prompt, settings)) = self.left.pop_front() else { return Next::End };
        self.given += 1;
        let policy = || Box::new(Adaptive::new(vec![Source::Ngram], Costs::expected(0.3), 8));
        let speculator = self.drafts.then(|| Speculator::new(vec![Box::new(Ngram::default())], policy()));
        Next::Request(self.given - 1, Box::new(Request { prompt, settings, speculator }))
    }

    fn emitted(&mut self, number: usize, tokens: usize) {
        self.long += if number == 0 { tokens } else { 0 };
    }

    fn done(&mut self, number: usize, answer: Result<Answer>) {
        self.long_when_last = if number == 0 { self.long_when_last } else { self.long };
        self.order.push(number);
        assert!(self.done.insert(number, answer).is_none());
    }
}

fn share(turns: usize, tokens: usize) -> Share {
    Share { turns, tokens, threads: 1 }
}

fn run(model: &Arc<dyn Model>, turns: usize, tokens: usize, queue: &mut Queue) {
    answer_many(model, share(turns, tokens), &Interrupt::default(), None, queue).unwrap();
}

/// Prompts of which some share their beginnings, with settings of their own.
fn prompts() -> Vec<(Vec<Token>, TurnSettings)> {
    let document = "A document that many ask about. ".repeat(12);
    (0..23u64)
        .map(|number| {
            let text =
                if number % 3 == 0 { format!("Something else {number}") } else { format!("{document}{number}?") };
            let sampling =
                Sampling { temperature: [0.0, 0.9][number as usize % 2], seed: number, ..Sampling::greedy() };
            let most = 3 + number as usize * 7 % 40;
            let tokens = text.bytes().map(|byte| Token(i32::from(byte))).collect();
            (tokens, TurnSettings { sampling, ..settings(0.0, Some(most)) })
        })
        .collect()
}

#[test]
fn each_answer_is_the_one_it_would_get_alone() {
    let model = load(&Sandbox::new(), &Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() });
    let alone: Vec<Answer> = prompts()
        .into_iter()
        .map(|(prompt, settings)| answer(&mut session(Arc::clone(&model), None, 1024), &prompt, settings))
        .collect();
    for (turns, drafts) in [(1, false), (4, false), (8, false), (8, true)] {
        let mut queue = Queue { left: prompts().into(), drafts, ..Queue::default() };
        run(&model, turns, 512, &mut queue);
        assert_eq!(queue.done.len(), 23);
        let mut read = 0;
        // Rows of other turns change how an evaluation rounds, so near-ties may part.
        let mut parted = 0;
        for (number, alone) in alone.iter().enumerate() {
            let together = queue.done[&number].as_ref().unwrap();
            assert_eq!(together.tokens.len(), alone.tokens.len());
            parted += usize::from(together.content != alone.content);
            read += together.prompt_tokens - together.cached_tokens;
        }
        assert!(parted <= 1, "{turns} {drafts}: {parted}");
        let all: usize = alone.iter().map(|answer| answer.prompt_tokens).sum();
        // The document is read once, and once more at most where two began before it was.
        assert!(all > 5900 && (turns == 1 || read < 1300), "{turns} {drafts}: {read} of {all}");
    }
}

const DOCUMENT: &str = "A document that many ask about. ";
const TIMES: usize = 12;

/// Nine questions about one document, four at once: how many tokens each had from another. They answer as they would alone.
fn shared_of(tiny: Tiny) -> Vec<usize> {
    let model = load(&Sandbox::new(), &Tiny { says: |id| (32..127).contains(&id), ..tiny });
    let prompt = |number: usize| -> Vec<Token> {
        let text = format!("{}{number}?", DOCUMENT.repeat(TIMES));
        text.bytes().map(|byte| Token(i32::from(byte))).collect()
    };
    let asked: Vec<_> = (0..9).map(|number| (prompt(number), settings(0.0, Some(20 + number)))).collect();
    let mut queue = Queue { left: asked.clone().into(), ..Queue::default() };
    run(&model, 4, 512, &mut queue);
    let alone = asked
        .into_iter()
        .map(|(prompt, settings)| answer(&mut session(Arc::clone(&model), None, 1024), &prompt, settings).content);
    let together: Vec<&Answer> = queue.done.values().map(|answer| answer.as_ref().unwrap()).collect();
    // Rows of other turns change how an evaluation rounds, so near-ties may part.
    let parted = alone.zip(&together).filter(|(alone, together)| *alone != together.content).count();
    assert!(together.len() == 9 && parted <= 1, "{parted}");
    together.iter().map(|answer| answer.cached_tokens).collect()
}

#[test]
fn what_is_longer_than_a_sliding_window_is_shared_too() {
    let cached = shared_of(gemma3(64));
    assert!(cached[1..].iter().all(|cached| *cached > 300), "{cached:?}");
}

#[test]
fn a_turn_that_ends_is_replaced_at_once() {
    // One long answer, and short ones beside it: they take the other place one after the other.
    let model = scripted(json!({ "replies": ["x".repeat(60)], "row_ms": 1 }));
    let prompt = || {
        let mut talk = Vec::new();
        ask(&mut talk, "a");
        talk
    };
    let left = [60, 5, 5, 5, 5, 5].map(|most| (prompt(), settings(0.0, Some(most))));
    let mut queue = Queue { left: left.into(), ..Queue::default() };
    run(&model, 2, 256, &mut queue);
    assert_eq!(queue.order, [1, 2, 3, 4, 5, 0]);
    // A prompt of 20 tokens beside a turn that decodes is read in two rounds at most, then come 5 tokens: the long turn
    // is at its 35th token when all are done, and no later than that where nobody waits.
    assert!(queue.long_when_last <= 5 * (2 + 5), "{}", queue.long_when_last);
}

#[test]
fn what_does_not_fit_its_share_is_an_error_in_its_place() {
    let model = scripted(json!({ "replies": ["Hello."] }));
    let mut long = Vec::new();
    ask(&mut long, &"long ".repeat(60));
    let mut short = Vec::new();
    ask(&mut short, "a");
    let left = [long, Vec::new(), short].map(|prompt| (prompt, settings(0.0, None)));
    let mut queue = Queue { left: left.into(), ..Queue::default() };
    run(&model, 2, 128, &mut queue);
    let error = queue.done[&0].as_ref().unwrap_err();
    assert_eq!(error.kind(), Kind::TooLong);
    // 300 bytes and 19 around them.
    assert!(error.to_string().starts_with("the prompt has 319 tokens and its share is 128: 192 too many"), "{error}");
    assert_eq!(queue.done[&1].as_ref().unwrap_err().kind(), Kind::Usage);
    assert_eq!(queue.done[&2].as_ref().unwrap().content, "Hello.");
}

#[test]
fn an_interrupt_hands_back_whole_answers_only() {
    let model = scripted(json!({ "replies": ["x".repeat(400)], "row_ms": 2, "context": 4096 }));
    let mut prompt = Vec::new();
    ask(&mut prompt, "a");
    let left = [3, 400, 400].map(|most| (prompt.clone(), settings(0.0, Some(most))));
    let mut queue = Queue { left: left.into(), ..Queue::default() };
    let interrupt = Interrupt::default();
    let stop = interrupt.clone();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(400));
        stop.set();
    });
    answer_many(&model, share(3, 512), &interrupt, None, &mut queue).unwrap();
    assert_eq!(queue.order, [0]);
}

#[test]
fn whole_states_are_shared_where_prompts_part() {
    for tiny in [lfm2(), mamba()] {
        // All of it is one state, where the second prompt parted from the first.
        assert_eq!(shared_of(tiny), [[0].as_slice(), &[DOCUMENT.len() * TIMES; 8]].concat());
    }
}

#[test]
fn models_with_whole_states_only_are_driven_too() {
    let model = scripted(json!({ "replies": ["Hello."], "can_trim": false, "save_most": 0 }));
    let mut prompt = Vec::new();
    ask(&mut prompt, "a");
    let left: Vec<_> = (0..7).map(|_| (prompt.clone(), settings(0.0, None))).collect();
    let mut queue = Queue { left: left.into(), ..Queue::default() };
    run(&model, 3, 128, &mut queue);
    assert!(queue.done.len() == 7 && queue.done.values().all(|answer| answer.as_ref().unwrap().content == "Hello."));
}
