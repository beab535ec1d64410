//! `qchat show`: a model's file, and what is cached of its prompts.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::cache::ago;
use crate::cli::ShowArgs;
use crate::error::{Error, Result};
use crate::models::{Header, Identity, Needs, Registry, Resolver, Target};
use crate::paths::Paths;
use crate::prefix::{Bounds, Inventory, Store};
use crate::ui::output::{self, Terminal};

pub(super) fn run(args: &ShowArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    let registry = Registry::load(&paths.user_registry())?;
    let resolver = Resolver { registry: &registry, paths: &paths };
    let target = resolver.target(&args.model)?;
    let model = resolver.here(&target)?.ok_or_else(|| {
        let name = if let Target::Entry(entry) = &target { &entry.name } else { &args.model };
        Error::model(format!("{name} is not on this disk")).hint(format!("get it with `qchat pull {name}`"))
    })?;
    let mut out = String::new();
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(out, "{what:<15} {value}");
    };
    line("name", &model.name);
    line("file", &model.file.display().to_string());
    line("size", &format!("{:.2} GB", model.bytes as f64 / 1e9));
    if let Some(quant) = &model.quant {
        line("quantisation", quant);
    }
    if let Some(header) = &model.header {
        line("architecture", header.architecture().unwrap_or("?"));
        line("context", &header.own("context_length").map_or_else(|| "?".into(), |tokens| format!("{tokens} tokens")));
        line("template", if header.chat_template().is_some() { "its own" } else { "none" });
    }
    if let Some(needs) = Needs::of(&model) {
        let context = model.header.as_ref().and_then(Header::context).unwrap_or(4096).min(4096);
        line("KV", &format!("{} bytes a token", needs.kv_per_token));
        line("memory", &format!("{:.2} GB with {context} tokens of context", needs.at(context) as f64 / 1e9));
    }
    for cached in prefix_lines(&paths, &model) {
        line("prefix cache", &cached);
    }
    output::print_clean(&terminal, &out)?;
    Ok(ExitCode::SUCCESS)
}

/// What is cached of this model's prompts, and what that saved.
fn prefix_lines(paths: &Paths, model: &crate::models::Resolved) -> Vec<String> {
    let content = Identity::of(model).and_then(|files| files.known(&paths.identities()));
    let store = Store::new(paths.prefixes(), Bounds::default());
    let inventory = Inventory::of(store.root());
    let own =
        inventory.about.iter().filter(|(_, about)| about.key.as_ref().map(|key| &key.content) == content.as_ref());
    let usage = store.usage(&inventory);
    let mut lines = Vec::new();
    for (state, about) in own.filter(|_| content.is_some()) {
        let Some(used) = usage.get(state) else { continue };
        lines.push(format!(
            "{} tokens in {} blocks, {}, used {}",
            used.tokens,
            used.blocks,
            bytesize::ByteSize(used.bytes),
            ago(used.used)
        ));
        if about.spared.times > 0 {
            lines.push(format!(
                "{} tokens came from it in {} answers, which saved about {:.1} s of reading",
                about.spared.tokens, about.spared.times, about.spared.seconds
            ));
        }
    }
    if lines.is_empty() { vec!["nothing".into()] } else { lines }
}
