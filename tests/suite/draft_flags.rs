//! Drafts from the command line and in a talk: who drafts, what is said of it, and that nothing of it can hurt an answer.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::drafts::printable;
use super::outcome::{answered, ended, json, refused, started};
use super::pty::Pty;
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

const SENTENCE: &str = "the quick brown fox jumps over a lazy dog, what by no means every fox would";
const NGRAMS: &str = "n-grams draft where that pays; no draft model fits";

/// A script that is a large file: beside it a draft counts as cheap, and is tried as soon as a step's cost is known.
fn large(sandbox: &Sandbox, script: &Value) -> PathBuf {
    sandbox.write("model.script", format!("{script}{}", " ".repeat(30_000)))
}

fn small(sandbox: &Sandbox, script: &Value) -> String {
    sandbox.write("draft.script", script.to_string()).display().to_string()
}

fn replies(replies: &[&str]) -> Value {
    json!({ "replies": replies })
}

/// Random letters, and a draft that is often right.
fn random_pair(sandbox: &Sandbox) -> (PathBuf, String) {
    let script = |off: f32| json!({ "replies": [], "random": { "seed": 11, "spread": 8.0, "off": off } });
    (large(sandbox, &script(0.0)), small(sandbox, &script(2.0)))
}

/// The account of an answer, checked against itself.
fn account(answer: &Value) -> &Value {
    let own = &answer["speculation"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {own}"));
    let count = |name: &str| own[name].as_u64().unwrap_or_else(|| panic!("{name} in {own}"));
    let (rounds, proposed, accepted) = (count("rounds"), count("proposed"), count("accepted"));
    assert!(accepted <= proposed && rounds <= proposed && proposed <= 16 * rounds, "{own}");
    let lengths: Vec<u64> = own["lengths"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((lengths[0], lengths[1..].iter().sum::<u64>()), (count("plain_rounds"), rounds), "{own}");
    let drafted: u64 = lengths.iter().zip(0..).map(|(rounds, length)| rounds * length).sum();
    assert_eq!(drafted, proposed, "{own}");
    let of_pairs = |at: usize| -> u64 {
        own["by_position"].as_array().unwrap().iter().map(|pair| pair[at].as_u64().unwrap()).sum()
    };
    assert_eq!((of_pairs(0), of_pairs(1)), (proposed, accepted), "{own}");
    let drafters = own["by_drafter"].as_object().unwrap();
    for (name, sum) in [("rounds", rounds), ("proposed", proposed), ("accepted", accepted)] {
        assert_eq!(drafters.values().map(|drafter| drafter[name].as_u64().unwrap()).sum::<u64>(), sum, "{name}: {own}");
    }
    for time in ["draft_ms", "draft_read_ms", "verify_ms", "policy_ms", "step_ms"] {
        assert!(number(&own[time]) >= 0.0, "{time}: {own}");
    }
    assert!(number(&own["draft_read_ms"]) <= number(&own["draft_ms"]) + 0.001, "{own}");
    if rounds > 0 {
        assert!(drafters.contains_key(own["drafter"].as_str().unwrap()), "{own}");
        let mean = number(&own["mean_accepted_length"]);
        // The last round may end with the turn, which is not emitted.
        assert!(mean > 0.0 && mean <= 17.0 && number(&own["estimated_gain"]) > 0.0, "{own}");
    } else {
        assert!(own["drafter"].is_null() && own["mean_accepted_length"].is_null(), "{own}");
        assert!(own["estimated_gain"].is_null(), "{own}");
    }
    own
}

#[test]
fn the_same_seed_says_the_same_whoever_drafts() {
    let sandbox = Sandbox::new();
    let (target, draft) = random_pair(&sandbox);
    for temp in ["0", "0.9"] {
        let say = |args: &[&str]| {
            let fixed = ["hi", "--seed", "7", "--temp", temp, "--max-tokens", "80", "--output", "json"];
            json(&sandbox.run(&target, &[&fixed, args].concat()))
        };
        let plain = say(&["--draft", "off"]);
        assert!(plain["speculation"].is_null() && plain["content"].as_str().unwrap().len() == 80);
        let text = answered(
            &sandbox.run(&target, &["hi", "--seed", "7", "--temp", temp, "--max-tokens", "80", "--draft", &draft]),
        );
        assert_eq!(text.trim_end(), plain["content"]);
        for (args, drafters, model) in [
            (&[][..], &["n-gram"][..], Value::Null),
            (&["--draft", "auto"], &["n-gram"], Value::Null),
            (&["--draft", &draft], &["n-gram", "model"], "draft".into()),
            (&["--draft", &draft, "--drafters", "ngram"], &["n-gram"], Value::Null),
            (&["--draft", &draft, "--drafters", "model"], &["model"], "draft".into()),
            (&["--draft", &draft, "--drafters", "model,ngram"], &["n-gram", "model"], "draft".into()),
        ] {
            let said = say(args);
            assert_eq!(said["content"], plain["content"], "{args:?}");
            let own = account(&said);
            let names: Vec<&str> = own["by_drafter"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!((names.as_slice(), &own["draft_model"]), (drafters, &model), "{args:?}");
        }
        // Nobody is left to draft.
        assert!(say(&["--drafters", "model"])["speculation"].is_null());
        for most in 1..=16 {
            let said = say(&["--draft", &draft, "--private", "--draft-max", &most.to_string()]);
            assert_eq!(said["content"], plain["content"], "--draft-max {most}");
            let beyond = &account(&said)["lengths"].as_array().unwrap()[most + 1..];
            assert!(beyond.iter().all(|rounds| *rounds == 0), "--draft-max {most}: {beyond:?}");
        }
    }
}

#[test]
fn what_drafts_did_is_in_the_json_and_in_the_line_of_stats() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&[SENTENCE]));
    let draft = small(&sandbox, &replies(&[SENTENCE]));
    let run = |args: &[&str]| {
        let fixed = ["hi", "--max-tokens", "60", "--private", "--stats"];
        sandbox.run(&target, &[&fixed, args].concat())
    };
    let output = run(&["--draft", &draft, "--drafters", "model", "--output", "json"]);
    let said = json(&output);
    assert_eq!((&said["content"], &said["usage"]["completion_tokens"]), (&SENTENCE[..60].into(), &60.into()));
    let own = account(&said);
    let fields = ["drafter", "proposed", "accepted", "rounds", "mean_accepted_length", "draft_ms", "verify_ms"];
    assert!(fields.iter().all(|name| !own[name].is_null()) && own["estimated_gain"].is_f64(), "{own}");
    // The draft says what the target says: all of it is accepted.
    assert_eq!((&own["drafter"], &own["accepted"]), (&"model".into(), &own["proposed"]));
    let line = stderr(&output);
    let counts = format!("drafts: model, {0} of {0} tokens accepted, ", own["accepted"]);
    assert!(line.contains(&counts) && line.contains(" tokens a round, mostly ") && line.lines().count() == 1, "{line}");
    // jsonl ends with the same object.
    let lines = answered(&run(&["--draft", &draft, "--output", "jsonl"]));
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    account(&last);
    let line = stderr(&run(&["--draft", "off"]));
    assert!(line.contains(" t/s, 60 tokens") && !line.contains("draft"), "{line}");
}

