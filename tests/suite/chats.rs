//! Talks that are kept: what a chat is after it was taken up again, whatever happened to it and to its file.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::outcome::{answered, json as parsed, refused};
use super::pty::{CTRL_C, Pty};
use crate::common::tiny::{Kind, Tiny};
use crate::common::{Sandbox, stderr, stdout, with_stdin};

const HELP: &str = "model - /help for commands, Ctrl-D to leave";
const SECRET: &str = "the code is 4711";

/// `<|im_end|>\n`, `<|im_start|>user\n`, `<|im_end|>\n`, `<|im_start|>assistant\n`: what a turn adds around its message.
const TURN: usize = 2 + 6 + 2 + 11;

fn qchat(sandbox: &Sandbox, args: &[&str]) -> std::process::Output {
    sandbox.qchat().args(args).output().unwrap()
}

fn file(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.path(&format!("qchat/data/chats/{name}.jsonl"))
}

/// `qchat chats list` as JSON.
fn listed(sandbox: &Sandbox) -> Vec<Value> {
    parsed(&qchat(sandbox, &["chats", "list", "--output", "json"])).as_array().unwrap().clone()
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    listed(sandbox).iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// What was said in a chat, system prompt included.
fn said(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let chat = parsed(&qchat(sandbox, &["chats", "export", name, "--format", "json"]));
    let text =
        |message: &Value| format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap());
    chat["messages"].as_array().unwrap().iter().map(text).collect()
}

/// A terminal in which qchat ends at once; its exit code and its rows.
fn ends(sandbox: &Sandbox, args: &[&str]) -> (u32, Vec<String>) {
    let mut pty = Pty::command(sandbox, (40, 200), &[&[env!("CARGO_BIN_EXE_qchat"), "run"], args].concat(), &[]);
    (pty.wait_exit(), pty.rows())
}

/// Blocks in the prefix cache, of all models.
fn blocks(sandbox: &Sandbox) -> u64 {
    let rows = parsed(&qchat(sandbox, &["cache", "list", "--output", "json"]));
    rows.as_array().unwrap().iter().map(|row| row["blocks"].as_u64().unwrap()).sum()
}

/// Prompt tokens, and how many of them were cached, of the last line of `--stats` on a screen.
fn read(pty: &Pty) -> (usize, usize) {
    let rows = pty.rows();
    let line = rows.iter().rfind(|row| row.starts_with("prompt ") && row.contains(" cached")).unwrap();
    let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_talk_is_kept_by_itself_and_taken_up_where_it_was_left() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.\nOf two lines.", "Two.", "Three."]);
    // A talk in which nothing was said is none.
    Pty::talk(&sandbox, &model, &[]).leave();
    assert!(listed(&sandbox).is_empty());
    assert_eq!(answered(&qchat(&sandbox, &["chats"])), "there are no chats yet\n");
    assert_eq!(ends(&sandbox, &["-c"]).0, 2);

    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.says("first question", &["One.", "Of two lines."]);
    pty.leave();
    let row = &listed(&sandbox)[0];
    let name = row["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("20") && name.len() >= "2026-01-01-000000".len(), "{name}");
    assert_eq!((&row["messages"], &row["first"]), (&json!(2), &json!("first question")));
    #[cfg(unix)]
    assert_eq!((mode(&sandbox.path("qchat/data/chats")), mode(&file(&sandbox, &name))), (0o700, 0o600));

    let resumed = format!("chat {name}, 2 messages so far");
    let mut pty = Pty::run(&sandbox, &["--continue"]);
    pty.ends_with(&[HELP, &resumed, ">>> first question", "One.", "Of two lines.", ">>>"]);
    // The script answers by the number of questions that the model has read.
    pty.says("second", &["Two."]);
    pty.leave();
    assert_eq!(
        said(&sandbox, &name),
        ["user: first question", "assistant: One.\nOf two lines.", "user: second", "assistant: Two."]
    );
    // The last exchange is shown, not all of them.
    let pty = Pty::run(&sandbox, &["-c"]);
    pty.ends_with(&[HELP, &format!("chat {name}, 4 messages so far"), ">>> second", "Two.", ">>>"]);
    pty.leave();
    // The latest is the one that was used last, not the one that was begun last.
    let mut pty = Pty::run(&sandbox, &[model.to_str().unwrap(), "--chat", "later"]);
    pty.says("of the later chat", &["One.", "Of two lines."]);
    pty.leave();
    let pty = Pty::run(&sandbox, &["-c"]);
    pty.wait_for("chat later, 2 messages so far");
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", &name]);
    pty.says("third", &["Three."]);
    pty.leave();
    assert_eq!(names(&sandbox), [name.as_str(), "later"]);
    let pty = Pty::run(&sandbox, &["-c"]);
    pty.wait_for(">>> third");
    pty.leave();
}

#[test]
fn chats_are_listed_shown_exported_and_removed() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>\nhm\n</think>\n\nOne.", "Two."]);
    for name in ["a", "b", "c"] {
        let mut pty = Pty::talk(&sandbox, &model, &["--chat", name, "--system", "Be brief.", "--reasoning", "hide"]);
        pty.says(&format!("question   of {name}"), &["One."]);
        pty.leave();
    }
    for args in [&["chats"][..], &["chats", "list"]] {
        let list = answered(&qchat(&sandbox, args));
        let rows: Vec<Vec<&str>> = list.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{list}");
        // The one that was used last comes first.
        assert_eq!(rows[0][..4], ["c", "model", "2", "messages"], "{list}");
        assert!(rows[2].ends_with(&["question", "of", "a"]) && rows[2][0] == "a", "{list}");
    }
    let row = &listed(&sandbox)[1];
    assert_eq!((&row["name"], &row["model"], &row["messages"]), (&json!("b"), &json!("model"), &json!(2)));
    assert_eq!(row["bytes"].as_u64(), Some(file(&sandbox, "b").metadata().unwrap().len()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(row["last_used"].as_u64().is_some_and(|at| at <= now && now - at < 600), "{row}");

    let shown = answered(&qchat(&sandbox, &["chats", "show", "b"]));
    assert!(shown.starts_with("# b\n\nmodel, 20"), "{shown}");
    let rest = "\n\n## System\n\nBe brief.\n\n## User\n\nquestion   of b\n\n## Assistant\n\n> hm\n\nOne.\n";
    assert!(shown.ends_with(rest), "{shown}");
    for args in [&["chats", "export", "b"][..], &["chats", "export", "b", "--format", "markdown"]] {
        assert_eq!(answered(&qchat(&sandbox, args)), shown);
    }
    let object = parsed(&qchat(&sandbox, &["chats", "export", "b", "--format", "json"]));
    assert_eq!((&object["name"], &object["model"]), (&json!("b"), &json!("model")));
    assert_eq!(
        object["messages"],
        json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "question   of b" },
            { "role": "assistant", "content": "One.", "reasoning_content": "\nhm\n" },
        ])
    );

    for args in [&["chats", "show", "none"][..], &["chats", "export", "none"], &["chats", "rm", "a", "none"]] {
        assert_eq!(
            refused(&qchat(&sandbox, args), 2),
            "qchat: there is no chat 'none'. `qchat chats` lists them\n",
            "{args:?}"
        );
    }
    assert!(refused(&qchat(&sandbox, &["chats", "export", "a", "--format", "xml"]), 2).contains("markdown"));
    assert_eq!(names(&sandbox), ["c", "b", "a"], "a name that is not there keeps the others from going");
    let removed = qchat(&sandbox, &["chats", "rm", "a", "c", "a"]);
    assert_eq!(answered(&removed), "");
    assert_eq!(stderr(&removed).lines().count(), 2, "{}", stderr(&removed));
    assert_eq!(names(&sandbox), ["b"]);
    assert!(!file(&sandbox, "a").exists() && file(&sandbox, "b").exists());
}

