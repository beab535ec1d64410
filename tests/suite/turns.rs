//! Turns and sessions: prefixes reused, contexts that grow, many turns at once, exact with the scripted engine.

use std::sync::Arc;

use qchat::engine::scripted::{Script, ScriptedModel};
use qchat::engine::{ContextSettings, Model, Token};
use qchat::error::Kind;
use qchat::generate::{
    Answer, Ended, Finish, Lane, Limits, Part, Reasoning, Session, Sink, SinkClosed, Turn, TurnSettings, drive,
};
use qchat::interrupt::Interrupt;
use qchat::sample::Sampling;
use serde_json::json;

use super::engine::load;
use crate::common::Sandbox;
use crate::common::tiny::Tiny;

#[derive(Default)]
pub struct Text(String);

impl Sink for Text {
    fn write(&mut self, _: Part, text: &str) -> Result<(), SinkClosed> {
        self.0.push_str(text);
        Ok(())
    }
}

pub fn settings(temperature: f32, max_tokens: Option<usize>) -> TurnSettings {
    let sampling = Sampling { temperature, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.0, seed: 5 };
    TurnSettings { sampling, stops: Vec::new(), max_tokens, reasoning: Reasoning::Off, ..TurnSettings::default() }
}

pub fn scripted(script: serde_json::Value) -> Arc<dyn Model> {
    Arc::new(ScriptedModel::new(serde_json::from_value::<Script>(script).unwrap()))
}

/// A user message in the scripted engine's ChatML.
pub fn ask(talk: &mut Vec<Token>, message: &str) {
    let text = |talk: &mut Vec<Token>, text: &str| talk.extend(text.bytes().map(|byte| Token(i32::from(byte))));
    talk.push(Token(257));
    text(talk, &format!("user\n{message}"));
    talk.push(Token(258));
    text(talk, "\n");
    talk.push(Token(257));
    text(talk, "assistant\n");
}

pub fn session(model: Arc<dyn Model>, n_ctx: Option<usize>, first: usize) -> Session {
    Session::new(model, Limits { n_ctx, first, threads: 1 }, Interrupt::default())
}

pub fn answer(session: &mut Session, prompt: &[Token], settings: TurnSettings) -> Answer {
    session.answer(prompt.to_vec(), settings, &mut Text::default()).unwrap()
}

#[test]
fn the_step_that_ends_an_answer_is_not_in_its_decode_time() {
    // Three bytes: two steps behind the first one, and a third one that finds the end.
    let model = scripted(json!({ "replies": ["abc"], "row_ms": 40 }));
    let mut talk = Vec::new();
    ask(&mut talk, "hello");
    let said = answer(&mut session(model, None, 256), &talk, settings(0.0, None));
    let steps = said.timings.decode.as_secs_f64() / 0.04;
    assert!((2.0..2.9).contains(&steps), "{steps}");
}

#[test]
fn a_second_turn_reads_only_what_is_new() {
    let model = scripted(json!({ "replies": ["Hello.", "Fine."] }));
    let mut session = session(model, None, 256);
    let mut talk = Vec::new();
    ask(&mut talk, "hi");
    let first = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((first.content.as_str(), first.finish, first.cached_tokens), ("Hello.", Finish::Stop, 0));
    talk.extend(&first.tokens);
    let before = talk.len();
    talk.push(Token(258));
    ask(&mut talk, "how are you?");
    let second = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((second.content.as_str(), second.cached_tokens), ("Fine.", before));
    // The same prompt again: all but the last token, whose logits are needed.
    let again = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((again.content.as_str(), again.cached_tokens), ("Fine.", talk.len() - 1));
}

#[test]
fn a_state_that_cannot_be_cut_back_is_read_again() {
    let model = scripted(json!({ "replies": ["Hello."], "can_trim": false }));
    let mut session = session(model, None, 256);
    let mut talk = Vec::new();
    ask(&mut talk, "hi");
    answer(&mut session, &talk, settings(0.0, None));
    let again = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((again.content.as_str(), again.cached_tokens), ("Hello.", 0));
}

#[test]
fn the_context_grows_while_an_answer_is_made() {
    let long = "0123456789".repeat(200);
    let model = scripted(json!({ "replies": [long], "context": 4096 }));
    let mut session = session(model, None, 0);
    let mut talk = Vec::new();
    ask(&mut talk, "count");
    let whole = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((whole.content.as_str(), whole.finish), (long.as_str(), Finish::Stop));
    assert!((2048..=4096).contains(&session.n_ctx()), "{}", session.n_ctx());
}

#[test]
fn the_end_of_the_context_ends_the_answer_and_says_so() {
    let model = scripted(json!({ "replies": ["x".repeat(5000)], "context": 512 }));
    let mut session = session(model, None, 0);
    let mut talk = Vec::new();
    ask(&mut talk, "go");
    let cut = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!(cut.finish, Finish::Length);
    // Every position is used: the last token emitted is the one that found no room.
    assert_eq!(talk.len() + cut.tokens.len(), 513);
    session.limit_context(Some(256));
    let limited = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((limited.finish, talk.len() + limited.tokens.len()), (Finish::Length, 257));
    session.limit_context(Some(512));
    let too_long = session.answer(vec![Token(65); 512], settings(0.0, None), &mut Text::default()).unwrap_err();
    assert_eq!(too_long.kind(), Kind::TooLong);
    assert!(too_long.to_string().contains("512 tokens and the context holds 512: 1 too many"), "{too_long}");
}

