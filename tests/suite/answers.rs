//! What one answer holds: JSON, ends, seeds, thoughts.

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::outcome::{answered, ended, interrupt, json as json_of, started};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout};

fn keys(value: &Value, known: &[&str]) -> Vec<String> {
    value.as_object().unwrap().keys().filter(|key| known.contains(&key.as_str())).cloned().collect()
}

#[test]
fn json_is_one_object_with_the_keys_of_the_design_in_its_order() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hëllo."]);
    let text = answered(&sandbox.run(&model, &["hi", "--output", "json"]));
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let top = ["model", "content", "reasoning", "finish_reason", "usage", "timings"];
    assert_eq!(keys(&answer, &top), top);
    assert_eq!(answer["model"], "model");
    assert_eq!(answer["content"], "Hëllo.");
    assert_eq!(answer["reasoning"], Value::Null);
    assert_eq!(answer["finish_reason"], "stop");
    // ChatML around two bytes is 19 + 2; the reply has 7 bytes, and its end is no token of it.
    let usage = json!({ "prompt_tokens": 21, "cached_tokens": 0, "completion_tokens": 7 });
    assert_eq!(answer["usage"], usage);
    assert_eq!(keys(&answer["usage"], &["prompt_tokens", "cached_tokens", "completion_tokens"]).len(), 3);
    let times = ["load_ms", "restore_ms", "prefill_ms", "ttft_ms", "decode_ms"];
    let rates = ["prefill_tokens_per_second", "decode_tokens_per_second"];
    let all = [&times[..], &rates[..]].concat();
    assert_eq!(keys(&answer["timings"], &all), all);
    for name in all {
        assert!(answer["timings"][name].as_f64().is_some_and(|value| value >= 0.0), "{name}: {answer}");
    }
    // From the start of the process, so the load is in it.
    let ms = |name: &str| answer["timings"][name].as_f64().unwrap();
    assert!(ms("ttft_ms") >= ms("load_ms") + ms("prefill_ms"), "{answer}");
}

#[test]
fn each_way_to_end_is_named() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["one two three"]);
    let ends = |args: &[&str]| {
        let answer = json_of(&sandbox.run(&model, &[&["hi", "--output", "json"], args].concat()));
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        (text("content"), text("finish_reason"), answer["usage"]["completion_tokens"].as_u64().unwrap())
    };
    assert_eq!(ends(&[]), ("one two three".into(), "stop".into(), 13));
    assert_eq!(ends(&["--max-tokens", "7"]), ("one two".into(), "length".into(), 7));
    let (content, finish, _) = ends(&["--stop", "never", "--stop", "wo t"]);
    assert_eq!((content.as_str(), finish.as_str()), ("one t", "stop"));
    // 21 tokens of prompt and 27 of answer are 48, and the context holds 47: the last one is never read.
    let long = sandbox.script_with(&[&"x".repeat(100)], json!({ "context": 47 }));
    let output = sandbox.run(&long, &["hi", "--output", "json"]);
    let answer = json_of(&output);
    assert_eq!((&answer["finish_reason"], &answer["usage"]["completion_tokens"]), (&json!("length"), &json!(27)));
    assert!(stderr(&output).contains("context"), "a cut is said: {}", stderr(&output));
}

#[test]
fn jsonl_is_the_chunks_and_then_the_object() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>hm, so</think>The answer.\nIt is 4.\u{1f44d}"]);
    let text = answered(&sandbox.run(&model, &["hi", "--output", "jsonl", "--reasoning", "show"]));
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whole = lines.pop().unwrap();
    let joined = |name: &str| lines.iter().filter_map(|line| line[name].as_str()).collect::<String>();
    assert!(lines.len() > 2 && lines.iter().all(|line| line.as_object().unwrap().len() == 1));
    assert_eq!(whole["content"], "The answer.\nIt is 4.\u{1f44d}");
    assert_eq!((joined("content"), joined("reasoning")), ("The answer.\nIt is 4.\u{1f44d}".into(), "hm, so".into()));
    assert_eq!((&whole["reasoning"], &whole["finish_reason"]), (&json!("hm, so"), &json!("stop")));
}

