//! What a hub can say that must not be believed or must be explained: names, lists, sizes, places, refusals.

use std::net::TcpListener;
use std::sync::Arc;

use super::download_faults::{CONTENT, froms, redirect, right, whole};
use super::downloads::{ADDRESS, COMMIT, FILE, files_below, model, online, pull, pull_refused, repo, sha256};
use super::outcome::{answered, refused};
use super::server::{Reply, Server};
use crate::common::{Sandbox, stderr};

const LIST: &str = "/api/models/owner/repo";
const QUANT: &str = "hf:owner/repo:Q8_0";

/// A hub with this list of files, which has any file that it is asked for.
fn listing(list: impl Into<Vec<u8>>) -> Server {
    let (list, bytes) = (list.into(), Arc::new(model()));
    Server::start(move |request| match request.path.as_str() {
        LIST => Reply::body(200, &list),
        _ => described(right(request, &bytes, "\"one\""), &bytes),
    })
}

fn described(reply: Reply, bytes: &[u8]) -> Reply {
    super::downloads::described(reply, bytes)
}

fn named(names: &[&str]) -> String {
    let siblings: Vec<_> = names.iter().map(|name| serde_json::json!({ "rfilename": name })).collect();
    serde_json::json!({ "siblings": siblings }).to_string()
}

#[test]
fn refusals_say_where_to_ask() {
    for (status, says) in [(401, "accept its terms at"), (403, "accept its terms at"), (404, "its files are at")] {
        // By the hub, and by the host that it sends to.
        for direct in [true, false] {
            let sandbox = Sandbox::new();
            let server = Server::start(move |request| match request.path.as_str() {
                FILE if !direct => redirect(1_000_000, &sha256(b"")),
                _ => Reply::body(status, b"{\"error\": \"gated \x1b[31m\"}"),
            });
            let output = pull(&sandbox, &server);
            let line = pull_refused(&output);
            assert!(line.contains(&format!("{says} {}/owner/repo", server.url())), "{line}");
            assert!(line.contains(&format!("({status})")) && !line.contains('\x1b'), "{line}");
            assert_eq!(stderr(&output).lines().count(), if direct { 1 } else { 2 }, "{}", stderr(&output));
        }
    }
}

#[test]
fn a_token_does_not_go_to_a_host_that_begins_like_the_hub() {
    let bytes = Arc::new(model());
    let whole_file = Arc::clone(&bytes);
    // A port whose digits begin with the hub's.
    let (own, other) = (2000..6500)
        .find_map(|port| {
            let bind = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
            Some((bind(port)?, bind(port * 10 + 1)?))
        })
        .unwrap();
    let other = Server::on(other, move |request| described(right(request, &whole_file, "\"one\""), &whole_file));
    let stranger = other.url();
    let server = Server::on(own, move |_| Reply::new(302).with("location", format!("{stranger}{FILE}")));
    assert!(other.url().starts_with(&server.url()));
    let sandbox = Sandbox::new();
    let output = online(&sandbox, &server).env("HF_TOKEN", "hf_secret").args(["pull", ADDRESS]).output().unwrap();
    let tokens = |server: &Server| server.seen().iter().map(|own| own.header("authorization").is_some()).collect();
    let (own, strange): (Vec<bool>, Vec<bool>) = (tokens(&server), tokens(&other));
    assert!(own.len() > 1 && own.iter().all(|told| *told), "{own:?} {}", stderr(&output));
    assert!(!strange.is_empty() && !strange.contains(&true), "{strange:?} {}", stderr(&output));
    // A name and a password that look like the hub's address.
    let stranger = format!("{}@127.0.0.1:{}", server.url(), other.port());
    let server = Server::start(move |_| Reply::new(302).with("location", format!("{stranger}{FILE}")));
    let before = other.seen().len();
    let command = &mut online(&Sandbox::new(), &server);
    command.env("HF_TOKEN", "hf_secret").args(["pull", ADDRESS]).output().unwrap();
    assert!(
        other.seen()[before..]
            .iter()
            .all(|own| { own.header("authorization").is_none_or(|told| !told.contains("hf_secret")) })
    );
}

