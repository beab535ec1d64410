//! The user's editor: $VISUAL, else $EDITOR, else vi, with a text in it.

use std::process::Command;

use crate::error::{Error, Result};
use crate::paths::non_empty;

/// The text as it was left; nothing where the editor was left without saving anything.
///
/// # Errors
/// When there is no such editor, it fails, or leaves what is no text.
pub fn edit(text: &str) -> Result<Option<String>> {
    let editor = non_empty("VISUAL").or_else(|| non_empty("EDITOR")).unwrap_or_else(|| "vi".into());
    let folder = tempfile::tempdir().map_err(Error::failed)?;
    let file = folder.path().join("message.md");
    std::fs::write(&file, text).map_err(Error::failed)?;
    // A shell, since editors are named with arguments: `code --wait`, `emacs -nw`.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "qchat"]).arg(&file).status();
    let status = status.map_err(|error| {
        Error::failed(format!("the editor cannot be started: {error}")).hint("set VISUAL or EDITOR")
    })?;
    if !status.success() {
        return Err(
            Error::failed(format!("the editor '{editor}' failed")).hint("set VISUAL or EDITOR to one that is here")
        );
    }
    let edited = std::fs::read_to_string(&file)
        .map_err(|error| Error::failed(format!("the message cannot be read: {error}")).hint("save it as UTF-8"))?;
    let edited = edited.trim_end_matches(['\n', '\r']).to_owned();
    Ok((!edited.trim().is_empty() && edited != text).then_some(edited))
}
