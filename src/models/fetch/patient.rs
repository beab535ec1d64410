//! Network calls in threads of their own: Ctrl-C, and a limit on silence, hold while the other side says nothing.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

const LOOK: Duration = Duration::from_millis(30);

/// Waits, unless a Ctrl-C comes.
pub(super) fn pause(time: Duration, interrupt: &Interrupt) -> Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        if interrupt.is_set() {
            return Err(Error::interrupted());
        }
        std::thread::sleep(left.min(LOOK));
    }
    Ok(())
}

/// Does `work` in a thread and waits for it or for Ctrl-C.
pub(super) fn wait_for<T: Send + 'static>(
    interrupt: &Interrupt,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::failed("a network thread ended early")),
            Err(RecvTimeoutError::Timeout) if interrupt.is_set() => return Err(Error::interrupted()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A reader that can be interrupted.
pub(super) struct Patient {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    /// What brings nothing for this long is given up.
    silence: Duration,
    interrupt: Interrupt,
}

impl Patient {
    pub(super) fn new(mut reader: impl Read + Send + 'static, silence: Duration, interrupt: Interrupt) -> Self {
        // A few chunks ahead, so that hashing and writing overlap with the network.
        let (sender, chunks) = mpsc::sync_channel(4);
        std::thread::spawn(move || {
            loop {
                let mut buffer = vec![0; 1 << 18];
                let read = reader.read(&mut buffer).map(|count| {
                    buffer.truncate(count);
                    buffer
                });
                let last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
                if sender.send(read).is_err() || last {
                    return;
                }
            }
        });
        Self { chunks, chunk: io::Cursor::default(), silence, interrupt }
    }

    fn next(&self) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        loop {
            match self.chunks.recv_timeout(LOOK) {
                Ok(chunk) => return chunk,
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_set() => {
                    return Err(io::Error::other("interrupted"));
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() > self.silence => {
                    return Err(io::Error::other(format!("nothing came for {} s", self.silence.as_secs_f64())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.position() == self.chunk.get_ref().len() as u64 {
            self.chunk = io::Cursor::new(self.next()?);
        }
        self.chunk.read(buffer)
    }
}
