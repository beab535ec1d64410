//! The store: finds what a prompt shares with what was read before, reads it, and takes what is new.
//!
//! Trouble with it never fails an answer. The first one is kept as a line ([`Store::take_trouble`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use super::about::About;
use super::block::{self, Entry, Fault, Header, Kind};
use super::evict::{Bounds, Inventory};
use super::key::{Name, Naming};
use super::layout::{self, FileName, Tail};
use super::seal::SealKey;
use super::write::{Job, Writer};
use crate::engine::Token;

/// Of the children that begin like a prompt as far as their names tell, so many are looked into.
const LOOKED_INTO: usize = 8;
/// Files of a hit that stay open. The others are opened again when they are read: systems allow few, macOS 256.
const OPEN: usize = 64;

/// A store in one folder.
pub struct Store {
    root: PathBuf,
    bounds: Bounds,
    key: Mutex<Option<SealKey>>,
    writer: Mutex<Option<Writer>>,
    trouble: Mutex<Trouble>,
}

/// The first thing that went wrong: told once, however much follows from it.
#[derive(Default)]
struct Trouble {
    line: Option<String>,
    was_told: bool,
    /// Whether writing failed: nothing is written any more.
    cannot_write: bool,
}

/// What there is of one state key.
#[derive(Clone, Debug)]
pub struct Usage {
    pub blocks: usize,
    pub tokens: usize,
    pub bytes: u64,
    pub used: SystemTime,
}

/// What a check of seals came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub sound: usize,
    pub damaged: usize,
    pub foreign: usize,
}

/// What the store has of a prompt.
#[derive(Debug, Default)]
pub struct Hit {
    /// Blocks in order; of the last one perhaps only the beginning. Or one whole state.
    pub entries: Vec<Entry>,
    /// Tokens of the prompt that they cover.
    pub tokens: usize,
}

