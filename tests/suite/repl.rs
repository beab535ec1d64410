//! The REPL at a terminal: what is typed, what the cells of the screen say then, and what the talk is afterwards.

use serde_json::json;

use super::pty::{CTRL_C, CTRL_D, Pty};
use crate::common::Sandbox;

const HELP: &str = "model - /help for commands, Ctrl-D to leave";

#[test]
fn two_messages_and_the_end() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["Hello.", "Fine.\nThanks."]), &[]);
    pty.line("hi");
    pty.at_prompt();
    pty.line("how are you?");
    pty.ends_with(&[HELP, ">>> hi", "Hello.", ">>> how are you?", "Fine.", "Thanks.", ">>>"]);
    pty.line("   ");
    pty.ends_with(&["Thanks.", ">>>", ">>>"]);
    pty.leave();
    // The terminal is as it was: the next program begins at the start of a line, and pasted text is not marked.
    let mut shell = Pty::command(
        &sandbox,
        (40, 80),
        &["/bin/sh", "-c", &format!("{} run model.script; echo then", env!("CARGO_BIN_EXE_qchat"))],
        &[],
    );
    shell.at_prompt();
    shell.send(CTRL_D);
    assert_eq!(shell.wait_exit(), 0);
    assert_eq!(shell.rows(), [HELP, ">>>", "then"]);
    assert!(!shell.with_screen(vt100::Screen::bracketed_paste));
}

#[test]
fn commands_say_what_they_did() {
    let sandbox = Sandbox::new();
    let mut pty =
        Pty::talk(&sandbox, &sandbox.script(&["One.", "Two."]), &["--temp", "0.5", "--seed", "7", "--chat", "talk"]);
    let mut answers = |command: &str, rows: &[&str]| {
        pty.line(command);
        let typed = format!(">>> {command}");
        pty.ends_with(&[&[typed.as_str()], rows, &[">>>"]].concat());
    };
    answers("/stats", &["nothing was answered yet"]);
    answers("/undo", &["there is nothing to undo"]);
    answers("/retry", &["qchat: there is nothing to retry. ask something first"]);
    answers("/frob x", &["qchat: there is no command /frob. /help lists them"]);
    answers("/etc/hosts is what?", &["One."]);
    answers("/system", &["(no system prompt)"]);
    answers("/system Be \"brief\"", &["the system prompt is set; it counts from the next message on"]);
    answers("/system", &["Be \"brief\""]);
    answers("/system \"\"", &["there is no system prompt from the next message on"]);
    answers("/system", &["(no system prompt)"]);
    answers("/model", &["model"]);
    answers("/clear", &["the talk is forgotten"]);
    answers("hi", &["One."]);
    for (typed, problem) in [
        ("frob 1", "there is no setting 'frob'. /set lists them"),
        ("temperature 11", "/set temperature 11: a number from 0 to 10 is needed"),
        ("temperature warm", "/set temperature warm: a number from 0 to 10 is needed"),
        ("temperature", "/set temperature: a number from 0 to 10 is needed"),
        ("top_p 1.1", "/set top_p 1.1: a number from 0 to 1 is needed"),
        ("min_p -1", "/set min_p -1: a number from 0 to 1 is needed"),
        ("repeat_penalty 0", "/set repeat_penalty 0: a number from 0.1 to 10 is needed"),
        ("top_k -1", "/set top_k -1: a whole number is needed"),
        ("seed x", "/set seed x: a whole number is needed"),
        ("max_tokens 1.5", "/set max_tokens 1.5: a whole number is needed"),
        ("reasoning maybe", "/set reasoning maybe: show, fold or hide is needed. /set thinking off ends thoughts"),
        ("reasoning_budget x", "/set reasoning_budget x: a whole number is needed"),
        ("thinking maybe", "/set thinking maybe: on or off is needed"),
    ] {
        answers(&format!("/set {typed}"), &[&format!("qchat: {problem}")]);
    }
    for typed in
        ["temperature 0", "top_k 3", "top_p 0.5", "min_p 0.25", "repeat_penalty 1.5", "seed 9", "reasoning hide"]
    {
        answers(&format!("/set {typed}"), &[]);
    }
    answers("/set stop wo", &[]);
    answers("/set max_tokens 5", &[]);
    pty.line("/show");
    pty.ends_with(&[
        ">>> /show",
        "model             model",
        "drafts            n-grams draft where that pays; no draft model fits",
        "chat              talk",
        "context           4096 of at most 4096 tokens, 25 used",
        "temperature       0",
        "top_k             3",
        "top_p             0.5",
        "min_p             0.25",
        "repeat_penalty    1.5",
        "seed              9",
        "max_tokens        5",
        "stop              [\"wo\"]",
        "thinking          as the model does (its template has no switch)",
        "reasoning         hide",
        "reasoning_budget  no limit",
        ">>>",
    ]);
    pty.line("more");
    pty.ends_with(&[">>> more", "T", ">>>"]);
    pty.line("/stats");
    pty.wait_for("prompt 50 tokens (25 cached), first token after");
    pty.at_prompt();
    pty.line("/help");
    pty.wait_for("/quit                  leave (Ctrl-D does too)");
    pty.at_prompt();
    pty.line("/quit");
    assert_eq!(pty.wait_exit(), 0);
}

