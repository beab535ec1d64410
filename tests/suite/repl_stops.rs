//! Ctrl-C at each stage of a talk, and the talk afterwards.

use serde_json::json;

use super::pty::{CTRL_C, Pty};
use crate::common::Sandbox;

const EXPLAINS: &str = "Ctrl-D or /quit leaves; Ctrl-C stops an answer";

#[test]
fn ctrl_c_while_it_loads_ends_the_program() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One."], json!({ "load_ms": 60_000 }));
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()];
    let mut pty = Pty::command(&sandbox, (40, 80), &argv, &[]);
    pty.wait_for("loading model");
    pty.send(CTRL_C);
    assert_eq!(pty.wait_exit(), 130);
    // No prompt was there, and the shell's next one begins a line.
    assert!(!pty.rows().concat().contains(">>>"), "{:?}", pty.rows());
    assert_eq!(pty.with_screen(|screen| screen.cursor_position().1), 0);
}

#[test]
fn ctrl_c_while_it_reads_leaves_a_talk_that_goes_on() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "row_ms": 1 }));
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &[]);
    pty.line("a");
    pty.ends_with(&["One.", ">>>"]);
    pty.line(&format!("\"\"\"\n{}\n\"\"\"", "long\n".repeat(2)));
    pty.ends_with(&["Two.", ">>>"]);
    pty.line("/undo");
    pty.at_prompt();
    pty.line(&format!("\x1b[200~{}\x1b[201~", "word ".repeat(700)));
    pty.at_work();
    pty.send(CTRL_C);
    pty.ends_with(&["(stopped)", ">>>"]);
    // The message stays, and what follows joins it.
    pty.line("/retry");
    pty.at_work();
    pty.send(CTRL_C);
    pty.ends_with(&[">>> /retry", "(stopped)", ">>>"]);
    pty.line("/undo");
    pty.at_prompt();
    pty.line("c");
    pty.ends_with(&[">>> c", "Two.", ">>>"]);
    pty.leave();
}

#[test]
fn ctrl_c_while_it_answers_keeps_what_was_said() {
    let sandbox = Sandbox::new();
    let long = "one two three ".repeat(100);
    let model = sandbox.script_with(&[&long, "Two."], json!({ "row_ms": 4 }));
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("a");
    pty.wait_for("one two");
    pty.send(CTRL_C);
    pty.ends_with(&["(stopped)", ">>>"]);
    // What was said is an answer: the next message is the second one.
    pty.line("b");
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    pty.line("/stats");
    pty.wait_for(" cached), first token after");
    pty.leave();
}

#[test]
fn ctrl_c_at_a_prompt_explains_how_to_leave() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One."]), &[]);
    pty.send(CTRL_C);
    pty.ends_with(&[EXPLAINS, ">>>"]);
    pty.send("half a message");
    pty.wait_for("half a message");
    pty.send(CTRL_C);
    pty.at_prompt();
    pty.line("hi");
    pty.ends_with(&[">>> hi", "One.", ">>>"]);
    pty.line("\"\"\"");
    pty.send("half a block");
    pty.send(CTRL_C);
    pty.at_prompt();
    // A signal from elsewhere at a prompt does not stop the answer that comes next.
    pty.interrupt();
    pty.line("hi");
    pty.ends_with(&[">>> hi", "One.", ">>>"]);
    // Ctrl-D with something typed does not leave.
    pty.send("x\x04y\r");
    pty.ends_with(&[">>> xy", "One.", ">>>"]);
    pty.leave();
}

#[test]
fn what_is_typed_during_an_answer_are_the_next_messages() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["one two three four", "Two.", "Three."], json!({ "row_ms": 5 }));
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("a");
    pty.wait_for("one");
    pty.send("b\rc\r");
    pty.ends_with(&[">>> b", "Two.", ">>> c", "Three.", ">>>"]);
    pty.leave();
}

#[test]
fn a_retry_that_is_stopped_before_it_answers_keeps_the_answer() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "row_ms": 2, "can_trim": false }));
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &[]);
    pty.line(&"word ".repeat(100));
    // Said once.
    pty.ends_with(&["One.", "no drafts: this model's state cannot be cut back", ">>>"]);
    pty.line("/retry");
    pty.at_work();
    pty.send(CTRL_C);
    pty.ends_with(&[">>> /retry", "(stopped)", ">>>"]);
    pty.line("b");
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    pty.leave();
}
