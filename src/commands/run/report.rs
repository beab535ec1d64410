//! What an answer cost, as a line and as JSON.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::Loaded;
use crate::generate::Answer;

/// `began` is when the process began, or the key was pressed.
pub(super) fn line(answer: &Answer, began: Instant) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
    let timings = &answer.timings;
    format!(
        "prompt {} tokens ({} cached), first token after {:.0} ms, prefill {} t/s, decode {} t/s, {} tokens",
        answer.prompt_tokens,
        answer.cached_tokens,
        answer.first_token.map_or(0.0, |at| (at - began).as_secs_f64() * 1e3),
        rate(timings.prefill_rate()),
        rate(timings.decode_rate(answer.tokens.len())),
        answer.tokens.len(),
    )
}

/// The object of product.md, "The JSON of one answer".
pub(super) fn json(loaded: &Loaded, answer: &Answer, seed: u64, with_reasoning: bool, began: Instant) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let rate = |rate: Option<f64>| rate.map_or(Value::Null, |rate| json!((rate * 100.0).round() / 100.0));
    let timings = &answer.timings;
    json!({
        "model": loaded.name,
        "quantisation": loaded.quant,
        "content": answer.content,
        "reasoning": if with_reasoning && !answer.reasoning.is_empty() { json!(answer.reasoning) } else { Value::Null },
        "finish_reason": answer.finish,
        "seed": seed,
        "usage": {
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.tokens.len(),
        },
        "timings": {
            "load_ms": ms(loaded.load_time),
            "restore_ms": 0,
            "prefill_ms": ms(timings.prefill),
            "ttft_ms": answer.first_token.map(|at| ms(at - began)),
            "decode_ms": ms(timings.decode),
            "prefill_tokens_per_second": rate(timings.prefill_rate()),
            "decode_tokens_per_second": rate(timings.decode_rate(answer.tokens.len())),
        },
    })
}
