//! Answers that are Markdown, as a terminal shows them and as everything else gets them.

use serde_json::json;

use super::pty::Pty;
use crate::common::{Sandbox, stdout, with_stdin};

const ANSWER: &str = "# Fruit 水果\n\nTake **two** `apples`, e\u{301}t 👩‍👩‍👧, or אבג, and eat them in the shade of a tree:\n\n\
    - red\n- green\n\n```python\ndef eat(n):\n    return n - 1\n```\n\n| what | how many |\n|---|---:|\n| apples | 12 |\n| 梨 | 3 |\n";

fn talk(columns: u16, args: &[&str], row_ms: u64) -> (Sandbox, Pty) {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[ANSWER, "Two."], json!({ "row_ms": row_ms }));
    let pty = Pty::talk_in(&sandbox, (40, columns), &model, &[&["--draft", "off", "--chat", "talk"], args].concat());
    (sandbox, pty)
}

const CODE: [&str; 2] = ["  def eat(n):", "      return n - 1"];
const TABLE: [&str; 4] = ["what    how many", "──────  ────────", "apples        12", "梨             3"];

fn expected(prose: &[&'static str]) -> Vec<&'static str> {
    let head: &[&str] = &[">>> hi", "Fruit 水果", ""];
    [head, prose, &["", "• red", "• green", ""], &CODE, &[""], &TABLE, &[">>>"]].concat()
}

#[test]
fn an_answer_is_drawn_in_windows_of_any_width() {
    let line = "Take two apples, e\u{301}t 👩‍👩‍👧, or אבג, and eat them in the shade of a tree:";
    let wide = [line];
    // Terminals disagree on the width of joined emoji; room is left for the widest.
    let narrow = ["Take two apples, e\u{301}t 👩‍👩‍👧, or אבג, and", "eat them in the shade of a tree:"];
    for (columns, prose) in [(40, &narrow[..]), (80, &wide[..]), (200, &wide[..])] {
        let (sandbox, mut pty) = talk(columns, &[], 0);
        pty.line("hi");
        pty.ends_with(&expected(prose));
        pty.with_screen(|screen| {
            let row = |text: &str| {
                let at = screen.rows(0, columns).position(|row| row.starts_with(text));
                at.unwrap_or_else(|| panic!("{text} in {:#?}", screen.contents())) as u16
            };
            let cell = |row, column| screen.cell(row, column).unwrap().clone();
            assert!(cell(row("Fruit"), 0).bold() && cell(row("Fruit"), 6).is_wide());
            assert!(cell(row("Take"), 5).bold() && !cell(row("Take"), 0).bold());
            assert_ne!(cell(row("Take"), 9).fgcolor(), vt100::Color::Default);
            assert_ne!(cell(row("  def"), 2).fgcolor(), vt100::Color::Default);
            assert!(cell(row("what"), 0).bold());
        });
        // What is copied and kept is the source.
        pty.line("/copy");
        pty.wait_for("copied");
        pty.leave();
        let said = stdout(&sandbox.qchat().args(["chats", "show", "talk"]).output().unwrap());
        assert!(said.contains("Take **two** `apples`") && said.contains("| 梨 | 3 |"), "{said}");
    }
}

#[test]
fn plain_answers_pipes_and_dumb_terminals_get_the_source() {
    let (_sandbox, mut pty) = talk(80, &["--plain"], 0);
    pty.line("hi");
    pty.wait_for("| 梨 | 3 |");
    pty.wait_for("Take **two** `apples`");
    pty.leave();
    let sandbox = Sandbox::new();
    let model = sandbox.script(&[ANSWER]);
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model);
    assert_eq!(stdout(&with_stdin(command, b"hi")), ANSWER);
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()];
    let mut pty = Pty::command(&sandbox, (40, 80), &argv, &[("TERM", "dumb")]);
    pty.wait_for(">>>");
    pty.line("hi");
    pty.wait_for("| 梨 | 3 |");
    assert!(!String::from_utf8_lossy(&pty.bytes()).contains("\x1b["));
}

#[test]
fn one_answer_at_a_terminal_is_drawn_too() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&[ANSWER]);
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap(), "hi"];
    let mut pty = Pty::command(&sandbox, (40, 80), &argv, &[("NO_COLOR", "1")]);
    assert_eq!(pty.wait_exit(), 0);
    assert!(pty.rows().ends_with(&TABLE.map(str::to_owned)), "{:#?}", pty.rows());
    assert!(pty.with_screen(|screen| !screen.cell(0, 0).unwrap().bold()));
}

#[test]
fn what_scrolled_away_is_not_written_again_and_a_resize_loses_nothing() {
    let sandbox = Sandbox::new();
    let words: Vec<String> = (0..400).map(|n| format!("w{n}")).collect();
    let text = words.chunks(20).map(|words| words.join(" ")).collect::<Vec<_>>().join("\n\n");
    let model = sandbox.script_with(&[&text], json!({ "row_ms": 1 }));
    let mut pty = Pty::talk_in(&sandbox, (10, 60), &model, &["--draft", "off"]);
    pty.line("hi");
    pty.wait_for("w150 ");
    pty.resize(12, 47);
    pty.wait_for("w250 ");
    pty.resize(10, 70);
    pty.wait_for("w399");
    pty.at_prompt();
    // Every word came once, in order, whatever was drawn anew on the way.
    let bytes = String::from_utf8_lossy(&pty.bytes()).into_owned();
    let clean = qchat::ui::clean::Cleaner::default().clean(&bytes);
    let came: Vec<&str> = clean.split_whitespace().filter(|word| words.iter().any(|own| own == word)).collect();
    let mut firsts = Vec::new();
    for word in came {
        if !firsts.contains(&word) {
            firsts.push(word);
        }
    }
    assert_eq!(firsts.len(), 400);
    assert_eq!(firsts, words);
    pty.leave();
}
