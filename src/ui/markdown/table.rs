//! Tables: columns as wide as their widest cell, narrower where the window ends, and lines of `header: value` where
//! no columns fit.

use pulldown_cmark::Alignment;

use super::frame::{Cell, Columns, Joint, width};
use super::page::{Page, Separator, lacking};
use super::style::Style;
use super::wrap::{Wrap, wrap};

#[derive(Debug)]
pub(super) struct Table {
    pub(super) at: usize,
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<TableRow>,
}

/// The first row of a table is its header.
#[derive(Debug)]
pub(super) struct TableRow {
    pub(super) at: usize,
    pub(super) cells: Vec<Vec<Cell>>,
}

/// Columns between two columns.
const GAP: usize = 2;
/// In fewer columns a column cannot be read.
const NARROWEST: usize = 4;

impl Table {
    pub(super) fn draw(mut self, page: &mut Page, locked: Option<&Columns>) {
        let count = self.alignments.len();
        self.rows.iter_mut().for_each(|row| row.cells.resize(count, Vec::new()));
        let gaps = GAP * count.saturating_sub(1);
        let room = page.room();
        if room < NARROWEST * count + gaps {
            return self.draw_records(page);
        }
        let widths = match locked.filter(|columns| columns.table == self.at && columns.widths.len() == count) {
            Some(columns) => columns.widths.clone(),
            None => self.widths(room - gaps),
        };
        let first = page.frame.rows.len();
        for (number, row) in self.rows.iter().enumerate() {
            self.draw_row(row, &widths, number == 0, page);
        }
        page.frame.tables.push(Columns { table: self.at, widths, rows: first..page.frame.rows.len() });
    }

    fn widths(&self, room: usize) -> Vec<usize> {
        let widest = |column: usize| self.rows.iter().map(|row| claim(&row.cells[column])).max().unwrap_or(0).max(1);
        let natural: Vec<usize> = (0..self.alignments.len()).map(widest).collect();
        // The widest give way until all fit.
        let capped = |cap: usize| natural.iter().map(move |width| *width.min(&cap));
        let cap = (1..=room).rev().find(|cap| capped(*cap).sum::<usize>() <= room).unwrap_or(1);
        let mut widths: Vec<usize> = capped(cap).collect();
        let mut spare = room.saturating_sub(widths.iter().sum());
        for (width, natural) in widths.iter_mut().zip(&natural) {
            if *width < *natural && spare > 0 {
                *width += 1;
                spare -= 1;
            }
        }
        widths
    }

    fn draw_row(&self, row: &TableRow, widths: &[usize], is_header: bool, page: &mut Page) {
        let is_empty = row.cells.iter().all(Vec::is_empty);
        let cells: Vec<Vec<Cell>> = row.cells.iter().map(|cells| behind(cells, page.frozen)).collect();
        if if is_empty { row.at < page.frozen } else { cells.iter().all(Vec::is_empty) } {
            return;
        }
        let wrapped: Vec<_> =
            cells.iter().zip(widths).map(|(cells, width)| wrap(cells, *width, *width, Wrap::Words)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        let blank = page.added(" ", Style::PLAIN)[0];
        for line in 0..height {
            let mut out = Vec::new();
            let mut missing = 0;
            for (column, width) in widths.iter().enumerate() {
                let part = wrapped[column].get(line).map_or(&[][..], |range| &cells[column][range.clone()]);
                let lacking = lacking(part, *width);
                let before = match self.alignments[column] {
                    Alignment::Right => lacking,
                    Alignment::Center => lacking / 2,
                    Alignment::Left | Alignment::None => 0,
                };
                missing += before;
                if !part.is_empty() {
                    out.extend(std::iter::repeat_n(blank, missing));
                    out.extend_from_slice(part);
                    missing = 0;
                }
                missing += lacking - before + GAP;
            }
            let joint = if is_header || line + 1 < height { Joint::Group } else { Joint::Free };
            page.row(&out, row.at, joint);
        }
        if is_header {
            let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            let rule = page.added(&rules.join("  "), Style::DIM);
            page.row(&rule, row.at, Joint::Free);
        }
    }

    fn draw_records(&self, page: &mut Page) {
        let Some((header, records)) = self.rows.split_first() else {
            return;
        };
        if records.is_empty() {
            header.cells.iter().for_each(|cells| page.line(cells, header.at, Wrap::Words));
        }
        for (number, record) in records.iter().enumerate() {
            if number > 0 {
                page.separator = Some(Separator { depth: page.margins.len(), at: record.at.saturating_sub(1) });
            }
            for (name, value) in header.cells.iter().zip(&record.cells).filter(|(_, value)| !value.is_empty()) {
                let mut line = Vec::new();
                if value[0].at >= page.frozen {
                    line.extend(name.iter().map(|cell| cell.added()));
                    line.append(&mut page.added(": ", Style::PLAIN));
                }
                line.extend_from_slice(value);
                page.line(&line, record.at, Wrap::Words);
            }
        }
    }
}

fn behind(cells: &[Cell], frozen: usize) -> Vec<Cell> {
    cells.iter().filter(|cell| cell.at >= frozen).copied().collect()
}

/// The columns that hold all cells on any terminal.
fn claim(cells: &[Cell]) -> usize {
    cells.iter().map(Cell::claim).sum::<usize>().max(width(cells))
}