#[test]
fn memory_for_a_larger_context_that_cannot_be_had_leaves_the_old_one() {
    let model = scripted(json!({ "replies": ["y".repeat(5000)], "context": 8192, "memory": 1024 }));
    let mut session = session(model, None, 0);
    let mut talk = Vec::new();
    ask(&mut talk, "go");
    let cut = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!(cut.finish, Finish::Length);
    assert!((512..=1024).contains(&session.n_ctx()), "{}", session.n_ctx());
    assert_eq!(talk.len() + cut.tokens.len(), session.n_ctx() + 1);
}

#[test]
fn an_engine_that_fails_is_an_error_and_the_session_goes_on() {
    let model = scripted(json!({ "replies": ["Hello."], "fails_at": 3 }));
    let mut session = session(model, None, 256);
    let mut talk = Vec::new();
    ask(&mut talk, "hi");
    let error = session.answer(talk.clone(), settings(0.0, None), &mut Text::default()).unwrap_err();
    assert!(error.to_string().contains("the script says so"), "{error}");
    let after = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!(after.content, "Hello.");
}

#[test]
fn budgets_and_stop_strings_end_an_answer() {
    let model = scripted(json!({ "replies": ["one two three"] }));
    let mut session = session(model, None, 256);
    let mut talk = Vec::new();
    ask(&mut talk, "count");
    let budget = answer(&mut session, &talk, settings(0.0, Some(7)));
    assert_eq!((budget.content.as_str(), budget.finish, budget.tokens.len()), ("one two", Finish::Length, 7));
    let stopped = answer(&mut session, &talk, TurnSettings { stops: vec!["o th".into()], ..settings(0.0, None) });
    assert_eq!((stopped.content.as_str(), stopped.finish), ("one tw", Finish::Stop));
    let none = answer(&mut session, &talk, settings(0.0, Some(0)));
    assert_eq!((none.tokens.len(), none.finish), (0, Finish::Length));
}

#[test]
fn an_interrupt_ends_the_answer_with_what_was_said() {
    struct StopAfter(usize, Interrupt);
    impl Sink for StopAfter {
        fn write(&mut self, _: Part, text: &str) -> Result<(), SinkClosed> {
            self.0 -= text.len();
            if self.0 == 0 {
                self.1.set();
            }
            Ok(())
        }
    }
    let interrupt = Interrupt::default();
    let model = scripted(json!({ "replies": ["one two three"] }));
    let mut session = Session::new(model, Limits { n_ctx: None, first: 256, threads: 1 }, interrupt.clone());
    let mut talk = Vec::new();
    ask(&mut talk, "count");
    let cut = session.answer(talk.clone(), settings(0.0, None), &mut StopAfter(7, interrupt.clone())).unwrap();
    assert_eq!((cut.content.as_str(), cut.finish), ("one two", Finish::Interrupted));
    assert!(interrupt.take());
    // The KV is true: what follows is what would have followed.
    talk.extend(&cut.tokens);
    let rest = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!((rest.content.as_str(), rest.cached_tokens), (" three", talk.len() - 1));
}

#[test]
fn many_turns_at_once_say_what_each_says_alone() {
    let model = scripted(json!({ "replies": ["Hello there."] }));
    let settings_of = |lane: u32| settings(0.0, Some(4 + lane as usize * 3));
    let prompt = |lane: u32| {
        let mut talk = Vec::new();
        ask(&mut talk, &"long prompt ".repeat(lane as usize * 20 + 1));
        talk
    };
    let context_settings = ContextSettings { n_ctx: 4096, sequences: 3, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(&model).context(&context_settings).unwrap();
    let mut sinks = [Text::default(), Text::default(), Text::default()];
    let mut turns: Vec<Turn> =
        (0..3).map(|lane| Turn::new(lane, model.vocab(), prompt(lane), 0, settings_of(lane))).collect();
    let mut lanes: Vec<Lane> =
        turns.iter_mut().zip(&mut sinks).map(|(turn, sink)| Lane { turn, sink, speculator: None }).collect();
    assert_eq!(drive(context.as_mut(), &mut lanes, &Interrupt::default()).unwrap(), Ended::Finished);
    for (lane, together) in (0..).zip(turns) {
        let together = together.into_answer();
        let alone = answer(&mut session(Arc::clone(&model), None, 256), &prompt(lane), settings_of(lane));
        assert_eq!(together.content, alone.content);
        assert_eq!(together.content, "Hello there."[..(4 + lane as usize * 3).min(12)]);
    }
}

#[test]
fn the_tiny_model_says_the_same_whatever_the_context_did() {
    // Grown while it speaks, read in one go, or continued from what is held: the same text for the same seed.
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() });
    let prompt: Vec<Token> = "Once upon a time".bytes().map(|byte| Token(i32::from(byte))).collect();
    let mut large = session(Arc::clone(&model), None, 4096);
    let whole = answer(&mut large, &prompt, settings(0.8, Some(900)));
    assert_eq!(whole.tokens.len(), 900);
    assert_eq!(large.n_ctx(), 4096);
    let mut small = session(Arc::clone(&model), None, 0);
    let grown = answer(&mut small, &prompt, settings(0.8, Some(900)));
    assert!(small.n_ctx() >= 916 && small.n_ctx() < 4096, "{}", small.n_ctx());
    assert_eq!(grown.content, whole.content);
    let again = answer(&mut large, &prompt, settings(0.8, Some(100)));
    assert_eq!(again.cached_tokens, prompt.len() - 1);
    assert_eq!(again.content, whole.content[..100]);
    let other_seed =
        TurnSettings { sampling: Sampling { seed: 6, ..settings(0.8, None).sampling }, ..settings(0.8, Some(100)) };
    assert_ne!(answer(&mut large, &prompt, other_seed).content, again.content);
}
