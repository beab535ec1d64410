//! How fast a model reads, takes steps, and takes steps of several rows: bare evaluations, timed one by one.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::stats::Summary;
use crate::engine::{Context, EngineError, Rollback, Row, Token};

/// Tokens that are read; steps; how often a step of several rows.
const READ: usize = 128;
const STEPS: usize = 16;
const TIMES: usize = 3;
/// Rows of a step, besides one.
const ROWS: [usize; 4] = [2, 3, 4, 8];

/// What a model does here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Tokens a second of a prompt of [`READ`] tokens: the better of two.
    pub prefill: f64,
    /// Milliseconds of a step behind it: the median.
    pub step_ms: f64,
    /// The depth at which steps were measured, on average.
    pub depth: usize,
    /// Rows of a step, and its cost in single steps; empty where the state cannot be cut back.
    pub rows: Vec<(usize, f64)>,
}

impl Speed {
    /// Tokens a second without drafts.
    pub fn decode(&self) -> f64 {
        1e3 / self.step_ms
    }

    /// The cost of a step of so many rows, where it was measured.
    pub fn cost(&self, rows: usize) -> Option<f64> {
        if rows == 1 { Some(1.0) } else { self.rows.iter().find(|(own, _)| *own == rows).map(|(_, cost)| *cost) }
    }
}

/// Measures a context that is empty and has room for 256 tokens. Takes some 20 steps and two prompts of 128 tokens.
///
/// # Errors
/// What the engine reports; [`EngineError::Aborted`] at a Ctrl-C.
pub fn measure(context: &mut dyn Context, vocabulary: usize) -> Result<Speed, EngineError> {
    let token = |at: usize| Token::from_index((at * 7919 + 13) % vocabulary.max(1));
    let row = |pos: usize, want_logits: bool| Row { seq: 0, token: token(pos), pos, want_logits };
    let timed = |context: &mut dyn Context, rows: &[Row]| {
        let began = Instant::now();
        context.eval(rows).map(|()| began.elapsed())
    };
    let prompt: Vec<Row> = (0..READ).map(|pos| row(pos, pos + 1 == READ)).collect();
    let mut read = timed(context, &prompt)?;
    context.trim(0, 0)?;
    read = read.min(timed(context, &prompt)?);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    // What disturbs a step makes it longer only: shapes are those of the least, the step itself is the usual one.
    let least = |times: &[f64]| Summary::of(times).map_or(f64::NAN, |own| own.min);
    let mut steps = Vec::with_capacity(STEPS);
    for at in 0..STEPS {
        steps.push(ms(timed(context, &[row(READ + at, true)])?));
    }
    let step_ms = Summary::of(&steps).map_or(f64::NAN, |own| own.p50);
    let mut rows = Vec::new();
    if context.capabilities().rollback == Rollback::Anywhere {
        let held = READ + STEPS;
        for count in ROWS {
            let several: Vec<Row> = (0..count).map(|at| row(held + at, true)).collect();
            let mut times = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                times.push(ms(timed(context, &several)?));
                context.trim(0, held)?;
            }
            rows.push((count, least(&times) / least(&steps)));
        }
    }
    Ok(Speed { prefill: READ as f64 / read.as_secs_f64(), step_ms, depth: READ + STEPS / 2, rows })
}
