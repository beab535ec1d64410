//! The Hugging Face cache on this disk, in the layout that `huggingface_hub` writes and reads:
//!
//! ```text
//! models--OWNER--NAME/blobs/SHA256              the bytes
//! models--OWNER--NAME/snapshots/COMMIT/FILE  -> ../../blobs/SHA256
//! models--OWNER--NAME/refs/main                 the commit that main was
//! ```

use std::io;
use std::path::{Path, PathBuf};

use super::inspect;
use super::registry::FileSpec;

/// The quantisation where none is named.
pub(super) const DEFAULT_QUANT: &str = "Q4_K_M";

/// Where a repository does not have that one, in this order: those nearest to it in size.
const PREFERRED: [&str; 10] =
    [DEFAULT_QUANT, "Q4_K_S", "Q4_K_L", "Q4_K_XL", "Q5_K_M", "Q4_0", "MXFP4", "Q6_K", "Q8_0", "F16"];

/// The folder of one repository.
pub(super) struct HubRepo {
    folder: PathBuf,
}

impl HubRepo {
    pub(super) fn new(cache: &Path, repo: &str) -> Self {
        Self { folder: cache.join(format!("models--{}", repo.replace('/', "--"))) }
    }

    /// The files of a model, all in one snapshot (an engine looks for later parts beside the first) and of the size that
    /// is known: in the wanted revision, else in any.
    pub(super) fn find(&self, revision: Option<&str>, files: &[FileSpec]) -> Option<Vec<PathBuf>> {
        let snapshots = self.folder.join("snapshots");
        let wanted =
            revision.map(str::to_owned).or_else(|| std::fs::read_to_string(self.folder.join("refs/main")).ok());
        let wanted = wanted.map(|revision| snapshots.join(revision.trim()));
        let here = |snapshot: PathBuf| -> Option<Vec<PathBuf>> {
            let file = |spec: &FileSpec| Some(snapshot.join(&spec.name)).filter(|path| is_complete(path, spec));
            files.iter().map(file).collect()
        };
        wanted.into_iter().chain(files_in(&snapshots)).find_map(here)
    }

    /// A file of one commit.
    pub(super) fn in_snapshot(&self, commit: &str, file: &FileSpec) -> Option<PathBuf> {
        Some(self.folder.join("snapshots").join(commit).join(&file.name)).filter(|path| is_complete(path, file))
    }

    /// The files of a quantisation that are there, in order; none where some of them are missing.
    pub(super) fn find_quant(&self, revision: Option<&str>, quant: &str) -> Option<Vec<PathBuf>> {
        let snapshots = std::fs::read_dir(self.folder.join("snapshots")).ok()?;
        let mut names = std::collections::BTreeSet::new();
        for snapshot in snapshots.flatten().map(|entry| entry.path()) {
            let files = files_below(&snapshot).into_iter().filter(|path| path.is_file());
            names.extend(files.filter_map(|path| Some(path.strip_prefix(&snapshot).ok()?.to_str()?.to_owned())));
        }
        let names = of_quant(&names.into_iter().collect::<Vec<_>>(), quant).ok()?;
        let spec = |name| FileSpec { name, bytes: None, sha256: None };
        self.find(revision, &names.into_iter().map(spec).collect::<Vec<_>>())
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

/// Whether a file is there and has the size that it must have.
pub(super) fn is_complete(path: &Path, spec: &FileSpec) -> bool {
    let right = |len: u64| spec.bytes.is_none_or(|bytes| bytes == len);
    path.metadata().is_ok_and(|meta| meta.is_file() && right(meta.len()))
}

/// Every model in a cache, the first part of split ones: the address that reaches it, its file, its bytes.
pub(super) fn list(cache: &Path) -> Vec<(String, PathBuf, u64)> {
    let mut all = Vec::new();
    for repo in files_in(cache) {
        let name = repo.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_prefix("models--").map(|name| name.replacen("--", "/", 1)) else { continue };
        for snapshot in files_in(&repo.join("snapshots")) {
            for file in files_below(&snapshot) {
                let Some(own) = file.strip_prefix(&snapshot).ok().and_then(Path::to_str) else { continue };
                if is_first(own) && file.is_file() {
                    all.push((format!("hf:{name}/{own}"), file.clone(), bytes_of(&file)));
                }
            }
        }
    }
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

fn files_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// What is in a folder, and in the folders in it: repositories keep split models in one of their own.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (folders, mut files): (Vec<_>, Vec<_>) = files_in(folder).partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| files_in(folder)));
    files
}

pub(super) fn is_gguf(name: &str) -> bool {
    let is_named = Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let name = name.to_lowercase();
    is_named && !name.contains("mmproj") && !name.contains("imatrix")
}

/// Of a repository's files those of `quant`, else of the first preferred one, else the only model; with the quantisation.
///
/// # Errors
/// What there is instead of one model.
pub(super) fn pick(all: &[String], quant: Option<&str>) -> Result<(Option<String>, Vec<String>), &'static str> {
    if let Some(quant) = quant {
        return Ok((Some(quant.to_owned()), of_quant(all, quant)?));
    }
    for quant in PREFERRED {
        match of_quant(all, quant) {
            Err("no files") => {}
            found => return Ok((Some(quant.to_owned()), found?)),
        }
    }
    Ok((None, of_quant(all, "")?))
}

/// Of a repository's files those of one quantisation; a split model's parts all together, in order.
///
/// # Errors
/// What there is instead of one model.
pub(super) fn of_quant(all: &[String], quant: &str) -> Result<Vec<String>, &'static str> {
    let wanted = quant.to_lowercase();
    let safe = |name: &&String| {
        let is_strange = name.contains(|c: char| c == '\\' || c.is_control());
        !is_strange && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
    };
    let fits = |name: &&String| is_gguf(name) && name.to_lowercase().contains(&wanted);
    let mut files: Vec<String> = all.iter().filter(fits).filter(safe).cloned().collect();
    files.sort();
    match files.as_slice() {
        [] => Err("no files"),
        all if is_one_model(all) => Ok(files),
        _ => Err("several files"),
    }
}

