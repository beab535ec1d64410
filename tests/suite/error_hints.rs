//! Whoever gets an error is told what to type next: one line, the right code, and commands that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::outcome::{answered, refused};
use crate::common::Sandbox;

/// A command line that fails, with the file that makes it fail where one does; the code, and what the line has to name.
type Case<'a> = (&'a [&'a str], Option<(&'a str, &'a [u8])>, i32, &'a [&'a str]);

const CONFIG: &str = "qchat/config/config.toml";
const MODELS: &str = "qchat/config/models.toml";
const HI: [&str; 3] = ["run", "./model.script", "hi"];

#[test]
fn every_error_names_what_to_type_next() {
    let sandbox = Sandbox::new();
    sandbox.script(&["Hello."]);
    let hi = |more: &[&'static str]| [&HI[..], more].concat();
    let (system, log, draft) = (
        hi(&["--system", "@/no/such/file"]),
        hi(&["--log", "/no/such/folder/log"]),
        hi(&["--draft", "no-such-model-at-all"]),
    );
    let cases: &[Case] = &[
        // Models.
        (&["show", "no-such-model-at-all"], None, 3, &["`qchat list`"]),
        (&["rm", "smollm2-135m"], None, 2, &["not on this disk", "`qchat list`"]),
        (&["bench", "qwen2.5-coder"], None, 3, &["could be", "`qchat list`"]),
        (&["pull", "hf:owner/repo:Q8_0"], None, 3, &["HF_HUB_OFFLINE", "`qchat pull hf:owner/repo:Q8_0`"]),
        (&["pull", "hf:owner/repo", "--source", "pip"], None, 3, &["no source", "--source"]),
        (&["pull", "qwen-7b", "--source", "ftp"], None, 2, &["[possible values: hf, pip]", "`qchat pull --help`"]),
        (&["run", "./notes.txt", "hi"], Some(("notes.txt", b"Dear model,")), 3, &["not a GGUF", "`qchat list`"]),
        (&["show", "./cut.gguf"], Some(("cut.gguf", b"GGUF\x03\0\0\0")), 3, &["truncated", "`qchat pull MODEL`"]),
        (&["show", "./old.gguf"], Some(("old.gguf", b"GGUF\x01\0\0\0")), 3, &["version 1", "`qchat --version`"]),
        (
            &["run", "./broken.script", "hi"],
            Some(("broken.script", b"{")),
            3,
            &["cannot be loaded", "`qchat show MODEL`", "--log"],
        ),
        (&draft, None, 3, &["'no-such-model-at-all'", "--draft takes auto, off or a model"]),
        // Files of settings.
        (&HI, Some((CONFIG, b"temprature = 1\n")), 2, &["line 1", "temprature", "`qchat config`"]),
        (&["config"], Some((CONFIG, b"draft_max = 99\n")), 2, &["draft_max must be from 1 to 16", "`qchat config`"]),
        (&HI, Some((CONFIG, b"\xff\xfe")), 2, &["config.toml cannot be read", "`qchat config`"]),
        (&["cache", "prune"], Some((CONFIG, b"[cache]\nmax_age = 'soon'\n")), 2, &["30d", "`qchat config`"]),
        (
            &["run"],
            Some((CONFIG, b"default_model = 'no-such-model-at-all'\n")),
            3,
            &["config.toml names it as default_model", "`qchat run MODEL`"],
        ),
        (&["list"], Some((MODELS, b"[[model]]\nnme = 'x'\n")), 2, &["line 2", "nme", "`qchat list`"]),
        (
            &["list"],
            Some((MODELS, b"[[model]]\nname = 'x'\ntemplate = 'frob'\n")),
            2,
            &["line 3", "chatml, gemma", "`qchat list`"],
        ),
        (
            &["pull", "mine"],
            Some((MODELS, b"[[model]]\nname = 'mine'\n[[model.source]]\npath = '/no/such.gguf'\n")),
            3,
            &["no such file", "models.toml", "`qchat list`"],
        ),
        // Chats.
        (&["chats", "show", "nothing"], None, 2, &["'nothing'", "`qchat chats`"]),
        (
            &["chats", "export", "x"],
            Some(("qchat/data/chats/x.jsonl", b"{]\n")),
            1,
            &["line 1, column 2", "x.jsonl", "`qchat config`", "`qchat chats rm NAME`"],
        ),
        (&["chats", "export", "x", "--format", "pdf"], None, 2, &["[possible values: markdown, json]", "--help`"]),
        // Flags and their files.
        (&["frobnicate"], None, 2, &["'frobnicate'", "`qchat --help`"]),
        (&["doctor", "--threads", "-1"], None, 2, &["1..=512", "`qchat doctor --help`"]),
        (&["doctor", "--tune"], None, 2, &["MODEL", "`qchat doctor --help`"]),
        (&system, None, 2, &["/no/such/file cannot be read", "--system"]),
        (&log, None, 2, &["/no/such/folder/log cannot be written", "--log"]),
        (&["bench", "./model.script", "--compare", "mood"], None, 2, &["'mood'", "`qchat bench --help`"]),
        (&["bench", "./model.script", "--html", "/no/such/folder/page"], None, 2, &["cannot be written", "--html"]),
        (
            &["bench", "./model.script", "--prompts", "own.jsonl"],
            Some(("own.jsonl", b"Why?\n{\"prompt\": 1}\n")),
            2,
            &["own.jsonl, line 2, column 12", "--prompts"],
        ),
    ];
    let mut commands = BTreeSet::new();
    for (args, file, code, names) in cases {
        let path = file.map(|(name, bytes)| sandbox.write(name, bytes));
        let line = refused(&sandbox.qchat().current_dir(sandbox.home.path()).args(*args).output().unwrap(), *code);
        assert!(names.iter().all(|name| line.contains(name)), "{args:?}: {line}");
        let own: Vec<String> = commands_in(&line).collect();
        assert!(!own.is_empty() || line.contains(" --"), "{args:?} says nothing to type: {line}");
        commands.extend(own);
        path.into_iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    all_parse(&sandbox, &commands);
}

#[test]
fn every_command_that_a_message_names_is_one() {
    let mut commands = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).unwrap();
                // Comments speak to others.
                let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                commands.extend(lines.flat_map(commands_in));
            }
        }
    }
    assert!(commands.len() > 12, "{commands:?}");
    all_parse(&Sandbox::new(), &commands);
}

#[test]
fn every_template_that_a_message_names_is_one() {
    let names: Vec<&str> = qchat::chat::TEMPLATES.split(", ").collect();
    assert!(names.iter().all(|name| qchat::chat::named(name).is_some()), "{names:?}");
    // And none is left out.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/chat/templates");
    assert_eq!(fs::read_dir(folder).unwrap().count(), names.len());
}

/// The commands of qchat's that stand between backquotes.
fn commands_in(text: &str) -> impl Iterator<Item = String> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|words| words.starts_with("qchat ")).map(str::to_owned)
}

/// With `--help` behind it a command only has to be one.
fn all_parse(sandbox: &Sandbox, commands: &BTreeSet<String>) {
    for command in commands {
        let words = command.split_whitespace().skip(1);
        let output = sandbox.qchat().args(words).arg("--help").output().unwrap();
        assert!(!answered(&output).is_empty(), "{command}");
    }
}
