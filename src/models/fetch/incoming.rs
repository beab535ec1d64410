//! A file that is being written: hashed on the way, renamed when it is right, kept for going on later.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::patient::{Chunks, pause};
use super::{Fetcher, cannot_write, make_folder};
use crate::error::{Error, Result};
use crate::models::registry::FileSpec;
use crate::words::size;

/// How often a process looks whether another one has finished.
const LOOK: Duration = Duration::from_millis(200);

/// A lock beside what is fetched: of several processes one fetches and the others wait.
pub(super) struct Turn {
    file: Option<File>,
}

impl Turn {
    /// Waits for the lock at `path`, saying so once.
    pub(super) fn wait(path: &Path, name: &str, fetcher: &mut Fetcher) -> Result<Self> {
        make_folder(path.parent().unwrap_or(path))?;
        let file = File::options().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file: Some(file) }),
                // Where files cannot be locked, two processes at once are the user's to avoid.
                Err(TryLockError::Error(_)) => return Ok(Self { file: None }),
                Err(TryLockError::WouldBlock) => {}
            }
            if !told {
                fetcher.progress.note(&format!("another process is fetching {name}; waiting for it"));
                told = true;
            }
            pause(LOOK, fetcher.interrupt)?;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Not left to the closing: a process that is being started has the file open for a moment too.
        let _ = self.file.as_ref().map(File::unlock);
    }
}

/// Why bytes did not come.
pub(super) enum Failure {
    /// The line: another try may help.
    Broken(Error),
    /// A refusal, a full disk, a Ctrl-C.
    Final(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Broken(error) | Self::Final(error) => error,
        }
    }
}

/// A digest that is computed in a thread of its own, while the next bytes are written.
struct Hashing {
    work: SyncSender<Vec<u8>>,
    done: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Hashing {
    fn start() -> Self {
        // Few at once: they may be large.
        let ((work, waiting), (finished, done)) = (sync_channel::<Vec<u8>>(1), channel());
        let thread = std::thread::spawn(move || {
            waiting.iter().fold(Sha256::new(), |mut hash, bytes| {
                hash.update(&bytes);
                let _ = finished.send(bytes);
                hash
            })
        });
        Self { work, done, thread }
    }

    /// Takes bytes, and gives a buffer back where one is done with.
    fn take(&self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let _ = self.work.send(bytes);
        self.done.try_recv().ok()
    }

    fn end(self) -> Result<String> {
        drop(self.work);
        let hash = self.thread.join().map_err(|_| Error::failed("the digest's thread ended early"))?;
        Ok(format!("{:x}", hash.finalize()))
    }
}

/// The unfinished file.
pub(super) struct Incoming {
    file: File,
    path: PathBuf,
    hash: Hashing,
    pub(super) bytes: u64,
}

impl Incoming {
    /// Opens `path` and takes up what is there already.
    pub(super) fn resume(path: PathBuf, fetcher: &Fetcher) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut own = Self { file: file.map_err(|e| cannot_write(&path, &e))?, path, hash: Hashing::start(), bytes: 0 };
        let mut buffer = Vec::new();
        loop {
            if fetcher.interrupt.is_set() {
                return Err(Error::interrupted());
            }
            buffer.resize(1 << 18, 0);
            let read = own.file.read(&mut buffer).map_err(|e| cannot_write(&own.path, &e))?;
            if read == 0 {
                return Ok(own);
            }
            buffer.truncate(read);
            buffer = own.take(buffer).unwrap_or_default();
        }
    }

    fn take(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.bytes += bytes.len() as u64;
        self.hash.take(bytes)
    }

    /// Forgets all that came.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(|e| cannot_write(&self.path, &e))?;
        self.hash = Hashing::start();
        self.bytes = 0;
        Ok(())
    }

    /// Keeps only the first `bytes`.
    pub(super) fn cut(self, bytes: u64, fetcher: &Fetcher) -> Result<Self> {
        self.file.set_len(bytes).map_err(|e| cannot_write(&self.path, &e))?;
        Self::resume(self.path, fetcher)
    }

    /// Appends bytes; answers with a buffer that can be used again, where there is one.
    pub(super) fn push(&mut self, bytes: Vec<u8>, fetcher: &mut Fetcher) -> Result<Option<Vec<u8>>> {
        self.file.write_all(&bytes).map_err(|e| cannot_write(&self.path, &e))?;
        let spare = self.take(bytes);
        fetcher.progress.at(self.bytes);
        Ok(spare)
    }

    /// Appends what `source` brings, at most `most` bytes; answers whether that was all of it.
    pub(super) fn append(
        &mut self,
        source: &mut dyn Chunks,
        most: u64,
        fetcher: &mut Fetcher,
    ) -> Result<bool, Failure> {
        let mut left = most;
        while left > 0 {
            let chunk = source.chunk(usize::try_from(left).unwrap_or(usize::MAX));
            if fetcher.interrupt.is_set() {
                return Err(Failure::Final(Error::interrupted()));
            }
            let chunk =
                chunk.map_err(|error| Failure::Broken(Error::model(format!("the transfer broke off: {error}"))))?;
            if chunk.is_empty() {
                return Ok(true);
            }
            left -= chunk.len() as u64;
            if let Some(spare) = self.push(chunk, fetcher).map_err(Failure::Final)? {
                source.take_back(spare);
            }
        }
        Ok(false)
    }

    /// Checks size and digest, then gives the file its name. What is wrong is deleted. Answers the sha256.
    pub(super) fn complete(self, wanted: &FileSpec, name: impl FnOnce(&str) -> PathBuf) -> Result<(String, PathBuf)> {
        let digest = self.hash.end()?;
        let wrong = match (wanted.bytes, &wanted.sha256) {
            (Some(bytes), _) if bytes != self.bytes => Some(format!("it has {} bytes instead of {bytes}", self.bytes)),
            (_, Some(sha256)) if *sha256 != digest => Some(format!("its sha256 is {digest} instead of {sha256}")),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let _ = std::fs::remove_file(&self.path);
            return Err(Error::model(format!("{} came out wrong: {wrong}", wanted.name)).hint("try again"));
        }
        let target = name(&digest);
        self.file.sync_all().map_err(|e| cannot_write(&self.path, &e))?;
        drop(self.file);
        std::fs::rename(&self.path, &target).map_err(|e| cannot_write(&target, &e))?;
        Ok((digest, target))
    }
}

/// Bytes that are there already of an unfinished file.
pub(super) fn there_already(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// That a disk has room for `needed` bytes, before anything is asked for; a tenth of a gigabyte is left to others.
pub(super) fn check_room(folder: &Path, needed: u64) -> Result<()> {
    const LEFT: u64 = 100_000_000;
    let Some(existing) = folder.ancestors().find(|folder| folder.exists()) else { return Ok(()) };
    // What cannot be found out is found out by writing.
    let Ok(free) = fs4::available_space(existing) else { return Ok(()) };
    if needed == 0 || needed.saturating_add(LEFT) <= free {
        return Ok(());
    }
    let (needed, free) = (size(needed), size(free));
    Err(Error::model(format!("there is no room: {needed} are needed and {free} are free in {}", existing.display()))
        .hint("free some, or move the folder (HF_HUB_CACHE, QCHAT_HOME)"))
}
