//! `qchat run`: a talk in a terminal, or one answer.

mod cache;
mod draft;
mod each;
mod load;
mod many;
mod once;
mod report;
mod shape;
mod talk;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use crate::chat::{self, Conversation};
use crate::cli::{OutputFormat, RunArgs, UiArgs};
use crate::engine::llama::{LogTo, route_logs};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::models::{Resolver, Target};
use crate::paths::Paths;
use crate::prefix::Store;
use crate::settings::{Settings, WhichChat};
use crate::ui::input;
use crate::ui::output::{Terminal, size};

pub(super) fn run(args: RunArgs, began: Instant) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let interrupt = Interrupt::on_ctrl_c()?;
    route_logs(log_target(&args.ui)?);
    let paths = Paths::from_env()?;
    let settings = Settings::new(args, paths)?;
    let resolver = Resolver::new(settings.paths.clone())?;
    let stdin_is_terminal = input::stdin_is_terminal();
    let reads_stdin = settings.reads_stdin && !stdin_is_terminal;
    let talks = settings.prompt.is_none()
        && settings.files.is_empty()
        && settings.messages.is_none()
        && settings.each.is_none()
        && settings.reads_stdin
        && stdin_is_terminal;
    let opened = match (talks, &settings.chat) {
        (true, _) => talk::open_chat(&settings, &terminal)?,
        (false, WhichChat::New) => None,
        (false, _) => {
            return Err(Error::usage("--chat and --continue are for talks in a terminal")
                .hint("leave out the prompt, -f, --no-stdin and any pipe"));
        }
    };
    let past = opened.as_ref().map(|opened| &opened.past);
    let past_model =
        past.map(|past| past.file.as_ref().unwrap_or(&past.model).as_str()).filter(|name| !name.is_empty());
    let named = settings.model.as_deref().or(past_model).or(settings.config_model.as_deref());
    let name = resolver.default_name(named);
    // An unknown name is said before anybody waits for a pipe.
    let target = resolver.target(&name).map_err(|error| match (&settings.model, past_model) {
        (Some(_), _) => error,
        (None, Some(_)) => error.hint("the chat names it: `qchat run MODEL --chat NAME` goes on with another"),
        (None, None) => {
            let file = if settings.config_model.is_some() { "config.toml" } else { "models.toml" };
            error.hint(format!("{file} names it as default_model: `qchat run MODEL` takes another"))
        }
    })?;
    if named.is_none() && !settings.yes {
        offer(&resolver, &target, stdin_is_terminal)?;
    }
    let store = settings.cache.map(|bounds| Arc::new(Store::new(settings.paths.prefixes(), bounds)));
    let loader = load::Loader { resolver, settings: &settings, terminal, interrupt: &interrupt, store, began };

    if talks {
        if settings.raw {
            return Err(Error::usage("--raw continues a text").hint("give the text after the model, or pipe it in"));
        }
        let wants_one = settings.output != OutputFormat::Text
            || settings.shape.is_some()
            || settings.prefill.is_some()
            || settings.print_prompt
            || settings.logprobs.is_some()
            || settings.copies > 1;
        if wants_one {
            let message = "--output, --json, --schema, --grammar, --choice, --prefill, --n, --logprobs and --print-prompt are for one prompt";
            return Err(Error::usage(message).hint("give a prompt, or pipe one in"));
        }
        return talk::run(&loader, &target, opened);
    }
    if let Some(format) = settings.each {
        return each::each(&loader, &target, format);
    }
    if let Some(path) = &settings.messages {
        let talk = conversation(path, &terminal, &interrupt)?;
        return once::run(&loader, &target, once::Prompt::Talk(talk));
    }
    let prompt = gather(&settings, &terminal, &interrupt, reads_stdin)?;
    once::run(&loader, &target, once::Prompt::Text(prompt))
}

/// Asks before a model is fetched that nobody named.
fn offer(resolver: &Resolver, target: &Target, asks: bool) -> Result<()> {
    let Target::Entry(entry) = target else { return Ok(()) };
    if resolver.here(target)?.is_some() {
        return Ok(());
    }
    let size = entry.bytes().map_or_else(String::new, |bytes| format!(" ({})", size(bytes)));
    let command = format!("`qchat run {}` begins with a small one, `qchat list` shows others", entry.name);
    let none = resolver.installed().is_empty() && resolver.elsewhere().is_empty();
    let missing =
        if none { "no model is here, and none is named" } else { "no model is named, and the default is not here" };
    if !asks {
        return Err(Error::usage(missing).hint(command));
    }
    if input::confirms(&format!("{missing}: fetch {}{size}?", entry.name))? {
        return Ok(());
    }
    Err(Error::usage("there is no model to talk with").hint(command))
}

/// A conversation from a file, or from stdin.
fn conversation(path: &Path, terminal: &Terminal, interrupt: &Interrupt) -> Result<Conversation> {
    let (text, name) = if path.as_os_str() == "-" {
        (input::read_stdin(terminal, interrupt)?, "stdin".into())
    } else {
        (input::read_file(path)?, path.display().to_string())
    };
    let value = serde_json::from_str(&text).map_err(|error| Error::usage(format!("{name} is no JSON: {error}")));
    let hint = "--messages takes [{\"role\": \"user\", \"content\": \"...\"}]";
    let value = value.map_err(|error| error.hint(hint))?;
    chat::conversation(&value).map_err(|error| Error::usage(format!("{name}: {error}")).hint(hint))
}

/// stdin, then files, then the command line.
fn gather(settings: &Settings, terminal: &Terminal, interrupt: &Interrupt, reads_stdin: bool) -> Result<String> {
    let mut parts = settings.files.iter().map(|path| input::read_file(path)).collect::<Result<Vec<_>>>()?;
    if reads_stdin {
        parts.insert(0, input::read_stdin(terminal, interrupt)?);
    }
    parts.extend(settings.prompt.clone());
    // A text to be continued stays as it is, to the last line end.
    let prompt = match <[String; 1]>::try_from(parts) {
        Ok([text]) if settings.raw => text,
        Ok(parts) => input::join(parts),
        Err(parts) => input::join(parts),
    };
    if prompt.is_empty() {
        return Err(Error::usage("there is no input").hint("give a prompt after the model, or pipe one in"));
    }
    Ok(prompt)
}

/// Where llama.cpp's log goes.
pub(super) fn log_target(ui: &UiArgs) -> Result<LogTo> {
    if let Some(path) = &ui.log {
        let file = std::fs::File::create(path);
        let file = file.map_err(|error| {
            Error::usage(format!("the log {} cannot be written: {error}", path.display()))
                .hint("--log takes a file in a folder that is there")
        })?;
        return Ok(LogTo::File(file));
    }
    Ok(if ui.verbose > 1 { LogTo::Stderr } else { LogTo::Nowhere })
}
