//! Which files a model is made of, by content: a digest that is computed once and remembered by what the file system says
//! of them, so that a file that was replaced under its name, size and date is another one.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::resolve::Resolved;
use crate::interrupt::Interrupt;
use crate::paths;

/// The files of a model as they were when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    files: Vec<(PathBuf, Stamp)>,
}

/// What changes when a file does, also where size and date are set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    #[cfg(not(unix))]
    fn of(meta: &Metadata) -> Self {
        let since = |time: io::Result<std::time::SystemTime>| {
            let time = time.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
            (time.as_secs() as i64, i64::from(time.subsec_nanos()))
        };
        Self {
            device: 0,
            inode: 0,
            bytes: meta.len(),
            modified: since(meta.modified()),
            changed: since(meta.created()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Known {
    files: Identity,
    content: String,
}

impl Identity {
    /// The files as they are now; none where one is missing.
    pub fn of(model: &Resolved) -> Option<Self> {
        let stamp = |path: PathBuf| {
            let path = std::path::absolute(path).ok()?;
            let stamp = Stamp::of(&path.metadata().ok()?);
            Some((path, stamp))
        };
        Some(Self { files: model.files().into_iter().map(stamp).collect::<Option<_>>()? })
    }

    /// The digest, if it was found out before and nothing has changed. `folder` is where digests are kept.
    pub fn known(&self, folder: &Path) -> Option<String> {
        let text = std::fs::read_to_string(self.file(folder)).ok()?;
        let known: Known = serde_json::from_str(&text).ok()?;
        (known.files == *self).then_some(known.content)
    }

    /// Reads the files and remembers their digest; none when they changed meanwhile, cannot be read, or a Ctrl-C came.
    pub fn find_out(&self, folder: &Path, interrupt: &Interrupt) -> Option<String> {
        let mut hash = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        for (path, stamp) in &self.files {
            let mut file = File::open(path).ok()?;
            // Of several files, where one ends is part of the content.
            hash.update(&stamp.bytes.to_le_bytes());
            loop {
                if interrupt.is_set() {
                    return None;
                }
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => hash.update(&buffer[..read]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return None,
                };
            }
            if Stamp::of(&file.metadata().ok()?) != *stamp || Stamp::of(&path.metadata().ok()?) != *stamp {
                return None;
            }
        }
        let content = format!("blake3:{}", hash.finalize().to_hex());
        // Not remembered is only slower.
        let _ = self.remember(folder, &content);
        Some(content)
    }

    fn remember(&self, folder: &Path, content: &str) -> io::Result<()> {
        let known = Known { files: self.clone(), content: content.to_owned() };
        paths::replace(&self.file(folder), &serde_json::to_vec_pretty(&known)?)
    }

    fn file(&self, folder: &Path) -> PathBuf {
        let paths: Vec<_> = self.files.iter().map(|(path, _)| path.to_string_lossy()).collect();
        folder.join(format!("{}.json", &blake3::hash(paths.join("\n").as_bytes()).to_hex()[..32]))
    }
}
