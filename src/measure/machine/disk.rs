//! How fast a folder's disk is written and read: what restoring a prefix, loading a model and saving either cost.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::words;

/// Bytes a second, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disk {
    /// Until the system says that they are on the disk.
    pub write: f64,
    pub read: f64,
    pub source: Source,
    /// Of the file.
    pub bytes: u64,
}

/// Where the bytes came from that were read back. A virtual machine's host and the disk itself have caches too, of
/// which nothing is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The system's cache was seen to have dropped them.
    Disk,
    /// Memory, or it could not be told.
    PageCache,
}

impl Source {
    pub fn words(self) -> &'static str {
        match self {
            Self::Disk => "from the disk",
            Self::PageCache => "from the page cache",
        }
    }
}

const MOST: u64 = 64 << 20;
/// Too short to say anything.
const TOO_LITTLE: u64 = 4 << 20;
const STEP: usize = 1 << 20;

/// Writes and reads a file in `folder` of 64 MiB, or less where an eighth of what is free is less. The file has no name
/// from the start, so it goes with this process however that ends.
pub fn measure(folder: &Path) -> Result<Disk, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let free = fs4::available_space(folder).map_err(failed)?;
    let bytes = size(free).ok_or_else(|| format!("{}: only {} are free", folder.display(), words::size(free)))?;
    let mut file = tempfile::tempfile_in(folder).map_err(failed)?;
    let write = write(&mut file, bytes).map_err(failed)?;
    let source = drop_cached(&file, bytes);
    let read = read(&mut file, bytes).map_err(failed)?;
    Ok(Disk { write, read, source, bytes })
}

fn size(free: u64) -> Option<u64> {
    let bytes = MOST.min(free / 8) / STEP as u64 * STEP as u64;
    (bytes >= TOO_LITTLE).then_some(bytes)
}

fn write(file: &mut File, bytes: u64) -> io::Result<f64> {
    let step = noise();
    let began = Instant::now();
    for _ in 0..bytes / STEP as u64 {
        file.write_all(&step)?;
    }
    file.sync_all()?;
    Ok(bytes as f64 / began.elapsed().as_secs_f64().max(1e-9))
}

fn read(file: &mut File, bytes: u64) -> io::Result<f64> {
    let mut step = vec![0; STEP];
    file.rewind()?;
    let began = Instant::now();
    for _ in 0..bytes / STEP as u64 {
        file.read_exact(&mut step)?;
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64().max(1e-9))
}

/// Bytes that no file system can store in fewer (Marsaglia's xorshift, 2003).
fn noise() -> Vec<u8> {
    let next = |state: &u64| {
        let state = state ^ (state << 13);
        let state = state ^ (state >> 7);
        Some(state ^ (state << 17))
    };
    let words = std::iter::successors(Some(0x9E37_79B9_7F4A_7C15_u64), next);
    words.take(STEP / 8).flat_map(u64::to_le_bytes).collect()
}

/// Asks for the file's cached pages to be dropped, and whether they were: a read that may not wait for the disk gets
/// nothing then.
#[cfg(target_os = "linux")]
fn drop_cached(file: &File, bytes: u64) -> Source {
    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    if fadvise(file, 0, None, Advice::DontNeed).is_err() {
        return Source::PageCache;
    }
    let cached = |offset| {
        let mut byte = [0];
        preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
    };
    if [0, bytes / 2, bytes - 1].into_iter().any(cached) { Source::PageCache } else { Source::Disk }
}

#[cfg(not(target_os = "linux"))]
fn drop_cached(_file: &File, _bytes: u64) -> Source {
    Source::PageCache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_gets_a_smaller_file_and_a_fuller_one_none() {
        assert_eq!(size(u64::MAX), Some(64 << 20));
        assert_eq!(size(100 << 20), Some(12 << 20));
        assert_eq!((size(31 << 20), size(0)), (None, None));
    }

    #[test]
    fn a_folder_is_measured_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let disk = measure(folder.path()).unwrap();
        assert!(disk.write > 0.0 && disk.read > 0.0 && disk.write.is_finite() && disk.read.is_finite());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let error = measure(&gone).unwrap_err();
        assert!(error.starts_with(&format!("{}: ", gone.display())) && !error.contains('\n'), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_lies_in_memory_is_not_called_the_disk() {
        let memory = Path::new("/dev/shm");
        if fs4::available_space(memory).is_ok_and(|free| size(free).is_some()) {
            assert_eq!(measure(memory).map(|disk| disk.source), Ok(Source::PageCache));
        }
    }

    #[test]
    fn noise_does_not_repeat() {
        let noise = noise();
        assert_eq!(noise.len(), STEP);
        let words: std::collections::HashSet<&[u8]> = noise.chunks(8).collect();
        assert_eq!(words.len(), STEP / 8);
    }
}
