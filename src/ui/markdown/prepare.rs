//! Makes a text that is not complete ready for the parser: what is open at its end is closed, so that it shows as it
//! will look, and mathematics is kept from being taken for markup.

use super::guard;
use super::held;

/// What the parser gets.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) text: String,
    /// What comes behind this place closes what is open, and is not shown.
    pub(super) len: usize,
}

/// Whether more text can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Streaming,
    Ended,
}

pub(super) fn prepare(source: &str, stage: Stage) -> Prepared {
    let shown = match stage {
        Stage::Streaming => &source[..held::shown(source)],
        Stage::Ended => source,
    };
    let mut scan =
        Scan { source: shown, text: shown.as_bytes().to_vec(), open: Vec::new(), closing: String::new(), stage };
    scan.hide_definitions();
    scan.run();
    scan.finish()
}

/// A run of markers that opened something.
pub(super) struct Run {
    pub(super) marker: u8,
    pub(super) len: usize,
}

pub(super) struct Scan<'a> {
    pub(super) source: &'a str,
    pub(super) text: Vec<u8>,
    /// What the last line opened and did not close.
    pub(super) open: Vec<Run>,
    /// What closes code and links, which hold no other markup.
    closing: String,
    pub(super) stage: Stage,
}

impl Scan<'_> {
    /// A definition of a link would vanish, and change text far away: `]:` stays text.
    fn hide_definitions(&mut self) {
        for (at, _) in self.source.match_indices("]:") {
            self.text[at + 1] = guard::hide(b':');
        }
    }

    fn run(&mut self) {
        let bytes = self.source.as_bytes();
        let mut at = self.behind_fence(0);
        // Where the paragraph ends: nothing inline goes further.
        let mut end = 0;
        while at < bytes.len() {
            if at >= end {
                end = self.paragraph_end(at);
            }
            at = match bytes[at] {
                b'\n' => {
                    self.open.clear();
                    self.behind_fence(at + 1)
                }
                b'\\' => self.escape(at, end),
                b'$' => self.dollar(at, end),
                b'`' => self.code(at, end),
                b'*' | b'_' | b'~' => self.delimiter(at),
                b']' if bytes.get(at + 1) == Some(&b'(') => self.target(at + 2),
                _ => at + 1,
            };
        }
    }

    fn finish(mut self) -> Prepared {
        let mut text = String::from_utf8(self.text).unwrap_or_else(|_| self.source.to_owned());
        let mut len = text.len();
        if self.stage == Stage::Streaming {
            while let Some(Run { marker, len }) = self.open.pop() {
                self.closing.extend(std::iter::repeat_n(char::from(marker), len));
            }
            if !self.closing.is_empty() {
                // What closes stands right behind a word.
                len = text.trim_end_matches([' ', '\t']).len();
                text.truncate(len);
                text.push_str(&self.closing);
            }
        }
        Prepared { text, len }
    }

    fn paragraph_end(&self, from: usize) -> usize {
        let newlines = self.source[from..].match_indices('\n').map(|(at, _)| from + at);
        newlines.into_iter().find(|at| starts_block(first_line(&self.source[at + 1..]))).unwrap_or(self.source.len())
    }

    pub(super) fn run_len(&self, at: usize) -> usize {
        let bytes = self.source.as_bytes();
        bytes[at..].iter().take_while(|byte| **byte == bytes[at]).count()
    }

    /// Where to go on from the start of a line: behind a block of code, if one begins here.
    fn behind_fence(&self, line_start: usize) -> usize {
        let first = first_line(&self.source[line_start..]);
        let mut line = first.trim_start_matches([' ', '\t', '>']);
        while let Some(rest) = held::after_marker(line) {
            line = rest.trim_start();
        }
        let Some(fence) = fence(line) else {
            return line_start;
        };
        let indent = first.len() - line.len();
        let mut at = line_start + first.len() + 1;
        for line in self.source.get(at..).unwrap_or_default().split_inclusive('\n') {
            let inner = line.trim_start_matches([' ', '\t', '>']);
            // Less indented, it belongs to what is around the item that the code is in.
            if line.len() - inner.len() < indent && !inner.trim().is_empty() {
                break;
            }
            at += line.len();
            if inner.starts_with(fence) {
                break;
            }
        }
        at.min(self.source.len())
    }

    fn code(&mut self, at: usize, end: usize) -> usize {
        let from = at + self.run_len(at);
        let run = &self.source[at..from];
        let mut next = from;
        while let Some(found) = self.source[next..end].find('`') {
            let close = next + found;
            next = close + self.run_len(close);
            if next - close == run.len() {
                return next;
            }
        }
        if self.source[from..].contains('\n') {
            return from;
        }
        self.closing.push_str(run);
        self.source.len()
    }

    /// A link's address, from behind its bracket on.
    fn target(&mut self, from: usize) -> usize {
        let line = first_line(&self.source[from..]);
        match line.find(')') {
            Some(close) => from + close + 1,
            None if from + line.len() == self.source.len() && !line.contains(' ') => {
                self.closing.push(')');
                self.source.len()
            }
            None => from,
        }
    }
}

pub(super) fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default()
}

/// Whether a line ends the paragraph before it.
fn starts_block(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t', '>']).trim_end();
    line.is_empty() || line.starts_with(['#', '|']) || fence(line).is_some() || held::after_marker(line).is_some()
}

fn fence(line: &str) -> Option<&'static str> {
    ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence))
}
