//! Messages that come from elsewhere than the line, answers that go elsewhere, and signals that end a talk.

use serde_json::json;

use super::pty::Pty;
use crate::common::{Sandbox, stdout};

/// A talk with an editor that a shell script plays.
fn edited(sandbox: &Sandbox, script: &str) -> Pty {
    let editor = sandbox.write("editor", script);
    let model = sandbox.script(&["One.", "Two.", "Three."]);
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap(), "--chat", "talk"];
    let pty = Pty::command(sandbox, (40, 80), &argv, &[("EDITOR", &format!("sh {}", editor.display()))]);
    pty.at_prompt();
    pty
}

fn shown(sandbox: &Sandbox) -> String {
    stdout(&sandbox.qchat().args(["chats", "show", "talk"]).output().unwrap())
}

#[test]
fn edit_changes_the_last_message_and_asks_again() {
    let sandbox = Sandbox::new();
    let mut pty = edited(&sandbox, "sed -i s/cold/warm/ \"$1\"");
    pty.line("is it cold?");
    pty.ends_with(&[">>> is it cold?", "One.", ">>>"]);
    pty.line("/edit");
    // The first message again, so its reply is the first.
    pty.ends_with(&[">>> /edit", ">>> is it warm?", "One.", ">>>"]);
    // Nothing to change: nothing happens.
    pty.line("/edit");
    pty.ends_with(&[">>> /edit", "(nothing changed)", ">>>"]);
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains("is it warm?") && !said.contains("cold"), "{said}");
}

#[test]
fn edit_new_writes_a_message_of_several_lines() {
    let sandbox = Sandbox::new();
    let mut pty = edited(&sandbox, "printf 'first\\nsecond\\n' > \"$1\"");
    pty.line("/edit new");
    pty.ends_with(&[">>> /edit new", ">>> first", "second", "One.", ">>>"]);
    pty.line("/edit it");
    pty.ends_with(&["qchat: '/edit it' is none. /edit, or /edit new", ">>>"]);
    pty.leave();
}

#[test]
fn an_editor_that_fails_costs_nothing() {
    let sandbox = Sandbox::new();
    let mut pty = edited(&sandbox, "exit 1");
    pty.line("hi");
    pty.ends_with(&["One.", ">>>"]);
    pty.line("/edit");
    pty.wait_for("set VISUAL or EDITOR");
    pty.at_prompt();
    pty.line("more");
    pty.ends_with(&[">>> more", "Two.", ">>>"]);
    pty.leave();
}

#[test]
fn a_file_goes_before_the_message() {
    let sandbox = Sandbox::new();
    sandbox.write("notes with spaces.txt", "the notes\nof today\n");
    sandbox.write("a.txt", "alpha\n");
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two."]), &["--chat", "talk"]);
    pty.line("/file notes with spaces.txt");
    pty.ends_with(&["notes with spaces.txt (2 lines) goes before the next message", ">>>"]);
    pty.line("what is in it?");
    pty.ends_with(&["One.", ">>>"]);
    pty.line("/file a.txt and in this?");
    pty.ends_with(&["Two.", ">>>"]);
    pty.line("/file nowhere.txt");
    pty.wait_for("nowhere.txt cannot be read");
    pty.line("/file");
    pty.wait_for("/file PATH, or /file PATH QUESTION");
    pty.leave();
    let said = shown(&sandbox);
    assert!(said.contains("the notes\nof today\n\nwhat is in it?") && said.contains("alpha\n\nand in this?"), "{said}");
}

#[test]
fn copy_hands_the_last_answer_to_the_terminal() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["foobar"]), &[]);
    pty.line("/copy");
    pty.ends_with(&["qchat: nothing was answered yet. ask something first", ">>>"]);
    pty.line("hi");
    pty.ends_with(&["foobar", ">>>"]);
    pty.line("/copy");
    pty.ends_with(&["copied (the terminal, 6 characters)", ">>>"]);
    // OSC 52 with the answer in base64 (RFC 4648's own example).
    assert!(pty.bytes().windows(15).any(|bytes| bytes == b"\x1b]52;c;Zm9vYmFy"));
    pty.leave();
}

#[test]
fn a_signal_that_ends_a_talk_keeps_what_was_said() {
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let sandbox = Sandbox::new();
        let long = "one two three ".repeat(200);
        let model = sandbox.script_with(&[&long], json!({ "row_ms": 4 }));
        let mut pty = Pty::talk(&sandbox, &model, &["--chat", "talk"]);
        pty.line("count");
        pty.wait_for("one two");
        Pty::signal(pty.pid(), signal);
        assert_eq!(pty.wait_exit(), code, "{signal}");
        let said = shown(&sandbox);
        assert!(said.contains("count") && said.contains("one two"), "{said}");
        // At the prompt too, where the terminal is in the editor's hands.
        let shell = format!("{} run model.script; stty -a", env!("CARGO_BIN_EXE_qchat"));
        let mut pty = Pty::command(&sandbox, (40, 100), &["/bin/sh", "-c", &shell], &[]);
        pty.at_prompt();
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pty.pid())).unwrap();
        Pty::signal(children.trim().parse().unwrap(), signal);
        pty.wait_exit();
        let said = pty.rows().concat();
        assert!(said.contains(" icanon") && said.contains(" echo "), "{said}");
    }
}
