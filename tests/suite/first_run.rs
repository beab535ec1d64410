//! What somebody sees who has nothing yet, and where settings come from.

use serde_json::Value;

use super::pty::Pty;
use crate::common::{Sandbox, stderr, stdout, with_stdin};

#[test]
fn alone_it_explains_itself_in_ten_lines() {
    let sandbox = Sandbox::new();
    let output = sandbox.qchat().output().unwrap();
    let said = stdout(&output);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.len() <= 10 && lines.iter().all(|line| line.len() < 80), "{said}");
    assert_eq!(lines[1].trim(), "qchat run smollm2-135m");
    // A wrong registry of one's own does not get in the way.
    sandbox.write("qchat/config/models.toml", "nonsense");
    let output = sandbox.qchat().output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("qchat run MODEL"));
}

#[test]
fn a_model_that_nobody_named_is_offered_and_not_fetched() {
    let sandbox = Sandbox::new();
    // Without a terminal nobody can be asked.
    let mut command = sandbox.qchat();
    command.arg("run");
    let output = with_stdin(command, b"hello");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no model is here") && stderr(&output).contains("`qchat run smollm2-135m`"));
    let mut pty = Pty::command(&sandbox, (40, 100), &[env!("CARGO_BIN_EXE_qchat"), "run"], &[]);
    pty.wait_for("fetch smollm2-135m (105 MB)? [y/N]");
    pty.send("n\r");
    assert_eq!(pty.wait_exit(), 2);
    let said = pty.rows().concat();
    assert!(said.contains("there is no model to talk with") && said.contains("`qchat list`"), "{said}");
}

#[test]
fn config_shows_each_setting_and_where_it_came_from() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "qchat/config/config.toml",
        "max_tokens = 7\nthreads = 3\nkv = 'q8_0'\n[sampling]\ntemperature = 0.25\n[cache]\nmax_age = '2d'\n",
    );
    let mut command = sandbox.qchat();
    command.args(["config", "--output", "json"]).env("QCHAT_MAX_TOKENS", "9").env("QCHAT_SYSTEM", "Be\nbrief.");
    let values: Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
    let own = |name: &str| (values[name]["value"].as_str().unwrap(), values[name]["from"].as_str().unwrap());
    for (name, value, from) in [
        ("max_tokens", "9", "QCHAT_MAX_TOKENS"),
        ("system", "Be\nbrief.", "QCHAT_SYSTEM"),
        // The sandbox's own.
        ("threads", "1", "QCHAT_THREADS"),
        ("kv", "q8_0", "config.toml"),
        ("sampling.temperature", "0.25", "config.toml"),
        ("sampling.top_k", "40", "built in"),
        ("cache.max_age", "2d", "config.toml"),
    ] {
        assert_eq!(own(name), (value, from), "{name}");
    }
    assert!(own("config file").0.ends_with("config.toml") && own("config file").1 == "QCHAT_HOME");
    let output = sandbox.qchat().arg("config").output().unwrap();
    assert!(stdout(&output).lines().any(|line| line.split_whitespace().eq(["max_tokens", "7", "config.toml"])));
    // A mistake is named.
    sandbox.write("qchat/config/config.toml", "max_tokens = 0\n");
    let output = sandbox.qchat().arg("config").output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("max_tokens must be from 1"));
}