#[test]
fn a_chat_is_named_changed_and_exported_from_within() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::run(&sandbox, &[model.to_str().unwrap()]);
    pty.says("/load", &["there are no chats yet"]);
    pty.says("/load none", &["qchat: there is no chat 'none'. /load lists them"]);
    // Also before there is anything to name.
    pty.says("/save work", &["this talk is kept as work (`qchat run --chat work` takes it up)"]);
    pty.says("of work", &["One."]);
    assert!(file(&sandbox, "work").exists());
    pty.says("/save my work", &["this talk is kept as my work (`qchat run --chat 'my work'` takes it up)"]);
    assert!(!file(&sandbox, "work").exists() && file(&sandbox, "my work").exists());
    pty.says("/save", &["this talk is kept as my work (`qchat run --chat 'my work'` takes it up)"]);
    pty.leave();

    let mut pty = Pty::run(&sandbox, &[model.to_str().unwrap(), "--chat", "other"]);
    pty.says("of other", &["One."]);
    pty.says("/save my work", &["qchat: there is a chat 'my work' already. take another: /save NAME"]);
    pty.says("/load other", &["qchat: this is that chat. /load lists the others"]);
    pty.says("/load", &["other", "my work"]);
    pty.says("/load my work", &["chat my work, 2 messages so far", ">>> of work", "One."]);
    pty.says("more", &["Two."]);
    // Nothing that somebody has already is overwritten.
    pty.says("/export said.md", &["written to said.md"]);
    let before = fs::read(sandbox.path("said.md")).unwrap();
    pty.line("/export said.md");
    pty.wait_for("qchat: said.md cannot be written: ");
    pty.at_prompt();
    pty.says("/export said.JSON", &["written to said.JSON"]);
    pty.line("/export no-such-folder/x.md");
    pty.wait_for("qchat: no-such-folder/x.md cannot be written: ");
    pty.at_prompt();
    pty.says("/export", &["written to my work.md"]);
    pty.says("/export ~/at-home.md", &["written to ~/at-home.md"]);
    pty.leave();
    assert_eq!(fs::read(sandbox.path("said.md")).unwrap(), before);
    assert_eq!(before, fs::read(sandbox.path("my work.md")).unwrap());
    assert_eq!(before, fs::read(sandbox.path("at-home.md")).unwrap());
    // What is written from within is what is written from without.
    assert_eq!(String::from_utf8(before).unwrap(), answered(&qchat(&sandbox, &["chats", "export", "my work"])));
    let written: Value = serde_json::from_slice(&fs::read(sandbox.path("said.JSON")).unwrap()).unwrap();
    assert_eq!(written, parsed(&qchat(&sandbox, &["chats", "export", "my work", "--format", "json"])));
    assert_eq!(said(&sandbox, "my work"), ["user: of work", "assistant: One.", "user: more", "assistant: Two."]);
    assert_eq!(said(&sandbox, "other"), ["user: of other", "assistant: One."]);
}

