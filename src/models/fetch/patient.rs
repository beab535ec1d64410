//! Network calls in threads of their own: Ctrl-C, and a limit on silence, hold while the other side says nothing.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

const LOOK: Duration = Duration::from_millis(30);
const CHUNK: usize = 1 << 18;

/// Where bytes come from, a buffer at a time.
pub(super) trait Chunks {
    /// At most so many bytes; an empty buffer at the end.
    fn chunk(&mut self, most: usize) -> io::Result<Vec<u8>>;
    /// A buffer that is not needed any more.
    fn take_back(&mut self, buffer: Vec<u8>);
}

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

/// Bytes of a reader, read ahead in a thread of its own; they can be interrupted.
pub(super) struct Patient {
    chunks: Receiver<io::Result<Vec<u8>>>,
    spare: Sender<Vec<u8>>,
    /// What was more than was asked for.
    rest: Vec<u8>,
    /// What brings nothing for this long is given up.
    silence: Duration,
    interrupt: Interrupt,
}

impl Patient {
    pub(super) fn new(mut reader: impl Read + Send + 'static, silence: Duration, interrupt: Interrupt) -> Self {
        // A few chunks ahead, so that hashing and writing overlap with the network.
        let (sender, chunks) = mpsc::sync_channel(4);
        let (spare, returned) = mpsc::channel::<Vec<u8>>();
        std::thread::spawn(move || {
            loop {
                let mut buffer = returned.try_recv().unwrap_or_default();
                buffer.resize(CHUNK, 0);
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
        Self { chunks, spare, rest: Vec::new(), silence, interrupt }
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

impl Chunks for Patient {
    fn chunk(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut chunk = if self.rest.is_empty() { self.next()? } else { std::mem::take(&mut self.rest) };
        if chunk.len() > most {
            self.rest = chunk.split_off(most);
        }
        Ok(chunk)
    }

    fn take_back(&mut self, buffer: Vec<u8>) {
        let _ = self.spare.send(buffer);
    }
}

/// Bytes of a reader that never waits for anybody.
pub(super) struct Plain<R> {
    pub(super) reader: R,
    pub(super) buffer: Vec<u8>,
}

impl<R: Read> Chunks for Plain<R> {
    fn chunk(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK.min(most), 0);
        let count = self.reader.read(&mut buffer)?;
        buffer.truncate(count);
        Ok(buffer)
    }

    fn take_back(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }
}
