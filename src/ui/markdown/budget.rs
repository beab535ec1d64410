//! How much time drawing may take: the processor belongs to the model.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Budget {
    start: Instant,
    spent: Duration,
}

/// One part in so many.
const SHARE: u32 = 100;
/// Before any share has come together; a language's first line takes long to colour.
const ALLOWANCE: Duration = Duration::from_millis(20);
/// What one drawing counts for at most: compiling a language's expressions happens once.
const MOST: Duration = Duration::from_millis(5);

impl Budget {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), spent: Duration::ZERO }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent > self.start.elapsed() / SHARE + ALLOWANCE
    }

    pub(super) fn spend(&mut self, since: Instant) {
        self.spent += since.elapsed().min(MOST);
    }

    #[cfg(test)]
    pub(super) fn exhaust(&mut self) {
        self.spent = Duration::from_secs(3600);
    }
}
