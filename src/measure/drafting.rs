//! The settings of drafts that a benchmark can compare.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{EngineError, Model};
use crate::generate::draft::{
    Adaptive, At, Costs, Drafter, MOST_DRAFTED, ModelDrafter, Ngram, Offer, Plan, Policy, Proposed, Source, Speculator,
    Step,
};
use crate::interrupt::Interrupt;
use crate::sample::Sampling;

/// Who drafts, and how many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafting {
    Off,
    /// The draft model, always so many tokens.
    Model(usize),
    /// The same with accepted tokens evaluated twice, as llama.cpp's example does.
    Twice(usize),
    /// N-grams, at most so many tokens.
    Ngram(usize),
    /// N-grams of at most 7 where there are any, else the model with 3.
    Both,
    /// What `run` does.
    Policy,
}

impl FromStr for Drafting {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let length = word[name.len()..].parse().ok().filter(|length| (1..=MOST_DRAFTED).contains(length));
        match (name, length, word.len() == name.len()) {
            ("off", _, true) => Ok(Self::Off),
            ("both", _, true) => Ok(Self::Both),
            ("policy", _, true) => Ok(Self::Policy),
            ("model", Some(length), _) => Ok(Self::Model(length)),
            ("twice", Some(length), _) => Ok(Self::Twice(length)),
            ("ngram", Some(length), _) => Ok(Self::Ngram(length)),
            _ => Err(format!(
                "'{word}' is none of off, policy, both, model1 to model{MOST_DRAFTED}, ngram1 to ngram{MOST_DRAFTED}"
            )),
        }
    }
}

impl fmt::Display for Drafting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "off"),
            Self::Model(length) => write!(f, "model{length}"),
            Self::Twice(length) => write!(f, "twice{length}"),
            Self::Ngram(length) => write!(f, "ngram{length}"),
            Self::Both => write!(f, "both"),
            Self::Policy => write!(f, "policy"),
        }
    }
}

impl Drafting {
    /// Whether it needs a draft model.
    pub fn wants_model(self) -> bool {
        matches!(self, Self::Model(_) | Self::Twice(_) | Self::Both)
    }

    /// Whether a draft model may draft for it.
    pub(super) fn may_use_model(self) -> bool {
        self.wants_model() || self == Self::Policy
    }

    /// Drafters that have read nothing yet, and who decides; nothing where there are none. `draft` is loaded already.
    pub(super) fn speculator(
        self,
        draft: Option<&Arc<dyn Model>>,
        threads: usize,
        costs: &Costs,
    ) -> Option<Speculator> {
        let model = |twice| -> Option<Box<dyn Drafter>> {
            let draft = Arc::clone(draft?);
            let load = Box::new(move || Ok(Arc::clone(&draft)));
            let own = ModelDrafter::new(load, Duration::ZERO, threads, Interrupt::default());
            Some(if twice { Box::new(Twice { own, seen: 0 }) } else { Box::new(own) })
        };
        let ngram = || -> Option<Box<dyn Drafter>> { Some(Box::new(Ngram::default())) };
        let (drafters, lengths) = match self {
            Self::Off => return None,
            Self::Model(length) => (vec![model(false)], vec![length]),
            Self::Twice(length) => (vec![model(true)], vec![length]),
            Self::Ngram(length) => (vec![ngram()], vec![length]),
            Self::Both => (vec![ngram(), model(false)], vec![7, 3]),
            Self::Policy => (vec![ngram(), model(false)], Vec::new()),
        };
        let drafters: Vec<_> = drafters.into_iter().flatten().collect();
        let policy: Box<dyn Policy> = if self == Self::Policy {
            let sources = drafters.iter().map(|drafter| drafter.source()).collect();
            Box::new(Adaptive::new(sources, costs.clone(), MOST_DRAFTED))
        } else {
            Box::new(Fixed { lengths })
        };
        Some(Speculator::new(drafters, policy))
    }
}

/// The first drafter with an offer drafts, as many tokens as its number says.
struct Fixed {
    lengths: Vec<usize>,
}

impl Policy for Fixed {
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        let drafter = offers.iter().position(Option::is_some)?;
        Some(Plan { drafter, most: self.lengths[drafter].min(most) })
    }
}

/// Forgets its own accepted proposals, so that they are evaluated again.
struct Twice {
    own: ModelDrafter,
    /// How much of the text was there when it drafted last.
    seen: usize,
}

impl Drafter for Twice {
    fn source(&self) -> Source {
        Source::Model
    }

    fn begin(&mut self, sampling: &Sampling, n_ctx: usize) {
        self.own.begin(sampling, n_ctx);
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        self.own.forget(self.seen).ok()?;
        self.own.offer(at, most)
    }

    fn draft(
        &mut self,
        at: &At,
        most: usize,
        go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        into: &mut Vec<Proposed>,
        steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        self.seen = at.tokens.len();
        self.own.draft(at, most, go_on, into, steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_by_who_and_how_many() {
        let ok = |word: &str| word.parse::<Drafting>().ok();
        assert_eq!(ok("off"), Some(Drafting::Off));
        assert_eq!(ok("model3"), Some(Drafting::Model(3)));
        assert_eq!(ok("ngram15"), Some(Drafting::Ngram(15)));
        for wrong in ["", "model", "model0", "model17", "off3", "policy1", "3", "ngram-1"] {
            assert_eq!(ok(wrong), None, "{wrong}");
        }
    }
}
