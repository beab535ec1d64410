//! Where a line too long for the window breaks.

use std::ops::Range;

use super::frame::{Cell, Class};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    /// Between words; one that is longer than a row between clusters.
    Words,
    /// Between clusters, every row as full as it gets: code.
    Cells,
}

/// The cells of each row, with `first` columns for the first and `rest` for the others. Blanks at a break go.
/// Only the first row can be without cells, when none fits into it.
pub(super) fn wrap(cells: &[Cell], first: usize, rest: usize, how: Wrap) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let (mut start, mut used, mut room) = (0, 0, first);
    // The last place to break, with the columns used up to there.
    let mut opening = None;
    for (at, cell) in cells.iter().enumerate() {
        let claim = cell.claim().min(rest);
        if how == Wrap::Words && at > start && may_break(&cells[at - 1], cell) {
            opening = Some((at, used));
        }
        // A blank may hang over the edge: it is not drawn there.
        let hangs = how == Wrap::Words && cell.class == Class::Space;
        if used + claim > room && !hangs && (at > start || rows.is_empty()) {
            let (cut, before) = opening.unwrap_or((at, used));
            rows.push(start..end_of(cells, start, cut, how));
            (start, used, room, opening) = (cut, used - before, rest, None);
        }
        used += claim;
    }
    rows.push(start..end_of(cells, start, cells.len(), how));
    rows
}

fn may_break(before: &Cell, after: &Cell) -> bool {
    match (before.class, after.class) {
        (_, Class::Space | Class::Closing) => false,
        (Class::Space | Class::Wide | Class::Closing, _) | (_, Class::Wide) => true,
        (Class::Other, Class::Other) => false,
    }
}

fn end_of(cells: &[Cell], start: usize, end: usize, how: Wrap) -> usize {
    match how {
        Wrap::Cells => end,
        Wrap::Words => {
            let blanks = cells[start..end].iter().rev().take_while(|cell| cell.class == Class::Space).count();
            end - blanks
        }
    }
}
