//! Many prompts, one load: `--each`, and loops of a shell around single answers.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::outcome::{interrupt, refused};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout, with_stdin};

fn each(sandbox: &Sandbox, model: &std::path::Path, args: &[&str], input: &str) -> (Option<i32>, Vec<Value>, String) {
    let mut command = sandbox.qchat();
    command.arg("run").arg(model).args(["--each"]).args(args);
    let output = with_stdin(command, input.as_bytes());
    let rows = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code(), rows, stderr(&output))
}

/// A model that says anything.
fn tiny(sandbox: &Sandbox) -> std::path::PathBuf {
    let path = sandbox.path("tiny.gguf");
    Tiny { spread: 1.0, ..Tiny::default() }.write(&path).unwrap();
    path
}

fn contents(rows: &[Value]) -> Vec<String> {
    rows.iter().map(|row| row["content"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn every_line_gets_an_object_in_its_place() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let (code, rows, said) = each(&sandbox, &model, &["lines"], "a\nb 你好\r\n\nc");
    assert_eq!((code, contents(&rows)), (Some(1), ["Hello.", "Hello.", "-", "Hello."].map(str::to_owned).to_vec()));
    assert_eq!(rows.iter().map(|row| row["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(rows[2]["error"], json!({ "code": 2, "message": "the line is empty" }));
    assert!(said.contains("1 of 4 lines have an error in place of an answer"), "{said}");
    // 19 around the text, which is 1 and 8 bytes long.
    let tokens = |row: &Value| row["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((tokens(&rows[0]), tokens(&rows[1])), (20, 27));
    let (code, rows, said) = each(&sandbox, &model, &["lines", "--parallel", "2"], "");
    assert_eq!((code, rows.len(), said.as_str()), (Some(0), 0, ""));
}

#[test]
fn requests_bring_settings_and_bad_ones_stop_nothing() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["Hello there."], json!({ "context": 128 }));
    let lines = [
        json!({ "prompt": "a", "max_tokens": 3 }).to_string(),
        "not json".into(),
        json!({ "custom_id": "x", "body": { "messages": [{ "role": "user", "content": "b" }], "stop": "there" } })
            .to_string(),
        json!({ "custom_id": "long", "prompt": "x".repeat(200) }).to_string(),
        json!({ "custom_id": "tools", "prompt": "a", "tools": [] }).to_string(),
        json!({ "prompt": "a", "response_format": { "type": "json_schema", "json_schema": { "schema": { "const": "a" } } } })
            .to_string(),
        json!({ "prompt": "last" }).to_string(),
    ];
    let (code, rows, _) = each(&sandbox, &model, &["jsonl"], &lines.join("\n"));
    assert_eq!(code, Some(1));
    assert_eq!(contents(&rows), ["Hel", "-", "Hello ", "-", "-", "\"a\"", "Hello there."]);
    assert_eq!((rows[2]["custom_id"].as_str(), rows[3]["custom_id"].as_str()), (Some("x"), Some("long")));
    let error =
        |row: usize| (rows[row]["error"]["code"].as_u64().unwrap(), rows[row]["error"]["message"].as_str().unwrap());
    assert!(error(1).1.starts_with("this is no JSON"), "{:?}", error(1));
    assert_eq!(error(3).0, 4);
    assert!(error(3).1.starts_with("the prompt has 219 tokens and its share is 128: 92 too many"), "{:?}", error(3));
    assert!(error(4).1.starts_with("'tools' is not known here"), "{:?}", error(4));
    // Whatever is wrong with a request, it is handed back with its id.
    assert_eq!(rows[4]["custom_id"], "tools");
}

#[test]
fn a_line_that_is_no_text_is_one_error() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["--each", "lines"]);
    let output = with_stdin(command, b"\xef\xbb\xbfa\nb\xff\nc\0\nd\n");
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (output.status.code(), contents(&rows)),
        (Some(1), ["Hello.", "-", "-", "Hello."].map(str::to_owned).to_vec())
    );
    // 19 around a text of one byte: a byte order mark is none of it.
    assert_eq!(rows[0]["usage"]["prompt_tokens"], 20);
    let message = |row: usize| rows[row]["error"]["message"].as_str().unwrap();
    assert!(message(1).contains("byte 1 is not part of a character") && message(2).contains("NUL"), "{rows:?}");
}

#[test]
fn a_beginning_that_does_not_fit_fails_its_own_line() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let shape = json!({ "type": "json_schema", "json_schema": { "schema": { "enum": ["a", "b"] } } });
    let lines = [
        json!({ "prompt": "x", "response_format": shape }).to_string(),
        json!({ "prompt": "y" }).to_string(),
        json!({ "prompt": "z", "response_format": shape, "temperature": 1 }).to_string(),
    ];
    let args = |prefill: &'static str| ["jsonl", "--max-tokens", "4", "--prefill", prefill];
    let (code, rows, _) = each(&sandbox, &model, &args("no"), &lines.join("\n"));
    assert_eq!((code, rows.len()), (Some(1), 3));
    assert!(rows[0]["error"]["message"].as_str().unwrap().contains("no token of the model fits"), "{rows:?}");
    assert!(rows[1]["content"].as_str().unwrap().starts_with("no") && rows[2]["error"].is_object(), "{rows:?}");
    // One of its own that fits is kept, and another line is free whatever all others are kept to.
    let (code, rows, said) = each(&sandbox, &model, &["jsonl", "--max-tokens", "4"], &lines.join("\n"));
    assert_eq!(code, Some(0), "{said}");
    assert!([0, 2].iter().all(|row| ["\"a\"", "\"b\""].contains(&rows[*row]["content"].as_str().unwrap())), "{rows:?}");
    let free = json!({ "prompt": "x", "response_format": { "type": "text" } }).to_string();
    let (_, rows, _) =
        each(&sandbox, &model, &["jsonl", "--max-tokens", "4", "--choice", "q"], &format!("{free}\n{}", lines[1]));
    assert!(rows[0]["content"] != "q" && rows[1]["content"] == "q", "{rows:?}");
}

