//! `qchat` alone.

use std::process::ExitCode;

use crate::error::Result;
use crate::models::Registry;
use crate::paths::Paths;
use crate::ui::output::{self, size};

/// What this is, in ten lines, with one to copy.
pub(super) fn run() -> Result<ExitCode> {
    // Somebody who asks what this is should not be told that a file of theirs is wrong.
    let registry = Paths::from_env().and_then(|paths| Registry::load(&paths.user_registry())).ok();
    let name = registry.as_ref().map_or("MODEL", |registry| registry.default_model.as_str());
    let bytes = registry.as_ref().and_then(|registry| registry.find(name).ok()?.bytes());
    let bytes = bytes.map_or_else(String::new, |bytes| format!(" ({}, once)", size(bytes)));
    output::print(&format!(
        "qchat talks with GGUF models: in a terminal, through a pipe, in a script.

    qchat run {name}

fetches a model{bytes} and talks with it. Then

    qchat run {name} \"Why is the sky blue?\"
    git diff | qchat run {name} \"Review this.\"
    qchat list       (models that are here, and that can be had)

`qchat --help` has the other commands, `qchat run --help` the flags.
"
    ))?;
    Ok(ExitCode::SUCCESS)
}
