//! Puts lines onto a frame: bars and bullets in front, blank rows between, breaks where the window ends, and nothing
//! of what is frozen.

use std::ops::Range;

use super::frame::{Cell, Class, Frame, Joint, NOWHERE, Row, width};
use super::style::Style;
use super::wrap::{Wrap, wrap};

/// What stands in front of each row of a quote, an item or code.
#[derive(Debug)]
pub(super) struct Margin {
    pub(super) style: Style,
    /// A bullet or a number: for the first row only, the others get blanks.
    pub(super) marker: Option<Marker>,
    pub(super) rest: &'static str,
}

#[derive(Debug)]
pub(super) struct Marker {
    pub(super) text: String,
    pub(super) at: usize,
    pub(super) is_shown: bool,
}

impl Margin {
    fn width(&self) -> usize {
        self.marker.as_ref().map_or(self.rest.chars().count(), |marker| marker.text.chars().count())
    }
}

/// A blank row that comes before the next one, if there is a next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Separator {
    /// How many of the margins it shows.
    pub(super) depth: usize,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) frame: &'a mut Frame,
    pub(super) columns: usize,
    /// What comes from before this place is on the screen for good.
    pub(super) frozen: usize,
    /// There are rows above the frame.
    pub(super) has_above: bool,
    pub(super) margins: Vec<Margin>,
    pub(super) separator: Option<Separator>,
}

/// Columns that margins leave to the text, however deep it is nested.
const LEAST_ROOM: usize = 6;

impl Page<'_> {
    /// Nothing is drawn yet that a blank row would stand apart from.
    pub(super) fn is_blank(&self) -> bool {
        !self.has_above && self.frame.rows.is_empty()
    }

    /// The columns that the margins leave.
    pub(super) fn room(&self) -> usize {
        let margins = self.shown_margins(self.margins.len());
        self.columns - self.margins[margins].iter().map(Margin::width).sum::<usize>()
    }

    /// A line of text, in as many rows as it takes. `at` is the place of a line without cells.
    pub(super) fn line(&mut self, cells: &[Cell], at: usize, how: Wrap) {
        let kept = cells.iter().position(|cell| cell.at >= self.frozen).unwrap_or(cells.len());
        let (is_cut, cells) = (kept > 0, &cells[kept..]);
        if cells.is_empty() && (is_cut || at < self.frozen) {
            return;
        }
        // Only what a resize interrupted goes on in the row where it was.
        let resumes = is_cut && matches!(&self.frame.rows[..], [row] if row.indent > 0 && row.cells.is_empty());
        let room = self.room();
        let first = if resumes { self.columns.saturating_sub(self.frame.width(&self.frame.rows[0])) } else { room };
        let cells = if is_cut && !resumes && how == Wrap::Words { trim_start(cells) } else { cells };
        // The terminal wraps code into the first column, so only code without bars and bullets can be left to it.
        let by_terminal = how == Wrap::Cells && self.margins.len() == 1;
        let rest = if by_terminal { self.columns } else { room };
        let rows = wrap(cells, first, rest, how);
        let last = rows.len() - 1;
        for (number, range) in rows.into_iter().enumerate() {
            let joint = if by_terminal && number < last { Joint::Wraps } else { Joint::Free };
            let cells = &cells[range];
            if number == 0 && resumes {
                self.frame.cells.extend_from_slice(cells);
                self.end_row(0, joint, at);
            } else if by_terminal && (number > 0 || is_cut) {
                self.bare_row(cells, at, joint);
            } else {
                self.row(cells, at, joint);
            }
        }
    }

    /// One row that fits.
    pub(super) fn row(&mut self, cells: &[Cell], at: usize, joint: Joint) {
        if let Some(separator) = self.separator.take()
            && separator.at >= self.frozen
            && !self.is_blank()
        {
            let start = self.frame.cells.len();
            self.put_margins(separator.depth);
            self.trim(start);
            self.push_row(start, separator.at, Joint::Free);
        }
        let start = self.frame.cells.len();
        self.put_margins(self.margins.len());
        self.frame.cells.extend_from_slice(cells);
        if cells.is_empty() {
            self.trim(start);
        }
        self.push_row(start, at, joint);
    }

    /// Takes blanks off the end of an empty row.
    fn trim(&mut self, start: usize) {
        while self.frame.cells.len() > start && self.frame.cells.last().is_some_and(|cell| cell.class == Class::Space) {
            self.frame.cells.pop();
        }
    }

    fn bare_row(&mut self, cells: &[Cell], at: usize, joint: Joint) {
        let start = self.frame.cells.len();
        self.frame.cells.extend_from_slice(cells);
        self.push_row(start, at, joint);
    }

    fn push_row(&mut self, start: usize, at: usize, joint: Joint) {
        self.frame.rows.push(Row { cells: start..start, indent: 0, end: 0, joint });
        self.end_row(self.frame.rows.len() - 1, joint, at);
    }

    /// Gives a row all cells from its first to the last there is.
    fn end_row(&mut self, row: usize, joint: Joint, at: usize) {
        let start = self.frame.rows[row].cells.start;
        let last = self.frame.cells[start..].iter().map(|cell| cell.at).filter(|at| *at != NOWHERE).max();
        let end = last.unwrap_or(at) + 1;
        self.frame.rows[row] =
            Row { cells: start..self.frame.cells.len(), joint, end, indent: self.frame.rows[row].indent };
    }

    /// The margins that are drawn: in a narrow window the outer ones go.
    fn shown_margins(&self, depth: usize) -> Range<usize> {
        let mut room = self.columns.saturating_sub(LEAST_ROOM);
        let fitting = self.margins[..depth].iter().rev().take_while(|margin| {
            let fits = margin.width() <= room;
            room = room.saturating_sub(margin.width());
            fits
        });
        depth - fitting.count()..depth
    }

    fn put_margins(&mut self, depth: usize) {
        for index in self.shown_margins(depth) {
            let margin = &mut self.margins[index];
            let mut cells = Vec::new();
            let blanks = margin.width();
            match &mut margin.marker {
                Some(marker) if !marker.is_shown && marker.at >= self.frozen => {
                    marker.is_shown = true;
                    self.frame.shape(&marker.text, margin.style, |_, _| marker.at, &mut cells);
                }
                Some(_) => self.frame.shape(&" ".repeat(blanks), Style::PLAIN, |_, _| NOWHERE, &mut cells),
                None => self.frame.shape(margin.rest, margin.style, |_, _| NOWHERE, &mut cells),
            }
            self.frame.cells.append(&mut cells);
        }
    }

    /// Cells that the layout adds.
    pub(super) fn added(&mut self, text: &str, style: Style) -> Vec<Cell> {
        let mut cells = Vec::new();
        self.frame.shape(text, style, |_, _| NOWHERE, &mut cells);
        cells
    }
}

fn trim_start(cells: &[Cell]) -> &[Cell] {
    let blanks = cells.iter().take_while(|cell| cell.class == Class::Space).count();
    &cells[blanks..]
}

/// How many columns a row of cells has to be padded with, to be `columns` wide.
pub(super) fn lacking(cells: &[Cell], columns: usize) -> usize {
    columns.saturating_sub(width(cells))
}
