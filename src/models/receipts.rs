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
    /// Parts of the model that were here before, which stay.
    #[serde(default)]
    pub found: BTreeSet<PathBuf>,
}

/// What deleting a model deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    pub files: Vec<PathBuf>,
    pub bytes: u64,
}

impl Receipt {
    /// Notes the files of an entry of which some, `own`, were fetched.
    pub(super) fn write(paths: &Paths, entry: &Entry, files: &[PathBuf], own: &[PathBuf]) -> Result<()> {
        let mut receipt =
            Self::read(paths, &entry.name).unwrap_or_else(|| Self { name: entry.name.clone(), ..Self::default() });
        receipt.files.extend(own.iter().map(|file| absolute(file)));
        receipt.found.extend(files.iter().map(|file| absolute(file)));
        receipt.found.retain(|file| !receipt.files.contains(file));
        let path = file(paths, &entry.name);
        let written = serde_json::to_vec_pretty(&receipt)
            .map_err(io::Error::from)
            .and_then(|text| crate::paths::replace(&path, &text));
        written.map_err(|error| Error::model(format!("{} cannot be written: {error}", path.display())))
    }

    /// The receipt of a model, by its name.
    pub fn read(paths: &Paths, name: &str) -> Option<Self> {
        // Two names may share a file of receipts, which is the one's that it names.
        read(&file(paths, name)).filter(|receipt| receipt.name == name)
    }

    /// All there are.
    pub(super) fn all(paths: &Paths) -> Vec<Self> {
        let entries = fs::read_dir(folder(paths)).into_iter().flatten().flatten();
        entries.filter_map(|entry| read(&entry.path())).collect()
    }

    /// The one that has these files, whatever name they were fetched under.
    pub fn of_files(paths: &Paths, files: &[PathBuf]) -> Option<Self> {
        let files: Vec<PathBuf> = files.iter().map(|file| absolute(file)).collect();
        let is_of = |own: &Self| {
            let all = files.iter().all(|file| own.files.contains(file) || own.found.contains(file));
            all && files.iter().any(|file| own.files.contains(file))
        };
        Self::all(paths).into_iter().find(is_of)
    }

    /// The files of the model, those that stay too.
    pub(super) fn all_files(&self) -> Vec<PathBuf> {
        self.files.union(&self.found).cloned().collect()
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
    folder(paths).join(format!("{safe}.json"))
}

fn folder(paths: &Paths) -> PathBuf {
    paths.data.join("receipts")
}

fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

fn read(file: &Path) -> Option<Receipt> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
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
        Receipt::write(&paths, &entry, std::slice::from_ref(&own), std::slice::from_ref(&own)).unwrap();
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
        Receipt::write(&paths, &entry, &files, &files).unwrap();
        let removal = Receipt::read(&paths, "m").unwrap().remove(&paths).unwrap();
        assert_eq!((removal.files.len(), removal.bytes), (4, 6));
        assert!(!repo.exists());
        assert!(home.path().join("hub").exists());
    }
}
