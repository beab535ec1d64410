//! Writes blocks on a thread of its own: to a temporary file beside the target, synced, renamed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::block::{self, Header};
use super::layout;
use super::seal::SealKey;

/// Blocks in line at most.
const IN_LINE: usize = 8;

/// A block to be written.
pub(super) struct Job {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// A file that is of no use once this one is there.
    pub(super) replaces: Option<PathBuf>,
}

/// What became of the jobs.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// The first failure; nothing was written after it.
    pub(super) error: Option<io::Error>,
}

pub(super) struct Writer {
    jobs: SyncSender<Job>,
    thread: JoinHandle<Written>,
}

impl Writer {
    pub(super) fn start(root: PathBuf, key: SealKey) -> Self {
        let (jobs, in_line) = sync_channel(IN_LINE);
        Self { jobs, thread: std::thread::spawn(move || work(&root, &key, &in_line)) }
    }

    pub(super) fn put(&self, job: Job) {
        // Sending fails only when the thread is gone, which `finish` reports.
        let _ = self.jobs.send(job);
    }

    /// Waits for the last one.
    pub(super) fn finish(self) -> Written {
        drop(self.jobs);
        let gone = |_| Written { bytes: 0, error: Some(io::Error::other("its thread ended early")) };
        self.thread.join().unwrap_or_else(gone)
    }
}

fn work(root: &Path, key: &SealKey, jobs: &Receiver<Job>) -> Written {
    let mut written = Written::default();
    for job in jobs {
        if written.error.is_some() {
            continue;
        }
        match write(root, key, &job) {
            Ok(bytes) => written.bytes += bytes,
            Err(error) => written.error = Some(error),
        }
    }
    written
}

/// Writes one block; answers its size.
fn write(root: &Path, key: &SealKey, job: &Job) -> io::Result<u64> {
    let path = layout::path(root, &job.header);
    let folder = path.parent().unwrap_or(root);
    let mut file = new_file(folder)?;
    block::write(&mut file, &job.header, &job.payload, key)?;
    file.as_file().sync_data()?;
    let bytes = file.as_file().metadata()?.len();
    // Whoever writes the same block at the same time writes the same.
    match file.persist(&path) {
        Ok(_) => {}
        // An eviction took the folder away in between.
        Err(failed) if failed.error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(failed) => return Err(failed.error),
    }
    key.put_back(&root.join("key"))?;
    if let Some(old) = job.replaces.as_ref().filter(|old| **old != path) {
        let _ = std::fs::remove_file(old);
    }
    Ok(bytes)
}

/// A temporary file in `folder`, which an eviction may take away at any moment while it is empty: also between two looks at
/// it while it is made, which says then that it exists.
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    use io::ErrorKind::{AlreadyExists, NotFound};
    let mut tries = 0;
    loop {
        let make = || tempfile::Builder::new().prefix(".new-").tempfile_in(folder);
        match layout::make_folder(folder).and_then(|()| make()) {
            Err(error) if matches!(error.kind(), NotFound | AlreadyExists) && tries < 8 => tries += 1,
            made => return made,
        }
    }
}
