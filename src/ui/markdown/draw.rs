//! One drawing: what is settled goes, what could scroll away is frozen.

use super::Markdown;
use super::code::{self, Fence};
use super::frame::{Frame, Joint};
use super::layout::{Before, Layout};
use super::page::{Page, Separator};
use super::prepare::{self, Stage};

impl Markdown {
    /// Puts all that is not settled onto a frame. How many rows are settled by now.
    pub(super) fn lay_out(&mut self, frame: &mut Frame, stage: Stage) -> usize {
        let mut settled = 0;
        loop {
            if let Some(fence) = self.fence.take() {
                settled = self.draw_code(fence, frame, settled);
                if self.fence.is_some() {
                    return settled;
                }
            }
            let prepared = prepare::prepare(&self.source, stage);
            let page = self.page(frame);
            let (locked, coloured) = (self.locked.as_ref(), &mut self.coloured);
            let Some(cut) = Layout::new(page, &prepared, self.base, self.before, locked, coloured).run() else {
                return settled;
            };
            settled = cut.rows;
            self.before = cut.before;
            self.settle(cut.at);
            if !cut.is_fence {
                return settled;
            }
            let opening = prepare::first_line(&self.source);
            self.fence = Some(Fence::open(opening));
            self.settle((opening.len() + 1).min(self.source.len()));
        }
    }

    /// Draws the lines of a block of code. How many rows are settled by now.
    fn draw_code(&mut self, mut fence: Fence, frame: &mut Frame, mut settled: usize) -> usize {
        loop {
            let end = self.source.find('\n');
            let line = end.map_or(&self.source[..], |end| &self.source[..=end]);
            let len = line.len();
            if end.is_some() && fence.is_closed_by(line) {
                self.before = Before { is_apart: self.has_above || !frame.rows.is_empty(), number: None };
                self.settle(len);
                return settled;
            }
            let mut page = self.page(frame);
            page.margins.push(code::MARGIN);
            page.separator = self.before.is_apart.then(|| Separator { depth: 0, at: self.base.saturating_sub(1) });
            if end.is_some() || !fence.may_be_closed_by(line) {
                fence.draw(line, self.base, &mut page);
            }
            if end.is_none() {
                self.fence = Some(fence);
                return settled;
            }
            self.before.is_apart = page.separator.is_some();
            self.settle(len);
            settled = frame.rows.len();
        }
    }

    fn page<'a>(&self, frame: &'a mut Frame) -> Page<'a> {
        let (columns, frozen, has_above) = (self.columns, self.frozen, self.has_above);
        Page { frame, columns, frozen, has_above, margins: Vec::new(), separator: None }
    }

    /// Forgets the source up to a place in it.
    fn settle(&mut self, at: usize) {
        self.source.drain(..at);
        self.base += at;
        self.coloured.forget_before(self.base);
    }

    /// Freezes the rows that more text could push off the screen.
    pub(super) fn scroll(&mut self) {
        let count = self.frame.rows.len();
        let mut first = count.saturating_sub(self.rows.saturating_sub(1).max(1)).max(self.live);
        while first > self.live && first < count && self.frame.rows[first - 1].joint == Joint::Group {
            first += 1;
        }
        self.freeze(first);
    }

    /// Leaves the rows before one as they are.
    pub(super) fn freeze(&mut self, first: usize) {
        for row in &self.frame.rows[self.live..first] {
            self.frozen = self.frozen.max(row.end);
        }
        let table = self.frame.tables.iter().find(|table| (table.rows.start + 1..=table.rows.end).contains(&first));
        if let Some(table) = table {
            self.locked = Some(table.clone());
        }
        self.live = first;
    }
}
