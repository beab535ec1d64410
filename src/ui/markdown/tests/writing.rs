//! How little is written.

use super::super::Markdown;
use super::screen::chars;

fn written(text: &str, columns: usize, colour: bool) -> String {
    let mut markdown = Markdown::unhurried(columns, 24, colour);
    let out: String = chars(text).map(|piece| markdown.push(piece)).collect();
    out + &markdown.finish()
}

#[test]
fn a_plain_paragraph_is_written_about_once() {
    let text = "The quick brown fox jumps over the lazy dog, and then it does so again and again. ".repeat(20);
    for columns in [40, 80, 200] {
        let out = written(&text, columns, true);
        assert!(out.len() * 10 <= text.len() * 13, "{} bytes for {} at {columns}", out.len(), text.len());
    }
}

#[test]
fn each_character_is_written_when_it_comes() {
    let mut markdown = Markdown::unhurried(80, 24, true);
    for piece in chars("plain words") {
        assert_eq!(markdown.push(piece).trim(), piece.trim());
    }
}

#[test]
fn nothing_is_erased_that_stays() {
    let text =
        "Some **bold** text, a `piece of code` and [a link](https://example.org).\n\n- item **one**\n- item two\n";
    let out = written(text, 80, true);
    assert!(!out.contains("\x1b[2J") && !out.contains("\x1b[H"));
    assert!(out.len() < text.len() * 5, "{} bytes for {}: {out:?}", out.len(), text.len());
}

#[test]
fn without_colour_there_is_no_look() {
    let text = "# T\n\n**b** `c` ~~d~~ [x](y)\n\n```rust\nfn f() {}\n```\n\n|a|b|\n|-|-|\n|c|**d**|\n\n> q\n\n---\n";
    let out = written(text, 40, false);
    let ends = out.split('\x1b').skip(1).filter_map(|sequence| sequence.chars().find(char::is_ascii_alphabetic));
    assert!(ends.into_iter().all(|end| end != 'm'), "{out:?}");
}

#[test]
fn each_push_leaves_the_terminal_without_a_look() {
    let mut markdown = Markdown::unhurried(80, 24, true);
    for piece in chars("# T\n\n**bold** `code` and ```x```\n\n```rust\nfn f() {}\n```\n") {
        let out = markdown.push(piece);
        let mut screen = vt100::Parser::new(24, 80, 0);
        screen.process(out.as_bytes());
        assert!(!screen.screen().bold() && screen.screen().fgcolor() == vt100::Color::Default, "{out:?}");
    }
}

#[test]
fn a_budget_that_is_spent_defers_and_loses_nothing() {
    let mut markdown = Markdown::new(80, 24, true);
    markdown.budget.as_mut().unwrap().exhaust();
    assert_eq!(markdown.push("word "), "");
    assert_eq!(markdown.push("more"), "");
    assert_eq!(markdown.finish(), "word more\n");
}
