//! Symbols in no order: nothing panics, no word is lost.

use std::fmt::Write as _;

use super::super::Markdown;
use super::screen::{Random, Screen, draw, random, words};

const SYMBOLS: &[&str] = &[
    "*",
    "**",
    "_",
    "__",
    "`",
    "```",
    "~~",
    "~",
    "#",
    "##",
    "-",
    "- ",
    "+ ",
    "1. ",
    "2) ",
    ">",
    "> ",
    "|",
    "|-|-|\n",
    "[",
    "]",
    "](",
    "(",
    ")",
    "!",
    "<",
    ">",
    "\\",
    "\n",
    "\n\n",
    "\n\n",
    " ",
    " ",
    "  ",
    "    ",
    "\t",
    "===\n",
    "---\n",
    ":",
    "]:",
    "$",
    "$$",
    "\\(",
    "\\)",
    "\\[",
    "&",
    "&amp;",
    "é",
    "e\u{301}",
    "你",
    "👩‍💻",
    "🇩🇪",
    "א",
    "~~~\n",
    "```\n",
    "\n- ",
    "\n1. ",
    "\n> ",
    "\n# ",
    "\n```\n",
    "\n|",
    "<div>",
    "[x]",
    "[ ]",
    "/",
    "\u{200b}",
    "\u{feff}",
];

#[test]
fn garbage_neither_panics_nor_loses_words() {
    for seed in 0..2000 {
        let mut chance = Random::new(seed);
        let text = garbage(&mut chance);
        let columns = [10, 40, 80, 200, 300][chance.below(5)];
        let rows = [3, 5, 24, 100][chance.below(4)];
        let mut screen = Screen::new(columns, rows);
        let mut markdown = Markdown::unhurried(columns, rows, true);
        for piece in random(&text, &mut chance) {
            screen.write(&markdown.push(piece));
            assert!(markdown.live_rows() < rows);
        }
        screen.write(&markdown.finish());
        let context = format!("seed {seed} at {columns}x{rows}: {text:?}");
        let drawn = screen.rows();
        check(&text, &drawn, columns, &context);
        // What is mathematics can depend on what stands before.
        let has_math = ["$", "\\(", "\\)", "\\["].iter().any(|mark| text.contains(mark));
        if rows == 100 && drawn.len() < rows && !has_math {
            assert_eq!(draw(columns, rows, [&text[..]]), drawn[..drawn.len() - 1], "cut otherwise; {context}");
        }
    }
}

fn garbage(chance: &mut Random) -> String {
    let mut text = String::new();
    let mut number = 0;
    for _ in 0..5 + chance.below(120) {
        if chance.below(3) == 0 {
            number += 1;
            let _ = write!(text, "w{number}x");
            if chance.below(2) == 0 {
                text.push(' ');
            }
        } else {
            text += chance.pick(SYMBOLS);
        }
    }
    text
}

#[test]
fn garbage_in_a_window_that_changes_does_not_panic() {
    for seed in 0..2000 {
        let mut chance = Random::new(seed);
        let text = garbage(&mut chance);
        let mut markdown = Markdown::unhurried(40, 10, true);
        for piece in random(&text, &mut Random::new(seed)) {
            if chance.below(4) == 0 {
                markdown.resize(10 + chance.below(50), 3 + chance.below(20));
            }
            markdown.push(piece);
        }
        markdown.finish();
    }
}

fn check(text: &str, rows: &[String], columns: usize, context: &str) {
    // A narrow window breaks words, wraps cells of tables, and repeats their headers.
    if columns < 80 {
        return;
    }
    let is_word = |word: &String| word.starts_with('w') && word.ends_with('x');
    let drawn: Vec<String> = words(&rows.join("\n")).into_iter().filter(is_word).collect();
    let mut unique = drawn.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), drawn.len(), "doubled; {context}: {rows:#?}");
    // A long line of code breaks anywhere.
    let all = rows.concat();
    // What stands behind a fence is not shown.
    for line in text.lines().filter(|line| !line.contains("```") && !line.contains("~~~")) {
        for word in words(line).iter().filter(|word| is_word(word)) {
            assert!(all.contains(word), "{word} is lost; {context}: {rows:#?}");
        }
    }
}
