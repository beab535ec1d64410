//! Where blocks begin and end: blank rows between them, items and their markers, rules, and where the text can be cut.

use pulldown_cmark::{CodeBlockKind, HeadingLevel, Tag};

use super::frame::{Cell, Joint};
use super::held;
use super::layout::{Before, Cut, Kind, Layout};
use super::page::{Margin, Marker, Separator};
use super::prepare::first_line;
use super::style::Style;
use super::wrap::Wrap;

impl Layout<'_> {
    /// A block begins in the innermost quote or item, or at the top.
    pub(super) fn start_block(&mut self, kind: Kind, at: usize) {
        self.end_leaf();
        let is_top = self.last.len() == 1;
        let has_gap = self.has_gap(at);
        let last = self.last.last_mut().and_then(|last| last.replace(kind));
        let is_apart = match last {
            None => is_top && std::mem::take(&mut self.before.is_apart),
            Some(Kind::Paragraph) if is_top && kind == Kind::List => has_gap,
            Some(_) => is_top || has_gap,
        };
        if is_apart {
            self.separate(at);
        }
        if is_top && last.is_some() && held::is_settled(&self.text[at..self.len.max(at)]) {
            self.cut = Some(self.cut_here(at, false));
        }
    }

    pub(super) fn start_leaf(&mut self, kind: Kind, at: usize, style: Style) {
        self.start_block(kind, at);
        self.inline.begin(style);
    }

    pub(super) fn end_leaf(&mut self) {
        if std::mem::take(&mut self.inline.is_open) {
            self.end_line();
        }
    }

    pub(super) fn separate(&mut self, at: usize) {
        let at = (self.base + at).saturating_sub(1);
        self.page.separator = Some(Separator { depth: self.page.margins.len(), at });
    }

    pub(super) fn cut_here(&self, at: usize, is_fence: bool) -> Cut {
        let number = match &self.lists[..] {
            [list] => list.next,
            _ => None,
        };
        let line_start = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let is_apart = self.page.separator.is_some() && !self.page.is_blank();
        Cut { at: line_start, rows: self.page.frame.rows.len(), before: Before { is_apart, number }, is_fence }
    }

    /// Whether there is a blank line between what was drawn last and this place.
    pub(super) fn has_gap(&self, at: usize) -> bool {
        let between = &self.text[self.inline.behind.min(at)..at];
        let lines = between.matches('\n').count();
        between
            .split('\n')
            .skip(1)
            .take(lines.saturating_sub(1))
            .any(|line| line.trim_matches([' ', '\t', '>']).is_empty())
    }

    pub(super) fn start_item(&mut self, at: usize) {
        self.end_leaf();
        let has_gap = self.has_gap(at);
        let is_first = self.lists.last_mut().is_none_or(|list| !std::mem::replace(&mut list.has_item, true));
        if !is_first {
            if has_gap {
                self.separate(at);
            }
            if self.last.len() == 1 && held::is_settled(&self.text[at..self.len.max(at)]) {
                self.cut = Some(self.cut_here(at, false));
            }
        }
        let text = match self.lists.last_mut().and_then(|list| list.next.as_mut()) {
            Some(number) => {
                let digits = |c: char| c.is_ascii_digit();
                let delimiter = if self.text[at..].trim_start_matches(digits).starts_with(')') { ')' } else { '.' };
                *number += 1;
                format!("{}{delimiter} ", *number - 1)
            }
            None => "• ".to_owned(),
        };
        let marker = Marker { text, at: self.base + at, is_shown: false };
        self.page.margins.push(Margin { style: Style::PLAIN, marker: Some(marker), rest: "" });
        self.last.push(None);
    }

    pub(super) fn end_item(&mut self) {
        self.end_leaf();
        if let Some(Marker { at, is_shown: false, .. }) =
            self.page.margins.last().and_then(|margin| margin.marker.as_ref())
            && *at >= self.page.frozen
        {
            let at = *at;
            self.page.row(&[], at, Joint::Free);
        }
        self.page.margins.pop();
        self.last.pop();
    }

    pub(super) fn task(&mut self, is_done: bool) {
        let task = if is_done { "[x] " } else { "[ ] " };
        if let Some(marker) = self.page.margins.last_mut().and_then(|margin| margin.marker.as_mut()) {
            if marker.text == "• " {
                marker.text.clear();
            }
            marker.text.push_str(task);
        }
    }

    pub(super) fn rule(&mut self, at: usize) {
        let place = self.base + at;
        let mut cells: Vec<Cell> = Vec::new();
        let rule = "─".repeat(self.page.room());
        self.page.frame.shape(&rule, Style::DIM, |_, _| place, &mut cells);
        self.page.line(&cells, place, Wrap::Cells);
        self.inline.behind = at + 1;
    }

    pub(super) fn is_ruled(&self, level: HeadingLevel, at: usize) -> bool {
        level == HeadingLevel::H2 && !self.text[at..].trim_start().starts_with('#')
    }

    /// At the top level, and its line is complete: it cannot turn out to be text any more.
    pub(super) fn opens_fence(&self, tag: &Tag<'_>, at: usize) -> bool {
        let is_fence = matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_)));
        is_fence && self.last.len() == 1 && first_line(&self.text[at..]).len() + at < self.len
    }
}
