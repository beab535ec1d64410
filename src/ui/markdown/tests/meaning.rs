//! What each construct looks like, written by hand from what `CommonMark` says it means.

use super::screen::{chars, draw};

/// Checks a text pushed at once and character by character.
fn check(columns: usize, text: &str, expected: &[&str]) {
    assert_eq!(draw(columns, 50, [text]), expected, "{text:?} at once");
    assert_eq!(draw(columns, 50, chars(text)), expected, "{text:?} by characters");
}

#[test]
fn headings_stand_alone_and_show_no_signs() {
    check(
        40,
        "intro\n# Title #\ntext\n\n## Next\n\n### Last\n",
        &["intro", "", "Title", "", "text", "", "Next", "", "Last"],
    );
    check(40, "Title\n===\ntext", &["Title", "", "text"]);
    check(40, "#hashtag\n#", &["#hashtag"]);
}

#[test]
fn paragraphs_wrap_between_words_and_keep_their_lines() {
    check(12, "one two three four\nfive\n\nsix", &["one two", "three four", "five", "", "six"]);
    check(12, "exactly 1234 x", &["exactly 1234", "x"]);
    check(12, "a  \nb\\\nc", &["a", "b", "c"]);
}

#[test]
fn long_words_are_cut_between_clusters() {
    check(10, "see abcdefghijklmnopqrstuvw end", &["see", "abcdefghij", "klmnopqrst", "uvw end"]);
    check(
        10,
        "ae\u{301}ae\u{301}ae\u{301}ae\u{301}ae\u{301}ae\u{301}",
        &["ae\u{301}ae\u{301}ae\u{301}ae\u{301}ae\u{301}", "ae\u{301}"],
    );
}

#[test]
fn wide_characters_do_not_straddle_the_edge() {
    check(11, "一二三四五六七", &["一二三四五", "六七"]);
    check(10, "一二三四五，六", &["一二三四", "五，六"]);
    check(10, "abc一二三四五", &["abc一二三", "四五"]);
    check(10, "```\nabc一二三四五\n```", &["  abc一二", "三四五"]);
    check(12, "אבג דהו זחט יכל", &["אבג דהו זחט", "יכל"]);
}

#[test]
fn lists_nest_and_hang() {
    check(
        20,
        "- one\n- two\n  - three is a longer item\n    1. four\n    2. five\n- six\n",
        &["• one", "• two", "  • three is a", "    longer item", "    1. four", "    2. five", "• six"],
    );
    check(40, "3. c\n3. d\n\n   more\n\n9) e\n", &["3. c", "4. d", "", "   more", "", "9) e"]);
    check(40, "* a\n\n* b\n* c\n", &["• a", "", "• b", "• c"]);
    check(40, "Here:\n- a\n- b\n\nthere:\n\n- c\n", &["Here:", "• a", "• b", "", "there:", "", "• c"]);
    check(40, "- [ ] to do\n- [x] done\n1. [x] first", &["[ ] to do", "[x] done", "", "1. [x] first"]);
    check(40, "- \n- a\n-", &["•", "• a", "•"]);
    check(40, "- - a\n  - b", &["• • a", "  • b"]);
    check(40, "9. a\n1. b\n1. c", &["9. a", "10. b", "11. c"]);
}

#[test]
fn quotes_have_a_bar() {
    check(
        14,
        "> one two three\n> > four\n>\n> five\n\nsix",
        &["│ one two", "│ three", "│ │ four", "│", "│ five", "", "six"],
    );
    check(40, "> - a\n>   - b\n> \n> c\nlazy", &["│ • a", "│   • b", "│", "│ c", "│ lazy"]);
    check(40, "> ```\n> code\n> ```", &["│   code"]);
}

#[test]
fn rules_are_as_wide_as_the_window() {
    check(10, "a\n\n***\nb", &["a", "", "──────────", "", "b"]);
    check(10, "a\n---\nb", &["a", "", "──────────", "", "b"]);
    check(10, "- a\n- - -", &["• a", "", "──────────"]);
}

#[test]
fn fences_show_their_code_only() {
    check(40, "a\n```rust\nfn f() {\n\n\tx();\n}\n```\nb", &["a", "", "  fn f() {", "", "      x();", "  }", "", "b"]);
    check(40, "~~~~ text\n```\n~~~\n~~~~~\n", &["  ```", "  ~~~"]);
    check(40, "```\nopen\n  end", &["  open", "    end"]);
    check(40, "```\nopen\n``", &["  open", "  ``"]);
    check(
        40,
        "1. step\n\n   ```sh\n   ls\n\n   cd\n   ```\n2. next",
        &["1. step", "", "     ls", "", "     cd", "2. next"],
    );
    check(40, "a\n\n    code\n\n    more\n\nb", &["a", "", "  code", "", "  more", "", "b"]);
    check(10, "```\n0123456789abcdefgh\nx\n```", &["  01234567", "89abcdefgh", "  x"]);
    check(40, "```\n```\nb", &["b"]);
    check(40, "a\n``` not ` a fence", &["a", "``` not ` a fence"]);
}

