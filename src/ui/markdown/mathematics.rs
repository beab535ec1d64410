//! TeX in an answer: shown as it is written, with nothing in it taken for markup.

use super::guard;
use super::prepare::{Scan, Stage, first_line};

impl Scan<'_> {
    /// A backslash: TeX's brackets are shown as they are, other escapes are left to the parser.
    pub(super) fn escape(&mut self, at: usize, end: usize) -> usize {
        let close = match self.source.as_bytes().get(at + 1) {
            Some(b'(') => "\\)",
            Some(b'[') => "\\]",
            Some(b')' | b']') => {
                self.hide(at, at + 2);
                return at + 2;
            }
            Some(byte) if byte.is_ascii_punctuation() => return at + 2,
            _ => return at + 1,
        };
        let found = self.source[at + 2..end].find(close).map(|found| at + 4 + found);
        let goes_on = self.stage == Stage::Streaming && end == self.source.len();
        let until = found.unwrap_or(if goes_on { end } else { at + 2 });
        self.hide(at, until);
        until
    }

    /// A dollar: with its partner it holds TeX, without it is money.
    pub(super) fn dollar(&mut self, at: usize, end: usize) -> usize {
        let bytes = self.source.as_bytes();
        let len = self.run_len(at);
        let (from, is_word) = (at + len, |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric));
        let is_space = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
        if len > 2 || at > 0 && is_word(at - 1) || len == 1 && is_space(from) {
            return from;
        }
        let end = if len == 2 { end } else { (from + first_line(&self.source[from..]).len()).min(end) };
        let Some(close) = self.source[from..end].find(&self.source[at..from]).map(|found| from + found) else {
            return from;
        };
        let inner = &self.source[from..close];
        let is_money = is_space(close - 1) || is_word(close + 1) || inner.contains("**") || inner.contains('`');
        if len == 1 && is_money {
            return from;
        }
        self.hide(at, close + len);
        close + len
    }

    pub(super) fn hide(&mut self, from: usize, to: usize) {
        self.text[from..to].iter_mut().for_each(|byte| *byte = guard::hide(*byte));
    }
}
