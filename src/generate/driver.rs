//! Evaluates what turns want: the rows of one turn or of many go into one batch, logits go back to each.

use super::stats::Finish;
use super::text::Sink;
use super::turn::Turn;
use crate::engine::{Context, EngineError, Row};
use crate::interrupt::Interrupt;

/// A turn and where its text goes.
pub struct Lane<'a, 'v> {
    pub turn: Turn<'v>,
    pub sink: &'a mut dyn Sink,
}

/// Why the driver came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every turn has finished.
    Finished,
    /// The context is full; with a larger one the turns can go on where they stand.
    Full,
}

/// Runs turns to their ends. Each sequence must hold a prefix of its turn's tokens.
///
/// # Errors
/// What the engine reports, except for an interrupt, which ends the turns.
pub fn drive(context: &mut dyn Context, lanes: &mut [Lane], interrupt: &Interrupt) -> Result<Ended, EngineError> {
    let limits = context.capabilities();
    let mut rows: Vec<Row> = Vec::new();
    loop {
        if lanes.iter().all(|lane| lane.turn.finished()) {
            return Ok(Ended::Finished);
        }
        if interrupt.is_set() {
            end_all(lanes);
            return Ok(Ended::Finished);
        }
        rows.clear();
        // Turns that decode want one row and come first, so that a long prompt delays nobody's next token.
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        order.sort_by_key(|&lane| wanted(context, &lanes[lane].turn));
        for lane in order {
            let turn = &lanes[lane].turn;
            turn.next_rows(context.tokens(turn.seq()).len(), limits.max_rows - rows.len(), &mut rows);
        }
        match context.eval(&rows) {
            Ok(()) => {}
            Err(EngineError::Aborted) => {
                end_all(lanes);
                return Ok(Ended::Finished);
            }
            Err(EngineError::Full { .. }) => return Ok(Ended::Full),
            Err(error) => return Err(error),
        }
        for lane in lanes.iter_mut().filter(|lane| lane.turn.emitted() == 0) {
            lane.sink.reading(context.tokens(lane.turn.seq()).len(), lane.turn.len());
        }
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.want_logits) {
            if let Some(lane) = lanes.iter_mut().find(|lane| lane.turn.seq() == row.seq) {
                lane.turn.absorb(context.logits(index), lane.sink);
            }
        }
    }
}

fn wanted(context: &dyn Context, turn: &Turn) -> usize {
    turn.len().saturating_sub(context.tokens(turn.seq()).len())
}

fn end_all(lanes: &mut [Lane]) {
    for lane in lanes {
        lane.turn.end(Finish::Interrupted, lane.sink);
    }
}
