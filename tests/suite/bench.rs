//! `qchat bench` from outside: every axis to its end, figures that follow from the rows, times that another clock sees too,
//! and what is left when it is stopped.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::drafts::printable;
use super::engine::{context, load, text};
use super::outcome::{answered, ended, interrupt, json, piped, refused, until};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout};

const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz0123456789";

fn bench(sandbox: &Sandbox, models: &[&Path], args: &[&str]) -> Command {
    let mut command = sandbox.qchat();
    command.arg("bench").args(models).args(["--threads", "1"]).args(args);
    command
}

/// The report, as JSON, of a run that must succeed; its figures were checked against its rows.
fn report(sandbox: &Sandbox, models: &[&Path], args: &[&str]) -> Value {
    let report = json(&bench(sandbox, models, args).args(["--output", "json"]).output().unwrap());
    check(&report);
    report
}

/// A scripted model under a name of its own.
fn script(sandbox: &Sandbox, name: &str, script: &Value) -> PathBuf {
    sandbox.write(&format!("{name}.script"), script.to_string())
}

fn tiny(sandbox: &Sandbox, name: &str, tiny: &Tiny) -> PathBuf {
    let path = sandbox.path(&format!("{name}.gguf"));
    tiny.write(&path).unwrap();
    path
}

/// Says printable ASCII and never ends.
fn talkative(seed: u64) -> Tiny {
    Tiny { seed, says: printable, ..Tiny::default() }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn words<'a>(values: &'a [Value], name: &str) -> Vec<&'a str> {
    values.iter().map(|value| word(value, name)).collect()
}

fn of_arm<'a>(report: &'a Value, arm: &str) -> Vec<&'a Value> {
    list(report, "rows").iter().filter(|row| row["arm"] == arm).collect()
}

fn total(row: &Value) -> f64 {
    number(row, "ttft_ms") + number(row, "decode_ms")
}

