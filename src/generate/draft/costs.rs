//! What evaluations cost on this machine: the target's by rows, the draft's step and reading, all relative to the
//! target's single row. Absolute times drift with the depth of the context and with what else runs; the shape does not.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MOST_DRAFTED, Step};

/// The most rows that costs are kept for: the pending token and a draft.
pub const MOST_ROWS: usize = MOST_DRAFTED + 1;

/// What is believed before anything is measured: a CPU with vector units (rows 1 to 17).
const EXPECTED: [f64; MOST_ROWS] =
    [1.0, 1.42, 1.79, 1.95, 2.25, 2.55, 2.75, 2.95, 3.2, 3.35, 3.5, 3.6, 3.7, 3.8, 3.85, 3.9, 4.3];

/// What is left of a measurement after one more round: what seemed too dear to be used is believed in the end no longer.
const FADING: f64 = 0.999;
/// The weight below which a measurement is forgotten.
const FORGOTTEN: f64 = 0.2;
/// Rounds after which a measurement weighs as much as all before it.
const MEMORY: f64 = 24.0;

/// Measured evaluation times, kept per machine, build and pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Milliseconds of a single row of the target.
    pub step_ms: f64,
    /// The cost of n + 1 rows relative to one, and how many measurements stand behind it.
    pub rows: Vec<(f64, f64)>,
    /// A draft step relative to a step of the target.
    pub draft: Option<f64>,
    /// Reading one token of a long text with the draft, relative to a step of the target.
    pub read: Option<f64>,
}

/// Costs in steps of the target (one row is 1).
#[derive(Clone, Debug)]
pub struct Costs {
    /// Milliseconds of a single row; 0 until measured.
    unit: f64,
    rows: [Mean; MOST_ROWS],
    draft: Mean,
    read: Mean,
}

/// An average that forgets.
#[derive(Clone, Copy, Debug)]
struct Mean {
    value: f64,
    weight: f64,
}

impl Mean {
    fn expected(value: f64) -> Self {
        Self { value, weight: 0.0 }
    }

    fn add(&mut self, value: f64) {
        // One hiccup of the machine must not be believed at once.
        let value = if self.known().is_some() { value.clamp(self.value * 0.5, self.value * 2.0) } else { value };
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.value += (value - self.value) / self.weight;
    }

    fn known(self) -> Option<f64> {
        (self.weight > FORGOTTEN).then_some(self.value)
    }
}

impl Calibration {
    /// What was measured, for people: rows and their cost, then the draft's step.
    pub fn words(&self) -> String {
        let measured = self.rows.iter().enumerate().filter(|(_, (_, weight))| *weight > FORGOTTEN);
        let mut words: Vec<String> = measured.map(|(at, (cost, _))| format!("{} rows {cost:.2}", at + 1)).collect();
        words.extend(self.draft.map(|cost| format!("a step of the draft {cost:.2}")));
        words.join(", ")
    }
}

impl Costs {
    /// Before anything is measured; `draft` is how large the draft is beside the target, by bytes.
    pub fn expected(draft: f64) -> Self {
        Self {
            unit: 0.0,
            rows: EXPECTED.map(Mean::expected),
            draft: Mean::expected(draft * 1.1),
            read: Mean::expected(draft * 0.12),
        }
    }

    /// What was kept; `draft` as in [`Costs::expected`].
    pub fn from_calibration(kept: &Calibration, draft: f64) -> Self {
        let mut costs = Self::expected(draft);
        let sound = |value: f64| value.is_finite() && value > 0.0;
        if sound(kept.step_ms) {
            costs.unit = kept.step_ms;
        }
        for (mean, (value, weight)) in costs.rows.iter_mut().zip(&kept.rows) {
            if sound(*value) && *weight > FORGOTTEN {
                *mean = Mean { value: *value, weight: weight.min(MEMORY) };
            }
        }
        let known = [(&mut costs.draft, kept.draft), (&mut costs.read, kept.read)];
        for (mean, value) in known {
            if let Some(value) = value.filter(|value| sound(*value)) {
                *mean = Mean { value, weight: 4.0 };
            }
        }
        costs
    }

    pub fn calibration(&self) -> Calibration {
        Calibration {
            step_ms: self.unit,
            rows: self.rows.iter().map(|mean| (mean.value, mean.weight)).collect(),
            draft: self.draft.known(),
            read: self.read.known(),
        }
    }

    /// Milliseconds of a single row; 0 until measured.
    pub fn unit_ms(&self) -> f64 {
        self.unit
    }

    /// The target's cost of `rows` rows (1 or more).
    pub fn verify(&self, rows: usize) -> f64 {
        let rows = rows.clamp(1, MOST_ROWS);
        if rows == 1 {
            return 1.0;
        }
        if let Some(value) = self.rows[rows - 1].known() {
            return value;
        }
        // Not measured: what was expected, moved as its measured neighbours were.
        let factor = |at: usize| Some(self.rows[at].known()? / EXPECTED[at]);
        let below = (1..rows - 1).rev().find_map(|at| Some((at, factor(at)?))).unwrap_or((0, 1.0));
        let above = (rows..MOST_ROWS).find_map(|at| Some((at, factor(at)?))).unwrap_or((MOST_ROWS, below.1));
        let share = (rows - 1 - below.0) as f64 / (above.0 - below.0) as f64;
        EXPECTED[rows - 1] * (below.1 + (above.1 - below.1) * share)
    }

