//! A talk: messages from the line editor, answers to stdout, the conversation kept true whatever is interrupted.

mod chat;
mod commands;
mod drafts;

pub(super) use chat::open as open_chat;

use chat::Kept;

use std::process::ExitCode;
use std::time::Instant;

use super::cache::When;
use super::load::{Loaded, Loader, Purpose};
use super::report;
use crate::chat::{Conversation, Event, Message, Opened, Role};
use crate::cli::{OutputFormat, Visibility};
use crate::error::{Error, Kind, Result};
use crate::generate::{Answer, Finish, Fitted, Part, Sink as _, TurnSettings};
use crate::interrupt;
use crate::models::{DraftWish, Target};
use crate::settings::Settings;
use crate::ui::answer::{AnswerSink, Form};
use crate::ui::hush::Hush;
use crate::ui::input;
use crate::ui::output::{Terminal, report as report_error};
use crate::ui::repl::{Input, Lines};
use crate::ui::slash::{self, Command, Slash};

/// A talk's context starts this large, and grows.
const FIRST_CONTEXT: usize = 4096;

pub(super) fn run(loader: &Loader, target: &Target, opened: Option<Opened>) -> Result<ExitCode> {
    let settings = loader.settings;
    let loaded = loader.load(target, FIRST_CONTEXT, Purpose::Talk, &settings.draft)?;
    refuse_base_model(&loaded)?;
    let names = loader.resolver.registry.entries().iter().map(|entry| entry.name.clone()).collect();
    let history = (!settings.private).then(|| settings.paths.history());
    let mut lines = Lines::new(loader.terminal, history, names, settings.editing)?;
    let (chat, past) = opened.map(|opened| (opened.chat, opened.past)).unzip();
    let mut talk = Talk {
        conversation: Conversation::new(loaded.system(settings)),
        loader,
        loaded,
        settings: settings.clone(),
        reasoning: loader.visibility(),
        wish: settings.draft.clone(),
        blocked: None,
        told_spared: false,
        last: None,
        kept: Kept::new(chat),
        documents: Vec::new(),
    };
    talk.say(&format!("{} - /help for commands, Ctrl-D to leave", talk.title()));
    if let Some(past) = past {
        talk.take_up(past)?;
    }
    let left = talk.until_left(&mut lines);
    talk.leave();
    left.map(|()| ExitCode::SUCCESS)
}

fn refuse_base_model(loaded: &Loaded) -> Result<()> {
    if loaded.speaker.template_from().is_some() {
        return Ok(());
    }
    let message = format!("{} is a base model without a chat template: it continues text and cannot talk", loaded.name);
    Err(Error::usage(message).hint("`qchat run MODEL PROMPT` continues a text; `qchat list` shows models that talk"))
}

struct Talk<'a> {
    loader: &'a Loader<'a>,
    loaded: Loaded,
    conversation: Conversation,
    /// Those that the program began with, as `/set` has changed them.
    settings: Settings,
    reasoning: Visibility,
    wish: DraftWish,
    /// Why nobody can draft for this model, once that showed.
    blocked: Option<&'static str>,
    /// Whether it was said that the draft model is off.
    told_spared: bool,
    /// The last answer, and when it was asked for.
    last: Option<(Answer, Instant)>,
    kept: Kept,
    /// Files that go before the next message.
    documents: Vec<String>,
}