/// A figure of a row, computed anew.
fn figure(row: &Value, name: &str) -> Option<f64> {
    let (steps, decode) = (number(row, "tokens") - 1.0, number(row, "decode_ms"));
    match name {
        "ttft" => Some(number(row, "ttft_ms")),
        "total" => Some(total(row)),
        "decode" => (steps > 0.0 && decode > 0.0).then(|| 1e3 * steps / decode),
        _ => (row["cached_tokens"] == 0).then(|| 1e3 * number(row, "prompt_tokens") / number(row, "prefill_ms")),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1e-9)
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Interpolated, as numpy does.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

fn check_summary(summary: &Value, samples: Vec<f64>) {
    if samples.is_empty() {
        assert_eq!(summary, &Value::Null);
        return;
    }
    let samples = sorted(samples);
    assert_eq!(summary["n"], samples.len(), "{summary}");
    assert!(close(number(summary, "p50"), quantile(&samples, 0.5)), "{summary}: {samples:?}");
    let (name, other, high) = match samples.len() {
        ..20 => ("max", "p95", samples[samples.len() - 1]),
        20.. => ("p95", "max", quantile(&samples, 0.95)),
    };
    assert!(close(number(summary, name), high) && summary.get(other).is_none(), "{summary}: {samples:?}");
}

/// For each kind of prompt that has pairs: how many, and the middle one of their ratios (of two the geometric mean).
fn paired(own: &[&Value], first: &[&Value], name: &str) -> Vec<(usize, f64)> {
    let ratio = |row: &&&Value| {
        let same = |other: &&&Value| other["prompt"] == row["prompt"] && other["run"] == row["run"];
        Some(figure(row, name)? / figure(first.iter().find(same).expect("a pair"), name)?)
    };
    let kinds: HashSet<&str> = own.iter().map(|row| word(row, "kind")).collect();
    let of_kind =
        |kind: &&str| sorted(own.iter().filter(|row| row["kind"] == **kind).filter_map(|row| ratio(&row)).collect());
    let kinds: Vec<Vec<f64>> = kinds.iter().map(of_kind).filter(|ratios| !ratios.is_empty()).collect();
    let middle = |ratios: &Vec<f64>| (ratios[(ratios.len() - 1) / 2] * ratios[ratios.len() / 2]).sqrt();
    kinds.iter().map(|ratios| (ratios.len(), middle(ratios))).collect()
}

/// Whether a report is whole, and all that it says follows from its rows.
fn check(report: &Value) {
    let (rows, arms) = (list(report, "rows"), list(report, "arms"));
    let names = words(arms, "name");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    let kinds: HashSet<&str> = rows.iter().map(|row| word(row, "kind")).collect();
    let of_each = kinds.len() * report["runs"].as_u64().unwrap() as usize;
    assert_eq!((&report["stopped"], rows.len()), (&Value::Bool(false), arms.len() * of_each));
    let first = of_arm(report, names[0]);
    for arm in arms {
        let own = of_arm(report, word(arm, "name"));
        assert_eq!(own.len(), of_each, "{}", arm["name"]);
        let all = |name: &str| own.iter().filter_map(|row| figure(row, name)).collect::<Vec<_>>();
        check_summary(&arm["ttft_ms"], all("ttft"));
        check_summary(&arm["prefill"], all("prefill"));
        check_summary(&arm["decode"], all("decode"));
        let gaps = own.iter().flat_map(|row| list(row, "itl_ms")).map(|gap| gap.as_f64().unwrap());
        check_summary(&arm["itl_ms"], gaps.collect());
        let ratios = list(arm, "ratios");
        for name in ["decode", "prefill", "ttft", "total"] {
            let said = ratios.iter().find(|ratio| ratio["figure"] == name);
            let kinds = if arm["name"] == names[0] { Vec::new() } else { paired(&own, &first, name) };
            assert_eq!(said.is_some(), !kinds.is_empty(), "{name} of {arm}");
            if let Some(said) = said {
                let ratio = (kinds.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>() / kinds.len() as f64).exp();
                let enough = if kinds.len() == 1 { 5 } else { 4 };
                assert!(close(number(said, "ratio"), ratio), "{said}: {ratio}");
                let (low, high) = (said["low"].as_f64(), said["high"].as_f64());
                let spans = low.zip(high).map(|(low, high)| low <= 1.0 && high >= 1.0);
                assert_eq!(said["pairs"], kinds.iter().map(|(count, _)| count).sum::<usize>(), "{said}");
                assert_eq!(spans.is_none(), kinds.iter().any(|(count, _)| *count < enough), "{said}");
                assert_eq!(said["says"] == "no difference shown", spans == Some(true), "{said}");
            }
        }
        assert_eq!(words(list(arm, "by_kind"), "kind").len(), kinds.len());
        for kind in list(arm, "by_kind") {
            let of_kind = own.iter().filter(|row| row["kind"] == kind["kind"]);
            check_summary(&kind["decode"], of_kind.filter_map(|row| figure(row, "decode")).collect());
        }
    }
    for row in rows {
        assert!(number(row, "tokens") <= number(report, "tokens"), "{row}");
        assert!(number(row, "prefill_ms") <= number(row, "ttft_ms") + 0.001, "{row}");
        let gaps: f64 = list(row, "itl_ms").iter().map(|gap| gap.as_f64().unwrap()).sum();
        // A hiccup of the machine behind the last token is in one of them only.
        assert!(gaps <= number(row, "decode_ms") + 25.0, "{row}");
    }
}

#[test]
fn every_axis_runs_to_its_end_and_its_figures_follow_from_its_rows() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox, "tiny", &talkative(1));
    // On a busy machine two threads of llama.cpp take seconds to meet.
    let quick = script(&sandbox, "quick", &json!({ "replies": [ALPHABET] }));
    let usual = ["--kinds", "chat,translation", "--runs", "2", "--tokens", "6", "--no-quality"];
    let long = ["--grid", "400x6", "--runs", "2"];
    for (model, axis, args, arms) in [
        (&model, "draft", &usual[..], &["off", "ngram3", "ngram7", "policy"][..]),
        (&model, "cache", &long[..], &["cold", "warm"]),
        (&quick, "threads=1,2", &usual, &["1 thread", "2 threads"]),
        (&model, "flash-attention", &usual, &["flash attention", "without"]),
        (&model, "kv", &usual, &["f16", "q8_0", "q4_0"]),
        (&model, "repack", &usual, &["as stored", "repacked"]),
    ] {
        let report = report(&sandbox, &[model], &[&["--compare", axis], args].concat());
        assert_eq!(words(list(&report, "arms"), "name"), arms);
        assert_eq!((&report["axis"], &report["runs"]), (&json!(axis.split('=').next().unwrap()), &json!(2)));
        let agreement = |arm: &Value| arm["agreement"]["of"].as_u64();
        let expected: Vec<_> =
            (0..arms.len()).map(|at| (at > 0).then_some(of_arm(&report, arms[0]).len() as u64)).collect();
        assert_eq!(list(&report, "arms").iter().map(agreement).collect::<Vec<_>>(), expected, "{axis}");
    }
    let other = tiny(&sandbox, "other", &Tiny { layers: 1, ..talkative(2) });
    let report = report(&sandbox, &[&model, &other, &model], &usual);
    assert_eq!(words(list(&report, "arms"), "name"), ["tiny", "other", "tiny (3)"]);
    assert_eq!((&report["axis"], words(list(&report, "models"), "name").len()), (&json!("model"), 3));
}

