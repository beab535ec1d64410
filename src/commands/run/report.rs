//! What an answer cost, as a line and as JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::Loaded;
use crate::engine::Token;
use crate::generate::draft::{Calibration, DrafterStats, Source, Speculation};
use crate::generate::{Answer, Restored, TokenLogprob};

/// `began` is when the process began, or the key was pressed.
pub(super) fn line(answer: &Answer, began: Instant) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
    let timings = &answer.timings;
    let mut line = format!(
        "prompt {} tokens ({} cached{}), first token after {:.0} ms, prefill {} t/s, decode {} t/s, {} tokens",
        answer.prompt_tokens,
        answer.cached_tokens,
        loaded_words(&answer.restored),
        answer.first_token.map_or(0.0, |at| (at - began).as_secs_f64() * 1e3),
        rate(timings.prefill_rate()),
        rate(timings.decode_rate(answer.tokens.len())),
        answer.tokens.len(),
    );
    if let Some(own) = &answer.speculation {
        line.push_str(", ");
        line.push_str(&drafts(own));
    }
    line
}

/// What the prefix cache brought, and what that saved.
fn loaded_words(restored: &Restored) -> String {
    if restored.tokens == 0 {
        return String::new();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let read = restored.plan.and_then(|plan| plan.prefill);
    let instead = read.map_or_else(String::new, |time| format!(" instead of about {:.0} ms of reading", ms(time)));
    format!(", {} of them loaded in {:.0} ms{instead}", restored.tokens, ms(restored.time))
}

/// What drafts did, in words.
fn drafts(own: &Speculation) -> String {
    if let Some(why) = own.blocked {
        return format!("no drafts ({why})");
    }
    let Some(drafter) = own.main_drafter() else {
        return "no drafts (none promised to pay)".into();
    };
    let usual = (1..own.lengths.len()).max_by_key(|length| own.lengths[*length]).unwrap_or(0);
    let mut line = format!(
        "drafts: {}, {} of {} tokens accepted, {:.2} tokens a round, mostly {usual} at once",
        drafter.name(),
        own.accepted,
        own.proposed,
        own.mean_accepted_length().unwrap_or(1.0),
    );
    if let Some(gain) = own.estimated_gain() {
        let _ = write!(line, ", {gain:.2} times plain decoding (estimated)");
    }
    if own.model_spared() > 0 {
        line.push_str(", the draft model would not have paid");
    }
    if own.switched_off > 0 {
        let _ = write!(line, ", switched off {} times", own.switched_off);
    }
    line
}

/// The account of drafts in lines, for `/stats`.
pub(super) fn draft_lines(own: &Speculation) -> Vec<String> {
    if own.rounds == 0 {
        return Vec::new();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let by = |(source, stats): &(Source, DrafterStats)| {
        format!("{} {} of {} in {} rounds", source.name(), stats.accepted, stats.proposed, stats.rounds)
    };
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let used = |(length, rounds): (usize, &usize)| (*rounds > 0).then(|| format!("{rounds} of {length}"));
    vec![
        format!("accepted: {}", list(&mut own.by_drafter.iter().map(by))),
        format!(
            "by position: {}",
            list(&mut own.by_position.iter().map(|(proposed, right)| format!("{right}/{proposed}")))
        ),
        format!("rounds by draft length: {}", list(&mut own.lengths.iter().enumerate().filter_map(used))),
        format!(
            "drafting {:.0} ms ({:.0} ms of it loading and reading), verifying {:.0} ms, choosing {:.1} ms; a plain step {:.1} ms",
            ms(own.draft),
            ms(own.draft_read),
            ms(own.verify),
            ms(own.policy),
            own.step_ms,
        ),
        format!(
            "a step of several rows costs, in plain steps: {}",
            own.costs.as_ref().map_or_else(String::new, Calibration::words)
        ),
    ]
}

/// The account of drafts for JSON; null where there was no drafter.
fn speculation(loaded: &Loaded, own: Option<&Speculation>) -> Value {
    let Some(own) = own else { return Value::Null };
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let round = |x: f64| (x * 1e3).round() / 1e3;
    let of = |(source, stats): &(Source, DrafterStats)| (source.name().to_owned(), json!(stats));
    json!({
        "drafter": own.main_drafter().map(Source::name),
        "draft_model": loaded.drafting.draft,
        "proposed": own.proposed,
        "accepted": own.accepted,
        "rounds": own.rounds,
        "plain_rounds": own.plain_rounds,
        "mean_accepted_length": own.mean_accepted_length().map(round),
        "draft_ms": ms(own.draft),
        "draft_read_ms": ms(own.draft_read),
        "verify_ms": ms(own.verify),
        "policy_ms": ms(own.policy),
        "estimated_gain": own.estimated_gain().map(round),
        "switched_off": own.switched_off,
        "by_drafter": own.by_drafter.iter().map(of).collect::<serde_json::Map<_, _>>(),
        "by_position": own.by_position.iter().map(|(proposed, accepted)| json!([proposed, accepted])).collect::<Vec<_>>(),
        "lengths": own.lengths,
        "step_ms": round(own.step_ms),
        "costs": own.costs,
        "lost": own.lost,
        "blocked": own.blocked,
    })
}

/// The JSON of one answer. `began` is when the first token was begun to be waited for; many answers have no such time.
pub(super) fn json(loaded: &Loaded, answer: &Answer, seed: u64, with_reasoning: bool, began: Option<Instant>) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let rate = |rate: Option<f64>| rate.map_or(Value::Null, |rate| json!((rate * 100.0).round() / 100.0));
    let timings = &answer.timings;
    let mut object = json!({
        "model": loaded.name,
        "quantisation": loaded.quant,
        "content": answer.content,
        "reasoning": if with_reasoning && !answer.reasoning.is_empty() { json!(answer.reasoning) } else { Value::Null },
        "finish_reason": answer.finish,
        "complete": answer.is_complete,
        "seed": seed,
        "usage": {
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.tokens.len(),
        },
        "timings": {
            "load_ms": ms(loaded.load_time),
            "restore_ms": ms(answer.restored.time),
            "prefill_ms": ms(timings.prefill),
            "ttft_ms": answer.first_token.zip(began).map(|(at, began)| ms(at - began)),
            "decode_ms": ms(timings.decode),
            "sampling_ms": ms(timings.sampling),
            "prefill_tokens_per_second": rate(timings.prefill_rate()),
            "decode_tokens_per_second": rate(timings.decode_rate(answer.tokens.len())),
        },
        "speculation": speculation(loaded, answer.speculation.as_ref()),
    });
    if let Some(tokens) = &answer.logprobs {
        object["logprobs"] = logprobs(loaded, tokens);
    }
    object
}

/// As `OpenAI`'s API writes them.
fn logprobs(loaded: &Loaded, tokens: &[TokenLogprob]) -> Value {
    let vocab = loaded.speaker.session().model().vocab();
    let one = |token: Token, logprob: f32| {
        let mut bytes = Vec::new();
        vocab.piece(token, &mut bytes);
        json!({ "token": String::from_utf8_lossy(&bytes), "id": token.0, "logprob": logprob, "bytes": bytes })
    };
    let content = tokens.iter().map(|own| {
        let mut object = one(own.token, own.logprob);
        object["top_logprobs"] = own.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
        object
    });
    json!({ "content": content.collect::<Vec<_>>() })
}
