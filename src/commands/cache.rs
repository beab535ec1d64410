//! `qchat cache`: what there is in the prefix cache, whether it is sound, and less of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::cli::{CacheArgs, CacheCommand, ListFormat};
use crate::error::{Error, Kind, Result};
use crate::paths::Paths;
use crate::prefix::{self, Bounds, Inventory, Name, Prune, Store, Usage};
use crate::settings::Config;
use crate::ui::output::{self, Terminal};

pub(super) fn run(args: &CacheArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    match &args.command {
        None => list(&paths, &terminal, ListFormat::Text),
        Some(CacheCommand::List { output }) => list(&paths, &terminal, *output),
        Some(CacheCommand::Verify) => verify(&paths, &terminal),
        Some(CacheCommand::Prune { max_size, max_age, model }) => {
            prune(&paths, &terminal, (*max_size, *max_age), model.as_deref())
        }
        Some(CacheCommand::Clear) => clear(&paths, &terminal),
    }
}

fn list(paths: &Paths, terminal: &Terminal, format: ListFormat) -> Result<ExitCode> {
    let store = Store::new(paths.prefixes(), Bounds::default());
    let inventory = Inventory::of(store.root());
    let by_state: BTreeMap<Name, Usage> = store.usage(&inventory);
    let mut out = String::new();
    let mut rows = Vec::new();
    for (state, usage) in &by_state {
        let about = inventory.about.get(state);
        let model = about.map_or("(unknown)", |about| about.model.as_str());
        rows.push(json!({
            "model": model,
            "state_key": state.to_string(),
            "key": about.and_then(|about| about.key.as_ref()),
            "blocks": usage.blocks,
            "tokens": usage.tokens,
            "bytes": usage.bytes,
            "last_used": seconds(usage.used),
            "spared": about.map(|about| &about.spared),
        }));
        let _ = writeln!(
            out,
            "{model:<28} {:>6} blocks {:>9} tokens {:>9}  used {}",
            usage.blocks,
            usage.tokens,
            output::size(usage.bytes),
            ago(usage.used)
        );
    }
    match format {
        ListFormat::Json => output::print_json(&json!(rows))?,
        ListFormat::Text if out.is_empty() => output::print("the prefix cache is empty\n")?,
        ListFormat::Text => output::print_clean(terminal, &out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(paths: &Paths, terminal: &Terminal) -> Result<ExitCode> {
    let store = Store::new(paths.prefixes(), Bounds::default());
    let inventory = Inventory::of(store.root());
    let mut checked = prefix::Checked::default();
    for found in &inventory.found {
        store.check(&found.path, &mut checked);
    }
    output::print(&format!(
        "{} blocks are sound, {} were damaged and are deleted, {} belong to another key\n",
        checked.sound, checked.damaged, checked.foreign
    ))?;
    if let Some(trouble) = store.take_trouble().filter(|_| checked.damaged == 0) {
        terminal.warn(&trouble);
    }
    Ok(if checked.damaged > 0 { ExitCode::from(Kind::Failed.exit_code()) } else { ExitCode::SUCCESS })
}

fn prune(
    paths: &Paths,
    terminal: &Terminal,
    (max_size, max_age): (Option<u64>, Option<Duration>),
    model: Option<&str>,
) -> Result<ExitCode> {
    let root = paths.prefixes();
    let state = model.map(|model| states_of(&root, model)).transpose()?;
    let mut wanted = Prune { max_size, max_age, state, ..Prune::default() };
    if max_size.is_none() && max_age.is_none() {
        if model.is_some() {
            wanted.max_size = Some(0);
        } else {
            let bounds = Config::load(&paths.config_file())?.cache.bounds().map_err(Error::usage)?;
            wanted.max_size = Some(bounds.size(&root, Inventory::of(&root).bytes()));
            wanted.max_age = Some(bounds.max_age);
        }
    }
    let pruned = prefix::prune(&root, &wanted).map_err(|error| cannot_change(&error))?;
    let Some(pruned) = pruned else {
        return Err(Error::failed("another qchat is pruning the prefix cache").hint("try again: `qchat cache prune`"));
    };
    terminal.reply(&format!(
        "{} deleted ({}), {} are left",
        output::count(pruned.files, "block"),
        output::size(pruned.bytes),
        output::size(pruned.left)
    ));
    Ok(ExitCode::SUCCESS)
}

/// The state keys of a model, as it was called when its blocks were saved.
fn states_of(root: &std::path::Path, model: &str) -> Result<BTreeSet<Name>> {
    let about = Inventory::of(root).about;
    let states: BTreeSet<Name> =
        about.iter().filter(|(_, about)| about.model == model).map(|(state, _)| *state).collect();
    if states.is_empty() {
        let mut known: Vec<_> = about.values().map(|about| about.model.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        let hint = if known.is_empty() { "it is empty".into() } else { format!("it has {}", known.join(", ")) };
        return Err(Error::usage(format!("the prefix cache has nothing of '{model}'")).hint(hint));
    }
    Ok(states)
}

fn clear(paths: &Paths, terminal: &Terminal) -> Result<ExitCode> {
    let root = paths.prefixes();
    let bytes = Inventory::of(&root).bytes();
    match std::fs::remove_dir_all(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot_change(&error)),
        _ => terminal.reply(&format!("the prefix cache is empty now ({} deleted)", output::size(bytes))),
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn cannot_change(error: &std::io::Error) -> Error {
    Error::failed(format!("the prefix cache cannot be changed: {error}")).hint("`qchat config` shows its folder")
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// How long ago, in the two largest units.
pub(super) fn ago(time: SystemTime) -> String {
    let age = SystemTime::now().duration_since(time).unwrap_or_default().as_secs();
    let text = humantime::format_duration(Duration::from_secs(age)).to_string();
    let parts: Vec<&str> = text.split(' ').take(2).collect();
    if age == 0 { "just now".into() } else { format!("{} ago", parts.join(" ")) }
}
