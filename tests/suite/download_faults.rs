//! What a hub can do wrong in the middle of a file: versions that change, pauses, resets, stalls, bodies without an end.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::downloads::{ADDRESS, COMMIT, FILE, files_below, model, online, pull, pull_refused, repo, sha256};
use super::outcome::answered;
use super::server::{Reply, Request, Server};
use crate::common::{Sandbox, stderr};

pub(super) const CONTENT: &str = "/content";
pub(super) const TAG: &str = "\"one\"";

/// A model with so many bytes behind it, which no reader asks for.
pub(super) fn padded(bytes: usize) -> Arc<Vec<u8>> {
    let mut whole = model();
    // A period that no range and no buffer has, so that bytes in a wrong place are other bytes.
    let filler: Vec<u8> = (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    while whole.len() < bytes {
        whole.extend(&filler[..filler.len().min(bytes - whole.len())]);
    }
    Arc::new(whole)
}

/// What a server that keeps to the standard answers for a file of this version.
pub(super) fn right(request: &Request, whole: &Arc<Vec<u8>>, tag: &str) -> Reply {
    let from = request.from().filter(|_| request.header("if-range").is_none_or(|own| own == tag));
    let reply = |status, range| Reply { part: Some((Arc::clone(whole), range)), ..Reply::new(status) };
    let reply = match from {
        None => reply(200, 0..whole.len()).with("accept-ranges", "bytes"),
        Some(from) if from >= whole.len() => Reply::new(416),
        Some(from) => {
            let end = request.to().map_or(whole.len(), |to| whole.len().min(to + 1));
            reply(206, from..end).with("content-range", format!("bytes {from}-{}/{}", end - 1, whole.len()))
        }
    };
    reply.with("etag", tag)
}

/// What the hub says of a file before it sends to its content.
pub(super) fn redirect(size: usize, digest: &str) -> Reply {
    let reply = Reply::new(302).with("location", CONTENT).with("x-repo-commit", COMMIT);
    reply.with("x-linked-size", size.to_string()).with("x-linked-etag", format!("\"{digest}\""))
}

/// A hub whose content host answers as `content` says: the request, the right answer, how many came before.
pub(super) fn hub(
    bytes: &Arc<Vec<u8>>,
    content: impl Fn(&Request, Reply, usize) -> Reply + Send + Sync + 'static,
) -> Server {
    let (whole, digest, count) = (Arc::clone(bytes), sha256(bytes), AtomicUsize::new(0));
    Server::start(move |request| match request.path.as_str() {
        FILE => redirect(whole.len(), &digest),
        CONTENT => content(request, right(request, &whole, TAG), count.fetch_add(1, Ordering::SeqCst)),
        _ => Reply::new(404),
    })
}

pub(super) fn froms(server: &Server) -> Vec<Option<usize>> {
    server.seen_at(CONTENT).iter().map(Request::from).collect()
}

/// The right file is there, and nothing unfinished.
pub(super) fn whole(sandbox: &Sandbox, bytes: &[u8]) {
    let digest = sha256(bytes);
    let blobs = files_below(&repo(sandbox).join("blobs"));
    assert_eq!(blobs, [digest.as_str()]);
    assert!(std::fs::read(repo(sandbox).join(format!("snapshots/{COMMIT}/tiny.gguf"))).unwrap() == *bytes);
}

/// Cases at once, since most of their time is waiting.
pub(super) fn all<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| run(case));
        }
    });
}

fn quick(sandbox: &Sandbox, server: &Server, silence: &str) -> Output {
    online(sandbox, server).env("HF_HUB_DOWNLOAD_TIMEOUT", silence).args(["pull", ADDRESS]).output().unwrap()
}

type Second = fn(&Request, &Arc<Vec<u8>>, Reply) -> Reply;
type Case<'a> = (&'a str, &'a str, Option<&'a str>, bool, Second, &'a [Option<usize>]);

