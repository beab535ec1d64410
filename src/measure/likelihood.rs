//! How likely models find a text, and how far one's distribution is from another's.

use super::arm::Arm;
use super::report::Likelihood;
use crate::engine::{Context, Row, Token};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Tokens of a text at most.
const MOST: usize = 1024;

/// A text read by one arm.
struct Reading {
    tokens: Vec<Token>,
    context: Box<dyn Context>,
    bytes: usize,
    nll: f64,
    divergence: f64,
    same_top: usize,
    /// Whether its tokens are those of the first arm.
    comparable: bool,
}

/// Whether there is something to compare on.
///
/// # Errors
/// A text of fewer than two tokens.
pub fn check_text(arms: &[Arm], text: &str) -> Result<()> {
    if arms.iter().any(|arm| arm.plain(text).len() < 2) {
        return Err(Error::usage("the text is too short to compare likelihoods on").hint("give --text a longer one"));
    }
    Ok(())
}

/// What each arm says of a text that passed [`check_text`], beside the first arm where the vocabularies agree. Nothing
/// where Ctrl-C ends it.
///
/// # Errors
/// Engine failures.
pub fn of_arms(arms: &[Arm], text: &str, interrupt: &Interrupt) -> Result<Option<Vec<Likelihood>>> {
    let mut readings: Vec<Reading> = arms.iter().map(|arm| reading(arm, text)).collect::<Result<_>>()?;
    let first = readings[0].tokens.clone();
    let vocabulary = arms[0].vocab().len();
    for (reading, arm) in readings.iter_mut().zip(arms) {
        reading.comparable = reading.tokens == first && arm.vocab().len() == vocabulary;
    }
    let longest = readings.iter().map(|reading| reading.tokens.len()).max().unwrap_or(0);
    let step = readings.iter().map(|reading| reading.context.capabilities().max_logits).min().unwrap_or(1);
    for from in (0..longest).step_by(step) {
        if interrupt.is_set() {
            return Ok(None);
        }
        for reading in &mut readings {
            reading.read(from, step)?;
        }
        let (base, others) = readings.split_at_mut(1);
        base[0].take_in(from, step, None);
        for other in others {
            other.take_in(from, step, Some(&base[0]));
        }
    }
    Ok(Some(readings.iter().enumerate().map(|(at, reading)| reading.likelihood(at == 0)).collect()))
}

fn reading(arm: &Arm, text: &str) -> Result<Reading> {
    let mut tokens = arm.plain(text);
    tokens.truncate(MOST.min(arm.most_context().saturating_sub(1)));
    let mut bytes = Vec::new();
    tokens.iter().skip(1).for_each(|token| arm.vocab().piece(*token, &mut bytes));
    let context = arm.context(tokens.len() + 1)?;
    Ok(Reading { tokens, context, bytes: bytes.len(), nll: 0.0, divergence: 0.0, same_top: 0, comparable: false })
}

impl Reading {
    fn read(&mut self, from: usize, step: usize) -> Result<()> {
        let to = self.tokens.len().min(from + step);
        let row = |pos: usize| Row { seq: 0, token: self.tokens[pos], pos, want_logits: true };
        let rows: Vec<Row> = (from..to).map(row).collect();
        if rows.is_empty() { Ok(()) } else { self.context.eval(&rows).map_err(Error::failed) }
    }

    /// Adds what the last evaluation says of the tokens that follow.
    fn take_in(&mut self, from: usize, step: usize, base: Option<&Self>) {
        let to = (self.tokens.len() - 1).min(from + step);
        for pos in from..to {
            let logits = self.context.logits(pos - from);
            let scale = log_sum(logits);
            self.nll += scale - f64::from(logits[self.tokens[pos + 1].index()]);
            if let Some(base) = base.filter(|_| self.comparable) {
                let other = base.context.logits(pos - from);
                self.divergence += divergence(other, logits, scale);
                self.same_top += usize::from(top(other) == top(logits));
            }
        }
    }

    fn likelihood(&self, is_first: bool) -> Likelihood {
        let count = (self.tokens.len() - 1) as f64;
        let compared = self.comparable && !is_first;
        Likelihood {
            tokens: self.tokens.len() - 1,
            nll: self.nll / count,
            bits_per_byte: self.nll / std::f64::consts::LN_2 / self.bytes.max(1) as f64,
            kl: compared.then(|| self.divergence / count),
            same_top: compared.then(|| self.same_top as f64 / count),
        }
    }
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(most) + logits.iter().map(|x| f64::from((x - most).exp())).sum::<f64>().ln()
}

/// Kullback-Leibler divergence of softmax(p) to softmax(q), in nats; `q_scale` is the log sum of `q`.
fn divergence(p: &[f32], q: &[f32], q_scale: f64) -> f64 {
    let p_scale = log_sum(p);
    let term = |(p, q): (&f32, &f32)| {
        let log_p = f64::from(*p) - p_scale;
        // What is next to impossible adds nothing, whatever the other says.
        if log_p < -40.0 { 0.0 } else { log_p.exp() * (log_p - (f64::from(*q) - q_scale)) }
    };
    p.iter().zip(q).map(term).sum()
}

fn top(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_are_those_of_the_formula() {
        // p = (1/2, 1/2), q = (1/4, 3/4): ln 2 - (ln 3) / 2.
        let (p, q) = ([0.0f32, 0.0], [0.0f32, 3f32.ln()]);
        let expected = 2f64.ln() - 3f64.ln() / 2.0;
        assert!((divergence(&p, &q, log_sum(&q)) - expected).abs() < 1e-6);
        assert!(divergence(&q, &q, log_sum(&q)).abs() < 1e-12);
        // Only differences count, and an impossible token is no trouble.
        let (p, q) = ([100.0f32, 100.0, f32::NEG_INFINITY], [-50.0f32, 3f32.ln() - 50.0, 0.0f32 - 200.0]);
        assert!((divergence(&p, &q, log_sum(&q)) - expected).abs() < 1e-4);
        assert!((log_sum(&[0.0, 0.0, 0.0, 0.0]) - 4f64.ln()).abs() < 1e-12);
    }
}
