//! Ctrl-C as one flag that every long step asks.
//!
//! The first Ctrl-C sets the flag. If whatever runs does not take it, the second one ends the process,
//! so a step that forgot to ask can still be stopped. SIGTERM and SIGHUP stop what runs in the same way, and then the process
//! ends: with what was said saved, and the terminal as it was found.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Kind, Result};

/// The signal that ends this process; 0 for none.
static ENDING: AtomicI32 = AtomicI32::new(0);
/// Whether the process waits for a person: nothing is lost if it ends there.
static AT_REST: AtomicBool = AtomicBool::new(false);
/// What an answer has for being stopped and saved.
const GRACE: Duration = Duration::from_secs(2);

/// A shared flag: set by Ctrl-C, asked by long steps, taken by whoever answers it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT sets.
    ///
    /// # Errors
    /// When the system refuses the signal handler.
    pub fn on_ctrl_c() -> Result<Self> {
        let own = Self::default();
        own.register().map_err(Error::failed)?;
        Ok(own)
    }

    fn register(&self) -> io::Result<()> {
        let code = i32::from(Kind::Interrupted.exit_code());
        // Order matters: the conditional shutdown must see the flag as the previous signal left it.
        signal_hook::flag::register_conditional_shutdown(SIGINT, code, self.flag())?;
        signal_hook::flag::register(SIGINT, self.flag())?;
        // Under nohup a hang-up stays without effect.
        let wanted = [SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let (own, terminal) = (self.clone(), Terminal::here());
        std::thread::spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            ENDING.store(signal, Ordering::Relaxed);
            let came = Instant::now();
            while !AT_REST.load(Ordering::Relaxed) && came.elapsed() < GRACE {
                own.set();
                std::thread::sleep(Duration::from_millis(10));
            }
            terminal.restore();
            std::process::exit(128 + signal);
        });
        Ok(())
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

/// The exit code of a process that a signal ends; none where none did.
pub fn ending() -> Option<u8> {
    let signal = ENDING.load(Ordering::Relaxed);
    (signal > 0).then(|| u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Waits for a person: a signal may end the process there.
pub fn at_rest<T>(wait: impl FnOnce() -> T) -> T {
    AT_REST.store(true, Ordering::Relaxed);
    let waited = wait();
    AT_REST.store(false, Ordering::Relaxed);
    waited
}

/// Whether this process was started with a signal ignored (Linux; elsewhere no is assumed).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The terminal as it was found.
struct Terminal(#[cfg(unix)] Option<rustix::termios::Termios>);

impl Terminal {
    fn here() -> Self {
        Self(
            #[cfg(unix)]
            rustix::termios::tcgetattr(std::io::stdin()).ok(),
        )
    }

    fn restore(&self) {
        #[cfg(unix)]
        if let Some(modes) = &self.0 {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, modes);
        }
    }
}
