//! The prefix cache as its user sees it: what is listed, checked and deleted, what leaves it alone, what it says it saved.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::outcome::{answered, json as parsed, refused};
use super::pty::Pty;
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout};

/// `ChatML` around one user message, a byte a token.
const AROUND: usize = 19;

fn qchat(sandbox: &Sandbox, args: &[&str]) -> Output {
    sandbox.qchat().args(args).output().unwrap()
}

fn store(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("qchat/cache/kv-v1")
}

/// A model whose reading takes long enough that loading always pays.
fn slow(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.write(name, json!({ "replies": ["Hello.", name], "row_ms": 1 }).to_string())
}

/// One answer; what it says of itself.
fn ask(sandbox: &Sandbox, model: &Path, prompt: &str, args: &[&str]) -> Value {
    parsed(&asking(sandbox, model, prompt, args).output().unwrap())
}

fn asking(sandbox: &Sandbox, model: &Path, prompt: &str, args: &[&str]) -> Command {
    let mut command = sandbox.qchat();
    command.arg("run").arg(model).arg(prompt).args(args).args(["--output", "json"]);
    command
}

fn cached(answer: &Value) -> usize {
    answer["usage"]["cached_tokens"].as_u64().unwrap() as usize
}

/// Model, blocks and tokens of each row of `qchat cache list`.
fn listed(sandbox: &Sandbox) -> Vec<(String, u64, u64)> {
    let rows = parsed(&qchat(sandbox, &["cache", "list", "--output", "json"]));
    let row = |row: &Value| {
        (row["model"].as_str().unwrap().to_owned(), row["blocks"].as_u64().unwrap(), row["tokens"].as_u64().unwrap())
    };
    let mut rows: Vec<_> = rows.as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let mut all: Vec<_> = entries.flat_map(|entry| below(entry.unwrap().path())).collect();
    all.sort();
    all
}

/// The files of blocks, which carry what a name may and no other file does.
fn blocks(sandbox: &Sandbox) -> Vec<PathBuf> {
    let is_block = |path: &PathBuf| path.strip_prefix(store(sandbox)).unwrap().iter().count() == 3;
    files(&store(sandbox)).into_iter().filter(is_block).collect()
}

/// Contents and times of everything that is cached.
fn snapshot(sandbox: &Sandbox) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let look = |path: PathBuf| {
        let state = (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
        (path, state)
    };
    files(&sandbox.path("qchat/cache/kv-v1"))
        .into_iter()
        .chain(files(&sandbox.path("qchat/cache/identity-v1")))
        .map(look)
        .collect()
}

/// Whether a block stands for a prompt with this text in it: a token is a byte there, as four bytes.
fn holds(path: &Path, text: &str) -> bool {
    let tokens: Vec<u8> = text.bytes().flat_map(|byte| [byte, 0, 0, 0]).collect();
    fs::read(path).unwrap().windows(tokens.len()).any(|window| window == tokens)
}

fn age(path: &Path, by: Duration) {
    fs::File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - by).unwrap();
}

#[test]
fn what_there_is_of_each_model_is_counted() {
    let sandbox = Sandbox::new();
    let (one, two) = (slow(&sandbox, "one.script"), slow(&sandbox, "two.script"));
    ask(&sandbox, &one, "hi", &[]);
    assert_eq!(listed(&sandbox), [("one".into(), 1, AROUND as u64 + 2)]);
    // Two whole blocks and an end; the beginning of the first one differs from what was there.
    ask(&sandbox, &one, &"x".repeat(600 - AROUND), &[]);
    assert_eq!(listed(&sandbox), [("one".into(), 4, AROUND as u64 + 2 + 600)]);
    ask(&sandbox, &two, "hello", &[]);
    let rows = [("one".to_owned(), 4, AROUND as u64 + 602), ("two".into(), 1, AROUND as u64 + 5)];
    assert_eq!(listed(&sandbox), rows);
    let rows = parsed(&qchat(&sandbox, &["cache", "list", "--output", "json"]));
    let bytes: u64 = rows.as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, blocks(&sandbox).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for row in rows.as_array().unwrap() {
        assert!(row["key"]["content"].as_str().unwrap().starts_with("blake3:"), "{row}");
        assert!(row["last_used"].as_u64().is_some_and(|at| at <= now && now - at < 600), "{row}");
    }
    // Asked again, nothing is added.
    ask(&sandbox, &two, "hello", &[]);
    assert_eq!(listed(&sandbox)[1].1, 1);
    for args in [&["cache"][..], &["cache", "list"]] {
        let text = answered(&qchat(&sandbox, args));
        let mut rows: Vec<Vec<&str>> = text.lines().map(|row| row.split_whitespace().collect()).collect();
        rows.sort();
        assert_eq!(rows[0][..5], ["one", "4", "blocks", "621", "tokens"], "{text}");
        assert_eq!(rows[1][..5], ["two", "1", "blocks", "24", "tokens"], "{text}");
    }
}

