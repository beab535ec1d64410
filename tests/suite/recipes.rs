//! The recipes of the README, as they stand there, in a folder with what they need.

use std::process::{Command, Stdio};

use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout};

/// The recipes by their first line.
fn recipes() -> Vec<(String, String)> {
    let readme = include_str!("../../README.md");
    let block =
        readme.split("<!-- recipes").nth(1).unwrap().split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    block
        .split("\n\n")
        .map(|recipe| {
            let (title, script) = recipe.trim().split_once('\n').unwrap();
            (title.trim_start_matches("# ").to_owned(), script.to_owned())
        })
        .collect()
}

fn run(sandbox: &Sandbox, script: &str) -> std::process::Output {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_qchat")).parent().unwrap().display().to_string();
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &format!("set -o pipefail\n{script}")]).current_dir(sandbox.home.path()).env_clear();
    command.envs(sandbox.environment()).stdin(Stdio::null());
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env("MODEL", "tiny.gguf")
        .env("QCHAT_MAX_TOKENS", "400")
        .env("QCHAT_SEED", "3")
        .env("QCHAT_TEMP", "1");
    command.output().unwrap()
}

#[test]
fn each_recipe_of_the_readme_runs() {
    let sandbox = Sandbox::new();
    let has = |program: &str| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    assert!(has("jq") && has("git"), "the recipes need jq and git: `scripts/setup tests` installs them");
    let tiny = Tiny { spread: 1.0, says: |id| (32..127).contains(&id) || id == 258, ..Tiny::default() };
    tiny.write(&sandbox.path("tiny.gguf")).unwrap();
    for (name, text) in [
        ("notes/a.md", "one"),
        ("notes/b.md", "two"),
        ("reviews.txt", "It is great.\nIt broke.\nFine.\n"),
        ("mails/1.txt", "Hi, please send me the bill. Ann"),
        ("mails/2.txt", "Call me today! Bob"),
        ("in.txt", "hello\nworld\n"),
    ] {
        sandbox.write(name, text);
    }
    let git = "git init -q . && git config user.email a@b && git config user.name a && git add in.txt && git commit -qm a \
        && echo more >> in.txt && echo staged > new.txt && git add new.txt";
    assert!(run(&sandbox, git).status.success());
    let recipes = recipes();
    assert_eq!(recipes.len(), 6);
    for (title, script) in recipes {
        let output = run(&sandbox, &script);
        assert!(output.status.success(), "{title}: {}", stderr(&output));
        let said = stdout(&output);
        match title.as_str() {
            "Summarise a folder" => assert!(said.contains("notes/a.md: ") && said.contains("notes/b.md: "), "{said}"),
            "Classify lines into choices" => {
                let lines: Vec<&str> = said.lines().collect();
                assert!(lines.len() == 3 && lines[1].ends_with("It broke."), "{said}");
                assert!(lines.iter().all(|line| line.starts_with("good ") || line.starts_with("bad ")), "{said}");
            }
            "Extract JSON from mails" => {
                assert_eq!(said.lines().count(), 2, "{said} {}", stderr(&output));
                for line in said.lines() {
                    let value: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert!(value["sender"].is_string() && value["urgent"].is_boolean(), "{line}");
                }
            }
            "Review a diff" | "A commit message from what is staged" => assert!(!said.is_empty(), "{title}"),
            "Translate a file line by line" => {
                let text = std::fs::read_to_string(sandbox.path("out.txt")).unwrap();
                assert_eq!(text.lines().count(), 3, "{text}");
            }
            other => panic!("{other} is not known here"),
        }
    }
}
