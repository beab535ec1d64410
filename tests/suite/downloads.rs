//! Downloads from a hub, which a server of this test plays: redirects, refusals, cuts, wrong bytes, tokens.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};

use super::outcome::{answered, ended, interrupt, piped, refused, until};
use super::server::{Reply, Request, Server};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub(super) const FILE: &str = "/owner/repo/resolve/main/tiny.gguf";
pub(super) const ADDRESS: &str = "hf:owner/repo/tiny.gguf";

pub(super) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(super) fn model() -> Vec<u8> {
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.bytes()
}

/// What the hub says of a file, whatever it answers: commit, size and digest.
pub(super) fn described(reply: Reply, bytes: &[u8]) -> Reply {
    reply
        .with("x-repo-commit", COMMIT)
        .with("x-linked-size", bytes.len().to_string())
        .with("x-linked-etag", format!("\"{}\"", sha256(bytes)))
}

/// The bytes from where they were asked for.
pub(super) fn ranged(request: &Request, bytes: &[u8]) -> Reply {
    let Some(from) = request.from() else { return Reply::body(200, bytes) };
    let last = request.to().map_or(bytes.len() - 1, |to| to.min(bytes.len() - 1));
    let range = format!("bytes {from}-{last}/{}", bytes.len());
    Reply::body(206, &bytes[from..=last]).with("content-range", range)
}

pub(super) fn online(sandbox: &Sandbox, server: &Server) -> Command {
    let mut command = sandbox.qchat();
    command.env_remove("HF_HUB_OFFLINE").env("HF_ENDPOINT", server.url());
    command
}

pub(super) fn pull(sandbox: &Sandbox, server: &Server) -> Output {
    online(sandbox, server).args(["pull", ADDRESS]).output().unwrap()
}

pub(super) fn repo(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("hub/models--owner--repo")
}

/// Files and links below a folder, as paths from it.
pub(super) fn files_below(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => walk(&entry.path(), root, found),
                _ => found.push(entry.path().strip_prefix(root).unwrap().display().to_string()),
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found);
    found.sort();
    found
}

/// Nothing that looks like a model, and offline there is none.
fn holds_nothing(sandbox: &Sandbox) {
    let files = files_below(&repo(sandbox));
    let unfinished = |name: &String| name.starts_with("blobs/") && name.ends_with("incomplete");
    assert!(files.iter().all(unfinished), "{files:?}");
    refused(&sandbox.qchat().args(["run", ADDRESS, "hi", "--no-stdin"]).output().unwrap(), 3);
}

/// A failed pull: nothing on stdout, and the last line says why (the lines before it are progress).
pub(super) fn pull_refused(output: &Output) -> String {
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]), "{}", stderr(output));
    let line = stderr(output).lines().last().unwrap().to_owned();
    assert!(line.starts_with("qchat: ") && line.contains("owner/repo"), "{line}");
    line
}

#[test]
fn a_file_lands_in_the_hub_cache_and_is_found_without_a_network() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let (whole, digest) = (Arc::clone(&bytes), sha256(&bytes));
    // The hub answers with a place on its own host, as it does for files that were renamed.
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => described(Reply::new(307).with("location", "/elsewhere/tiny.gguf?sign=W"), &whole),
        "/elsewhere/tiny.gguf?sign=W" => ranged(request, &whole),
        _ => Reply::new(404),
    });
    let output = pull(&sandbox, &server);
    assert_eq!(answered(&output), "", "{}", stderr(&output));
    let mut expected = [format!("blobs/{digest}"), "refs/main".into(), format!("snapshots/{COMMIT}/tiny.gguf")];
    expected.sort();
    assert_eq!(files_below(&repo(&sandbox)), expected);
    let read = |name: &str| std::fs::read(repo(&sandbox).join(name)).unwrap();
    assert_eq!(read(&format!("snapshots/{COMMIT}/tiny.gguf")), *bytes);
    assert_eq!(read("refs/main"), COMMIT.as_bytes());
    let asked = server.seen().len();
    let again = sandbox.qchat().args(["run", ADDRESS, "hi", "--max-tokens", "4", "--no-stdin"]).output().unwrap();
    assert_eq!((answered(&again).len(), stderr(&again).as_str()), (5, ""));
    answered(&pull(&sandbox, &server));
    assert_eq!(server.seen().len(), asked, "what is here is not asked for");
}

