//! The contract of `Context`, on llama.cpp with the tiny model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qchat::engine::llama::LoadSettings;
use qchat::engine::{Context, ContextSettings, EngineError, Model, Row, Seq, Token};

use crate::common::Sandbox;
use crate::common::tiny::Tiny;

pub fn load(sandbox: &Sandbox, tiny: &Tiny) -> Arc<dyn Model> {
    let path = sandbox.path("tiny.gguf");
    tiny.write(&path).unwrap();
    qchat::engine::open(&path, &LoadSettings { gpu_layers: Some(0), repack: true }, &mut |_| true).unwrap()
}

pub fn context(model: &Arc<dyn Model>, n_ctx: usize, sequences: u32) -> (Box<dyn Context>, Arc<AtomicBool>) {
    let cancel = Arc::new(AtomicBool::new(false));
    let settings = ContextSettings { n_ctx, sequences, threads: 1, cancel: Arc::clone(&cancel) };
    (Arc::clone(model).context(&settings).unwrap(), cancel)
}

pub fn rows(seq: Seq, from: usize, tokens: &[Token]) -> Vec<Row> {
    let last = tokens.len() - 1;
    let row = |(i, token): (usize, &Token)| Row { seq, token: *token, pos: from + i, want_logits: i == last };
    tokens.iter().enumerate().map(row).collect()
}

pub fn text(text: &str) -> Vec<Token> {
    text.bytes().map(|byte| Token(i32::from(byte))).collect()
}

/// Evaluates tokens behind what a sequence holds; the logits of the last.
pub fn read(context: &mut dyn Context, seq: Seq, tokens: &[Token]) -> Vec<f32> {
    let from = context.tokens(seq).len();
    context.eval(&rows(seq, from, tokens)).unwrap();
    context.logits(tokens.len() - 1).to_vec()
}

/// Equal but for the order of additions, which batches change (0.004 was seen; the logits spread over 4).
pub fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.02)
}

#[test]
fn a_sequence_is_what_was_evaluated() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut context, _) = context(&model, 256, 2);
    let whole = read(context.as_mut(), 0, &text("hello world"));
    assert_eq!(whole.len(), model.vocab().len());
    assert_eq!(context.tokens(0), text("hello world"));
    read(context.as_mut(), 1, &text("hello"));
    let in_two = read(context.as_mut(), 1, &text(" world"));
    assert!(close(&whole, &in_two));
    assert_eq!(context.logits(0), &[] as &[f32], "a row that did not ask has no logits");
}

#[test]
fn a_trimmed_sequence_goes_on_as_if_never_longer() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut context, _) = context(&model, 512, 2);
    for cut in [0, 1, 5, 31, 32, 33, 63] {
        context.trim(0, 0).unwrap();
        context.trim(1, 0).unwrap();
        let long = text(&"abcdefgh".repeat(8));
        read(context.as_mut(), 0, &long);
        context.trim(0, cut).unwrap();
        assert_eq!(context.tokens(0), &long[..cut]);
        let after = read(context.as_mut(), 0, &text("xyz"));
        let mut short = long[..cut].to_vec();
        short.extend(text("xyz"));
        let fresh = read(context.as_mut(), 1, &short);
        assert!(close(&after, &fresh), "cut at {cut}");
    }
}

