//! A talk: messages from the line editor, answers to stdout, the conversation kept true whatever is interrupted.

use std::process::ExitCode;
use std::time::Instant;

use super::load::{Loaded, Loader};
use super::report;
use crate::chat::{Conversation, Message, Role};
use crate::cli::{self, OutputFormat, Visibility};
use crate::error::{Error, Kind, Result};
use crate::generate::{Answer, Finish, Fitted, TurnSettings};
use crate::models::Target;
use crate::settings::SamplingLayers;
use crate::ui::output::{AnswerSink, Terminal, report as report_error};
use crate::ui::repl::{Input, Lines};
use crate::ui::slash::{self, Slash};

/// A talk's context starts this large, and grows.
const FIRST_CONTEXT: usize = 4096;
/// The least that `/set context` takes, as `--ctx` does.
const LEAST_CONTEXT: usize = 16;

pub(super) fn run(loader: &Loader, target: &Target) -> Result<ExitCode> {
    let loaded = loader.load(target, FIRST_CONTEXT)?;
    refuse_base_model(&loaded)?;
    let settings = loader.settings;
    let names = loader.resolver.registry.entries().iter().map(|entry| entry.name.clone()).collect();
    let history = (!settings.private).then(|| settings.paths.history());
    let mut lines = Lines::new(loader.terminal, history, names)?;
    let mut talk = Talk {
        conversation: Conversation::new(loaded.system(settings)),
        loader,
        loaded,
        sampling: settings.sampling.clone(),
        max_tokens: settings.max_tokens,
        stops: settings.stops.clone(),
        // A pipe gets no thoughts unless they are asked for.
        reasoning: settings.reasoning.unwrap_or(if loader.terminal.stdout {
            Visibility::Show
        } else {
            Visibility::Hide
        }),
        last: None,
    };
    talk.say(&format!("{} - /help for commands, Ctrl-D to leave", talk.title()));
    loop {
        let input = lines.read()?;
        // A Ctrl-C that came before what is to be done now is not meant for it.
        loader.interrupt.take();
        match input {
            Input::End => return Ok(ExitCode::SUCCESS),
            Input::Cancelled => talk.say("Ctrl-D or /quit leaves; Ctrl-C stops an answer"),
            Input::Message(message) if message.trim().is_empty() => {}
            Input::Message(message) => {
                let done = match slash::parse(&message) {
                    Some(Slash::Quit) => return Ok(ExitCode::SUCCESS),
                    Some(command) => talk.command(&command),
                    None => talk.ask(message),
                };
                match done {
                    Ok(()) => {}
                    // What cannot be answered is said, and the talk goes on.
                    Err(error) if error.kind() != Kind::Interrupted => report_error(&error),
                    Err(_) => talk.stopped(true),
                }
                // It was heard. Left set, the next signal would end the process.
                loader.interrupt.take();
            }
        }
    }
}

fn refuse_base_model(loaded: &Loaded) -> Result<()> {
    if loaded.speaker.template_from().is_some() {
        return Ok(());
    }
    let message = format!("{} is a base model without a chat template: it continues text and cannot talk", loaded.name);
    Err(Error::usage(message).hint("give a prompt to be continued, or take an instruct model"))
}

struct Talk<'a> {
    loader: &'a Loader<'a>,
    loaded: Loaded,
    conversation: Conversation,
    sampling: SamplingLayers,
    max_tokens: Option<usize>,
    stops: Vec<String>,
    reasoning: Visibility,
    /// The last answer, and when it was asked for.
    last: Option<(Answer, Instant)>,
}

