//! What an answer was and what it cost.

use std::time::{Duration, Instant};

use super::cached::{Restored, Saved};
use super::draft::Speculation;
use super::logprobs::TokenLogprob;
use crate::engine::Token;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// An end-of-generation token or a stop string.
    Stop,
    /// The token budget, or the end of the context.
    Length,
    /// No token fits the grammar.
    Stuck,
    /// Ctrl-C.
    Interrupted,
    /// The reader of the output went away.
    #[serde(rename = "interrupted")]
    ReaderGone,
}

/// Where the time of one answer went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    pub prefill: Duration,
    pub decode: Duration,
    /// The part of both that went into choosing tokens.
    pub sampling: Duration,
    /// Tokens read in `prefill`.
    pub prefilled: usize,
}

impl Timings {
    /// Tokens a second, or nothing where nothing was measured.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefilled, self.prefill)
    }

    /// The first token comes out of prefill, so `completion` tokens took `completion - 1` steps.
    pub fn decode_rate(&self, completion: usize) -> Option<f64> {
        rate(completion.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// One finished answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub content: String,
    pub reasoning: String,
    pub finish: Finish,
    /// Whether the content is a whole text of the grammar that it was kept to; true where there was none.
    pub is_complete: bool,
    /// How likely the tokens were, where that was asked for.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Emitted tokens, without the one that ended the answer.
    pub tokens: Vec<Token>,
    /// Prompt tokens, the cached ones included.
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    /// The part of them that came from the prefix cache.
    pub restored: Restored,
    /// What went into the prefix cache while the answer was made.
    pub saved: Saved,
    /// When the first token came out.
    pub first_token: Option<Instant>,
    pub timings: Timings,
    /// What drafts did for it, where there was a drafter.
    pub speculation: Option<Speculation>,
}
