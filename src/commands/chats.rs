//! `qchat chats`: what is kept of talks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;

use super::cache::{ago, cannot_change, seconds};
use crate::chat::{self, ChatName, Chats, Past, Role};
use crate::cli::{ChatsArgs, ChatsCommand, ExportFormat, ListFormat};
use crate::error::{Error, Kind, Result};
use crate::paths::Paths;
use crate::prefix::{self, Inventory, Name, Prune};
use crate::ui::output::{self, Terminal, count};

/// Characters of a chat's first question in a list.
const FIRST: usize = 48;

pub(super) fn run(args: &ChatsArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    let chats = Chats::new(paths.chats());
    match &args.command {
        None => list(&chats, ListFormat::Text, &terminal)?,
        Some(ChatsCommand::List { output }) => list(&chats, *output, &terminal)?,
        Some(ChatsCommand::Show { name }) => {
            let name = ChatName::new(name)?;
            output::print_clean(&terminal, &chat::markdown(&name.to_string(), &chats.read(&name)?))?;
        }
        Some(ChatsCommand::Export { name, format }) => {
            let name = ChatName::new(name)?;
            let past = chats.read(&name)?;
            match format {
                ExportFormat::Markdown => output::print_clean(&terminal, &chat::markdown(&name.to_string(), &past))?,
                ExportFormat::Json => output::print_json(&chat::json(&name.to_string(), &past))?,
            }
        }
        Some(ChatsCommand::Rm { names }) => {
            let mut names = names.iter().map(|name| ChatName::new(name)).collect::<Result<Vec<_>>>()?;
            names.sort();
            names.dedup();
            // All or none: a name that is not there is said before anything goes.
            let pasts = names.iter().map(|name| match chats.read(name) {
                Err(error) if error.kind() == Kind::Usage => Err(error),
                // One that is damaged can go too.
                read => Ok(read.ok()),
            });
            let pasts = pasts.collect::<Result<Vec<_>>>()?;
            for (name, past) in names.iter().zip(pasts) {
                chats.remove(name)?;
                let Some(past) = past else {
                    terminal.reply(&format!(
                        "{name} is deleted; what it used of the prefix cache is not known (`qchat cache clear` deletes all)"
                    ));
                    continue;
                };
                let blocks = count(forget(&paths, &chats, &past)?, "block");
                terminal.reply(&format!("{name} is deleted, and {blocks} of the prefix cache that only it used"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(chats: &Chats, format: ListFormat, terminal: &Terminal) -> Result<()> {
    let mut out = String::new();
    let mut rows = Vec::new();
    for listed in chats.list() {
        let name = listed.name.to_string();
        let (model, messages, first) = match chats.read(&listed.name) {
            Ok(past) => {
                let messages = past.conversation.messages();
                let first = messages.iter().find(|message| message.role == Role::User);
                (past.model.clone(), messages.len(), first.map_or_else(String::new, |first| first.content.clone()))
            }
            // One that is damaged is listed all the same, and says so when it is opened.
            Err(_) => ("(damaged)".to_owned(), 0, String::new()),
        };
        let words: Vec<&str> = first.split_whitespace().collect();
        let short: String = words.join(" ").chars().take(FIRST).collect();
        let _ = writeln!(out, "{name:<20}  {model:<20} {messages:>4} messages  {:<16}  {short}", ago(listed.used));
        rows.push(json!({
            "name": name,
            "model": model,
            "messages": messages,
            "first": first,
            "bytes": listed.bytes,
            "last_used": seconds(listed.used),
        }));
    }
    match format {
        ListFormat::Json => output::print_json(&json!(rows)),
        ListFormat::Text if out.is_empty() => output::print("there are no chats yet\n"),
        ListFormat::Text => output::print_clean(terminal, &out),
    }
}

/// Deletes the blocks that only this chat used.
fn forget(paths: &Paths, chats: &Chats, past: &Past) -> Result<usize> {
    let root = paths.prefixes();
    let inventory = Inventory::of(&root);
    let mut own = chain(&inventory, past);
    for other in chats.list() {
        // What cannot be read might use anything, and is not asked: privacy comes before speed.
        if let Ok(other) = chats.read(&other.name) {
            let others = chain(&inventory, &other);
            own.retain(|name| !others.contains(name));
        }
    }
    let exactly = Prune { max_size: Some(0), exactly: Some(own), ..Prune::default() };
    let pruned = prefix::prune(&root, &exactly).map_err(|error| cannot_change(&error))?;
    pruned.map(|pruned| pruned.files).ok_or_else(|| {
        Error::failed("another qchat is pruning the prefix cache").hint("`qchat cache clear` deletes all of it")
    })
}

/// All blocks that lead to a chat's ends.
fn chain(inventory: &Inventory, past: &Past) -> BTreeSet<Name> {
    let end = |[_, parent, block]: &[String; 3]| Some([Name::parse(block)?, Name::parse(parent)?]);
    inventory.leading_to(past.ends.iter().filter_map(end))
}
