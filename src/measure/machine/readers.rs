//! Threads that read memory, each its own part, and how long they take.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

const PASSES: usize = 5;
/// A pass shorter than this would be mostly the waking of its threads.
const PASS: Duration = Duration::from_millis(20);
/// Places that a thread reads from in turn. 16 are no faster, and 32 slower.
const STREAMS: usize = 8;

/// What is read at a time: four cache lines, aligned so that no load straddles two.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Step([u64; 32]);

/// Threads that read their own part when told how many times.
pub(super) struct Readers {
    orders: Vec<Sender<u32>>,
    reports: Receiver<Result<(), String>>,
    bytes: usize,
}

impl Readers {
    /// Each with `part` bytes of its own.
    pub(super) fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, threads: usize, part: usize) -> Result<Self, String> {
        let steps = (part / size_of::<Step>()).max(STREAMS);
        let (report, reports) = channel();
        let mut readers = Self { orders: Vec::new(), reports, bytes: threads * steps * size_of::<Step>() };
        for _ in 0..threads {
            let (order, orders) = channel();
            let report = report.clone();
            let thread = thread::Builder::new().name("bandwidth".to_owned());
            let read = move || reader(steps, &orders, &report);
            thread.spawn_scoped(scope, read).map_err(|error| format!("no thread to measure with: {error}"))?;
            readers.orders.push(order);
        }
        readers.wait()?;
        Ok(readers)
    }

    /// The rates of the passes of `time`, and of no fewer than [`PASSES`].
    pub(super) fn rates(&self, time: Duration) -> Result<Vec<f64>, String> {
        let once = self.pass(1)?;
        let times = (PASS.as_secs_f64() / once.as_secs_f64().max(1e-9)).ceil().max(1.0) as u32;
        let bytes = self.bytes as f64 * f64::from(times);
        let began = Instant::now();
        let mut rates = Vec::new();
        while rates.len() < PASSES || began.elapsed() < time {
            rates.push(bytes / self.pass(times)?.as_secs_f64().max(1e-9));
        }
        Ok(rates)
    }

    fn pass(&self, times: u32) -> Result<Duration, String> {
        let began = Instant::now();
        for order in &self.orders {
            order.send(times).map_err(|_| STOPPED)?;
        }
        self.wait()?;
        Ok(began.elapsed())
    }

    fn wait(&self) -> Result<(), String> {
        self.orders.iter().try_for_each(|_| self.reports.recv().map_err(|_| STOPPED)?)
    }
}

const STOPPED: &str = "a thread that measures stopped";

/// Takes its part itself, so that its pages are near the core that reads them. An untouched page would not do: all of
/// them are one page of zeros.
fn reader(steps: usize, orders: &Receiver<u32>, report: &Sender<Result<(), String>>) {
    let mut part = Vec::new();
    let room = part.try_reserve_exact(steps).map_err(|error| format!("no memory to measure with: {error}"));
    if room.is_ok() {
        part.resize(steps, Step([1; 32]));
    }
    // Whoever asked may be gone: then there is nobody to tell.
    if report.send(room).is_err() {
        return;
    }
    for times in orders {
        for _ in 0..times {
            black_box(sum(black_box(&part)));
        }
        if report.send(Ok(())).is_err() {
            return;
        }
    }
}

/// Steps that do not go up in the streams are left out. The sum of a step becomes vector additions; lanes kept over all
/// of them became gathers.
fn sum(part: &[Step]) -> u64 {
    let each = part.len() / STREAMS;
    let places = (0..each).flat_map(|at| (0..STREAMS).map(move |stream| stream * each + at));
    let sums = places.map(|place| part[place].0.into_iter().fold(0, u64::wrapping_add));
    sums.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_counts_once() {
        let words = |step: u64| Step(std::array::from_fn(|word| step * 32 + word as u64));
        let part: Vec<Step> = (0..24).map(words).collect();
        assert_eq!(sum(&part), 767 * 768 / 2);
        assert_eq!(sum(&part[..23]), 511 * 512 / 2);
        assert_eq!((sum(&[Step([u64::MAX; 32]); 8]), sum(&[])), (256_u64.wrapping_neg(), 0));
    }

    #[test]
    fn readers_report_every_pass_and_end() {
        let rates = thread::scope(|scope| Readers::spawn(scope, 3, 4096)?.rates(Duration::ZERO)).unwrap();
        assert_eq!(rates.len(), PASSES);
        assert!(rates.iter().all(|&rate| rate.is_finite() && rate > 0.0));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_of_every_reader() {
        let refused = thread::scope(|scope| Readers::spawn(scope, 2, usize::MAX / 8).map(drop)).unwrap_err();
        assert!(refused.starts_with("no memory to measure with: "), "{refused}");
    }
}