#[test]
fn a_model_that_cannot_be_cut_back_says_so_where_it_is_asked() {
    let sandbox = Sandbox::new();
    let target = sandbox.script_with(&[SENTENCE], json!({ "can_trim": false }));
    let output = sandbox.run(&target, &["hi", "--output", "json", "--stats"]);
    let said = json(&output);
    assert_eq!(said["content"], SENTENCE);
    assert_eq!(account(&said)["blocked"], "this model's state cannot be cut back");
    assert!(stderr(&output).contains("no drafts (this model's state cannot be cut back)"), "{}", stderr(&output));
    // In a talk once, and whenever it is asked for.
    let mut pty = Pty::talk(&sandbox, &target, &[]);
    for typed in ["a", "b"] {
        pty.line(typed);
        pty.at_prompt();
    }
    let said =
        |pty: &Pty| pty.rows().iter().filter(|row| *row == "no drafts: this model's state cannot be cut back").count();
    assert_eq!(said(&pty), 1, "{:?}", pty.rows());
    pty.line("/draft");
    pty.at_prompt();
    assert_eq!(said(&pty), 2, "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn wrong_draft_flags_are_usage_errors() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    for (args, names) in [
        (&["--draft-max", "0"], "1..=16"),
        (&["--draft-max", "17"], "1..=16"),
        (&["--draft-max", "-1"], "1..=16"),
        (&["--draft-max", "few"], "--draft-max"),
        (&["--drafters", "oracle"], "ngram, model"),
        (&["--drafters", "ngram,oracle"], "ngram, model"),
    ] {
        let said = refused(&sandbox.run(&model, &[&["hi"], &args[..]].concat()), 2);
        assert!(said.contains(names), "{said}");
    }
    refused(&sandbox.run(&model, &["hi", "--draft"]), 2);
    sandbox.write("qchat/config/config.toml", "draft_max = 17\n");
    assert!(refused(&sandbox.run(&model, &["hi"]), 2).contains("draft_max must be from 1 to 16"));
}