#[test]
fn conversations_get_files_and_a_question_too() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let doc = sandbox.write("doc.txt", "doc");
    let user = |text: &str| json!({ "role": "user", "content": text });
    let talk = json!({ "messages": [user("a"), { "role": "assistant", "content": "One." }, user("ab")] }).to_string();
    let tokens = |args: &[&str]| {
        let (_, rows, _) = each(&sandbox, &model, &[&["jsonl"], args].concat(), &talk);
        assert_eq!(contents(&rows), ["Two."]);
        rows[0]["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(&["-f", doc.to_str().unwrap(), "why?"]) - tokens(&[]), 3 + 2 + 2 + 4);
    // Without a template there is no conversation.
    let (code, rows, _) = each(&sandbox, &model, &["jsonl", "--raw"], &format!("{talk}\n{{\"prompt\": \"a\\n\"}}"));
    assert_eq!(code, Some(1));
    assert!(rows[0]["error"]["message"].as_str().unwrap().contains("needs a chat template"), "{rows:?}");
    // A text is read to its last line end, and nothing else.
    assert_eq!(rows[1]["usage"]["prompt_tokens"], 2);
}

#[test]
fn what_prompts_share_is_on_disk_for_the_next_run() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("tiny.gguf");
    Tiny { context: 2048, says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&path).unwrap();
    let doc = sandbox.write("doc.txt", "A document that many ask about. ".repeat(20)).display().to_string();
    let run = |more: &[&str]| {
        let args = [&["lines", "-f", &doc, "--max-tokens", "9", "--temp", "0", "--draft", "off"], more].concat();
        let (code, rows, said) = each(&sandbox, &path, &args, "why\nhow\nwho\n");
        assert_eq!(code, Some(0), "{said}");
        let cached = rows.iter().map(|row| row["usage"]["cached_tokens"].as_u64().unwrap()).collect::<Vec<_>>();
        (contents(&rows), cached)
    };
    let (private, cached) = run(&["--private"]);
    assert_eq!(cached[0], 0);
    let (first, cached) = run(&[]);
    assert!(cached[0] == 0 && cached[1] > 640 && cached[2] > 640, "{cached:?}");
    let (second, cached) = run(&[]);
    assert!(cached.iter().all(|cached| *cached > 640), "{cached:?}");
    assert_eq!((&first, &second), (&private, &first));
    // One question finds it too, and `--n`.
    let args = ["-f", &doc, "which", "--max-tokens", "3", "--n", "2", "--output", "json"];
    let output = sandbox.run(&path, &args);
    let object: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert!(object["usage"]["cached_tokens"].as_u64().unwrap() > 640, "{object}");
    let listed = sandbox.qchat().args(["cache", "list"]).output().unwrap();
    assert!(stdout(&listed).contains("tiny"), "{}", stdout(&listed));
}

