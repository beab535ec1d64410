//! Choosing a token from logits. Nothing here knows text, prompts or engines.
//!
//! The order of the transforms is llama.cpp's: repeat penalty, top-k, top-p, min-p, temperature. The choice is
//! argmax over what is left of logit / temperature + noise, where the noise belongs to the position (see [`noise`]).

use crate::engine::Token;

mod noise;
mod transforms;

pub use noise::Noise;
use transforms::{Candidate, Logits};

/// How many of the answer's last tokens the repeat penalty looks at.
const PENALTY_WINDOW: usize = 64;

/// Sampling settings, validated by whoever read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Only the k most likely; 0 is all.
    pub top_k: usize,
    /// The smallest set with this much probability; 1 is all.
    pub top_p: f32,
    /// Only tokens with at least this share of the most likely one's probability; 0 is all.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of recent tokens; 1 is none (Keskar et al. 2019).
    pub repeat_penalty: f32,
    pub seed: u64,
}

impl Sampling {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 0 }
    }
}

/// Samples the tokens of one answer.
pub struct Sampler {
    sampling: Sampling,
    noise: Noise,
    penalised: Vec<(usize, f32)>,
    kept: Vec<Candidate>,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Self {
        let noise = Noise::new(sampling.seed);
        Self { sampling, noise, penalised: Vec::new(), kept: Vec::new() }
    }

    /// The token for position `pos` of the sequence, from one logit a vocabulary entry. `answer` is what was emitted
    /// before it: the repeat penalty looks at its end. Nothing is remembered, so a draft leaves nothing to undo.
    pub fn sample(&mut self, logits: &[f32], pos: usize, answer: &[Token]) -> Token {
        self.penalise(logits, answer);
        let logits = Logits { raw: logits, penalised: &self.penalised };
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        if temperature <= 0.0 {
            return logits.argmax().token;
        }
        if top_k == 0 && top_p >= 1.0 && min_p <= 0.0 {
            return logits.argmax_with_noise(temperature, self.noise, pos);
        }
        let kept = &mut self.kept;
        if top_k > 0 {
            logits.top_k(top_k, kept);
            if top_p < 1.0 {
                let mass = transforms::mass(kept);
                transforms::top_p(kept, top_p, mass);
            }
        } else {
            logits.nucleus(top_p, min_p, kept);
        }
        transforms::min_p(kept, min_p);
        let score = |c: &Candidate| c.logit / temperature + self.noise.gumbel(pos, c.token);
        let best = kept.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
        best.map_or(Token(0), |best| best.token)
    }

    /// The probability of `token` in the distribution that `logits` stand for, as they are (temperature 1).
    pub fn confidence(logits: &[f32], token: Token) -> f32 {
        transforms::probability(logits, token)
    }

    fn penalise(&mut self, logits: &[f32], answer: &[Token]) {
        self.penalised.clear();
        let penalty = self.sampling.repeat_penalty;
        #[expect(clippy::float_cmp, reason = "exactly 1 means switched off")]
        if penalty == 1.0 {
            return;
        }
        for token in &answer[answer.len().saturating_sub(PENALTY_WINDOW)..] {
            if let Some(&logit) = logits.get(token.index()) {
                let changed = if logit > 0.0 { logit / penalty } else { logit * penalty };
                self.penalised.push((token.index(), changed));
            }
        }
        self.penalised.sort_unstable_by_key(|(index, _)| *index);
        self.penalised.dedup_by_key(|(index, _)| *index);
    }
}

#[cfg(test)]
mod tests;