#[test]
fn an_empty_cache_is_no_failure_and_stays_empty() {
    let sandbox = Sandbox::new();
    let says = |args: &[&str]| {
        let output = qchat(&sandbox, &[&["cache"], args].concat());
        answered(&output) + &stderr(&output)
    };
    assert_eq!(says(&[]), "the prefix cache is empty\n");
    assert_eq!(says(&["list", "--output", "json"]), "[]\n");
    assert_eq!(says(&["verify"]), "0 blocks are sound, 0 were damaged and are deleted, 0 belong to another key\n");
    assert_eq!(says(&["prune"]), "0 blocks deleted (0.0 MB), 0.0 MB are left\n");
    assert_eq!(
        says(&["prune", "--max-size", "1GB", "--max-age", "1h"]),
        "0 blocks deleted (0.0 MB), 0.0 MB are left\n"
    );
    assert_eq!(says(&["clear"]), "the prefix cache is empty now (0.0 MB deleted)\n");
    let line = refused(&qchat(&sandbox, &["cache", "prune", "--model", "none"]), 2);
    assert_eq!(line, "qchat: the prefix cache has nothing of 'none'. it is empty\n");
    assert!(!sandbox.path("qchat").exists(), "looking makes nothing");
}

#[test]
fn a_damaged_block_is_found_deleted_and_no_answer_suffers() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&model).unwrap();
    let document = "a document of some length, ".repeat(30);
    let asked = || {
        let output = asking(&sandbox, &model, &document, &["--temp", "0", "--max-tokens", "16", "--draft", "off"])
            .output()
            .unwrap();
        let answer = parsed(&output);
        (answer["content"].clone(), cached(&answer), stderr(&output))
    };
    let (first, none, _) = asked();
    assert_eq!(none, 0);
    let verify = || {
        let output = qchat(&sandbox, &["cache", "verify"]);
        assert_eq!(stderr(&output), "");
        (output.status.code().unwrap(), stdout(&output))
    };
    let says = |sound: usize, damaged: usize, foreign: usize| {
        format!("{sound} blocks are sound, {damaged} were damaged and are deleted, {foreign} belong to another key\n")
    };
    let all = blocks(&sandbox);
    assert_eq!(all.len(), 4, "829 tokens");
    assert_eq!(verify(), (0, says(4, 0, 0)));
    assert_eq!(blocks(&sandbox), all);
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&all[1]);
    assert_eq!(verify(), (1, says(3, 1, 0)));
    assert!(!all[1].exists() && blocks(&sandbox).len() == 3);
    assert_eq!(verify(), (0, says(3, 0, 0)));
    assert_eq!(asked().0, first);
    assert_eq!(blocks(&sandbox), all, "what was missing was read and saved again");
    // Damaged, and nobody looked before the question: what follows is of use again when it was read anew.
    let name = |path: Option<&Path>| path.and_then(Path::file_name).map(std::ffi::OsStr::to_owned);
    let begins = |path: &&PathBuf| name(path.parent()) == name(path.parent().and_then(Path::parent));
    flip(all.iter().find(begins).unwrap());
    let (again, none, said) = asked();
    assert_eq!((again, none), (first.clone(), 0));
    assert_eq!(said, "qchat: a damaged file of the prefix cache was deleted and is read again from the text\n");
    let (again, most, said) = asked();
    assert!(again == first && most > 800 && said.is_empty(), "{most} {said}");
    // Blocks of another key are somebody's, and are a miss.
    fs::write(store(&sandbox).join("key"), [7; 32]).unwrap();
    assert_eq!(verify(), (0, says(0, 0, 4)));
    assert_eq!(blocks(&sandbox).len(), 4);
    let (again, none, said) = asked();
    assert_eq!((again, none, said.as_str()), (first, 0, ""));
}

