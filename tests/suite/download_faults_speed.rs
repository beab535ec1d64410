//! Several ranges at once: faster where a server throttles each connection, not slower where it does not, and in little
//! memory.

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::download_faults::{hub, padded, whole};
use super::downloads::{ADDRESS, online};
use super::outcome::{answered, piped, until};
use super::server::{Reply, Server};
use crate::common::Sandbox;

fn start(sandbox: &Sandbox, server: &Server) -> Child {
    piped(online(sandbox, server).args(["pull", ADDRESS]))
}

/// A pull to its end: seconds.
fn timed(server: &Server, bytes: &[u8]) -> f64 {
    let sandbox = Sandbox::new();
    let began = Instant::now();
    answered(&start(&sandbox, server).wait_with_output().unwrap());
    let took = began.elapsed().as_secs_f64();
    whole(&sandbox, bytes);
    took
}

/// The most memory that a process has had, in MB.
#[cfg(target_os = "linux")]
fn peak(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0)
}

#[cfg(target_os = "linux")]
#[test]
fn a_throttled_server_is_asked_for_several_ranges_and_memory_stays_small() {
    const RATE: usize = 24 << 20;
    let bytes = padded(128 << 20);
    let small = Arc::new(super::downloads::model());
    let sandbox = Sandbox::new();
    let stalled = hub(&small, |_, right, _| Reply { stall: Some(1000), ..right });
    let mut child = start(&sandbox, &stalled);
    until("a request", || !super::download_faults::froms(&stalled).is_empty());
    std::thread::sleep(Duration::from_millis(100));
    let base = peak(&child).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    let server = hub(&bytes, |_, right, _| Reply { rate: Some(RATE), ..right });
    let sandbox = Sandbox::new();
    let began = Instant::now();
    let mut child = start(&sandbox, &server);
    let mut most = 0.0;
    while child.try_wait().unwrap().is_none() {
        most = peak(&child).map_or(most, |now| now.max(most));
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed().as_secs_f64();
    answered(&child.wait_with_output().unwrap());
    whole(&sandbox, &bytes);
    let one = bytes.len() as f64 / RATE as f64;
    assert!(took < 0.75 * one, "{took:.2} s, where one connection takes {one:.2} s");
    assert!(most - base < 50.0 && base > 1.0, "{base:.1} MB, then {most:.1} MB");
}

#[test]
fn a_server_that_does_not_throttle_is_no_slower_for_it() {
    let bytes = padded(160 << 20);
    let several = hub(&bytes, |_, right, _| right);
    // A server without ranges is asked for everything at once.
    let one = hub(&bytes, |_, right, _| {
        let headers = right.headers.into_iter().filter(|(name, _)| *name != "accept-ranges").collect();
        Reply { headers, ..right }
    });
    // The best of a few, since the machine does other things too.
    let mut best = [f64::MAX; 2];
    for _ in 0..5 {
        best[0] = best[0].min(timed(&one, &bytes));
        best[1] = best[1].min(timed(&several, &bytes));
        if best[1] < 1.2 * best[0] {
            return;
        }
    }
    panic!("{best:?}");
}
