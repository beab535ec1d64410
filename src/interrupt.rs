//! Ctrl-C as one flag that every long step asks.
//!
//! The first Ctrl-C sets the flag. If whatever runs does not take it, the second one ends the process,
//! so a step that forgot to ask can still be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shared flag: set by Ctrl-C, asked by long steps, taken by whoever answers it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT sets.
    ///
    /// # Errors
    /// When the system refuses the signal handler.
    pub fn on_ctrl_c() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let code = i32::from(crate::error::Kind::Interrupted.exit_code());
        // Order matters: the conditional shutdown must see the flag as the previous signal left it.
        signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGINT, code, Arc::clone(&flag))?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
        Ok(Self(flag))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Reads the flag and clears it.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    /// Sets the flag, as Ctrl-C would.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for callbacks that cross into C.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
