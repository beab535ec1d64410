//! Blocks of code: one at the top level is taken line by line and never parsed again; one inside a list or a quote
//! comes from the parser, with what was coloured kept.

use super::frame::Cell;
use super::highlight::{Highlighter, Span};
use super::page::{Margin, Page};
use super::style::Style;
use super::wrap::Wrap;

pub(super) const MARGIN: Margin = Margin { style: Style::PLAIN, marker: None, rest: "  " };

/// An open block at the top level.
#[derive(Debug)]
pub(super) struct Fence {
    marker: char,
    len: usize,
    indent: usize,
    highlighter: Highlighter,
}

impl Fence {
    /// From the line that opens it.
    pub(super) fn open(line: &str) -> Self {
        let fence = line.trim_start_matches(' ');
        let marker = fence.chars().next().unwrap_or('`');
        let info = fence.trim_start_matches(marker);
        let highlighter = Highlighter::new(info.trim());
        Self { marker, len: fence.len() - info.len(), indent: line.len() - fence.len(), highlighter }
    }

    pub(super) fn is_closed_by(&self, line: &str) -> bool {
        let fence = line.trim_start_matches(' ');
        let rest = fence.trim_start_matches(self.marker);
        line.len() - fence.len() < 4 && fence.len() - rest.len() >= self.len && rest.trim().is_empty()
    }

    /// Whether a line that is not complete can become the one that closes it.
    pub(super) fn may_be_closed_by(&self, start: &str) -> bool {
        start.trim_start_matches(' ').trim_end_matches(' ').chars().all(|c| c == self.marker)
    }

    /// Draws one line, coloured when it is complete. `at` is its place in the source.
    pub(super) fn draw(&mut self, line: &str, at: usize, page: &mut Page) {
        let indent = line.bytes().take(self.indent).take_while(|byte| *byte == b' ').count();
        let (line, at) = (&line[indent..], at + indent);
        let spans = if line.ends_with('\n') { self.highlighter.line(line) } else { vec![(line.len(), Style::PLAIN)] };
        draw_line(page, line.trim_end_matches('\n'), &spans, |index| at + index);
    }
}

/// Draws one line of code without its end.
pub(super) fn draw_line(page: &mut Page, line: &str, spans: &[Span], place: impl Fn(usize) -> usize) {
    let mut cells: Vec<Cell> = Vec::with_capacity(line.len());
    let mut start = 0;
    for (len, style) in spans {
        let end = (start + len).min(line.len());
        page.frame.shape(&line[start..end], *style, |index, _| place(start + index), &mut cells);
        start = end;
    }
    page.line(&cells, place(line.len()), Wrap::Cells);
}

/// The coloured lines of the blocks that are parsed again with every push.
#[derive(Debug, Default)]
pub(super) struct Coloured(Vec<Block>);

#[derive(Debug)]
struct Block {
    at: usize,
    highlighter: Highlighter,
    lines: Vec<(String, Vec<Span>)>,
}

impl Coloured {
    /// The colours of a line, given with its end, of the block at a place of the source.
    pub(super) fn line(&mut self, at: usize, info: &str, number: usize, line: &str) -> &[Span] {
        let known = self.0.iter().position(|block| block.at == at);
        let index = known.unwrap_or_else(|| {
            self.0.push(Block { at, highlighter: Highlighter::new(info), lines: Vec::new() });
            self.0.len() - 1
        });
        let block = &mut self.0[index];
        if block.lines.get(number).is_some_and(|(known, _)| known != line) {
            // Not the lines that were there: what follows may have another state.
            block.highlighter = Highlighter::new(info);
            let before = std::mem::take(&mut block.lines);
            block.lines = before.into_iter().take(number).map(|(text, _)| block.highlighter.coloured(text)).collect();
        }
        if block.lines.len() <= number {
            block.lines.push(block.highlighter.coloured(line.to_owned()));
        }
        block.lines.get(number).map_or(&[], |(_, spans)| spans.as_slice())
    }

    /// Whether a line of the block at a place was coloured already.
    pub(super) fn has(&self, at: usize, number: usize) -> bool {
        self.0.iter().any(|block| block.at == at && number < block.lines.len())
    }

    /// Forgets the blocks that are drawn for good.
    pub(super) fn forget_before(&mut self, at: usize) {
        self.0.retain(|block| block.at >= at);
    }
}

impl Highlighter {
    fn coloured(&mut self, line: String) -> (String, Vec<Span>) {
        let spans = self.line(&line);
        (line, spans)
    }
}