#[test]
fn ranges_are_saved_and_loaded() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut first, _) = context(&model, 256, 1);
    let prompt = text("the quick brown fox jumps over the lazy dog");
    read(first.as_mut(), 0, &prompt);
    let blocks = [first.save(0, 0..16).unwrap(), first.save(0, 16..40).unwrap()];
    assert_eq!(first.tokens(0), prompt);
    let expected = {
        first.trim(0, 40).unwrap();
        read(first.as_mut(), 0, &text("!?"))
    };
    // A context of another size and with more sequences.
    let (mut second, _) = context(&model, 1024, 3);
    second.load(2, &blocks[0], &prompt[..16]).unwrap();
    second.load(2, &blocks[1], &prompt[16..40]).unwrap();
    assert_eq!(second.tokens(2), &prompt[..40]);
    assert_eq!(read(second.as_mut(), 2, &text("!?")), expected, "bit-identical");
    // Trims after a restore are right too.
    second.trim(2, 10).unwrap();
    let trimmed = read(second.as_mut(), 2, &text("!?"));
    let mut short = prompt[..10].to_vec();
    short.extend(text("!?"));
    assert!(close(&trimmed, &read(second.as_mut(), 0, &short)));
    // A block at the wrong place is refused and changes nothing.
    assert!(second.load(1, &blocks[1], &prompt[16..40]).is_err());
    assert_eq!(second.tokens(1), &[]);
    read(second.as_mut(), 1, &text("ok"));
}

#[test]
fn a_fork_shares_what_was_read() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut context, _) = context(&model, 256, 3);
    let prompt = text("one prefix, two ends");
    read(context.as_mut(), 0, &prompt);
    context.fork(0, 1, 0..10).unwrap();
    assert_eq!(context.tokens(1), &prompt[..10]);
    let forked = read(context.as_mut(), 1, &text("abc"));
    let mut fresh = prompt[..10].to_vec();
    fresh.extend(text("abc"));
    assert!(close(&forked, &read(context.as_mut(), 2, &fresh)));
    assert_eq!(context.tokens(0), prompt);
    assert!(matches!(context.fork(0, 1, 0..3), Err(EngineError::Gap { .. })));
}

#[test]
fn wrong_rows_and_a_full_context_change_nothing() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut context, cancel) = context(&model, 256, 1);
    read(context.as_mut(), 0, &text("abc"));
    let gap = context.eval(&rows(0, 7, &text("x"))).unwrap_err();
    assert_eq!(gap, EngineError::Gap { seq: 0, pos: 7, held: 3 });
    let full = context.eval(&rows(0, 3, &text(&"y".repeat(254)))).unwrap_err();
    assert_eq!(full, EngineError::Full { n_ctx: 256 });
    cancel.store(true, Ordering::Relaxed);
    assert_eq!(context.eval(&rows(0, 3, &text("d"))).unwrap_err(), EngineError::Aborted);
    cancel.store(false, Ordering::Relaxed);
    assert_eq!(context.tokens(0), text("abc"));
    let after = read(context.as_mut(), 0, &text("d"));
    context.trim(0, 0).unwrap();
    assert!(close(&after, &read(context.as_mut(), 0, &text("abcd"))));
}

#[test]
fn an_evaluation_stops_inside_and_leaves_nothing_behind() {
    // Large enough to take a while: cancelled from another thread at many moments.
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny::default());
    let (mut context, cancel) = context(&model, 2048, 1);
    let prompt = text(&"lorem ipsum ".repeat(40));
    let expected = read(context.as_mut(), 0, &prompt);
    let mut aborted = 0;
    for delay in 0..40u64 {
        context.trim(0, 4).unwrap();
        let flag = Arc::clone(&cancel);
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(delay * 500));
            flag.store(true, Ordering::Relaxed);
        });
        let result = context.eval(&rows(0, 4, &prompt[4..]));
        other.join().unwrap();
        cancel.store(false, Ordering::Relaxed);
        match result {
            Ok(()) => assert_eq!(context.tokens(0), prompt),
            Err(error) => {
                assert_eq!(error, EngineError::Aborted);
                assert_eq!(context.tokens(0), &prompt[..4]);
                aborted += 1;
            }
        }
    }
    context.trim(0, 0).unwrap();
    assert_eq!(read(context.as_mut(), 0, &prompt), expected);
    assert!(aborted > 0);
}

#[test]
fn a_load_that_is_stopped_is_an_abort() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("tiny.gguf");
    Tiny::default().write(&path).unwrap();
    let result = qchat::engine::open(&path, &LoadSettings { gpu_layers: Some(0), repack: true }, &mut |_| false);
    assert_eq!(result.err(), Some(EngineError::Aborted));
}
