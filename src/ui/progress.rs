//! Bars and spinners, on stderr and only when it is a terminal.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::clean;
use super::hush::Hush;
use super::output::Terminal;
use crate::models::fetch::Progress;
use crate::words::size;

/// A load or a wait that deserves a line when it lasts; the line goes when this is dropped.
pub struct Waiting {
    shared: Arc<(Mutex<Course>, Condvar)>,
    /// A ^C on the row of the bar would break it.
    hush: Option<Hush>,
    /// Draws, also while nothing is reported: one step of a long prompt takes seconds. None where nobody looks.
    drawing: Option<JoinHandle<()>>,
}

/// How far something is.
struct Course {
    message: String,
    began: Instant,
    /// 0 to 1, and when that was reported.
    done: f64,
    at: Instant,
    /// Of the whole, a second; 0 where nothing is known.
    rate: f64,
    over: bool,
}

/// What lasts less than this is not worth a line.
const PATIENCE: Duration = Duration::from_millis(500);
/// Columns of what stands beside the message and the time that is left.
const BESIDE: usize = "  100%".len();
/// Between two drawings.
const STEP: Duration = Duration::from_millis(100);

impl Waiting {
    pub fn new(terminal: &Terminal, message: &str) -> Self {
        let now = Instant::now();
        let message = clean::line(message);
        let course = Course { message, began: now, done: 0.0, at: now, rate: 0.0, over: false };
        let shared = Arc::new((Mutex::new(course), Condvar::new()));
        let own = Arc::clone(&shared);
        let drawing = terminal.draws_progress().then(|| std::thread::spawn(move || draw(&own)));
        Self { shared, hush: drawing.as_ref().map(|_| Hush::begin()), drawing }
    }

    /// How long the whole is expected to take.
    pub fn expect(&self, time: Duration) {
        self.change(|course| course.rate = 1.0 / time.as_secs_f64().max(1e-3));
    }

    /// 0 to 1.
    pub fn at(&self, done: f32) {
        self.change(|course| {
            (course.done, course.at) = (f64::from(done).clamp(0.0, 1.0), Instant::now());
            if course.done > 0.0 {
                course.rate = course.done / course.began.elapsed().as_secs_f64().max(1e-3);
            }
        });
    }

    /// Another message.
    pub fn say(&self, message: &str) {
        self.change(|course| course.message = clean::line(message));
    }

    fn change(&self, change: impl FnOnce(&mut Course)) {
        if let Ok(mut course) = self.shared.0.lock() {
            change(&mut course);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.change(|course| course.over = true);
        self.shared.1.notify_all();
        self.drawing.take().map(JoinHandle::join);
        self.hush = None;
    }
}

impl Course {
    /// How much is done, as far as that can be told between two reports.
    fn estimate(&self, now: Instant) -> f64 {
        (self.done + self.rate * (now - self.at).as_secs_f64()).min(0.99).max(self.done)
    }
}

fn draw((course, changed): &(Mutex<Course>, Condvar)) {
    let Ok(mut own) = course.lock() else { return };
    let mut bar: Option<ProgressBar> = None;
    while !own.over {
        let now = Instant::now();
        if now - own.began >= PATIENCE {
            let bar = bar.get_or_insert_with(|| {
                ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr())
                    .with_style(style("{msg} {wide_bar} {percent:>3}%{prefix}"))
            });
            let done = own.estimate(now);
            let left = Duration::from_secs(((1.0 - done) / own.rate.max(1e-9)).ceil().min(1e6) as u64);
            let left =
                if own.rate > 0.0 { format!(", {} left", humantime::format_duration(left)) } else { String::new() };
            // A row that wraps could not be taken away again.
            let columns = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
            let room = columns.saturating_sub(BESIDE + left.len());
            bar.set_message(own.message.chars().take(room).collect::<String>());
            bar.set_prefix(left);
            bar.set_position((done * 100.0) as u64);
            bar.tick();
        }
        let Ok((back, _)) = changed.wait_timeout(own, STEP) else { return };
        own = back;
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// How many of many prompts are answered; drawn where answers go elsewhere.
pub struct Items {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl Items {
    pub fn new(terminal: &Terminal) -> Self {
        let bar = (terminal.draws_progress() && !terminal.stdout)
            .then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style("{msg}")));
        Self { bar, began: Instant::now() }
    }

    /// So many are done (some of them before, which tells nothing of the rate), of so many where that is known; some
    /// failed.
    pub fn at(&self, done: usize, before: usize, of: Option<usize>, failed: usize) {
        let Some(bar) = &self.bar else { return };
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        let rate = done.saturating_sub(before) as f64 / minutes.max(1e-6);
        let (mut all, mut left) = (String::new(), String::new());
        if let Some(of) = of {
            let seconds = (of.saturating_sub(done) as f64 / rate * 60.0).min(1e6) as u64;
            all = format!(" of {of}");
            left = format!(", {} left", humantime::format_duration(Duration::from_secs(seconds)));
        }
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        bar.set_message(format!("{done}{all}, {rate:.1} a minute{left}{failed}"));
        bar.tick();
    }

    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Downloads.
pub struct Downloads {
    terminal: Terminal,
    bar: Option<ProgressBar>,
}

impl Downloads {
    pub fn new(terminal: Terminal) -> Self {
        Self { terminal, bar: None }
    }
}

impl Progress for Downloads {
    fn begin(&mut self, name: &str, bytes: Option<u64>) {
        let size = bytes.map(|bytes| format!(" ({})", size(bytes))).unwrap_or_default();
        if self.terminal.draws_progress() {
            let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
            bar.set_style(style(
                "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
            ));
            bar.set_message(clean::line(name));
            self.bar = Some(bar);
        } else {
            self.terminal.status(&format!("fetching {name}{size}"));
        }
    }

    fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.status(line);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}