#[test]
fn retry_undo_and_clear_change_what_the_model_reads() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two.", "Three."]), &["--seed", "4"]);
    pty.line("a");
    pty.at_prompt();
    pty.line("b");
    pty.at_prompt();
    pty.line("/retry");
    pty.ends_with(&[">>> /retry", "Two.", "(answer 2 of 2; /other shows the others)", ">>>"]);
    for (typed, answer) in [
        ("/undo", "taken back: b"),
        ("c", "Two."),
        ("d", "Three."),
        ("/clear", "the talk is forgotten"),
        ("e", "One."),
        ("/undo", "taken back: e"),
        ("f", "One."),
    ] {
        pty.line(typed);
        pty.ends_with(&[&format!(">>> {typed}"), answer, ">>>"]);
    }
    pty.line("/show");
    pty.wait_for("seed              5");
    pty.leave();
}

#[test]
fn another_model_takes_the_talk_over_and_a_missing_one_does_not() {
    let sandbox = Sandbox::new();
    let first = sandbox.script(&["One.", "Two.", "Three."]);
    sandbox.write("other.script", json!({ "replies": ["Eins.", "Zwei.", "Drei."] }).to_string());
    sandbox.write("broken.script", "{");
    sandbox.write("slow.script", json!({ "replies": [], "load_ms": 60_000 }).to_string());
    let mut pty = Pty::talk(&sandbox, &first, &[]);
    pty.line("a");
    pty.at_prompt();
    pty.line("/model ./missing.gguf");
    pty.ends_with(&["qchat: ./missing.gguf does not exist. `qchat list` shows the models that are here", ">>>"]);
    pty.line("/model no-such-model-at-all");
    pty.wait_for("no-such-model-at-all");
    pty.at_prompt();
    pty.line("/model ./broken.script");
    pty.wait_for("qchat: ./broken.script cannot be loaded");
    pty.at_prompt();
    pty.line("/model ./slow.script");
    pty.wait_for("loading slow");
    pty.send(CTRL_C);
    pty.ends_with(&["(stopped)", ">>>"]);
    pty.line("/model");
    pty.ends_with(&[">>> /model", "model", ">>>"]);
    pty.line("b");
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    pty.line("/model ./other.script");
    pty.ends_with(&["the talk goes on with other", ">>>"]);
    pty.line("c");
    pty.ends_with(&[">>> c", "Drei.", ">>>"]);
    pty.leave();
}

#[test]
fn control_sequences_of_a_model_do_not_reach_the_terminal() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["a\u{1b}]52;c;aGk=\u{7}b\u{1b}[2Jc\u{9b}31md"]);
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("hi");
    pty.ends_with(&[HELP, ">>> hi", "abcd", ">>>"]);
    let bytes = String::from_utf8_lossy(&pty.bytes()).into_owned();
    assert!(!bytes.contains("52;c") && !bytes.contains("[2J") && !bytes.contains('\u{9b}'), "{bytes:?}");
    pty.leave();
}