    /// Whether the cost of so many rows was ever measured.
    pub fn is_measured(&self, rows: usize) -> bool {
        rows == 1 && self.unit > 0.0 || self.rows.get(rows - 1).is_some_and(|mean| mean.known().is_some())
    }

    /// The draft's cost of one step that reads `unread` tokens first (1: only the pending one).
    pub fn draft(&self, unread: usize) -> f64 {
        if unread <= MOST_ROWS {
            // Its rows cost what the target's do, in proportion.
            return self.draft.value * self.verify(unread);
        }
        self.draft.value * self.verify(MOST_ROWS) + self.read.value * (unread - MOST_ROWS) as f64
    }

    /// A time in steps; nothing before a step was measured.
    pub fn steps(&self, time: Duration) -> f64 {
        if self.unit > 0.0 { time.as_secs_f64() * 1e3 / self.unit } else { 0.0 }
    }

    /// Takes in an evaluation of the target.
    pub fn saw_target(&mut self, rows: usize, time: Duration) {
        let ms = time.as_secs_f64() * 1e3;
        if rows == 0 || rows > MOST_ROWS || ms <= 0.0 {
            return;
        }
        let implied = ms / self.verify(rows);
        if rows == 1 || self.unit <= 0.0 {
            // Slow and fast spells pass; the unit follows within a few rounds, and a hiccup moves it little.
            let rate = if self.unit <= 0.0 { 1.0 } else { 0.15 };
            let seen = if self.unit <= 0.0 { implied } else { implied.clamp(self.unit * 0.5, self.unit * 2.0) };
            self.unit += (seen - self.unit) * rate;
        } else {
            // A spell changes all rows alike: part of what is seen is the unit's, the rest is the shape's.
            let seen = implied.clamp(self.unit * 0.5, self.unit * 2.0);
            let trust = if self.rows[rows - 1].weight >= 4.0 { 0.1 } else { 0.0 };
            self.rows[rows - 1].add(ms / self.unit);
            self.unit += (seen - self.unit) * trust;
        }
    }

    /// A round has passed.
    pub fn fade(&mut self) {
        self.rows.iter_mut().for_each(|mean| mean.weight *= FADING);
    }

    /// Takes in evaluations of the draft.
    pub fn saw_draft(&mut self, steps: &[Step]) {
        if self.unit <= 0.0 {
            return;
        }
        for step in steps {
            let cost = self.steps(step.time);
            match step.rows {
                0 => {}
                1..=MOST_ROWS => self.draft.add(cost / self.verify(step.rows)),
                rows => self.read.add(cost / rows as f64),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    #[test]
    fn what_was_not_measured_lies_between_what_was() {
        let mut costs = Costs::expected(0.3);
        assert!((costs.verify(2) - 1.42).abs() < 1e-9);
        costs.saw_target(1, ms(10.0));
        costs.saw_target(4, ms(39.0));
        assert!((costs.verify(4) - 3.9).abs() < 1e-9);
        // Twice what was expected at 4 rows, as expected at 1: in between, and on beyond.
        assert!(costs.verify(3) > 1.79 && costs.verify(3) < 2.0 * 1.79);
        assert!((costs.verify(8) - 2.0 * 2.95).abs() < 1e-9);
    }

    #[test]
    fn a_slow_spell_changes_the_unit_and_not_the_shape() {
        let mut costs = Costs::expected(0.3);
        for _ in 0..30 {
            costs.saw_target(1, ms(10.0));
            costs.saw_target(4, ms(20.0));
        }
        for _ in 0..30 {
            costs.saw_target(1, ms(17.0));
            costs.saw_target(4, ms(34.0));
        }
        assert!((costs.unit_ms() - 17.0).abs() < 1.0, "{}", costs.unit_ms());
        assert!((costs.verify(4) - 2.0).abs() < 0.25, "{}", costs.verify(4));
    }

    #[test]
    fn a_hiccup_is_not_believed() {
        let mut costs = Costs::expected(0.3);
        for _ in 0..10 {
            costs.saw_target(1, ms(10.0));
            costs.saw_target(2, ms(14.0));
        }
        costs.saw_target(2, ms(400.0));
        assert!(costs.verify(2) < 1.6, "{}", costs.verify(2));
    }

    #[test]
    fn a_calibration_comes_back_as_it_was_kept() {
        let mut costs = Costs::expected(0.3);
        costs.saw_target(1, ms(10.0));
        costs.saw_target(5, ms(21.0));
        costs.saw_draft(&[Step { rows: 1, time: ms(4.0) }, Step { rows: 100, time: ms(90.0) }]);
        let again = Costs::from_calibration(&costs.calibration(), 0.9);
        for rows in 1..=MOST_ROWS {
            assert!((again.verify(rows) - costs.verify(rows)).abs() < 1e-9);
        }
        assert!((again.draft(1) - 0.4).abs() < 1e-9 && (again.draft(18) - costs.draft(18)).abs() < 1e-9);
        // Nonsense in a file changes nothing.
        let broken =
            Calibration { step_ms: f64::NAN, rows: vec![(-1.0, 9.0); 40], draft: Some(0.0), ..Default::default() };
        assert!((Costs::from_calibration(&broken, 0.3).verify(4) - 1.95).abs() < 1e-9);
    }
}
