//! A window that changes its size while a text is drawn.

use std::fmt::Write as _;

use super::super::Markdown;
use super::screen::{Random, Screen, random};

/// Everything that can be seen, without blanks: a word may break where the window changed.
fn letters(rows: &[String]) -> String {
    rows.concat().chars().filter(char::is_ascii_alphanumeric).collect()
}

#[test]
fn a_resize_loses_and_doubles_no_word() {
    let mut text = String::new();
    for part in 0..8 {
        let _ = write!(
            text,
            "Part{part}a with **bold{part}b words** and `code{part}c` in a paragraph{part}d of some length{part}e.\n\n"
        );
        let _ = write!(
            text,
            "- item{part}f one\n- item{part}g two\n\n```rust\nlet a{part}h = b;\n\nlet c{part}i = d;\n```\n\n"
        );
    }
    let wanted = letters(&[text.replace("```rust", "")]);
    for seed in 0..200 {
        let mut random_ = Random::new(seed);
        let (mut columns, mut rows) = (20 + random_.below(80), 4 + random_.below(20));
        let mut screen = Screen::new(columns, rows);
        let mut markdown = Markdown::unhurried(columns, rows, true);
        let mut before: Vec<String> = Vec::new();
        let mut sizes = Vec::new();
        for (number, piece) in random(&text, &mut Random::new(seed + 1)).into_iter().enumerate() {
            if number % 50 == 49 {
                (columns, rows) = (20 + random_.below(80), 4 + random_.below(20));
                sizes.push((columns, rows));
                // As a terminal that wraps its rows anew: the row of the cursor goes on in the new window.
                let mut drawn = screen.rows();
                let last = drawn.pop().unwrap();
                before.append(&mut drawn);
                screen = Screen::new(columns, rows);
                screen.write(&last);
                markdown.resize(columns, rows);
            }
            screen.write(&markdown.push(piece));
        }
        screen.write(&markdown.finish());
        before.extend(screen.rows());
        assert_eq!(letters(&before), wanted, "seed {seed}, {sizes:?}: {before:#?}");
    }
}

#[test]
fn a_line_goes_on_in_its_row_when_the_window_grows() {
    let mut screen = Screen::new(40, 10);
    let mut markdown = Markdown::unhurried(20, 10, true);
    screen.write(&markdown.push("- some wor"));
    markdown.resize(40, 10);
    screen.write(&markdown.push("ds that go on and"));
    screen.write(&markdown.push(" on and on\n- next"));
    screen.write(&markdown.finish());
    assert_eq!(screen.rows(), ["• some words that go on and on and on", "• next", ""]);
}
