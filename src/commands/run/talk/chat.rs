//! How a talk is kept: a chat's file, written as it goes.

use std::io::Write as _;
use std::path::Path;

use super::Talk;
use crate::chat::{self, Chat, ChatName, Chats, Conversation, Decoded, Event, Message, Opened, Past, Role};
use crate::engine::Token;
use crate::error::{Error, Result};
use crate::generate::{End, vocabulary_digest};
use crate::paths::expand_home;
use crate::settings::{Settings, WhichChat};
use crate::ui::output::{Terminal, count};

/// The chat that a talk is kept in.
pub(super) struct Kept {
    /// None where nothing is kept.
    chat: Option<Chat>,
    /// What happened and waits for something that is worth a file.
    pending: Vec<Event>,
    created: Option<String>,
    vocabulary: Option<String>,
    /// The ids that the file ends with.
    decoded: Vec<i32>,
    ends: Vec<[String; 3]>,
}

/// The chat to take up, and what was in it; a new one where none is asked for.
pub(in super::super) fn open(settings: &Settings, terminal: &Terminal) -> Result<Option<Opened>> {
    if settings.private {
        return Ok(None);
    }
    let chats = Chats::new(settings.paths.chats());
    let name = match &settings.chat {
        WhichChat::New => return Ok(Some(Opened { chat: chats.begin(), past: Past::default(), torn: 0 })),
        // One that was killed before its first word has nothing to take up.
        WhichChat::Latest => {
            chats.list().into_iter().find(|own| own.bytes > 0).map(|own| own.name).ok_or_else(|| {
                Error::usage("there is no chat to continue")
                    .hint("a talk is kept as a chat by itself: begin one with `qchat run`")
            })?
        }
        WhichChat::Named(name) => ChatName::new(name)?,
    };
    open_named(&chats, &name, terminal).map(Some)
}

