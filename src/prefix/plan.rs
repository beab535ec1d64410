//! How much of a hit is loaded: what is cheaper to load than to read again, by measured rates.

use std::fmt;
use std::time::Duration;

use super::about::Rates;
use super::store::Hit;

/// Bytes a second before anything was measured: a slow disk.
const LOAD_RATE: f64 = 500e6;
/// Opening, checking, handing over.
const PER_ENTRY: Duration = Duration::from_micros(200);

/// A decision between loading and reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The entries of the hit to load, by number.
    pub from: usize,
    pub to: usize,
    /// Tokens that are in the context then.
    pub tokens: usize,
    /// Tokens that the store has.
    pub found: usize,
    /// What loading them is expected to take, and what reading them would; where that is known.
    pub load: Duration,
    pub prefill: Option<Duration>,
}

impl Plan {
    /// Decides for a context that holds the first `held` tokens of the prompt already. Blocks have `block` tokens; none
    /// where the hit is a whole state.
    pub fn of(hit: &Hit, held: usize, block: Option<usize>, rates: &Rates) -> Self {
        let from = block.map_or(0, |block| (held / block).min(hit.entries.len()));
        let mut best = Self { from, to: from, tokens: held, found: hit.tokens, ..Self::default() };
        let mut gained = Duration::ZERO;
        let mut load = Duration::ZERO;
        for (index, entry) in hit.entries.iter().enumerate().skip(from) {
            let bytes = entry.payload_len;
            load +=
                rates.load_time(bytes).unwrap_or_else(|| Duration::from_secs_f64(bytes as f64 / LOAD_RATE)) + PER_ENTRY;
            let tokens = hit.tokens.min(entry.header.first + entry.header.tokens.len());
            if tokens <= held {
                continue;
            }
            let prefill = rates.prefill_time(tokens - held);
            // What is not known is worth finding out, and reading is nearly always dearer.
            let gain = prefill.map_or(load + gained + PER_ENTRY, |time| time.saturating_sub(load));
            if gain <= gained {
                continue;
            }
            gained = gain;
            best = Self { from, to: index + 1, tokens, found: hit.tokens, load, prefill };
        }
        best
    }

    /// Whether anything is loaded.
    pub fn loads(&self) -> bool {
        self.to > self.from
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        if !self.loads() {
            return write!(f, "prefix cache: {} tokens are there, reading is cheaper than loading more", self.found);
        }
        let (blocks, load) = (self.to - self.from, ms(self.load));
        let plural = if blocks == 1 { "" } else { "s" };
        write!(f, "prefix cache: loading {blocks} block{plural} up to token {} (about {load:.1} ms", self.tokens)?;
        match self.prefill {
            Some(time) => write!(f, "; reading would take {:.0} ms)", ms(time)),
            None => write!(f, "; how fast this model reads is not known yet)"),
        }
    }
}
