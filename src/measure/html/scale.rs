//! Where a number stands on an axis, and the round numbers beside it.

/// An axis: numbers to shares of its length.
#[derive(Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    pub(super) ticks: Vec<Tick>,
}

#[derive(Debug)]
pub(super) struct Tick {
    /// 0 to 1.
    pub(super) at: f64,
    /// Empty where the label before is too near.
    pub(super) label: String,
}

/// Labels need so much of a narrow window's plot.
const APART: f64 = 0.12;
const TICKS: f64 = 5.0;

impl Scale {
    /// From 0 to a round number above all that can be drawn; none where nothing can.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let most = values.into_iter().filter(|x| fits(*x) && *x >= 0.0).reduce(f64::max)?;
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most / TICKS);
        // 0.999: a highest value that is round to the eye gets no empty step above it.
        let steps = (most / step * 0.999).ceil();
        let mut scale = Self { low: 0.0, high: steps * step, log: false, ticks: Vec::new() };
        scale.high = scale.high.max(most);
        scale.ticks = scale.labelled((0..=steps as i64).map(|i| (i as f64 * step, label(i as f64 * step, step))));
        Some(scale)
    }

    /// For counts from `first` to `last`, each with as much room on both sides.
    pub(super) fn counts(first: usize, last: usize) -> Self {
        let (low, high) = (first as f64 - 0.5, last.max(first) as f64 + 0.5);
        let mut scale = Self { low, high, log: false, ticks: Vec::new() };
        let step = step((high - low) / (2.0 * TICKS)).max(1.0) as usize;
        let counts = (first..=last).filter(|n| n % step == 0);
        scale.ticks = scale.labelled(counts.map(|n| (n as f64, n.to_string())));
        scale
    }

    /// Logarithmic, with some room at both ends.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let ends = values.into_iter().filter(|x| fits(*x) && *x > 0.0).map(|x| (x, x));
        let (low, high) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let room = (high / low).powf(0.06).max(1.03);
        let mut scale = Self { low: low / room, high: high * room, log: true, ticks: Vec::new() };
        scale.ticks = scale.labelled(scale.round_numbers());
        Some(scale)
    }

    fn round_numbers(&self) -> Vec<(f64, String)> {
        if self.high / self.low < 10.0 {
            // Far ends leave room for more at the low one; labels too near at the high one are dropped.
            let ticks = if self.high / self.low < 3.0 { TICKS } else { 2.0 * TICKS };
            let step = step((self.high - self.low) / ticks);
            let ends = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
            return (ends.0..=ends.1).map(|i| (i as f64 * step, label(i as f64 * step, step))).collect();
        }
        let ends = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = ends.1 - ends.0;
        // From 2 to its neighbours is 0.3 decades.
        let digits: &[u8] = if 0.3 / (self.high / self.low).log10() >= APART { &[1, 2, 5] } else { &[1] };
        let every = (decades / 6 + 1) as usize;
        let first = ends.0.div_euclid(every as i32) * every as i32;
        let decades = (first..=ends.1).step_by(every);
        let numbers = decades.flat_map(|decade| digits.iter().map(move |digit| format!("{digit}e{decade}")));
        let numbers = numbers.filter_map(|text| text.parse::<f64>().ok());
        numbers.filter(|x| (self.low..=self.high).contains(x)).map(|x| (x, label(x, x))).collect()
    }

    fn labelled(&self, numbers: impl IntoIterator<Item = (f64, String)>) -> Vec<Tick> {
        let mut last = f64::NEG_INFINITY;
        let ticks = numbers.into_iter().filter_map(|(x, label)| {
            let at = self.at(x)?;
            let label = if at - last < APART { String::new() } else { label };
            last = if label.is_empty() { last } else { at };
            Some(Tick { at, label })
        });
        ticks.collect()
    }

    /// From 0 to 1; none for what cannot be drawn here.
    pub(super) fn at(&self, x: f64) -> Option<f64> {
        if !fits(x) || (self.log && x <= 0.0) {
            return None;
        }
        let at = if self.log {
            (x / self.low).ln() / (self.high / self.low).ln()
        } else {
            (x - self.low) / (self.high - self.low)
        };
        (-1e-9..=1.0 + 1e-9).contains(&at).then(|| at.clamp(0.0, 1.0))
    }
}

/// Whether a plot can bear it: a figure outside these is an error of measurement.
fn fits(x: f64) -> bool {
    x == 0.0 || (1e-12..1e12).contains(&x.abs())
}

/// The round number (1, 2 or 5 times a power of ten) that is at least this.
fn step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * decade >= least * 0.999);
    digit.unwrap_or(10.0) * decade
}

/// A round number, with as many decimals as its `step` has.
fn label(x: f64, step: f64) -> String {
    let decimals = -(step * 1.001).log10().floor();
    match decimals as i32 {
        _ if x == 0.0 => "0".to_owned(),
        ..=-6 => format!("{x:e}"),
        5.. => format!("{x:.0e}"),
        decimals => format!("{x:.*}", decimals.max(0) as usize),
    }
}