impl Talk<'_> {
    fn terminal(&self) -> &Terminal {
        &self.loader.terminal
    }

    fn say(&self, line: &str) {
        self.terminal().status(line);
    }

    /// Says that Ctrl-C was heard. The terminal has put ^C where the answer was, perhaps at the beginning of a line.
    fn stopped(&self, at_line_start: bool) {
        if at_line_start && self.terminal().stderr {
            self.say("");
        }
        self.say("(stopped)");
    }

    /// What a command asked for.
    fn reply(&self, line: &str) {
        self.terminal().reply(line);
    }

    fn title(&self) -> String {
        match &self.loaded.quant {
            Some(quant) => format!("{} ({quant})", self.loaded.name),
            None => self.loaded.name.clone(),
        }
    }

    fn ask(&mut self, message: String) -> Result<()> {
        self.conversation.push(Message::new(Role::User, message));
        let answered = self.answer();
        if answered.as_ref().is_err_and(|error| error.kind() == Kind::TooLong) {
            // A message that can never be answered would stand in the way of every later one.
            self.conversation.undo();
        }
        answered
    }

    /// Answers the last message and takes the answer into the conversation, also one that was cut short.
    fn answer(&mut self) -> Result<()> {
        let began = Instant::now();
        let Fitted { prompt, reasoning, dropped } = self.loaded.speaker.fit(&mut self.conversation)?;
        if dropped > 0 {
            let max = self.loaded.speaker.session().max_context();
            self.reply(&format!("the context of {max} tokens is full: the {dropped} oldest messages were dropped"));
        }
        let turn = TurnSettings {
            sampling: self.sampling.for_model(self.loaded.entry.as_ref()),
            stops: self.stops.clone(),
            max_tokens: self.max_tokens,
            reasoning,
        };
        let shows = self.reasoning == Visibility::Show;
        let mut sink = AnswerSink::new(self.terminal(), OutputFormat::Text, shows);
        let answer = self.loaded.speaker.answer(prompt, turn, &mut sink);
        sink.finish()?;
        let answer = answer?;
        match answer.finish {
            Finish::Interrupted => {
                let said = if answer.content.is_empty() { &answer.reasoning } else { &answer.content };
                self.stopped(said.is_empty() || said.ends_with('\n'));
            }
            Finish::Length if self.max_tokens.is_none_or(|most| answer.tokens.len() < most) => {
                self.reply("(the context is full)");
            }
            _ => {}
        }
        if self.loader.settings.stats {
            self.say(&report::line(&answer, began));
        }
        if !answer.content.trim().is_empty() {
            let reasoning = (!answer.reasoning.is_empty()).then(|| answer.reasoning.clone());
            self.conversation.push(Message { role: Role::Assistant, content: answer.content.clone(), reasoning });
        }
        self.last = Some((answer, began));
        Ok(())
    }

    fn command(&mut self, command: &Slash) -> Result<()> {
        match command {
            Slash::Help => {
                for (name, arguments, what) in slash::COMMANDS {
                    self.reply(&format!("  {:<22} {what}", format!("{name} {arguments}")));
                }
                self.reply("  \"\"\" begins and ends a message of several lines; a trailing \\ goes on in the next");
            }
            Slash::System(None) => self.reply(self.conversation.system.as_deref().unwrap_or("(no system prompt)")),
            Slash::System(Some(text)) => {
                let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let text = quoted.unwrap_or(text);
                self.conversation.system = (!text.is_empty()).then(|| text.to_owned());
                self.say(if text.is_empty() {
                    "there is no system prompt from the next message on"
                } else {
                    "the system prompt is set; it counts from the next message on"
                });
            }
            Slash::Clear => {
                self.conversation.clear();
                self.say("the talk is forgotten");
            }
            Slash::Retry => {
                let before = self.conversation.clone();
                if !self.conversation.retract_answer() {
                    return Err(Error::usage("there is nothing to retry"));
                }
                self.sampling.seed = self.sampling.seed.wrapping_add(1);
                let answered = self.answer();
                if self.conversation.messages().last().is_some_and(|last| last.role == Role::User) {
                    // An answer that did not come does not replace the one that there was.
                    self.conversation = before;
                }
                return answered;
            }
            Slash::Undo => match self.conversation.undo() {
                Some(message) => self.reply(&format!("taken back: {message}")),
                None => self.reply("there is nothing to undo"),
            },
            Slash::Set(None) | Slash::Show => self.show(),
            Slash::Set(Some((name, value))) => self.set(name, value)?,
            Slash::Stats => match &self.last {
                Some((answer, began)) => self.reply(&report::line(answer, *began)),
                None => self.reply("nothing was answered yet"),
            },
            Slash::Model(None) => self.reply(&self.title()),
            Slash::Model(Some(name)) => self.switch(name)?,
            Slash::Unknown(name) => {
                return Err(Error::usage(format!("there is no command {name}")).hint("/help lists them"));
            }
            Slash::Quit => {}
        }
        Ok(())
    }

    /// The new model is loaded before the old one goes, so that a failure changes nothing.
    fn switch(&mut self, name: &str) -> Result<()> {
        let target = self.loader.resolver.target(name)?;
        let loaded = self.loader.load(&target, FIRST_CONTEXT)?;
        refuse_base_model(&loaded)?;
        // A system prompt that came with the old model goes with it; one that was typed stays.
        if self.conversation.system == self.loaded.system(self.loader.settings) {
            self.conversation.system = loaded.system(self.loader.settings);
        }
        let limit = self.loaded.speaker.session().limit();
        self.loaded = loaded;
        if let Some(tokens) = limit {
            self.loaded.speaker.limit_context(tokens);
        }
        self.say(&format!("the talk goes on with {}", self.title()));
        Ok(())
    }

    fn show(&self) {
        let s = self.sampling.for_model(self.loaded.entry.as_ref());
        let session = self.loaded.speaker.session();
        self.reply(&format!("model           {}", self.title()));
        self.reply(&format!(
            "context         {} of at most {} tokens, {} used",
            session.n_ctx(),
            session.max_context(),
            session.held().len()
        ));
        self.reply(&format!("temperature     {}", s.temperature));
        self.reply(&format!("top_k           {}", s.top_k));
        self.reply(&format!("top_p           {}", s.top_p));
        self.reply(&format!("min_p           {}", s.min_p));
        self.reply(&format!("repeat_penalty  {}", s.repeat_penalty));
        self.reply(&format!("seed            {}", s.seed));
        self.reply(&format!(
            "max_tokens      {}",
            self.max_tokens.map_or_else(|| "no limit".into(), |n| n.to_string())
        ));
        self.reply(&format!(
            "stop            {}",
            if self.stops.is_empty() { "none".into() } else { format!("{:?}", self.stops) }
        ));
        self.reply(&format!("reasoning       {}", if self.reasoning == Visibility::Show { "show" } else { "hide" }));
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = |what: String| Error::usage(format!("{}: {what}", format!("/set {name} {value}").trim_end()));
        let number = |low, high| cli::in_range(value, low, high).map_err(bad);
        let whole = || value.parse::<u64>().map_err(|_| bad("a whole number is needed".into()));
        match name {
            "temperature" | "temp" => self.sampling.typed.temperature = Some(number(0.0, 10.0)?),
            "top_p" => self.sampling.typed.top_p = Some(number(0.0, 1.0)?),
            "min_p" => self.sampling.typed.min_p = Some(number(0.0, 1.0)?),
            "repeat_penalty" => self.sampling.typed.repeat_penalty = Some(number(0.1, 10.0)?),
            "top_k" => self.sampling.typed.top_k = Some(whole()? as usize),
            "seed" => self.sampling.seed = whole()?,
            "max_tokens" => self.max_tokens = Some(whole()? as usize).filter(|n| *n > 0),
            "context" => {
                let tokens = whole()? as usize;
                if tokens < LEAST_CONTEXT {
                    return Err(bad(format!("at least {LEAST_CONTEXT} is needed")));
                }
                self.loaded.speaker.limit_context(tokens);
            }
            "stop" => self.stops = if value.is_empty() { Vec::new() } else { vec![value.to_owned()] },
            "reasoning" => {
                self.reasoning = match value {
                    "show" | "on" => Visibility::Show,
                    "hide" | "off" => Visibility::Hide,
                    _ => return Err(bad("show or hide is needed".into())),
                }
            }
            _ => {
                return Err(Error::usage(format!("there is no setting '{name}'")).hint("/set lists them"));
            }
        }
        Ok(())
    }
}
