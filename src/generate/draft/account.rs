//! The account of what drafts did for an answer.

use std::time::Duration;

use serde::Serialize;

use super::{Calibration, Source};

/// What one drafter did for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DrafterStats {
    /// Rounds in which it had something to offer.
    pub offers: usize,
    pub rounds: usize,
    pub proposed: usize,
    pub accepted: usize,
}

/// The account of one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Speculation {
    /// Rounds with a draft.
    pub rounds: usize,
    /// Rounds without one.
    pub plain_rounds: usize,
    pub proposed: usize,
    pub accepted: usize,
    pub by_drafter: Vec<(Source, DrafterStats)>,
    /// How many proposals stood at each position of a draft, and how many of them were accepted.
    pub by_position: Vec<(usize, usize)>,
    /// Rounds by draft length, from 0.
    pub lengths: Vec<usize>,
    /// Tokens emitted in all rounds.
    pub emitted: usize,
    /// Tokens emitted in rounds with a draft.
    pub emitted_drafting: usize,
    pub draft: Duration,
    /// The part of `draft` that went into loading the draft and reading long texts with it.
    pub draft_read: Duration,
    pub verify: Duration,
    /// Choosing drafters and lengths, looking up n-grams.
    pub policy: Duration,
    pub switched_off: usize,
    /// Milliseconds of a plain step, as the policy believes.
    pub step_ms: f64,
    /// What the policy believes that evaluations cost.
    pub costs: Option<Calibration>,
    /// A drafter that failed, and why.
    pub lost: Option<String>,
    /// Why nobody could draft at all.
    pub blocked: Option<&'static str>,
}

impl Speculation {
    /// Tokens gained by a round with a draft, the target's own included.
    pub fn mean_accepted_length(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.emitted_drafting as f64 / self.rounds as f64)
    }

    /// Time that plain decoding would have taken over the time that it took.
    pub fn estimated_gain(&self) -> Option<f64> {
        let spent = (self.draft + self.verify + self.policy).as_secs_f64() * 1e3;
        (spent > 0.0 && self.step_ms > 0.0 && self.rounds > 0).then(|| self.emitted as f64 * self.step_ms / spent)
    }

    /// The drafter that gave the most accepted tokens.
    pub fn main_drafter(&self) -> Option<Source> {
        let used = self.by_drafter.iter().filter(|(_, stats)| stats.rounds > 0);
        used.max_by_key(|(_, stats)| stats.accepted).map(|(source, _)| *source)
    }

    /// How often a draft model that never drafted could have.
    pub fn model_spared(&self) -> usize {
        let spared = |(source, stats): &&(Source, DrafterStats)| *source == Source::Model && stats.rounds == 0;
        self.by_drafter.iter().find(spared).map_or(0, |(_, stats)| stats.offers)
    }
}
