//! `qchat rm`: models that qchat fetched, and nothing else.

use std::process::ExitCode;

use crate::cli::RmArgs;
use crate::error::{Error, Result};
use crate::models::{Receipt, Resolver, Target};
use crate::paths::Paths;
use crate::ui::input;
use crate::ui::output::{Terminal, size};

pub(super) fn run(args: &RmArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let resolver = Resolver::new(Paths::from_env()?)?;
    // All or none: what must not go is said before anything goes.
    let mut receipts = args.models.iter().map(|model| receipt(&resolver, model)).collect::<Result<Vec<_>>>()?;
    receipts.sort_by(|a, b| a.name.cmp(&b.name));
    receipts.dedup();
    for receipt in &receipts {
        let removal = receipt.removal();
        let size = size(removal.bytes);
        if args.dry_run {
            terminal.reply(&format!("{} ({size}):", receipt.name));
            removal.files.iter().for_each(|file| terminal.reply(&format!("  {}", file.display())));
            continue;
        }
        let question = format!("delete {} ({size})?", receipt.name);
        if !args.yes && input::stdin_is_terminal() && !input::confirms(&question)? {
            terminal.reply(&format!("{} stays", receipt.name));
            continue;
        }
        receipt.remove(&resolver.paths)?;
        terminal.reply(&format!("{} is deleted ({size})", receipt.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// The receipt of a model, or why it stays.
fn receipt(resolver: &Resolver, model: &str) -> Result<Receipt> {
    let target = resolver.target(model)?;
    let Target::Entry(entry) = &target else {
        return Err(yours(model));
    };
    let receipt = Receipt::read(&resolver.paths, &entry.name).filter(|receipt| !receipt.removal().files.is_empty());
    let own_folder = resolver.paths.models().join(&entry.name);
    let here = if receipt.is_some() { None } else { resolver.here(&target)? };
    // It may have been fetched under another name: by its address, or before the registry had it.
    let receipt = receipt.or_else(|| Receipt::of_files(&resolver.paths, &here.as_ref()?.files()));
    match (receipt, here) {
        (Some(receipt), _) => Ok(receipt),
        // Fetched before there were receipts: the folder is qchat's own.
        (None, Some(here)) if here.file.starts_with(&own_folder) => {
            Ok(Receipt { name: entry.name.clone(), files: here.files().into_iter().collect(), ..Receipt::default() })
        }
        (None, Some(here)) if entry.has_path(&here.file) => Err(yours(&here.file.display().to_string())),
        (None, Some(here)) => Err(Error::usage(format!(
            "{} was fetched by another program and stays: {}",
            entry.name,
            here.file.display()
        ))
        .hint("delete it with that program")),
        (None, None) => {
            Err(Error::usage(format!("{} is not on this disk", entry.name)).hint("`qchat list` shows what is"))
        }
    }
}

fn yours(file: &str) -> Error {
    Error::usage(format!("{file} is a file of yours and stays"))
        .hint("qchat deletes only what it fetched; delete this one as any other file")
}
