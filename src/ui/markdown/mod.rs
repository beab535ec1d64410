//! Draws Markdown in a terminal while it streams. What comes in is free of control characters; what goes out moves the
//! cursor only within rows that are still on the screen.
//!
//! The source falls into three parts. What is *settled* is drawn for good and forgotten: blocks, items and lines of code
//! that more text cannot change. What is *frozen* has left the screen, or was drawn before a resize: it is parsed again
//! but never drawn again. The rest is live: laid out anew with every push and compared with what the screen shows.
//! Every cell knows its place in the source, so "frozen" is one number, and nothing is lost or shown twice whatever a
//! text turns out to be.

mod blocks;
mod budget;
mod code;
mod draw;
mod emphasis;
mod frame;
mod guard;
mod held;
mod highlight;
mod inline;
mod layout;
mod mathematics;
mod nested;
mod page;
mod paint;
mod prepare;
mod style;
mod table;
#[cfg(test)]
mod tests;
mod wrap;

use std::time::Instant;

use budget::Budget;
use code::{Coloured, Fence};
use frame::{Columns, Frame};
use layout::Before;
use paint::{Screen, paint};
use prepare::Stage;

/// A text that is being drawn.
#[derive(Debug)]
pub(super) struct Markdown {
    columns: usize,
    rows: usize,
    colour: bool,
    /// None: drawing takes the time it takes.
    budget: Option<Budget>,
    /// What is not settled.
    source: String,
    /// The place of `source` in all that came.
    base: usize,
    frozen: usize,
    before: Before,
    fence: Option<Fence>,
    coloured: Coloured,
    locked: Option<Columns>,
    /// What the screen shows; from the row `live` on it can be drawn anew.
    frame: Frame,
    live: usize,
    /// The one to draw next, kept for its memory.
    spare: Frame,
    /// The column in which the first live row was interrupted by a resize.
    resumed: Option<usize>,
    /// Nothing was drawn yet.
    is_fresh: bool,
    /// There are rows above the live ones.
    has_above: bool,
}

impl Markdown {
    /// For a window of so many columns and rows, with the cursor at the start of an empty row. Without `colour` no
    /// look is set, only the structure is shown.
    pub(super) fn new(columns: usize, rows: usize, colour: bool) -> Self {
        Self {
            columns,
            rows,
            colour,
            budget: Some(Budget::new()),
            source: String::new(),
            base: 0,
            frozen: 0,
            before: Before::default(),
            fence: None,
            coloured: Coloured::default(),
            locked: None,
            frame: Frame::default(),
            live: 0,
            spare: Frame::default(),
            resumed: None,
            is_fresh: true,
            has_above: false,
        }
    }

    /// Takes more of the text, cut anywhere. What to write to the terminal, in one piece.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.source.push_str(text);
        if self.budget.as_ref().is_some_and(Budget::is_spent) {
            return String::new();
        }
        let start = Instant::now();
        let out = self.update(Stage::Streaming);
        if let Some(budget) = &mut self.budget {
            budget.spend(start);
        }
        out
    }

    /// The window has another size from now on. What is drawn stays; the text goes on where the cursor has to be.
    pub(super) fn resize(&mut self, columns: usize, rows: usize) {
        if (columns, rows) == (self.columns, self.rows) {
            return;
        }
        if !self.is_fresh {
            let column = self.frame.rows.last().map_or(0, |row| self.frame.width(row));
            let column = if columns < self.columns { column % columns } else { column };
            self.freeze(self.frame.rows.len());
            self.locked = None;
            self.frame.clear();
            self.frame.push_opaque(column);
            self.live = 0;
            self.resumed = Some(column);
        }
        (self.columns, self.rows) = (columns, rows);
    }

    /// Shows what was held back, and leaves the cursor at the start of an empty row.
    pub(super) fn finish(&mut self) -> String {
        if !self.source.is_empty() && !self.source.ends_with('\n') {
            self.source.push('\n');
        }
        let mut out = self.update(Stage::Ended);
        if !self.is_fresh {
            out.push('\n');
        }
        out
    }

    fn update(&mut self, stage: Stage) -> String {
        let mut frame = std::mem::take(&mut self.spare);
        frame.clear();
        if let Some(column) = self.resumed {
            frame.push_opaque(column);
        }
        let settled = self.lay_out(&mut frame, stage);
        if frame.rows.is_empty() && self.live < self.frame.rows.len() {
            // What was drawn is held back again: its first row stays, empty.
            frame.push_opaque(0);
        }
        let (from, is_fresh) = (self.live, self.is_fresh);
        let screen = Screen { frame: &self.frame, from, is_fresh, columns: self.columns, colour: self.colour };
        let out = paint(screen, &frame);
        self.is_fresh &= frame.rows.is_empty();
        self.spare = std::mem::replace(&mut self.frame, frame);
        self.live = settled;
        self.scroll();
        if self.live > 0 {
            self.resumed = None;
            self.has_above = true;
        }
        out
    }
}
