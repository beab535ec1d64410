//! The choices that belong to a machine and a model: threads, flash attention, weights rearranged or not. Made from
//! measurements, kept, and used by `run`.

use serde::{Deserialize, Serialize};

use super::speed::Speed;
use crate::words::count;

/// One way to run a model, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub repack: bool,
    pub threads: usize,
    pub flash_attention: bool,
    pub load_ms: f64,
    pub speed: Speed,
}

/// What was chosen for a model on this machine: how it runs best with weights as stored and rearranged, which of the two
/// depends on what it is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    pub stored: Trial,
    pub repacked: Trial,
}

/// What a model is about to do, as far as that is known before it is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Tokens that have to be read, about.
    pub prompt: f64,
    /// Tokens of the answer, about.
    pub answer: f64,
    /// Whether anybody may draft.
    pub drafts: bool,
    /// Nothing waits for the load, and more questions follow.
    pub talk: bool,
}

/// Less than this is not worth another choice: it may be noise.
const WORTH: f64 = 0.03;
/// Rows of a step with a draft, and tokens that it gives: three drafted, of which most are right.
const DRAFT_ROWS: usize = 4;
const DRAFT_TOKENS: f64 = 2.8;
/// Questions of a talk.
const QUESTIONS: f64 = 8.0;

impl Trial {
    /// What was tried, in words.
    pub fn words(&self) -> String {
        let weights = if self.repack { "rearranged" } else { "as stored" };
        let flash = if self.flash_attention { "on" } else { "off" };
        format!("weights {weights}, {}, flash attention {flash}", count(self.threads, "thread"))
    }

    /// Milliseconds of a token: reading and steps count alike, each in proportion to what it is at best.
    fn merit(&self) -> f64 {
        (self.speed.step_ms * 1e3 / self.speed.prefill).sqrt()
    }

    /// Milliseconds that a task takes.
    fn time(&self, task: &Task) -> f64 {
        let plain = self.speed.step_ms;
        let drafted = self.speed.cost(DRAFT_ROWS).map(|cost| plain * cost / DRAFT_TOKENS);
        // Half of what is said is worth drafting for.
        let step = drafted.filter(|_| task.drafts).map_or(plain, |drafted| f64::midpoint(plain, drafted.min(plain)));
        let answers = task.prompt / self.speed.prefill * 1e3 + task.answer * step;
        if task.talk { answers * QUESTIONS } else { answers + self.load_ms }
    }
}

/// The best of some trials with weights alike. The first is what it would be without tuning, and stays where nothing is
/// clearly better.
pub fn best(trials: &[Trial]) -> Option<&Trial> {
    let usual = trials.first()?;
    let best = trials.iter().min_by(|a, b| a.merit().total_cmp(&b.merit()))?;
    Some(if best.merit() < usual.merit() * (1.0 - WORTH) { best } else { usual })
}

impl Tuned {
    /// How to run the model for a task.
    pub fn choose(&self, task: &Task) -> &Trial {
        if self.repacked.time(task) < self.stored.time(task) { &self.repacked } else { &self.stored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(repack: bool, load_ms: f64, prefill: f64, step_ms: f64, four: f64) -> Trial {
        let speed = Speed { prefill, step_ms, depth: 136, rows: vec![(2, 1.4), (4, four)] };
        Trial { repack, threads: 2, flash_attention: true, load_ms, speed }
    }

    #[test]
    fn a_choice_that_is_not_clearly_better_is_not_made() {
        let all = |prefill: f64| [trial(true, 1.0, 100.0, 80.0, 2.0), trial(true, 1.0, prefill, 80.0, 2.0)];
        assert_eq!(best(&all(103.0)).map(|own| own.speed.prefill), Some(100.0));
        assert_eq!(best(&all(120.0)).map(|own| own.speed.prefill), Some(120.0));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn one_answer_is_faster_as_stored_and_a_talk_with_drafts_repacked() {
        // Measured: Qwen2.5-Coder 1.5B on two cores with AVX-512.
        let tuned =
            Tuned { stored: trial(false, 270.0, 128.0, 85.0, 2.26), repacked: trial(true, 1070.0, 90.0, 85.0, 1.74) };
        let task = |talk, drafts, prompt, answer| tuned.choose(&Task { prompt, answer, drafts, talk }).repack;
        assert!(!task(false, true, 200.0, 64.0), "a short answer");
        assert!(!task(false, false, 20.0, 500.0), "no drafts");
        assert!(task(true, true, 100.0, 300.0), "a talk with drafts");
        assert!(!task(true, false, 100.0, 300.0), "a talk without");
        assert!(!task(true, true, 5000.0, 100.0), "much to read");
    }
}