#[test]
fn a_draft_that_is_not_here_is_a_model_error() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let tiny = sandbox.write("tiny.gguf", Tiny::default().bytes());
    for (draft, says) in [
        ("./missing.gguf", "./missing.gguf does not exist"),
        ("no-such-model-at-all", "no model is called 'no-such-model-at-all'"),
        (tiny.to_str().unwrap(), "tiny cannot draft for model: one of them is a script"),
        (model.to_str().unwrap(), "it is the same model"),
    ] {
        let said = refused(&sandbox.run(&model, &["hi", "--draft", draft]), 3);
        assert!(said.contains(says), "{said}");
    }
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).arg("hi").env("QCHAT_DRAFT", "./missing.gguf");
    assert!(refused(&command.output().unwrap(), 3).contains("./missing.gguf"));
    // Where models may not draft, none is looked for.
    answered(&sandbox.run(&model, &["hi", "--draft", "./missing.gguf", "--drafters", "ngram"]));
}

#[test]
fn flag_environment_and_config_decide_in_this_order() {
    let sandbox = Sandbox::new();
    let (target, draft) = random_pair(&sandbox);
    let speculation = |args: &[&str], env: Option<&str>| {
        let mut command = sandbox.qchat();
        command.arg("run").arg(&target).args(["hi", "--max-tokens", "5", "--output", "json"]).args(args);
        command.envs(env.map(|value| ("QCHAT_DRAFT", value)));
        json(&command.output().unwrap())["speculation"].clone()
    };
    sandbox.write("qchat/config/config.toml", "draft = \"off\"\n");
    assert!(speculation(&[], None).is_null());
    assert_eq!(speculation(&[], Some(&draft))["draft_model"], "draft");
    assert!(speculation(&["--draft", "off"], Some(&draft)).is_null());
    assert!(speculation(&["--draft", "auto"], Some("off"))["draft_model"].is_null());
    sandbox.write("qchat/config/config.toml", format!("draft = {draft:?}\n"));
    assert_eq!(speculation(&[], None)["draft_model"], "draft");
    assert!(speculation(&[], Some("off")).is_null());
}

#[test]
fn a_draft_file_that_goes_or_breaks_before_it_is_wanted_costs_one_line() {
    for (breaks, why) in [(false, "No such file"), (true, "EOF while parsing")] {
        let sandbox = Sandbox::new();
        // It is looked for when the target begins to load, and loaded when the answer has begun.
        let target = large(&sandbox, &json!({ "replies": [SENTENCE], "load_ms": 2000 }));
        let draft = small(&sandbox, &replies(&[SENTENCE]));
        let child = started(&sandbox, &target, &["hi", "--draft", &draft], Stdio::null());
        std::thread::sleep(Duration::from_millis(700));
        if breaks {
            std::fs::write(&draft, "{").unwrap();
        } else {
            std::fs::remove_file(&draft).unwrap();
        }
        let output = ended(child);
        assert_eq!(answered(&output), format!("{SENTENCE}\n"));
        let said = stderr(&output);
        assert!(said.starts_with("qchat: the draft model failed, the answer went on without it: "), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn in_a_talk_a_broken_draft_is_said_once() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&[SENTENCE, "Two."]));
    let draft = small(&sandbox, &json!({}));
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &target, &["--draft", &draft]);
    pty.line("a");
    pty.wait_for("the draft model failed, answers go on without it: missing field `replies`");
    pty.at_prompt();
    pty.line("b");
    pty.ends_with(&[">>> b", "Two.", ">>>"]);
    assert_eq!(pty.rows().iter().filter(|row| row.contains("failed")).count(), 1, "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn what_draft_says_is_so_after_a_draft_was_lost() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&[SENTENCE, "Two."]));
    let draft = small(&sandbox, &json!({}));
    let mut pty = Pty::talk_in(&sandbox, (40, 200), &target, &["--draft", &draft]);
    pty.line("a");
    pty.wait_for("the draft model failed");
    pty.at_prompt();
    pty.line("/draft");
    pty.at_prompt();
    assert!(!pty.rows().iter().any(|row| row.starts_with("draft drafts")), "{:?}", pty.rows());
    pty.leave();
}

