//! Chats on disk: a file of events each, appended and synced under a lock.
//!
//! A line that was torn by a crash is cut off when the file is next opened; a damaged line anywhere else is an error, since
//! only its owner knows what it said.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::events::{Event, Past, VERSION};
use crate::error::{Error, Result};

const EXTENSION: &str = "jsonl";
/// Leaves room for the extension in the 255 bytes that file systems allow.
const LONGEST: usize = 200;
/// Characters of a wrong name in an error.
const SHOWN: usize = 40;

/// Whether a character is obeyed or passed over by terminals, except for the joiners that emoji and some scripts need.
fn is_hidden(c: char) -> bool {
    let marks = ['\u{61c}', '\u{200b}', '\u{200e}', '\u{200f}', '\u{feff}'];
    c.is_control() || marks.contains(&c) || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// A checked name of a chat: one part of a path, and nothing that a terminal obeys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChatName(String);

impl ChatName {
    /// # Errors
    /// When it cannot be the name of a file, saying why.
    pub fn new(text: &str) -> Result<Self> {
        let wrong = if text.is_empty() {
            "it is empty"
        } else if text.len() > LONGEST {
            "it is too long"
        } else if text.chars().any(is_hidden) {
            "it has control characters"
        } else if text.contains(['/', '\\', ':', '*', '?', '"', '<', '>', '|']) {
            "it has characters that file names cannot have"
        } else if text.starts_with(['.', '-', ' ']) || text.ends_with(['.', ' ']) {
            "it begins or ends with a character that file names cannot"
        } else {
            return Ok(Self(text.to_owned()));
        };
        let mut shown: String = text.chars().filter(|c| !is_hidden(*c)).take(SHOWN).collect();
        if text.chars().count() > SHOWN {
            shown.push_str("...");
        }
        Err(Error::usage(format!("'{shown}' cannot name a chat: {wrong}")).hint("take letters, digits, - and _"))
    }

    /// One made of the time, which no chat has yet.
    fn of_now(folder: &Path) -> Self {
        let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S").to_string();
        let names = std::iter::once(now.clone()).chain((2..).map(|n| format!("{now}-{n}")));
        let free = names.map(ChatName).find(|name| !name.file(folder).exists());
        free.unwrap_or(ChatName(now))
    }

    fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{EXTENSION}", self.0))
    }
}

impl fmt::Display for ChatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The chats of one folder.
#[derive(Clone, Debug)]
pub struct Chats {
    folder: PathBuf,
}

/// A chat as a list shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: ChatName,
    pub used: SystemTime,
    pub bytes: u64,
}

/// A chat that is open here and nowhere else; its file is made with the first event.
#[derive(Debug)]
pub struct Chat {
    folder: PathBuf,
    name: ChatName,
    file: Option<File>,
    begun: bool,
    /// Whether the time is its name, for which the next second does as well.
    by_time: bool,
}

/// A chat that was opened, with what was in it.
#[derive(Debug)]
pub struct Opened {
    pub chat: Chat,
    pub past: Past,
    /// Bytes of a torn last line that were cut off.
    pub torn: usize,
}

impl Chats {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All chats, the one that was used last first.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |entry: fs::DirEntry| {
            let file = entry.file_name();
            let name = file.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(Listed { name: ChatName::new(name).ok()?, used, bytes: meta.len() })
        };
        let mut all: Vec<_> = fs::read_dir(&self.folder).into_iter().flatten().flatten().filter_map(listed).collect();
        all.sort_by(|a, b| (b.used, &b.name).cmp(&(a.used, &a.name)));
        all
    }

    /// A new chat under a name made of the time.
    pub fn begin(&self) -> Chat {
        Chat {
            folder: self.folder.clone(),
            name: ChatName::of_now(&self.folder),
            file: None,
            begun: false,
            by_time: true,
        }
    }

    /// Opens a chat for itself alone; one that is not there yet is empty.
    ///
    /// # Errors
    /// When it is open elsewhere, damaged, or cannot be used.
    pub fn open(&self, name: &ChatName) -> Result<Opened> {
        let path = name.file(&self.folder);
        let chat = |file, begun| Chat { folder: self.folder.clone(), name: name.clone(), file, begun, by_time: false };
        let mut file = match File::options().read(true).append(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Opened { chat: chat(None, false), past: Past::default(), torn: 0 });
            }
            Err(error) => return Err(unusable(name, &error)),
        };
        lock(&file, name)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| unusable(name, &error))?;
        let (past, sound) = replay(name, &bytes)?;
        let torn = bytes.len() - sound;
        if torn > 0 {
            file.set_len(sound as u64).map_err(|error| unusable(name, &error))?;
        }
        if bytes[..sound].last().is_some_and(|byte| *byte != b'\n') {
            file.write_all(b"\n").map_err(|error| unusable(name, &error))?;
        }
        Ok(Opened { chat: chat(Some(file), past != Past::default()), past, torn })
    }

    /// Reads a chat, also one that is open elsewhere.
    ///
    /// # Errors
    /// When it is not there, or damaged.
    pub fn read(&self, name: &ChatName) -> Result<Past> {
        let bytes = fs::read(name.file(&self.folder)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::usage(format!("there is no chat '{name}'")).hint("`qchat chats` lists them")
            }
            _ => unusable(name, &error),
        })?;
        Ok(replay(name, &bytes)?.0)
    }

    pub fn exists(&self, name: &ChatName) -> bool {
        name.file(&self.folder).exists()
    }

    /// Deletes a chat.
    ///
    /// # Errors
    /// When it is open elsewhere or cannot be deleted.
    pub fn remove(&self, name: &ChatName) -> Result<()> {
        let path = name.file(&self.folder);
        let file = File::options().append(true).open(&path).map_err(|error| unusable(name, &error))?;
        lock(&file, name)?;
        fs::remove_file(path).map_err(|error| unusable(name, &error))
    }
}