#[test]
fn what_came_is_kept_only_where_the_rest_is_of_the_same_version() {
    let wrong_place: Second = |_, _, right| Reply { headers: Vec::new(), ..right };
    let bytes = Arc::new(model());
    let old = Arc::new(vec![7; bytes.len()]);
    let half = bytes.len() / 2;
    let (on, over) = ([None, Some(half)], [None, Some(half), None]);
    // The tag that comes first, the one that If-Range then names, whether the first half is an old version's, the second
    // answer, and the first bytes that are asked for.
    let cases: [Case; 11] = [
        ("the same tag", TAG, Some(TAG), false, |_, _, right| right, &on),
        ("a weak tag", "W/\"one\"", None, false, |_, _, right| right, &on),
        ("no tag", "", None, false, |_, _, right| right, &on),
        ("another tag", TAG, Some(TAG), true, |ask, all, _| part_of(ask, all).with("etag", "\"two\""), &over),
        ("a tag no more", TAG, Some(TAG), true, |ask, all, _| part_of(ask, all), &over),
        ("all of it", TAG, Some(TAG), true, |_, all, _| Reply::body(200, all).with("etag", "\"two\""), &on),
        ("all of it untagged", "", None, true, |_, all, _| Reply::body(200, all), &on),
        ("no place", "", None, true, wrong_place, &over),
        ("a wrong place", "", None, true, |_, all, _| placed(all, "bytes 1-9/10"), &over),
        ("no number", "", None, true, |_, all, _| placed(all, "bytes x-y/z"), &over),
        ("no such range", TAG, Some(TAG), true, |_, _, _| Reply::new(416), &over),
    ];
    all(&cases, |(name, tag, if_range, is_old, second, asked)| {
        let sandbox = Sandbox::new();
        let (whole_file, first, tag, second) =
            (Arc::clone(&bytes), Arc::clone(if *is_old { &old } else { &bytes }), (*tag).to_owned(), *second);
        let server = hub(&bytes, move |request, right, number| match number {
            0 => {
                let reply = Reply { cut: Some(half), ..Reply::body(200, &first) }.with("accept-ranges", "bytes");
                if tag.is_empty() { reply } else { reply.with("etag", tag.clone()) }
            }
            1 => second(request, &whole_file, right),
            _ => right,
        });
        let output = pull(&sandbox, &server);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        whole(&sandbox, &bytes);
        assert_eq!(froms(&server), **asked, "{name}");
        let sent = server.seen_at(CONTENT)[1].header("if-range").map(str::to_owned);
        assert_eq!(sent.as_deref(), *if_range, "{name}");
    });
}

fn to(place: &str) -> Reply {
    Reply::new(302).with("location", place)
}

fn part_of(request: &Request, whole: &[u8]) -> Reply {
    let from = request.from().unwrap();
    let range = format!("bytes {from}-{}/{}", whole.len() - 1, whole.len());
    Reply::body(206, &whole[from..]).with("content-range", range)
}

fn placed(whole: &[u8], range: &str) -> Reply {
    Reply::body(206, &whole[whole.len() / 2..]).with("content-range", range)
}

#[test]
fn versions_are_not_mixed_where_no_digest_is_known() {
    let (old, new) = (padded(90 << 20), Arc::new(padded(90 << 20).iter().map(|byte| !byte).collect::<Vec<_>>()));
    let new = Arc::new([&old[..1 << 20], &new[1 << 20..]].concat());
    let (first, later, count) = (Arc::clone(&old), Arc::clone(&new), AtomicUsize::new(0));
    // A server that knows no If-Range, and has another version after the first request.
    let server = Server::start(move |request| match (request.path.as_str(), request.from()) {
        (FILE, _) => redirect(first.len(), "unknown"),
        (CONTENT, from) if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            assert_eq!(from, None);
            right(request, &first, TAG)
        }
        (CONTENT, None) => right(request, &later, "\"two\""),
        (CONTENT, Some(from)) => {
            let end = request.to().map_or(later.len(), |to| later.len().min(to + 1));
            Reply { part: Some((Arc::clone(&later), from..end)), ..Reply::new(206) }
                .with("content-range", format!("bytes {from}-{}/{}", end - 1, later.len()))
                .with("etag", "\"two\"")
        }
        _ => Reply::new(404),
    });
    let sandbox = Sandbox::new();
    answered(&pull(&sandbox, &server));
    whole(&sandbox, &new);
}