#[test]
fn what_was_taken_back_stays_taken_back() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two.", "Three."]);
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    pty.says("a", &["One."]);
    pty.says("b", &["Two."]);
    pty.says("/undo", &["taken back: b"]);
    pty.says("c", &["Two."]);
    pty.says("/set max_tokens 2", &[]);
    pty.says("/retry", &["Tw", "(answer 2 of 2; /other shows the others)"]);
    pty.leave();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One.", "user: c", "assistant: Tw"]);

    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.ends_with(&[HELP, "chat x, 4 messages so far", ">>> c", "Tw", ">>>"]);
    pty.says("/undo", &["taken back: c"]);
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.ends_with(&[HELP, "chat x, 2 messages so far", ">>> a", "One.", ">>>"]);
    pty.says("/clear", &["the talk is forgotten"]);
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.ends_with(&[HELP, "chat x, 0 messages so far", ">>>"]);
    pty.says("d", &["On"]);
    pty.leave();
    assert_eq!(said(&sandbox, "x"), ["user: d", "assistant: On"]);
}

#[test]
fn settings_system_prompt_and_model_are_in_force_again() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two.", "Three."]);
    let other = sandbox.write("other.script", json!({ "replies": ["Eins.", "Zwei.", "Drei."] }).to_string());
    let entries = format!(
        "[[model]]\nname = 'polite'\nsystem = 'Be polite.'\n[[model.source]]\npath = {other:?}\n\
         [[model]]\nname = 'rude'\nsystem = 'Be rude.'\n[[model.source]]\npath = {model:?}\n"
    );
    sandbox.write("qchat/config/models.toml", entries);
    let mut pty = Pty::run(&sandbox, &["rude", "--chat", "x"]);
    pty.says("a", &["One."]);
    let set = [
        ("temperature", "0.25"),
        ("top_k", "3"),
        ("top_p", "0.5"),
        ("min_p", "0.125"),
        ("repeat_penalty", "1.5"),
        ("seed", "9"),
        ("max_tokens", "40"),
        ("reasoning", "hide"),
    ];
    pty.says("/set temperature 1", &[]);
    for (name, value) in set {
        pty.says(&format!("/set {name} {value}"), &[]);
    }
    pty.says("/set stop ei", &[]);
    pty.says("/set context 2048", &[]);
    // A prompt that came with a model goes with it, also when the chat is taken up.
    pty.says("/model polite", &["the talk goes on with polite"]);
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.ends_with(&[
        "polite - /help for commands, Ctrl-D to leave",
        "chat x, 2 messages so far",
        ">>> a",
        "One.",
        ">>>",
    ]);
    pty.says("/system", &["Be polite."]);
    pty.line("/show");
    pty.wait_for("chat              x");
    pty.at_prompt();
    for (name, value) in set {
        pty.wait_for(&format!("{name:<17} {value}"));
    }
    pty.wait_for("stop              [\"ei\"]");
    pty.wait_for("context           0 of at most 2048 tokens");
    pty.says("b", &["Zw"]);
    pty.says("/system Be \"very\" brief.", &["the system prompt is set; it counts from the next message on"]);
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.says("/system", &["Be \"very\" brief."]);
    pty.says("/system \"\"", &["there is no system prompt from the next message on"]);
    pty.leave();
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.says("/system", &["(no system prompt)"]);
    pty.leave();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One.", "user: b", "assistant: Zw"]);
}

#[test]
fn a_flag_is_above_the_chat_and_the_chat_above_the_config() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two.", "Three."]);
    sandbox.write("other.script", json!({ "replies": ["Eins."] }).to_string());
    sandbox.write(
        "qchat/config/config.toml",
        "system = 'of the config'\nmax_tokens = 11\ndefault_model = 'other.script'\n[sampling]\ntemperature = 0.1\ntop_k = 1\n",
    );
    let shows = |args: &[&str], env: &[(&str, &str)], wanted: &[&str]| {
        let argv = [&[env!("CARGO_BIN_EXE_qchat"), "run", "--chat", "x"], args].concat();
        let mut pty = Pty::command(&sandbox, (40, 120), &argv, env);
        pty.at_prompt();
        pty.line("/show");
        pty.wait_for("chat              x");
        pty.at_prompt();
        for wanted in wanted {
            assert!(pty.rows().iter().any(|row| row == wanted), "{wanted} in {:#?}", pty.rows());
        }
        pty
    };
    let (temperature, most) = (|t: &str| format!("temperature       {t}"), |n: &str| format!("max_tokens        {n}"));
    let mut pty = shows(&[model.to_str().unwrap()], &[], &[&temperature("0.1"), "top_k             1", &most("11")]);
    pty.says("a", &["One."]);
    // By its other name, too.
    pty.says("/set temp 0.2", &[]);
    pty.says("/set max_tokens 22", &[]);
    pty.says("/system of the chat", &["the system prompt is set; it counts from the next message on"]);
    pty.leave();

    let mut pty =
        shows(&[], &[], &["model             model", &temperature("0.2"), "top_k             1", &most("22")]);
    pty.says("/system", &["of the chat"]);
    pty.leave();
    let environment = [("QCHAT_TEMP", "0.3"), ("QCHAT_SYSTEM", "of the environment")];
    shows(&[], &[("QCHAT_MAX_TOKENS", "33")], &[&temperature("0.2"), &most("33")]).leave();
    shows(&["--temp", "0.4"], &environment[..1], &[&temperature("0.4"), &most("22")]).leave();
    // What was typed for one time is not the chat's own.
    shows(&[], &environment[..1], &[&temperature("0.3")]).leave();
    shows(&[], &[], &[&temperature("0.2")]).leave();
    let mut pty = shows(&["--system", "of the flag"], &environment, &[&temperature("0.3")]);
    pty.says("/system", &["of the flag"]);
    pty.says("b", &["Two."]);
    pty.leave();
    assert_eq!(said(&sandbox, "x")[0], "system: of the flag", "a prompt is a part of what was said");
    let pty = shows(&["other.script"], &[], &["model             other"]);
    assert!(pty.rows().contains(&"(this chat was with model; it goes on with other)".to_owned()), "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn a_chat_that_is_loaded_brings_its_settings_and_no_others() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "a", "--top-k", "7"]);
    pty.says("of a", &["One."]);
    pty.says("/set max_tokens 2", &[]);
    pty.says("/set stop n", &[]);
    pty.leave();
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "b", "--top-k", "7"]);
    pty.says("of b", &["One."]);
    pty.says("/set temperature 0.25", &[]);
    pty.says("/load a", &["chat a, 2 messages so far", ">>> of a", "One."]);
    pty.line("/show");
    pty.wait_for("chat              a");
    pty.at_prompt();
    let rows = pty.rows();
    for row in ["temperature       0.7", "top_k             7", "max_tokens        2", "stop              [\"n\"]"] {
        assert!(rows.iter().any(|own| own == row), "{row} in {rows:#?}");
    }
    pty.says("/load b", &["chat b, 2 messages so far", ">>> of b", "One."]);
    pty.says("more", &["Two."]);
    pty.leave();
    assert_eq!(said(&sandbox, "b")[3], "assistant: Two.");
}

