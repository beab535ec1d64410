//! Attributes and colours of cells.

use super::super::Markdown;
use super::screen::Screen;

fn screen(text: &str) -> Screen {
    let mut screen = Screen::new(40, 20);
    let mut markdown = Markdown::unhurried(40, 20, true);
    screen.write(&markdown.push(text));
    screen.write(&markdown.finish());
    screen
}

#[test]
fn marks_become_attributes() {
    let screen = screen("# T\n\n## S\n\n**b** *e* `c` p [l](u)\n\n> q\n\n***\n");
    let title = screen.cell(0, 0);
    assert!(title.bold() && title.underline());
    let section = screen.cell(2, 0);
    assert!(section.bold() && !section.underline());
    assert!(screen.cell(4, 0).bold());
    assert!(screen.cell(4, 2).italic());
    assert_eq!(screen.cell(4, 4).fgcolor(), vt100::Color::Idx(6));
    let plain = screen.cell(4, 6);
    assert!(!plain.bold() && !plain.italic() && plain.fgcolor() == vt100::Color::Default);
    assert!(screen.cell(4, 8).underline());
    let address = screen.cell(4, 11);
    assert!(address.contents() == "u" && address.dim() && !address.underline());
    assert!(screen.cell(6, 0).dim());
    assert!(screen.cell(8, 39).dim());
}

#[test]
fn headers_of_tables_are_bold() {
    let screen = screen("|a|b|\n|-|-|\n|c|d|\n");
    assert!(screen.cell(0, 0).bold());
    assert!(screen.cell(1, 0).dim());
    assert!(!screen.cell(2, 0).bold());
}

#[test]
fn code_is_coloured_by_its_language() {
    let screen = screen("```rust\nlet a = \"b\"; // c\n```\n\n- x\n\n  ```python\n  # c\n  ```\n");
    assert_eq!(screen.cell(0, 2).contents(), "l");
    assert_ne!(screen.cell(0, 2).fgcolor(), vt100::Color::Default, "a keyword");
    assert_ne!(screen.cell(0, 10).fgcolor(), screen.cell(0, 6).fgcolor(), "a string");
    assert_ne!(screen.cell(4, 4).fgcolor(), vt100::Color::Default, "a comment in an item");
    let plain = self::screen("```\nlet a\n```\n\n```nonsense\nlet a\n```\n");
    assert_eq!(plain.cell(0, 2).fgcolor(), vt100::Color::Default);
    assert_eq!(plain.cell(2, 2).fgcolor(), vt100::Color::Default);
}

#[test]
fn what_is_open_is_shown_as_it_will_look() {
    let mut screen = Screen::new(40, 20);
    let mut markdown = Markdown::unhurried(40, 20, true);
    screen.write(&markdown.push("a **bo"));
    assert_eq!(screen.rows(), ["a bo"]);
    assert!(screen.cell(0, 2).bold());
    screen.write(&markdown.push("ld*"));
    assert_eq!(screen.rows(), ["a bold"]);
    screen.write(&markdown.push("* and `c"));
    assert_eq!(screen.rows(), ["a bold and c"]);
    assert_eq!(screen.cell(0, 11).fgcolor(), vt100::Color::Idx(6));
    screen.write(&markdown.push("` [t](ht"));
    assert_eq!(screen.rows(), ["a bold and c t (ht"]);
    screen.write(&markdown.push("\n\n**x\n\ny"));
    assert_eq!(screen.rows(), ["a bold and c [t](ht", "", "**x", "", "y"]);
}

#[test]
fn markers_wait_for_what_follows() {
    let mut markdown = Markdown::unhurried(40, 20, false);
    for piece in ["#", "#", " ", "T\n\n", "-", " ", "[", "x"] {
        let out = markdown.push(piece);
        assert!(!out.contains(['#', '-', '[', '•']), "{out:?}");
    }
    assert_eq!(markdown.push("] a\n-"), "\n\n[x] a");
    assert!(markdown.push("-- b").contains("--- b"));
}

#[test]
fn emphasis_ends_with_punctuation_where_words_have_no_blanks_between() {
    for text in ["**重点：**内容，**“引”**和*a:*文", "**Note:**text"] {
        let mut screen = Screen::new(60, 20);
        let mut markdown = Markdown::unhurried(60, 20, true);
        for c in text.chars() {
            screen.write(&markdown.push(c.encode_utf8(&mut [0; 4])));
        }
        screen.write(&markdown.finish());
        assert_eq!(screen.rows()[0], text.replace('*', ""));
        assert!(screen.cell(0, 0).bold() && screen.cell(0, 4).bold(), "{text}");
        let plain = if text.is_ascii() { 5 } else { 6 };
        assert!(!screen.cell(0, plain).bold(), "{text}");
    }
}