#[test]
fn models_and_an_axis_are_every_model_with_every_setting() {
    let sandbox = Sandbox::new();
    let models = ["a", "b"].map(|name| script(&sandbox, name, &json!({ "replies": [name] })));
    let args = ["--compare", "draft=off,ngram3", "--kinds", "chat", "--runs", "5", "--no-quality"];
    let report = report(&sandbox, &[&models[0], &models[1]], &args);
    assert_eq!(words(list(&report, "arms"), "name"), ["a off", "a ngram3", "b off", "b ngram3"]);
    assert_eq!(words(list(&report, "arms"), "model"), ["a", "a", "b", "b"]);
    for row in list(&report, "rows") {
        assert_eq!(word(row, "answer"), &word(row, "arm")[..1]);
    }
}

#[test]
fn a_high_figure_is_the_maximum_below_twenty_samples() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET] }));
    for (runs, name) in [("19", "max"), ("20", "p95")] {
        let report = report(&sandbox, &[&model], &["--kinds", "chat", "--tokens", "2", "--runs", runs]);
        let arm = &report["arms"][0];
        assert!(arm["ttft_ms"][name].is_f64() && arm["itl_ms"][name].is_f64(), "{arm}");
        let text = answered(
            &bench(&sandbox, &[&model], &["--kinds", "chat", "--runs", runs, "--tokens", "2"]).output().unwrap(),
        );
        assert_eq!(text.contains("Below 20 samples"), runs == "19", "{text}");
    }
}

#[test]
fn arms_take_turns_and_the_first_place_goes_round() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET] }));
    let args =
        ["--compare", "threads=1,2,3", "--kinds", "edit,chat", "--runs", "6", "--tokens", "3", "--output", "jsonl"];
    let lines = answered(&bench(&sandbox, &[&model], &args).output().unwrap());
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (head, rows, summary) = (&lines[0], &lines[1..lines.len() - 1], &lines[lines.len() - 1]);
    assert_eq!((&head["report"], &head["axis"]), (&json!("head"), &json!("threads")));
    assert_eq!((&summary["report"], &summary["rows"]), (&json!("summary"), &json!([])));
    let arms = ["1 thread", "2 threads", "3 threads"];
    assert_eq!(rows.len(), 2 * 6 * 3);
    for (number, turn) in rows.chunks(3).enumerate() {
        let order: Vec<&str> = (0..3).map(|place| arms[(place + number) % 3]).collect();
        assert_eq!(words(turn, "arm"), order);
        for row in turn {
            assert_eq!(
                (&row["prompt"], &row["run"], &row["kind"]),
                (&turn[0]["prompt"], &turn[0]["run"], &turn[0]["kind"])
            );
        }
        assert_eq!(word(&turn[0], "kind"), ["edit", "chat"][number % 2]);
    }
    // Four prompts of a kind, then the first ones again.
    let chats: Vec<(&str, u64)> =
        rows.chunks(6).map(|two| (word(&two[3], "prompt"), two[3]["run"].as_u64().unwrap())).collect();
    let expected = [("chat-1", 0), ("chat-2", 0), ("chat-3", 0), ("chat-4", 0), ("chat-1", 1), ("chat-2", 1)];
    assert_eq!(chats, expected);
    // The same as one object.
    let mut whole = summary.clone();
    whole["rows"] = rows.into();
    check(&whole);
}

#[test]
fn times_are_those_of_another_clock() {
    const ROW: f64 = 3.0;
    let sandbox = Sandbox::new();
    let script = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": ROW as u64 }));
    let prompts = sandbox.write("p", "Why?\nAnd then what?\n");
    let began = Instant::now();
    let report = report(&sandbox, &[&script], &["--prompts", prompts.to_str().unwrap(), "--tokens", "40"]);
    let outside = began.elapsed().as_secs_f64() * 1e3;
    let rows = of_arm(&report, "m");
    let inside: f64 = rows.iter().map(|row| total(row)).sum();
    // The warm-up reads 356 bytes and more.
    assert!(outside >= inside + 356.0 * ROW, "{outside} outside, {inside} inside");
    for row in &rows {
        // 36 letters, the first with the prompt. Nothing comes sooner than it can; a busy machine may make it later.
        let (read, said) = (ROW * number(row, "prompt_tokens"), ROW * 35.0);
        assert_eq!((&row["tokens"], &row["finish"]), (&json!(36), &json!("stop")));
        assert!(number(row, "ttft_ms") >= read && number(row, "decode_ms") >= said, "{row}");
        let rate = figure(row, "decode").unwrap() * ROW / 1e3;
        assert!(rate <= 1.0, "{rate} of what is possible");
    }
    // What was disturbed least.
    let least = |of: &dyn Fn(&Value) -> f64| rows.iter().map(|row| of(row)).fold(f64::INFINITY, f64::min);
    let ttft = least(&|row| number(row, "ttft_ms") / number(row, "prompt_tokens") / ROW);
    let decode = least(&|row| number(row, "decode_ms") / 35.0 / ROW);
    let gap = quantile(
        &sorted(rows.iter().flat_map(|row| list(row, "itl_ms")).map(|gap| gap.as_f64().unwrap()).collect()),
        0.1,
    );
    for (what, ratio) in [("ttft", ttft), ("decode", decode), ("itl", gap / ROW)] {
        assert!((0.99..1.05).contains(&ratio), "{what}: {ratio} of what the script says");
    }
}

