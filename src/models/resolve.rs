//! From what was typed as MODEL to files on this disk.

use std::path::{Path, PathBuf};

use super::fetch::{self, Fetcher};
use super::gguf::Header;
use super::hub::{self, DEFAULT_QUANT, HubRepo, is_complete};
use super::inspect;
use super::lmstudio;
use super::ollama::{self, Ollama};
use super::receipts::Receipt;
use super::registry::{Entry, FileSpec, Registry, Source};
use crate::error::{Error, Result};
use crate::paths::{Paths, expand_home};

/// What a MODEL argument means.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A .gguf on this disk.
    Path(PathBuf),
    /// A registry entry.
    Entry(Box<Entry>),
}

/// A model whose files are here.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub name: String,
    pub entry: Option<Entry>,
    /// The file to load: the only one, or the first of a split model.
    pub file: PathBuf,
    pub quant: Option<String>,
    /// What the file says; none for a script of the scripted engine.
    pub header: Option<Header>,
    /// Of all its files together.
    pub bytes: u64,
}

/// A registry entry found on this disk.
#[derive(Clone, Debug)]
pub struct Installed<'a> {
    pub entry: &'a Entry,
    pub file: PathBuf,
    pub bytes: u64,
    pub quant: Option<String>,
}

/// A model that no registry entry means.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// What `qchat run` takes for it.
    pub name: String,
    pub file: PathBuf,
    pub bytes: u64,
    /// The program that keeps it; none for what qchat fetched.
    pub owner: Option<&'static str>,
}

/// Finds models.
pub struct Resolver {
    pub registry: Registry,
    pub paths: Paths,
}

impl Resolver {
    /// Over the shipped registry and the user's.
    ///
    /// # Errors
    /// When the user's has a mistake.
    pub fn new(paths: Paths) -> Result<Self> {
        Ok(Self { registry: Registry::load(&paths.user_registry())?, paths })
    }

    /// What `model` names. Looks nothing up on a network.
    ///
    /// # Errors
    /// When it is no path, no address and no known name.
    pub fn target(&self, model: &str) -> Result<Target> {
        if let Some(address) = model.strip_prefix("hf:") {
            return Ok(Target::Entry(Box::new(hf_entry(address)?)));
        }
        if let Some(address) = model.strip_prefix("ollama:") {
            return Ok(Target::Entry(Box::new(ollama::find(address)?)));
        }
        let path = expand_home(model);
        let looks_like_path = model.contains(['/', '\\']) || model.to_lowercase().ends_with(".gguf");
        if looks_like_path || path.is_file() {
            return Ok(Target::Path(path));
        }
        Ok(Target::Entry(Box::new(self.registry.find(model)?.clone())))
    }

    /// The model that is meant where none is named: the configured one, else the only installed one, else the default.
    pub fn default_name(&self, configured: Option<&str>) -> String {
        if let Some(name) = configured {
            return name.to_owned();
        }
        let mut installed = self.installed();
        match (installed.len(), installed.pop()) {
            (1, Some(only)) => only.entry.name.clone(),
            _ => self.registry.default_model.clone(),
        }
    }

