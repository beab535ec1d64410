//! `qchat doctor` from outside: figures that follow from each other, verdicts with something behind them, and what
//! `--tune` found, used by `run`; the type of keys and values beside it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use serde_json::{Value, json};

use super::drafts::printable;
use super::outcome::{answered, ended, interrupt, json as parsed, piped, refused, until};
use super::pty::Pty;
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout};

/// Too little to measure its speed, which takes most of a run's time.
const LITTLE_MEMORY: &str = "100000000";

/// With one thread: on a busy machine two threads of llama.cpp take seconds to meet.
fn doctor(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.qchat();
    command.args(["doctor", "--threads", "1"]).args(args);
    command
}

fn quick(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = doctor(sandbox, args);
    command.env("QCHAT_MEMORY", LITTLE_MEMORY);
    command
}

fn report(command: &mut Command) -> Value {
    parsed(&command.args(["--output", "json"]).output().unwrap())
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {value}"))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// What the verdicts are about, in order.
fn verdicts(report: &Value) -> Vec<&str> {
    report["verdicts"].as_array().unwrap().iter().map(|verdict| verdict["about"].as_str().unwrap()).collect()
}

fn verdict<'a>(report: &'a Value, about: &str) -> &'a str {
    let all = report["verdicts"].as_array().unwrap();
    all.iter().find(|verdict| verdict["about"] == about).and_then(|verdict| verdict["says"].as_str()).unwrap()
}

fn tuning(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("qchat/cache/tuning-v1")
}