#[test]
fn a_warm_document_is_read_from_a_cache_that_is_not_the_users() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": 1 }));
    let temporary = sandbox.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let args = ["--compare", "cache", "--grid", "300x4", "--runs", "1", "--output", "json"];
    let report = json(&bench(&sandbox, &[&model], &args).env("TMPDIR", &temporary).output().unwrap());
    check(&report);
    let (cold, warm) = (of_arm(&report, "cold")[0], of_arm(&report, "warm")[0]);
    assert_eq!((&cold["cached_tokens"], &cold["answer"]), (&json!(0), &warm["answer"]));
    assert!(number(warm, "cached_tokens") > 200.0, "{warm}");
    assert!(number(warm, "ttft_ms") < 0.5 * number(cold, "ttft_ms"), "{warm}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "its own folder is gone");
    let left: Vec<_> =
        std::fs::read_dir(sandbox.path("qchat")).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [] as [PathBuf; 0], "nothing of the user's was made");
}

#[test]
fn no_draft_changes_an_answer() {
    let sandbox = Sandbox::new();
    let again = script(
        &sandbox,
        "again",
        &json!({ "replies": ["one two three, one two three, one two three, one two three"] }),
    );
    let random = |name, off| {
        let script_of = json!({ "replies": [], "random": { "seed": 11, "spread": 8.0, "off": off } });
        script(&sandbox, name, &script_of)
    };
    let (target, draft) = (random("target", 0.0), random("draft", 2.0));
    let draft = draft.to_str().unwrap();
    let of_model = ["--compare", "draft=off,model3,twice2,both,policy", "--draft", draft, "--temp", "0.8"];
    for (model, args, share) in
        [(&again, &["--compare", "draft=off,ngram3,policy"][..], 0.5), (&target, &of_model[..], 0.3)]
    {
        let report = report(&sandbox, &[model], &[args, &["--kinds", "chat,code", "--runs", "3"]].concat());
        let off: Vec<&str> = of_arm(&report, "off").iter().map(|row| word(row, "answer")).collect();
        for arm in &list(&report, "arms")[1..] {
            let agreement = &arm["agreement"];
            assert_eq!((&agreement["same"], &agreement["of"]), (&json!(6), &json!(6)), "{arm}");
            let rows = of_arm(&report, word(arm, "name"));
            assert_eq!(rows.iter().map(|row| word(row, "answer")).collect::<Vec<_>>(), off);
            // What is said of the arm is what its answers add up to.
            let own = &arm["speculation"];
            for name in ["proposed", "accepted", "rounds", "plain_rounds"] {
                let of_row = |row: &&Value| row["speculation"][name].as_u64().unwrap();
                assert_eq!(own[name], rows.iter().map(of_row).sum::<u64>(), "{name}");
            }
            let sum = |at: usize| list(own, "by_position").iter().map(|pair| pair[at].as_f64().unwrap()).sum::<f64>();
            assert_eq!((sum(0), sum(1)), (number(own, "proposed"), number(own, "accepted")), "{own}");
            let accepted = number(own, "accepted") / number(own, "proposed").max(1.0);
            assert!(arm["name"] == "policy" || accepted > share, "{accepted} of {own}");
        }
        assert_eq!(report["arms"][0]["speculation"], Value::Null);
    }
}

#[test]
fn prompts_of_ones_own_are_all_asked_with_their_own_budgets() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET] }));
    let file = sandbox.write(
        "prompts",
        "Why?\n\n{\"prompt\": \"How?\", \"kind\": \"k\", \"id\": \"mine\", \"max_tokens\": 9}\n\
         {\"prompt\": \"What?\", \"kind\": \"k\", \"document\": \"A text.\"}\n  \nAnd now?\nWhere?\n",
    );
    let report = report(&sandbox, &[&model], &["--prompts", file.to_str().unwrap(), "--tokens", "5"]);
    let rows: Vec<(&str, &str, u64, u64)> = list(&report, "rows")
        .iter()
        .map(|row| {
            (word(row, "prompt"), word(row, "kind"), number(row, "prompt_tokens") as u64, number(row, "tokens") as u64)
        })
        .collect();
    // ChatML has 19 tokens around a message.
    let expected = [
        ("own-1", "own", 19 + 4, 5),
        ("mine", "k", 19 + 4, 9),
        ("own-6", "own", 19 + 8, 5),
        ("k-4", "k", 19 + 7 + 2 + 5, 5),
        ("own-7", "own", 19 + 6, 5),
        ("mine", "k", 19 + 4, 9),
    ];
    assert_eq!(rows, expected);
    assert_eq!(list(&report, "rows")[5]["run"], 1, "the kind has only two");
}

