//! Walks through what the parser says about the open end of an answer and puts it onto a page: blocks in `blocks.rs`,
//! the insides of code and tables in `nested.rs`, text in `inline.rs`.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::code::{self, Coloured};
use super::frame::Columns;
use super::guard;
use super::inline::Inline;
use super::nested::Code;
use super::page::{Margin, Page};
use super::prepare::Prepared;
use super::style::Style;
use super::table::{Table, TableRow};

/// What is known about the text before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// A blank row comes before the first block.
    pub(super) is_apart: bool,
    /// The first item's number, when the text begins within a list.
    pub(super) number: Option<u64>,
}

/// Where the text can be cut: what is drawn before stays as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// A place in the text, at the start of a line.
    pub(super) at: usize,
    pub(super) rows: usize,
    pub(super) before: Before,
    /// A fence opens here.
    pub(super) is_fence: bool,
}

pub(super) struct Layout<'a> {
    pub(super) page: Page<'a>,
    pub(super) text: &'a str,
    /// Nothing behind this is shown.
    pub(super) len: usize,
    /// The place of the text in the whole source.
    pub(super) base: usize,
    pub(super) before: Before,
    pub(super) locked: Option<&'a Columns>,
    pub(super) coloured: &'a mut Coloured,
    pub(super) inline: Inline,
    pub(super) lists: Vec<List>,
    /// The last block of each block that holds others, outermost first: the text, quotes, items.
    pub(super) last: Vec<Option<Kind>>,
    pub(super) table: Option<Table>,
    pub(super) code: Option<Code>,
    pub(super) cut: Option<Cut>,
}

pub(super) struct List {
    /// The next item's number.
    pub(super) next: Option<u64>,
    pub(super) has_item: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Paragraph,
    List,
    Other,
}

impl<'a> Layout<'a> {
    pub(super) fn new(
        page: Page<'a>,
        prepared: &'a Prepared,
        base: usize,
        before: Before,
        locked: Option<&'a Columns>,
        coloured: &'a mut Coloured,
    ) -> Self {
        Self {
            page,
            text: &prepared.text,
            len: prepared.len,
            base,
            before,
            locked,
            coloured,
            inline: Inline::default(),
            lists: Vec::new(),
            last: vec![None],
            table: None,
            code: None,
            cut: None,
        }
    }

    /// Draws all of the text, or up to a fence at the top level. The last place where the text can be cut.
    pub(super) fn run(mut self) -> Option<Cut> {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        for (event, range) in Parser::new_ext(self.text, options).into_offset_iter() {
            match event {
                Event::Start(tag) => {
                    if self.opens_fence(&tag, range.start) {
                        self.start_block(Kind::Other, range.start);
                        return Some(self.cut_here(range.start, true));
                    }
                    self.start(tag, range);
                }
                Event::End(tag) => self.end(tag, range),
                Event::Text(text) if self.code.is_some() => self.code_text(&text, range.start),
                Event::Rule => {
                    self.start_block(Kind::Other, range.start);
                    self.rule(range.start);
                }
                Event::TaskListMarker(is_done) => self.task(is_done),
                event => self.inline_event(event, range),
            }
        }
        self.cut
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        let at = range.start;
        match tag {
            Tag::Paragraph => self.start_leaf(Kind::Paragraph, at, Style::PLAIN),
            Tag::Heading { level, .. } => {
                let is_title = level == HeadingLevel::H1;
                let style = if is_title { Style::BOLD.with(Style::UNDERLINED) } else { Style::BOLD };
                // A row of dashes under a paragraph is meant as a rule.
                let style = if self.is_ruled(level, at) { Style::PLAIN } else { style };
                self.start_leaf(Kind::Other, at, style);
            }
            Tag::HtmlBlock => self.start_leaf(Kind::Other, at, Style::PLAIN),
            Tag::BlockQuote(_) => {
                self.start_block(Kind::Other, at);
                self.page.margins.push(Margin { style: Style::DIM, marker: None, rest: "│ " });
                self.last.push(None);
            }
            Tag::List(first) => {
                self.start_block(Kind::List, at);
                let is_top = self.last.len() == 1;
                let next = first.map(|first| self.before.number.take().filter(|_| is_top).unwrap_or(first));
                self.lists.push(List { next, has_item: false });
            }
            Tag::Item => self.start_item(at),
            Tag::CodeBlock(kind) => {
                self.start_block(Kind::Other, at);
                let info = match kind {
                    CodeBlockKind::Fenced(info) => guard::restored(&info),
                    CodeBlockKind::Indented => String::new(),
                };
                self.page.margins.push(code::MARGIN);
                self.code = Some(Code { at: self.base + at, info, line: String::new(), places: Vec::new(), number: 0 });
            }
            Tag::Table(alignments) => {
                self.start_block(Kind::Other, at);
                self.table = Some(Table { at: self.base + at, alignments, rows: Vec::new() });
            }
            Tag::TableHead | Tag::TableRow => {
                let style = if tag == Tag::TableHead { Style::BOLD } else { Style::PLAIN };
                self.inline.begin(style);
                if let Some(table) = &mut self.table {
                    table.rows.push(TableRow { at: self.base + at, cells: Vec::new() });
                }
            }
            Tag::TableCell => self.inline.line.clear(),
            tag => self.start_inline(&tag, range),
        }
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_leaf(),
            TagEnd::Heading(level) => {
                self.end_leaf();
                if self.is_ruled(level, range.start) {
                    let underline = self.text[..range.end].trim_end().rfind('\n').map_or(range.start, |at| at + 1);
                    if self.last.len() == 1 {
                        self.separate(underline);
                    }
                    self.rule(underline);
                }
                self.inline.behind = range.end;
            }
            TagEnd::BlockQuote(_) => {
                self.end_leaf();
                self.page.margins.pop();
                self.last.pop();
            }
            TagEnd::Item => self.end_item(),
            TagEnd::List(_) => _ = self.lists.pop(),
            TagEnd::CodeBlock => {
                if self.code.as_ref().is_some_and(|code| !code.line.is_empty()) {
                    self.end_code_line();
                }
                self.page.margins.pop();
                self.code = None;
                self.inline.behind = range.end;
            }
            TagEnd::TableCell => {
                let cells = std::mem::take(&mut self.inline.line);
                if let Some(row) = self.table_row() {
                    row.cells.push(cells);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => self.end_table_row(range.end),
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    table.draw(&mut self.page, self.locked);
                }
                self.inline.is_open = false;
            }
            tag => self.end_inline(tag, range),
        }
    }
}
