//! What qchat fetched, so that it deletes nothing else: a receipt a model, and the rules of the cache it lies in.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::registry::Entry;
use crate::error::{Error, Result};
use crate::paths::Paths;

/// The files of one model that qchat fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub name: String,
    /// As the model is loaded from them: links into blobs in a Hugging Face cache.
    pub files: BTreeSet<PathBuf>,
}

/// What deleting a model deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    pub files: Vec<PathBuf>,
    pub bytes: u64,
}

impl Receipt {
    /// Notes that these files of an entry were fetched.
    pub(super) fn write(paths: &Paths, entry: &Entry, files: &[PathBuf]) -> Result<()> {
        let mut receipt =
            Self::read(paths, &entry.name).unwrap_or_else(|| Self { name: entry.name.clone(), ..Self::default() });
        receipt.files.extend(files.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())));
        let path = file(paths, &entry.name);
        let write = || -> io::Result<()> {
            let folder = path.parent().unwrap_or(&path);
            fs::create_dir_all(folder)?;
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            io::Write::write_all(&mut new, &serde_json::to_vec_pretty(&receipt)?)?;
            new.persist(&path)?;
            Ok(())
        };
        write().map_err(|error| Error::model(format!("{} cannot be written: {error}", path.display())))
    }

    /// The receipt of a model, by its name.
    pub fn read(paths: &Paths, name: &str) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(file(paths, name)).ok()?).ok()
    }

    /// What deleting the model would delete: its files, and the blobs behind them that nothing else refers to.
    pub fn removal(&self) -> Removal {
        let mut removal = Removal::default();
        for file in &self.files {
            let Ok(meta) = fs::symlink_metadata(file) else { continue };
            if meta.is_symlink() {
                if let Some(blob) = fs::canonicalize(file).ok().filter(|blob| !is_shared(file, blob, &self.files)) {
                    removal.bytes += blob.metadata().map_or(0, |meta| meta.len());
                    removal.files.push(blob);
                }
            } else {
                removal.bytes += meta.len();
            }
            removal.files.push(file.clone());
        }
        removal
    }

    /// Deletes the files, folders that are empty then, and the receipt.
    ///
    /// # Errors
    /// When something cannot be deleted.
    pub fn remove(&self, paths: &Paths) -> Result<Removal> {
        let removal = self.removal();
        for path in &removal.files {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::failed(format!("{} cannot be deleted: {error}", path.display())));
                }
                _ => leave_no_empty_folder(path),
            }
        }
        let _ = fs::remove_file(file(paths, &self.name));
        Ok(removal)
    }
}

fn file(paths: &Paths, name: &str) -> PathBuf {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '+' }).collect();
    paths.data.join("receipts").join(format!("{safe}.json"))
}

/// Whether another link of the repository, in any snapshot, leads to the blob.
fn is_shared(link: &Path, blob: &Path, own: &BTreeSet<PathBuf>) -> bool {
    let snapshots = link.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "snapshots"));
    let Some(snapshots) = snapshots else { return true };
    let mut folders = vec![snapshots.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(_) if !own.contains(&path) && fs::canonicalize(&path).is_ok_and(|target| target == blob) => {
                    return true;
                }
                _ => {}
            }
        }
    }
    false
}

/// Folders of a cache are deleted once they are empty, up to the repository's own; `refs` of one without snapshots too.
fn leave_no_empty_folder(file: &Path) {
    for folder in file.ancestors().skip(1).take(6) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("models--") && !folder.join("snapshots").exists() && !folder.join("blobs").exists() {
            let _ = fs::remove_dir_all(folder);
            return;
        }
        let is_top = name == "models" || name == "hub";
        let is_part = name.starts_with("models--") || name == "snapshots" || name == "blobs";
        if (is_top || fs::remove_dir(folder).is_err()) && !is_part {
            return;
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn cache() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let repo = home.path().join("hub/models--o--r");
        fs::create_dir_all(repo.join("blobs")).unwrap();
        fs::create_dir_all(repo.join("refs")).unwrap();
        fs::write(repo.join("refs/main"), "c1").unwrap();
        (home, repo)
    }

    fn link(repo: &Path, commit: &str, name: &str, blob: &str) -> PathBuf {
        let path = repo.join("snapshots").join(commit).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(repo.join("blobs").join(blob), blob).unwrap();
        symlink(format!("../../blobs/{blob}"), &path).unwrap();
        path
    }

    #[test]
    fn a_blob_that_somebody_else_refers_to_stays() {
        let (home, repo) = cache();
        let paths = Paths::under(&home.path().join("qchat"));
        let own = link(&repo, "c1", "a.gguf", "one");
        let other = link(&repo, "c2", "a.gguf", "one");
        let entry = Entry { name: "hf:o/r/a.gguf".into(), ..Entry::default() };
        Receipt::write(&paths, &entry, std::slice::from_ref(&own)).unwrap();
        let receipt = Receipt::read(&paths, "hf:o/r/a.gguf").unwrap();
        assert_eq!(receipt.removal(), Removal { files: vec![own.clone()], bytes: 0 });
        receipt.remove(&paths).unwrap();
        assert!(!own.exists() && other.exists());
        assert_eq!(Receipt::read(&paths, "hf:o/r/a.gguf"), None);
    }

    #[test]
    fn a_repository_without_files_goes_altogether() {
        let (home, repo) = cache();
        let paths = Paths::under(&home.path().join("qchat"));
        let files = [link(&repo, "c1", "a.gguf", "one"), link(&repo, "c1", "b.gguf", "two")];
        let entry = Entry { name: "m".into(), ..Entry::default() };
        Receipt::write(&paths, &entry, &files).unwrap();
        let removal = Receipt::read(&paths, "m").unwrap().remove(&paths).unwrap();
        assert_eq!((removal.files.len(), removal.bytes), (4, 6));
        assert!(!repo.exists());
        assert!(home.path().join("hub").exists());
    }
}