#[test]
fn prompts_have_the_length_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let models = [script(&sandbox, "m", &json!({ "replies": [ALPHABET] })), tiny(&sandbox, "tiny", &talkative(1))];
    for model in &models {
        for (args, kinds, answer) in [
            (["--grid", "64x8,256x5,1500x2"], [(64.0, "64x8", 8), (256.0, "256x5", 5), (1500.0, "1500x2", 2)], None),
            (["--depth", "70,300,999"], [(70.0, "70x7", 7), (300.0, "300x7", 7), (999.0, "999x7", 7)], Some("7")),
        ] {
            let tokens: &[&str] = answer.map_or(&[], |_| &["--tokens", "7"]);
            let report = report(&sandbox, &[model], &[&args[..], tokens, &["--runs", "3"]].concat());
            for row in list(&report, "rows") {
                let (asked, _, answer) = *kinds.iter().find(|(_, kind, _)| row["kind"] == *kind).unwrap();
                let share = number(row, "prompt_tokens") / asked;
                assert!((0.9..1.1).contains(&share) && row["tokens"] == answer, "{share}: {row}");
            }
            let prompts: HashSet<&str> = words(list(&report, "rows"), "prompt").into_iter().collect();
            assert_eq!(prompts.len(), 9, "a fresh one each time");
        }
    }
}

#[test]
fn temperature_changes_answers_and_not_between_arms() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox, "tiny", &talkative(1));
    let answers = |temperature: &str| -> Vec<String> {
        let args = [
            "--compare",
            "draft=off,ngram3",
            "--kinds",
            "chat",
            "--runs",
            "2",
            "--tokens",
            "12",
            "--temp",
            temperature,
        ];
        let report = report(&sandbox, &[&model], &args);
        let off = of_arm(&report, "off");
        // A near-tie may fall the other way when several rows are evaluated at once.
        assert!(report["arms"][1]["agreement"]["largest_gap"].as_f64().unwrap_or(0.0) < 0.1);
        assert!(list(&report, "rows").iter().all(|row| row["tokens"] == 12 && row["finish"] == "length"));
        off.iter().map(|row| word(row, "answer").to_owned()).collect()
    };
    assert_eq!(answers("0"), answers("0"));
    assert_ne!(answers("0"), answers("1.5"));
}

#[test]
fn likelihoods_are_those_of_the_models() {
    let sandbox = Sandbox::new();
    let (one, two) = (talkative(1), talkative(2));
    let padded = Tiny { padding: 5, ..talkative(1) };
    let models = [("one", &one), ("same", &one), ("two", &two), ("padded", &padded)]
        .map(|(name, own)| tiny(&sandbox, name, own));
    let sample = "The lamps went out one by one, and 2 of them came back: für sie, 也為你.";
    let file = sandbox.write("sample.txt", sample);
    let models: Vec<&Path> = models.iter().map(PathBuf::as_path).collect();
    let args = ["--kinds", "chat", "--runs", "1", "--tokens", "2", "--text", file.to_str().unwrap()];
    let report = report(&sandbox, &models, &args);
    let own: Vec<&Value> = list(&report, "arms").iter().map(|arm| &arm["likelihood"]).collect();

    // Row by row, with an engine of their own.
    let tokens = text(sample);
    let log_probabilities = |tiny: &Tiny| -> Vec<Vec<f64>> {
        let home = Sandbox::new();
        let (mut context, _) = context(&load(&home, tiny), 256, 1);
        let mut of_next = |token| -> Vec<f64> {
            let logits = super::engine::read(context.as_mut(), 0, &[token]);
            let scale = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            logits.iter().map(|x| f64::from(*x) - scale).collect()
        };
        tokens[..tokens.len() - 1].iter().map(|token| of_next(*token)).collect()
    };
    let (first, second) = (log_probabilities(&one), log_probabilities(&two));
    let count = (tokens.len() - 1) as f64;
    let nll =
        |all: &[Vec<f64>]| -all.iter().zip(&tokens[1..]).map(|(own, token)| own[token.index()]).sum::<f64>() / count;
    let near = |a: f64, b: f64| (a - b).abs() < 0.005 * b.abs();
    for (own, expected) in own.iter().zip([nll(&first), nll(&first), nll(&second)]) {
        assert_eq!(own["tokens"], tokens.len() - 1);
        assert!(near(number(own, "nll"), expected), "{own}: {expected}");
        // A token is a byte.
        assert!(close(number(own, "bits_per_byte"), number(own, "nll") / std::f64::consts::LN_2), "{own}");
    }
    assert_eq!((&own[0]["kl"], &own[0]["same_top"]), (&Value::Null, &Value::Null));
    assert!(
        own[1]["nll"] == own[0]["nll"] && own[1]["same_top"] == 1.0 && number(own[1], "kl").abs() < 1e-9,
        "{}",
        own[1]
    );
    let divergence = |(p, q): (&Vec<f64>, &Vec<f64>)| p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    let kl = first.iter().zip(&second).map(divergence).sum::<f64>() / count;
    assert!(near(number(own[2], "kl"), kl) && kl > 0.1, "{}: {kl}", own[2]);
    assert!(number(own[2], "same_top") < 0.5, "{}", own[2]);
    // Another vocabulary is not compared.
    assert!(own[3]["kl"].is_null() && own[3]["same_top"].is_null() && own[3]["nll"].is_f64(), "{}", own[3]);
}

