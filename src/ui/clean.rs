//! Takes control sequences out of what a model, a file name or metadata says, before a terminal sees it: an OSC 52 would
//! reach the clipboard, others retitle windows or answer in the user's name (ECMA-48).

/// A filter for a stream of text; a sequence may be cut anywhere.
#[derive(Debug, Default)]
pub struct Cleaner {
    state: State,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    Escape,
    /// Parameters of a CSI sequence, up to its final byte.
    Csi,
    /// A string (OSC, DCS, ...), up to BEL or ST, with its length so far: one that never ends must not eat the answer.
    String(usize),
    StringEscape(usize),
}

const LONGEST_STRING: usize = 4096;

impl Cleaner {
    /// The text without control sequences and control characters; newlines and tabs stay.
    pub fn clean(&mut self, text: &str) -> String {
        text.chars().filter(|c| self.keeps(*c)).collect()
    }

    fn keeps(&mut self, c: char) -> bool {
        let (next, keep) = match (&self.state, c) {
            (State::Text, '\x1b') => (State::Escape, false),
            (State::Text, '\u{9b}') => (State::Csi, false),
            (State::Text, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => (State::String(0), false),
            (State::Text, c) => (State::Text, c == '\n' || c == '\t' || !c.is_control()),
            (State::Escape, '[') => (State::Csi, false),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::String(0), false),
            (State::Escape, ' '..='/') => (State::Escape, false),
            (State::Escape, c) => (State::Text, c == '\n'),
            (State::Csi, '\x20'..='\x3f') => (State::Csi, false),
            (State::Csi, c) => (State::Text, c == '\n'),
            (State::String(_), '\x07' | '\u{9c}') | (State::StringEscape(_), '\\') => (State::Text, false),
            (State::String(len) | State::StringEscape(len), _) if *len >= LONGEST_STRING => (State::Text, false),
            (State::String(len), '\x1b') => (State::StringEscape(*len), false),
            (State::String(len) | State::StringEscape(len), _) => (State::String(len + 1), false),
        };
        self.state = next;
        keep
    }
}

/// One whole text, cleaned, on one line.
pub fn line(text: &str) -> String {
    Cleaner::default().clean(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_go_however_they_are_cut() {
        let cases = [
            ("a\x1b]52;c;aGk=\x07b", "ab"),
            ("a\x1b]0;title\x1b\\b", "ab"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\u{9b}31mred\u{9d}0;t\u{9c}x", "redx"),
            ("bell\x07 null\0 back\x08 \r\nnext\tline", "bell null back \nnext\tline"),
            ("\x1bPq#0\x1b\\x\x1b(Bok\x1bc", "xok"),
            ("你好 👩‍👩‍👧 e\u{301}", "你好 👩‍👩‍👧 e\u{301}"),
        ];
        for (text, expected) in cases {
            let bounds = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            for cut in bounds {
                let mut cleaner = Cleaner::default();
                let out = cleaner.clean(&text[..cut]) + &cleaner.clean(&text[cut..]);
                assert_eq!(out, expected, "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_string_that_never_ends_does_not_eat_the_answer() {
        let text = format!("\x1b]52;{}the end", "x".repeat(10_000));
        assert!(Cleaner::default().clean(&text).ends_with("the end"));
    }
}
