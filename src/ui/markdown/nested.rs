//! Lines of code inside lists and quotes, and rows of tables.

use super::code::draw_line;
use super::guard;
use super::layout::Layout;
use super::style::Style;
use super::table::TableRow;

/// A block of code inside another block.
pub(super) struct Code {
    pub(super) at: usize,
    pub(super) info: String,
    pub(super) line: String,
    /// Where the pieces of the line come from: places in it and in the source.
    pub(super) places: Vec<(usize, usize)>,
    pub(super) number: usize,
}

impl Layout<'_> {
    pub(super) fn code_text(&mut self, text: &str, at: usize) {
        // Markers that close other kinds of text end here.
        let text = &text[..text.len().min(self.len.saturating_sub(at))];
        let mut at = self.base + at;
        for piece in text.split_inclusive('\n') {
            let Some(code) = &mut self.code else {
                return;
            };
            let is_frozen = at + piece.len() <= self.page.frozen && code.line.is_empty() && piece.ends_with('\n');
            if is_frozen && self.coloured.has(code.at, code.number) {
                code.number += 1;
            } else {
                code.places.push((code.line.len(), at));
                code.line.push_str(&guard::restored(piece));
                if piece.ends_with('\n') {
                    self.end_code_line();
                }
            }
            at += piece.len();
        }
    }

    pub(super) fn end_code_line(&mut self) {
        let Some(code) = &mut self.code else {
            return;
        };
        let end = self.base + self.len;
        let place = |index: usize| {
            let piece = code.places.iter().rev().find(|(start, _)| *start <= index);
            piece.map_or(end, |(start, at)| at + index - start)
        };
        let line = code.line.trim_end_matches('\n');
        let plain = [(line.len(), Style::PLAIN)];
        let is_complete = line.len() < code.line.len();
        let spans = if is_complete { self.coloured.line(code.at, &code.info, code.number, &code.line) } else { &plain };
        draw_line(&mut self.page, line, spans, place);
        code.line.clear();
        code.places.clear();
        code.number += 1;
    }

    pub(super) fn table_row(&mut self) -> Option<&mut TableRow> {
        self.table.as_mut().and_then(|table| table.rows.last_mut())
    }

    /// Cells without a column are dropped by the parser; they are shown in the last one.
    pub(super) fn end_table_row(&mut self, end: usize) {
        let behind = self.inline.behind.min(end);
        let surplus = self.text[behind..end.min(self.len).max(behind)].trim_end_matches([' ', '|', '\n']);
        let columns = self.table.as_ref().map_or(0, |table| table.alignments.len());
        let is_full = self.table_row().is_some_and(|row| row.cells.len() >= columns);
        if is_full && surplus.contains(char::is_alphanumeric) {
            let (surplus, base) = (surplus.to_owned(), self.base + behind);
            let mut cells = Vec::new();
            self.page.frame.shape(&surplus, Style::PLAIN, |index, _| base + index, &mut cells);
            if let Some(last) = self.table_row().and_then(|row| row.cells.last_mut()) {
                last.append(&mut cells);
            }
        }
        self.inline.behind = end;
    }
}
