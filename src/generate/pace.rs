//! How much of prompts is read beside turns that decode, so that none of them waits for long.

use std::time::Duration;

/// An evaluation that also reads prompts takes at most so many times one that does not.
const MOST: f64 = 1.8;
/// Rows that are read at once before anything is measured, and at least.
const FIRST: usize = 16;
const LEAST: usize = 4;
/// The weight of what was seen last.
const RECENT: f64 = 0.2;

/// Measured times of evaluations.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Seconds of an evaluation for turns that decode, by their number.
    step: Vec<Option<f64>>,
    /// Seconds that one more row of a prompt takes beside them.
    row: Option<f64>,
}

impl Pace {
    /// The most rows of prompts in the next evaluation, where so many turns decode.
    pub(super) fn most_reading(&self, decoding: usize) -> usize {
        if decoding == 0 {
            return usize::MAX;
        }
        match self.step(decoding).zip(self.row) {
            Some((step, row)) => (((MOST - 1.0) * step / row) as usize).max(LEAST),
            None => FIRST,
        }
    }

    /// Takes in an evaluation for so many turns that decode, with so many rows of prompts.
    pub(super) fn saw(&mut self, decoding: usize, reading: usize, took: Duration) {
        let took = took.as_secs_f64();
        if decoding == 0 || took <= 0.0 {
            return;
        }
        if reading == 0 {
            if self.step.len() <= decoding {
                self.step.resize(decoding + 1, None);
            }
            blend(&mut self.step[decoding], took);
        } else if let Some(step) = self.step(decoding) {
            blend(&mut self.row, ((took - step) / reading as f64).max(step / 1e3));
        }
    }

    /// What a step of so many turns takes: as measured, else as the nearest number of turns does.
    fn step(&self, decoding: usize) -> Option<f64> {
        let known = self.step.iter().enumerate().filter_map(|(turns, step)| Some((turns, (*step)?)));
        known.min_by_key(|(turns, _)| turns.abs_diff(decoding)).map(|(_, step)| step)
    }
}

fn blend(known: &mut Option<f64>, seen: f64) {
    *known = Some(known.map_or(seen, |known| known + RECENT * (seen - known)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_takes_about_as_long_as_a_step() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!((pace.most_reading(0), pace.most_reading(3)), (usize::MAX, FIRST));
        pace.saw(7, 0, ms(200));
        // 16 rows beside it take 80 ms more: 5 ms each, and 160 ms are allowed.
        pace.saw(7, 16, ms(280));
        assert_eq!(pace.most_reading(7), 32);
        pace.saw(7, 32, ms(360));
        assert_eq!(pace.most_reading(6), 32);
        // However dear, a little is read.
        pace.saw(1, 0, ms(1));
        assert_eq!(pace.most_reading(1), LEAST);
    }
}
