//! Speculative decoding (Leviathan et al. 2023; Chen et al. 2023): drafters propose tokens, the target judges them all in
//! one evaluation, and a policy decides each round who drafts, how much, or that nobody does.
//!
//! A draft never changes the answer: the target samples its own token for every row with noise that belongs to the
//! position (see `sample::noise`), and a proposal counts only where it is that token.

mod acceptance;
mod account;
mod adaptive;
mod costs;
mod gaps;
mod model;
mod ngram;
mod speculator;

pub use account::{DrafterStats, Speculation};
pub use adaptive::Adaptive;
pub use costs::{Calibration, Costs, MOST_ROWS};
pub use gaps::Gaps;
pub use model::{DraftLoader, Loading, ModelDrafter};
pub use ngram::Ngram;
pub use speculator::{Judged, Speculator};

use std::time::Duration;

use super::cached::End;
use crate::engine::{EngineError, Token};
use crate::sample::Sampling;

/// The most tokens that are ever drafted at once.
pub const MOST_DRAFTED: usize = 16;

/// What kind of drafter proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    #[serde(rename = "n-gram")]
    Ngram,
    Model,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Ngram => "n-gram",
            Source::Model => "model",
        }
    }
}

/// What is known about a proposed token before it is judged: the match length behind it, or the draft's confidence in
/// it. Records of acceptance are kept by class; each kind of drafter numbers its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u8);

/// One proposed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    pub token: Token,
    pub class: Class,
}

/// Where a round begins: prompt and emitted tokens; the last one is pending.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub tokens: &'a [Token],
    pub prompt_len: usize,
}

/// What a drafter could do this round.
#[derive(Clone, Debug)]
pub enum Offer {
    /// These tokens, for nothing.
    Free(Vec<Proposed>),
    /// Up to `most` tokens at the cost of a step each, once `unread` tokens are read and the draft is loaded.
    Steps { most: usize, unread: usize, load: Duration },
}

/// One evaluation of a drafter: how many rows (0: loading), how long, its sampling included.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub rows: usize,
    pub time: Duration,
}

/// Proposes tokens.
pub trait Drafter {
    fn source(&self) -> Source;
    /// A new answer begins: how the target samples, and how large its context is.
    fn begin(&mut self, _sampling: &Sampling, _n_ctx: usize) {}
    /// What it could propose behind `at`, at most `most` (1 or more) tokens. Costs next to nothing.
    fn offer(&mut self, at: &At, most: usize) -> Option<Offer>;
    /// Proposes at a cost: up to `most` tokens, as long as `go_on` says so of what is proposed so far.
    ///
    /// # Errors
    /// [`EngineError::Aborted`] when it was stopped; on others the drafter is of no more use.
    fn draft(
        &mut self,
        _at: &At,
        _most: usize,
        _go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        _into: &mut Vec<Proposed>,
        _steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        Ok(())
    }
    /// Puts what it has read of the first `upto` tokens into the prefix cache.
    fn save(&mut self, _upto: usize) {}
    /// The last blocks of that.
    fn take_ends(&mut self) -> Vec<End> {
        Vec::new()
    }
}

/// Decides who drafts how much. Drafters are named by their index.
pub trait Policy {
    /// A new answer begins; at most `budget` tokens will be emitted.
    fn begin(&mut self, _budget: usize) {}
    /// So many rows of other turns, each with a token of its own to emit, are evaluated together with those of this one.
    fn beside(&mut self, _rows: usize) {}
    /// Who drafts this round, and how many tokens at most; nobody where nothing pays. `most` is what fits.
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan>;
    /// Whether the drafter of this round goes on after `proposed`.
    fn go_on(&mut self, _proposed: &[Proposed]) -> bool {
        true
    }
    /// How many of the proposed tokens are worth judging.
    fn keep(&mut self, proposed: &[Proposed]) -> usize {
        proposed.len()
    }
    /// Takes in what came of a round.
    fn learn(&mut self, _round: &Round) {}
    /// What the policy knows about costs, to be kept for the next time.
    fn costs(&self) -> Option<&Costs> {
        None
    }
    /// Takes over measured costs.
    fn calibrate(&mut self, _costs: Costs) {}
}

/// A decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub drafter: usize,
    pub most: usize,
}

/// What came of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Who drafted; nobody in plain decoding.
    pub drafter: Option<usize>,
    /// The proposals that were judged.
    pub proposed: &'a [Proposed],
    /// How many the target agreed with, from the first on.
    pub accepted: usize,
    /// Tokens emitted (the accepted ones and the target's own).
    pub emitted: usize,
    pub steps: &'a [Step],
    /// Rows that the target evaluated in it; 0 where prompts of others were read too, so that its time says nothing.
    pub rows: usize,
    pub verify: Duration,
}