#[test]
fn prune_deletes_what_it_is_asked_to() {
    let sandbox = Sandbox::new();
    let (one, two) = (slow(&sandbox, "one.script"), slow(&sandbox, "two.script"));
    let fill = || {
        for prompt in ["one question", "and another one", "a third question"] {
            ask(&sandbox, &one, prompt, &[]);
        }
        ask(&sandbox, &two, "one question", &[]);
    };
    let prune = |args: &[&str]| {
        let output = qchat(&sandbox, &[&["cache", "prune"], args].concat());
        assert_eq!(answered(&output), "");
        (stderr(&output), listed(&sandbox).into_iter().map(|(model, blocks, _)| (model, blocks)).collect::<Vec<_>>())
    };
    fill();
    let all = vec![("one".to_owned(), 3), ("two".to_owned(), 1)];
    // Within its bounds.
    let bytes: u64 = blocks(&sandbox).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes > 1000, "{bytes}");
    let (line, left) = prune(&[]);
    assert!(line.starts_with("0 blocks deleted (0.0 MB), ") && left == all, "{line} {left:?}");
    assert_eq!(prune(&["--max-size", "1GB"]).1, all);
    assert_eq!(prune(&["--max-age", "1h"]).1, all);
    // By age.
    let of_one: Vec<_> = blocks(&sandbox).into_iter().filter(|path| holds(path, "one question")).collect();
    assert_eq!(of_one.len(), 2, "one of each model");
    of_one.iter().for_each(|path| age(path, Duration::from_secs(2 * 3600)));
    assert_eq!(prune(&["--max-age", "3h"]).1, all);
    let (line, left) = prune(&["--max-age", "1h"]);
    assert!(line.starts_with("2 blocks deleted ("), "{line}");
    assert_eq!(left, [("one".to_owned(), 2)]);
    assert!(of_one.iter().all(|path| !path.exists()));
    // By model.
    fill();
    assert_eq!(prune(&["--model", "two"]).1, [("one".to_owned(), 3)]);
    fill();
    assert_eq!(prune(&["--model", "one", "--max-age", "1h"]).1, all);
    // By size: what was used last stays.
    let last = blocks(&sandbox).into_iter().find(|path| holds(path, "a third question")).unwrap();
    blocks(&sandbox).iter().filter(|path| **path != last).for_each(|path| age(path, Duration::from_secs(60)));
    let (_, left) = prune(&["--max-size", &format!("{}B", last.metadata().unwrap().len())]);
    assert_eq!((left, blocks(&sandbox)), (vec![("one".to_owned(), 1)], vec![last]));
    assert_eq!(prune(&["--max-size", "0"]), ("1 block deleted (0.0 MB), 0.0 MB are left\n".into(), vec![]));
}

#[test]
fn bad_bounds_are_usage_errors_with_an_example() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    ask(&sandbox, &model, "a question", &[]);
    for (args, example) in [
        (&["--max-size", "much"][..], "4GiB"),
        (&["--max-size", "-1"], "`qchat cache prune --help`"),
        (&["--max-size", ""], "4GiB"),
        (&["--max-size", "5 apples"], "4GiB"),
        (&["--max-age", "long"], "30d"),
        (&["--max-age", "5"], "30d"),
        (&["--max-age", ""], "30d"),
        (&["--model", "onne"], "it has one"),
        (&["--model", "../one"], "it has one"),
        (&["--frobnicate"], "--frobnicate"),
    ] {
        let line = refused(&qchat(&sandbox, &[&["cache", "prune"], args].concat()), 2);
        assert!(line.contains(example), "{args:?}: {line}");
    }
    assert!(refused(&qchat(&sandbox, &["cache", "list", "--output", "xml"]), 2).contains("json"));
    assert_eq!(listed(&sandbox).len(), 1);
}

#[test]
fn clear_deletes_everything() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    ask(&sandbox, &model, "a question", &[]);
    let output = qchat(&sandbox, &["cache", "clear"]);
    assert_eq!(answered(&output), "");
    assert!(stderr(&output).starts_with("the prefix cache is empty now ("), "{}", stderr(&output));
    assert!(files(&store(&sandbox)).is_empty() && listed(&sandbox).is_empty());
    assert_eq!(cached(&ask(&sandbox, &model, "a question", &[])), 0);
    assert!(cached(&ask(&sandbox, &model, "a question", &[])) > 0);
}

