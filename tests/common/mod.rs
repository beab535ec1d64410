//! What tests share: a sandbox with its own home, a cleared environment, and models that need no download.

#![allow(dead_code, reason = "each harness uses a part of it")]

pub mod blank;
pub mod recurrent;
pub mod sliding;
pub mod tiny;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A home folder of its own, and the program run in it.
pub struct Sandbox {
    pub home: TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A scripted model that gives these replies, one a user message.
    pub fn script(&self, replies: &[&str]) -> PathBuf {
        self.script_with(replies, serde_json::json!({}))
    }

    /// The same with more fields of `engine::scripted::Script`.
    pub fn script_with(&self, replies: &[&str], fields: serde_json::Value) -> PathBuf {
        let mut script = fields;
        script["replies"] = serde_json::json!(replies);
        self.write("model.script", script.to_string())
    }

    /// The program with nothing of the caller's environment but PATH.
    pub fn qchat(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qchat"));
        command.env_clear().stdin(Stdio::null());
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().display().to_string();
        vec![
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", home.clone()),
            ("QCHAT_HOME", format!("{home}/qchat")),
            ("HF_HUB_CACHE", format!("{home}/hub")),
            ("HF_HUB_OFFLINE", "1".into()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
            // llama.cpp's threads wait for each other by spinning: more of them than cores is very slow.
            ("QCHAT_THREADS", "1".into()),
        ]
    }

    /// `qchat run MODEL ARGS...` to its end.
    pub fn run(&self, model: &Path, args: &[&str]) -> Output {
        self.qchat().arg("run").arg(model).args(args).output().unwrap()
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Gives `input` to a command's stdin and waits for its end.
pub fn with_stdin(mut command: Command, input: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that ends early closes its stdin; that is its right.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}
