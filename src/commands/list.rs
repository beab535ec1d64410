//! `qchat list`: models on this disk, and models that can be pulled.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::{ListArgs, ListFormat};
use crate::engine::llama::free_device_memory;
use crate::error::Result;
use crate::models::{Registry, Resolver, Source, available};
use crate::paths::Paths;
use crate::ui::output::{self, Terminal};

/// What a model takes beside its weights, about: a small context, buffers, the program.
const BESIDE: u64 = 500_000_000;

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    let registry = Registry::load(&paths.user_registry())?;
    let resolver = Resolver { registry: &registry, paths: &paths };
    let free = free_device_memory().or_else(available);
    let mut rows = Vec::new();
    let installed = resolver.installed();
    for entry in registry.entries() {
        let here = installed.iter().find(|installed| installed.entry.name == entry.name);
        let source = entry.sources.first();
        let bytes = here.map_or_else(|| source.map_or(0, Source::bytes), |here| here.bytes);
        let quant = here.and_then(|here| here.quant.clone()).or_else(|| source.and_then(|source| source.quant.clone()));
        rows.push(json!({
            "name": entry.name,
            "bytes": (bytes > 0).then_some(bytes),
            "quantisation": quant,
            "where": if here.is_some() { "here" } else { "available" },
            "file": here.map(|here| &here.file),
            "fits": fits(bytes, free),
            "draft": entry.draft,
        }));
    }
    for own in resolver.elsewhere() {
        rows.push(json!({
            "name": own.name,
            "bytes": own.bytes,
            "quantisation": null,
            "where": own.owner.unwrap_or("here"),
            "file": own.file,
            "fits": fits(own.bytes, free),
            "draft": null,
        }));
    }
    // What is here first.
    rows.sort_by_key(|row| row["where"] == "available");
    match args.output {
        ListFormat::Json => output::print(&format!("{}\n", output::json_line(&json!(rows))))?,
        ListFormat::Text => {
            terminal.detail("name, size, quantisation, where it is, whether memory holds it, its draft");
            output::print_clean(&terminal, &rows.iter().map(line).collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether memory holds a model now; not known where its size or the memory is not.
fn fits(bytes: u64, free: Option<u64>) -> Option<bool> {
    free.filter(|_| bytes > 0).map(|free| bytes + bytes / 20 + BESIDE <= free)
}

fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let size = row["bytes"].as_u64().map_or_else(|| "?".into(), |bytes| format!("{:.1} GB", bytes as f64 / 1e9));
    let fits = if row["fits"] == false { "too large" } else { "" };
    let place = if text("where") == "available" { "" } else { text("where") };
    let mut line = String::new();
    let _ = write!(
        line,
        "{:<28} {size:>8}  {:<8} {place:<12} {fits:<9} {}",
        text("name"),
        text("quantisation"),
        text("draft")
    );
    format!("{}\n", line.trim_end())
}
