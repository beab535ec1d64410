//! `qchat list`: models on this disk, and models that can be pulled.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::cli::ListArgs;
use crate::error::Result;
use crate::models::{Registry, Resolver, Source};
use crate::paths::Paths;
use crate::ui::output;
use crate::ui::output::Terminal;

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    let registry = Registry::load(&paths.user_registry())?;
    let resolver = Resolver { registry: &registry, paths: &paths };
    let installed = resolver.installed();
    let mut out = String::new();
    for entry in registry.entries() {
        let here = installed.iter().find(|installed| installed.entry.name == entry.name);
        let source = entry.sources.first();
        let bytes = here.map_or_else(|| source.map_or(0, Source::bytes), |here| here.bytes);
        let quant = here.and_then(|here| here.quant.clone()).or_else(|| source.and_then(|source| source.quant.clone()));
        let size = if bytes > 0 { format!("{:.1} GB", bytes as f64 / 1e9) } else { "?".into() };
        let state = if here.is_some() { "here" } else { "" };
        let draft = entry.draft.as_deref().unwrap_or("");
        let _ = writeln!(out, "{:<28} {size:>8}  {:<8} {state:<5} {draft}", entry.name, quant.unwrap_or_default());
    }
    terminal.detail("name, size, quantisation, whether it is on this disk, its draft");
    output::print(&out)?;
    Ok(ExitCode::SUCCESS)
}