#[test]
fn a_run_fetches_what_is_missing_and_then_answers() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let server = Server::start(move |request| described(ranged(request, &bytes), &bytes));
    let output = online(&sandbox, &server).args(["run", ADDRESS, "hi", "--max-tokens", "4", "--no-stdin"]).output();
    let output = output.unwrap();
    assert_eq!(answered(&output).len(), 5, "{}", stderr(&output));
    assert!(!stderr(&output).contains('\x1b'), "no progress bar in a pipe: {}", stderr(&output));
}

#[test]
fn refusals_are_explained() {
    for (status, says) in [(404, "no such file"), (401, "HF_TOKEN"), (403, "terms"), (429, "wait"), (500, "500")] {
        let sandbox = Sandbox::new();
        let server = Server::start(move |_| Reply::body(status, b"<html>no</html>"));
        let line = pull_refused(&pull(&sandbox, &server));
        assert!(line.contains(says), "{line}");
        holds_nothing(&sandbox);
    }
    // A server that is not there, and one that sends in circles.
    let sandbox = Sandbox::new();
    let nobody = sandbox
        .qchat()
        .env_remove("HF_HUB_OFFLINE")
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .args(["pull", ADDRESS])
        .output();
    assert!(pull_refused(&nobody.unwrap()).contains("127.0.0.1:9"));
    let server = Server::start(|_| Reply::body(302, b"round and round").with("location", FILE));
    pull_refused(&pull(&sandbox, &server));
    holds_nothing(&sandbox);
}

#[test]
fn bytes_with_another_digest_are_not_kept() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let server = Server::start(move |request| described(ranged(request, &other), &bytes));
    assert!(pull_refused(&pull(&sandbox, &server)).contains("sha256"));
    assert_eq!(files_below(&repo(&sandbox)), [] as [&str; 0]);
    holds_nothing(&sandbox);
}

/// A hub with a content host that is cut (or stalls) after `first` bytes of its first transfer.
fn faulty(
    bytes: &Arc<Vec<u8>>,
    fault: impl Fn(Reply) -> Reply + Send + Sync + 'static,
    ranges: bool,
    direct: bool,
) -> Server {
    let (whole, transfers) = (Arc::clone(bytes), AtomicUsize::new(0));
    Server::start(move |request| {
        let answer = |request: &Request| {
            let reply = if ranges { ranged(request, &whole) } else { Reply::body(200, &whole) };
            // One byte is asked for what the hub says of the file.
            if request.to() == Some(0) {
                return reply;
            }
            if transfers.fetch_add(1, Ordering::SeqCst) == 0 { fault(reply) } else { reply }
        };
        match request.path.as_str() {
            FILE if direct => described(answer(request), &whole),
            FILE => described(Reply::new(302).with("location", "/content"), &whole),
            _ => answer(request),
        }
    })
}

#[test]
fn a_transfer_that_was_cut_goes_on_where_it_stopped() {
    let bytes = Arc::new(model());
    let half = bytes.len() / 2;
    let digest = sha256(&bytes);
    let unfinished = format!("blobs/{digest}.qchat-incomplete");
    // Ranges or not, behind a redirect or not.
    for (ranges, direct) in [(true, false), (true, true), (false, false)] {
        let sandbox = Sandbox::new();
        let server = faulty(&bytes, move |reply| Reply { cut: Some(half), ..reply }, ranges, direct);
        let output = pull(&sandbox, &server);
        answered(&output);
        assert!(stderr(&output).contains("going on at"), "{}", stderr(&output));
        let asked = server.seen().last().unwrap().from().unwrap();
        assert!(asked > 0 && asked <= half, "{asked}, ranges {ranges}, direct {direct}");
        assert_eq!(std::fs::read(repo(&sandbox).join("blobs").join(&digest)).unwrap(), *bytes);
        assert!(!repo(&sandbox).join(&unfinished).exists());
    }
}

