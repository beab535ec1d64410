//! Which model drafts for which.

use std::cell::LazyCell;
use std::path::Path;

use super::gguf::Header;
use super::resolve::{Installed, Resolved, Resolver, Target};
use super::vocabulary::{Tokenizer, Vocabulary};
use crate::error::{Error, Result};
use crate::words::size;

/// The draft that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftWish {
    /// One that fits, if there is one on this disk.
    Auto,
    Off,
    /// A MODEL argument.
    Named(String),
}

impl DraftWish {
    /// As it is typed: `auto`, `off` or MODEL.
    pub fn from_word(word: &str) -> Self {
        match word {
            "auto" => Self::Auto,
            "off" => Self::Off,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// How much smaller a draft must be than its target where nobody named the two as a pair.
const TIMES_SMALLER: u64 = 4;

impl Resolver {
    /// The model that drafts for `target`. Nothing is fetched.
    ///
    /// A draft must have the target's vocabulary ([`Vocabulary::mismatch`]) and be smaller. `Auto` takes the one that the
    /// registry names for the target, else the smallest installed model with at most a quarter of the target's bytes.
    ///
    /// # Errors
    /// When the named draft is not on this disk or does not fit. `Auto` never fails: what cannot be read does not fit.
    pub fn draft_for(&self, target: &Resolved, wish: &DraftWish) -> Result<Option<Resolved>> {
        match wish {
            DraftWish::Off => Ok(None),
            DraftWish::Named(name) => self.named_draft(target, name).map(Some),
            DraftWish::Auto => Ok(self.fitting_draft(target)),
        }
    }

    fn named_draft(&self, target: &Resolved, name: &str) -> Result<Resolved> {
        let wanted = self.target(name).map_err(|error| error.hint("--draft takes auto, off or a model"))?;
        let draft = self.here(&wanted)?.ok_or_else(|| {
            let name = if let Target::Entry(entry) = &wanted { &entry.name } else { name };
            Error::model(format!("the draft {name} is not on this disk"))
                .hint(format!("get it with `qchat pull {name}`"))
        })?;
        match objection(target, &draft) {
            None => Ok(draft),
            Some(objection) => {
                Err(Error::model(format!("{} cannot draft for {}: {objection}", draft.name, target.name))
                    .hint("--draft auto picks one that fits"))
            }
        }
    }

    fn fitting_draft(&self, target: &Resolved) -> Option<Resolved> {
        let header = target.header.as_ref()?;
        let tokenizer = Tokenizer::of(header);
        let vocabulary = LazyCell::new(|| Vocabulary::read(&target.file, header).ok());
        let fitting = |draft: Installed<'_>| {
            let draft = self.entry_here(draft.entry).ok()??;
            // The header first: no start reads ten vocabularies.
            let header = draft.header.as_ref().filter(|header| tokenizer.mismatch(&Tokenizer::of(header)).is_none())?;
            let own = Vocabulary::read(&draft.file, header).ok()?;
            vocabulary.as_ref()?.mismatch(&own).is_none().then_some(draft)
        };
        let named = self.named_in_registry(target).filter(|draft| draft.bytes < target.bytes);
        named.and_then(fitting).or_else(|| {
            let mut small = self.installed();
            small.retain(|draft| draft.bytes <= target.bytes / TIMES_SMALLER);
            small.sort_by_key(|draft| draft.bytes);
            small.into_iter().find_map(fitting)
        })
    }

    /// The draft that the registry names for a model (also one that was named by its path), where it is on this disk.
    fn named_in_registry(&self, target: &Resolved) -> Option<Installed<'_>> {
        let by_path = || {
            let same =
                |installed: &Installed<'_>| installed.bytes == target.bytes && same(&installed.file, &target.file);
            self.installed().into_iter().find(same)?.entry.draft.as_ref()
        };
        let draft = target.entry.as_ref().map_or_else(by_path, |entry| entry.draft.as_ref())?;
        self.installed_entry(self.registry.find(draft).ok()?)
    }
}

/// Whether two paths are one file.
fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(a) == real(b)
}

/// What stands against a draft, in words.
fn objection(target: &Resolved, draft: &Resolved) -> Option<String> {
    if same(&target.file, &draft.file) {
        return Some("it is the same model".into());
    }
    let (own, other) = match (&target.header, &draft.header) {
        (Some(own), Some(other)) => (own, other),
        // All scripts have the same tokens, and no size.
        (None, None) => return None,
        _ => return Some("one of them is a script".into()),
    };
    if draft.bytes >= target.bytes {
        return Some(format!("it is not smaller ({}, the target {})", size(draft.bytes), size(target.bytes)));
    }
    let read = |model: &Resolved, header: &Header| {
        let vocabulary = Vocabulary::read(&model.file, header);
        vocabulary.map_err(|error| format!("the tokens of {} cannot be read: {error}", model.name))
    };
    match (read(target, own), read(draft, other)) {
        (Ok(target), Ok(draft)) => target.mismatch(&draft).map(|mismatch| mismatch.to_string()),
        (Err(error), _) | (_, Err(error)) => Some(error),
    }
}
