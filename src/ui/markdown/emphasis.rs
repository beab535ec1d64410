//! Which emphasis is open at the end of a text.

use super::guard;
use super::prepare::{Run, Scan};

impl Scan<'_> {
    /// A run of `*`, `_` or `~`; whether it opens or closes goes by its neighbours (`CommonMark` 0.31, 6.2).
    pub(super) fn delimiter(&mut self, at: usize) -> usize {
        let marker = self.source.as_bytes()[at];
        let mut len = self.run_len(at);
        let from = at + len;
        if marker == b'~' && len == 1 {
            // "about ~5": one tilde strikes nothing.
            self.hide(at, from);
            return from;
        }
        let mut before = Neighbour::of(self.source[..at].chars().next_back());
        let mut after = Neighbour::of(self.source[from..].chars().next());
        // `**重点：**内容`: where no blanks stand between words, `CommonMark` leaves emphasis open that ends, or begins,
        // with punctuation. Hidden, that is a letter to the parser.
        if marker == b'*' {
            let is_open = self.open.iter().any(|run| run.marker == marker);
            if is_open && (before, after) == (Neighbour::Mark, Neighbour::Word) {
                before = self.as_letter(self.source[..at].chars().next_back(), |len| at - len).unwrap_or(before);
            } else if !is_open && (before, after) == (Neighbour::Word, Neighbour::Mark) {
                after = self.as_letter(self.source[from..].chars().next(), |_| from).unwrap_or(after);
            }
        }
        let mut opens = after > Neighbour::Mark || after == Neighbour::Mark && before < Neighbour::Word;
        let mut closes = before > Neighbour::Mark || before == Neighbour::Mark && after < Neighbour::Word;
        if marker == b'_' {
            (opens, closes) =
                (opens && (!closes || before == Neighbour::Mark), closes && (!opens || after == Neighbour::Mark));
        }
        while closes
            && len > 0
            && let Some(index) = self.open.iter().rposition(|run| run.marker == marker)
        {
            self.open.truncate(index + 1);
            let closed = self.open[index].len.min(len);
            len -= closed;
            self.open[index].len -= closed;
            if self.open[index].len == 0 {
                self.open.pop();
            }
        }
        if opens && len > 0 {
            self.open.push(Run { marker, len });
        }
        from
    }

    /// Hides a character of punctuation from the parser; `place` says where it begins.
    fn as_letter(&mut self, mark: Option<char>, place: impl FnOnce(usize) -> usize) -> Option<Neighbour> {
        let mark = mark?;
        let hidden = guard::hide_char(mark)?;
        let from = place(mark.len_utf8());
        hidden.encode_utf8(&mut self.text[from..from + mark.len_utf8()]);
        Some(Neighbour::Word)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Neighbour {
    Space,
    Mark,
    Word,
}

impl Neighbour {
    fn of(c: Option<char>) -> Self {
        match c {
            None => Self::Space,
            Some(c) if c.is_whitespace() => Self::Space,
            Some(c) if c.is_alphanumeric() => Self::Word,
            Some(_) => Self::Mark,
        }
    }
}