#[test]
fn what_is_wrong_with_answers_is_found_and_only_that() {
    let sandbox = Sandbox::new();
    let reply = |name: &str, reply: &str| script(&sandbox, name, &json!({ "replies": [reply] }));
    let story = "The keeper found a bottle at low tide. Inside lay a letter from his sister, who had sailed north.";
    let models = [
        reply("good", r#"{"name": "Ada", "age": 36, "hobbies": ["chess", "tea", "maths"]}"#),
        reply("broken", r#"{"name": "Ada", "age": 36, "hobbies": ["chess", "tea", "maths"}"#),
        reply("story", story),
        reply("loops", &"and then again ".repeat(40)),
        reply("silent", ""),
    ];
    let models: Vec<&Path> = models.iter().map(PathBuf::as_path).collect();
    let report = report(&sandbox, &models, &["--kinds", "chat", "--runs", "1", "--tokens", "2"]);
    let found = |arm: &str, check: &str, prompt: &str| -> usize {
        let own = list(&report, "arms").iter().find(|own| own["name"] == arm).unwrap();
        let findings = list(&own["quality"], "findings");
        findings.iter().filter(|own| own["check"] == check && word(own, "prompt").starts_with(prompt)).count()
    };
    assert_eq!(found("good", "json", "format-1"), 0);
    assert_eq!(found("broken", "json", "format-1"), 1);
    assert_eq!(found("story", "json", "format-1"), 1);
    for arm in ["good", "broken", "story", "silent"] {
        assert_eq!(found(arm, "repetition", ""), 0, "{arm}");
    }
    assert!(found("loops", "repetition", "") >= 8);
    assert_eq!((found("silent", "empty", ""), found("story", "empty", "")), (10, 0));
    for arm in list(&report, "arms") {
        let own = &arm["quality"];
        let prompts: HashSet<&str> = words(list(own, "findings"), "prompt").into_iter().collect();
        assert_eq!((&own["prompts"], &own["with_findings"]), (&json!(10), &json!(prompts.len())), "{own}");
    }
    // Settings that cannot make answers worse are not checked, nor anything where speed is all that was asked for.
    for args in [&["--compare", "threads=1,2"][..], &["--compare", "kv", "--no-quality"]] {
        let report = self::report(&sandbox, &models[..1], &[args, &["--runs", "1", "--kinds", "chat"]].concat());
        assert!(list(&report, "arms").iter().all(|arm| arm["quality"].is_null() && arm["likelihood"].is_null()));
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let sandbox = Sandbox::new();
    // Loading takes longer than anybody waits: what can be said before is said before.
    let slow = script(&sandbox, "slow", &json!({ "replies": ["a"], "load_ms": 30_000 }));
    let model = script(&sandbox, "m", &json!({ "replies": ["a"], "context": 500 }));
    let empty = sandbox.write("empty", "\n  \n");
    let wrong = sandbox.write("wrong", "a\n{\"question\": \"b\"}\n");
    let twice = sandbox.write("twice", "{\"prompt\": \"a\", \"id\": \"own-2\"}\nb\n");
    let letter = sandbox.write("letter", "a");
    let [slow, model, empty, wrong, twice, letter] =
        [slow, model, empty, wrong, twice, letter].map(|path| path.display().to_string());
    let missing = sandbox.path("no/folder/report.html").display().to_string();
    for (line, code, says) in [
        (&["--compare", "speed"][..], 2, &["'speed'", "these can: draft, cache"][..]),
        (&["--compare", "threads=0"], 2, &["'0'", "from 1 to 512"]),
        (&["--compare", "threads=513"], 2, &["'513'", "from 1 to 512"]),
        (&["--compare", "draft=model17"], 2, &["'model17'", "model16"]),
        (&["--compare", "kv=f32"], 2, &["'f32'", "q8_0"]),
        (&["--compare", "cache=warm"], 2, &["cache takes no values"]),
        (
            &["--compare", "kv", "--flash-attention", "false"],
            2,
            &["need flash attention", "leave --flash-attention out"],
        ),
        (&["--compare", "flash-attention", "--kv", "q8_0"], 2, &["need flash attention", "leave --kv out"]),
        (&["--kv", "q8_0", "--flash-attention", "false"], 2, &["needs flash attention"]),
        (&["--runs", "0"], 2, &["--runs", "1..=10000"]),
        (&["--tokens", "1"], 2, &["--tokens", "2..=100000"]),
        (&["--temp", "-1"], 2, &["--temp", "-1"]),
        (&["--grid", "64"], 2, &["not like 128x64"]),
        (&["--grid", "64x8", "--depth", "64"], 2, &["cannot be used with"]),
        (&["--kinds", "chat", "--grid", "64x8"], 2, &["cannot be used with"]),
        (&["--kinds", "chat", "--prompts", &wrong], 2, &["cannot be used with"]),
        (&["--prompts", &empty], 2, &["has no prompts", "one a line"]),
        (&["--prompts", &wrong], 2, &["line 2", "question"]),
        (&["--prompts", &twice], 2, &["'own-2'", "another id"]),
        (&["--prompts", "/no/file"], 2, &["/no/file cannot be read"]),
        (&["--text", "/no/file"], 2, &["/no/file cannot be read"]),
        (&["--html", &missing], 2, &[&missing, "cannot be written"]),
        (&["--log", &missing], 2, &[&missing, "cannot be written"]),
    ] {
        let began = Instant::now();
        let said = refused(&bench(&sandbox, &[Path::new(&slow)], line).output().unwrap(), code);
        assert!(says.iter().all(|part| said.contains(part)), "{line:?}: {said}");
        assert!(began.elapsed() < Duration::from_secs(20), "{line:?}");
    }
    for (models, line, code, says) in [
        (&[&model[..]][..], &["--kinds", "poetry"][..], 2, &["'poetry'", "repetition, edit, code"][..]),
        (&[&model], &["--compare", "draft=model3"], 2, &["no draft model here for model3", "--draft"]),
        (&[&model], &["--compare", "cache", "--kinds", "chat"], 2, &["these prompts have none", "\"document\""]),
        (&[&model], &["--grid", "30x8"], 2, &["30x8", "at least"]),
        (&[&model], &["--depth", "490", "--tokens", "20"], 4, &["m holds 500 tokens", "need 51", "take shorter ones"]),
        (&[&model], &["--compare", "kv", "--text", &letter], 2, &["too short", "longer one"]),
        (&["no-such-model"], &[], 3, &["'no-such-model'", "qchat list"]),
        (&[&model, "no-such-model"], &[], 3, &["'no-such-model'", "qchat list"]),
        (&[], &[], 2, &["MODEL"]),
    ] {
        let models: Vec<&Path> = models.iter().map(Path::new).collect();
        let said = refused(&bench(&sandbox, &models, line).output().unwrap(), code);
        assert!(says.iter().all(|part| said.contains(part)), "{line:?}: {said}");
    }
}

#[test]
fn a_page_that_is_there_outlives_a_run_that_fails() {
    let sandbox = Sandbox::new();
    let page = sandbox.write("report.html", "measured before");
    refused(&bench(&sandbox, &[Path::new("no-such-model")], &["--html", page.to_str().unwrap()]).output().unwrap(), 3);
    assert_eq!(std::fs::read_to_string(page).unwrap(), "measured before");
}

/// Waits for a line on stderr that begins like this.
fn until_said(child: &mut Child, line: &str) -> BufReader<std::process::ChildStderr> {
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while reader.read_line(&mut said).unwrap() > 0 {
        if said.lines().next_back().is_some_and(|last| last.starts_with(line)) {
            return reader;
        }
    }
    panic!("never said {line:?}: {said}");
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": 1 }));
    let prompts = sandbox.write("p", "hi\n");
    let stopped = |format: &str| -> Output {
        let args = ["--prompts", prompts.to_str().unwrap(), "--tokens", "4", "--runs", "5000", "--output", format];
        let mut child = piped(&mut bench(&sandbox, &[&model], &[&args[..], &["--compare", "threads=1,2"]].concat()));
        let reader = until_said(&mut child, "10 of 10000, ");
        interrupt(&child);
        let output = ended(child);
        drop(reader);
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        output
    };
    let check = |report: &Value, rows: &[Value]| {
        assert_eq!(report["stopped"], true);
        assert!((10..1000).contains(&rows.len()), "{}", rows.len());
        assert!(rows.iter().all(|row| row["tokens"] == 4 && row["finish"] == "length"), "no half row");
        let counted: u64 = list(report, "arms").iter().map(|arm| arm["ttft_ms"]["n"].as_u64().unwrap()).sum();
        assert_eq!(counted, rows.len() as u64);
    };
    let report: Value = serde_json::from_str(&stdout(&stopped("json"))).unwrap();
    check(&report, list(&report, "rows"));
    let lines = stdout(&stopped("jsonl"));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    check(&lines[lines.len() - 1], &lines[1..lines.len() - 1]);
    let text = stdout(&stopped("text"));
    assert!(text.contains("Stopped early") && text.contains("Medians of"), "{text}");
}

#[test]
fn ctrl_c_before_and_after_the_measuring_is_heard_too() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": 2 }));
    let log = sandbox.path("log");
    let usual = ["--kinds", "chat", "--runs", "1", "--tokens", "2", "--log", log.to_str().unwrap()];
    // While an arm warms up.
    let child = piped(&mut bench(&sandbox, &[&model], &usual));
    until("the log", || log.exists());
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    let output = ended(child);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(text.contains("Stopped early") && text.contains("Nothing was measured."), "{text}");
    // While answers are checked.
    let quick = script(&sandbox, "quick", &json!({ "replies": [ALPHABET] }));
    let mut child = piped(&mut bench(&sandbox, &[&quick, &model], &[&usual[..], &["--output", "json"]].concat()));
    let reader = until_said(&mut child, "2 of 2");
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    let output = ended(child);
    drop(reader);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&report["stopped"], list(&report, "rows").len()), (&json!(true), 2));
    let quality = |at: usize| &report["arms"][at]["quality"];
    assert!(quality(0)["prompts"] == 10 && quality(1).is_null(), "{report}");
}