#[test]
fn ctrl_c_stops_a_transfer_that_stalls() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let half = bytes.len() / 2;
    let server = faulty(&bytes, move |reply| Reply { stall: Some(half), ..reply }, true, false);
    let unfinished = repo(&sandbox).join(format!("blobs/{}.qchat-incomplete", sha256(&bytes)));
    let child = piped(online(&sandbox, &server).args(["pull", ADDRESS]));
    until("half a file", || unfinished.metadata().is_ok_and(|meta| meta.len() as usize == half));
    interrupt(&child);
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{:?} {}", output.status, stderr(&output));
    holds_nothing(&sandbox);
    // What was here is not asked for again.
    answered(&pull(&sandbox, &server));
    assert_eq!(server.seen().last().unwrap().from(), Some(half));
}

#[test]
fn ctrl_c_stops_waiting_for_a_hub_that_says_nothing() {
    let sandbox = Sandbox::new();
    let server = Server::start(|_| {
        std::thread::sleep(std::time::Duration::from_secs(120));
        Reply::new(404)
    });
    let child = piped(online(&sandbox, &server).args(["pull", ADDRESS]));
    until("a request", || !server.seen().is_empty());
    interrupt(&child);
    assert_eq!(ended(child).status.code(), Some(130));
    holds_nothing(&sandbox);
}

#[test]
fn a_token_goes_to_the_hub_and_to_nobody_else() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let whole = Arc::clone(&bytes);
    let content = Server::start(move |request| ranged(request, &whole));
    let (whole, url) = (Arc::clone(&bytes), content.url());
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => described(Reply::new(302).with("location", "/moved"), &whole),
        _ => Reply::new(302).with("location", format!("{url}/signed")),
    });
    let output = online(&sandbox, &server).env("HF_TOKEN", " hf_secret\n").args(["pull", ADDRESS]).output().unwrap();
    answered(&output);
    let tokens = |server: &Server| -> Vec<Option<String>> {
        server.seen().iter().map(|request| request.header("authorization").map(str::to_owned)).collect()
    };
    assert_eq!(tokens(&server), vec![Some("Bearer hf_secret".to_owned()); 3]);
    assert_eq!(tokens(&content), [None]);
    assert!(!stderr(&output).contains("hf_secret"));
}

#[test]
fn a_quantisation_is_found_in_the_list_of_files() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let digest = sha256(&bytes);
    let list = r#"{"siblings": [{"rfilename": "README.md"}, {"rfilename": "tiny-Q4_K_M.gguf"},
        {"rfilename": "tiny-Q8_0.gguf"}, {"rfilename": "mmproj-Q8_0.gguf"}]}"#;
    let server = Server::start(move |request| match request.path.as_str() {
        "/api/models/owner/repo" => Reply::body(200, list.as_bytes()),
        "/owner/repo/resolve/main/tiny-Q8_0.gguf" => described(ranged(request, &bytes), &bytes),
        _ => Reply::new(404),
    });
    let ask = |command: &mut Command, model: &str| {
        command.args(["run", model, "hi", "--max-tokens", "4", "--no-stdin"]).output().unwrap()
    };
    assert_eq!(answered(&ask(&mut online(&sandbox, &server), "hf:owner/repo:Q8_0")).len(), 5);
    assert!(repo(&sandbox).join("blobs").join(&digest).exists());
    assert_eq!(answered(&ask(&mut sandbox.qchat(), "hf:owner/repo:Q8_0")).len(), 5, "found again without a network");
    assert_eq!(answered(&ask(&mut sandbox.qchat(), "hf:owner/repo/tiny-Q8_0.gguf")).len(), 5);
    let line = pull_refused(&online(&sandbox, &server).args(["pull", "hf:owner/repo:Q5_K_M"]).output().unwrap());
    assert!(line.contains("no files for Q5_K_M") && line.contains("tiny-Q4_K_M.gguf"), "{line}");
    // The default quantisation is asked for, and its file is not what is here.
    assert!(pull_refused(&online(&sandbox, &server).args(["pull", "hf:owner/repo"]).output().unwrap()).contains("404"));
}