impl Talk<'_> {
    fn terminal(&self) -> &Terminal {
        &self.loader.terminal
    }

    fn say(&self, line: &str) {
        self.terminal().status(line);
    }

    /// What answers look like.
    fn form(&self) -> Form {
        Form {
            format: OutputFormat::Text,
            reasoning: self.reasoning,
            markdown: !self.loader.settings.plain,
            whole: false,
        }
    }

    /// Writes an answer that was given before.
    fn print_answer(&self, answer: &str) -> Result<()> {
        let mut sink = AnswerSink::new(self.terminal(), self.form());
        // A reader that went away is none.
        let _ = sink.write(Part::Content, answer);
        sink.finish(true)
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

    fn until_left(&mut self, lines: &mut Lines) -> Result<()> {
        loop {
            if interrupt::ending().is_some() {
                return Ok(());
            }
            let input = interrupt::at_rest(|| lines.read())?;
            // A Ctrl-C that came before what is to be done now is not meant for it.
            self.loader.interrupt.take();
            let Some(done) = (match input {
                Input::End => None,
                Input::Cancelled => {
                    self.say("Ctrl-D or /quit leaves; Ctrl-C stops an answer");
                    Some(Ok(()))
                }
                Input::Message(message) if message.text.trim().is_empty() => Some(Ok(())),
                Input::Message(message) => match slash::parse(&message.text) {
                    Some(Slash { command: Some(Command::Quit), .. }) => None,
                    Some(command) => Some(self.command(&command)),
                    None => {
                        let _hush = Hush::begin();
                        Some(self.attach(&message.files).and_then(|()| self.ask(message.text)))
                    }
                },
            }) else {
                return Ok(());
            };
            match done {
                Ok(()) => {}
                // What cannot be answered is said, and the talk goes on.
                Err(error) if error.kind() != Kind::Interrupted => report_error(&error),
                Err(_) => self.say("(stopped)"),
            }
            // It was heard. Left set, the next signal would end the process.
            self.loader.interrupt.take();
        }
    }

    /// Saves what is not saved yet.
    fn leave(&mut self) {
        if let Some((answer, _)) = &self.last {
            self.loader.save(&mut self.loaded, answer, When::AtOnce);
        }
        self.saved();
    }

    fn ask(&mut self, message: String) -> Result<()> {
        let documents = std::mem::take(&mut self.documents);
        let message = if documents.is_empty() { message } else { input::join(documents.into_iter().chain([message])) };
        let message = Message::new(Role::User, message);
        self.asked(&message);
        self.conversation.push(message);
        let answered = self.answer();
        if answered.as_ref().is_err_and(|error| error.kind() == Kind::TooLong) {
            // A message that can never be answered would stand in the way of every later one.
            self.conversation.undo();
            self.happened(Event::Undo);
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
            self.may_happen(Event::Drop { messages: dropped });
        }
        let boundaries = match self.conversation.messages() {
            [_] => {
                let mut other = Conversation::new(self.conversation.system.clone());
                other.push(Message::new(Role::User, "\u{1}"));
                self.loaded.speaker.boundaries(&prompt, &other)
            }
            // The end of the last answer is saved already.
            _ => Vec::new(),
        };
        let turn = TurnSettings { boundaries, ..self.loaded.turn(&self.settings, reasoning, None) };
        let mut sink = AnswerSink::new(self.terminal(), self.form());
        let answer = self.loaded.speaker.answer(prompt, turn, &mut sink);
        sink.finish(true)?;
        let answer = answer?;
        if let Some(plan) = &answer.restored.plan {
            self.terminal().detail(&plan.to_string());
        }
        match answer.finish {
            Finish::Interrupted => self.say("(stopped)"),
            Finish::Length if self.settings.max_tokens.is_none_or(|most| answer.tokens.len() < most) => {
                self.reply("(the context is full; /clear empties it, /set context N makes it larger)");
            }
            _ => {}
        }
        if self.loader.settings.stats {
            self.say(&report::line(&answer, began));
        }
        if let Some(lost) = answer.speculation.as_ref().and_then(|own| own.lost.as_ref()) {
            self.reply(&format!("the draft model failed, answers go on without it: {lost}"));
        }
        self.tell_drafts(&answer);
        if !answer.content.trim().is_empty() {
            let reasoning = (!answer.reasoning.is_empty()).then(|| answer.reasoning.clone());
            let message = Message { role: Role::Assistant, content: answer.content.clone(), reasoning };
            self.answered(&message);
            self.conversation.push(message);
        }
        self.loader.save(&mut self.loaded, &answer, When::Later);
        self.saved();
        if answer.finish != Finish::Interrupted {
            self.loaded.measure(&answer);
        }
        self.last = Some((answer, began));
        Ok(())
    }
}
