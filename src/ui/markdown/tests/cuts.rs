//! However a text is cut, the screen ends up the same.

use std::fmt::Write as _;

use super::super::Markdown;
use super::screen::{Random, Screen, chars, draw, random, words};

const TEXTS: &[&str] = &[
    "# Heading\n\nA paragraph with **bold**, *em* and `code`, long enough to wrap at least at forty columns.\nLine two.\n",
    "Intro:\n\n1. First **step** with a text that is long enough to wrap around the edge\n   - sub *one*\n   - sub two `x`\n\n     loose\n2. Second\n\n   ```python\n   def f(x):\n       return \"a\" + x  # why\n   ```\n\n3. Third\n\nDone.",
    "| Column | Other | 数 |\n|---|:-:|--:|\n| **a** | `b` | 1 |\n| longer cell here | c | 1000 |\n| 你好世界 | 👩‍💻 | 2 |\n\nAfter the table.\n",
    "> Quote with **bold\n> over lines** and\n> - a list\n>   - nested\n\nText\n***\nmore\n---\n",
    "```rust\nfn main() {\n    let s = \"text\"; // comment\n    /* open\n    comment */\n}\n```\n\ntext right after\n```\nplain\n```\n- item\n* other list\n",
    "Emoji 👩‍👩‍👧‍👦 family, 🇩🇪 flag, 👍🏽 thumb, ❤️ heart; combining e\u{301}a\u{308}; שלום עולם; 你好，世界。这是一个很长的段落，没有空格，所以必须在字符之间换行才行。\n",
    "A **b *c `d [e](f) ~~g __h\n\n**open [link](http://a_b_c and **more\n\nlast ** * _ ` ~ \\",
    "Text with $x_1$ and \\(a*b\\) [^1]: no\n\n[ref]: http://x.y\n\n[ref]\n- [ ] a\n- [x] b\n- [link](u)\n-not\n1.not\n10) yes\n",
    "para\n- \n- a\n\n\n- b\n\n    code\n\n1. one\n1. two\n   1. deep\n\n      deeper\n",
    "Setext\n===\n\nother\n--\n\n***a***b** *c\n\n<div>\n\n*x*\n\n</div>\n\n&amp;&copy;\n",
    "- one\n  continued\n  > quote\n  > more\n- | a | b |\n  |---|---|\n  | 1 | 2 |\n- ~~~\n  tilde\n\n  ~~~\n+ plus\n",
];

#[test]
fn the_screen_is_the_same_however_the_text_is_cut() {
    for text in TEXTS {
        for columns in [40, 80, 200] {
            let at_once = cells(columns, [*text]);
            assert_eq!(text_of(&cells(columns, chars(text))), text_of(&at_once), "{text:?} at {columns}");
            assert!(cells(columns, chars(text)) == at_once, "looks of {text:?} at {columns}");
            for seed in 0..20 {
                let pieces = random(text, &mut Random::new(seed));
                assert_eq!(text_of(&cells(columns, pieces.clone())), text_of(&at_once), "{pieces:?} at {columns}");
            }
        }
    }
}

fn cells<'a>(columns: usize, pieces: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut screen = Screen::new(columns, 60);
    let mut markdown = Markdown::unhurried(columns, 60, true);
    for piece in pieces {
        screen.write(&markdown.push(piece));
    }
    screen.write(&markdown.finish());
    screen.cells()
}

fn text_of(cells: &[u8]) -> String {
    String::from_utf8_lossy(cells).into_owned()
}

/// A text whose every word is another, so that a lost or a doubled one shows.
fn long_text() -> String {
    let mut number = 0;
    let mut word = || {
        number += 1;
        format!("w{number}x")
    };
    let mut text = String::new();
    for part in 0..6 {
        let _ = write!(text, "# {} {}\n\n{} **{} {}** ", word(), word(), word(), word(), word());
        for _ in 0..60 {
            let _ = write!(text, "{} ", word());
        }
        let _ = write!(text, "`{}` *{}*\n\n", word(), word());
        for item in 1..9 {
            let _ = write!(text, "{item}. {} {}\n   - {} {}\n", word(), word(), word(), word());
        }
        let _ = write!(text, "\n| {} | {} |\n|---|---|\n", word(), word());
        for _ in 0..12 {
            let _ = writeln!(text, "| {} | {} |", word(), word());
        }
        let _ = write!(text, "\n```{}\n", ["", "rust", "text"][part % 3]);
        for _ in 0..15 {
            let _ = write!(text, "{} = {}\n\n", word(), word());
        }
        let _ = write!(text, "```\n> {} {}\n> {}\n\n", word(), word(), word());
    }
    text
}

#[test]
fn what_scrolls_is_neither_lost_nor_doubled() {
    let text = long_text();
    // Numbers of items and names of languages are no words of the text.
    let wanted: Vec<String> = words(&text).into_iter().filter(|word| word.starts_with('w')).collect();
    for (columns, rows) in [(40, 5), (80, 10), (200, 24), (40, 3)] {
        let all: Vec<Vec<&str>> = [vec![&text[..]], chars(&text).collect()]
            .into_iter()
            .chain((0..5).map(|seed| random(&text, &mut Random::new(seed))))
            .collect();
        for pieces in all {
            let drawn = draw(columns, rows, pieces.iter().copied()).join("\n");
            let drawn: Vec<String> = words(&drawn).into_iter().filter(|word| word.starts_with('w')).collect();
            assert_eq!(drawn, wanted, "at {columns}x{rows} in {} pieces", pieces.len());
        }
    }
}

#[test]
fn rows_above_the_live_part_never_change() {
    let text = TEXTS.join("\n\n") + &long_text()[..3000];
    for (columns, rows) in [(40, 8), (80, 24)] {
        let mut screen = Screen::new(columns, rows);
        let mut markdown = Markdown::unhurried(columns, rows, true);
        let mut settled: Vec<String> = Vec::new();
        for piece in random(&text, &mut Random::new(7)) {
            screen.write(&markdown.push(piece));
            let drawn = screen.rows();
            assert_eq!(drawn[..settled.len()], settled, "after {piece:?}");
            settled = drawn[..drawn.len() - markdown.live_rows()].to_vec();
            assert!(markdown.live_rows() < rows);
        }
    }
}

#[test]
fn rows_of_tables_scroll_away_whole() {
    let mut text = String::from("| Number | Text | More |\n|---|---|---|\n");
    for row in 0..30 {
        let _ = writeln!(
            text,
            "| {row}n | a{row}t b{row}t c{row}t d{row}t e{row}t | f{row}m g{row}m **h{row}m** i{row}m |"
        );
    }
    let mut wanted = words(&text);
    wanted.sort();
    for (columns, rows) in [(40, 8), (30, 12), (24, 4), (60, 5)] {
        for seed in 0..10 {
            let drawn = draw(columns, rows, random(&text, &mut Random::new(seed)));
            // Cells break words where a row that was being written scrolled away.
            let mut letters: Vec<char> = drawn.concat().chars().filter(char::is_ascii_alphanumeric).collect();
            let mut all: Vec<char> = wanted.concat().chars().collect();
            letters.sort_unstable();
            all.sort_unstable();
            assert_eq!(letters, all, "at {columns}x{rows}: {drawn:#?}");
        }
    }
}
