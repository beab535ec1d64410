//! Downloads among processes: many at once, killed ones, interrupted ones; and servers that answer anything.

use std::fs::File;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::download_faults::{CONTENT, TAG, froms, hub, padded, redirect, right, whole};
use super::downloads::{ADDRESS, FILE, files_below, model, online, repo, sha256};
use super::outcome::{PATIENCE, answered, ended, interrupt, piped, until};
use super::server::{Reply, Server};
use crate::common::{Sandbox, stderr};

const WAITING: &str = "another process is fetching tiny.gguf; waiting for it";

#[test]
fn of_processes_at_once_one_transfers() {
    const PROCESSES: usize = 8;
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let (whole_file, digest, described) = (Arc::clone(&bytes), sha256(&bytes), AtomicUsize::new(0));
    let described = Arc::new(described);
    let server = Server::start(move |request| match request.path.as_str() {
        FILE => {
            described.fetch_add(1, Ordering::SeqCst);
            redirect(whole_file.len(), &digest)
        }
        CONTENT => {
            // Not before all have asked what there is: once each, and the one that transfers once more.
            until("all processes", || described.load(Ordering::SeqCst) > PROCESSES);
            Reply { rate: Some(1_000_000), ..right(request, &whole_file, TAG) }
        }
        _ => Reply::new(404),
    });
    let children: Vec<Child> =
        (0..PROCESSES).map(|_| piped(online(&sandbox, &server).args(["pull", ADDRESS]))).collect();
    let said: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = ended(child);
            answered(&output);
            stderr(&output)
        })
        .collect();
    assert_eq!((froms(&server), server.sent()), (vec![None], bytes.len()), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.matches(WAITING).count() == 1).count(), PROCESSES - 1, "{said:?}");
    assert!(said.iter().all(|said| said.lines().count() == 2), "{said:?}");
    whole(&sandbox, &bytes);
}

