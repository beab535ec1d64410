//! `qchat pull`: models onto this disk.

use std::process::ExitCode;

use crate::cli::{PullArgs, SourceKind};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::models::fetch::{Fetcher, Only};
use crate::models::{Registry, Resolver, Target};
use crate::paths::Paths;
use crate::ui::output::Terminal;
use crate::ui::progress::Downloads;

pub(super) fn run(args: &PullArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let interrupt = Interrupt::on_ctrl_c()?;
    let paths = Paths::from_env()?;
    let registry = Registry::load(&paths.user_registry())?;
    let resolver = Resolver { registry: &registry, paths: &paths };
    let targets = args.models.iter().map(|model| resolver.target(model)).collect::<Result<Vec<Target>>>()?;
    let only = match args.source {
        None => Only::Any,
        Some(SourceKind::Hf) => Only::Hf,
        Some(SourceKind::Pip) => Only::Pip,
    };
    let mut progress = Downloads::new(terminal);
    let mut fetcher = Fetcher { progress: &mut progress, interrupt: &interrupt, only };
    for target in targets {
        let resolved = resolver.resolve(&target, &mut fetcher)?;
        terminal.status(&format!("{} is here: {}", resolved.name, resolved.file.display()));
    }
    Ok(ExitCode::SUCCESS)
}
