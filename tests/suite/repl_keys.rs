//! The line editor at a terminal: history, blocks, pastes, completion, wide characters.

use super::pty::{CTRL_D, Pty, UP};
use crate::common::Sandbox;

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
    pty.ends_with(&[">>> a", "b"]);
    // From the first row of a block on, Up goes to the line before.
    pty.send(&UP.repeat(2));
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
    // A backslash at the end of a pasted line belongs to the text.
    pty.send("\x1b[200~e \\\nf\r\ng\rh\x1b[201~");
    pty.ends_with(&["Two.", ">>> e \\", "f", "g", "h"]);
    pty.send("\r");
    pty.ends_with(&["h", "Three.", ">>>"]);
    for message in ["e \\ f g h", "c d", "a b"] {
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
fn wide_characters_take_two_cells() {
    for cols in [40, 80] {
        let sandbox = Sandbox::new();
        let long = "你".repeat(25);
        let model = sandbox.script(&[&format!("{long}！"), "😀 ok", "Three."]);
        let mut pty = Pty::talk_in(&sandbox, (30, cols), &model, &[]);
        pty.line("你好");
        let (first, rest) = ("你".repeat(20), format!("{}！", "你".repeat(5)));
        let whole = format!("{long}！");
        let rows: &[&str] =
            if cols == 40 { &[">>> 你好", &first, &rest, ">>>"] } else { &[">>> 你好", &whole, ">>>"] };
        pty.ends_with(rows);
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