    /// The entries whose files are on this disk.
    pub fn installed(&self) -> Vec<Installed<'_>> {
        self.registry.entries().iter().filter_map(|entry| self.installed_entry(entry)).collect()
    }

    pub(super) fn installed_entry<'e>(&self, entry: &'e Entry) -> Option<Installed<'e>> {
        let (source, files) = self.on_disk(entry)?;
        let file = files.into_iter().next()?;
        Some(Installed { entry, bytes: hub::bytes_of(&file), file, quant: source.quant.clone() })
    }

    /// The files of `target`, fetched where they are missing.
    ///
    /// # Errors
    /// When they cannot be had, or the file is not a usable GGUF.
    pub fn resolve(&self, target: &Target, fetcher: &mut Fetcher) -> Result<Resolved> {
        match target {
            Target::Path(path) => Resolved::of_path(path),
            Target::Entry(entry) => {
                let fetched = || {
                    let (source, files) = fetch::fetch(entry, &self.paths, fetcher)?;
                    Resolved::of_entry(entry, &source, files)
                };
                self.entry_here(entry)?.map_or_else(fetched, Ok)
            }
        }
    }

    /// The same without fetching: none for an entry whose files are not on this disk.
    ///
    /// # Errors
    /// When the file is not there, or is not a usable GGUF.
    pub fn here(&self, target: &Target) -> Result<Option<Resolved>> {
        match target {
            Target::Path(path) => Resolved::of_path(path).map(Some),
            Target::Entry(entry) => self.entry_here(entry),
        }
    }

    pub(super) fn entry_here(&self, entry: &Entry) -> Result<Option<Resolved>> {
        let here = self.on_disk(entry);
        here.map(|(source, files)| Resolved::of_entry(entry, source, files)).transpose()
    }

    /// The first source whose files are all here.
    fn on_disk<'e>(&self, entry: &'e Entry) -> Option<(&'e Source, Vec<PathBuf>)> {
        entry.sources.iter().find_map(|source| Some((source, self.files_of(entry, source)?)))
    }

    /// In the Hugging Face cache, in LM Studio's folder, among Ollama's blobs, in qchat's own folder: the first place that has
    /// all of them.
    fn files_of(&self, entry: &Entry, source: &Source) -> Option<Vec<PathBuf>> {
        if let Some(path) = &source.path {
            return Some(vec![expand_home(path)]).filter(|paths| paths[0].exists());
        }
        let revision = source.revision.as_deref();
        match &source.hf {
            Some(repo) if source.files.is_empty() => {
                let quant = source.quant.as_deref().unwrap_or(DEFAULT_QUANT);
                let hub = HubRepo::new(&self.paths.hugging_face(), repo).find_quant(revision, quant);
                // A repository may have no such quantisation: then what was picked when it was fetched.
                let picked = || {
                    let files = Receipt::read(&self.paths, &entry.name)?.all_files();
                    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                    let here = hub::is_one_model(&names) && files.iter().all(|file| file.is_file());
                    (source.quant.is_none() && here).then_some(files)
                };
                hub.or_else(|| lmstudio::find_quant(repo, quant)).or_else(picked).filter(|files| !files.is_empty())
            }
            Some(repo) => {
                let hub = HubRepo::new(&self.paths.hugging_face(), repo).find(revision, &source.files);
                hub.or_else(|| lmstudio::find(repo, &source.files)).or_else(|| blobs_of_ollama(&source.files))
            }
            None if source.files.is_empty() => None,
            None => {
                let folder = self.paths.models().join(&entry.name);
                let file = |spec: &FileSpec| Some(folder.join(&spec.name)).filter(|path| is_complete(path, spec));
                source.files.iter().map(file).collect::<Option<_>>().or_else(|| blobs_of_ollama(&source.files))
            }
        }
    }

    /// Models on this disk that no registry entry means, by the name that reaches them.
    pub fn elsewhere(&self) -> Vec<Elsewhere> {
        let known: Vec<PathBuf> = self.installed().into_iter().filter_map(|own| own.file.canonicalize().ok()).collect();
        let mut all: Vec<Elsewhere> = Vec::new();
        for (name, file, bytes) in Ollama::all().iter().flat_map(Ollama::list) {
            all.push(Elsewhere { name: format!("ollama:{name}"), file, bytes, owner: Some("Ollama") });
        }
        for (address, file, bytes) in lmstudio::list() {
            // Its address where that reaches it, which is half as long as its path.
            let reaches = |entry: &Entry| self.on_disk(entry).is_some_and(|(_, files)| files.first() == Some(&file));
            let name = hf_entry(&address).ok().filter(reaches).map(|entry| entry.name);
            let name = name.unwrap_or_else(|| file.display().to_string());
            all.push(Elsewhere { name, file, bytes, owner: Some("LM Studio") });
        }
        let fetched: Vec<Receipt> = Receipt::all(&self.paths);
        for (name, file, bytes) in hub::list(&self.paths.hugging_face()) {
            let is_own = fetched.iter().any(|receipt| receipt.files.contains(&file));
            all.push(Elsewhere { name, file, bytes, owner: (!is_own).then_some("Hugging Face") });
        }
        all.retain(|own| own.file.canonicalize().is_ok_and(|file| !known.contains(&file)));
        all
    }
}