#[test]
fn thoughts_stay_out_of_a_pipe_unless_asked_for() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>\nx\n</think>\n\nanswer"]);
    assert_eq!(answered(&sandbox.run(&model, &["hi"])), "answer\n");
    assert_eq!(answered(&sandbox.run(&model, &["hi", "--reasoning", "hide"])), "answer\n");
    let shown = answered(&sandbox.run(&model, &["hi", "--reasoning", "show"]));
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["x", "answer"]);
    assert!(!shown.contains("think"), "{shown}");
    let answer = json_of(&sandbox.run(&model, &["hi", "--output", "json"]));
    assert_eq!((answer["content"].as_str(), answer["reasoning"].as_str().map(str::trim)), (Some("answer"), Some("x")));
    let hidden = json_of(&sandbox.run(&model, &["hi", "--output", "json", "--reasoning", "hide"]));
    assert_eq!((&hidden["content"], &hidden["reasoning"]), (&json!("answer"), &Value::Null));
}

#[test]
fn a_seed_is_a_text() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&model).unwrap();
    let say = |seed: &str| answered(&sandbox.run(&model, &["hi", "--seed", seed, "--temp", "1", "--max-tokens", "40"]));
    let first = say("1");
    // 40 tokens are 40 letters, and the newline that ends the last line.
    assert_eq!(first.len(), 41);
    assert_eq!(say("1"), first);
    assert_ne!(say("2"), first);
    // A seed that was not given is told, and gives the text again.
    let args = ["hi", "--temp", "1", "--max-tokens", "40", "--output", "json"];
    let answer = json_of(&sandbox.run(&model, &args));
    let again = say(&answer["seed"].to_string());
    assert_eq!(again.trim_end_matches('\n'), answer["content"]);
}

#[test]
fn raw_is_the_prompt_as_it_stands() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&model).unwrap();
    let tokens = |args: &[&str]| {
        let args = [&["<|im_start|>", "--max-tokens", "1", "--output", "json"], args].concat();
        json_of(&sandbox.run(&model, &args))["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    // Text can never become a control token: twelve bytes are twelve tokens.
    assert_eq!(tokens(&["--raw"]), 12);
    assert_eq!(tokens(&[]), 12 + 19);
}

#[test]
fn ctrl_c_keeps_what_was_said() {
    let sandbox = Sandbox::new();
    let reply = "0123456789".repeat(300);
    let model = sandbox.script_with(&[&reply], json!({ "row_ms": 5, "context": 100_000 }));
    let mut child = started(&sandbox, &model, &["hi"], Stdio::null());
    let mut start = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    interrupt(&child);
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{:?}", output.status);
    let said = String::from_utf8(start.to_vec()).unwrap() + &stdout(&output);
    assert!(said.ends_with('\n') && reply.starts_with(said.trim_end()), "{said}");
    // As JSON it is a whole object that says so.
    let mut child = started(&sandbox, &model, &["hi", "--output", "jsonl"], Stdio::null());
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    interrupt(&child);
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{:?}", output.status);
    let last: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    assert_eq!(last["finish_reason"], "interrupted");
    assert!(reply.starts_with(last["content"].as_str().unwrap()));
}

#[test]
fn ctrl_c_stops_a_load_a_prompt_and_a_wait() {
    let sandbox = Sandbox::new();
    let slow = sandbox.script_with(&["Hello."], json!({ "load_ms": 600_000 }));
    let long = "x".repeat(3000);
    let mut child = started(&sandbox, &slow, &["hi"], Stdio::null());
    let stopped = |child| {
        let output = ended(child);
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    };
    interrupt(&child);
    stopped(child);
    // Reading the prompt takes 3,000 rows of 100 ms.
    let slow = sandbox.script_with(&["Hello."], json!({ "row_ms": 100 }));
    child = started(&sandbox, &slow, &[&long], Stdio::null());
    interrupt(&child);
    stopped(child);
    child = started(&sandbox, &slow, &[], Stdio::piped());
    let stdin = child.stdin.take();
    interrupt(&child);
    stopped(child);
    drop(stdin);
}
