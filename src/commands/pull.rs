//! `qchat pull`: models onto this disk, each with the one that drafts for it.

use std::process::ExitCode;

use crate::cli::{PullArgs, SourceKind};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;
use crate::models::fetch::{self, Fetcher, Only};
use crate::models::{Registry, Resolver, Target};
use crate::paths::Paths;
use crate::ui::output::{Terminal, size};
use crate::ui::progress::Downloads;

pub(super) fn run(args: &PullArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let interrupt = Interrupt::on_ctrl_c()?;
    let resolver = Resolver::new(Paths::from_env()?)?;
    // Every name is known before the first byte comes.
    let mut targets = args.models.iter().map(|model| resolver.target(model)).collect::<Result<Vec<Target>>>()?;
    if !args.no_draft {
        for draft in targets.iter().filter_map(|target| draft_of(&resolver.registry, target)).collect::<Vec<_>>() {
            if !targets.contains(&draft) {
                targets.push(draft);
            }
        }
    }
    let only = match args.source {
        None => Only::Any,
        Some(SourceKind::Hf) => Only::Hf,
        Some(SourceKind::Pip) => Only::Pip,
    };
    let mut progress = Downloads::new(terminal);
    let mut fetcher = Fetcher { progress: &mut progress, interrupt: &interrupt, only };
    let mut failed: Vec<Error> = Vec::new();
    let mut total = Some(0);
    for target in &targets {
        let done = if args.dry_run {
            would_pull(&resolver, target, &mut fetcher, &terminal)
                .map(|bytes| total = total.zip(bytes).map(|(a, b)| a + b))
        } else {
            resolver.resolve(target, &mut fetcher).map(|resolved| {
                terminal.status(&format!("{} is here: {}", resolved.name, resolved.file.display()));
            })
        };
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            // The others are fetched all the same.
            Err(error) => failed.push(error),
        }
    }
    if args.dry_run && failed.is_empty() && targets.len() > 1 {
        let size = total.map_or_else(|| "an unknown size".into(), size);
        terminal.reply(&format!("{size} in all"));
    }
    let last = failed.pop();
    failed.iter().for_each(crate::ui::output::report);
    last.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The draft that the registry names for a model, where it can be had.
fn draft_of(registry: &Registry, target: &Target) -> Option<Target> {
    let Target::Entry(entry) = target else { return None };
    let draft = registry.find(entry.draft.as_deref()?).ok()?;
    (!draft.sources.is_empty()).then(|| Target::Entry(Box::new(draft.clone())))
}

/// Says what fetching would bring; answers how many bytes.
fn would_pull(resolver: &Resolver, target: &Target, fetcher: &mut Fetcher, terminal: &Terminal) -> Result<Option<u64>> {
    if let Some(here) = resolver.here(target)? {
        terminal.reply(&format!("{} is here: {}", here.name, here.file.display()));
        return Ok(Some(0));
    }
    let Target::Entry(entry) = target else { return Ok(Some(0)) };
    let (from, bytes) = fetch::would_fetch(entry, &resolver.paths, fetcher)?;
    terminal.reply(&format!("{}: {} from {from}", entry.name, bytes.map_or_else(|| "unknown size".into(), size)));
    Ok(bytes)
}
