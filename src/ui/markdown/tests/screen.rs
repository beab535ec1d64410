//! A terminal, and ways to cut a text.

use super::super::Markdown;

pub(super) struct Screen {
    parser: vt100::Parser,
    columns: u16,
}

impl Screen {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { parser: vt100::Parser::new(rows as u16, columns as u16, 10_000), columns: columns as u16 }
    }

    /// As a terminal in cooked mode.
    pub(super) fn write(&mut self, bytes: &str) {
        self.parser.process(bytes.replace('\n', "\r\n").as_bytes());
    }

    pub(super) fn cell(&self, row: u16, column: u16) -> vt100::Cell {
        self.parser.screen().cell(row, column).unwrap().clone()
    }

    /// Everything from the first row to the cursor's, without blanks at the ends.
    pub(super) fn rows(&mut self) -> Vec<String> {
        let cursor = usize::from(self.parser.screen().cursor_position().0);
        self.parser.screen_mut().set_scrollback(usize::MAX);
        let scrolled = self.parser.screen().scrollback();
        let mut rows = Vec::new();
        for offset in (1..=scrolled).rev() {
            self.parser.screen_mut().set_scrollback(offset);
            rows.extend(self.parser.screen().rows(0, self.columns).next());
        }
        self.parser.screen_mut().set_scrollback(0);
        rows.extend(self.parser.screen().rows(0, self.columns).take(cursor + 1));
        rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    /// The same with the looks of the cells, for what fits onto the screen.
    pub(super) fn cells(&self) -> Vec<u8> {
        self.parser.screen().contents_formatted()
    }
}

/// The rows of a text pushed in pieces, without the empty one at the end.
pub(super) fn draw<'a>(columns: usize, rows: usize, pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut screen = Screen::new(columns, rows);
    let mut markdown = Markdown::unhurried(columns, rows, true);
    for piece in pieces {
        screen.write(&markdown.push(piece));
    }
    screen.write(&markdown.finish());
    let mut drawn = screen.rows();
    assert_eq!(drawn.pop().as_deref(), Some(""), "the cursor is at the start of an empty row");
    drawn
}

pub(super) fn chars(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()])
}

/// Pieces of 1 to 8 characters.
pub(super) fn random<'a>(text: &'a str, random: &mut Random) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let len = rest.char_indices().nth(1 + random.below(8)).map_or(rest.len(), |(at, _)| at);
        let (piece, tail) = rest.split_at(len);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// xorshift64*.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// The words of a text: letters and digits only.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