#[test]
fn without_a_model_the_chats_own_file_is_loaded_from_anywhere() {
    let sandbox = Sandbox::new();
    sandbox.write("models/mine.script", json!({ "replies": ["One.", "Two."] }).to_string());
    let mut pty = Pty::run(&sandbox, &["models/mine.script", "--chat", "x"]);
    pty.says("a", &["One."]);
    pty.leave();
    let elsewhere = sandbox.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let there = format!("cd {} && {} run --chat x", elsewhere.display(), env!("CARGO_BIN_EXE_qchat"));
    let mut pty = Pty::command(&sandbox, (40, 120), &["/bin/sh", "-c", &there], &[]);
    pty.at_prompt();
    pty.says("b", &["Two."]);
    pty.leave();
    // One that is gone is named, and the chat stays as it is.
    fs::rename(sandbox.path("models"), sandbox.path("moved")).unwrap();
    let (code, rows) = ends(&sandbox, &["--chat", "x"]);
    assert_eq!((code, rows.len()), (3, 1), "{rows:?}");
    assert!(rows[0].contains("/models/mine.script"), "{rows:?}");
    let mut pty = Pty::run(&sandbox, &["moved/mine.script", "--chat", "x"]);
    pty.says("c", &["Two."]);
    pty.leave();
    let pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.wait_for("chat x, 6 messages so far");
    pty.leave();
}

#[test]
fn names_that_files_or_terminals_would_obey_are_refused() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One."]);
    let long = "x".repeat(300);
    for (name, why) in [
        ("", "empty"),
        ("..", "begins or ends"),
        (".hidden", "begins or ends"),
        ("../x", "file names cannot have"),
        ("/etc/passwd", "file names cannot have"),
        ("a\\b", "file names cannot have"),
        ("a\nb", "control characters"),
        ("a\u{7f}", "control characters"),
        ("\u{1b}[31mred", "control characters"),
        ("\u{9b}31mred", "control characters"),
        ("gpj.\u{202e}x", "control characters"),
        ("\u{2067}x", "control characters"),
        ("\u{feff}x", "control characters"),
        (&long, "too long"),
    ] {
        for command in [&["show"][..], &["export"], &["rm"]] {
            let line = refused(&qchat(&sandbox, &[&["chats"], command, &["--", name]].concat()), 2);
            assert!(line.contains(why) && line.contains("letters, digits"), "{name:?}: {line}");
            // One that cannot be read tells nobody anything.
            assert!(line.chars().count() < 200 && !line.trim_end().contains(char::is_control), "{line:?}");
        }
    }
    for name in ["../x", "\u{1b}]0;title\u{7}x", &long] {
        let (code, rows) = ends(&sandbox, &[model.to_str().unwrap(), "--chat", name]);
        assert!(code == 2 && rows.concat().contains("cannot name a chat"), "{code} {rows:?}");
    }
    let mut pty = Pty::talk(&sandbox, &model, &[]);
    pty.says("hi", &["One."]);
    pty.line("/save ../../escaped");
    pty.wait_for("qchat: '../../escaped' cannot name a chat: ");
    pty.at_prompt();
    pty.line("/load ../../../etc/passwd");
    pty.wait_for("qchat: '../../../etc/passwd' cannot name a chat: ");
    pty.leave();
    assert!(!sandbox.path("qchat/escaped.jsonl").exists() && !sandbox.path("escaped.jsonl").exists());

    // A family is several people held together by a character that is not seen.
    for name in
        ["\u{4e16}\u{754c}", "\u{1f389}", "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}", "\u{e9}t\u{e9} 2", "it's"]
    {
        let mut pty = Pty::talk(&sandbox, &model, &["--chat", name]);
        pty.says("hi", &["One."]);
        pty.leave();
        assert_eq!(names(&sandbox)[0], name);
        assert_eq!(said(&sandbox, name), ["user: hi", "assistant: One."]);
        assert!(answered(&qchat(&sandbox, &["chats"])).starts_with(name));
        answered(&qchat(&sandbox, &["chats", "rm", name]));
    }
}

