//! LM Studio's folder of models, `OWNER/REPO/FILE.gguf`: found in place and never changed.

use std::path::PathBuf;

use super::hub::{bytes_of, is_complete, is_first, of_quant};
use super::registry::FileSpec;
use crate::paths::non_empty;

/// The folders that there are: `LMSTUDIO_MODELS`, the present one, the one of earlier versions.
pub(super) fn folders() -> Vec<PathBuf> {
    let all = match non_empty("LMSTUDIO_MODELS") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => dirs::home_dir()
            .into_iter()
            .flat_map(|home| [".lmstudio/models", ".cache/lm-studio/models"].map(|folder| home.join(folder)))
            .collect(),
    };
    all.into_iter().filter(|folder| folder.is_dir()).collect()
}

/// The files of a Hugging Face repository, where all of them are here.
pub(super) fn find(repo: &str, files: &[FileSpec]) -> Option<Vec<PathBuf>> {
    folders().into_iter().find_map(|folder| {
        let here = |file: &FileSpec| Some(folder.join(repo).join(&file.name)).filter(|path| is_complete(path, file));
        files.iter().map(here).collect()
    })
}

/// The files of one quantisation of a repository.
pub(super) fn find_quant(repo: &str, quant: &str) -> Option<Vec<PathBuf>> {
    folders().into_iter().find_map(|folder| {
        let folder = folder.join(repo);
        let entries = std::fs::read_dir(&folder).ok()?.flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let files = of_quant(&names, quant).ok()?;
        Some(files.into_iter().map(|name| folder.join(name)).collect())
    })
}

/// Every model there is, the first part of split ones: its address as on the hub, its file, its bytes.
pub(super) fn list() -> Vec<(String, PathBuf, u64)> {
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = folders().into_iter().flat_map(|root| {
        let files = below(root.clone()).flat_map(below).flat_map(below);
        files.map(move |file| (root.clone(), file)).collect::<Vec<_>>()
    });
    let mut all: Vec<(String, PathBuf, u64)> = Vec::new();
    for (root, file) in files {
        let own = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        if is_first(&own) && file.is_file() {
            all.push((own, file.clone(), bytes_of(&file)));
        }
    }
    all.sort();
    all
}
