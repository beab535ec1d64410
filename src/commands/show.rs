//! `qchat show`: a model's file, from its header alone, and what is cached of its prompts.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::cache::ago;
use super::free_memory;
use super::sheet::Sheet;
use crate::cli::ShowArgs;
use crate::engine::KvType;
use crate::error::{Error, Result};
use crate::models::{Facts, Identity, Needs, Resolved, Resolver, Target, type_name};
use crate::paths::Paths;
use crate::prefix::{Bounds, Inventory, Store};
use crate::ui::output::{self, Terminal, size};

/// The context that memory is stated for, where the model takes it.
const CONTEXT: usize = 4096;

pub(super) fn run(args: &ShowArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let resolver = Resolver::new(Paths::from_env()?)?;
    let target = resolver.target(&args.model)?;
    let model = resolver.here(&target)?.ok_or_else(|| {
        let name = if let Target::Entry(entry) = &target { &entry.name } else { &args.model };
        Error::model(format!("{name} is not on this disk")).hint(format!("get it with `qchat pull {name}`"))
    })?;
    let mut sheet = Sheet::default();
    sheet.fact("name", &model.name, "name", json!(model.name));
    sheet.fact("file", &model.file.display().to_string(), "file", json!(model.file));
    sheet.fact("size", &size(model.bytes), "bytes", json!(model.bytes));
    if let Some(quant) = &model.quant {
        sheet.fact("quantisation", quant, "quantisation", json!(quant));
    }
    if let Some(facts) = Facts::of(&model)? {
        from_header(&mut sheet, &facts);
    }
    memory(&mut sheet, &model);
    let licence = model.entry.as_ref().and_then(|entry| entry.licence.clone());
    let own = || model.header.as_ref()?.text("general.license").map(str::to_owned);
    if let Some(licence) = licence.or_else(own) {
        sheet.fact("licence", &licence, "licence", json!(licence));
    }
    if let Some(draft) = model.entry.as_ref().and_then(|entry| entry.draft.as_ref()) {
        let here = resolver
            .registry
            .find(draft)
            .is_ok_and(|draft| resolver.installed().iter().any(|own| own.entry.name == draft.name));
        let words = if here { draft.clone() } else { format!("{draft} (not here; `qchat pull {draft}`)") };
        sheet.fact("draft", &words, "draft", json!(draft));
    }
    cached(&mut sheet, &resolver.paths, &model);
    sheet.print(&terminal, args.output)?;
    Ok(ExitCode::SUCCESS)
}

fn from_header(sheet: &mut Sheet, facts: &Facts) {
    sheet.fact("architecture", &facts.architecture, "architecture", json!(facts.architecture));
    let parameters = facts.census.all.elements;
    sheet.fact("parameters", &count(parameters), "parameters", json!(parameters));
    let mut types: Vec<_> = facts.census.types.iter().map(|(kind, tally)| (type_name(*kind), *tally)).collect();
    types.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.bytes));
    let words = types.iter().map(|(name, tally)| {
        format!("{name} {} in {}", size(tally.bytes), output::count(tally.tensors as usize, "tensor"))
    });
    let object: Map<String, Value> = types
        .iter()
        .map(|(name, tally)| (name.clone(), json!({ "tensors": tally.tensors, "bytes": tally.bytes })))
        .collect();
    sheet.fact("tensors", &words.collect::<Vec<_>>().join("\n"), "tensor_types", Value::Object(object));
    sheet.fact("read a token", &size(facts.read_per_token), "bytes_read_per_token", json!(facts.read_per_token));
    if let Some(context) = facts.context {
        sheet.fact("context", &format!("{context} tokens"), "context", json!(context));
    }
    sheet.fact("template", &facts.template, "template", json!(facts.template));
    sheet.fact("tokenizer", &facts.tokenizer, "tokenizer", json!(facts.tokenizer));
}

fn memory(sheet: &mut Sheet, model: &Resolved) {
    let Some(needs) = Needs::of(model) else { return };
    let of_type = |kv: KvType| (kv.name().to_owned(), needs.with_kv(kv.bytes()).kv_per_token);
    let kv: Vec<(String, u64)> = KvType::ALL.into_iter().map(of_type).collect();
    let words = kv.iter().map(|(name, bytes)| format!("{name} {:.1} KiB", *bytes as f64 / 1024.0));
    let object: Map<String, Value> = kv.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
    sheet.fact("KV a token", &words.collect::<Vec<_>>().join(", "), "kv_bytes_per_token", Value::Object(object));
    let context = model.header.as_ref().and_then(crate::models::Header::context).unwrap_or(CONTEXT).min(CONTEXT);
    let needed = needs.at(context);
    let free = free_memory();
    let fits = free.map(|free| needed <= free);
    let verdict = match (fits, free) {
        (Some(true), Some(free)) => format!(", fits ({} free)", size(free)),
        (Some(false), Some(free)) => format!(", does not fit ({} free)", size(free)),
        _ => String::new(),
    };
    sheet.fact("memory", &format!("{} with {context} tokens{verdict}", size(needed)), "memory_bytes", json!(needed));
    sheet.put("fits", json!(fits));
}

/// What is cached of this model's prompts, and what that saved.
fn cached(sheet: &mut Sheet, paths: &Paths, model: &Resolved) {
    let content = Identity::of(model).and_then(|files| files.known(&paths.identities()));
    let store = Store::new(paths.prefixes(), Bounds::default());
    let inventory = Inventory::of(store.root());
    let usage = store.usage(&inventory);
    let mut rows = Vec::new();
    let own = |key: &Option<crate::prefix::StateKey>| key.as_ref().map(|key| &key.content) == content.as_ref();
    for (state, about) in inventory.about.iter().filter(|(_, about)| content.is_some() && own(&about.key)) {
        let Some(used) = usage.get(state) else { continue };
        let words = format!(
            "{} in {}, {}, used {}",
            output::count(used.tokens, "token"),
            output::count(used.blocks, "block"),
            size(used.bytes),
            ago(used.used)
        );
        sheet.line("prefix cache", &words);
        let spared = &about.spared;
        if spared.times > 0 {
            let words = format!(
                "{} came from it in {}, which saved about {:.1} s of reading",
                output::count(spared.tokens as usize, "token"),
                output::count(spared.times as usize, "answer"),
                spared.seconds
            );
            sheet.line("prefix cache", &words);
        }
        rows.push(json!({ "blocks": used.blocks, "tokens": used.tokens, "bytes": used.bytes, "spared": spared }));
    }
    if rows.is_empty() {
        sheet.line("prefix cache", "nothing");
    }
    sheet.put("prefix_cache", json!(rows));
}

/// A number of parameters as people say it.
fn count(number: u64) -> String {
    match number {
        0..1_000_000 => format!("{number}"),
        1_000_000..1_000_000_000 => format!("{:.0} million", number as f64 / 1e6),
        _ => format!("{:.2} billion", number as f64 / 1e9),
    }
}
