//! Position-keyed Gumbel noise: a hash of seed, position and token.
//!
//! argmax of log p + Gumbel samples exactly from p (Gumbel-max trick; Maddison et al. 2014), and since the noise belongs
//! to the position, the same seed gives the same text whatever was evaluated or drafted in between
//! (Daliri, Musco, Suresh 2024, drafter-invariant speculative decoding).

use crate::engine::Token;

/// The noise of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    seed: u64,
}

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self { seed: mix(seed ^ 0x9e37_79b9_7f4a_7c15) }
    }

    /// Gumbel(0, 1) noise of a token at a position; between -3.7 and 37.5.
    pub fn gumbel(self, pos: usize, token: Token) -> f32 {
        // v in (0, 1) with 53 bits; -ln(1 - v) is exponential, and exact for the small v that make large noise.
        let v = ((self.bits(pos, token) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -(-(-v).ln_1p()).ln() as f32
    }

    /// A bound that costs no logarithm: the noise is never above it (-ln(1 - v) >= v, and v >= 2^-(zeros + 1)).
    pub(super) fn upper_bound(self, pos: usize, token: Token) -> f32 {
        let zeros = self.bits(pos, token).leading_zeros().min(53);
        (zeros + 1) as f32 * (std::f32::consts::LN_2 + 1e-4)
    }

    fn bits(self, pos: usize, token: Token) -> u64 {
        mix(mix(self.seed ^ pos as u64)
            .wrapping_add(u64::from(token.0.cast_unsigned()).wrapping_mul(0xd134_2543_de82_ef95)))
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_gumbel() {
        // Mean is Euler's constant, variance pi^2 / 6 (Gumbel 1958), over positions and over tokens.
        let noise = Noise::new(7);
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|i| f64::from(noise.gumbel(i / 500, Token((i % 500) as i32)))).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 0.577_215_66).abs() < 0.012, "{mean}");
        assert!((variance - std::f64::consts::PI.powi(2) / 6.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn the_bound_holds_and_is_close() {
        let noise = Noise::new(3);
        let mut gap = 0.0;
        for i in 0..50_000 {
            let (actual, bound) = (noise.gumbel(i, Token(5)), noise.upper_bound(i, Token(5)));
            assert!(actual <= bound, "{actual} > {bound}");
            gap += f64::from(bound - actual);
        }
        assert!(gap / 50_000.0 < 1.5);
    }

    type Pair = fn(usize) -> (f32, f32);

    #[test]
    fn neighbours_are_independent() {
        // Correlation of adjacent positions, tokens and seeds is within 5 standard errors of none.
        let n = 40_000;
        let pairs: [(&str, Pair); 3] = [
            ("positions", |i| (Noise::new(1).gumbel(i, Token(9)), Noise::new(1).gumbel(i + 1, Token(9)))),
            ("tokens", |i| (Noise::new(1).gumbel(4, Token(i as i32)), Noise::new(1).gumbel(4, Token(i as i32 + 1)))),
            ("seeds", |i| (Noise::new(i as u64).gumbel(4, Token(1)), Noise::new(i as u64 + 1).gumbel(4, Token(1)))),
        ];
        for (what, pair) in pairs {
            let centred = |x: f32| f64::from(x) - 0.577_215_66;
            let covariance = (0..n).map(pair).map(|(a, b)| centred(a) * centred(b)).sum::<f64>() / n as f64;
            let correlation = covariance / (std::f64::consts::PI.powi(2) / 6.0);
            assert!(correlation.abs() < 5.0 / (n as f64).sqrt(), "{what}: {correlation}");
        }
    }
}
