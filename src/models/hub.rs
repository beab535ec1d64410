//! The Hugging Face cache on this disk, in the layout that `huggingface_hub` writes and reads:
//!
//! ```text
//! models--OWNER--NAME/blobs/SHA256              the bytes
//! models--OWNER--NAME/snapshots/COMMIT/FILE  -> ../../blobs/SHA256
//! models--OWNER--NAME/refs/main                 the commit that main was
//! ```

use std::io;
use std::path::{Path, PathBuf};

/// The folder of one repository.
pub(super) struct HubRepo {
    folder: PathBuf,
}

impl HubRepo {
    pub(super) fn new(cache: &Path, repo: &str) -> Self {
        Self { folder: cache.join(format!("models--{}", repo.replace('/', "--"))) }
    }

    /// A file of the repository that is there, in the wanted revision or in any.
    pub(super) fn find(&self, revision: Option<&str>, file: &str) -> Option<PathBuf> {
        let snapshots = self.folder.join("snapshots");
        let wanted =
            revision.map(str::to_owned).or_else(|| std::fs::read_to_string(self.folder.join("refs/main")).ok());
        let in_wanted = wanted.map(|revision| snapshots.join(revision.trim()).join(file)).filter(|path| path.is_file());
        in_wanted.or_else(|| {
            let commits = std::fs::read_dir(snapshots).ok()?;
            commits.filter_map(|commit| Some(commit.ok()?.path().join(file))).find(|path| path.is_file())
        })
    }

    /// The blob of a sha256, whether it is there or not.
    pub(super) fn blob(&self, sha256: &str) -> PathBuf {
        self.folder.join("blobs").join(sha256)
    }

    /// Makes `file` of `commit` point to the blob, and main to the commit where `is_main`. Answers the file's path.
    pub(super) fn link(&self, commit: &str, file: &str, sha256: &str, is_main: bool) -> io::Result<PathBuf> {
        let path = self.folder.join("snapshots").join(commit).join(file);
        let parent = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(parent)?;
        if !path.exists() {
            let up = "../".repeat(1 + file.split('/').count());
            let _ = std::fs::remove_file(&path);
            symlink(&Path::new(&up).join("blobs").join(sha256), &self.blob(sha256), &path)?;
        }
        if is_main {
            std::fs::create_dir_all(self.folder.join("refs"))?;
            std::fs::write(self.folder.join("refs/main"), commit)?;
        }
        Ok(path)
    }
}

#[cfg(unix)]
fn symlink(target: &Path, _: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Where links need privileges, the bytes move to the snapshot instead, as `huggingface_hub` does there.
#[cfg(not(unix))]
fn symlink(_: &Path, blob: &Path, link: &Path) -> io::Result<()> {
    std::fs::rename(blob, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_file_is_found_again() {
        let cache = tempfile::tempdir().unwrap();
        let repo = HubRepo::new(cache.path(), "owner/name");
        assert_eq!(repo.find(None, "sub/a.gguf"), None);
        std::fs::create_dir_all(repo.blob("abc").parent().unwrap()).unwrap();
        std::fs::write(repo.blob("abc"), "bytes").unwrap();
        let path = repo.link("c0ffee", "sub/a.gguf", "abc", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
        assert_eq!(repo.find(None, "sub/a.gguf"), Some(path.clone()));
        assert_eq!(repo.find(Some("other"), "sub/a.gguf"), Some(path.clone()));
        // A link whose blob is gone is not a file.
        std::fs::remove_file(repo.blob("abc")).unwrap();
        assert_eq!(repo.find(None, "sub/a.gguf"), None);
    }
}