#[test]
fn a_place_that_only_begins_like_the_hub_does_not_describe_a_file() {
    let bytes = Arc::new(model());
    let (own, other) = (2000..6500)
        .find_map(|port| {
            let bind = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
            Some((bind(port)?, bind(port * 10 + 2)?))
        })
        .unwrap();
    let sent = Arc::clone(&bytes);
    let other = Server::on(other, move |request| {
        right(request, &sent, "\"one\"").with("x-repo-commit", "a".repeat(40)).with("x-linked-etag", "b".repeat(64))
    });
    let stranger = other.url();
    let server = Server::on(own, move |_| Reply::new(302).with("location", format!("{stranger}/x")));
    let sandbox = Sandbox::new();
    answered(&pull(&sandbox, &server));
    assert!(!repo(&sandbox).join("snapshots").join("a".repeat(40)).exists());
}

#[test]
fn names_that_lead_elsewhere_are_not_taken() {
    let names = [
        "../x-Q8_0.gguf",
        "../../../../x-Q8_0.gguf",
        "a/../../x-Q8_0.gguf",
        "/tmp/x-Q8_0.gguf",
        "a//x-Q8_0.gguf",
        "./x-Q8_0.gguf",
        ".x-Q8_0.gguf",
        "..\\x-Q8_0.gguf",
        "C:\\x-Q8_0.gguf",
        "x\n-Q8_0.gguf",
        "x\u{0}-Q8_0.gguf",
        "x\u{1b}]52;c;aGk=\u{7}-Q8_0.gguf",
        "x\u{9b}2J-Q8_0.gguf",
    ];
    for name in names {
        let sandbox = Sandbox::new();
        let server = listing(named(&[name, "README.md"]));
        let output = online(&sandbox, &server).args(["pull", QUANT]).output().unwrap();
        let line = refused(&output, 3);
        assert!(line.contains("no files for Q8_0"), "{name:?}: {line}");
        assert!(!line.contains(['\u{7}', '\u{9b}', '\u{0}']), "{line:?}");
        assert_eq!(files_below(sandbox.home.path()), [] as [&str; 0], "{name:?}");
        // One that can be taken is taken in spite of it.
        let server = listing(named(&[name, "x-Q8_0.gguf"]));
        answered(&online(&sandbox, &server).args(["pull", QUANT]).output().unwrap());
        let links = files_below(&repo(&sandbox).join("snapshots"));
        assert_eq!(links, [format!("{COMMIT}/x-Q8_0.gguf")], "{name:?}");
    }
}

#[test]
fn names_that_mean_something_in_an_address_are_written_so_that_they_do_not() {
    let name = "a b/tiny 100%#1?x=ä-Q8_0.gguf";
    let sandbox = Sandbox::new();
    let server = listing(named(&[name]));
    let output = online(&sandbox, &server).args(["pull", QUANT]).output().unwrap();
    answered(&output);
    assert_eq!(files_below(&repo(&sandbox).join("snapshots")), [format!("{COMMIT}/{name}")]);
    let asked = server.seen().last().unwrap().path.clone();
    assert_eq!(asked, "/owner/repo/resolve/main/a%20b/tiny%20100%25%231%3Fx%3D%C3%A4-Q8_0.gguf");
    // Found again without a network.
    answered(&sandbox.qchat().args(["run", QUANT, "hi", "--max-tokens", "4", "--no-stdin"]).output().unwrap());
}

