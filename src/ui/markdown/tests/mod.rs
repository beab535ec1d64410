//! The screen after each push, by a terminal's own account (vt100).

mod cost;
mod cuts;
mod garbage;
mod looks;
mod meaning;
mod resizing;
mod screen;
mod writing;

use super::Markdown;

impl Markdown {
    /// Draws with every push, however long it takes.
    fn unhurried(columns: usize, rows: usize, colour: bool) -> Self {
        Self { budget: None, ..Self::new(columns, rows, colour) }
    }

    /// How many rows can still change.
    fn live_rows(&self) -> usize {
        self.frame.rows.len() - self.live
    }
}
