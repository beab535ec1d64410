//! The commands of a talk.

use std::path::PathBuf;

use clap::ValueEnum as _;

use super::super::load::Purpose;
use super::super::report;
use super::{FIRST_CONTEXT, Talk, refuse_base_model};
use crate::chat::{Event, Role};
use crate::cli::{self, Visibility};
use crate::error::{Error, Result};
use crate::models::DraftWish;
use crate::paths::expand_home;
use crate::ui::hush::Hush;
use crate::ui::slash::{self, Command, Slash};
use crate::ui::{clipboard, editor, input, output};

/// The least that `/set context` takes, as `--ctx` does.
const LEAST_CONTEXT: usize = 16;

impl Talk<'_> {
    pub(super) fn command(&mut self, slash: &Slash) -> Result<()> {
        let Some(command) = slash.command else {
            return Err(Error::usage(format!("there is no command {}", slash.name)).hint("/help lists them"));
        };
        match (command, slash.argument) {
            (Command::Help, _) => {
                for (name, arguments, what, _) in slash::COMMANDS {
                    self.reply(&format!("  {:<22} {what}", format!("{name} {arguments}")));
                }
                self.reply("  \"\"\" begins and ends a message of several lines; a trailing \\ goes on in the next");
            }
            (Command::System, None) => self.reply(self.conversation.system.as_deref().unwrap_or("(no system prompt)")),
            (Command::System, Some(text)) => {
                let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let text = quoted.unwrap_or(text);
                self.conversation.system = (!text.is_empty()).then(|| text.to_owned());
                self.happened(Event::System { text: self.conversation.system.clone() });
                self.say(if text.is_empty() {
                    "there is no system prompt from the next message on"
                } else {
                    "the system prompt is set; it counts from the next message on"
                });
            }
            (Command::Clear, _) => {
                self.conversation.clear();
                self.happened(Event::Clear);
                self.say("the talk is forgotten");
            }
            (Command::Retry, _) => return self.retry(),
            (Command::Other, number) => self.other(number)?,
            (Command::Thoughts, _) => self.thoughts()?,
            (Command::Undo, _) => match self.conversation.undo() {
                Some(message) => {
                    self.happened(Event::Undo);
                    self.reply(&format!("taken back: {message}"));
                }
                None => self.reply("there is nothing to undo"),
            },
            (Command::Edit, what) => self.edit(what)?,
            (Command::File, what) => self.file(what)?,
            (Command::Copy, _) => self.copy()?,
            (Command::Set, Some(words)) => self.set(words)?,
            (Command::Set | Command::Show, _) => self.show(),
            (Command::Stats, _) => match &self.last {
                Some((answer, began)) => {
                    self.reply(&report::line(answer, *began));
                    for line in answer.speculation.iter().flat_map(report::draft_lines) {
                        self.reply(&format!("  {line}"));
                    }
                }
                None => self.reply("nothing was answered yet"),
            },
            (Command::Draft, None) => self.reply(&self.drafters()),
            (Command::Draft, Some(word)) => self.draft(DraftWish::from_word(word))?,
            (Command::Save, name) => self.save_as(name)?,
            (Command::Load, name) => self.load_chat(name)?,
            (Command::Export, file) => self.export(file)?,
            (Command::Model, None) => self.reply(&self.title()),
            (Command::Model, Some(name)) => self.switch(name)?,
            (Command::Quit, _) => {}
        }
        Ok(())
    }

    /// Another answer to the last message, with another seed; those before it are kept.
    fn retry(&mut self) -> Result<()> {
        let _hush = Hush::begin();
        let before = self.conversation.clone();
        if !self.conversation.retract_answer() {
            return Err(Error::usage("there is nothing to retry").hint("ask something first"));
        }
        self.settings.sampling.seed = self.settings.sampling.seed.wrapping_add(1);
        self.may_happen(Event::Retract);
        let answered = self.answer();
        if self.conversation.messages().last().is_some_and(|last| last.role == Role::User) {
            // An answer that did not come does not replace the one that there was.
            self.conversation = before;
            self.did_not_happen();
        }
        let (answers, chosen) = self.conversation.answers();
        if answered.is_ok() && answers.len() > 1 {
            self.say(&format!("(answer {} of {}; /other shows the others)", chosen + 1, answers.len()));
        }
        answered
    }

    /// Another one of several answers, by its number or the next.
    fn other(&mut self, number: Option<&str>) -> Result<()> {
        let (answers, chosen) = self.conversation.answers();
        let count = answers.len();
        if count < 2 {
            return Err(Error::usage("there is only one answer").hint("/retry makes another one"));
        }
        let next = match number {
            None => (chosen + 1) % count,
            Some(word) => {
                let number = word.parse::<usize>().ok().filter(|number| (1..=count).contains(number));
                let bad = || Error::usage(format!("/other {word}: a number from 1 to {count} is needed"));
                number.ok_or_else(bad)? - 1
            }
        };
        if !self.conversation.choose(next) {
            return Err(Error::usage("the last message has no answer").hint("/retry answers it"));
        }
        self.happened(Event::Choose { answer: next });
        if let Some(answer) = self.conversation.messages().last() {
            self.print_answer(&answer.content)?;
        }
        self.say(&format!("(answer {} of {count}; the talk goes on with it)", next + 1));
        Ok(())
    }

    fn thoughts(&self) -> Result<()> {
        let last = self.conversation.messages().iter().rfind(|message| message.role == Role::Assistant);
        let Some(thoughts) = last.and_then(|answer| answer.reasoning.as_deref()) else {
            return Err(
                Error::usage("there are no thoughts behind the last answer").hint("/copy and /export have answers")
            );
        };
        thoughts.trim().lines().for_each(|line| self.reply(line));
        Ok(())
    }

    /// The last message, changed and asked again, or a new one.
    fn edit(&mut self, what: Option<&str>) -> Result<()> {
        let last = self.conversation.messages().iter().rfind(|message| message.role == Role::User);
        let last = match what {
            None => last.map(|message| message.content.clone()),
            Some("new") => None,
            Some(word) => return Err(Error::usage(format!("'/edit {word}' is none")).hint("/edit, or /edit new")),
        };
        let Some(message) = editor::edit(last.as_deref().unwrap_or_default())? else {
            self.reply("(nothing changed)");
            return Ok(());
        };
        if last.is_some() {
            self.conversation.undo();
            self.happened(Event::Undo);
        }
        for (number, line) in message.lines().enumerate() {
            self.say(&if number == 0 { format!(">>> {line}") } else { line.to_owned() });
        }
        self.ask(message)
    }

    /// A file before a question.
    fn file(&mut self, what: Option<&str>) -> Result<()> {
        let Some(what) = what else {
            return Err(Error::usage("which file?").hint("/file PATH, or /file PATH QUESTION"));
        };
        // A path may have spaces where all of it is one.
        let (path, question) = match what.split_once(char::is_whitespace) {
            Some((path, question)) if !expand_home(what).exists() => (path, question.trim()),
            _ => (what, ""),
        };
        let text = input::read_file(&expand_home(path))?;
        let size = output::count(text.lines().count(), "line");
        self.documents.push(text);
        if question.is_empty() {
            self.reply(&format!("{path} ({size}) goes before the next message"));
            return Ok(());
        }
        self.ask(question.to_owned())
    }

    /// Puts the files that a message names before it.
    pub(super) fn attach(&mut self, files: &[PathBuf]) -> Result<()> {
        let read = |path: &PathBuf| Ok((path.display().to_string(), input::read_file(path)?));
        for (name, text) in files.iter().map(read).collect::<Result<Vec<_>>>()? {
            self.say(&format!("({name}, {}, goes before the message)", output::count(text.lines().count(), "line")));
            self.documents.push(text);
        }
        Ok(())
    }

    fn copy(&self) -> Result<()> {
        let last = self.conversation.messages().iter().rfind(|message| message.role == Role::Assistant);
        let Some(answer) = last else {
            return Err(Error::usage("nothing was answered yet").hint("ask something first"));
        };
        let how = clipboard::copy(&answer.content, self.terminal().stderr);
        let how = how.map_err(|why| Error::failed(why).hint("/export FILE writes the talk to a file"))?;
        self.reply(&format!("copied ({how}, {})", output::count(answer.content.chars().count(), "character")));
        Ok(())
    }

    /// The new model is loaded before the old one goes, so that a failure changes nothing.
    fn switch(&mut self, name: &str) -> Result<()> {
        let target = self.loader.resolver.target(name)?;
        let loaded = self.loader.load(&target, FIRST_CONTEXT, Purpose::Talk, &self.wish)?;
        refuse_base_model(&loaded)?;
        // A system prompt that came with the old model goes with it; one that was typed stays.
        let system = loaded.system(self.loader.settings);
        let came_with_it = self.conversation.system == self.loaded.system(self.loader.settings);
        if came_with_it && self.conversation.system != system {
            self.conversation.system.clone_from(&system);
            self.happened(Event::System { text: system });
        }
        let limit = self.loaded.speaker.session().limit();
        self.leave();
        // It says nothing of the new model.
        self.last = None;
        self.loaded = loaded;
        (self.blocked, self.told_spared) = (None, false);
        self.other_model();
        self.loaded.speaker.limit_context(limit);
        self.say(&format!("the talk goes on with {}", self.title()));
        Ok(())
    }

    fn show(&self) {
        let own = self.settings.sampling.for_model(self.loaded.entry.as_ref());
        let session = self.loaded.speaker.session();
        let (n_ctx, most, held) = (session.n_ctx(), session.max_context(), session.held().len());
        let reasoning = self.reasoning.to_possible_value();
        let limit = |most: Option<usize>| most.map_or_else(|| "no limit".into(), |most| most.to_string());
        let rows = [
            ("model", self.title()),
            ("drafts", self.drafters()),
            ("chat", self.chat_name()),
            ("context", format!("{n_ctx} of at most {most} tokens, {held} used")),
            ("temperature", own.temperature.to_string()),
            ("top_k", own.top_k.to_string()),
            ("top_p", own.top_p.to_string()),
            ("min_p", own.min_p.to_string()),
            ("repeat_penalty", own.repeat_penalty.to_string()),
            ("seed", own.seed.to_string()),
            ("max_tokens", limit(self.settings.max_tokens)),
            ("stop", if self.settings.stops.is_empty() { "none".into() } else { format!("{:?}", self.settings.stops) }),
            ("thinking", self.loaded.speaker.thinking().into()),
            ("reasoning", reasoning.map_or_else(String::new, |own| own.get_name().to_owned())),
            ("reasoning_budget", limit(self.settings.reasoning_budget)),
        ];
        for (name, value) in rows {
            self.reply(&format!("{name:<18}{value}"));
        }
    }

    fn set(&mut self, words: &str) -> Result<()> {
        let (name, value) = words.split_once(char::is_whitespace).map_or((words, ""), |(n, v)| (n, v.trim()));
        self.apply(name, value)?;
        // Under one name, by which a flag is above it.
        let name = if name == "temp" { "temperature" } else { name };
        self.happened(Event::Set { name: name.to_owned(), value: value.to_owned() });
        Ok(())
    }

    /// Changes a setting.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = |what: String| Error::usage(format!("{}: {what}", format!("/set {name} {value}").trim_end()));
        let number = |low, high| cli::in_range(value, low, high).map_err(bad);
        let whole = || value.parse::<u64>().map_err(|_| bad("a whole number is needed".into()));
        let sampling = &mut self.settings.sampling;
        match name {
            "temperature" | "temp" => sampling.typed.temperature = Some(number(0.0, 10.0)?),
            "top_p" => sampling.typed.top_p = Some(number(0.0, 1.0)?),
            "min_p" => sampling.typed.min_p = Some(number(0.0, 1.0)?),
            "repeat_penalty" => sampling.typed.repeat_penalty = Some(number(0.1, 10.0)?),
            "top_k" => sampling.typed.top_k = Some(whole().and_then(|k| number(0.0, 1e6).map(|_| k))? as usize),
            "seed" => sampling.seed = whole()?,
            "max_tokens" => self.settings.max_tokens = Some(whole()? as usize).filter(|n| *n > 0),
            "context" => {
                let tokens = whole()? as usize;
                if tokens < LEAST_CONTEXT {
                    return Err(bad(format!("at least {LEAST_CONTEXT} is needed")));
                }
                self.loaded.speaker.limit_context(Some(tokens));
            }
            "stop" => self.settings.stops = if value.is_empty() { Vec::new() } else { vec![value.to_owned()] },
            "reasoning" => {
                let bad = |_| bad("show, fold or hide is needed".into()).hint("/set thinking off ends thoughts");
                self.reasoning = Visibility::from_str(value, false).map_err(bad)?;
            }
            "reasoning_budget" => {
                self.settings.reasoning_budget = if value == "off" { None } else { Some(whole()? as usize) }
            }
            "thinking" => {
                let thinks = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("on or off is needed".into())),
                };
                if !self.loaded.switch_thinking(thinks)? {
                    let message = format!("the chat template of {} has no switch for thoughts", self.loaded.name);
                    return Err(Error::usage(message).hint("/set reasoning_budget 0 ends them at once"));
                }
            }
            _ => {
                return Err(Error::usage(format!("there is no setting '{name}'")).hint("/set lists them"));
            }
        }
        Ok(())
    }
}