/// How many parts a name like NAME-00001-of-00003.gguf says that there are.
fn parts(name: &str) -> Option<usize> {
    name.rsplit_once("-of-")?.1.split_once('.')?.0.parse().ok()
}

/// Whether files are one model: one that is whole, or as many as their names say.
pub(super) fn is_one_model(names: &[String]) -> bool {
    match names {
        [one] => parts(one).is_none_or(|parts| parts == 1),
        several => !several.is_empty() && several.iter().all(|name| parts(name) == Some(several.len())),
    }
}

/// The bytes of a model whose first file this is, by the name of that file.
pub(super) fn bytes_of(first: &Path) -> u64 {
    let name = first.file_name().unwrap_or_default().to_string_lossy();
    inspect::bytes(first, parts(&name).unwrap_or(1) as u64)
}

/// Whether a file is a model, or the first of a split one.
pub(super) fn is_first(name: &str) -> bool {
    is_gguf(name) && (!name.contains("-of-") || name.contains("-00001-of-"))
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
    fn a_quantisation_is_one_model() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = files(&["README.md", "m-Q8_0.gguf", "mmproj-Q8_0.gguf", "m-q4_k_m.gguf", "m-Q4_K_S.gguf"]);
        assert_eq!(of_quant(&all, "q8_0"), Ok(files(&["m-Q8_0.gguf"])));
        assert_eq!(pick(&all, None), Ok((Some("Q4_K_M".into()), files(&["m-q4_k_m.gguf"]))));
        assert_eq!(pick(&files(&["m.gguf", "README.md"]), None), Ok((None, files(&["m.gguf"]))));
        assert_eq!(pick(&files(&["a.gguf", "b.gguf"]), None), Err("several files"));
        assert_eq!(of_quant(&all, "Q5_K_M"), Err("no files"));
        assert_eq!(of_quant(&all, "Q4_K"), Err("several files"));
        assert_eq!(of_quant(&files(&["../x-Q8_0.gguf"]), "Q8_0"), Err("no files"));
        let split = files(&["Q8_0/m-00002-of-00002.gguf", "Q8_0/m-00001-of-00002.gguf"]);
        assert_eq!(of_quant(&split, "Q8_0"), Ok(vec![split[1].clone(), split[0].clone()]));
        assert_eq!(of_quant(&split[..1], "Q8_0"), Err("several files"));
    }

    #[test]
    fn a_linked_file_is_found_again() {
        let cache = tempfile::tempdir().unwrap();
        let repo = HubRepo::new(cache.path(), "owner/name");
        let file = [FileSpec { name: "sub/a.gguf".into(), bytes: Some(5), sha256: None }];
        assert_eq!(repo.find(None, &file), None);
        std::fs::create_dir_all(repo.blob("abc").parent().unwrap()).unwrap();
        std::fs::write(repo.blob("abc"), "bytes").unwrap();
        let path = repo.link("c0ffee", "sub/a.gguf", "abc", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
        assert_eq!(repo.find(None, &file), Some(vec![path.clone()]));
        assert_eq!(repo.find(Some("other"), &file), Some(vec![path.clone()]));
        // Another size is another file.
        assert_eq!(repo.find(None, &[FileSpec { bytes: Some(6), ..file[0].clone() }]), None);
        // A link whose blob is gone is not a file.
        std::fs::remove_file(repo.blob("abc")).unwrap();
        assert_eq!(repo.find(None, &file), None);
    }
}
