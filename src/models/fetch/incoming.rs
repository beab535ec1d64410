//! A file that is being written: hashed on the way, renamed when it is right, kept for going on later.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::patient::pause;
use super::{Fetcher, cannot_write, make_folder};
use crate::error::{Error, Result};
use crate::models::registry::FileSpec;

/// How often a process looks whether another one has finished.
const LOOK: Duration = Duration::from_millis(200);

/// A lock beside what is fetched: of several processes one fetches and the others wait.
pub(super) struct Turn {
    _file: Option<File>,
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
                Ok(()) => return Ok(Self { _file: Some(file) }),
                // Where files cannot be locked, two processes at once are the user's to avoid.
                Err(TryLockError::Error(_)) => return Ok(Self { _file: None }),
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

/// The unfinished file.
pub(super) struct Incoming {
    file: File,
    path: PathBuf,
    hash: Sha256,
    pub(super) bytes: u64,
}

impl Incoming {
    /// Opens `path` and takes up what is there already.
    pub(super) fn resume(path: PathBuf, fetcher: &Fetcher) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut own = Self { file: file.map_err(|e| cannot_write(&path, &e))?, path, hash: Sha256::new(), bytes: 0 };
        let mut buffer = vec![0; 1 << 18];
        loop {
            if fetcher.interrupt.is_set() {
                return Err(Error::interrupted());
            }
            match own.file.read(&mut buffer).map_err(|e| cannot_write(&own.path, &e))? {
                0 => return Ok(own),
                read => own.take(&buffer[..read]),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Forgets all that came.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(|e| cannot_write(&self.path, &e))?;
        self.hash = Sha256::new();
        self.bytes = 0;
        Ok(())
    }

    /// Keeps only the first `bytes`.
    pub(super) fn cut(self, bytes: u64, fetcher: &Fetcher) -> Result<Self> {
        self.file.set_len(bytes).map_err(|e| cannot_write(&self.path, &e))?;
        Self::resume(self.path, fetcher)
    }

    /// Appends bytes.
    pub(super) fn push(&mut self, bytes: &[u8], fetcher: &mut Fetcher) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| cannot_write(&self.path, &e))?;
        self.take(bytes);
        fetcher.progress.at(self.bytes);
        Ok(())
    }

    /// Appends what `reader` brings, at most `most` bytes; answers whether that was all of it.
    pub(super) fn append(&mut self, reader: &mut dyn Read, most: u64, fetcher: &mut Fetcher) -> Result<bool, Failure> {
        let mut buffer = vec![0; 1 << 18];
        let mut left = most;
        while left > 0 {
            let piece = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = reader.read(&mut buffer[..piece]);
            if fetcher.interrupt.is_set() {
                return Err(Failure::Final(Error::interrupted()));
            }
            let read =
                read.map_err(|error| Failure::Broken(Error::model(format!("the transfer broke off: {error}"))))?;
            if read == 0 {
                return Ok(true);
            }
            self.push(&buffer[..read], fetcher).map_err(Failure::Final)?;
            left -= read as u64;
        }
        Ok(false)
    }

    /// Checks size and digest, then gives the file its name. What is wrong is deleted. Answers the sha256.
    pub(super) fn complete(self, wanted: &FileSpec, name: impl FnOnce(&str) -> PathBuf) -> Result<(String, PathBuf)> {
        let digest = hex(&self.hash.finalize());
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
    let gb = |bytes: u64| bytes as f64 / 1e9;
    Err(Error::model(format!(
        "there is no room: {:.2} GB are needed and {:.2} GB are free in {}",
        gb(needed),
        gb(free),
        existing.display()
    ))
    .hint("free some, or move the folder (HF_HUB_CACHE, QCHAT_HOME)"))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