/// Files by their digests among what Ollama has; a split model's parts must lie beside each other, which blobs do not.
fn blobs_of_ollama(files: &[FileSpec]) -> Option<Vec<PathBuf>> {
    let [file] = files else { return None };
    let digest = file.sha256.as_deref()?;
    Ollama::all().iter().find_map(|own| own.blob_of(digest, file.bytes)).map(|blob| vec![blob])
}

impl Resolved {
    /// All its files.
    pub fn files(&self) -> Vec<PathBuf> {
        inspect::parts(&self.file, self.header.as_ref().map_or(1, Header::splits))
    }

    fn of_path(path: &Path) -> Result<Self> {
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Self::new(name, None, path.to_owned(), None)
    }

    fn of_entry(entry: &Entry, source: &Source, files: Vec<PathBuf>) -> Result<Self> {
        let file = files.into_iter().next().ok_or_else(|| Error::model(format!("{} names no file", entry.name)))?;
        Self::new(entry.name.clone(), Some(entry.clone()), file, source.quant.clone())
    }

    fn new(name: String, entry: Option<Entry>, file: PathBuf, quant: Option<String>) -> Result<Self> {
        let header = inspect::usable(&file)?;
        let bytes = inspect::bytes(&file, header.as_ref().map_or(1, Header::splits));
        Ok(Self { name, entry, file, quant, header, bytes })
    }
}

/// An entry made of `owner/repo/FILE.gguf` or `owner/repo[:QUANT]`.
fn hf_entry(address: &str) -> Result<Entry> {
    let bad = || {
        Error::usage(format!("'hf:{address}' is not an address"))
            .hint("write hf:owner/repo, hf:owner/repo:QUANT or hf:owner/repo/FILE.gguf")
    };
    let mut parts = address.splitn(3, '/');
    let (Some(owner), Some(repo)) = (parts.next(), parts.next()) else {
        return Err(bad());
    };
    let (repo, quant) = repo.split_once(':').map_or((repo, None), |(repo, quant)| (repo, Some(quant.to_owned())));
    let plain = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if !plain(owner) || !plain(repo) {
        return Err(bad());
    }
    let files = match parts.next() {
        Some(file) if !file.to_lowercase().ends_with(".gguf") || file.split('/').any(|part| !plain(part)) => {
            return Err(bad());
        }
        Some(file) => vec![FileSpec { name: file.to_owned(), bytes: None, sha256: None }],
        None => Vec::new(),
    };
    let source = Source { hf: Some(format!("{owner}/{repo}")), quant, files, ..Source::default() };
    Ok(Entry { name: format!("hf:{address}"), sources: vec![source], ..Entry::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_they_become_paths() {
        assert!(hf_entry("owner/repo").is_ok());
        assert_eq!(hf_entry("o/r:Q8_0").unwrap().sources[0].quant.as_deref(), Some("Q8_0"));
        assert_eq!(hf_entry("o/r/sub/f.gguf").unwrap().sources[0].files[0].name, "sub/f.gguf");
        for bad in ["", "owner", "owner/", "/repo", "../x", "o/r/../f.gguf", "o/r/f.txt", "o/r/a//f.gguf", "o\\x/r"] {
            assert!(hf_entry(bad).is_err(), "{bad}");
        }
    }
}