#[test]
fn a_chat_is_open_in_one_terminal_at_a_time() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two.", "Three."]);
    let mut first = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    first.says("a", &["One."]);
    for args in [&["--chat", "x"][..], &["-c"]] {
        let (code, rows) = ends(&sandbox, args);
        assert_eq!(code, 1);
        assert_eq!(
            rows,
            ["qchat: the chat 'x' is open in another qchat. close it there, or begin one with --chat NAME"]
        );
    }
    refused(&qchat(&sandbox, &["chats", "rm", "x"]), 1);
    // Reading it is allowed.
    assert_eq!(said(&sandbox, "x").len(), 2);
    let mut second = Pty::talk_in(&sandbox, (40, 120), &model, &["--chat", "y"]);
    second.says("of y", &["One."]);
    second.line("/load x");
    second.wait_for("qchat: the chat 'x' is open in another qchat");
    second.at_prompt();
    second.says("more of y", &["Two."]);
    first.says("b", &["Two."]);
    second.leave();
    first.leave();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One.", "user: b", "assistant: Two."]);
    assert_eq!(said(&sandbox, "y"), ["user: of y", "assistant: One.", "user: more of y", "assistant: Two."]);
    // It is free again.
    Pty::run(&sandbox, &["--chat", "x"]).leave();
}

#[test]
fn terminals_that_are_opened_at_once_keep_a_chat_each() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One."]);
    // Within one second, which is what names are made of.
    let mut ptys: Vec<Pty> = (0..3)
        .map(|_| Pty::command(&sandbox, (40, 120), &[env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()], &[]))
        .collect();
    for (number, pty) in ptys.iter_mut().enumerate() {
        pty.at_prompt();
        pty.says(&format!("question {number}"), &["One."]);
    }
    ptys.into_iter().for_each(Pty::leave);
    let mut firsts: Vec<_> = listed(&sandbox).iter().map(|row| row["first"].as_str().unwrap().to_owned()).collect();
    firsts.sort();
    assert_eq!(firsts, ["question 0", "question 1", "question 2"]);
}

#[test]
fn a_torn_end_is_reported_and_the_rest_goes_on() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One \u{4e16}\u{754c}.", "Two."]);
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    pty.says("first \u{1f389}", &["One \u{4e16}\u{754c}."]);
    pty.says("second", &["Two."]);
    pty.leave();
    let whole = fs::read(file(&sandbox, "x")).unwrap();
    let all = said(&sandbox, "x");
    // Where each message begins, and where its line ends.
    let starts = whole.split_inclusive(|byte| *byte == b'\n').scan(0, |at, line| {
        *at += line.len();
        Some((line.starts_with(b"{\"event\":\"message\"").then(|| *at - line.len()), *at - 1))
    });
    let messages: Vec<(usize, usize)> = starts.filter_map(|(start, end)| Some((start?, end))).collect();
    let [(_, question_end), (_, answer_end), (next, _), _] = messages[..] else { panic!("{messages:?}") };
    // Wherever it is cut, also within a character, what is left is a beginning of what was said.
    for cut in (0..whole.len()).step_by(whole.len() / 60) {
        fs::write(file(&sandbox, "x"), &whole[..cut]).unwrap();
        let left = said(&sandbox, "x");
        assert!(all.starts_with(&left), "cut at {cut}: {left:?}");
        assert_eq!(fs::read(file(&sandbox, "x")).unwrap().len(), cut, "who only reads changes nothing");
    }
    // In the first line, of which nothing is left; in the first question; in an answer; before the last line end.
    for (cut, left) in [(20, 0), (question_end - 4, 0), (answer_end - 9, 1), (answer_end, 2), (next + 1, 2)] {
        fs::write(file(&sandbox, "x"), &whole[..cut]).unwrap();
        let torn = cut - whole[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let is_torn = torn > 0 && cut != answer_end;
        let mut pty = Pty::talk_in(&sandbox, (40, 120), &model, &["--chat", "x"]);
        let warned = format!("qchat: the last line of the chat 'x' was torn and was cut off ({torn} bytes)");
        assert_eq!(pty.rows().contains(&warned), is_torn, "cut at {cut}: {:?}", pty.rows());
        let answer = if left == 2 { "Two." } else { "One \u{4e16}\u{754c}." };
        pty.says("more", &[answer]);
        pty.leave();
        let expected: Vec<String> =
            all[..left].iter().cloned().chain(["user: more".into(), format!("assistant: {answer}")]).collect();
        assert_eq!(said(&sandbox, "x"), expected, "cut at {cut}");
        // And it is whole again: nothing is reported, and what was said is there.
        let pty = Pty::run(&sandbox, &["--chat", "x"]);
        let so_far = format!("chat x, {} messages so far", expected.len());
        pty.ends_with(&[HELP, &so_far, ">>> more", answer, ">>>"]);
        pty.leave();
    }
}

