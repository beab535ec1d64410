//! Scans over one row of logits. A row has up to 262,144 entries and most of them cannot matter: rows are read in
//! blocks, a block whose largest entry is out of the race is skipped whole, and no array of all candidates is made.

use crate::engine::Token;

use super::noise::Noise;

/// A token still in the race.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) token: Token,
    pub(super) logit: f32,
}

/// A row of logits with a few entries changed by penalties (sorted by index).
#[derive(Clone, Copy)]
pub(super) struct Logits<'a> {
    pub(super) raw: &'a [f32],
    pub(super) penalised: &'a [(usize, f32)],
}

const BLOCK: usize = 128;
const LANES: usize = 16;

/// The largest value of a block; a shape that compiles to vector instructions. NaN never wins.
fn block_max(block: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = block.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max })
}

impl Logits<'_> {
    /// Calls `visit(index, logit)` for every entry above the bound that `visit` last returned.
    fn above(self, mut bound: f32, mut visit: impl FnMut(usize, f32) -> f32) {
        // Changed entries first, by their own value; the scan of the raw row passes over them.
        for &(index, logit) in self.penalised {
            if logit > bound {
                bound = visit(index, logit);
            }
        }
        for (number, block) in self.raw.chunks(BLOCK).enumerate() {
            if block_max(block) <= bound {
                continue;
            }
            for (offset, &logit) in block.iter().enumerate() {
                let index = number * BLOCK + offset;
                if logit > bound && !self.is_penalised(index) {
                    bound = visit(index, logit);
                }
            }
        }
    }

    fn is_penalised(self, index: usize) -> bool {
        !self.penalised.is_empty() && self.penalised.binary_search_by_key(&index, |(at, _)| *at).is_ok()
    }

    /// The largest entry; of equals the one with the smallest id.
    pub(super) fn argmax(self) -> Candidate {
        let mut best = Candidate { token: Token(0), logit: f32::NEG_INFINITY };
        self.above(f32::NEG_INFINITY, |index, logit| {
            best = Candidate { token: Token::from_index(index), logit };
            logit
        });
        if self.is_penalised(best.token.index()) {
            // It was visited before the raw ones whatever its id: an equal one with a smaller id wins.
            let before = self.raw.iter().take(best.token.index()).enumerate();
            let equal = |&(index, logit): &(usize, &f32)| *logit >= best.logit && !self.is_penalised(index);
            if let Some((first, _)) = before.into_iter().find(equal) {
                best.token = Token::from_index(first);
            }
        }
        best
    }

    /// argmax of logit / temperature + noise over the whole row. An entry whose noise, bounded without a logarithm,
    /// cannot lift it over the best so far is passed over.
    pub(super) fn argmax_with_noise(self, temperature: f32, noise: Noise, pos: usize) -> Token {
        const LARGEST_NOISE: f32 = 37.5;
        let top = self.argmax();
        let score = |c: Candidate| c.logit / temperature + noise.gumbel(pos, c.token);
        let (mut best, mut winner) = (score(top), top.token);
        let bound = |best: f32| (best - LARGEST_NOISE) * temperature;
        self.above(bound(best), |index, logit| {
            let candidate = Candidate { token: Token::from_index(index), logit };
            if logit / temperature + noise.upper_bound(pos, candidate.token) > best {
                let score = score(candidate);
                if score > best {
                    (best, winner) = (score, candidate.token);
                }
            }
            bound(best)
        });
        winner
    }

    /// The `k` largest, largest first.
    pub(super) fn top_k(self, k: usize, kept: &mut Vec<Candidate>) {
        kept.clear();
        let k = k.min(self.raw.len());
        // Twice as many as needed are gathered between two selections, so an entry costs O(1) on average.
        let room = 2 * k;
        let mut bound = f32::NEG_INFINITY;
        self.above(bound, |index, logit| {
            kept.push(Candidate { token: Token::from_index(index), logit });
            if kept.len() == k || kept.len() == room {
                kept.select_nth_unstable_by(k - 1, largest_first);
                kept.truncate(k);
                bound = kept[k - 1].logit;
            }
            bound
        });
        kept.sort_unstable_by(largest_first);
        kept.truncate(k);
    }

    /// Top-p over the whole row, with what min-p would drop anyway left out.
    pub(super) fn nucleus(self, top_p: f32, min_p: f32, kept: &mut Vec<Candidate>) {
        let max = self.argmax().logit;
        let floor = if min_p > 0.0 { max + min_p.ln() } else { f32::NEG_INFINITY };
        let mass = if top_p < 1.0 { self.mass(max) } else { f32::INFINITY };
        // Widen until the entries seen hold the mass asked for; what lies e^-40 below the top adds nothing to an f32.
        let mut span = 4.0;
        loop {
            let bound = (max - span).max(floor);
            kept.clear();
            self.above(bound.next_down(), |index, logit| {
                kept.push(Candidate { token: Token::from_index(index), logit });
                bound.next_down()
            });
            if bound <= floor || span > 40.0 || (top_p < 1.0 && unsorted_mass(kept, max) >= top_p * mass) {
                break;
            }
            span *= 2.0;
        }
        kept.sort_unstable_by(largest_first);
        if top_p < 1.0 {
            self::top_p(kept, top_p, mass);
        }
    }

    /// The sum of exp(logit - max) over the row.
    fn mass(self, max: f32) -> f32 {
        let raw: f64 = self.raw.iter().map(|&x| f64::from((x - max).exp())).sum();
        let changed = |&(index, logit): &(usize, f32)| f64::from((logit - max).exp() - (self.raw[index] - max).exp());
        (raw + self.penalised.iter().map(changed).sum::<f64>()) as f32
    }
}

/// The softmax probability of one token. What lies e^-20 below the largest is left out: 200,000 of those add a
/// thousandth.
pub(super) fn probability(logits: &[f32], token: Token) -> f32 {
    let row = Logits { raw: logits, penalised: &[] };
    let max = row.argmax().logit;
    let bound = max - 20.0;
    let mut mass = 0.0;
    row.above(bound, |_, logit| {
        mass += (logit - max).exp();
        bound
    });
    logits.get(token.index()).map_or(0.0, |logit| (logit - max).exp() / mass)
}

fn unsorted_mass(kept: &[Candidate], max: f32) -> f32 {
    kept.iter().map(|c| (c.logit - max).exp()).sum()
}

fn largest_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The sum of exp(logit - the first one's) over candidates that are sorted, largest first.
pub(super) fn mass(kept: &[Candidate]) -> f32 {
    unsorted_mass(kept, kept.first().map_or(0.0, |first| first.logit))
}

/// Cuts sorted candidates after the smallest set that holds `top_p` of `mass` (Holtzman et al. 2020); one stays always.
pub(super) fn top_p(kept: &mut Vec<Candidate>, top_p: f32, mass: f32) {
    let max = kept.first().map_or(0.0, |first| first.logit);
    let mut sum = 0.0;
    let enough = kept.iter().position(|c| {
        sum += (c.logit - max).exp();
        sum >= top_p * mass
    });
    kept.truncate(enough.map_or(kept.len(), |last| last + 1));
}

/// Cuts sorted candidates below `min_p` times the first one's probability (Nguyen et al. 2024).
pub(super) fn min_p(kept: &mut Vec<Candidate>, min_p: f32) {
    if min_p > 0.0 {
        let floor = kept.first().map_or(0.0, |first| first.logit) + min_p.ln();
        kept.retain(|c| c.logit >= floor);
    }
}