#[test]
fn a_reader_that_leaves_ends_it() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": 1 }));
    let prompts = sandbox.write("p", "hi\n");
    let args = ["--prompts", prompts.to_str().unwrap(), "--tokens", "4", "--runs", "10000", "--output", "jsonl"];
    let mut child = piped(&mut bench(&sandbox, &[&model], &args));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["report"], "head");
    // All of it takes four minutes.
    let output = ended(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!stderr(&output).contains("panicked"), "{output:?}");
}

#[test]
fn stdout_has_the_report_and_stderr_how_long_it_takes() {
    let sandbox = Sandbox::new();
    let model = script(&sandbox, "m", &json!({ "replies": [ALPHABET], "row_ms": 1 }));
    let prompts = sandbox.write("p", "hi\n");
    let args = ["--prompts", prompts.to_str().unwrap(), "--tokens", "4", "--runs", "11", "--compare", "threads=1,2"];
    let output = bench(&sandbox, &[&model], &args).output().unwrap();
    let lines = stderr(&output);
    let lines: Vec<&str> = lines.lines().collect();
    // 22 answers of some 25 ms.
    let about = lines[0].strip_prefix("22 answers of 2 settings, about ").and_then(|about| about.strip_suffix(" s"));
    assert!(about.is_some_and(|about| (1..=10).contains(&about.parse().unwrap())), "{lines:?}");
    assert!(lines[1].starts_with("10 of 22, ") && lines[1].ends_with(" s left"), "{lines:?}");
    assert!(lines[2].starts_with("20 of 22, ") && lines[3..] == ["22 of 22"], "{lines:?}");
    let text = answered(&output);
    assert!(text.starts_with("m: ") && text.contains("\nBeside 1 thread: ") && text.contains("; 1 thread; "), "{text}");
    assert!(!text.contains(" of 22") && !text.contains("about"), "{text}");

    let quick = script(&sandbox, "m", &json!({ "replies": ["one two three, one two three, one two three"] }));
    let args = ["--kinds", "chat,code", "--runs", "1", "--compare", "draft=off,ngram3", "--output", "markdown", "-q"];
    let output = bench(&sandbox, &[&quick], &args).output().unwrap();
    assert_eq!(stderr(&output), "");
    // Tables whose rows have as many cells as their heads.
    let text = answered(&output);
    let tables: Vec<Vec<&str>> = text
        .split("\n\n")
        .map(|part| part.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>())
        .filter(|lines| !lines.is_empty())
        .collect();
    assert_eq!(tables.len(), 4, "{text}");
    for table in tables {
        let cells: Vec<usize> = table.iter().map(|line| line.matches('|').count()).collect();
        assert!(cells.iter().all(|count| *count == cells[0]) && cells.len() > 2, "{table:?}");
    }
}