#[test]
fn a_damaged_line_is_named_and_nothing_is_destroyed() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    pty.says("a", &["One."]);
    pty.leave();
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "y"]);
    pty.says("of y", &["One."]);
    pty.leave();
    let whole = fs::read_to_string(file(&sandbox, "x")).unwrap();
    let count = whole.lines().count();
    // The last one too: it ends, so it was not being written when something went wrong.
    for line in [1, 2, count] {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        lines[line - 1] = lines[line - 1].replacen(':', ";", 1);
        let damaged = lines.join("\n") + "\n";
        fs::write(file(&sandbox, "x"), &damaged).unwrap();
        let (code, rows) = ends(&sandbox, &["--chat", "x"]);
        assert_eq!((code, rows.len()), (1, 1), "{rows:?}");
        let error = format!("qchat: the chat 'x' is damaged in line {line}, column ");
        assert!(rows[0].starts_with(&error) && rows[0].contains("mend or delete that line of x.jsonl"), "{rows:?}");
        assert!(!rows[0].contains("at line 1"), "{rows:?}");
        for command in ["show", "export"] {
            assert!(refused(&qchat(&sandbox, &["chats", command, "x"]), 1).starts_with(&error));
        }
        let mut pty = Pty::run(&sandbox, &[model.to_str().unwrap(), "--chat", "y"]);
        pty.line("/load x");
        pty.wait_for(&error);
        pty.at_prompt();
        pty.leave();
        // The others are listed as they are.
        let list = answered(&qchat(&sandbox, &["chats"]));
        assert!(list.lines().count() == 2 && list.contains("(damaged)") && list.contains("of y"), "{list}");
        assert_eq!(fs::read_to_string(file(&sandbox, "x")).unwrap(), damaged);
    }
    fs::write(file(&sandbox, "x"), &whole).unwrap();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One."]);
    // Who does not want to mend it can be rid of it.
    fs::write(file(&sandbox, "x"), "nonsense\n").unwrap();
    let removed = qchat(&sandbox, &["chats", "rm", "x"]);
    assert_eq!(answered(&removed), "");
    assert!(stderr(&removed).contains("qchat cache clear"), "{}", stderr(&removed));
    assert_eq!(names(&sandbox), ["y"]);
    // A newer qchat may know better.
    fs::write(file(&sandbox, "x"), "{\"event\":\"begin\",\"version\":99,\"created\":\"\",\"model\":\"m\"}\n").unwrap();
    assert!(refused(&qchat(&sandbox, &["chats", "show", "x"]), 1).contains("newer qchat"));
}

#[test]
fn a_killed_talk_loses_the_answer_that_was_being_given() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", &"slow ".repeat(200), "Three."], json!({ "row_ms": 4 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    pty.says("a", &["One."]);
    pty.line("b");
    pty.wait_for("slow slow");
    pty.kill();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One.", "user: b"]);
    let mut pty = Pty::run(&sandbox, &["--chat", "x", "--max-tokens", "4"]);
    pty.ends_with(&[HELP, "chat x, 3 messages so far", ">>> b", "(not answered; /retry answers it)", ">>>"]);
    pty.says("/retry", &["slow"]);
    pty.leave();
    assert_eq!(said(&sandbox, "x"), ["user: a", "assistant: One.", "user: b", "assistant: slow"]);
}

#[test]
fn an_answer_that_was_stopped_is_kept_as_far_as_it_came() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[&"one two three ".repeat(100), "Two."], json!({ "row_ms": 4 }));
    let mut pty = Pty::talk(&sandbox, &model, &["--chat", "x"]);
    pty.line("a");
    pty.wait_for("one two");
    pty.send(CTRL_C);
    pty.ends_with(&["(stopped)", ">>>"]);
    pty.leave();
    let kept = said(&sandbox, "x");
    assert!(kept.len() == 2 && kept[1].starts_with("assistant: one two") && kept[1].len() < 1400, "{kept:?}");
    let mut pty = Pty::run(&sandbox, &["--chat", "x"]);
    pty.wait_for("chat x, 2 messages so far");
    pty.says("b", &["Two."]);
    pty.leave();
    assert_eq!(said(&sandbox, "x")[1], kept[1]);
}

#[test]
fn with_another_vocabulary_the_text_counts() {
    let sandbox = Sandbox::new();
    let (first, second) = (sandbox.path("first.gguf"), sandbox.path("second.gguf"));
    let ascii = |id: usize| (32..127).contains(&id);
    Tiny { says: ascii, ..Tiny::default() }.write(&first).unwrap();
    // The same ids mean something else.
    let control = |text: &str| (text.to_owned(), Kind::Control);
    let specials = ["<|x|>", "<|im_end|>", "<|im_start|>", "<|endoftext|>"].map(control).to_vec();
    Tiny { seed: 2, specials, bos: Some(3), eos: Some(1), says: ascii, ..Tiny::default() }.write(&second).unwrap();
    let mut pty = Pty::talk(&sandbox, &first, &["--chat", "x", "--temp", "0", "--max-tokens", "24"]);
    pty.line("hello");
    pty.at_prompt();
    pty.leave();
    let whole = fs::read_to_string(file(&sandbox, "x")).unwrap();
    assert!(whole.contains("\"decoded\""), "{whole}");
    // A chat of which only the text is known.
    let text_only = |line: &str| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        event.as_object_mut().unwrap().remove("decoded");
        event.to_string() + "\n"
    };
    fs::write(file(&sandbox, "y"), whole.lines().map(text_only).collect::<String>()).unwrap();
    for name in ["x", "y"] {
        let args = ["--chat", name, "--temp", "0", "--max-tokens", "24", "--stats", "--no-cache"];
        let mut pty = Pty::talk_in(&sandbox, (40, 200), &second, &args);
        pty.wait_for("(this chat was with first; it goes on with second)");
        pty.line("more");
        pty.wait_for("prompt ");
        pty.at_prompt();
        // system-less ChatML, a byte a token: two questions, one answer.
        assert_eq!(read(&pty), (6 + 5 + 2 + 11 + 24 + TURN + 4, 0));
        pty.leave();
    }
    assert_eq!(said(&sandbox, "x"), said(&sandbox, "y"));
    assert_eq!(said(&sandbox, "x")[3].len(), "assistant: ".len() + 24);
}