#[test]
fn files_and_a_question_go_around_each_line() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let doc = sandbox.write("doc.txt", "doc");
    let tokens = |args: &[&str]| {
        let (_, rows, _) = each(&sandbox, &model, &[&["lines"], args].concat(), "ab\n");
        rows[0]["usage"]["prompt_tokens"].as_u64().unwrap() - 19
    };
    assert_eq!(tokens(&[]), 2);
    assert_eq!(tokens(&["why"]), 2 + 2 + 3);
    assert_eq!(tokens(&["is {} it? {}"]), 12 - 4 + 4);
    assert_eq!(tokens(&["-f", doc.to_str().unwrap()]), 3 + 2 + 2);
}

#[test]
fn a_line_says_the_seed_it_had_and_a_wrong_shape_is_said_once() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["yes"]);
    let lines = format!("{}\n{}", json!({ "prompt": "a", "seed": 9 }), json!({ "prompt": "b" }));
    let (code, rows, _) =
        each(&sandbox, &model, &["jsonl", "--seed", "4", "--choice", "yes", "--choice", "no"], &lines);
    assert_eq!((code, contents(&rows)), (Some(0), vec!["yes".to_owned(); 2]));
    assert_eq!((rows[0]["seed"].as_u64(), rows[1]["seed"].as_u64()), (Some(9), Some(4)));
    // What is wrong for every line is the command line's mistake.
    let wrong = ["lines", "--schema", "{\"type\": \"strnig\"}"];
    let (code, rows, said) = each(&sandbox, &model, &wrong, "a\nb\n");
    assert_eq!((code, rows.len(), said.lines().count()), (Some(2), 0, 1), "{said}");
}

#[test]
fn what_is_there_already_is_left_out() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let input = "a\nb\nc\nd\n";
    sandbox.write("in.txt", input);
    let (_, rows, _) = each(&sandbox, &model, &["lines"], input);
    // The second failed, and of the third there is only a part.
    let line = |row: usize| rows[row].to_string();
    let failed = json!({ "index": 1, "error": { "code": 1, "message": "x" } }).to_string();
    sandbox.write("out.jsonl", format!("{}\n{failed}\n{}", line(0), &line(2)[..20]));
    let run = format!(
        "{} run model.script --each lines --resume out.jsonl < in.txt >> out.jsonl",
        env!("CARGO_BIN_EXE_qchat")
    );
    let shell = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(sandbox.home.path()).env_clear().envs(sandbox.environment());
        command.output().unwrap()
    };
    let output = shell(&run);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(sandbox.path("out.jsonl")).unwrap();
    let whole: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let indices: Vec<u64> = whole.iter().map(|row| row["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 1, 2, 3]);
    // Nothing is left to be done.
    let before = text.len();
    assert!(shell(&run).status.success());
    assert_eq!(std::fs::read_to_string(sandbox.path("out.jsonl")).unwrap().len(), before);
    refused(&sandbox.run(&model, &["--each", "lines", "--resume", "none.jsonl"]), 2);
}

#[test]
fn lines_without_ids_of_their_own_are_not_taken_for_answered() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let request = |id: Value| json!({ "custom_id": id, "prompt": "a" }).to_string();
    let lines = [json!(null), json!("x"), json!(null), json!("x")].map(request).join("\n");
    let (_, rows, _) = each(&sandbox, &model, &["jsonl"], lines.lines().next().unwrap());
    assert!(rows[0].get("custom_id").is_none());
    let done = json!({ "index": 1, "custom_id": "x", "content": "Hello." });
    sandbox.write("out.jsonl", format!("{}\n{done}\n", rows[0]));
    let out = sandbox.path("out.jsonl").display().to_string();
    let (code, rows, _) = each(&sandbox, &model, &["jsonl", "--resume", &out], &lines);
    // Of the two that call themselves x nobody can tell which one has an answer.
    assert_eq!((code, contents(&rows)), (Some(1), ["Hello.", "-"].map(str::to_owned).to_vec()));
    assert_eq!((rows[0]["index"].as_u64(), rows[1]["index"].as_u64()), (Some(2), Some(3)));
}

