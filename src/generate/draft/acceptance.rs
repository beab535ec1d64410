//! How often a drafter's tokens are accepted, learned while it drafts: by class, and for the text as a whole.
//!
//! An online logistic model with one number a class and one that all classes of the drafter share, so that what one class
//! shows about the text counts for the others. Only proposals that were reached are learned from: a draft that was accepted
//! whole says nothing about the token behind it.

use super::{Class, Proposed};

/// How fast a class and the common number follow an outcome.
const CLASS_RATE: f64 = 0.3;
const TEXT_RATE: f64 = 0.2;
const MEAN_RATE: f64 = 0.35;
/// However bad a drafter was, it is tried again after some time.
const LEAST_LEARNED: f64 = -4.0;
/// What is left of a lesson after one more round: old ones fade, so what was switched off is tried again.
const CLASS_MEMORY: f64 = 0.995;
const TEXT_MEMORY: f64 = 0.99;

/// The record of one drafter.
#[derive(Clone, Debug)]
pub(super) struct Record {
    priors: &'static [f64],
    classes: Vec<f64>,
    text: f64,
    /// The chance of a token that is not drafted yet, as a logit: what was believed, and what was learned since.
    mean: f64,
    learned: f64,
    /// Lessons that still count.
    weight: f64,
}

impl Record {
    /// `priors`: the chance of a token of each class, before anything is known of the text.
    pub(super) fn new(priors: &'static [f64], mean: f64) -> Self {
        Self { priors, classes: vec![0.0; priors.len()], text: 0.0, mean: logit(mean), learned: 0.0, weight: 0.0 }
    }

    /// The chance that a reached token of this class is accepted; `leaning` in standard deviations.
    pub(super) fn chance(&self, class: Class, leaning: f64) -> f64 {
        let at = usize::from(class.0).min(self.priors.len() - 1);
        self.lean(logit(self.priors[at]) + self.classes[at] + self.text, leaning)
    }

    /// The same of a token that is not drafted yet.
    pub(super) fn chance_of_any(&self, leaning: f64) -> f64 {
        self.lean(self.mean + self.learned, leaning)
    }

    fn lean(&self, x: f64, leaning: f64) -> f64 {
        // About the deviation of a logit after so many lessons, on top of what is known before any.
        sigmoid(x + leaning / (4.0 + self.weight).sqrt())
    }

    /// Takes in a judged draft.
    pub(super) fn learn(&mut self, proposed: &[Proposed], accepted: usize) {
        for (i, token) in proposed.iter().enumerate().take(accepted + 1) {
            let outcome = if i < accepted { 1.0 } else { 0.0 };
            let at = usize::from(token.class.0).min(self.priors.len() - 1);
            let error = outcome - self.chance(token.class, 0.0);
            self.classes[at] += CLASS_RATE * error;
            self.text += TEXT_RATE * error;
            self.weight += 1.0;
            self.learn_mean(outcome);
        }
    }

    /// Takes in a draft that was not worth judging: it came out as its first token promised.
    pub(super) fn learn_unjudged(&mut self, proposed: &[Proposed]) {
        if let Some(first) = proposed.first() {
            self.learn_mean(self.chance(first.class, 0.0));
        }
    }

    fn learn_mean(&mut self, outcome: f64) {
        let learned = self.learned + MEAN_RATE * (outcome - self.chance_of_any(0.0));
        self.learned = learned.max(LEAST_LEARNED);
    }

    /// A round has passed.
    pub(super) fn fade(&mut self) {
        self.classes.iter_mut().for_each(|class| *class *= CLASS_MEMORY);
        self.text *= TEXT_MEMORY;
        self.learned *= TEXT_MEMORY;
        self.weight *= TEXT_MEMORY;
    }

    /// Another text begins: what was learned of the last one counts for little.
    pub(super) fn new_text(&mut self) {
        self.text *= 0.3;
        self.learned *= 0.3;
        self.weight *= 0.3;
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Token;

    const PRIORS: [f64; 2] = [0.5, 0.9];

    fn draft(classes: &[u8]) -> Vec<Proposed> {
        classes.iter().map(|class| Proposed { token: Token(0), class: Class(*class) }).collect()
    }

    #[test]
    fn a_chance_that_is_seen_is_learned() {
        // Accepted three times of four, whatever was believed.
        let mut record = Record::new(&PRIORS, 0.7);
        let mut seen = Vec::new();
        for round in 0..2000 {
            record.learn(&draft(&[0]), usize::from(round % 4 != 0));
            seen.push(record.chance(Class(0), 0.0));
        }
        let mean = seen[200..].iter().sum::<f64>() / 1800.0;
        assert!((mean - 0.75).abs() < 0.03, "{mean}");
    }

    #[test]
    fn what_was_not_reached_is_not_held_against_it() {
        // Rejected at once: the second token was never judged.
        let (mut first, mut both) = (Record::new(&PRIORS, 0.7), Record::new(&PRIORS, 0.7));
        first.learn(&draft(&[0]), 0);
        both.learn(&draft(&[0, 1, 1, 1]), 0);
        assert!((first.chance(Class(1), 0.0) - both.chance(Class(1), 0.0)).abs() < 1e-12);
        // Accepted whole: nothing but success.
        let mut whole = Record::new(&PRIORS, 0.7);
        whole.learn(&draft(&[0, 1]), 2);
        assert!(whole.chance(Class(1), 0.0) > 0.9 && whole.chance(Class(0), 0.0) > 0.5);
    }

    #[test]
    fn old_lessons_fade() {
        let mut record = Record::new(&PRIORS, 0.7);
        (0..20).for_each(|_| record.learn(&draft(&[1]), 0));
        assert!(record.chance(Class(1), 0.0) < 0.3);
        (0..1500).for_each(|_| record.fade());
        assert!((record.chance(Class(1), 0.0) - 0.9).abs() < 0.01);
    }
}
