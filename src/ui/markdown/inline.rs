//! Text inside a block: its looks, links and breaks.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Tag, TagEnd};

use super::frame::Cell;
use super::layout::{Kind, Layout};
use super::style::Style;
use super::wrap::Wrap;

/// The line that is being made.
#[derive(Debug, Default)]
pub(super) struct Inline {
    pub(super) line: Vec<Cell>,
    pub(super) is_open: bool,
    /// The end of what was drawn last, in the text.
    pub(super) behind: usize,
    styles: Vec<Style>,
    links: Vec<LinkType>,
    at: usize,
}

impl Inline {
    pub(super) fn begin(&mut self, style: Style) {
        self.line.clear();
        self.is_open = true;
        self.styles.clear();
        self.styles.push(style);
    }

    fn push_style(&mut self, style: Style) {
        let style = self.style().with(style);
        self.styles.push(style);
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }
}

impl Layout<'_> {
    pub(super) fn inline_event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Text(text) | Event::InlineHtml(text) => self.put(&text, range, Style::PLAIN),
            Event::Code(code) => self.put(&code, range, Style::CODE),
            Event::Html(html) => {
                let line = html.trim_end_matches('\n');
                self.put(line, range.start..range.start + line.len(), Style::PLAIN);
                self.end_line();
                self.inline.behind = range.end;
            }
            Event::SoftBreak | Event::HardBreak => self.end_line(),
            _ => {}
        }
    }

    pub(super) fn start_inline(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        self.open(range.start);
        let style = match tag {
            Tag::Strong => Style::BOLD,
            Tag::Emphasis => Style::ITALIC,
            Tag::Strikethrough => Style::STRUCK,
            Tag::Link { link_type, .. } | Tag::Image { link_type, .. } => {
                self.inline.links.push(*link_type);
                self.inline.behind = range.start + 1;
                Style::UNDERLINED
            }
            _ => Style::PLAIN,
        };
        self.inline.push_style(style);
    }

    pub(super) fn end_inline(&mut self, tag: TagEnd, range: Range<usize>) {
        self.inline.styles.pop();
        if matches!(tag, TagEnd::Link | TagEnd::Image) && self.inline.links.pop() == Some(LinkType::Inline) {
            self.put_address(&range);
        }
        self.inline.behind = range.end.min(self.len);
    }

    /// A link's address, and what else stands in its brackets, unless its text says the same.
    fn put_address(&mut self, link: &Range<usize>) {
        let behind = self.inline.behind.min(link.end);
        let Some(bracket) = self.text[behind..link.end].find("](").map(|found| behind + found) else {
            return;
        };
        let inside = bracket + 2..link.end - 1;
        let address = &self.text[inside.clone()];
        if address.is_empty() || self.text[..bracket].ends_with(address) && bracket - address.len() <= link.start + 2 {
            return;
        }
        let before = self.base + bracket;
        self.page.frame.shape(" (", self.inline.style().with(Style::DIM), |_, _| before, &mut self.inline.line);
        self.put(address, inside, Style::DIM);
        if link.end <= self.len {
            let after = self.base + link.end - 1;
            self.page.frame.shape(")", self.inline.style().with(Style::DIM), |_, _| after, &mut self.inline.line);
        }
    }

    /// Text within an item begins without a paragraph where the list is tight.
    fn open(&mut self, at: usize) {
        if !self.inline.is_open {
            self.start_block(Kind::Paragraph, at);
            self.inline.begin(Style::PLAIN);
        }
    }

    pub(super) fn end_line(&mut self) {
        if !self.inline.line.is_empty() {
            self.page.line(&self.inline.line, self.base + self.inline.at, Wrap::Words);
            self.inline.line.clear();
        }
    }

    /// Adds text that comes from a range of the source, if not always byte for byte.
    fn put(&mut self, text: &str, range: Range<usize>, style: Style) {
        self.open(range.start);
        let end = range.end.min(self.len);
        if range.start >= end {
            return;
        }
        self.inline.at = range.start;
        self.inline.behind = end;
        let style = self.inline.style().with(style);
        let (base, line, frame) = (self.base, &mut self.inline.line, &mut self.page.frame);
        if text.len() == range.len() {
            let known = known(text, (self.page.frozen).saturating_sub(base + range.start));
            let text = &text[..text.len().min(end - range.start)];
            let text = text.get(known..).unwrap_or_default();
            frame.shape(text, style, |index, _| base + range.start + known + index, line);
            return;
        }
        // An entity, or code: each cluster is searched for behind the one before.
        let source = &self.text[range.start..end];
        let mut next = 0;
        let place = |_: usize, cluster: &str| {
            let is_blank = cluster == " ";
            let found = source[next..].find(|c: char| is_blank && c == '\n' || cluster.starts_with(c));
            let at = next + found.unwrap_or(0);
            if found.is_some() {
                next = (at + cluster.len()).min(source.len());
                while !source.is_char_boundary(next) {
                    next -= 1;
                }
            }
            base + range.start + at
        };
        frame.shape(text, style, place, line);
    }
}

/// How much of a text need not be looked at again: all before the last cluster that is frozen.
fn known(text: &str, frozen: usize) -> usize {
    let mut at = frozen.saturating_sub(1).min(text.len().saturating_sub(1));
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