#[test]
fn no_cache_and_private_touch_nothing() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    let prompt = "the same question each time";
    for off in [&["--no-cache"][..], &["--private"]] {
        assert_eq!(cached(&ask(&sandbox, &model, prompt, off)), 0);
        assert!(files(&store(&sandbox)).is_empty() && files(&sandbox.path("qchat/cache/identity-v1")).is_empty());
    }
    ask(&sandbox, &model, prompt, &[]);
    let whole = AROUND + prompt.len();
    assert_eq!(cached(&ask(&sandbox, &model, prompt, &[])), whole - 1);
    let before = snapshot(&sandbox);
    for off in [&["--no-cache"][..], &["--private"]] {
        let answer = ask(&sandbox, &model, prompt, off);
        assert_eq!((cached(&answer), &answer["usage"]["prompt_tokens"]), (0, &json!(whole)));
        ask(&sandbox, &model, "something else that was never asked before", off);
        // A talk too, to its end.
        let mut pty = Pty::talk(&sandbox, &model, off);
        pty.says("a third thing that was never asked before", &["Hello."]);
        pty.says("and more of it", &["one.script"]);
        pty.leave();
        assert_eq!(snapshot(&sandbox), before, "{off:?}");
    }
    // By the environment: as people write yes and no there.
    for (value, off) in [("1", true), ("true", true), ("yes", true), ("0", false), ("false", false), ("", false)] {
        let answer = parsed(&asking(&sandbox, &model, prompt, &[]).env("QCHAT_NO_CACHE", value).output().unwrap());
        assert_eq!(cached(&answer), if off { 0 } else { whole - 1 }, "{value:?}");
    }
}

#[test]
fn the_config_has_bounds_and_a_switch() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    let config = |text: &str| sandbox.write("qchat/config/config.toml", text);
    let prompt = "the same question each time";
    config("[cache]\nenabled = false\n");
    for _ in 0..2 {
        assert_eq!(cached(&ask(&sandbox, &model, prompt, &[])), 0);
    }
    assert!(files(&store(&sandbox)).is_empty());
    config("[cache]\nenabled = true\n");
    ask(&sandbox, &model, prompt, &[]);
    assert!(cached(&ask(&sandbox, &model, prompt, &[])) > 0);
    // Beyond its size, the least recently used goes by itself.
    let block = blocks(&sandbox)[0].clone();
    age(&block, Duration::from_secs(600));
    config("[cache]\nmax_size = \"700B\"\n");
    for number in 0..4 {
        ask(&sandbox, &model, &format!("{number} questions of some length, each of its own"), &[]);
    }
    let bytes: u64 = blocks(&sandbox).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(!block.exists() && bytes <= 700 && bytes > 0, "{bytes}");
    // `prune` alone takes the bounds of the config.
    config("[cache]\nmax_age = \"1h\"\n");
    let left = blocks(&sandbox);
    answered(&qchat(&sandbox, &["cache", "prune"]));
    assert_eq!(blocks(&sandbox), left);
    left.iter().for_each(|path| age(path, Duration::from_secs(2 * 3600)));
    answered(&qchat(&sandbox, &["cache", "prune"]));
    assert!(blocks(&sandbox).is_empty());
    // The environment is above the config, and named where it is wrong.
    ask(&sandbox, &model, prompt, &[]);
    let prune = |size: &str| {
        let mut command = sandbox.qchat();
        command.args(["cache", "prune"]).env("QCHAT_CACHE_MAX_SIZE", size).output().unwrap()
    };
    assert!(refused(&prune("much"), 2).contains("QCHAT_CACHE_MAX_SIZE: "));
    assert!(prune("1GiB").status.success() && !blocks(&sandbox).is_empty());
    assert!(prune("1B").status.success() && blocks(&sandbox).is_empty());
    for (text, key, says) in [
        ("[cache]\nmax_size = \"much\"\n", "cache.max_size", "4GiB"),
        ("[cache]\nmax_age = \"5\"\n", "cache.max_age", "30d"),
        ("[cache]\nmax_age = \"-1h\"\n", "cache.max_age", "30d"),
        ("[cache]\nenabled = \"maybe\"\n", "enabled", "line 2"),
        ("[cache]\nmax_size = 5\n", "max_size", "line 2"),
        ("[cache]\nsize = \"1GB\"\n", "size", "line 2"),
    ] {
        let path = config(text);
        for args in [&["run", "one.script", "hi"][..], &["cache", "prune"]] {
            let mut command = sandbox.qchat();
            let line = refused(&command.args(args).current_dir(sandbox.home.path()).output().unwrap(), 2);
            let names = [path.to_str().unwrap(), key, says];
            assert!(names.iter().all(|part| line.contains(part)), "{text}: {line}");
        }
    }
}