#[test]
fn thoughts_are_dimmed_or_hidden() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>\nhm\n</think>\n\nOne."]);
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("hi");
    pty.ends_with(&[">>> hi", "(thought for 1s)", "", "One.", ">>>"]);
    let dims = |pty: &Pty, row| pty.with_screen(|screen| screen.cell(row, 0).unwrap().dim());
    assert!(dims(&pty, 2) && !dims(&pty, 4));
    pty.line("/thoughts");
    pty.ends_with(&[">>> /thoughts", "hm", ">>>"]);
    pty.line("/set reasoning show");
    pty.at_prompt();
    pty.line("/clear");
    pty.at_prompt();
    pty.line("hi");
    pty.ends_with(&[">>> hi", "hm", "", "One.", ">>>"]);
    assert!(dims(&pty, 11) && !dims(&pty, 13), "{:?}", pty.rows());
    pty.line("/set reasoning hide");
    pty.at_prompt();
    pty.line("/retry");
    pty.ends_with(&[">>> /retry", "One.", "(answer 2 of 2; /other shows the others)", ">>>"]);
    pty.leave();
}

#[test]
fn a_model_without_a_template_is_warned_of() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One."], json!({ "no_template": true }));
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("hi");
    pty.ends_with(&["qchat: the model brings no chat template; ChatML is used", HELP, ">>> hi", "One.", ">>>"]);
    pty.leave();
}

#[test]
fn a_pipe_gets_answers_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.script(&["<think>hm</think>One.", "\u{1b}[1mTwo."]);
    let command = format!("{} run model.script | cat > said", env!("CARGO_BIN_EXE_qchat"));
    let mut pty = Pty::command(&sandbox, (40, 80), &["/bin/sh", "-c", &command], &[]);
    pty.at_prompt();
    pty.line("hi");
    pty.ends_with(&[">>> hi", ">>>"]);
    pty.line("/system");
    pty.ends_with(&["(no system prompt)", ">>>"]);
    pty.line("more");
    pty.ends_with(&[">>> more", ">>>"]);
    pty.send(CTRL_D);
    assert_eq!(pty.wait_exit(), 0);
    assert_eq!(std::fs::read_to_string(sandbox.path("said")).unwrap(), "One.\n\u{1b}[1mTwo.\n");
}

#[test]
fn a_full_context_drops_the_oldest_messages_and_says_so() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "context": 90 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--system", "S"]);
    for (typed, rows) in [
        ("a", &["One."][..]),
        ("b", &["Two."][..]),
        ("c", &["the context of 90 tokens is full: the 2 oldest messages were dropped", "Two."][..]),
    ] {
        pty.line(typed);
        pty.ends_with(&[&[format!(">>> {typed}").as_str()], rows, &[">>>"]].concat());
    }
    // A message that can never fit costs the talk nothing.
    pty.line(&"x".repeat(130));
    pty.wait_for("too many");
    pty.at_prompt();
    pty.line("/undo");
    pty.ends_with(&["taken back: c", ">>>"]);
    pty.line("/undo");
    pty.ends_with(&["taken back: b", ">>>"]);
    pty.leave();
}

#[test]
fn a_home_that_cannot_be_written_to_is_warned_of_once() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()];
    let mut pty = Pty::command(&sandbox, (40, 120), &argv, &[("QCHAT_HOME", "/dev/null/x")]);
    pty.at_prompt();
    pty.line("a");
    pty.ends_with(&["One.", ">>>"]);
    pty.line("b");
    pty.wait_for("Two.");
    pty.at_prompt();
    let warned = |of: &str| pty.rows().iter().filter(|row| row.contains(of)).count();
    assert_eq!(warned("the line history /dev/null/x"), 1, "{:?}", pty.rows());
    assert_eq!(warned("this talk is kept no further"), 1, "{:?}", pty.rows());
    // Once the model's files are known, which another thread finds out.
    assert!(warned("the prefix cache") <= 1, "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn stats_and_quiet_change_what_is_said_around_answers() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One."]);
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &["--stats"]);
    pty.line("hi");
    pty.wait_for("prompt 21 tokens (0 cached), first token after ");
    pty.at_prompt();
    assert!(
        pty.rows().iter().any(|row| row.contains(" t/s, 4 tokens, no drafts (none promised to pay)")),
        "{:?}",
        pty.rows()
    );
    pty.leave();
    // Quiet or not, a command gets its answer.
    let mut pty = Pty::talk(&sandbox, &model, &["-q"]);
    pty.line("/model");
    pty.ends_with(&[">>> /model", "model", ">>>"]);
    pty.line("/frob");
    pty.ends_with(&["qchat: there is no command /frob. /help lists them", ">>>"]);
    pty.line("/clear");
    pty.ends_with(&[">>> /clear", ">>>"]);
    assert_eq!(pty.rows()[0], ">>> /model");
    pty.leave();
}