#[test]
fn what_draft_says_is_so_where_only_some_may_draft() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&["One."]));
    small(&sandbox, &replies(&["One."]));
    let says = |drafters: &str, command: &str| {
        let mut pty = Pty::talk(&sandbox, &target, &["--drafters", drafters]);
        pty.line(command);
        pty.at_prompt();
        let rows = pty.rows();
        pty.leave();
        rows[rows.len() - 2].clone()
    };
    assert!(!says("model", "/draft").contains("n-grams"));
    assert!(!says("model", "/draft ./draft.script").contains("n-grams"));
    assert!(!says("ngram", "/draft ./draft.script").contains("no installed model fits"));
}

/// What is typed, and all that is said to it.
fn says(pty: &mut Pty, typed: &str, rows: &[&str]) {
    pty.line(typed);
    let typed = format!(">>> {typed}");
    pty.ends_with(&[&[typed.as_str()], rows, &[">>>"]].concat());
}

#[test]
fn a_talk_shows_and_changes_who_drafts() {
    let sandbox = Sandbox::new();
    let talk = replies(&["One.", "Two.", "Three.", "Four.", "Five."]);
    let target = large(&sandbox, &talk);
    small(&sandbox, &talk);
    let mut pty = Pty::talk_in(&sandbox, (60, 150), &target, &[]);
    let pair = "draft drafts where that pays, and n-grams do";
    says(&mut pty, "/draft", &[NGRAMS]);
    says(&mut pty, "a", &["One."]);
    says(&mut pty, "/draft off", &["drafts are off"]);
    says(&mut pty, "/draft", &["drafts are off"]);
    says(&mut pty, "b", &["Two."]);
    says(&mut pty, "/draft ./draft.script", &[pair]);
    says(&mut pty, "c", &["Three."]);
    // What cannot draft changes nothing.
    let missing = "qchat: ./missing.gguf does not exist. `qchat list` shows the models that are here";
    says(&mut pty, "/draft ./missing.gguf", &[missing]);
    pty.line("/draft nonsense");
    pty.wait_for("qchat: no model is called 'nonsense'");
    pty.at_prompt();
    says(&mut pty, "/draft", &[pair]);
    says(&mut pty, "d", &["Four."]);
    says(&mut pty, "/draft auto", &[NGRAMS]);
    says(&mut pty, "e", &["Five."]);
    // Whoever drafted: only the last message was read.
    pty.line("/stats");
    pty.wait_for("prompt 127 tokens (105 cached)");
    pty.leave();
}

#[test]
fn an_answer_does_not_wait_for_a_draft_that_is_still_loading() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&[SENTENCE]));
    let draft = small(&sandbox, &json!({ "replies": [SENTENCE], "load_ms": 60_000 }));
    let mut pty = Pty::talk(&sandbox, &target, &["--draft", &draft]);
    pty.line("a");
    pty.ends_with(&[">>> a", SENTENCE, ">>>"]);
    pty.leave();
}