#[test]
fn what_was_cached_and_what_that_saved_is_said() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    let prompt = "a question of some length".repeat(8);
    let whole = AROUND + prompt.len();
    let stats = |args: &[&str]| {
        let output = sandbox.run(&model, &[&[prompt.as_str(), "--stats"], args].concat());
        answered(&output);
        stderr(&output)
    };
    let show = || answered(&qchat(&sandbox, &["show", model.to_str().unwrap()]));
    let line = |text: &str| {
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("prefix cache")).map(str::to_owned).collect();
        lines.join("\n")
    };
    assert_eq!(line(&show()), "prefix cache    nothing");
    assert!(stats(&[]).starts_with(&format!("prompt {whole} tokens (0 cached), ")));
    let shown = line(&show());
    assert!(shown.starts_with(&format!("prefix cache    {whole} tokens in 1 block, ")), "{shown}");
    assert_eq!(shown.lines().count(), 1, "nothing came from it yet: {shown}");
    let said = stats(&["-v"]);
    assert!(said.contains("prefix cache: loading 1 block up to token "), "{said}");
    let loaded = format!("prompt {whole} tokens ({} cached, {} of them loaded in ", whole - 1, whole - 1);
    let stats = said.lines().find(|line| line.starts_with(&loaded)).unwrap_or_else(|| panic!("{said}"));
    let number = |before: &str| -> f64 {
        let rest = stats.split(before).nth(1).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    // A token takes a millisecond to read.
    assert!(number("instead of about ") >= 0.9 * whole as f64, "{stats}");
    assert!(number("of them loaded in ") < number("instead of about "), "{stats}");
    let shown = line(&show());
    let saved = shown.lines().nth(1).unwrap_or_else(|| panic!("{shown}"));
    assert!(saved.contains(&format!("{} tokens came from it in 1 answer, which saved about 0.", whole - 1)), "{shown}");
    let row = parsed(&qchat(&sandbox, &["cache", "list", "--output", "json"]))[0]["spared"].clone();
    assert_eq!((&row["times"], &row["tokens"]), (&json!(1), &json!(whole - 1)));
    assert!(row["seconds"].as_f64().is_some_and(|s| s > 0.1 && s < 1.5), "{row}");
    // A file that was changed is another model.
    slow(&sandbox, "other.script");
    fs::copy(sandbox.path("other.script"), &model).unwrap();
    assert_eq!(line(&show()), "prefix cache    nothing");
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_what_was_asked() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "one.script");
    // Whatever a new file would be otherwise.
    let line = format!(
        "umask 000; exec {} run {} 'a question of some length' -q",
        env!("CARGO_BIN_EXE_qchat"),
        model.display()
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &line]).env_clear().envs(sandbox.environment());
    answered(&command.output().unwrap());
    answered(&qchat(&sandbox, &["cache", "prune"]));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let (all, root) = (files(&store(&sandbox)), store(&sandbox));
    for path in &all {
        assert_eq!(mode(path), 0o600, "{}", path.display());
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)) {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
    }
    let has = |name: &str| all.iter().any(|path| path.ends_with(name));
    assert!(has("key") && has("about.json") && has("usage.json") && has("lock") && blocks(&sandbox).len() == 1);
    let tag = fs::read_to_string(root.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"), "{tag}");
}

#[test]
fn control_sequences_of_a_models_name_do_not_reach_the_terminal() {
    let sandbox = Sandbox::new();
    let model = slow(&sandbox, "a\u{1b}]52;c;aGk=\u{7}b.script");
    ask(&sandbox, &model, "a question", &[]);
    let mut pty = Pty::command(&sandbox, (40, 120), &[env!("CARGO_BIN_EXE_qchat"), "cache"], &[]);
    assert_eq!(pty.wait_exit(), 0);
    assert!(
        pty.rows()[0].starts_with("ab ") && !String::from_utf8_lossy(&pty.bytes()).contains("]52"),
        "{:?}",
        pty.rows()
    );
}
