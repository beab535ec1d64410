//! Thoughts while they come: their last rows, dimmed, in a place of their own; afterwards one line in that place.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Rows of text that are shown.
const ROWS: usize = 4;
/// Nobody reads faster than this.
const STEP: Duration = Duration::from_millis(40);

/// Thoughts on a terminal.
pub(super) struct Thoughts {
    text: String,
    /// Rows on the screen; the cursor is at the end of the last one.
    drawn: usize,
    began: Instant,
    last: Option<Instant>,
    colour: bool,
}

impl Thoughts {
    pub(super) fn new(colour: bool) -> Self {
        Self { text: String::new(), drawn: 0, began: Instant::now(), last: None, colour }
    }

    /// More thoughts; answers what the terminal is to be told, for a window of so many columns.
    pub(super) fn push(&mut self, text: &str, columns: usize) -> String {
        self.text.push_str(text);
        if self.last.is_some_and(|last| last.elapsed() < STEP) || self.text.trim().is_empty() {
            return String::new();
        }
        self.last = Some(Instant::now());
        // What is further back than this is not on the last rows.
        let mut from = self.text.len().saturating_sub(ROWS * columns * 4);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let rows = wrapped(&self.text[from..], columns.saturating_sub(3).max(1));
        let rows = &rows[rows.len().saturating_sub(ROWS)..];
        let mut out = self.back();
        for (number, row) in rows.iter().enumerate() {
            let _ = write!(out, "{}{}", if number == 0 { "" } else { "\n" }, self.dimmed(&format!("│ {row}")));
            out.push_str("\x1b[K");
        }
        out.push_str("\x1b[J");
        self.drawn = rows.len();
        out
    }

    /// The end of them: what takes their place, in a line of its own.
    pub(super) fn fold(self) -> String {
        if self.text.trim().is_empty() {
            return String::new();
        }
        let time = Duration::from_secs_f64(self.began.elapsed().as_secs_f64().round().max(1.0));
        let line = self.dimmed(&format!("(thought for {})", humantime::format_duration(time)));
        format!("{}{line}\x1b[K\x1b[J\n", self.back())
    }

    /// To the beginning of the first row.
    fn back(&self) -> String {
        match self.drawn {
            0 | 1 => "\r".into(),
            rows => format!("\r\x1b[{}A", rows - 1),
        }
    }

    fn dimmed(&self, text: &str) -> String {
        if self.colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A text in rows of at most so many columns, broken at blanks where there are some.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for line in text.trim_end().lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let mut row = String::new();
        for word in line.split_inclusive(' ') {
            let wide = |text: &str| text.width();
            if !row.is_empty() && wide(&row) + wide(word.trim_end()) > columns {
                rows.push(std::mem::take(&mut row));
            }
            for cluster in word.graphemes(true) {
                if wide(&row) + wide(cluster) > columns {
                    if cluster == " " {
                        continue;
                    }
                    rows.push(std::mem::take(&mut row));
                }
                row.push_str(if cluster == "\t" { " " } else { cluster });
            }
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_broken_at_blanks_and_between_clusters() {
        assert_eq!(wrapped("one two three\n\nfour", 8), ["one two ", "three", "four"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("你好吗 👩‍👩‍👧 e\u{301}x", 5), ["你好", "吗 👩‍👩‍👧", "e\u{301}x"]);
    }

    #[test]
    fn the_last_rows_are_shown_and_one_line_is_left() {
        let mut screen = vt100::Parser::new(10, 20, 0);
        screen.process(b"before\r\n");
        let mut thoughts = Thoughts::new(true);
        let mut text = String::new();
        for number in 1..=9 {
            thoughts.last = None;
            let told = thoughts.push(&format!("thought {number} is this\n"), 20);
            text.push_str(&told);
            screen.process(told.replace('\n', "\r\n").as_bytes());
        }
        assert_eq!(
            screen.screen().contents(),
            "before\n│ thought 6 is this\n│ thought 7 is this\n│ thought 8 is this\n│ thought 9 is this"
        );
        screen.process(thoughts.fold().replace('\n', "\r\n").as_bytes());
        assert_eq!(screen.screen().contents(), "before\n(thought for 1s)");
        assert!(screen.screen().cell(1, 0).unwrap().dim());
        assert_eq!(screen.screen().cursor_position(), (2, 0));
        assert_eq!(Thoughts::new(true).fold(), "");
    }
}