#[test]
fn ctrl_c_leaves_whole_lines_and_an_early_reader_ends_it() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["x".repeat(300).as_str()], json!({ "row_ms": 3, "context": 4096 }));
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["--each", "jsonl", "--parallel", "3", "--draft", "off"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The first takes seconds, the two behind it do not.
    for most in [300, 2, 2] {
        writeln!(stdin, "{}", json!({ "prompt": "a", "max_tokens": most })).unwrap();
    }
    std::thread::sleep(Duration::from_millis(900));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["index"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    let shell =
        format!("yes a | {} run model.script --each lines --max-tokens 2 | head -n 3", env!("CARGO_BIN_EXE_qchat"));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &shell]).current_dir(sandbox.home.path()).env_clear().envs(sandbox.environment());
    let began = Instant::now();
    let output = command.output().unwrap();
    assert_eq!(stdout(&output).lines().count(), 3, "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn answers_come_while_the_pipe_is_open() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["--each", "lines"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    for number in 0..3 {
        writeln!(stdin, "line {number}").unwrap();
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((row["index"].as_u64(), row["content"].as_str()), (Some(number), Some("Hello.")));
    }
    drop(stdin);
    assert!(lines.next().is_none() && child.wait().unwrap().success());
}

#[test]
fn without_a_pipe_there_is_nothing_to_answer() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let refusal = refused(&sandbox.run(&model, &["--each", "lines", "--no-stdin"]), 2);
    assert!(refusal.contains("--each reads lines from stdin"), "{refusal}");
    refused(&sandbox.run(&model, &["--each", "words"]), 2);
    refused(&sandbox.run(&model, &["--resume", "x"]), 2);
}

#[test]
fn loops_of_a_shell_have_the_codes_of_each_run() {
    let sandbox = Sandbox::new();
    sandbox.script(&["Hello."]);
    let long = "x".repeat(5000);
    for number in 0..100 {
        let text = match number {
            40 => long.as_str(),
            60 => "\0",
            70 => "",
            _ => "a file",
        };
        sandbox.write(&format!("in/{number:03}.txt"), text);
    }
    let script = format!(
        "set -o pipefail 2>/dev/null\nfor f in in/*.txt; do {q} run model.script Sum < $f > out.txt 2> err.txt; rc=$?; \
         echo \"$(basename $f) $rc $(cat out.txt)\"; done > loop.txt\n\
         ls in/0[0-2]*.txt | xargs -P 4 -I F sh -c '{q} run model.script -f F Sum > F.out' ; echo \"xargs $?\" >> loop.txt\n\
         {q} run model.script hi | head -c 2 > /dev/null; echo \"head $?\" >> loop.txt",
        q = env!("CARGO_BIN_EXE_qchat")
    );
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &script]).current_dir(sandbox.home.path()).env_clear().envs(sandbox.environment());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = std::fs::read_to_string(sandbox.path("loop.txt")).unwrap();
    for (number, line) in lines.lines().take(100).enumerate() {
        let (code, said) = match number {
            40 => (4, ""),
            60 => (2, ""),
            _ => (0, "Hello."),
        };
        assert_eq!(line, format!("{number:03}.txt {code} {said}"));
    }
    assert!(lines.ends_with("xargs 0\nhead 0\n"), "{lines}");
    let outs = (0..30).map(|number| std::fs::read_to_string(sandbox.path(&format!("in/{number:03}.txt.out"))).unwrap());
    assert!(outs.into_iter().all(|said| said == "Hello.\n"));
}

#[test]
fn timeout_ends_an_answer_and_keeps_what_was_written() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["word ".repeat(400).as_str()], json!({ "row_ms": 5, "context": 8192 }));
    let mut command = Command::new("timeout");
    command.args(["1", env!("CARGO_BIN_EXE_qchat"), "run"]).arg(&model).args(["hi", "--draft", "off"]);
    command.current_dir(sandbox.home.path()).env_clear().envs(sandbox.environment()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    assert!(stdout(&output).starts_with("word word "), "{}", stdout(&output));
}