#[test]
fn code_keeps_its_lines_for_the_clipboard() {
    let mut screen = vt100::Parser::new(5, 10, 0);
    let mut markdown = super::super::Markdown::unhurried(10, 5, true);
    let out = markdown.push("```\n0123456789abcdefgh\nx\n") + &markdown.finish();
    screen.process(out.replace('\n', "\r\n").as_bytes());
    assert_eq!(screen.screen().contents(), "  0123456789abcdefgh\n  x");
}

#[test]
fn tables_align() {
    check(
        40,
        "| Name | Count | Mid |\n|:---|---:|:-:|\n| a | 1 | x |\n| bcd | 1000 | `y` |\n\nend",
        &["Name  Count  Mid", "────  ─────  ───", "a         1   x", "bcd    1000   y", "", "end"],
    );
    check(40, "|你好|b|\n|-|-|\n|x|👍🏽|", &["你好  b", "────  ────", "x     👍🏽"]);
    check(40, "a | b\n--|--\n", &["a  b", "─  ─"]);
    check(40, "a | b\nc | d", &["a | b", "c | d"]);
    check(40, "|a|b|\n|-|-|\n|1|2|3|\n|4|", &["a  b", "─  ───", "1  2|3", "4"]);
}

#[test]
fn tables_give_way_to_the_window() {
    check(
        20,
        "|key|value|\n|-|-|\n|one|a longer text than fits|\n|two|b|",
        &["key  value", "───  ───────────────", "one  a longer text", "     than fits", "two  b"],
    );
    check(10, "|k|v|w|\n|-|-|-|\n|one|two|three|\n|4||6|", &["k: one", "v: two", "w: three", "", "k: 4", "w: 6"]);
}

#[test]
fn links_show_where_they_lead() {
    check(60, "see [the docs](https://a.b/c_d_e) now", &["see the docs (https://a.b/c_d_e) now"]);
    check(60, "[https://a.b](https://a.b) <https://c.d>", &["https://a.b https://c.d"]);
    check(60, "![a cat](cat.png \"Tom\") [x]() [y]", &["a cat (cat.png \"Tom\") x [y]"]);
    check(60, "[a]: https://b.c\n\n[a] and [d][a]", &["[a]: https://b.c", "", "[a] and [d][a]"]);
    check(60, "[open](https://x", &["[open](https://x"]);
}

#[test]
fn inline_marks_go_and_strays_stay() {
    check(60, "**bold** *em* __b__ _e_ ~~gone~~ `co*de` ***both***", &["bold em b e gone co*de both"]);
    check(60, "2 * 3 * 4, snake_case_name, **open, `tick", &["2 * 3 * 4, snake_case_name, **open, `tick"]);
    check(60, "~5 or 6~ ~~7~~", &["~5 or 6~ 7"]);
    check(60, "**a *b** c", &["*a b c"]);
    check(60, "a \\* b \\_ &amp; &lt;x&gt; &copy; ``a`b``", &["a * b _ & <x> © a`b"]);
    check(60, "*", &["•"]);
    check(60, "a\\", &["a\\"]);
}

#[test]
fn mathematics_and_html_are_literal() {
    check(
        60,
        "so \\(a_1 * b_2 * \\mathbf{x}_{1} {y}_{2}\\) and \\[ x \\]",
        &["so \\(a_1 * b_2 * \\mathbf{x}_{1} {y}_{2}\\) and \\[ x \\]"],
    );
    check(60, "$a*b*c$ and **$5** to **$10**, $x$", &["$a*b*c$ and $5 to $10, $x$"]);
    check(60, "$$\n\\frac{a}{b}_{c}*d*\n$$", &["$$", "\\frac{a}{b}_{c}*d*", "$$"]);
    check(
        60,
        "<b>x</b> a<br>b\n\n<div>\n*a*\n</div>\n\nx",
        &["<b>x</b> a<br>b", "", "<div>", "*a*", "</div>", "", "x"],
    );
}

#[test]
fn narrow_windows_keep_room_for_deep_text() {
    check(10, "- a\n  - b\n    - c\n      - d e f g h\n", &["• a", "  • b", "  • c", "  • d e f", "    g h"]);
}