impl Chat {
    pub fn name(&self) -> &ChatName {
        &self.name
    }

    /// Whether anything was ever written to it.
    pub fn is_on_disk(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it has its first event; a file that was torn early has none.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Appends what happened and syncs it.
    ///
    /// # Errors
    /// When it cannot be written; a part of a line is taken back.
    pub fn append(&mut self, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, event).map_err(|error| Error::failed(error.to_string()))?;
            lines.push(b'\n');
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => loop {
                match create(&self.folder, &self.name)? {
                    Some(file) => break none.insert(file),
                    // Two terminals that are opened at once begin in the same second.
                    None if self.by_time => self.name = ChatName::of_now(&self.folder),
                    None => return Err(open_elsewhere(&self.name)),
                }
            },
        };
        let name = self.name.clone();
        let before =
            file.stream_position().and_then(|_| file.metadata()).map_err(|error| unusable(&name, &error))?.len();
        file.write_all(&lines).and_then(|()| file.sync_data()).map_err(|error| {
            let _ = file.set_len(before);
            unusable(&name, &error)
        })?;
        self.begun = true;
        Ok(())
    }

    /// Gives it another name, which no chat may have yet.
    ///
    /// # Errors
    /// When there is one.
    pub fn rename(&mut self, name: ChatName) -> Result<()> {
        let (old, new) = (self.name.file(&self.folder), name.file(&self.folder));
        if name == self.name {
            return Ok(());
        }
        let taken = || Error::usage(format!("there is a chat '{name}' already")).hint("take another: /save NAME");
        if self.file.is_some() {
            // A link fails where the name is taken, and a rename would not.
            match fs::hard_link(&old, &new) {
                Ok(()) => fs::remove_file(&old).map_err(|error| unusable(&name, &error))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken()),
                Err(_) if new.exists() => return Err(taken()),
                Err(_) => fs::rename(&old, &new).map_err(|error| unusable(&name, &error))?,
            }
        } else if new.exists() {
            return Err(taken());
        }
        (self.name, self.by_time) = (name, false);
        Ok(())
    }
}

/// The time as a chat has it.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Drop for Chat {
    fn drop(&mut self) {
        // Not left to the closing: a process that is being started has the file open for a moment too.
        let _ = self.file.as_ref().map(File::unlock);
    }
}

/// The first event of a chat.
pub fn begun(created: String, model: &str, file: Option<String>, system: Option<&str>) -> Event {
    Event::Begin { version: VERSION, created, model: model.to_owned(), file, system: system.map(str::to_owned) }
}

/// Makes the file of a chat; none where there is one.
fn create(folder: &Path, name: &ChatName) -> Result<Option<File>> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    let mut options = File::options();
    options.read(true).append(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        builder.mode(0o700);
        options.mode(0o600);
    }
    builder.create(folder).map_err(|error| unusable(name, &error))?;
    match options.open(name.file(folder)) {
        Ok(file) => lock(&file, name).map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(unusable(name, &error)),
    }
}

fn lock(file: &File, name: &ChatName) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(open_elsewhere(name)),
        // Where files cannot be locked, two terminals on one chat are the user's to avoid.
        Err(fs::TryLockError::Error(_)) => Ok(()),
    }
}

fn open_elsewhere(name: &ChatName) -> Error {
    Error::failed(format!("the chat '{name}' is open in another qchat"))
        .hint("close it there, or begin one with --chat NAME")
}

fn unusable(name: &ChatName, error: &io::Error) -> Error {
    Error::failed(format!("the chat '{name}' cannot be used: {error}"))
        .hint("`qchat config` shows where chats are kept")
}

