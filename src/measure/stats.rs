//! What samples say: quantiles, the ratio of an A/B run pair by pair, and how sure that ratio is.
//!
//! Numbers in, numbers out: no clock, no files, nothing that differs from one call to the next.

mod kinds;

use serde::Serialize;

/// From so many samples on the 95th percentile means something.
const P95_FROM: usize = 20;
/// Below this no interval of order statistics holds even 0.90 (4 pairs: 0.875).
const PAIRS_FROM: usize = 5;
const CONFIDENCE: f64 = 0.95;

/// The `q` quantile of ascending numbers, interpolated as numpy does (type 7 of Hyndman and Fan 1996).
///
/// None for no numbers, or a `q` outside 0 to 1.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let at = q * (sorted.len().checked_sub(1)? as f64);
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    Some(if below.total_cmp(&above).is_eq() { below } else { below + (above - below) * at.fract() })
}

/// The geometric mean; None for no numbers, or where one is not positive and finite.
pub fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    let fit = !numbers.is_empty() && numbers.iter().all(|x| positive(*x));
    fit.then(|| (numbers.iter().map(|x| x.ln()).sum::<f64>() / numbers.len() as f64).exp())
}

fn positive(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

/// The slow end of some samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum High {
    #[serde(rename = "p95")]
    P95(f64),
    /// Too few for a percentile.
    #[serde(rename = "max")]
    Max(f64),
}

/// Samples in short: as JSON `{"n", "p50", "p95"}`, or `"max"` in place of `"p95"`, and `"dropped"` where some were.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The samples that count.
    pub n: usize,
    pub p50: f64,
    #[serde(flatten)]
    pub high: High,
    /// Samples that were no finite number. They count for nothing else, but are not passed over in silence.
    #[serde(skip_serializing_if = "none")]
    pub dropped: usize,
    #[serde(skip)]
    pub min: f64,
}

fn none(count: &usize) -> bool {
    *count == 0
}

impl Summary {
    /// None where there is no finite sample.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        let high = if n < P95_FROM { High::Max(max) } else { High::P95(quantile(&sorted, 0.95)?) };
        Some(Self { n, p50: quantile(&sorted, 0.5)?, high, dropped: samples.len() - n, min })
    }
}

/// Candidate over baseline, from pairs that ran side by side.
///
/// The ratio is the median of the pairs' ratios. The interval is that of the sign test, between two order statistics,
/// interpolated to 95 % (Hettmansperger and Sheather 1986): it asks nothing of the noise but independent pairs, needs no
/// random numbers, and swaps with the sides. In simulation it covers 0.93 at 5 pairs and 0.94 to 0.96 from 7 on, where
/// the percentile bootstrap of the median falls to 0.87.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub ratio: f64,
    /// The ends of the 95 % confidence interval; none below 5 pairs.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub pairs: usize,
    /// Pairs with a side that is not positive and finite.
    #[serde(skip_serializing_if = "none")]
    pub dropped: usize,
}

impl Ratio {
    /// From (candidate, baseline) pairs; None where no pair is positive and finite.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let sides = pairs.iter().filter(|(candidate, baseline)| positive(*candidate) && positive(*baseline));
        let mut ratios: Vec<f64> = sides.map(|(candidate, baseline)| candidate / baseline).collect();
        ratios.retain(|ratio| positive(*ratio));
        ratios.sort_by(f64::total_cmp);
        let n = ratios.len();
        let ratio = between(*ratios.get(n.checked_sub(1)? / 2)?, *ratios.get(n / 2)?, 0.5);
        let (low, high) = interval(&ratios).unzip();
        Some(Self { ratio, low, high, pairs: n, dropped: pairs.len() - n })
    }

    pub fn verdict(&self) -> Verdict {
        match (self.low, self.high) {
            (Some(low), _) if low > 1.0 => Verdict::Higher,
            (_, Some(high)) if high < 1.0 => Verdict::Lower,
            (Some(_), Some(_)) => Verdict::NoDifference,
            _ => Verdict::TooFew,
        }
    }
}

/// The point `share` of the way from `a` to `b` by ratio.
fn between(a: f64, b: f64, share: f64) -> f64 {
    // In this form equal ends give exactly that end, and far ends do not overflow.
    a * (b.powf(share) / a.powf(share))
}

/// Where the median of what the sorted ratios were drawn from lies, at 95 % confidence.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    if n < PAIRS_FROM {
        return None;
    }
    let (depth, share) = depth(n);
    let low = between(sorted[depth], sorted[depth + 1], share);
    let high = between(sorted[n - 1 - depth], sorted[n - 2 - depth], share);
    Some((low, high))
}

/// How far from both ends of `n` order statistics the interval begins: whole steps, and a share of the next one.
fn depth(n: usize) -> (usize, f64) {
    // The median is outside the order statistics `steps` from the ends with twice the chance that a fair coin
    // comes up heads at most `steps` times in n; the terms are kept as logarithms, 2^-n vanishes above n = 1074.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let (mut steps, mut outside) = (0, 2.0 * term.exp());
    loop {
        term += ((n - steps) as f64 / (steps + 1) as f64).ln();
        let next = outside + 2.0 * term.exp();
        let allowed = 1.0 - CONFIDENCE;
        if next > allowed {
            let part = ((allowed - outside) / (next - outside)).max(0.0);
            let (k, n) = ((steps + 1) as f64, n as f64);
            return (steps, (n - k) * part / (k + (n - 2.0 * k) * part));
        }
        (steps, outside) = (steps + 1, next);
    }
}

/// What a ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is above 1.
    Higher,
    /// The whole interval is below 1.
    Lower,
    /// The interval spans 1.
    NoDifference,
    /// No interval.
    TooFew,
}

/// What a ratio is a ratio of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Time,
    /// Work a second.
    Rate,
}

impl Verdict {
    pub fn of(self, quantity: Quantity) -> &'static str {
        match (self, quantity) {
            (Self::Higher, Quantity::Rate) | (Self::Lower, Quantity::Time) => "faster",
            (Self::Higher, Quantity::Time) | (Self::Lower, Quantity::Rate) => "slower",
            (Self::NoDifference, _) => "no difference shown",
            (Self::TooFew, _) => "too few pairs",
        }
    }
}

#[cfg(test)]
mod tests;
