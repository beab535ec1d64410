//! Bars and spinners, on stderr and only when it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::clean;
use super::output::Terminal;
use crate::models::fetch::Progress;

/// A load or a wait that deserves a line when it lasts; the line goes when this is dropped.
pub struct Waiting {
    bar: ProgressBar,
}

/// What lasts less than this is not worth a line.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

impl Waiting {
    pub fn new(terminal: &Terminal, message: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::hidden());
        bar.set_style(style("{msg} {wide_bar} {percent:>3}%"));
        bar.set_message(clean::line(message));
        if terminal.draws_progress() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self { bar }
    }

    /// 0 to 1.
    pub fn at(&self, done: f32) {
        if self.bar.elapsed() > PATIENCE {
            self.bar.set_position((done * 100.0) as u64);
        }
    }

    /// Another message.
    pub fn say(&self, message: &str) {
        self.bar.set_message(clean::line(message));
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.clear();
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
        let size = bytes.map(|bytes| format!(" ({})", indicatif::HumanBytes(bytes))).unwrap_or_default();
        if self.terminal.draws_progress() {
            let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
            bar.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
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