#[test]
fn a_private_talk_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let mut pty = Pty::talk_in(&sandbox, (40, 120), &model, &["--private"]);
    pty.says(SECRET, &["One."]);
    pty.says("/save x", &["qchat: nothing is kept of this talk. begin it without --private"]);
    pty.says("/load", &["there are no chats yet"]);
    pty.says("/load x", &["qchat: nothing is kept of this talk. begin it without --private"]);
    pty.line("/show");
    pty.wait_for("chat              (not kept)");
    pty.says("/export", &["written to chat.md"]);
    pty.leave();
    assert!(fs::read_to_string(sandbox.path("chat.md")).unwrap().contains(SECRET), "what was asked for");
    fs::remove_file(sandbox.path("chat.md")).unwrap();
    let grep = std::process::Command::new("grep").args(["-rl", SECRET]).arg(sandbox.home.path()).output().unwrap();
    assert_eq!(stdout(&grep), "");
    assert!(!sandbox.path("qchat/data").exists() && !sandbox.path("qchat/cache").exists());
    for args in [&["--private", "--continue"][..], &["--private", "--chat", "x"], &["--chat", "x", "--continue"]] {
        let line = refused(&sandbox.run(&model, args), 2);
        assert!(args.iter().filter(|arg| arg.starts_with("--")).all(|flag| line.contains(flag)), "{line}");
    }
}

#[test]
fn chats_that_cannot_be_written_are_one_warning() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    // A file where the folder should be: root cannot write there either.
    sandbox.write("qchat/data/chats", "");
    let mut pty = Pty::run(&sandbox, &[model.to_str().unwrap()]);
    pty.line("a");
    pty.wait_for("One.");
    pty.at_prompt();
    pty.says("b", &["Two."]);
    let warned = pty.rows().iter().filter(|row| row.contains("this talk is kept no further")).count();
    assert_eq!(warned, 1, "{:?}", pty.rows());
    pty.line("/save x");
    pty.wait_for("qchat: nothing is kept of this talk");
    pty.at_prompt();
    assert!(!pty.rows().concat().contains("--private"), "{:?}", pty.rows());
    pty.leave();
    assert_eq!(answered(&qchat(&sandbox, &["chats"])), "there are no chats yet\n");
    let (code, rows) = ends(&sandbox, &[model.to_str().unwrap(), "--chat", "x"]);
    assert!(code == 1 && rows.len() == 1 && rows[0].starts_with("qchat: the chat 'x' cannot be used: "), "{rows:?}");
}

#[test]
fn one_answer_is_no_chat() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One."]);
    for args in
        [&["hi", "--chat", "x"][..], &["hi", "--continue"], &["hi", "-c"], &["-f", "model.script", "--chat", "x"]]
    {
        let line = refused(&sandbox.run(&model, args), 2);
        assert_eq!(
            line,
            "qchat: --chat and --continue are for talks in a terminal. \
             leave out the prompt, -f, --no-stdin and any pipe\n"
        );
    }
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["--chat", "x"]);
    assert!(refused(&with_stdin(command, b"hi"), 2).contains("--chat"));
    answered(&sandbox.run(&model, &["hi"]));
    assert!(!sandbox.path("qchat/data").exists());
    assert_eq!(ends(&sandbox, &[model.to_str().unwrap(), "hi"]).0, 0);
    assert!(!sandbox.path("qchat/data").exists());
}

#[test]
fn wide_characters_go_round_in_a_narrow_terminal() {
    let sandbox = Sandbox::new();
    let answer = "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{ff01}\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{ff01} \u{1f44b}\u{1f3fd} e\u{301}";
    let question = "\u{4e16}\u{754c}\u{662f}\u{4ec0}\u{4e48}\u{ff1f}\u{4e16}\u{754c}\u{662f}\u{4ec0}\u{4e48} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f389}";
    let model = sandbox.script(&[answer, "Two."]);
    let mut pty = Pty::talk_in(&sandbox, (40, 20), &model, &["--chat", "\u{4e16}\u{754c}"]);
    pty.line(question);
    pty.wait_for("e\u{301}");
    pty.at_prompt();
    pty.line("/export said.md");
    pty.wait_for("written to said.md");
    pty.leave();
    let pty = Pty::talk_in(&sandbox, (40, 20), &model, &["--chat", "\u{4e16}\u{754c}"]);
    let screen = |pty: &Pty| pty.rows().concat().replace(' ', "");
    let shown = format!(">>>{question}{answer}>>>").replace(' ', "");
    assert!(screen(&pty).ends_with(&shown), "{:?}", pty.rows());
    pty.leave();
    let mut pty = Pty::talk_in(&sandbox, (40, 20), &model, &["-c", "--stats"]);
    pty.line("\u{518d}\u{89c1}");
    pty.wait_for("Two.");
    pty.at_prompt();
    pty.leave();
    let expected = [
        format!("user: {question}"),
        format!("assistant: {answer}"),
        "user: \u{518d}\u{89c1}".into(),
        "assistant: Two.".into(),
    ];
    assert_eq!(said(&sandbox, "\u{4e16}\u{754c}"), expected);
    let markdown = fs::read_to_string(sandbox.path("said.md")).unwrap();
    assert!(markdown.starts_with("# \u{4e16}\u{754c}\n") && markdown.contains(question) && markdown.contains(answer));
}