/// The one file of what was found.
fn tuned(sandbox: &Sandbox) -> PathBuf {
    let files: Vec<PathBuf> = fs::read_dir(tuning(sandbox)).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// `qchat run MODEL ARGS...` where nothing says how many threads.
fn untyped(sandbox: &Sandbox, model: &Path, args: &[&str]) -> Command {
    let mut command = sandbox.qchat();
    command.env_remove("QCHAT_THREADS").arg("run").arg(model).args(args);
    command
}

/// Threads, weights and flash attention of an answer that was tuned.
fn way(command: &mut Command) -> Option<String> {
    let output = command.arg("-v").output().unwrap();
    answered(&output);
    let said = stderr(&output);
    assert!(!said.contains("qchat: "), "{said}");
    let line = said.lines().find_map(|line| line.strip_prefix("tuned: "))?;
    Some(line.split_once(" (").unwrap().0.to_owned())
}

#[test]
fn a_machine_is_described_in_words_and_as_json() {
    let sandbox = Sandbox::new();
    let output = doctor(&sandbox, &[]).output().unwrap();
    let text = answered(&output);
    assert_eq!(stderr(&output), "");
    let labels = ["qchat", "device", "CPU features", "CPU", "memory", "reads memory", "cache folder"];
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let said = |label: &str| lines.iter().find_map(|line| line.strip_prefix(&format!("{label:<14} ")));
    assert!(labels.into_iter().all(|label| said(label).is_some_and(|words| !words.is_empty())), "{text}");
    let headings: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
    assert_eq!(headings, ["Build", "Machine"]);
    let folder = sandbox.path("qchat/cache");
    assert!(said("reads memory").unwrap().contains(" GB/s with 1 thread (median "), "{text}");
    assert!(said("cache folder").unwrap().ends_with(&format!("({})", folder.display())), "{text}");

    let output = doctor(&sandbox, &["--output", "json"]).output().unwrap();
    let report = parsed(&output);
    assert_eq!((stdout(&output).lines().count(), stderr(&output).as_str()), (1, ""));
    assert_eq!(report.as_object().unwrap().keys().collect::<Vec<_>>(), ["build", "machine"]);
    let (build, machine) = (&report["build"], &report["machine"]);
    assert_eq!(said("qchat").unwrap(), format!("{}, {}", env!("CARGO_PKG_VERSION"), build["engine"].as_str().unwrap()));
    assert!(build["system_info"].as_str().unwrap().contains("CPU : "), "{build}");
    assert!(build["devices"].as_array().unwrap().iter().any(|device| device["is_gpu"] == false), "{build}");
    for feature in build["features"].as_array().unwrap() {
        assert!(feature["name"].is_string() && feature["compiled"].is_boolean() && feature["present"].is_boolean());
    }
    for remark in build["remarks"].as_array().unwrap() {
        assert!(lines.iter().any(|line| line.trim() == remark.as_str().unwrap()), "{text}");
    }
    let logical = number(machine, "/cores/logical");
    assert!(said("CPU").unwrap().ends_with(&format!(", {logical} logical")), "{text}");
    assert!(number(machine, "/cores/physical") > 0.0 && number(machine, "/available_bytes") > 0.0, "{machine}");
    let (best, median) = (number(machine, "/bandwidth/best"), number(machine, "/bandwidth/median"));
    assert!(best >= median && median > 1e8 && machine["bandwidth"]["threads"] == 1, "{machine}");
    assert!(number(machine, "/disk/read") > 0.0 && number(machine, "/disk/write") > 0.0, "{machine}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn what_cannot_be_measured_is_said_and_fails_nothing() {
    let sandbox = Sandbox::new();
    // A file where the folder should be: root cannot write there either.
    let folder = sandbox.write("qchat/cache", "");
    let output = quick(&sandbox, &[]).output().unwrap();
    let text = answered(&output);
    assert_eq!(stderr(&output), "");
    assert!(text.contains("  reads memory   not measured: 100 MB of free memory is too little"), "{text}");
    assert!(text.contains(&format!("  cache folder   not measured: {}: ", folder.display())), "{text}");
    let report = report(&mut quick(&sandbox, &[]));
    for part in ["bandwidth", "disk"] {
        assert!(report["machine"][part]["error"].is_string(), "{report}");
    }
    assert!(folder.is_file());
}

/// What a model takes with a context of so many tokens, by what `show` says of 4,096.
fn needs(sandbox: &Sandbox, name: &str) -> impl Fn(u64) -> u64 {
    let sheet = parsed(&sandbox.qchat().args(["show", name, "--output", "json"]).output().unwrap());
    let all = sheet["memory_bytes"].as_u64().unwrap();
    let kv = sheet["kv_bytes_per_token"]["f16"].as_u64().unwrap();
    // The masks are 2,048 bytes a token, and llama.cpp takes 256 tokens at a time.
    move |tokens| all + tokens.next_multiple_of(256) * (kv + 2048) - 4096 * (kv + 2048)
}

#[test]
fn the_figures_of_a_model_follow_from_each_other() {
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(&format!("{name}.gguf"));
    Tiny { layers: 9, context: 5000, says: printable, ..Tiny::default() }.write(&path("large")).unwrap();
    Tiny { layers: 1, context: 5000, seed: 2, ..Tiny::default() }.write(&path("small")).unwrap();
    let bytes = path("large").metadata().unwrap().len();
    let source = |name: &str| format!("[[model.source]]\nquant = 'F32'\npath = {:?}\n", path(name));
    let smaller = format!(
        "[[model.source]]\nquant = 'Q4_0'\nhf = 'own/large'\n[[model.source.files]]\nname = 'q.gguf'\nbytes = {}\n",
        bytes / 4
    );
    let registry = format!(
        "[[model]]\nname = 'large'\ndraft = 'small'\n{}{smaller}[[model]]\nname = 'small'\n{}",
        source("large"),
        source("small")
    );
    sandbox.write("qchat/config/models.toml", registry);

    let whole = report(&mut doctor(&sandbox, &["large"]));
    let (model, memory) = (&whole["model"], &whole["memory"]);
    let sheet = parsed(&sandbox.qchat().args(["show", "large", "--output", "json"]).output().unwrap());
    assert_eq!(model["bytes_read_per_token"], sheet["bytes_read_per_token"]);
    assert_eq!(model["kv_bytes_per_token"], sheet["kv_bytes_per_token"]["f16"]);
    assert_eq!(
        (&model["name"], &model["quantisation"], &model["bytes"]),
        (&json!("large"), &json!("F32"), &json!(bytes))
    );
    let (weights, kv) = (number(model, "/bytes_read_per_token"), number(model, "/kv_bytes_per_token"));
    let best = number(&whole, "/machine/bandwidth/best");
    let ceilings = model["ceilings"].as_array().unwrap();
    assert_eq!(ceilings.iter().map(|own| number(own, "/depth")).collect::<Vec<_>>(), [0.0, 4096.0], "of 5000 trained");
    for own in ceilings {
        let bytes = weights + number(own, "/depth") * kv;
        assert!(close(number(own, "/bytes"), bytes) && close(number(own, "/rate"), best / bytes), "{own}");
    }
    let (step, depth) = (number(model, "/speed/step_ms"), number(model, "/speed/depth"));
    let decode = number(model, "/decode_tokens_per_second");
    assert!(close(decode, 1e3 / step) && close(depth, 136.0), "{model}");
    assert!(close(number(model, "/share_of_ceiling"), decode / (best / (weights + depth * kv))), "{model}");
    assert_eq!(
        (&model["threads"], &model["flash_attention"], &model["repack"]),
        (&json!(1), &json!(true), &json!(true))
    );
    let rows: Vec<u64> =
        model["speed"]["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).collect();
    assert_eq!(rows, [2, 3, 4, 8]);
    let share = format!("decode reaches {:.0} % of what memory allows", 100.0 * number(model, "/share_of_ceiling"));
    assert_eq!(verdicts(&whole), ["quantise", "speculate"], "nothing was said in chats");
    let quantise = verdict(&whole, "quantise");
    assert!(quantise.contains(&share) && quantise.contains("; large Q4_0 has 25 % of the bytes"), "{quantise}");
    assert_eq!(whole["draft"]["name"], "small");
    let draft = number(&whole, "/draft/speed/step_ms") / step;
    assert!(close(number(&whole, "/draft/step"), draft), "{whole}");
    let speculate = verdict(&whole, "speculate");
    assert!(
        speculate.starts_with("small ") && speculate.contains(&format!("costs {draft:.2} of a step")),
        "{speculate}"
    );
    let parts: f64 = ["/weights", "/kv", "/buffers"].iter().map(|part| number(memory, part)).sum();
    assert_eq!((&memory["planned_context"], &memory["bytes"]), (&json!(4096), &sheet["memory_bytes"]));
    // And the masks.
    assert!(close(number(memory, "/bytes"), parts + 4096.0 * 2048.0), "{memory}");
    let (large, small) = (needs(&sandbox, "large"), needs(&sandbox, "small"));
    assert_eq!(memory["draft_bytes"], small(4096));
    assert_eq!(whole["largest_context"], 5000, "all that it was trained for");

    // Where memory is short, with a chat, without a bandwidth.
    let said = [("user", 4000), ("assistant", 8)]
        .map(|(role, bytes)| json!({ "event": "message", "role": role, "content": "x".repeat(bytes) }).to_string());
    let begin = json!({ "event": "begin", "version": 1, "created": "2026-11-30T00:00:00Z", "model": "large" });
    sandbox.write("qchat/data/chats/one.jsonl", format!("{begin}\n{}\n{}\n", said[0], said[1]));
    for (args, free, fits) in
        [(&["large"][..], large(1800) + small(1800), 2048), (&["large", "--draft", "off"], large(1) - 1, 0)]
    {
        let mut command = doctor(&sandbox, args);
        let short = report(command.env("QCHAT_MEMORY", free.to_string()));
        assert_eq!(
            (&short["largest_context"], &short["memory"]["free_bytes"]),
            (&json!(fits), &json!(free)),
            "{args:?}"
        );
        let model = &short["model"];
        assert_eq!((&model["share_of_ceiling"], &model["ceilings"]), (&Value::Null, &json!([])));
        assert_eq!(verdicts(&short), ["cache", "speculate"], "no bandwidth, no word about weights");
        assert_eq!(short["talks"], json!({ "chats": 1, "answers": 1, "read": 1000.0, "said": 2.0 }));
        let (read, step) = (1000.0 / number(model, "/speed/prefill"), number(model, "/speed/step_ms") / 500.0);
        let cache = format!("in 1 saved chat with 1 answer, reading would be {:.0} % of", 100.0 * read / (read + step));
        assert!(verdict(&short, "cache").starts_with(&cache), "{cache}: {short}");
        assert_eq!(short["draft"].is_null(), args.len() > 1);
        assert_eq!(verdict(&short, "speculate").starts_with("n-grams"), args.len() > 1);
    }
    let text = answered(&quick(&sandbox, &["large", "--draft", "off"]).output().unwrap());
    for part in [
        "\nlarge F32\n",
        "\n  decode  ",
        "\n  prefill  ",
        "\n  a step of ",
        "\nVerdict\n  1. cache ",
        "\n  2. speculate ",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    assert!(text.ends_with("not tried; `qchat doctor large --tune` does\n") && !text.contains("ceiling"), "{text}");
}

#[test]
fn a_model_whose_rows_take_a_known_time_is_seen_as_it_is() {
    let sandbox = Sandbox::new();
    let script = json!({ "replies": ["a"], "row_ms": 3, "load_ms": 200 });
    let model = sandbox.write("model.script", format!("{script}{}", " ".repeat(1000)));
    let draft = sandbox.write("draft.script", json!({ "replies": ["a"], "row_ms": 1 }).to_string());
    let args = [model.to_str().unwrap(), "--draft", draft.to_str().unwrap()];
    let report = report(&mut quick(&sandbox, &args));
    // Sleeping and a busy machine can only add.
    let is = |path: &str, value: f64| {
        let own = number(&report, path);
        assert!((0.999..1.08).contains(&(own / value)), "{path}: {own}, not {value}");
    };
    is("/model/load_ms", 200.0);
    is("/model/speed/step_ms", 3.0);
    assert!((0.92..1.001).contains(&(number(&report, "/model/speed/prefill") / (1000.0 / 3.0))), "{report}");
    for (at, rows) in [2.0, 3.0, 4.0, 8.0].into_iter().enumerate() {
        let cost = number(&report, &format!("/model/speed/rows/{at}/1"));
        assert!((0.93..1.05).contains(&(cost / rows)), "{rows} rows: {cost}");
    }
    let step = number(&report, "/draft/speed/step_ms") / number(&report, "/model/speed/step_ms");
    assert!(close(number(&report, "/draft/step"), step) && (0.32..0.4).contains(&step), "{report}");
    assert!(verdict(&report, "speculate").starts_with("draft does not pay here"), "{report}");
}

#[test]
fn a_state_that_cannot_be_cut_back_has_no_verdict_on_drafts() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["a"], json!({ "can_trim": false }));
    let report = report(&mut quick(&sandbox, &[model.to_str().unwrap()]));
    assert_eq!((&report["model"]["speed"]["rows"], &report["verdicts"]), (&json!([]), &json!([])));
}

#[test]
fn tuning_tries_what_can_be_chosen_and_keeps_it() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let path = model.to_str().unwrap();
    assert_eq!(way(&mut untyped(&sandbox, &model, &["hi"])), None);
    let output = quick(&sandbox, &[path, "--tune", "--output", "json"]).output().unwrap();
    let found = parsed(&output);
    let logical = number(&found, "/machine/cores/logical");
    let (tried, more) = (stderr(&output), usize::from(logical > 1.0));
    for weights in ["as stored", "rearranged"] {
        let own = |rest: &str| tried.matches(&format!("weights {weights}, {rest}")).count();
        assert_eq!((own(""), own("1 thread, flash attention on: decode ")), (2 + more, 1), "{tried}");
    }
    assert_eq!(tried.matches("flash attention off").count(), 2, "{tried}");
    assert_eq!(tried.lines().count(), 2 * (2 + more), "{tried}");
    let kept: Value = serde_json::from_slice(&fs::read(tuned(&sandbox)).unwrap()).unwrap();
    assert_eq!(kept["value"], found["tuned"]);
    assert_eq!(
        (&kept["value"]["stored"]["repack"], &kept["value"]["repacked"]["repack"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(stderr(&quick(&sandbox, &[path, "--tune", "-q"]).output().unwrap()), "");
    assert!(way(&mut untyped(&sandbox, &model, &["hi"])).is_some());

    // Without --tune what was found is what is measured, and a typed number of threads is above it.
    edit(&tuned(&sandbox), |kept| kept["value"]["repacked"]["threads"] = json!(3));
    edit(&tuned(&sandbox), |kept| kept["value"]["repacked"]["flash_attention"] = json!(false));
    let mut command = sandbox.qchat();
    let seen = report(command.env_remove("QCHAT_THREADS").env("QCHAT_MEMORY", LITTLE_MEMORY).args(["doctor", path]));
    let of = |report: &Value| ["threads", "flash_attention", "repack"].map(|name| report["model"][name].clone());
    assert_eq!(of(&seen), [json!(3), json!(false), json!(true)]);
    assert_eq!(seen["tuned"]["repacked"]["threads"], 3);
    assert_eq!(of(&report(&mut quick(&sandbox, &[path]))), [json!(1), json!(false), json!(true)]);
    let text = answered(&quick(&sandbox, &[path]).output().unwrap());
    assert!(text.contains("\n  tuned          weights as stored, ") && !text.contains("not tried"), "{text}");

    let unwritable = Sandbox::new();
    unwritable.write("qchat/cache", "");
    let output = quick(&unwritable, &[path, "--tune", "--output", "json"]).output().unwrap();
    assert!(parsed(&output)["tuned"].is_object());
    let warned = stderr(&output);
    let warned: Vec<&str> = warned.lines().filter(|line| line.starts_with("qchat: ")).collect();
    assert!(warned.len() == 1 && warned[0].contains("what was found cannot be kept: "), "{warned:?}");
}

/// One way to run a model, as it is kept.
fn trial(repack: bool, threads: usize, load_ms: f64, prefill: f64, step_ms: f64, four: f64) -> Value {
    let speed = json!({ "prefill": prefill, "step_ms": step_ms, "depth": 136, "rows": [[4, four]] });
    json!({ "repack": repack, "threads": threads, "flash_attention": repack, "load_ms": load_ms, "speed": speed })
}

#[test]
fn run_follows_what_was_found() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    answered(&quick(&sandbox, &[model.to_str().unwrap(), "--tune"]).output().unwrap());
    let file = tuned(&sandbox);
    let (stored, rearranged) =
        ("3 threads, weights as stored, flash attention off", "1 thread, weights rearranged, flash attention on");
    let says = |args: &[&str]| way(&mut untyped(&sandbox, &model, args)).unwrap();
    // As stored: p + 10 a; rearranged: 2 p + 5 a + 1000 (p of the prompt, a of the answer, 256 where nothing is said).
    edit(&file, |kept| {
        kept["value"]["stored"] = trial(false, 3, 0.0, 1000.0, 10.0, 99.0);
        kept["value"]["repacked"] = trial(true, 1, 1000.0, 500.0, 5.0, 99.0);
    });
    assert_eq!(says(&["hi"]), rearranged);
    assert_eq!(says(&["hi", "--max-tokens", "150"]), stored, "a shorter answer");
    assert_eq!(says(&[&"x".repeat(1000)]), rearranged);
    assert_eq!(says(&[&"x".repeat(1300)]), stored, "a longer prompt");
    // In a talk nobody waits for the load. The sandbox types one thread.
    let talk = Pty::talk(&sandbox, &model, &["--max-tokens", "150", "-v"]);
    talk.wait_for(&format!("tuned: {rearranged}"));
    talk.leave();
    // What is typed is above it, and the rest is that of the weights.
    assert_eq!(says(&["hi", "--repack", "false"]), stored);
    assert_eq!(says(&["hi", "--repack", "true", "--max-tokens", "150"]), rearranged);
    assert_eq!(says(&["hi", "--threads", "7"]), rearranged.replace("1 thread", "7 threads"));
    assert_eq!(says(&["hi", "--flash-attention", "false"]), rearranged.replace("attention on", "attention off"));
    assert_eq!(says(&["hi", "--repack", "false", "--flash-attention", "true"]), stored.replace("off", "on"));
    assert_eq!(says(&["hi", "--repack", "false", "--kv", "q8_0"]), stored.replace("off", "on"), "they need it");
    let from_environment = way(untyped(&sandbox, &model, &["hi"]).env("QCHAT_THREADS", "4"));
    assert_eq!(from_environment, Some(rearranged.replace("1 thread", "4 threads")));
    sandbox.write("qchat/config/config.toml", "threads = 5\nrepack = false\nflash_attention = true\n");
    assert_eq!(says(&["hi"]), "5 threads, weights as stored, flash attention on");
    fs::remove_file(sandbox.path("qchat/config/config.toml")).unwrap();
    // Four rows for 1.12 steps: a token is 7 with drafts, and 10 without.
    edit(&file, |kept| {
        kept["value"]["stored"] = trial(false, 3, 0.0, 1000.0, 10.0, 2.26);
        kept["value"]["repacked"] = trial(true, 1, 400.0, 1000.0, 10.0, 1.12);
    });
    assert_eq!((says(&["hi"]), says(&["hi", "--draft", "off"])), (rearranged.into(), stored.into()));

    // Another model, another placement, another build, a damaged file: as if nothing had been found.
    let none = |model: &Path, args: &[&str]| assert_eq!(way(&mut untyped(&sandbox, model, args)), None, "{args:?}");
    none(&model, &["hi", "--gpu-layers", "0"]);
    none(&sandbox.write("other.script", fs::read(&model).unwrap()), &["hi"]);
    let kept = fs::read(&file).unwrap();
    for (name, value) in [("build", json!("0.0.9")), ("machine", json!("another")), ("gpu_layers", json!(1))] {
        edit(&file, |kept| kept["key"][name] = value);
        none(&model, &["hi"]);
        fs::write(&file, &kept).unwrap();
    }
    for damaged in [&kept[..kept.len() / 2], b"", b"{}", b"\0\xff", b"[1]"] {
        fs::write(&file, damaged).unwrap();
        none(&model, &["hi"]);
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    none(&model, &["hi"]);
    sandbox.write("model.script", json!({ "replies": ["Hello, changed."] }).to_string());
    none(&model, &["hi"]);
}

/// Type and flash attention of each state that is cached.
fn cached_layouts(sandbox: &Sandbox) -> Vec<(String, bool)> {
    let rows = parsed(&sandbox.qchat().args(["cache", "list", "--output", "json"]).output().unwrap());
    let layout = |row: &Value| {
        let state = &row["key"]["state"];
        assert_eq!(state["keys"], state["values"]);
        (state["keys"].as_str().unwrap().to_owned(), state["flash_attention"].as_bool().unwrap())
    };
    let mut layouts: Vec<_> = rows.as_array().unwrap().iter().map(layout).collect();
    layouts.sort();
    layouts
}

#[test]
fn keys_and_values_of_each_type_are_kept_apart() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: printable, ..Tiny::default() }.write(&model).unwrap();
    let prompt = "How long is a piece of string? ".repeat(40);
    let args = [prompt.as_str(), "--temp", "0", "--max-tokens", "4", "--output", "json"];
    let ask = |more: &[&str]| -> Output { sandbox.run(&model, &[&args, more].concat()) };
    let cached = |more: &[&str]| {
        let answer = parsed(&ask(more));
        assert!(answer["content"].as_str().is_some_and(|said| !said.is_empty()), "{answer}");
        answer["usage"]["cached_tokens"].as_u64().unwrap()
    };
    let ways: [&[&str]; 4] = [&[], &["--kv", "q8_0"], &["--kv", "q4_0"], &["--flash-attention", "false"]];
    for way in ways {
        assert_eq!(cached(way), 0, "{way:?} finds nothing of the others");
    }
    for way in ways {
        assert!(cached(way) > 1000, "{way:?} finds its own");
    }
    let layouts =
        |layouts: &[(&str, bool)]| layouts.iter().map(|(kv, flash)| ((*kv).to_owned(), *flash)).collect::<Vec<_>>();
    let all = layouts(&[("f16", false), ("f16", true), ("q4_0", true), ("q8_0", true)]);
    assert_eq!(cached_layouts(&sandbox), all);
    let refusal = refused(&ask(&["--kv", "q8_0", "--flash-attention", "false"]), 2);
    assert_eq!(refusal, "qchat: --kv q8_0 needs flash attention. take --flash-attention true, or --kv f16\n");
    assert!(refused(&ask(&["--kv", "q2"]), 2).contains("q4_0"));

    // Flag, environment, config.toml.
    let used = |kv: Option<&str>, more: &[&str]| {
        answered(&sandbox.qchat().args(["cache", "clear"]).output().unwrap());
        let mut command = sandbox.qchat();
        command
            .envs(kv.map(|kv| ("QCHAT_KV", kv)))
            .arg("run")
            .arg(&model)
            .args(["What is it?", "--max-tokens", "4"])
            .args(more);
        answered(&command.output().unwrap());
        cached_layouts(&sandbox)
    };
    assert_eq!(used(Some("q4_0"), &[]), layouts(&[("q4_0", true)]));
    assert_eq!(used(Some("q4_0"), &["--kv", "f16"]), layouts(&[("f16", true)]));
    sandbox.write("qchat/config/config.toml", "kv = \"q8_0\"\n");
    assert_eq!(used(None, &[]), layouts(&[("q8_0", true)]));
    assert_eq!(used(Some("q4_0"), &[]), layouts(&[("q4_0", true)]));
    assert_eq!(used(None, &["--kv", "f16", "--flash-attention", "false"]), layouts(&[("f16", false)]));
    refused(&ask(&["--flash-attention", "false"]), 2);
    fs::remove_file(sandbox.path("qchat/config/config.toml")).unwrap();

    // What doctor found is used where nothing is said, except by types that need flash attention. It tries two threads,
    // which meet in every layer.
    Tiny { layers: 1, says: printable, ..Tiny::default() }.write(&model).unwrap();
    answered(&quick(&sandbox, &[model.to_str().unwrap(), "--tune"]).output().unwrap());
    edit(&tuned(&sandbox), |kept| {
        for trial in ["stored", "repacked"] {
            kept["value"][trial]["flash_attention"] = json!(false);
        }
    });
    assert_eq!(used(None, &[]), layouts(&[("f16", false)]));
    assert_eq!(used(None, &["--kv", "q8_0"]), layouts(&[("q8_0", true)]));
    assert_eq!(used(None, &["--flash-attention", "true"]), layouts(&[("f16", true)]));
}

#[test]
fn mistakes_are_one_line() {
    let sandbox = Sandbox::new();
    // Where nothing can be written the disk takes no time.
    sandbox.write("qchat/cache", "");
    let text = sandbox.write("text.gguf", "text").display().to_string();
    let mut bytes = Tiny::default().bytes();
    bytes.truncate(bytes.len() / 2);
    let half = sandbox.write("half.gguf", bytes).display().to_string();
    let script = sandbox.write("broken.script", "{").display().to_string();
    let model = sandbox.script(&["Hello."]).display().to_string();
    for (args, code, says) in [
        (&["smolm2-135m"][..], 3, "did you mean smollm2-135m"),
        (&["--tune"], 2, "<MODEL>"),
        (&["/no/such.gguf"], 3, "/no/such.gguf does not exist"),
        (&[&model, "--draft", "no-such-model"], 3, "'no-such-model'"),
        (&[&text], 3, "not a GGUF file"),
        (&[&half], 3, "half.gguf"),
        (&[&half, "--tune"], 3, "half.gguf"),
        (&[&script], 3, "broken.script cannot be loaded"),
        (&[&model, "--gpu-layers", "x"], 2, "--gpu-layers"),
    ] {
        let said = refused(&quick(&sandbox, args).output().unwrap(), code);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

/// Whether a process has a handler for Ctrl-C.
#[cfg(target_os = "linux")]
fn listens(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    // SIGINT is number 2, counted from 1.
    u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_it_and_keeps_nothing_half() {
    let sandbox = Sandbox::new();
    let stopped = |output: &Output| {
        assert_eq!((output.status.code(), stdout(output).as_str()), (Some(130), ""), "{output:?}");
        assert!(!tuning(&sandbox).exists() && !stderr(output).contains("qchat: "), "{output:?}");
    };
    // Between trials.
    let model = sandbox.script_with(&["Hello."], json!({ "row_ms": 1 }));
    let mut child = piped(&mut quick(&sandbox, &[model.to_str().unwrap(), "--tune"]));
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("weights as stored, 1 thread, "), "{line}");
    interrupt(&child);
    let output = ended(child);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("rearranged") && !rest.contains("qchat: "), "{rest}");
    stopped(&output);
    // While the machine is looked at, and while a model is loaded.
    let slow = sandbox.write("slow.script", json!({ "replies": [], "load_ms": 60_000 }).to_string());
    for args in [&[][..], &[slow.to_str().unwrap()]] {
        let child = piped(&mut doctor(&sandbox, args));
        until("Ctrl-C is listened to", || listens(&child));
        interrupt(&child);
        stopped(&ended(child));
    }
}
