//! Answers in a talk: several to one question, thoughts that grow too long, pastes, files by name, keys, and a fault.

use serde_json::json;

use super::pty::{CTRL_C, Pty};
use crate::common::{Sandbox, stdout};

fn shown(sandbox: &Sandbox) -> String {
    stdout(&sandbox.qchat().args(["chats", "show", "talk"]).output().unwrap())
}

#[test]
fn answers_to_one_question_can_be_stepped_through() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[], json!({ "random": { "seed": 1, "spread": 3.0 } }));
    let args = ["--chat", "talk", "--max-tokens", "12", "--temp", "1", "--draft", "off"];
    let mut pty = Pty::talk(&sandbox, &model, &args);
    pty.line("/other");
    pty.ends_with(&["qchat: there is only one answer. /retry makes another one", ">>>"]);
    pty.line("a");
    pty.at_prompt();
    let answer = |pty: &Pty, back: usize| pty.rows()[pty.rows().len() - back].clone();
    let first = answer(&pty, 2);
    pty.line("/retry");
    pty.ends_with(&["(answer 2 of 2; /other shows the others)", ">>>"]);
    let second = answer(&pty, 3);
    assert!(first.len() == 12 && second.len() == 12 && first != second, "{first} {second}");
    pty.says("/other", &[&first, "(answer 1 of 2; the talk goes on with it)"]);
    pty.says("/other", &[&second, "(answer 2 of 2; the talk goes on with it)"]);
    pty.says("/other 3", &["qchat: /other 3: a number from 1 to 2 is needed"]);
    pty.says("/other 1", &[&first, "(answer 1 of 2; the talk goes on with it)"]);
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains(&first) && !said.contains(&second), "{said}");
    // Another process knows both.
    let mut pty = Pty::run(&sandbox, &["--chat", "talk", "--max-tokens", "12"]);
    pty.says("/other", &[&second, "(answer 2 of 2; the talk goes on with it)"]);
    pty.line("more");
    pty.at_prompt();
    pty.says("/other", &["qchat: there is only one answer. /retry makes another one"]);
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains(&second) && !said.contains(&first), "{said}");
}

#[test]
fn thoughts_that_grow_too_long_are_ended() {
    let sandbox = Sandbox::new();
    // What ends thoughts is 11 tokens of this vocabulary; the reply goes on behind as many.
    let model = sandbox.script(&["<think>12345678901234567890 and so on</think>\n\nFour."]);
    let ask = |args: &[&str]| {
        let output = sandbox.run(&model, &[&["hi", "--output", "json"], args].concat());
        let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        (answer["reasoning"].as_str().unwrap_or("").to_owned(), answer["content"].as_str().unwrap().to_owned())
    };
    assert_eq!(ask(&[]), ("12345678901234567890 and so on".into(), "Four.".into()));
    // Thoughts, a line end, and what the script has after as many tokens.
    let after = &"901234567890 and so on</think>\n\nFour."[11..];
    let (thoughts, content) = ask(&["--reasoning-budget", "8"]);
    assert_eq!(thoughts, "12345678\n");
    assert_eq!(content, after.trim_start());
    assert_eq!(ask(&["--reasoning-budget", "0"]).0, "\n");
    assert_eq!(ask(&["--reasoning-budget", "100"]).1, "Four.");
    // A drafter proposes what the budget forbids, and is judged by what comes.
    let drafted = ask(&["--reasoning-budget", "12", "--draft", "auto"]);
    assert_eq!(drafted, ask(&["--reasoning-budget", "12", "--draft", "off"]));
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.says("/set reasoning_budget 4", &[]);
    pty.line("hi");
    pty.wait_for("(thought for 1s)");
    pty.at_prompt();
    pty.says("/thoughts", &["1234"]);
    pty.says(
        "/set thinking off",
        &["qchat: the chat template of model has no switch for thoughts. /set reasoning_budget 0 ends them at once"],
    );
    pty.leave();
}

#[test]
fn thoughts_are_seen_while_they_come_and_leave_one_line() {
    let sandbox = Sandbox::new();
    let thoughts: Vec<String> = (1..=30).map(|number| format!("thought {number} of a long chain\n")).collect();
    let model =
        sandbox.script_with(&[&format!("<think>\n{}</think>\n\nFour.", thoughts.concat())], json!({ "row_ms": 1 }));
    for columns in [40, 80, 200] {
        let mut pty = Pty::talk_in(&sandbox, (12, columns), &model, &["--draft", "off"]);
        pty.line("hi");
        pty.wait_for("│ thought 9 of a long chain");
        let rows = pty.rows();
        assert!(rows.iter().filter(|row| row.starts_with('│')).count() <= 4, "{rows:#?}");
        pty.ends_with(&["Four.", ">>>"]);
        let rows = pty.rows();
        let last = &rows[rows.len() - 5..];
        assert!(last[0] == ">>> hi" && last[1].starts_with("(thought for ") && last[2].is_empty(), "{rows:#?}");
        pty.leave();
    }
}

