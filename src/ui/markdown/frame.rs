//! What the live part of the screen shows: rows of cells, each cell one grapheme cluster that knows its place in the source.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::guard;
use super::style::Style;

/// One grapheme cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Where in the whole source it comes from; [`NOWHERE`] for what the layout adds.
    pub(super) at: usize,
    start: u32,
    len: u32,
    /// Columns that a terminal which knows clusters gives it.
    pub(super) width: u8,
    /// Columns that a terminal which goes by code points gives it.
    summed: u8,
    pub(super) class: Class,
    pub(super) style: Style,
}

/// The place of bars, padding and rules.
pub(super) const NOWHERE: usize = usize::MAX;

/// What a cell is to the search for a place to break a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Space,
    /// A row may break on either side: ideographs, kana, emoji.
    Wide,
    /// Wide, but never first in a row.
    Closing,
    Other,
}

impl Cell {
    /// Columns to reserve, so that no kind of terminal wraps the row by itself.
    pub(super) fn claim(&self) -> usize {
        usize::from(self.width.max(self.summed))
    }

    /// The same, as something that the layout adds.
    pub(super) fn added(self) -> Self {
        Self { at: NOWHERE, ..self }
    }

    /// Whether terminals disagree about the columns behind it.
    pub(super) fn is_risky(&self) -> bool {
        self.width != self.summed
    }
}

/// One row of the screen.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cells: Range<usize>,
    /// Columns on the left that hold text from before a resize.
    pub(super) indent: usize,
    /// The row shows nothing of the source at or behind this place.
    pub(super) end: usize,
    pub(super) joint: Joint,
}

/// How a row hangs together with the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    Free,
    /// Both are of one row of a table: their cells are not in the order of the source.
    Group,
    /// One line of code, continued by the terminal's own wrapping, so that it is copied as one line.
    Wraps,
}

/// A table's columns, kept in case it has to go on without its first rows.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// The table's place in the source.
    pub(super) table: usize,
    pub(super) widths: Vec<usize>,
    pub(super) rows: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Frame {
    text: String,
    pub(super) cells: Vec<Cell>,
    pub(super) rows: Vec<Row>,
    pub(super) tables: Vec<Columns>,
}

impl Frame {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.cells.clear();
        self.rows.clear();
        self.tables.clear();
    }

    pub(super) fn glyph(&self, cell: &Cell) -> &str {
        &self.text[cell.start as usize..][..cell.len as usize]
    }

    pub(super) fn row(&self, row: &Row) -> &[Cell] {
        &self.cells[row.cells.clone()]
    }

    /// The columns a row takes.
    pub(super) fn width(&self, row: &Row) -> usize {
        row.indent + width(self.row(row))
    }

    /// A row that holds nothing that could be drawn anew.
    pub(super) fn push_opaque(&mut self, columns: usize) {
        let here = self.cells.len();
        self.rows.push(Row { cells: here..here, indent: columns, end: 0, joint: Joint::Free });
    }

    /// Cuts text into cells. `place` says where in the source the byte of the text lies that a cluster starts with.
    pub(super) fn shape(
        &mut self,
        text: &str,
        style: Style,
        mut place: impl FnMut(usize, &str) -> usize,
        cells: &mut Vec<Cell>,
    ) {
        if text.is_ascii() {
            for at in 0..text.len() {
                let cluster = &text[at..=at];
                self.shape_one(cluster, style, place(at, cluster), cells);
            }
        } else {
            for (at, cluster) in text.grapheme_indices(true) {
                self.shape_one(cluster, style, place(at, cluster), cells);
            }
        }
    }

    fn shape_one(&mut self, cluster: &str, style: Style, at: usize, cells: &mut Vec<Cell>) {
        let start = self.text.len() as u32;
        let (width, summed, class) = match cluster.as_bytes() {
            [byte @ (b' ' | b'\t' | b'\n')] => {
                self.text.push(' ');
                let cell = Cell { at, start, len: 1, width: 1, summed: 1, class: Class::Space, style };
                let blanks = if *byte == b'\t' { 4 } else { 1 };
                cells.extend(std::iter::repeat_n(cell, blanks));
                return;
            }
            [byte] => {
                self.text.push(char::from(guard::restore(*byte)));
                (1, 1, Class::Other)
            }
            _ => {
                self.text.extend(cluster.chars().map(guard::restored_char));
                let cluster = &self.text[start as usize..];
                let width = cluster.width().min(2) as u8;
                let summed = cluster.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>().min(200) as u8;
                (width, summed, class(cluster, width))
            }
        };
        let len = self.text.len() as u32 - start;
        // What takes no column is drawn with the cell before, as no cursor can be put between them, or not at all.
        if summed == 0 {
            if let Some(before) = cells.last_mut().filter(|cell| cell.start + cell.len == start) {
                before.len += len;
            }
            return;
        }
        cells.push(Cell { at, start, len, width, summed, class, style });
    }
}

fn class(cluster: &str, width: u8) -> Class {
    const CLOSING: &str = "、。，．！？；：）］｝」』】》〉…";
    match cluster.chars().next() {
        Some(first) if CLOSING.contains(first) => Class::Closing,
        _ if width == 2 => Class::Wide,
        _ => Class::Other,
    }
}

pub(super) fn width(cells: &[Cell]) -> usize {
    cells.iter().map(|cell| usize::from(cell.width)).sum()
}
