//! One answer and the end: every stdin and every stdout that a shell can give.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::outcome::{answered, ended, json, piped, refused, started};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout, with_stdin};

/// `ChatML` around one user message, in the scripted engine: `<|im_start|>`, "user\n", the message, `<|im_end|>`, "\n",
/// `<|im_start|>`, "assistant\n"; a byte is a token.
const AROUND: u64 = 1 + 5 + 1 + 1 + 1 + 10;

#[test]
fn each_kind_of_stdin_gets_its_answer() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let document = sandbox.write("document.txt", "twelve bytes");
    let tokens = |stdin: Stdio, prompt: Option<&str>| {
        let mut command = sandbox.qchat();
        command.arg("run").arg(&model).args(prompt).args(["--output", "json"]).stdin(stdin);
        json(&command.output().unwrap())["usage"]["prompt_tokens"].as_u64().unwrap() - AROUND
    };
    let file = || Stdio::from(File::open(&document).unwrap());
    assert_eq!(tokens(Stdio::null(), Some("four")), 4);
    assert_eq!(tokens(file(), None), 12);
    assert_eq!(tokens(file(), Some("four")), 12 + 2 + 4);
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model);
    assert_eq!(answered(&with_stdin(command, b"a question\n")), "Hello.\n");
    // 0<&-: a program that is started without a stdin.
    for (prompt, code) in [("four", Some(0)), ("", Some(2))] {
        let line = r#"exec "$0" run "$1" ${2:+"$2"} <&-"#;
        let mut command = std::process::Command::new("sh");
        command.args(["-c", line, env!("CARGO_BIN_EXE_qchat")]).arg(&model).arg(prompt).env_clear();
        let output = command.envs(sandbox.environment()).output().unwrap();
        assert_eq!(output.status.code(), code, "{}", stderr(&output));
    }
}

#[test]
fn a_terminal_and_a_prompt_are_one_answer() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello \x1b]52;c;aGk=\x07there."]);
    let pty = portable_pty::native_pty_system().openpty(portable_pty::PtySize::default()).unwrap();
    let mut command = portable_pty::CommandBuilder::new(env!("CARGO_BIN_EXE_qchat"));
    command.env_clear();
    for (name, value) in sandbox.environment() {
        command.env(name, value);
    }
    command.args(["run", model.to_str().unwrap(), "hi"]);
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut said = Vec::new();
    // Linux ends a terminal whose last user left with an error.
    let _ = reader.read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("Hello there."), "{said:?}");
    assert!(!said.contains("]52"), "a model must not reach the clipboard: {said:?}");
}

#[test]
fn a_document_comes_before_the_question() {
    // The tiny model reads every byte: the same text is the same prompt, and another order is another one.
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&model).unwrap();
    let file = sandbox.write("file.txt", "from a file\n\n");
    let answer = |stdin: &str, args: &[&str]| {
        let mut command = sandbox.qchat();
        command.arg("run").arg(&model).args(args).args(["--temp", "0", "--max-tokens", "24", "--output", "json"]);
        let answer = json(&with_stdin(command, stdin.as_bytes()));
        (answer["content"].clone(), answer["usage"]["prompt_tokens"].clone())
    };
    let whole = answer("", &["--no-stdin", "a document\n\na question"]);
    assert_eq!(answer("a document\n", &["a question"]), whole);
    assert_eq!(answer("a document\r\n", &["a", "question"]), whole);
    assert_ne!(answer("a question\n", &["a document"]).0, whole.0);
    let with_file = answer("", &["a document\n\nfrom a file\n\na question"]);
    let file = file.to_str().unwrap();
    assert_eq!(answer("a document\n", &["-f", file, "a question"]), with_file);
    assert_eq!(
        answer("a document\n\nfrom a file\n\nfrom a file", &[]),
        answer("a document", &["-f", file, "-f", file])
    );
}