/// The chat that the lines make, and how many bytes of them are whole lines.
fn replay(name: &ChatName, bytes: &[u8]) -> Result<(Past, usize)> {
    let mut past = Past::default();
    let mut at = 0;
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let last = at + line.len() == bytes.len();
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        match serde_json::from_slice::<Event>(text) {
            Ok(Event::Begin { version, .. }) if version > VERSION => {
                return Err(Error::failed(format!("the chat '{name}' was written by a newer qchat"))
                    .hint("update this one (`qchat --version` says which it is)"));
            }
            Ok(event) => past.happen(event),
            Err(_) if text.iter().all(u8::is_ascii_whitespace) => {}
            // What was being written when the power went.
            Err(_) if last && text == line => return Ok((past, at)),
            Err(error) => {
                // serde_json knows of one line only.
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default();
                let message =
                    format!("the chat '{name}' is damaged in line {}, column {}: {what}", number + 1, error.column());
                return Err(Error::failed(message).hint(format!(
                    "mend or delete that line of {name}.{EXTENSION} (`qchat config` shows the folder), \
                     or delete all of it: `qchat chats rm NAME`"
                )));
            }
        }
        at += line.len();
    }
    Ok((past, at))
}

#[cfg(test)]
mod tests {
    use super::super::conversation::{Message, Role};
    use super::*;

    fn user(text: &str) -> Event {
        Event::Message { message: Message::new(Role::User, text), decoded: None }
    }

    fn name(text: &str) -> ChatName {
        ChatName::new(text).unwrap()
    }

    fn texts(past: &Past) -> Vec<&str> {
        past.conversation.messages().iter().map(|own| own.content.as_str()).collect()
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "work-2", "世界", "été 🎉", "👨\u{200d}👩\u{200d}👧", "a.b"] {
            assert!(ChatName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            "a\u{7}",
            "\u{1b}[31m",
            "a\n",
            "-x",
            ".x",
            "x.",
            "x ",
            "a:b",
            "\u{202e}a",
            "\u{2067}a",
            "\u{feff}a",
        ] {
            assert!(ChatName::new(bad).is_err(), "{bad:?}");
        }
        assert!(ChatName::new(&"x".repeat(201)).is_err());
    }

    #[test]
    fn a_chat_cut_at_any_byte_has_all_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let chats = Chats::new(folder.path().join("chats"));
        let mut chat = chats.begin();
        let told = ["one", "two\nlines", "three 世界 🎉"];
        chat.append(&[begun(now(), "m", None, Some("s"))]).unwrap();
        told.iter().for_each(|text| chat.append(&[user(text)]).unwrap());
        let path = chat.name().file(&chats.folder);
        drop(chat);
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let Opened { mut chat, past, torn } = chats.open(&chats.list()[0].name).unwrap();
            // A line that lacks only its end is whole.
            let lines = ends.iter().filter(|end| **end <= cut + 1).count();
            assert_eq!(texts(&past), &told[..lines.saturating_sub(1)], "cut at {cut}");
            let at_end = cut == 0 || ends.iter().any(|end| cut == *end || cut + 1 == *end);
            assert_eq!(torn > 0, !at_end, "cut at {cut}");
            chat.append(&[user("more")]).unwrap();
            let name = chat.name().clone();
            drop(chat);
            assert_eq!(texts(&chats.read(&name).unwrap()).last(), Some(&"more"), "cut at {cut}");
        }
    }

    #[test]
    fn damage_in_the_middle_is_an_error_that_names_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let chats = Chats::new(folder.path().to_owned());
        fs::write(folder.path().join("x.jsonl"), "{\"event\":\"clear\"}\nnonsense\n{\"event\":\"clear\"}\n").unwrap();
        let error = chats.open(&name("x")).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("x.jsonl")).unwrap().lines().count(), 3);
    }

    #[test]
    fn a_chat_is_open_once() {
        let folder = tempfile::tempdir().unwrap();
        let chats = Chats::new(folder.path().to_owned());
        let mut first = chats.open(&name("x")).unwrap().chat;
        let mut second = chats.open(&name("x")).unwrap().chat;
        first.append(&[begun(now(), "m", None, None)]).unwrap();
        assert!(second.append(&[begun(now(), "m", None, None)]).unwrap_err().to_string().contains("another qchat"));
        assert!(chats.open(&name("x")).unwrap_err().to_string().contains("another qchat"));
        assert!(chats.remove(&name("x")).is_err());
        assert!(chats.read(&name("x")).is_ok());
        drop(first);
        assert!(chats.open(&name("x")).is_ok());
        chats.remove(&name("x")).unwrap();
        assert!(chats.list().is_empty());
    }

    #[test]
    fn a_name_that_is_taken_is_not_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let chats = Chats::new(folder.path().to_owned());
        let mut a = chats.open(&name("a")).unwrap().chat;
        a.append(&[begun(now(), "m", None, None), user("of a")]).unwrap();
        let mut b = chats.open(&name("b")).unwrap().chat;
        b.append(&[begun(now(), "m", None, None)]).unwrap();
        assert!(b.rename(name("a")).is_err());
        b.rename(name("c")).unwrap();
        b.append(&[user("of b")]).unwrap();
        drop((a, b));
        assert_eq!(texts(&chats.read(&name("a")).unwrap()), ["of a"]);
        assert_eq!(texts(&chats.read(&name("c")).unwrap()), ["of b"]);
        assert!(!chats.exists(&name("b")));
    }
}
