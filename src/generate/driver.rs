//! Evaluates what turns want: the rows of one turn or of many go into one batch, logits go back to each.

use std::time::{Duration, Instant};

use super::draft::{At, Speculator};
use super::stats::Finish;
use super::text::Sink;
use super::turn::Turn;
use crate::engine::{Context, EngineError, Rollback, Row};
use crate::interrupt::Interrupt;

/// A turn and where its text goes.
pub struct Lane<'a, 'v> {
    pub turn: &'a mut Turn<'v>,
    pub sink: &'a mut dyn Sink,
    /// Who drafts for it.
    pub speculator: Option<&'a mut Speculator>,
}

/// Why the driver came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every turn has finished.
    Finished,
    /// A turn has read its prompt up to one of its marks.
    Marked,
    /// The context is full; with a larger one the turns can go on where they stand.
    Full,
}

/// One evaluation for all turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Rows of prompts that were read beside the rows of turns that decode.
    pub(super) reading: usize,
    pub(super) took: Duration,
    marked: bool,
}

/// Runs turns to their ends. Each sequence must hold a prefix of its turn's tokens.
///
/// # Errors
/// What the engine reports, except for an interrupt, which ends the turns.
pub fn drive(context: &mut dyn Context, lanes: &mut [Lane], interrupt: &Interrupt) -> Result<Ended, EngineError> {
    loop {
        if lanes.iter().all(|lane| lane.turn.finished()) {
            return Ok(Ended::Finished);
        }
        match round(context, lanes, usize::MAX, interrupt) {
            Ok(Round { marked: true, .. }) => return Ok(Ended::Marked),
            Ok(_) => {}
            Err(EngineError::Full { .. }) => return Ok(Ended::Full),
            Err(error) => return Err(error),
        }
    }
}

/// Evaluates once what all turns want, of prompts at most `most_reading` rows. An interrupt ends the turns.
///
/// # Errors
/// What the engine reports; after [`EngineError::Full`] the turns stand where they stood.
pub(super) fn round(
    context: &mut dyn Context,
    lanes: &mut [Lane],
    most_reading: usize,
    interrupt: &Interrupt,
) -> Result<Round, EngineError> {
    let limits = context.capabilities();
    let mut went = Round { reading: 0, took: Duration::ZERO, marked: false };
    if interrupt.is_set() {
        end_all(lanes);
        return Ok(went);
    }
    let mut rows: Vec<Row> = Vec::new();
    // Turns that decode want few rows and come first, so that a long prompt delays nobody's next token.
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_by_key(|&lane| wanted(context, lanes[lane].turn));
    let turns = order.len();
    let mut decoding = lanes.iter().filter(|lane| lane.turn.emitted() > 0 && !lane.turn.finished()).count();
    for (place, lane) in order.into_iter().enumerate() {
        let lane = &mut lanes[lane];
        let room = limits.max_rows - rows.len();
        // Each turn that is still to come may want a row of its own, with logits; and a draft must not be what makes a
        // context grow.
        let to_come = turns - place;
        let logits = rows.iter().filter(|row| row.want_logits).count() + to_come;
        let edge = context.n_ctx().saturating_sub(context.total() + rows.len() + to_come);
        // Rows of those before it with their drafts, and one of each that is still to come.
        decoding -= usize::from(lane.turn.emitted() > 0 && !lane.turn.finished());
        let beside = rows.len() + decoding;
        lane.draft(context, room.saturating_sub(1).min(limits.max_logits.saturating_sub(logits)).min(edge), beside);
        let reads = lane.turn.emitted() == 0;
        let room = if reads { room.min(most_reading.saturating_sub(went.reading)) } else { room };
        let before = rows.len();
        lane.turn.next_rows(context.tokens(lane.turn.seq()).len(), room, &mut rows);
        went.reading += if reads { rows.len() - before } else { 0 };
    }
    let began = Instant::now();
    match context.eval(&rows) {
        Ok(()) => {}
        Err(EngineError::Aborted) => {
            end_all(lanes);
            return Ok(went);
        }
        Err(error) => return Err(error),
    }
    went.took = began.elapsed();
    for lane in lanes.iter_mut() {
        let seq = lane.turn.seq();
        let own: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].seq == seq).collect();
        let wanting: Vec<usize> = own.iter().copied().filter(|row| rows[*row].want_logits).collect();
        let prefilling = lane.turn.emitted() == 0;
        went.marked |= lane.turn.pass_mark(context.tokens(seq).len());
        if prefilling && !own.is_empty() {
            lane.sink.reading(context.tokens(seq).len().saturating_sub(lane.turn.cached()));
        }
        if wanting.is_empty() {
            continue;
        }
        let held = context.tokens(seq).len() - wanting.len();
        let judged = lane.turn.absorb(wanting.iter().map(|row| context.logits(*row)), lane.sink);
        lane.sink.emitted(judged.emitted);
        // What is read again then, the turn asks for by itself.
        context.trim_or_clear(seq, lane.turn.valid(held, judged))?;
        if !prefilling && let Some(speculator) = &mut lane.speculator {
            // What an evaluation costs in which others read their prompts says nothing of drafts.
            let rows = if went.reading == 0 { rows.len() } else { 0 };
            speculator.judged(judged, rows, went.took);
        }
    }
    Ok(went)
}

impl Lane<'_, '_> {
    /// Lets drafters propose what follows the pending token, as far as the model, the budget and `most` rows allow.
    /// So many rows of other turns are evaluated with them.
    fn draft(&mut self, context: &dyn Context, most: usize, beside: usize) {
        let Some(speculator) = &mut self.speculator else { return };
        let limits = context.capabilities();
        let held = context.tokens(self.turn.seq()).len();
        if !self.turn.is_decoding(held) {
            speculator.pass();
            return;
        }
        let rollback = match limits.rollback {
            Rollback::Anywhere => usize::MAX,
            Rollback::AtMost(tokens) => tokens,
        };
        if rollback == 0 {
            speculator.blocked("this model's state cannot be cut back");
            return;
        }
        // The last token of the budget needs no row.
        let most = most.min(rollback).min(self.turn.left().saturating_sub(1));
        let at = At { tokens: self.turn.tokens(), prompt_len: self.turn.prompt_len() };
        speculator.beside(beside);
        speculator.propose(&at, most);
        // A draft may have padding that the target's vocabulary does not have.
        let draft = speculator.keep_below(self.turn.vocabulary_len());
        let fitting = self.turn.fitting(&draft.iter().map(|own| own.token).collect::<Vec<_>>());
        let draft = speculator.keep_first(fitting);
        self.turn.propose(draft);
    }
}

fn wanted(context: &dyn Context, turn: &Turn) -> usize {
    // A draft is not counted: who decodes is behind nobody.
    turn.len().saturating_sub(context.tokens(turn.seq()).len())
}

fn end_all(lanes: &mut [Lane]) {
    for lane in lanes {
        lane.turn.end(Finish::Interrupted, lane.sink);
    }
}