/// A pull whose stderr can be read while it runs.
fn watched(sandbox: &Sandbox, server: &Server, name: &str) -> Child {
    let log = File::create(sandbox.path(name)).unwrap();
    online(sandbox, server).args(["pull", ADDRESS]).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

#[test]
fn who_waits_goes_on_after_a_kill_and_stops_at_ctrl_c() {
    let sandbox = Sandbox::new();
    let bytes = Arc::new(model());
    let half = bytes.len() / 2;
    let server = hub(&bytes, move |_, right, number| match number {
        0 => Reply { stall: Some(half), ..right },
        _ => right,
    });
    let log = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
    let unfinished = repo(&sandbox).join(format!("blobs/{}.qchat-incomplete", sha256(&bytes)));
    let mut first = watched(&sandbox, &server, "first");
    until("half a file", || unfinished.metadata().is_ok_and(|meta| meta.len() as usize == half));
    let (second, third) = (watched(&sandbox, &server, "second"), watched(&sandbox, &server, "third"));
    until("both to wait", || log("second").contains(WAITING) && log("third").contains(WAITING));
    interrupt(&third);
    assert_eq!(ended(third).status.code(), Some(130), "{}", log("third"));
    assert_eq!(log("third").lines().count(), 1, "{}", log("third"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(ended(second).status.code(), Some(0), "{}", log("second"));
    assert_eq!(froms(&server), [None, Some(half)]);
    whole(&sandbox, &bytes);
}

#[test]
fn fifty_kills_lose_nothing() {
    const KILLS: usize = 50;
    let sandbox = Sandbox::new();
    let bytes = padded(24 << 20);
    // The last bytes do not come before the last kill, however late that is.
    let (last, killing) = (bytes.len() - (1 << 20), Arc::new(AtomicBool::new(true)));
    let held = Arc::clone(&killing);
    let server = hub(&bytes, move |_, right, _| {
        let from = right.part.as_ref().map_or(0, |(_, range)| range.start);
        let stall = held.load(Ordering::SeqCst).then(|| last.saturating_sub(from));
        Reply { stall, rate: Some(48 << 20), ..right }
    });
    let unfinished = repo(&sandbox).join(format!("blobs/{}.qchat-incomplete", sha256(&bytes)));
    let there = || unfinished.metadata().map_or(0, |meta| meta.len() as usize);
    let mut random = Random(7);
    for kills in 0..KILLS {
        let before = there();
        let asked = froms(&server).len();
        let until_bytes = before + random.below(2 * (last - before) / (KILLS + 1 - kills));
        let mut child = online(&sandbox, &server)
            .args(["pull", ADDRESS])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while there() < until_bytes || froms(&server).len() == asked {
            assert!(began.elapsed() < PATIENCE, "{kills} kills, {before}, {until_bytes}");
            assert!(child.try_wait().unwrap().is_none(), "an end before kill {kills}");
            std::thread::sleep(Duration::from_micros(300));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // It goes on where it was, never before, and nothing of that goes.
        assert!(there() >= before, "{} after {before}, kill {kills}", there());
        assert_eq!(froms(&server)[asked], Some(before).filter(|from| *from > 0), "kill {kills}");
    }
    let went_on = froms(&server).iter().flatten().filter(|from| **from > 0).count();
    assert!(went_on > KILLS * 8 / 10, "{:?}", froms(&server));
    killing.store(false, Ordering::SeqCst);
    answered(&online(&sandbox, &server).args(["pull", ADDRESS]).output().unwrap());
    whole(&sandbox, &bytes);
    let left = files_below(sandbox.home.path());
    assert!(!left.iter().any(|name| name.contains(".qchat-")), "{left:?}");
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// An answer of which each part may be anything; of the hub's own the digest stays, or nothing could be told right.
fn anything(random: &mut Random, mut reply: Reply, bytes: &Arc<Vec<u8>>) -> Reply {
    let length = bytes.len();
    let parts = if reply.part.is_some() { 10 } else { 7 };
    for _ in 0..random.below(4) {
        match random.below(parts) {
            0 => reply.status = random.of(&[100, 200, 204, 206, 301, 304, 307, 400, 403, 404, 410, 416, 429, 500, 503]),
            1 => reply.headers.retain(|(name, _)| *name != "content-range"),
            2 => {
                let range = random.of(&["bytes 0-", "bytes 5-9/10", "bytes */7", "", "bytes 99999999999999999999-0/1"]);
                reply = reply.with("content-range", range);
            }
            3 => {
                reply.headers.retain(|(name, _)| *name != "etag");
                reply = reply.with("etag", random.of(&["\"two\"", "W/\"one\"", "", "\u{e4}", "\"one\", \"two\""]));
            }
            4 => reply.cut = Some(random.below(length)),
            5 => (reply.cut, reply.reset) = (Some(random.below(length)), true),
            6 => reply.stall = Some(random.below(length)),
            7 => {
                let mut other = (**bytes).clone();
                other[random.below(length)] ^= 1;
                reply.part = Some((Arc::new(other), random.below(length)..length));
            }
            8 => reply = reply.with("location", random.of(&["", "/content", "//x", "http://127.0.0.1:9/", "\u{1}"])),
            _ => {
                let raw = [&b""[..], b"HTTP/1.1", b"HTTP/1.1 200 OK\r\nx", b"HTTP/9 x\r\n\r\n", b"\0\xff\r\n\r\n"];
                let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nx";
                let lying = b"HTTP/1.1 206 X\r\ncontent-length: 99999999999\r\ncontent-range: bytes 0-0/1\r\n\r\nGGUF";
                reply.raw = Some(random.of(&[raw.as_slice(), &[chunked, lying]].concat()).to_vec());
            }
        }
    }
    reply
}

#[test]
fn whatever_a_server_answers_no_file_is_wrong() {
    let bytes = Arc::new(model());
    let digest = sha256(&bytes);
    let ends = Mutex::new([0; 2]);
    let run = |seed: u64| {
        let sandbox = Sandbox::new();
        let (file, name) = (Arc::clone(&bytes), digest.clone());
        let state = Mutex::new((Random(seed), 0));
        let server = Server::start(move |request| {
            let (random, count) = &mut *state.lock().unwrap();
            *count += 1;
            // After a few strange answers only right ones, or it would take long.
            let strange = *count < 4;
            match request.path.as_str() {
                FILE if strange => anything(random, redirect(file.len(), &name), &file),
                CONTENT if strange => anything(random, right(request, &file, TAG), &file),
                CONTENT => right(request, &file, TAG),
                FILE => redirect(file.len(), &name),
                _ => Reply::new(404),
            }
        });
        let mut command = online(&sandbox, &server);
        let output = ended(piped(command.env("HF_HUB_DOWNLOAD_TIMEOUT", "0.3").args(["pull", ADDRESS])));
        let said = stderr(&output);
        assert!(matches!(output.status.code(), Some(0 | 3)), "seed {seed}: {:?} {said}", output.status);
        assert!(!said.contains("panicked") && !said.contains(['\x1b', '\u{1}']), "seed {seed}: {said}");
        assert!(said.lines().last().unwrap().starts_with("qchat: ") == (output.status.code() == Some(3)), "{said}");
        for link in files_below(&repo(&sandbox).join("snapshots")) {
            let read = std::fs::read(repo(&sandbox).join("snapshots").join(link)).unwrap();
            assert!(read == *bytes, "seed {seed}: {said}");
        }
        if output.status.success() {
            whole(&sandbox, &bytes);
        }
        ends.lock().unwrap()[usize::from(output.status.success())] += 1;
    };
    let run = &run;
    // Most of the time is waiting.
    std::thread::scope(|scope| {
        for first in 0..16 {
            scope.spawn(move || (0..4).for_each(|round| run(1 + first * 4 + round)));
        }
    });
    let [failed, succeeded] = ends.into_inner().unwrap();
    assert!(failed > 3 && succeeded > 20, "{failed} {succeeded}");
}
