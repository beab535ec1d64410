//! Keys that are typed while an answer is written do not appear in it: they wait for the next prompt.

#[cfg(unix)]
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// No echo as long as it lives.
pub struct Hush(#[cfg(unix)] Option<Termios>);

impl Hush {
    /// Of the terminal that stdin is; elsewhere nothing happens.
    pub fn begin() -> Self {
        Self(
            #[cfg(unix)]
            tcgetattr(std::io::stdin()).ok().filter(|found| {
                let mut quiet = found.clone();
                quiet.local_modes.remove(LocalModes::ECHO);
                tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet).is_ok()
            }),
        )
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(found) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, found);
        }
    }
}
