//! What a run of the program came to: codes, lines, signals, and an end within a limit.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Sandbox, stderr, stdout};

/// Far more than anything takes, also on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A run that must fail: nothing on stdout, one line on stderr (answered), this exit code.
pub fn refused(output: &Output, code: i32) -> String {
    let (out, err) = (stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{:?}: {err}", output.status);
    assert_eq!(out, "", "nothing but an answer belongs on stdout");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("qchat: ") && err.ends_with('\n') && !err.contains('\x1b'), "{err:?}");
    err
}

/// A run that must succeed; what it said on stdout.
pub fn answered(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{:?}: {}", output.status, stderr(output));
    stdout(output)
}

/// An answer as JSON.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&answered(output)).unwrap()
}

/// Both streams as pipes.
pub fn piped(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The end of a child, which must come. For children that say little: nobody reads their pipes meanwhile.
pub fn ended(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("no end: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Ctrl-C for one process.
pub fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// `qchat run MODEL ARGS...`, started with `--log`, once Ctrl-C is being listened to: the log is made after that.
pub fn started(sandbox: &Sandbox, model: &Path, args: &[&str], stdin: Stdio) -> Child {
    let log = sandbox.path("started.log");
    let _ = std::fs::remove_file(&log);
    let mut command = sandbox.qchat();
    command.arg("run").arg(model).args(args).arg("--log").arg(&log).stdin(stdin);
    let child = piped(&mut command);
    until("the log", || log.exists());
    child
}