#[test]
fn lists_that_are_no_lists_are_refused_in_a_line() {
    let deep = format!("{{\"siblings\": {}", "[".repeat(200_000));
    let long = named(&[&"x".repeat(20 << 20)]);
    let many = |name: &str| named(&vec![name; 200_000]);
    let cases = [
        (String::new(), "cannot be read"),
        ("<html>\nno\x1b[31m</html>".to_owned(), "cannot be read"),
        ("{\"siblings\": 7}".to_owned(), "cannot be read"),
        ("{\"siblings\": [{\"rfilename\": null}]}".to_owned(), "cannot be read"),
        (deep, "cannot be read"),
        (long, "cannot be read"),
        (many("x-Q4_0.gguf"), "no files for Q8_0"),
        (many("x-Q8_0.gguf"), "several files"),
        (named(&["\u{1b}]0;x\u{7}\n.gguf"; 20]), "no files"),
        (named(&[]), "no files"),
        (named(&["x-Q8_0-00001-of-99999999999999999999.gguf", "y-Q8_0.gguf"]), "several files"),
        (named(&["x-Q8_0-00001-of-00002.gguf"]), "several files"),
    ];
    for (list, says) in cases {
        let sandbox = Sandbox::new();
        let server = listing(list);
        let line = refused(&online(&sandbox, &server).args(["pull", QUANT]).output().unwrap(), 3);
        assert!(line.contains(says) && line.len() < 2000, "{says}: {line:.2000}");
        assert_eq!(server.seen().len(), 1, "{line}");
    }
}

#[test]
fn commits_and_digests_that_lead_elsewhere_are_not_believed() {
    let bytes = Arc::new(model());
    for strange in ["../../../x", "/tmp/x", "", "main\\..", &"../".repeat(21), "ä"] {
        let (sandbox, sent, strange) = (Sandbox::new(), Arc::clone(&bytes), strange.to_owned());
        let server = Server::start(move |request| {
            let reply = right(request, &sent, "\"one\"").with("x-repo-commit", strange.clone());
            reply.with("x-linked-etag", format!("\"{strange}\"")).with("x-linked-size", strange.clone())
        });
        answered(&pull(&sandbox, &server));
        let mut files = files_below(&repo(&sandbox));
        files.retain(|file| !file.starts_with("blobs/"));
        // No commit is known, so nothing says what main is.
        assert_eq!(files, ["snapshots/main/tiny.gguf"]);
        let top: Vec<_> = files_below(sandbox.home.path());
        assert!(top.iter().all(|file| file.starts_with("hub/") || file.starts_with("qchat/")), "{top:?}");
    }
}

#[test]
fn room_is_made_sure_of_for_all_shards_before_a_byte_comes() {
    let shards = ["x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf"];
    // Together too much: also where the sum does not fit a number, and where each alone would fit.
    let free = |sandbox: &Sandbox| fs4::available_space(sandbox.home.path()).unwrap();
    for sizes in [[u64::MAX, 2], [2, u64::MAX], [1 << 62, 1 << 62], [0, 0]] {
        let sandbox = Sandbox::new();
        let half = free(&sandbox) / 10 * 6;
        let sizes = if sizes == [0, 0] { [half, half] } else { sizes };
        let server = Server::start(move |request| match request.path.as_str() {
            LIST => Reply::body(200, named(&shards).as_bytes()),
            CONTENT => Reply::body(200, b"GGUF"),
            path => redirect(sizes[usize::from(path.ends_with(shards[1]))] as usize, &sha256(path.as_bytes())),
        });
        let output = online(&sandbox, &server).args(["pull", QUANT]).output().unwrap();
        let line = refused(&output, 3);
        assert!(line.contains("no room") && line.contains("GB are needed"), "{line}");
        assert_eq!(froms(&server), [] as [Option<usize>; 0]);
    }
}

#[test]
fn an_answer_that_says_nothing_of_the_file_still_brings_it() {
    let bytes = Arc::new(model());
    let (sandbox, sent) = (Sandbox::new(), Arc::clone(&bytes));
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => Reply { headers: Vec::new(), ..right(request, &sent, "") }.with("x-repo-commit", COMMIT),
        _ => Reply::new(404),
    });
    let output = pull(&sandbox, &server);
    answered(&output);
    whole(&sandbox, &bytes);
}
