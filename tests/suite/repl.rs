//! The REPL at a terminal: what is typed, what the cells of the screen say then, and what the talk is afterwards.

use serde_json::json;

use super::pty::{CTRL_C, CTRL_D, Pty, UP};
use crate::common::Sandbox;

const HELP: &str = "model - /help for commands, Ctrl-D to leave";
const EXPLAINS: &str = "Ctrl-D or /quit leaves; Ctrl-C stops an answer";

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
fn the_history_is_there_in_the_next_session() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("first 你好");
    pty.at_prompt();
    pty.line("/show");
    pty.at_prompt();
    pty.line("\"\"\"");
    pty.line("a");
    pty.line("b\"\"\"");
    pty.ends_with(&["Two.", ">>>"]);
    pty.leave();
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.send(UP);
    pty.ends_with(&[">>> \"\"\"", "a", "b\"\"\""]);
    // From the first row of a block on, Up goes to the line before.
    pty.send(&UP.repeat(3));
    pty.ends_with(&[">>> /show"]);
    pty.send(UP);
    pty.ends_with(&[">>> first 你好"]);
    pty.send("\r");
    pty.ends_with(&[">>> first 你好", "One.", ">>>"]);
    pty.leave();
}

#[test]
fn blocks_backslashes_and_pastes_are_one_message() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two.", "Three.", "Four."]), &[]);
    pty.line("\"\"\"");
    pty.line("a");
    pty.line("b");
    pty.line("\"\"\"");
    pty.ends_with(&[">>> \"\"\"", "a", "b", "\"\"\"", "One.", ">>>"]);
    pty.line("c\\");
    pty.line("d");
    pty.ends_with(&[">>> c\\", "d", "Two.", ">>>"]);
    pty.send("\x1b[200~e\nf\r\ng\rh\x1b[201~");
    pty.ends_with(&["Two.", ">>> e", "f", "g", "h"]);
    pty.send("\r");
    pty.ends_with(&["h", "Three.", ">>>"]);
    for message in ["e f g h", "c d", "a b"] {
        pty.line("/undo");
        pty.ends_with(&[">>> /undo", &format!("taken back: {message}"), ">>>"]);
    }
    // A pasted line end does not send.
    pty.send("\x1b[200~line\n\x1b[201~");
    pty.ends_with(&[">>> line"]);
    pty.send("\r");
    pty.ends_with(&["One.", ">>>"]);
    pty.leave();
}

#[test]
fn tab_completes_commands_models_and_paths() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One."]), &[]);
    pty.send("/he\t");
    pty.ends_with(&[">>> /help"]);
    pty.send("\x15/model qwen2.5-0\t");
    pty.ends_with(&[">>> /model qwen2.5-0.5b"]);
    pty.send("\x15/model ./mod\t");
    pty.ends_with(&[">>> /model ./model.script"]);
    pty.send("\x15read mod\t");
    pty.ends_with(&[">>> read model.script"]);
    pty.send("\x15");
    pty.leave();
}

