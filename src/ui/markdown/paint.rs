//! What to write to the terminal, so that it shows a new frame in place of an old one: from the first cell that
//! differs on, and no more erased than has to be.

use std::fmt::Write as _;

use super::frame::{Cell, Frame, Joint, Row};
use super::style::Style;

/// The rows on the screen that can still change; the cursor is behind the last.
#[derive(Clone, Copy)]
pub(super) struct Screen<'a> {
    pub(super) frame: &'a Frame,
    pub(super) from: usize,
    /// The cursor is at the start of an empty row, and nothing was drawn yet.
    pub(super) is_fresh: bool,
    pub(super) columns: usize,
    pub(super) colour: bool,
}

impl Screen<'_> {
    fn rows(&self) -> &[Row] {
        &self.frame.rows[self.from..]
    }
}

pub(super) fn paint(old: Screen<'_>, new: &Frame) -> String {
    let mut painter = Painter { old, new, out: String::new(), style: Style::PLAIN, row: 0, is_behind: true };
    painter.run();
    painter.out
}

struct Painter<'a> {
    old: Screen<'a>,
    new: &'a Frame,
    out: String,
    style: Style,
    /// The cursor's row.
    row: usize,
    /// The cursor is behind the last cell of its row.
    is_behind: bool,
}

impl Painter<'_> {
    fn run(&mut self) {
        let (old, new) = (self.old.rows().len(), self.new.rows.len());
        self.row = old.saturating_sub(1);
        for row in 0..new.min(old) {
            if let Some(same) = self.first_difference(row) {
                self.redraw(row, same);
            }
        }
        for row in old..new {
            if row > 0 {
                self.go_to(row - 1);
            }
            self.append(row);
        }
        if new < old {
            self.erase_below(new);
        }
        if new > 0 {
            self.go_behind(new - 1);
        }
        self.select(Style::PLAIN);
    }

    /// How many cells of a row stay, if not all of both do.
    fn first_difference(&self, row: usize) -> Option<usize> {
        let (old, new) = (self.old_cells(row), self.new.row(&self.new.rows[row]));
        let is_same =
            |(old, new): &(&Cell, &Cell)| old.style == new.style && self.old.frame.glyph(old) == self.new.glyph(new);
        let same = old.iter().zip(new).take_while(is_same).count();
        (same < old.len() || same < new.len()).then_some(same)
    }

    fn old_cells(&self, row: usize) -> &[Cell] {
        self.old.frame.row(&self.old.rows()[row])
    }

    fn redraw(&mut self, row: usize, same: usize) {
        let cells = self.old_cells(row);
        let appends = same == cells.len() && self.is_behind && self.row == row;
        // Behind a cluster that terminals measure in different ways no column is known.
        let from = if appends { same } else { same.min(first_risky(cells)) };
        let is_risky = first_risky(cells) < cells.len();
        let old_width = self.old.frame.width(&self.old.rows()[row]);
        if !appends {
            self.go_to(row);
            self.go_to_cell(row, from);
        }
        self.write(row, from);
        let width = self.new.width(&self.new.rows[row]);
        if !appends && (old_width > width || is_risky) && width < self.old.columns {
            self.select(Style::PLAIN);
            self.out.push_str("\x1b[K");
        }
    }

    /// Draws a row below the last; the cursor is in that.
    fn append(&mut self, row: usize) {
        let before = row.checked_sub(1).map(|before| &self.new.rows[before]);
        let wraps = self.is_behind
            && before.is_some_and(|row| row.joint == Joint::Wraps && self.new.width(row) == self.old.columns)
            && !self.new.rows[row].cells.is_empty();
        if before.is_some() || !self.old.is_fresh {
            self.out.push_str(if wraps { "" } else { "\n" });
        }
        self.row = row;
        self.write(row, 0);
    }

    fn erase_below(&mut self, rows: usize) {
        self.select(Style::PLAIN);
        self.go_to(rows);
        self.out.push_str("\r\x1b[J");
    }

    fn go_to(&mut self, row: usize) {
        if row < self.row {
            let _ = write!(self.out, "\x1b[{}A", self.row - row);
        } else {
            self.out.extend(std::iter::repeat_n('\n', row - self.row));
        }
        self.is_behind &= row == self.row;
        self.row = row;
    }

    /// Puts the cursor before a cell of its row, new or old: they are the same up to there.
    fn go_to_cell(&mut self, row: usize, cell: usize) {
        let cells = &self.new.row(&self.new.rows[row])[..cell];
        let column = self.new.rows[row].indent + super::frame::width(cells);
        if column == 0 {
            self.out.push('\r');
        } else {
            let _ = write!(self.out, "\x1b[{}G", column + 1);
        }
        self.is_behind = false;
    }

    /// Puts the cursor behind the last cell of a row.
    fn go_behind(&mut self, row: usize) {
        self.go_to(row);
        if self.is_behind {
            return;
        }
        let cells = self.new.row(&self.new.rows[row]);
        let is_full = self.new.width(&self.new.rows[row]) >= self.old.columns;
        let last = if is_full { cells.len().saturating_sub(1) } else { cells.len() };
        let from = last.min(first_risky(cells));
        self.go_to_cell(row, from);
        self.write(row, from);
    }

    fn write(&mut self, row: usize, from: usize) {
        let new = self.new;
        for cell in &new.row(&new.rows[row])[from..] {
            self.select(cell.style);
            self.out.push_str(new.glyph(cell));
        }
        self.is_behind = true;
    }

    fn select(&mut self, style: Style) {
        if self.old.colour && style != self.style {
            Style::change(self.style, style, &mut self.out);
            self.style = style;
        }
    }
}

fn first_risky(cells: &[Cell]) -> usize {
    cells.iter().position(Cell::is_risky).unwrap_or(cells.len())
}