#[test]
fn a_silent_pipe_gets_one_hint_and_is_waited_for() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).stdin(Stdio::piped());
    let mut child = piped(&mut command);
    let mut stdin = child.stdin.take().unwrap();
    let began = Instant::now();
    let mut hint = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut hint).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(2900), "{:?}", began.elapsed());
    stdin.write_all(b"late").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(answered(&output), "Hello.\n");
    let rest = stderr(&output);
    assert!(rest.contains("stdin") && rest.contains("--no-stdin") && rest.lines().count() == 1, "{rest}");
    // Told not to read it, nothing waits.
    let child = started(&sandbox, &model, &["hi", "--no-stdin"], Stdio::piped());
    let output = ended(child);
    assert_eq!((answered(&output).as_str(), stderr(&output).as_str()), ("Hello.\n", ""));
}

#[test]
fn each_kind_of_stdout_is_served() {
    let sandbox = Sandbox::new();
    let long = "0123456789".repeat(20_000);
    let model = sandbox.script_with(&[&long], serde_json::json!({ "context": 1_000_000 }));
    let small = sandbox.write("small.script", r#"{"replies": ["Hello."]}"#);
    let path = sandbox.path("answer.txt");
    for format in ["text", "json", "jsonl"] {
        let to = |stdout: Stdio| {
            let mut command = sandbox.qchat();
            command.arg("run").arg(&small).args(["hi", "--output", format]).stdout(stdout).stderr(Stdio::piped());
            command.spawn().unwrap().wait_with_output().unwrap()
        };
        answered(&to(File::create(&path).unwrap().into()));
        assert!(std::fs::read_to_string(&path).unwrap().contains("Hello.") || format == "jsonl");
        answered(&to(Stdio::null()));
        if cfg!(target_os = "linux") {
            let line = refused(&to(File::options().write(true).open("/dev/full").unwrap().into()), 1);
            assert!(line.contains("stdout"), "{line}");
        }
        // A reader that leaves is not a failure, however early.
        for read in [0, 5] {
            let mut command = sandbox.qchat();
            command.arg("run").arg(&model).args(["hi", "--max-tokens", "20000", "--output", format]);
            let mut child = piped(&mut command);
            let mut stdout = child.stdout.take().unwrap();
            let mut start = vec![0; read];
            stdout.read_exact(&mut start).unwrap();
            drop(stdout);
            let output = ended(child);
            assert_eq!((answered(&output).as_str(), stderr(&output).as_str()), ("", ""));
            assert!(format != "text" || long.as_bytes().starts_with(&start));
        }
    }
}

#[test]
fn status_never_reaches_a_piped_stdout_and_no_escape_does() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>hm</think>Hello.\n"]);
    let args = ["hi", "-v", "--stats", "--color", "always", "--reasoning", "show"];
    let output = sandbox.run(&model, &args);
    // A reply that ends its line gets no second newline.
    assert_eq!(answered(&output), "hm\n\nHello.\n");
    assert!(stderr(&output).contains("prompt tokens") && !stderr(&output).contains('\x1b'), "{}", stderr(&output));
    // What the model says is data for a pipe, and is not changed.
    let model = sandbox.script(&["\x1b[31mred"]);
    assert_eq!(stdout(&sandbox.run(&model, &["hi", "--color", "always"])), "\x1b[31mred\n");
}

#[test]
fn one_answer_leaves_nothing_behind_but_what_was_measured() {
    fn files(folder: &std::path::Path, all: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, all) } else { all.push(path) }
        }
    }
    let left = |args: &[&str]| {
        let sandbox = Sandbox::new();
        let model = sandbox.script(&["Hello."]);
        answered(&sandbox.run(&model, args));
        let mut all = Vec::new();
        files(sandbox.home.path(), &mut all);
        all.retain(|path| !path.ends_with("model.script"));
        let inside = |path: &std::path::PathBuf| {
            let path = path.strip_prefix(sandbox.home.path().join("qchat/cache")).expect("a file in the cache folder");
            path.iter().next().unwrap().to_str().unwrap().to_owned()
        };
        let kept: std::collections::BTreeSet<String> = all.iter().map(inside).collect();
        kept.into_iter().collect::<Vec<_>>()
    };
    // A one-shot run is no chat: the costs of evaluations are kept, and what was read.
    assert_eq!(left(&["hi"]), ["identity-v1", "kv-v1", "speculation-v1"]);
    assert_eq!(left(&["hi", "--no-cache"]), ["speculation-v1"]);
    assert_eq!(left(&["hi", "--private"]), [""; 0]);
}
