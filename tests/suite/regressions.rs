//! What broke once, named by what broke.

use std::process::Stdio;

use serde_json::json;

use super::outcome::{answered, refused};
use crate::common::tiny::{Kind, Tiny};
use crate::common::{Sandbox, stderr, stdout, with_stdin};

#[test]
fn a_full_stderr_ended_the_program_in_a_panic() {
    let sandbox = Sandbox::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = sandbox.qchat().args(["run", "nosuchmodel", "hi"]).stderr(full()).stdout(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(3));
    let model = sandbox.script(&["Hello."]);
    let output = sandbox.qchat().arg("run").arg(&model).args(["hi", "--stats"]).stderr(full()).output().unwrap();
    assert_eq!(answered(&output), "Hello.\n");
}

#[test]
fn a_control_token_of_one_character_could_be_typed() {
    let sandbox = Sandbox::new();
    let mut tiny = Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() };
    tiny.specials.push(("\u{2603}".into(), Kind::Control));
    let path = sandbox.path("tiny.gguf");
    tiny.write(&path).unwrap();
    let tokens = |text: &str| {
        let output = sandbox.run(&path, &[text, "--max-tokens", "1", "--output", "json"]);
        let answer: serde_json::Value = serde_json::from_str(&answered(&output)).unwrap();
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    // Three bytes, not one id.
    assert_eq!(tokens("a\u{2603}"), tokens("a") + 3);
}

#[test]
fn quiet_hid_that_an_answer_was_cut() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[&"x".repeat(500)], json!({ "context": 200 }));
    let output = sandbox.run(&model, &["-q", "hi"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "qchat: the answer was cut at the end of the context\n");
}

#[test]
fn an_answer_of_thoughts_alone_was_nothing_without_a_word() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["<think>long thoughts</think>Yes."]);
    let output = sandbox.run(&model, &["hi", "--max-tokens", "12"]);
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output), "qchat: all 12 tokens went into thoughts; raise --max-tokens\n");
}

#[test]
fn c1_controls_went_through_json() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["a\u{9d}52;c;eA==\u{9c}b\u{7f}"]);
    for format in ["json", "jsonl"] {
        let said = answered(&sandbox.run(&model, &["hi", "--output", format]));
        assert!(!said.trim_end().contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["content"], "a\u{9d}52;c;eA==\u{9c}b\u{7f}");
    }
}

#[test]
fn raw_text_lost_its_last_line_ends() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("tiny.gguf");
    Tiny::default().write(&path).unwrap();
    let mut command = sandbox.qchat();
    command.arg("run").arg(&path).args(["--raw", "--max-tokens", "1", "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&answered(&with_stdin(command, b"Q: x\n\n"))).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], 6);
}

#[test]
fn values_of_the_configuration_had_no_range() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    for (line, says) in [
        ("max_tokens = 0", "max_tokens must be from 1"),
        ("context = 5", "context must be from 16"),
        ("threads = 5000", "threads must be from 1 to 512"),
    ] {
        sandbox.write("qchat/config/config.toml", line);
        let said = refused(&sandbox.run(&model, &["hi"]), 2);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_context_beyond_the_trained_one_was_cut_silently() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["Hello."], json!({ "context": 200 }));
    let output = sandbox.run(&model, &["hi", "--ctx", "4096"]);
    assert_eq!(answered(&output), "Hello.\n");
    assert!(stderr(&output).contains("trained for 200 tokens"), "{}", stderr(&output));
}

#[test]
fn a_file_of_another_size_passed_for_a_registered_one() {
    let sandbox = Sandbox::new();
    let script = sandbox.script(&["Hello."]);
    let entry = "[[model]]\nname = 'mine'\n[[model.source]]\nhf = 'o/r'\nrevision = 'abc'\n\
        files = [{ name = 'm.script', bytes = 9999 }]\n";
    sandbox.write("qchat/config/models.toml", entry);
    sandbox.write("hub/models--o--r/snapshots/abc/m.script", std::fs::read(script).unwrap());
    let output = sandbox.qchat().args(["run", "mine", "hi"]).output().unwrap();
    assert!(refused(&output, 3).contains("HF_HUB_OFFLINE"));
}

#[test]
fn a_missing_path_hid_the_sources_behind_it() {
    let sandbox = Sandbox::new();
    let script = sandbox.script(&["Hello."]);
    let entry = format!(
        "[[model]]\nname = 'mine'\n[[model.source]]\npath = '/nowhere/m.gguf'\n[[model.source]]\npath = '{}'\n",
        script.display()
    );
    sandbox.write("qchat/config/models.toml", entry);
    assert_eq!(answered(&sandbox.qchat().args(["run", "mine", "hi"]).output().unwrap()), "Hello.\n");
}

#[test]
fn help_sent_escapes_into_a_pipe_when_colours_were_forced() {
    let sandbox = Sandbox::new();
    for args in [&["--help"][..], &["run", "--help"], &[]] {
        let output = sandbox.qchat().args(args).env("CLICOLOR_FORCE", "1").output().unwrap();
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{args:?}");
    }
}
