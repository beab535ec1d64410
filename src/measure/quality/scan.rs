//! Brackets and line starts of code, with texts and comments stepped over. A scanner for many languages: rough.

use super::syntax::Syntax;

/// A line that starts a statement.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) indent: &'a str,
    /// Its statement goes on: a bracket, a text or a backslash is open.
    pub(super) goes_on: bool,
    /// The last character of it and the lines that go on with it, comments aside.
    pub(super) last: char,
}

#[derive(Debug, Default)]
pub(super) struct Scan<'a> {
    /// Closing brackets that close nothing, or something else.
    pub(super) stray: Vec<(usize, char)>,
    /// Brackets and texts that are still open at the end.
    pub(super) open: Vec<(usize, &'a str)>,
    pub(super) lines: Vec<Line<'a>>,
}

pub(super) fn scan<'a>(code: &'a str, syntax: &Syntax) -> Scan<'a> {
    let mut scan = Scan::default();
    let mut text: Option<(usize, &'a str)> = None;
    for (i, line) in code.lines().enumerate() {
        let number = i + 1;
        let mut rest = line.trim_start();
        let starts = text.is_none() && scan.open.is_empty() && !scan.lines.last().is_some_and(|line| line.goes_on);
        let mut last = None;
        while let Some(c) = rest.chars().next() {
            let (taken, code_char) = if let Some((_, end)) = text {
                let (taken, ended) = through(rest, end);
                text = text.filter(|_| !ended);
                (taken, Some('"'))
            } else if is_line_comment(rest, &line[..line.len() - rest.len()], syntax) {
                (rest.len(), None)
            } else if syntax.block_comments && rest.starts_with("/*") {
                text = Some((number, "*/"));
                (2, None)
            } else if let Some(mark) = syntax.spanning.iter().find(|mark| rest.starts_with(**mark)) {
                text = Some((number, *mark));
                (mark.len(), Some('"'))
            } else if syntax.short.contains(&c) {
                // One that its line does not end is an apostrophe.
                let (taken, ended) = through(&rest[1..], &rest[..1]);
                (if ended { 1 + taken } else { 1 }, Some('"'))
            } else if c == '\'' {
                (character(rest), Some('"'))
            } else {
                scan.bracket(number, &rest[..c.len_utf8()], c, syntax);
                (c.len_utf8(), Some(c).filter(|c| !c.is_whitespace()))
            };
            last = code_char.or(last);
            rest = &rest[taken..];
        }
        scan.end_line(line, number, starts, last, text.is_some());
    }
    scan.open.extend(text);
    scan
}

impl<'a> Scan<'a> {
    fn bracket(&mut self, number: usize, slice: &'a str, c: char, syntax: &Syntax) {
        match syntax.brackets.find(c) {
            Some(at) if at % 2 == 0 => self.open.push((number, slice)),
            Some(at) => {
                let opening = &syntax.brackets[at - 1..at];
                let depth = self.open.iter().rposition(|(_, open)| *open == opening);
                if depth.is_none_or(|depth| depth + 1 != self.open.len()) {
                    self.stray.push((number, c));
                }
                self.open.truncate(depth.unwrap_or(self.open.len()));
            }
            None => {}
        }
    }

    fn end_line(&mut self, line: &'a str, number: usize, starts: bool, last: Option<char>, in_text: bool) {
        let Some(last) = last else { return };
        let goes_on = in_text || !self.open.is_empty() || last == '\\';
        let indent = &line[..line.len() - line.trim_start().len()];
        match self.lines.last_mut() {
            Some(line) if !starts => (line.last, line.goes_on) = (last, goes_on),
            _ => self.lines.push(Line { number, indent, goes_on, last }),
        }
    }
}

/// Bytes up to and with the end mark, or the whole line; whether the mark was there. A backslash hides what follows it.
fn through(rest: &str, end: &str) -> (usize, bool) {
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        if rest[at..].starts_with(end) {
            return (at + end.len(), true);
        }
        if c == '\\' {
            chars.next();
        }
    }
    (rest.len(), false)
}

/// `$#` and `${#name}` of a shell are no comments.
fn is_line_comment(rest: &str, before: &str, syntax: &Syntax) -> bool {
    rest.starts_with(syntax.line_comment) && !before.ends_with(['$', '{'])
}

/// Bytes of a character such as `'('` or `'\''`; one for a lifetime or an apostrophe.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let escaped = matches!(chars.next(), Some((_, '\\')));
    if escaped {
        chars.next();
    }
    let longest = if escaped { 9 } else { 1 };
    chars.take(longest).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1)
}