#[test]
fn without_room_for_a_draft_there_is_one_line_and_the_answer() {
    let sandbox = Sandbox::new();
    let target = sandbox.write("large.gguf", Tiny { layers: 9, says: printable, ..Tiny::default() }.bytes());
    let draft = sandbox.write("small.gguf", Tiny { layers: 1, seed: 2, says: printable, ..Tiny::default() }.bytes());
    let run = |memory: Option<&str>| {
        let mut command = sandbox.qchat();
        command.arg("run").arg(&target).args(["hi", "--max-tokens", "12", "--output", "json", "--draft"]).arg(&draft);
        command.envs(memory.map(|bytes| ("QCHAT_MEMORY", bytes)));
        command.output().unwrap()
    };
    let output = run(Some("1"));
    let said = json(&output);
    assert_eq!((&said["usage"]["completion_tokens"], &said["finish_reason"]), (&12.into(), &"length".into()));
    assert!(account(&said)["draft_model"].is_null());
    let line = stderr(&output);
    assert!(line.starts_with("qchat: no draft model: the draft needs ") && line.lines().count() == 1, "{line}");
    let output = run(Some("9000000000"));
    assert_eq!((&account(&json(&output))["draft_model"], stderr(&output).as_str()), (&"small".into(), ""));
}

/// The files with measured costs.
fn calibrations(sandbox: &Sandbox) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(sandbox.path("qchat/cache/speculation-v1"));
    folder.map_or_else(|_| Vec::new(), |files| files.map(|file| file.unwrap().path()).collect())
}

#[test]
fn measured_costs_are_kept_for_each_pair_and_nonsense_in_their_place_is_replaced() {
    let sandbox = Sandbox::new();
    let target = large(&sandbox, &replies(&[SENTENCE]));
    let draft = small(&sandbox, &replies(&[SENTENCE]));
    answered(&sandbox.run(&target, &["hi", "--private"]));
    assert_eq!(calibrations(&sandbox).len(), 0);
    answered(&sandbox.run(&target, &["hi", "--draft", "off"]));
    assert_eq!(calibrations(&sandbox).len(), 0, "nobody drafts, nothing is measured");
    answered(&sandbox.run(&target, &["hi", "--draft", &draft]));
    let [file] = calibrations(&sandbox).try_into().unwrap();
    let read = || -> Value { serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap() };
    let whole = read();
    assert_eq!(
        (&whole["key"]["target"][0], &whole["key"]["draft"][0]),
        (&"model.script".into(), &"draft.script".into())
    );
    assert!(whole["value"]["step_ms"].as_f64().unwrap() > 0.0, "{whole}");
    let mut wrong_costs = whole.clone();
    wrong_costs["value"] =
        json!({ "step_ms": -1, "rows": [[0, 9], [-3, 9], [1e300, 1e300]], "draft": 0, "read": -1, "load_ms": -5 });
    let mut other_pair = whole.clone();
    other_pair["key"]["machine"] = "another".into();
    let text = whole.to_string();
    for nonsense in [
        "",
        "{",
        "[]",
        "null",
        "\u{0}\u{1}",
        &text[..text.len() / 2],
        &wrong_costs.to_string(),
        &other_pair.to_string(),
    ] {
        std::fs::write(&file, nonsense).unwrap();
        let output = sandbox.run(&target, &["hi", "--draft", &draft]);
        assert_eq!((answered(&output), stderr(&output)), (format!("{SENTENCE}\n"), String::new()), "{nonsense}");
        let now = read();
        assert_eq!(now["key"], whole["key"], "{nonsense}");
        assert!(now["value"]["step_ms"].as_f64().unwrap() > 0.0, "{nonsense}");
    }
    assert_eq!(calibrations(&sandbox).len(), 1, "no file is left half written");
    answered(&sandbox.run(&target, &["hi"]));
    assert_eq!(calibrations(&sandbox).len(), 2);
}

#[test]
fn costs_that_cannot_be_kept_are_no_trouble() {
    let sandbox = Sandbox::new();
    let target = sandbox.script(&["Hello."]);
    sandbox.write("qchat/cache/speculation-v1", "a file in its place");
    let output = sandbox.run(&target, &["hi"]);
    assert_eq!((answered(&output).as_str(), stderr(&output).as_str()), ("Hello.\n", ""));
}

#[test]
fn a_measurement_that_fails_does_not_fail_the_answer_before_it() {
    // Seven evaluations make the answer, the eighth is the first that measures.
    let sandbox = Sandbox::new();
    let target = sandbox.script_with(&["Hello."], json!({ "fails_at": 8 }));
    let output = sandbox.run(&target, &["hi"]);
    assert_eq!((answered(&output).as_str(), stderr(&output).as_str()), ("Hello.\n", ""));
}