impl Store {
    /// The store in `root`, which need not exist: it is made when something is saved.
    pub fn new(root: PathBuf, bounds: Bounds) -> Self {
        let store = Self { root, bounds, key: Mutex::default(), writer: Mutex::default(), trouble: Mutex::default() };
        match SealKey::read(&store.root.join("key")) {
            Ok(key) => *lock(&store.key) = key,
            Err(error) => store.trouble(format!("the prefix cache cannot be read: {error}")),
        }
        store
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The first thing that went wrong, once.
    pub fn take_trouble(&self) -> Option<String> {
        let mut trouble = lock(&self.trouble);
        let line = trouble.line.take();
        trouble.was_told |= line.is_some();
        line
    }

    fn trouble(&self, line: String) {
        let mut trouble = lock(&self.trouble);
        if !trouble.was_told {
            trouble.line.get_or_insert(line);
        }
    }

    fn cannot_write(&self, error: &io::Error) {
        lock(&self.trouble).cannot_write = true;
        self.trouble(format!("the prefix cache cannot be written: {error} (--no-cache leaves it alone)"));
    }

    fn key(&self) -> Option<SealKey> {
        lock(&self.key).clone()
    }

    /// The longest chain of blocks of `block` tokens that `tokens` begin with, then the child of the last one that shares
    /// most with what follows. Names find, tokens decide.
    pub fn find(&self, state: Name, block: usize, tokens: &[Token]) -> Hit {
        let Some(key) = self.key() else { return Hit::default() };
        let mut hit = Hit::default();
        let mut parent = state;
        for run in tokens.chunks_exact(block) {
            let wanted = Header { state, parent, kind: Kind::Block, first: hit.tokens, tokens: run.to_vec() };
            let path = layout::path(&self.root, &wanted);
            let Some(mut entry) = self.open(&path, &key, |own| *own == wanted) else { break };
            if hit.entries.len() >= OPEN {
                entry.close();
            }
            parent = Name::block(state, parent, run);
            hit.tokens += block;
            hit.entries.push(entry);
        }
        let rest = &tokens[hit.tokens..];
        if let Some((entry, shared)) = self.nearest(state, parent, hit.tokens, &rest[..rest.len().min(block)], &key) {
            hit.entries.push(entry);
            hit.tokens += shared;
        }
        hit
    }

    /// The child of `parent` that shares most with `tokens`, and how many.
    fn nearest(
        &self,
        state: Name,
        parent: Name,
        first: usize,
        tokens: &[Token],
        key: &SealKey,
    ) -> Option<(Entry, usize)> {
        if tokens.is_empty() {
            return None;
        }
        let wanted = layout::marks(tokens);
        let folder = layout::folder(&self.root, state, parent);
        // Of ten thousand children only the names are looked at, and those without taking them apart.
        let mut alike: Vec<OsString> = Vec::new();
        let mut most = 0;
        for child in std::fs::read_dir(&folder).ok()?.flatten() {
            let name = child.file_name();
            let Some(same) = layout::same_marks(&name, &wanted) else { continue };
            if same > most {
                alike.clear();
                most = same;
            }
            if same == most && alike.len() < LOOKED_INTO {
                alike.push(name);
            }
        }
        let shared = |name: &OsString| {
            let path = folder.join(name);
            let belongs = |own: &Header| {
                own.state == state && own.parent == parent && own.first == first && own.is_called_so(&path)
            };
            let entry = self.open(&path, key, belongs)?;
            let shared = entry.header.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            (shared > 0).then_some((entry, shared))
        };
        // The one with the fewest tokens where several share as many: it loads faster.
        let better = |(entry, shared): &(Entry, usize)| (*shared, std::cmp::Reverse(entry.payload_len));
        alike.iter().filter_map(shared).max_by_key(better)
    }

    /// The whole state behind the most tokens that `tokens` begin with.
    pub fn find_whole(&self, state: Name, tokens: &[Token]) -> Hit {
        let Some(key) = self.key() else { return Hit::default() };
        let Ok(children) = std::fs::read_dir(layout::folder(&self.root, state, state)) else { return Hit::default() };
        let mut by_count: BTreeMap<usize, Vec<FileName>> = BTreeMap::new();
        for child in children.flatten() {
            if let Some(own) = child.file_name().to_str().and_then(FileName::parse)
                && let Tail::Whole(count) = own.kind
                && count <= tokens.len()
            {
                by_count.entry(count).or_default().push(own);
            }
        }
        let mut naming = Naming::new(state, state);
        let mut read = 0;
        let mut found = Vec::new();
        for (count, names) in &by_count {
            naming.push(&tokens[read..*count]);
            read = *count;
            let name = naming.name();
            found.extend(names.iter().filter(|own| own.name == name));
        }
        for own in found.into_iter().rev() {
            let path = layout::folder(&self.root, state, state).join(own.text());
            let belongs = |own: &Header| own.state == state && own.first == 0 && own.is_called_so(&path);
            if let Some(entry) = self.open(&path, &key, belongs)
                && tokens.starts_with(&entry.header.tokens)
            {
                let tokens = entry.header.tokens.len();
                return Hit { entries: vec![entry], tokens };
            }
        }
        Hit::default()
    }

    /// Opens a file. One that is damaged, or does not belong where it lies, is deleted and reported: under its name nothing
    /// else would be saved.
    fn open(&self, path: &Path, key: &SealKey, belongs: impl FnOnce(&Header) -> bool) -> Option<Entry> {
        let entry = Entry::open(path, key);
        let entry = entry.and_then(|entry| if belongs(&entry.header) { Ok(entry) } else { Err(Fault::Broken) });
        entry.map_err(|fault| self.faulty(path, &fault)).ok()
    }

    /// Reads the payload of an entry into `payload`, its seal verified; a damaged file is deleted and reported.
    pub fn payload(&self, entry: &mut Entry, payload: &mut Vec<u8>) -> Option<()> {
        let key = self.key()?;
        entry.payload(&key, payload).map_err(|fault| self.faulty(&entry.path, &fault)).ok()
    }

    fn faulty(&self, path: &Path, fault: &Fault) {
        match fault {
            Fault::Foreign => {}
            Fault::Io(error) if error.kind() == io::ErrorKind::NotFound => {}
            Fault::Io(error) => self.trouble(format!("a file of the prefix cache cannot be read: {error}")),
            Fault::Broken => self.discard(path),
        }
    }

    /// Deletes a file that turned out to be wrong, and says so.
    pub fn discard(&self, path: &Path) {
        let _ = std::fs::remove_file(path);
        self.trouble("a damaged file of the prefix cache was deleted and is read again from the text".into());
    }

    /// Whether a block is here already. One of another key is as good as none, and the same block takes its place: or else
    /// nothing that begins like it could be found ever again.
    pub fn has(&self, header: &Header) -> bool {
        self.key().is_some_and(|key| block::is_of(&layout::path(&self.root, header), &key))
    }

    /// Whether the children of its parent cover a block that is shorter than a whole one.
    pub fn covers(&self, header: &Header) -> bool {
        self.has(header)
            || self.key().is_some_and(|key| {
                let near = self.nearest(header.state, header.parent, header.first, &header.tokens, &key);
                near.is_some_and(|(_, shared)| shared == header.tokens.len())
            })
    }

    /// Takes a block, to be written by another thread; `replaces` is a file that is of no use any more then. The caller
    /// waits where eight are in line already, so that memory stays bounded.
    pub fn put(&self, header: Header, payload: Vec<u8>, replaces: Option<PathBuf>) {
        let Some(key) = self.key_to_write() else { return };
        let root = self.root.clone();
        lock(&self.writer).get_or_insert_with(|| Writer::start(root, key)).put(Job { header, payload, replaces });
    }

    /// The path that a block is written to.
    pub fn path(&self, header: &Header) -> PathBuf {
        layout::path(&self.root, header)
    }

    fn key_to_write(&self) -> Option<SealKey> {
        if lock(&self.trouble).cannot_write {
            return None;
        }
        if let Some(key) = self.key() {
            return Some(key);
        }
        let make = || {
            layout::make_folder(&self.root)?;
            mark_as_cache(&self.root)?;
            SealKey::read_or_make(&self.root.join("key"))
        };
        match make() {
            Ok(key) => *lock(&self.key) = Some(key),
            Err(error) => self.cannot_write(&error),
        }
        self.key()
    }

    /// Waits until everything is written, and evicts what is beyond the bounds.
    pub fn flush(&self) {
        let Some(writer) = lock(&self.writer).take() else { return };
        let written = writer.finish();
        if let Some(error) = written.error {
            self.cannot_write(&error);
        }
        if written.bytes > 0 {
            super::evict::after_writing(&self.root, &self.bounds, written.bytes);
        }
    }

    /// What there is of each state key. Blocks of another key count no tokens.
    pub fn usage(&self, inventory: &Inventory) -> BTreeMap<Name, Usage> {
        let key = self.key();
        let mut all: BTreeMap<Name, Usage> = BTreeMap::new();
        for found in &inventory.found {
            let header = key.as_ref().and_then(|key| Entry::open(&found.path, key).ok());
            let own = all.entry(found.state).or_insert(Usage { blocks: 0, tokens: 0, bytes: 0, used: found.used });
            own.blocks += 1;
            own.tokens += header.map_or(0, |entry| entry.header.tokens.len());
            own.bytes += found.bytes;
            own.used = own.used.max(found.used);
        }
        all
    }

    /// Reads a file and its seal; a damaged one is deleted.
    pub fn check(&self, path: &Path, checked: &mut Checked) {
        let Some(key) = self.key() else {
            checked.foreign += 1;
            return;
        };
        match Entry::open(path, &key).and_then(|mut entry| entry.payload(&key, &mut Vec::new())) {
            Ok(()) => checked.sound += 1,
            Err(Fault::Foreign) => checked.foreign += 1,
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(fault) => {
                checked.damaged += usize::from(matches!(fault, Fault::Broken));
                self.faulty(path, &fault);
            }
        }
    }

    /// What is kept about a state key.
    pub fn about(&self, state: Name) -> About {
        About::read(&self.root, state).unwrap_or_default()
    }

    /// Keeps it. A store that cannot be written to says so elsewhere.
    pub fn keep_about(&self, state: Name, about: &About) {
        if self.key().is_some() {
            let _ = about.write(&self.root, state);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.flush();
    }
}

/// So that backup programs leave the folder out (bford.info/cachedir).
fn mark_as_cache(root: &Path) -> io::Result<()> {
    const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
        # This folder is a cache of qchat: what was read of prompts and talks. `qchat cache clear` empties it.\n";
    let mut file = layout::private_file().truncate(true).open(root.join("CACHEDIR.TAG"))?;
    io::Write::write_all(&mut file, TAG.as_bytes())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