#[test]
fn a_server_that_asks_for_patience_gets_it() {
    let bytes = Arc::new(model());
    // What is answered first, what is said of it, and the least seconds that pass.
    let cases: [(u16, Option<&str>, &str, f64); 7] = [
        (429, Some("1"), "answers 429; trying again in 1 s (1 of 4)", 1.0),
        (503, Some(" 2 "), "answers 503; trying again in 2 s (1 of 4)", 2.0),
        (429, Some("Fri, 31 Dec 2100 23:59:59 GMT"), "answers 429; trying again in 1 s", 0.5),
        (500, None, "answers 500", 0.5),
        (502, None, "answers 502", 0.5),
        (503, Some("-5"), "answers 503", 0.5),
        (504, None, "answers 504", 0.5),
    ];
    all(&cases, |(status, after, says, least)| {
        let sandbox = Sandbox::new();
        let (status, after) = (*status, after.map(str::to_owned));
        let server = hub(&bytes, move |_, right, number| match (number, &after) {
            (0, Some(after)) => Reply::new(status).with("retry-after", after.clone()),
            (0, None) => Reply::new(status),
            _ => right,
        });
        let began = Instant::now();
        let output = pull(&sandbox, &server);
        answered(&output);
        assert!(began.elapsed().as_secs_f64() > *least, "{says}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(froms(&server).len(), 2, "{says}");
        whole(&sandbox, &bytes);
    });
}

#[test]
fn what_does_not_get_better_is_given_up() {
    type Content = fn(&Request, Reply) -> Reply;
    let bytes = Arc::new(model());
    let cases: [(Content, usize, &str); 12] = [
        (|_, _| Reply::new(429).with("retry-after", "91"), 1, "too many requests (429)"),
        (|_, _| Reply::new(503).with("retry-after", "18446744073709551615"), 1, "answers 503"),
        (|_, _| Reply::new(501), 1, "answers 501"),
        (|_, _| Reply::new(503), 5, "answers 503"),
        (|_, right| Reply { cut: Some(0), ..right }, 5, "broke off"),
        (|_, _| Reply { raw: Some(b"SSH-2.0-x\r\n".to_vec()), ..Reply::default() }, 5, "does not answer"),
        // Each try starts over, and none comes further than the first.
        (
            |request, right| match request.from() {
                None => Reply { cut: Some(9000), ..right },
                Some(_) => placed(&[0; 10], "bytes 1-5/10"),
            },
            5,
            "broke off",
        ),
        // Places where nobody can go.
        (|_, _| to("file:///etc/passwd"), 5, "does not answer"),
        (|_, _| to("http://"), 5, "does not answer"),
        (|_, _| to("x y"), 5, "does not answer"),
        (|_, _| to("http://127.0.0.1:99999/"), 5, "does not answer"),
        (|_, _| to(CONTENT), 5 * 8, "from one place to the next"),
    ];
    all(&cases, |(content, requests, says)| {
        let sandbox = Sandbox::new();
        let content = *content;
        let server = hub(&bytes, move |request, right, _| content(request, right));
        let began = Instant::now();
        let line = pull_refused(&pull(&sandbox, &server));
        assert!(line.contains(says), "{line}");
        assert_eq!(froms(&server).len(), *requests, "{line}");
        assert!(*requests > 1 || began.elapsed() < Duration::from_secs(5), "{line}");
        assert!(!repo(&sandbox).join("snapshots").exists());
    });
}

#[test]
fn a_connection_that_is_reset_is_made_again() {
    let bytes = Arc::new(model());
    // Before a word, at the first byte, in between, before the last byte.
    let cases = [None, Some(0), Some(1), Some(4096), Some(bytes.len() / 2), Some(bytes.len() - 1)];
    all(&cases, |cut| {
        let sandbox = Sandbox::new();
        let cut = *cut;
        let server = hub(&bytes, move |_, right, number| match (number, cut) {
            (0, None) => Reply { raw: Some(Vec::new()), reset: true, ..right },
            (0, cut) => Reply { cut, reset: true, ..right },
            _ => right,
        });
        let output = pull(&sandbox, &server);
        answered(&output);
        assert!(stderr(&output).contains("going on at"), "{}", stderr(&output));
        // A reset may take what came last with it.
        assert!(froms(&server)[1].unwrap_or(0) <= cut.unwrap_or(0), "{cut:?} {:?}", froms(&server));
        assert_eq!(froms(&server).len(), 2);
        whole(&sandbox, &bytes);
    });
}

#[test]
fn a_transfer_that_stalls_is_taken_up_again() {
    let bytes = Arc::new(model());
    let half = bytes.len() / 2;
    // In the middle, and before the answer.
    all(&[true, false], |middle| {
        let sandbox = Sandbox::new();
        let middle = *middle;
        let server = hub(&bytes, move |_, right, number| match (number, middle) {
            (0, true) => Reply { stall: Some(half), ..right },
            (0, false) => {
                std::thread::sleep(Duration::from_secs(20));
                right
            }
            _ => right,
        });
        let began = Instant::now();
        let output = quick(&sandbox, &server, "0.5");
        answered(&output);
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(!middle || stderr(&output).contains("nothing came for 0.5 s"), "{}", stderr(&output));
        assert_eq!(froms(&server), [None, Some(half).filter(|_| middle)]);
        whole(&sandbox, &bytes);
    });
}

#[test]
fn ranges_that_are_only_slow_are_waited_for() {
    let sandbox = Sandbox::new();
    let bytes = padded(80 << 20);
    // A range of 4 MiB takes 1.5 s, which is long against the limit on silence.
    let server = hub(&bytes, |request, right, _| Reply { rate: request.to().map(|_| 2_800_000), ..right });
    let output = quick(&sandbox, &server, "0.3");
    answered(&output);
    assert!(!stderr(&output).contains("going on at"), "{}", stderr(&output));
    whole(&sandbox, &bytes);
}

#[test]
fn a_server_that_sends_no_ranges_at_once_sends_all_in_one() {
    type Ranged = fn(Reply) -> Reply;
    let bytes = padded(80 << 20);
    let length = bytes.len();
    let cases: [Ranged; 4] = [
        |right| Reply { stall: Some(1000), ..right },
        |right| Reply { cut: Some(1000), ..right },
        |_| Reply::new(429),
        |right| Reply { status: 200, ..right },
    ];
    all(&cases, |fault| {
        let sandbox = Sandbox::new();
        let fault = *fault;
        let server = hub(&bytes, move |request, right, _| if request.to().is_some() { fault(right) } else { right });
        let output = quick(&sandbox, &server, "0.5");
        answered(&output);
        assert_eq!(stderr(&output).matches("going on at").count(), 1, "{}", stderr(&output));
        whole(&sandbox, &bytes);
        assert!(froms(&server).iter().flatten().all(|from| *from >= length / 4), "{:?}", froms(&server));
    });
}

#[test]
fn a_body_without_an_end_is_cut_at_the_size_that_is_known() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let server = hub(&bytes, |_, right, _| Reply { endless: true, ..right });
    let line = pull_refused(&pull(&sandbox, &server));
    assert!(line.contains("bytes instead of"), "{line}");
    assert_eq!(files_below(&repo(&sandbox)), [] as [&str; 0]);
}

#[test]
fn a_file_whose_digest_is_right_but_whose_size_was_lost_is_fetched_again() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let server = hub(&bytes, |_, right, _| right);
    answered(&pull(&sandbox, &server));
    // A disk that was full, or a power cut.
    let blob = repo(&sandbox).join("blobs").join(sha256(&bytes));
    std::fs::File::options().write(true).open(&blob).unwrap().set_len(1000).unwrap();
    std::fs::remove_dir_all(repo(&sandbox).join("snapshots")).unwrap();
    answered(&pull(&sandbox, &server));
    whole(&sandbox, &bytes);
}
