//! What is kept about a state key: who it is, and how fast its prompts are read and its blocks loaded.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{Name, StateKey};

/// How much a new measurement counts against those before.
const NEW: f64 = 0.3;
/// No prompt takes longer.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The file `about.json` of a state key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The model's name, as it was last called.
    pub model: String,
    pub key: Option<StateKey>,
    #[serde(default)]
    pub rates: Rates,
    #[serde(default)]
    pub spared: Spared,
}

/// What loading has saved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spared {
    /// Answers whose prompt came from here in part.
    pub times: u64,
    pub tokens: u64,
    /// Of reading, less those of loading; only where the rate of reading was known.
    pub seconds: f64,
}

/// Measured rates; none where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Tokens a second.
    pub prefill: Option<f64>,
    /// Bytes a second, from the file into the context.
    pub load: Option<f64>,
}

impl Rates {
    /// Takes a measurement of reading a prompt.
    pub fn saw_prefill(&mut self, tokens: usize, time: Duration) {
        mean(&mut self.prefill, tokens as f64, time);
    }

    /// Takes a measurement of loading.
    pub fn saw_load(&mut self, bytes: usize, time: Duration) {
        mean(&mut self.load, bytes as f64, time);
    }

    /// How long loading takes; nothing where that is not known.
    pub fn load_time(&self, bytes: usize) -> Option<Duration> {
        self.load.and_then(|rate| seconds(bytes as f64 / rate))
    }

    /// How long reading takes; nothing where that is not known.
    pub fn prefill_time(&self, tokens: usize) -> Option<Duration> {
        self.prefill.and_then(|rate| seconds(tokens as f64 / rate))
    }
}

/// None where it makes no sense: nobody seals this file, and times are added up.
fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time < LONGEST)
}

fn mean(rate: &mut Option<f64>, amount: f64, time: Duration) {
    if amount <= 0.0 || time.is_zero() {
        return;
    }
    let new = amount / time.as_secs_f64();
    *rate = Some(rate.filter(|old| old.is_finite() && *old > 0.0).map_or(new, |old| old + NEW * (new - old)));
}

impl About {
    pub(super) fn read(root: &Path, state: Name) -> Option<Self> {
        let text = std::fs::read_to_string(root.join(state.to_string()).join("about.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(super) fn write(&self, root: &Path, state: Name) -> io::Result<()> {
        let folder = root.join(state.to_string());
        super::layout::make_folder(&folder)?;
        crate::paths::replace(&folder.join("about.json"), &serde_json::to_vec_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_what_is_measured() {
        let mut rates = Rates::default();
        assert_eq!(rates.prefill_time(10), None);
        rates.saw_prefill(100, Duration::from_secs(1));
        assert_eq!(rates.prefill_time(50), Some(Duration::from_millis(500)));
        rates.saw_prefill(200, Duration::from_secs(1));
        assert_eq!(rates.prefill, Some(130.0));
        rates.saw_prefill(0, Duration::from_secs(1));
        rates.saw_prefill(5, Duration::ZERO);
        assert_eq!(rates.prefill, Some(130.0));
    }
}