#[test]
fn a_long_paste_is_one_message_and_shown_folded() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "context": 400_000 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "talk"]);
    let lines: Vec<String> = (1..=3100).map(|n| format!("{n:05} 你好, the text of a line, e\u{301}\r")).collect();
    let text = lines.concat();
    assert!(text.chars().count() > 100_000);
    let began = std::time::Instant::now();
    pty.send("sum up: ");
    pty.send(&format!("\x1b[200~{text}\x1b[201~ briefly"));
    pty.ends_with(&[">>> sum up: [paste 1: 3100 lines, 102,300 characters] briefly"]);
    let took = began.elapsed();
    pty.send("\r");
    pty.ends_with(&["One.", ">>>"]);
    assert!(took.as_secs_f64() < 2.0, "{took:?}");
    // Short ones are as they were typed.
    pty.send("\x1b[200~a\rb\x1b[201~\r");
    pty.ends_with(&[">>> a", "b", "Two.", ">>>"]);
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains("sum up: 00001 你好") && said.contains("03100 你好, the text of a line, e\u{301}\n briefly"));
    let history = std::fs::read_to_string(sandbox.path("qchat/data/history")).unwrap();
    assert!(!history.contains("[paste"), "{history}");
}

#[test]
fn a_file_named_with_an_at_sign_goes_before_the_message() {
    let sandbox = Sandbox::new();
    sandbox.write("notes of today.md", "the notes\n");
    sandbox.write("binary", b"\0\0");
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two."]), &["--chat", "talk"]);
    pty.send("what is in @not\t");
    pty.ends_with(&[">>> what is in @notes\\ of\\ today.md"]);
    pty.send("? ask @alice\r");
    pty.ends_with(&["(notes of today.md, 1 line, goes before the message)", "One.", ">>>"]);
    pty.line("@binary");
    pty.ends_with(&[
        "qchat: binary is not text: byte 0 is NUL. take a text file, or one made into text, as with pdftotext",
        ">>>",
    ]);
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains("the notes\n\nwhat is in @notes\\ of\\ today.md? ask @alice"), "{said}");
    assert!(!said.contains("binary"), "{said}");
}

#[test]
fn the_keys_of_vi_are_there() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two."]), &["--editing", "vi"]);
    // To the beginning, one word away, another one in.
    pty.send("two words\x1b");
    std::thread::sleep(std::time::Duration::from_millis(700));
    pty.send("0dwihello ");
    pty.ends_with(&[">>> hello words"]);
    pty.send("\r");
    pty.ends_with(&[">>> hello words", "One.", ">>>"]);
    pty.leave();
}

#[test]
fn the_history_can_be_searched() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.says("the first question", &["One."]);
    pty.says("another one", &["Two."]);
    pty.leave();
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.send("\x12first");
    pty.wait_for("the first question");
    pty.send("\r");
    pty.ends_with(&[">>> the first question", "One.", ">>>"]);
    pty.leave();
}

#[test]
fn keys_typed_while_it_answers_wait_for_the_prompt() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["one two three four five", "Two."], json!({ "row_ms": 15 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--draft", "off"]);
    pty.line("a");
    pty.wait_for("one two");
    pty.send("next\r");
    pty.ends_with(&[">>> a", "one two three four five", ">>> next", "Two.", ">>>"]);
    pty.leave();
}

#[test]
fn a_fault_leaves_the_terminal_as_it_was() {
    let sandbox = Sandbox::new();
    sandbox.script_with(&["<think>so it is", "Two."], json!({ "row_ms": 5, "panics_at": 10 }));
    let shell = format!(
        "stty -a > before; {} run model.script --chat talk --draft off; echo ended $?; stty -a > after",
        env!("CARGO_BIN_EXE_qchat")
    );
    let mut pty = Pty::command(&sandbox, (40, 100), &["/bin/sh", "-c", &shell], &[]);
    pty.at_prompt();
    pty.line("hi");
    pty.wait_for("ended 1");
    assert_eq!(pty.wait_exit(), 0);
    let rows = pty.rows();
    assert!(rows.iter().any(|row| row.starts_with("qchat: this is a fault of qchat itself (src/")), "{rows:#?}");
    let settings = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
    assert!(settings("after").contains(" echo "), "{}", settings("after"));
    let last = rows.len() - 1;
    assert!(pty.with_screen(|screen| !screen.cell(last as u16, 0).unwrap().dim() && !screen.hide_cursor()));
    assert!(shown(&sandbox).contains("hi"));
}

#[test]
fn a_stop_in_the_middle_of_thoughts_folds_them() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[&format!("<think>{}", "hm and ".repeat(200)), "Two."], json!({ "row_ms": 5 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--draft", "off"]);
    pty.line("hi");
    pty.wait_for("│ hm and");
    pty.send(CTRL_C);
    pty.ends_with(&[">>> hi", "(thought for 1s)", "(stopped)", ">>>"]);
    pty.leave();
}

#[test]
fn a_long_prompt_says_how_long_it_still_takes_and_leaves_no_trace() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "row_ms": 1 }));
    for columns in [40, 80, 200] {
        let mut pty = Pty::talk_in(&sandbox, (12, columns), &model, &["--private"]);
        pty.send(&format!("\x1b[200~{}\x1b[201~\r", "x".repeat(2100)));
        // 2,121 rows of 1 ms.
        pty.ends_with(&[">>> [paste 1: 1 line, 2,100 characters]", "One.", ">>>"]);
        // It may come and go between two looks at the screen.
        let told = String::from_utf8_lossy(&pty.bytes()).into_owned();
        assert!(told.contains("reading the prompt") && told.contains("s left"), "{columns}: {told:?}");
        pty.leave();
    }
}