#[test]
fn commands_say_what_they_did() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One.", "Two."]), &["--temp", "0.5", "--seed", "7"]);
    let mut answers = |command: &str, rows: &[&str]| {
        pty.line(command);
        let typed = format!(">>> {command}");
        pty.ends_with(&[&[typed.as_str()], rows, &[">>>"]].concat());
    };
    answers("/stats", &["nothing was answered yet"]);
    answers("/undo", &["there is nothing to undo"]);
    answers("/retry", &["qchat: there is nothing to retry"]);
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
        ("reasoning maybe", "/set reasoning maybe: show or hide is needed"),
    ] {
        answers(&format!("/set {typed}"), &[&format!("qchat: {problem}")]);
    }
    for typed in
        ["temperature 0", "top_k 3", "top_p 0.5", "min_p 0.25", "repeat_penalty 1.5", "seed 9", "reasoning off"]
    {
        answers(&format!("/set {typed}"), &[]);
    }
    answers("/set stop wo", &[]);
    answers("/set max_tokens 5", &[]);
    pty.line("/show");
    pty.ends_with(&[
        ">>> /show",
        "model           model",
        "context         4096 of at most 4096 tokens, 25 used",
        "temperature     0",
        "top_k           3",
        "top_p           0.5",
        "min_p           0.25",
        "repeat_penalty  1.5",
        "seed            9",
        "max_tokens      5",
        "stop            [\"wo\"]",
        "reasoning       hide",
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
    for (typed, answer) in [
        ("a", "One."),
        ("b", "Two."),
        ("/retry", "Two."),
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
    pty.wait_for("seed            5");
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
    pty.at_work();
    pty.send(CTRL_C);
    pty.at_prompt();
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
    pty.ends_with(&[">>> /retry", "^C", "(stopped)", ">>>"]);
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
    pty.wait_for("^C");
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
fn wide_characters_take_two_cells() {
    for cols in [40, 80] {
        let sandbox = Sandbox::new();
        let long = "你".repeat(25);
        let model = sandbox.script(&[&format!("{long}！"), "😀 ok", "Three."]);
        let mut pty = Pty::talk_in(&sandbox, (30, cols), &model, &[]);
        pty.line("你好");
        pty.ends_with(&[">>> 你好", &format!("{long}！"), ">>>"]);
        let wide = |row, col| pty.with_screen(|screen| screen.cell(row, col).unwrap().is_wide());
        let top = pty.with_screen(|screen| screen.rows(0, cols).position(|row| row == ">>> 你好")).unwrap() as u16;
        assert!(wide(top, 4) && !wide(top, 5) && wide(top, 6), "{:?}", pty.rows());
        assert!(wide(top + 1, 0) && wide(top + 1, 38), "{:?}", pty.rows());
        // Erasing takes one character, not one cell; moving too.
        pty.send("😀好x\x7f\x7f\x1b[Da\x1b[C你");
        pty.ends_with(&[">>> a😀你"]);
        assert_eq!(pty.with_screen(|screen| screen.cursor_position().1), 4 + 5);
        pty.send("\r");
        pty.ends_with(&[">>> a😀你", "😀 ok", ">>>"]);
        // A line that wraps, with the last cell of a row left empty.
        let typed = format!("x{}", "好".repeat(40));
        pty.send(&typed);
        pty.wait("all that was typed", || pty.rows().concat().ends_with(&format!(">>> {typed}")));
        pty.send("\r");
        pty.ends_with(&["Three.", ">>>"]);
        pty.leave();
    }
}

#[test]
fn the_screen_may_change_its_size() {
    let sandbox = Sandbox::new();
    let mut pty = Pty::talk(&sandbox, &sandbox.script(&["One."]), &[]);
    pty.resize(20, 30);
    pty.send(&"ab".repeat(20));
    // Whether the editor or the terminal broke the line, it goes on in the next row.
    pty.wait("all that was typed", || {
        let cursor = pty.with_screen(vt100::Screen::cursor_position);
        cursor == (2, 14) && pty.rows().concat().ends_with(&format!(">>> {}", "ab".repeat(20)))
    });
    pty.send("\r");
    pty.ends_with(&["One.", ">>>"]);
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
    pty.ends_with(&[">>> hi", "hm", "", "One.", ">>>"]);
    assert!(pty.with_screen(|screen| screen.cell(2, 0).unwrap().dim() && !screen.cell(4, 0).unwrap().dim()));
    pty.line("/set reasoning hide");
    pty.at_prompt();
    pty.line("/retry");
    pty.ends_with(&[">>> /retry", "One.", ">>>"]);
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
fn what_is_typed_during_an_answer_is_the_next_message() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["one two three four", "Two.", "Three."], json!({ "row_ms": 5 }));
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.line("a");
    pty.wait_for("one");
    pty.send("b\r");
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    pty.line("c");
    pty.ends_with(&[">>> c", "Three.", ">>>"]);
    pty.leave();
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
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    assert_eq!(pty.rows().iter().filter(|row| row.contains("/dev/null/x")).count(), 1, "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequences() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>hm</think>One.", "Two."]);
    let argv = [env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()];
    let mut pty = Pty::command(&sandbox, (40, 80), &argv, &[("TERM", "dumb")]);
    pty.wait_for(">>>");
    pty.line("hi");
    pty.wait_for("One.");
    pty.line("\"\"\"");
    pty.line("more\"\"\"");
    pty.wait_for("Two.");
    pty.send(CTRL_D);
    assert_eq!(pty.wait_exit(), 0);
    assert!(!pty.bytes().contains(&0x1b), "{:?}", String::from_utf8_lossy(&pty.bytes()));
}