#[test]
fn taking_a_chat_up_finds_what_was_read() {
    let sandbox = Sandbox::new();
    let script = sandbox.script_with(&["One.", "Two.", "Three."], json!({ "row_ms": 1 }));
    let whole = sandbox.write(
        "whole.script",
        json!({ "replies": ["One.", "Two.", "Three."], "row_ms": 1, "save_most": 0 }).to_string(),
    );
    let tiny = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&tiny).unwrap();
    let unlike = sandbox.path("unlike.gguf");
    let system = "You are a patient teacher of geography. ".repeat(8);
    let first = "What is the capital of Mongolia?";
    for (name, model) in [("script", script), ("whole", whole), ("tiny", tiny), ("unlike", unlike.clone())] {
        if name == "unlike" {
            // The same with a token for two characters that it says one by one: the ids that were decoded are what counts,
            // not those that a tokenizer makes of the text.
            let answer = said(&sandbox, "tiny")[2].clone();
            let mut pairs =
                answer.as_bytes()["assistant: ".len()..].windows(2).map(|pair| str::from_utf8(pair).unwrap());
            let asked = format!("{system} {first} user assistant");
            let pair = pairs.find(|pair| !asked.contains(pair) && !pair.contains(' ')).unwrap().to_owned();
            let mut model = Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() };
            model.specials.push((pair, Kind::UserDefined));
            model.write(&unlike).unwrap();
        }
        let args = ["--chat", name, "--system", &system, "--seed", "1", "--max-tokens", "20", "--stats"];
        let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &args);
        for question in [first, "And of Nepal?"] {
            pty.line(question);
            pty.at_prompt();
        }
        pty.leave();
        assert!(name != "unlike" || said(&sandbox, name)[2] == said(&sandbox, "tiny")[2]);
        let args = ["--chat", name, "--max-tokens", "20", "--stats", "-v"];
        let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &args);
        pty.line("And of Bhutan?");
        pty.wait_for("t/s");
        pty.at_prompt();
        let (prompt, cached) = read(&pty);
        assert!(prompt > 400, "{prompt}");
        // All but the new turn, and the last token of the answer, which was never read.
        assert!(cached >= prompt - TURN - "And of Bhutan?".len() - 1, "{name}: {cached} of {prompt}");
        let rows = pty.rows();
        assert!(rows.iter().any(|row| row.starts_with("prefix cache: loading ")), "{rows:#?}");
        assert!(rows.iter().any(|row| row.contains(" of them loaded in ")), "{rows:#?}");
        pty.leave();
    }
}

#[test]
fn removing_a_chat_removes_what_only_it_had_cached() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["One.", "Two."], json!({ "row_ms": 1 }));
    let system = "x".repeat(300);
    let talk = |name: &str, system: &str, questions: &[&str]| {
        let mut pty = Pty::talk(&sandbox, &model, &["--chat", name, "--system", system]);
        for question in questions {
            pty.line(question);
            pty.at_prompt();
        }
        pty.leave();
    };
    let about = |name: &str| format!("{name} {}", "and something long to say about it ".repeat(3));
    talk("a", &system, &[&about("a"), "more"]);
    // The block that both begin with, and the end.
    assert_eq!(blocks(&sandbox), 2);
    talk("b", &system, &[&about("b")]);
    assert_eq!(blocks(&sandbox), 3);
    talk("c", "another system prompt, of some length", &[&about("c")]);
    assert_eq!(blocks(&sandbox), 4);
    let remove = |name: &str| {
        let output = qchat(&sandbox, &["chats", "rm", name]);
        assert_eq!(answered(&output), "");
        (stderr(&output), blocks(&sandbox))
    };
    let (line, left) = remove("a");
    assert_eq!(line, "a is deleted, and 1 block of the prefix cache that only it used\n");
    assert_eq!(left, 3);
    // The other finds all of its own.
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &model, &["--chat", "b", "--stats"]);
    pty.line("more");
    pty.wait_for("t/s");
    pty.at_prompt();
    let (prompt, cached) = read(&pty);
    assert!(prompt > 400 && cached >= prompt - TURN - "more".len() - 1, "{cached} of {prompt}");
    pty.leave();
    assert_eq!(remove("b"), ("b is deleted, and 2 blocks of the prefix cache that only it used\n".into(), 1));
    assert_eq!(remove("c"), ("c is deleted, and 1 block of the prefix cache that only it used\n".into(), 0));
    assert_eq!(answered(&qchat(&sandbox, &["cache"])), "the prefix cache is empty\n");
}

#[test]
fn both_chats_that_share_a_beginning_can_go_at_once() {
    let sandbox = Sandbox::new();
    // Whole states: what is shared is a file of its own.
    let model = sandbox.script_with(&["One.", "Two."], json!({ "row_ms": 1, "save_most": 0 }));
    for name in ["a", "b", "c"] {
        let mut pty = Pty::talk(&sandbox, &model, &["--chat", name, "--system", "A system prompt of some length."]);
        pty.says(&format!("of {name}"), &["One."]);
        pty.says("more", &["Two."]);
        // Taken back, and all the same in the cache.
        pty.says("/undo", &["taken back: more"]);
        pty.leave();
    }
    let before = blocks(&sandbox);
    answered(&qchat(&sandbox, &["chats", "rm", "a", "b"]));
    assert_eq!(names(&sandbox), ["c"]);
    let left = blocks(&sandbox);
    assert!(left > 0 && left < before, "{left} of {before}");
    let mut pty = Pty::run(&sandbox, &["--chat", "c", "--stats"]);
    pty.line("again");
    pty.wait_for("t/s");
    pty.at_prompt();
    assert!(read(&pty).1 > 50, "{:?}", pty.rows());
    pty.leave();
    answered(&qchat(&sandbox, &["chats", "rm", "c"]));
    // Also the state behind the system prompt, which all had in common.
    assert_eq!(blocks(&sandbox), 0);
}
