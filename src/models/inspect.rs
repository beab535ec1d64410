//! What is known of a model's files before the engine sees them.

use std::path::{Path, PathBuf};

use super::gguf::{Header, HeaderError};
use crate::error::{Error, Result};

/// What helps against a damaged file.
pub(super) const AGAIN: &str = "download it again (`qchat rm MODEL`, then `qchat pull MODEL`, if qchat fetched it)";

/// The header of a file that the engine can be trusted with: it parses headers itself, but some mistakes make it end the
/// process. None for a script of the scripted engine.
///
/// # Errors
/// When the file is no model that writes text.
pub(super) fn usable(file: &Path) -> Result<Option<Header>> {
    let shown = file.display();
    #[cfg(feature = "scripted")]
    if file.extension().is_some_and(|extension| extension == "script") {
        return Ok(None);
    }
    if !file.exists() {
        return Err(Error::model(format!("{shown} does not exist")).hint("`qchat list` shows the models that are here"));
    }
    if file.is_dir() {
        return Err(Error::model(format!("{shown} is a directory")).hint("name the .gguf file in it"));
    }
    let header = Header::read(file).map_err(|error| unusable(file, &error))?;
    if header.architecture().is_none() || header.tensors == 0 {
        return Err(Error::model(format!("{shown} is a GGUF without a model in it")).hint("`qchat list` shows models"));
    }
    let architecture = header.architecture().unwrap_or_default();
    if !generates_text(architecture) {
        let message = format!("{shown} holds a {architecture} model, which does not write text");
        return Err(Error::model(message).hint("take a text generation model; `qchat list` shows some"));
    }
    // The binding takes a context for an i32.
    let context = header.unsigned(&format!("{architecture}.context_length"));
    if let Some(context) = context.filter(|n| i32::try_from(*n).is_err()) {
        let message = format!("{shown} is not a usable GGUF: it claims a context of {context} tokens");
        return Err(Error::model(message).hint(AGAIN));
    }
    let first = header.unsigned("split.no").unwrap_or(0) == 0;
    if header.splits() > 1 && !first {
        return Err(Error::model(format!("{shown} is a later part of a split model"))
            .hint(format!("name its first part (-00001-of-{:05})", header.splits())));
    }
    Ok(Some(header))
}

/// Why a header cannot be used, and what may help.
fn unusable(file: &Path, error: &HeaderError) -> Error {
    let own = Error::model(format!("{} is not a usable GGUF: {error}", file.display()));
    let says_gguf = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    match error {
        HeaderError::Io(_) => own,
        HeaderError::NotGguf if !says_gguf => {
            own.hint("name a .gguf file; `qchat list` shows the models that are here")
        }
        HeaderError::Version(_) => own.hint("take another file of the model, or update qchat (`qchat --version`)"),
        _ => own.hint(AGAIN),
    }
}

/// The files of a model of so many, of which the first is named.
pub(super) fn parts(first: &Path, splits: u64) -> Vec<PathBuf> {
    let name = first.file_name().unwrap_or_default().to_string_lossy();
    // NAME-00001-of-00003.gguf and so on, beside each other: so llama.cpp looks for them, and only where the name says as
    // many as the header.
    let said = |rest: &str| rest.split_once('.').and_then(|(count, _)| count.parse().ok()) == Some(splits);
    match name.rsplit_once("-00001-of-") {
        Some((stem, rest)) if splits > 1 && said(rest) => {
            let part = |number| first.with_file_name(format!("{stem}-{number:05}-of-{rest}"));
            (1..=splits).map(part).collect()
        }
        _ => vec![first.to_owned()],
    }
}

/// Their bytes; those that are not there count nothing.
pub(super) fn bytes(first: &Path, splits: u64) -> u64 {
    parts(first, splits).iter().map(|file| file.metadata().map_or(0, |meta| meta.len())).sum()
}

/// Encoders, vision projectors and speech parts are GGUF files too, and the engine would end the process on some.
fn generates_text(architecture: &str) -> bool {
    let others = ["clip", "t5", "t5encoder", "wavtokenizer-dec", "gemma-embedding", "llama-embed"];
    !architecture.contains("bert") && !others.contains(&architecture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_split_model_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![0; bytes]).unwrap();
            path
        };
        let first = write("m-00001-of-00003.gguf", 5);
        write("m-00002-of-00003.gguf", 7);
        assert_eq!(bytes(&first, 3), 12, "one is missing");
        write("m-00003-of-00003.gguf", 11);
        assert_eq!(bytes(&first, 3), 23);
        assert_eq!(bytes(&first, 1), 5);
        assert_eq!(bytes(&first, u64::MAX), 5, "a header that claims other parts than its name");
        assert_eq!(bytes(&write("m.gguf", 3), 3), 3);
    }
}