fn open_named(chats: &Chats, name: &ChatName, terminal: &Terminal) -> Result<Opened> {
    let opened = chats.open(name)?;
    if opened.torn > 0 {
        terminal.warn(&format!("the last line of the chat '{name}' was torn and was cut off ({} bytes)", opened.torn));
    }
    Ok(opened)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = word.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

impl Kept {
    pub(super) fn new(chat: Option<Chat>) -> Self {
        Self { chat, pending: Vec::new(), created: None, vocabulary: None, decoded: Vec::new(), ends: Vec::new() }
    }
}

impl Talk<'_> {
    /// Takes up a chat where it was left.
    pub(super) fn take_up(&mut self, past: Past) -> Result<()> {
        if past == Past::default() {
            if let WhichChat::Named(_) = self.loader.settings.chat {
                self.say(&format!("chat {} begins", self.chat_name()));
            }
            return Ok(());
        }
        let typed = self.loader.settings.system.clone();
        self.conversation = past.conversation;
        if typed.is_some() && typed != self.conversation.system {
            self.conversation.system.clone_from(&typed);
            self.happened(Event::System { text: typed });
        }
        for (name, value) in &past.settings {
            if !self.loader.settings.typed.contains(&name.as_str()) {
                // What a newer qchat could set says nothing here.
                let _ = self.apply(name, value);
            }
        }
        let digest = self.vocabulary();
        if past.vocabulary == digest {
            self.kept.decoded.clone_from(&past.decoded);
            self.loaded.speaker.session_mut().take_up(past.decoded.into_iter().map(Token).collect());
        }
        self.kept.ends = past.ends;
        self.kept.created = Some(past.created).filter(|created| !created.is_empty());
        if past.model != self.loaded.name {
            self.say(&format!("(this chat was with {}; it goes on with {})", past.model, self.loaded.name));
        }
        if (&past.model, &past.file) != (&self.loaded.name, &self.loaded.own_file()) {
            self.happened(self.model_event());
        }
        self.recapitulate()
    }

    /// The end of what was said, so that one knows where one is.
    fn recapitulate(&self) -> Result<()> {
        let messages = self.conversation.messages();
        self.say(&format!("chat {}, {} so far", self.chat_name(), count(messages.len(), "message")));
        let last_question = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        for message in &messages[last_question.min(messages.len())..] {
            if message.role == Role::Assistant && self.terminal().draws {
                self.print_answer(&message.content)?;
                continue;
            }
            let mark = if message.role == Role::User { ">>> " } else { "" };
            for (number, line) in message.content.trim_end().lines().enumerate() {
                self.say(&format!("{}{line}", if number == 0 { mark } else { "" }));
            }
        }
        if messages.last().is_some_and(|message| message.role == Role::User) {
            self.say("(not answered; /retry answers it)");
        }
        Ok(())
    }

    pub(super) fn chat_name(&self) -> String {
        self.kept.chat.as_ref().map_or_else(|| "(not kept)".into(), |chat| chat.name().to_string())
    }

    fn vocabulary(&mut self) -> String {
        let vocab = self.loaded.speaker.session().model();
        self.kept.vocabulary.get_or_insert_with(|| vocabulary_digest(vocab.vocab())).clone()
    }

    /// Another model talks from here on.
    pub(super) fn other_model(&mut self) {
        self.kept.vocabulary = None;
        self.kept.decoded.clear();
        self.happened(self.model_event());
    }

    fn model_event(&self) -> Event {
        Event::Model { name: self.loaded.name.clone(), file: self.loaded.own_file() }
    }

    /// Notes what happened; it is written at once where the chat has a file already.
    pub(super) fn happened(&mut self, event: Event) {
        self.kept.pending.push(event);
        if self.kept.chat.as_ref().is_some_and(Chat::is_on_disk) {
            self.write();
        }
    }

    /// Notes what takes effect only together with what comes next.
    pub(super) fn may_happen(&mut self, event: Event) {
        self.kept.pending.push(event);
    }

    pub(super) fn did_not_happen(&mut self) {
        self.kept.pending.clear();
    }

    /// Writes a question: from now on the chat has a file.
    pub(super) fn asked(&mut self, message: &Message) {
        self.kept.pending.push(Event::Message { message: message.clone(), decoded: None });
        self.write();
    }

    /// Writes an answer with the ids that were decoded for it.
    pub(super) fn answered(&mut self, message: &Message) {
        if self.kept.chat.is_none() {
            return;
        }
        let vocabulary = self.vocabulary();
        let session = self.loaded.speaker.session();
        let now: Vec<i32> = session.decoded().iter().map(|token| token.0).collect();
        let decoded = Decoded::change(vocabulary, &self.kept.decoded, &now);
        self.kept.decoded = now;
        self.kept.pending.push(Event::Message { message: message.clone(), decoded: Some(decoded) });
        self.write();
    }

    /// Notes where the chat ends in the prefix cache.
    pub(super) fn saved(&mut self) {
        let words = |end: End| [end.state.to_string(), end.parent.to_string(), end.block.to_string()];
        let ends: Vec<_> = self.loaded.speaker.session_mut().take_ends().into_iter().map(words).collect();
        let new: Vec<_> = ends.into_iter().filter(|end| !self.kept.ends.contains(end)).collect();
        if !new.is_empty() && self.kept.chat.as_ref().is_some_and(Chat::is_on_disk) {
            self.kept.ends.extend(new.clone());
            self.kept.pending.push(Event::Prefix { ends: new });
            self.write();
        }
    }

    fn write(&mut self) {
        let mut events = std::mem::take(&mut self.kept.pending);
        let Some(chat) = &mut self.kept.chat else { return };
        if !chat.has_begun() {
            let created = self.kept.created.get_or_insert_with(chat::now).clone();
            let (name, file) = (&self.loaded.name, self.loaded.own_file());
            events.insert(0, chat::begun(created, name, file, self.conversation.system.as_deref()));
        }
        if let Err(error) = chat.append(&events) {
            self.kept.chat = None;
            self.reply(&format!("qchat: this talk is kept no further: {error}"));
        }
    }

    /// Gives the chat a name.
    pub(super) fn save_as(&mut self, name: Option<&str>) -> Result<()> {
        let not_kept = self.not_kept();
        let Some(chat) = &mut self.kept.chat else { return Err(not_kept) };
        if let Some(name) = name {
            chat.rename(ChatName::new(name)?)?;
        }
        let name = chat.name().to_string();
        let line = format!("this talk is kept as {name} (`qchat run --chat {}` takes it up)", quoted(&name));
        self.reply(&line);
        Ok(())
    }

    fn not_kept(&self) -> Error {
        let error = Error::usage("nothing is kept of this talk");
        let hint = if self.loader.settings.private { "begin it without --private" } else { "/export FILE writes it" };
        error.hint(hint)
    }

    /// Goes on with another chat.
    pub(super) fn load_chat(&mut self, name: Option<&str>) -> Result<()> {
        let chats = Chats::new(self.loader.settings.paths.chats());
        let Some(name) = name else {
            let all = chats.list();
            if all.is_empty() {
                self.reply("there are no chats yet");
            }
            all.iter().for_each(|listed| self.reply(&listed.name.to_string()));
            return Ok(());
        };
        if self.kept.chat.is_none() {
            return Err(self.not_kept());
        }
        let name = ChatName::new(name)?;
        if name.to_string() == self.chat_name() {
            return Err(Error::usage("this is that chat").hint("/load lists the others"));
        }
        if !chats.exists(&name) {
            return Err(Error::usage(format!("there is no chat '{name}'")).hint("/load lists them"));
        }
        let opened = open_named(&chats, &name, &self.loader.terminal)?;
        self.leave();
        self.kept = Kept::new(Some(opened.chat));
        self.begin_anew();
        self.take_up(opened.past)
    }

    /// As a talk begins: nothing that was said or set in another one is left.
    fn begin_anew(&mut self) {
        let settings = self.loader.settings;
        self.conversation = Conversation::new(self.loaded.system(settings));
        self.settings = settings.clone();
        self.reasoning = self.loader.visibility();
        self.loaded.speaker.limit_context(settings.n_ctx);
        self.last = None;
    }

    /// Writes the talk to a file: JSON where its name ends so, else Markdown.
    pub(super) fn export(&self, file: Option<&str>) -> Result<()> {
        let name = self.kept.chat.as_ref().map_or_else(|| "chat".into(), |chat| chat.name().to_string());
        let file = file.map_or_else(|| format!("{name}.md"), str::to_owned);
        let past = Past {
            created: self.kept.created.clone().unwrap_or_else(chat::now),
            model: self.loaded.name.clone(),
            conversation: self.conversation.clone(),
            ..Past::default()
        };
        let is_json = Path::new(&file).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let text = if is_json { format!("{:#}\n", chat::json(&name, &past)) } else { chat::markdown(&name, &past) };
        // A file that somebody has already is not overwritten.
        let written = std::fs::File::create_new(expand_home(&file)).and_then(|mut out| out.write_all(text.as_bytes()));
        written.map_err(|error| {
            Error::failed(format!("{file} cannot be written: {error}")).hint("/export FILE takes another name")
        })?;
        self.reply(&format!("written to {file}"));
        Ok(())
    }
}
