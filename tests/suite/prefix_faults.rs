//! The prefix cache when something is wrong with its files, its folder or its disk: every answer is what it is without it,
//! and trouble is one line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use qchat::engine::{Model, Token};
use qchat::generate::{Cached, Content, Keep, Session};
use qchat::prefix::{About, Bounds, Checked, Header, Inventory, Kind, Name, Rates, StateKey, Store};
use serde_json::json;
use tempfile::TempDir;

use super::engine::load;
use super::outcome::{answered, json};
use super::turns::{answer, ask, scripted, session, settings};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, stdout, with_stdin};

/// Tokens of a block.
pub const BLOCK: usize = 256;
const QUESTION: &str = "and what is that?";

/// Words from a to z that depend on a seed, so many bytes.
pub fn document(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(99);
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefghijklmnopqrstuvwxyz    "[(state >> 33) as usize % 30]
    };
    (0..bytes).map(|_| char::from(letter())).collect()
}

/// A tiny model that writes letters.
pub fn tiny(seed: u64) -> Tiny {
    Tiny { seed, says: |id| (97..123).contains(&id), ..Tiny::default() }
}

/// What a process said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub content: String,
    pub cached: u64,
    pub err: String,
}

impl Said {
    pub fn of(output: &Output) -> Self {
        let answer = json(output);
        Self {
            content: answer["content"].as_str().unwrap().to_owned(),
            cached: answer["usage"]["cached_tokens"].as_u64().unwrap(),
            err: stderr(output),
        }
    }

    /// The content; trouble is one line at most.
    #[track_caller]
    pub fn with_a_line(&self) -> &str {
        assert!(self.err.starts_with("qchat: ") && self.err.lines().count() == 1, "{:?}", self.err);
        &self.content
    }

    /// The content, of a run that had nothing to complain of.
    #[track_caller]
    pub fn silently(&self) -> &str {
        assert_eq!(self.err, "");
        &self.content
    }
}

/// A home with a model, and the program that answers a question about a piped document in it.
pub struct Place {
    pub sandbox: Sandbox,
    pub model: PathBuf,
}

impl Place {
    /// With the tiny model: a KV that is wrong says something else.
    pub fn tiny(seed: u64) -> Self {
        let sandbox = Sandbox::new();
        let model = sandbox.path("tiny.gguf");
        tiny(seed).write(&model).unwrap();
        Self { sandbox, model }
    }

    pub fn scripted(fields: serde_json::Value) -> Self {
        let sandbox = Sandbox::new();
        let model = sandbox.script_with(&["Right."], fields);
        Self { sandbox, model }
    }

    pub fn command(&self) -> Command {
        let mut command = self.sandbox.qchat();
        command.arg("run").arg(&self.model).args(["--temp", "0", "--max-tokens", "12", "--output", "json", QUESTION]);
        command
    }

    pub fn run(&self, document: &str) -> Said {
        Said::of(&with_stdin(self.command(), document.as_bytes()))
    }

    pub fn without_cache(&self, document: &str) -> String {
        let mut command = self.command();
        command.arg("--no-cache");
        Said::of(&with_stdin(command, document.as_bytes())).silently().to_owned()
    }

    /// Two runs: the first finds out what file this is, and saves; the second loads.
    pub fn fill(&self, document: &str) -> Said {
        assert_eq!(self.run(document).cached, 0);
        let filled = self.run(document);
        assert!(filled.cached > 0 && filled.err.is_empty(), "{filled:?}");
        filled
    }

    pub fn store(&self) -> PathBuf {
        self.sandbox.path("qchat/cache/kv-v1")
    }

    /// `qchat cache ARGS...`
    pub fn cache(&self, args: &[&str]) -> Output {
        self.sandbox.qchat().arg("cache").args(args).output().unwrap()
    }

    /// Every block is sound; answers how many there are.
    #[track_caller]
    pub fn verified(&self) -> usize {
        let said = answered(&self.cache(&["verify"]));
        let sound = said.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(
            said,
            format!("{sound} blocks are sound, 0 were damaged and are deleted, 0 belong to another key\n")
        );
        sound
    }
}

/// A folder whose syncs cost nothing, where there is one.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn blocks(root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Inventory::of(root).found.into_iter().map(|found| found.path).collect();
    paths.sort();
    paths
}

pub fn set_age(path: &Path, modified: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

pub fn hours(count: u64) -> Duration {
    Duration::from_secs(3600 * count)
}

/// Has every run load what is there: a script is read faster than any file.
fn forget_rates(root: &Path) {
    for state in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::remove_file(state.path().join("about.json"));
    }
}

/// One process's worth of answering, in this one: what it said, tokens out of the store, trouble.
pub fn once(model: &Arc<dyn Model>, root: &Path, digest: &str, prompt: &[Token]) -> (String, usize, Option<String>) {
    forget_rates(root);
    let store = Arc::new(Store::new(root.to_owned(), Bounds::default()));
    let mut session = cached(model, &store, digest);
    let answer = answer(&mut session, prompt, settings(0.0, Some(12)));
    session.save(&answer);
    store.flush();
    (answer.content, answer.cached_tokens, store.take_trouble())
}

pub fn cached(model: &Arc<dyn Model>, store: &Arc<Store>, digest: &str) -> Session {
    let content = Content::default();
    content.set(digest.to_owned()).unwrap();
    let mut session = session(Arc::clone(model), None, 0);
    session.cache(Some(Cached::new(Arc::clone(store), "model".into(), content)), Keep::Prompt);
    session
}

pub fn question(seed: u64, bytes: usize) -> Vec<Token> {
    let mut talk = Vec::new();
    ask(&mut talk, &document(seed, bytes));
    talk
}

/// The blocks of a prompt in order, as they lie in a store without others.
fn chain(root: &Path) -> Vec<PathBuf> {
    let found = Inventory::of(root).found;
    let mut parent = found[0].state;
    let mut chain = Vec::new();
    while let Some(next) = found.iter().find(|found| found.parent == parent) {
        chain.push(next.path.clone());
        parent = next.name;
    }
    chain
}

/// Does something to each block of a prompt of three, and asks twice.
fn with_damage(model: &Arc<dyn Model>, expected: &str, damages: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let folder = scratch();
    let root = folder.path();
    let prompt = question(1, 580);
    let all = prompt.len() - 1;
    assert_eq!(once(model, root, "d", &prompt), (expected.to_owned(), 0, None));
    assert_eq!(once(model, root, "d", &prompt), (expected.to_owned(), all, None));
    let chain = chain(root);
    assert_eq!(chain.len(), 3);
    for (index, path) in chain.iter().enumerate() {
        let sound = fs::read(path).unwrap();
        for bad in damages(&sound) {
            fs::write(path, &bad).unwrap();
            let at = sound.iter().zip(&bad).position(|(a, b)| a != b).unwrap_or(sound.len().min(bad.len()));
            let case = format!("block {index}, {} bytes of {}, wrong from byte {at}", bad.len(), sound.len());
            let (content, cached, trouble) = once(model, root, "d", &prompt);
            assert_eq!((content.as_str(), cached), (expected, index * BLOCK), "{case}");
            // The id of the key: for all one can know, the file of another key, and no trouble.
            let foreign = bad.len() == sound.len() && (8..16).contains(&at);
            assert_eq!(trouble.is_some_and(|line| line.contains("damaged")), !foreign, "{case}");
            let again = once(model, root, "d", &prompt);
            assert_eq!(again, (expected.to_owned(), all, None), "{case}");
        }
    }
}

fn flipped(sound: &[u8], at: usize) -> Vec<u8> {
    let mut bad = sound.to_vec();
    bad[at] ^= 1 << (at % 8);
    bad
}

#[test]
fn a_flipped_bit_anywhere_is_read_again_from_the_text() {
    // A header has 104 bytes, then come the tokens, 4 bytes each: what a script saves is that again, and the seal.
    let model = scripted(json!({ "replies": ["Right."] }));
    with_damage(&model, "Right.", |sound| {
        let len = sound.len();
        let spots = (0..112).chain((112..len - 32).step_by(61)).chain((len - 32..len).step_by(5));
        spots.map(|at| flipped(sound, at)).collect()
    });
}

#[test]
fn a_file_cut_anywhere_is_read_again_from_the_text() {
    let model = scripted(json!({ "replies": ["Right."] }));
    with_damage(&model, "Right.", |sound| {
        let len = sound.len();
        let cuts = (0..112).step_by(3).chain((112..len).step_by(97)).chain(len - 3..len);
        let longer = [sound, &[0; 1]].concat();
        cuts.map(|at| sound[..at].to_vec()).chain([longer, vec![0; len]]).collect()
    });
}

#[test]
fn damage_reaches_no_kv() {
    // The same of llama.cpp, whose answer hangs on every byte of it.
    let model = load(&Sandbox::new(), &tiny(1));
    let mut plain = session(Arc::clone(&model), None, 0);
    let expected = answer(&mut plain, &question(1, 580), settings(0.0, Some(12))).content;
    with_damage(&model, &expected, |sound| {
        let spots = [0, 20, 60, 80, 84, 88, 96, 104, 300, sound.len() / 2, sound.len() - 1];
        let flips = spots.map(|at| flipped(sound, at));
        let cuts = [0, 104, sound.len() / 2, sound.len() - 1].map(|at| sound[..at].to_vec());
        flips.into_iter().chain(cuts).collect()
    });
}

#[test]
fn damaged_files_are_one_line_and_then_none() {
    let place = Place::tiny(1);
    let document = document(2, 900);
    let expected = place.without_cache(&document);
    let filled = place.fill(&document);
    assert_eq!(filled.silently(), expected);
    let damage = |every: &dyn Fn(&[u8]) -> Vec<u8>| {
        for path in blocks(&place.store()) {
            let bad = every(&fs::read(&path).unwrap());
            fs::write(&path, bad).unwrap();
        }
    };
    let cut = |sound: &[u8]| sound[..sound.len() / 2].to_vec();
    let flip = |sound: &[u8]| flipped(sound, sound.len() - 50);
    let emptied = |_: &[u8]| Vec::new();
    for every in [&cut as &dyn Fn(&[u8]) -> Vec<u8>, &flip, &emptied] {
        damage(every);
        let said = place.run(&document);
        assert_eq!((said.with_a_line(), said.cached), (expected.as_str(), 0));
        assert!(said.err.contains("damaged"), "{}", said.err);
        // The first block was deleted and is saved again; the others are found out one after the other.
        for _ in 0..4 {
            assert_eq!(place.run(&document).content, expected);
        }
        let last = place.run(&document);
        assert_eq!((last.silently(), last.cached), (expected.as_str(), filled.cached));
    }
    // `verify` finds all at once.
    damage(&flip);
    let said = place.cache(&["verify"]);
    assert_eq!(said.status.code(), Some(1));
    assert!(stdout(&said).starts_with("0 blocks are sound, 4 were damaged and are deleted"), "{}", stdout(&said));
    assert_eq!(place.verified(), 0);
    assert_eq!(place.run(&document).silently(), expected);
    assert_eq!(place.run(&document), filled);
}

#[test]
fn files_of_another_key_are_a_miss_and_no_trouble() {
    let place = Place::tiny(1);
    let (document, other) = (document(3, 700), document(13, 700));
    let filled = place.fill(&document);
    let key = place.store().join("key");
    let own = fs::read(&key).unwrap();
    let contents = || blocks(&place.store()).into_iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    let before = contents();
    let wrong: Vec<u8> = own.iter().map(|byte| !byte).collect();
    fs::write(&key, &wrong).unwrap();
    assert!(stdout(&place.cache(&["verify"])).contains("0 blocks are sound, 0 were damaged and are deleted, 3 belong"));
    // They are left alone by what does not need their names.
    place.run(&other);
    assert_eq!(place.run(&other).silently(), place.without_cache(&other));
    let now = contents();
    assert!(now.len() == 6 && before.iter().all(|block| now.contains(block)));
    fs::write(&key, &own).unwrap();
    assert_eq!(place.run(&document), filled);
}

#[test]
fn a_lost_key_costs_one_reading() {
    let place = Place::tiny(1);
    let document = document(3, 700);
    let filled = place.fill(&document);
    let key = place.store().join("key");
    let own = fs::read(&key).unwrap();
    for damage in [&[1; 32][..], &own[..7], &[], b"gone"] {
        match damage {
            b"gone" => fs::remove_file(&key).unwrap(),
            damage => fs::write(&key, damage).unwrap(),
        }
        let said = place.run(&document);
        assert_eq!((said.silently(), said.cached), (filled.content.as_str(), 0), "{damage:?}");
        assert_eq!(place.run(&document), filled, "{damage:?}");
        assert_eq!(place.verified(), 3);
    }
    // Something that is no file is trouble.
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    assert_eq!(place.run(&document).with_a_line(), filled.content);
}

/// The names of the states in a store.
fn states(root: &Path) -> Vec<Name> {
    Inventory::of(root).about.into_keys().collect()
}

#[test]
fn another_model_under_the_same_path_name_size_and_date_is_a_miss() {
    let place = Place::tiny(1);
    let document = document(4, 700);
    let (one, other) = (tiny(1).bytes(), tiny(2).bytes());
    assert_eq!(one.len(), other.len());
    let first = place.fill(&document);
    let date = place.model.metadata().unwrap().modified().unwrap();
    for way in ["written over", "renamed"] {
        let replace = |bytes: &[u8]| match way {
            "renamed" => fs::rename(place.sandbox.write("new.gguf", bytes), &place.model).unwrap(),
            _ => fs::write(&place.model, bytes).unwrap(),
        };
        replace(&other);
        set_age(&place.model, date);
        let second = place.run(&document);
        assert_eq!((second.silently(), second.cached), (place.without_cache(&document).as_str(), 0));
        assert_ne!(second.content, first.content);
        assert_eq!(place.run(&document).content, second.content);
        // And back: not known at first, but the same as before.
        replace(&one);
        set_age(&place.model, date);
        let back = place.run(&document);
        assert_eq!((back.silently(), back.cached), (first.content.as_str(), 0));
        assert_eq!(place.run(&document), first);
    }
    assert_eq!(states(&place.store()).len(), 2);
}

#[test]
fn blocks_in_the_folder_of_another_model_are_a_miss() {
    // Two models of one shape, one prompt: all that tells their blocks apart is the state key in them.
    let folder = scratch();
    let prompt = question(5, 580);
    let models = [1, 2].map(|seed| load(&Sandbox::new(), &tiny(seed)));
    let plain = |model: &Arc<dyn Model>| {
        answer(&mut session(Arc::clone(model), None, 0), &prompt, settings(0.0, Some(12))).content
    };
    let expected = [&models[0], &models[1]].map(plain);
    assert_ne!(expected[0], expected[1]);
    let digests = ["one", "other"];
    let root = |name: &str| folder.path().join(name);
    let fill = |name: &str| {
        for (model, digest) in models.iter().zip(digests) {
            once(model, &root(name), digest, &prompt);
        }
        let state =
            |index: usize| StateKey { content: digests[index].into(), state: models[index].state_format(768) }.name();
        [state(0), state(1)]
    };
    let all = prompt.len() - 1;
    let asked = |name: &str, trouble: bool| {
        for _ in 0..3 {
            let (content, _, said) = once(&models[1], &root(name), "other", &prompt);
            assert_eq!(content, expected[1], "{name}");
            assert!(trouble || said.is_none(), "{name}: {said:?}");
        }
        let last = once(&models[1], &root(name), "other", &prompt);
        assert_eq!(last, (expected[1].clone(), all, None), "{name}");
    };
    // As they are, beside the other's own.
    let [one, other] = fill("beside").map(|state| root("beside").join(state.to_string()));
    copy(&one, &other);
    asked("beside", false);
    // In place of them.
    let [one, other] = fill("in place").map(|state| root("in place").join(state.to_string()));
    fs::remove_dir_all(&other).unwrap();
    copy(&one, &other);
    asked("in place", false);
    // With the folder of a prompt's first blocks named as the other model's.
    let [one, other] = fill("renamed");
    let to = root("renamed").join(other.to_string());
    fs::remove_dir_all(&to).unwrap();
    copy(&root("renamed").join(one.to_string()), &to);
    fs::rename(to.join(one.to_string()), to.join(other.to_string())).unwrap();
    asked("renamed", true);
    // Under the very names of the other's.
    fill("swapped");
    let at = |state: Name, parent: Name, first: usize, tokens: &[Token]| {
        let header = Header { state, parent, kind: Kind::Block, first, tokens: tokens.to_vec() };
        Store::new(root("swapped"), Bounds::default()).path(&header)
    };
    let mut parents = [one, other];
    for (index, run) in prompt.chunks(BLOCK).enumerate() {
        let [from, to] = [0, 1].map(|model| at([one, other][model], parents[model], index * BLOCK, run));
        assert!(from.exists() && to.exists());
        fs::copy(from, to).unwrap();
        parents = [0, 1].map(|model| Name::block([one, other][model], parents[model], run));
    }
    asked("swapped", true);
}

/// Copies a folder of folders of files over another one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Tokens that the store's blocks of a state stand for, from its first position on without a gap.
fn covered(root: &Path, state: Name) -> usize {
    let store = Store::new(root.to_owned(), Bounds::default());
    let inventory = Inventory::of(root);
    let (mut parent, mut tokens) = (state, 0);
    while let Some(next) = inventory.found.iter().find(|found| found.state == state && found.parent == parent) {
        let mut checked = Checked::default();
        store.check(&next.path, &mut checked);
        assert_eq!(checked.sound, 1);
        tokens += BLOCK;
        parent = next.name;
    }
    tokens
}

#[test]
fn states_of_two_formats_never_mix() {
    // A script says something else where its states are of two formats.
    let reply = "0123456789".repeat(120);
    let model = scripted(json!({ "replies": [reply], "context": 8192, "original_context": 1024 }));
    let folder = scratch();
    let root = folder.path();
    let name = |n_ctx| StateKey { content: "d".into(), state: model.state_format(n_ctx) }.name();
    let (short, long) = (name(1024), name(1025));
    assert_ne!(short, long);
    let prompt = question(6, 580);
    let all = prompt.len() - 1;
    let right = reply[..12].to_owned();
    assert_eq!(once(&model, root, "d", &prompt), (right.clone(), 0, None));
    assert_eq!(once(&model, root, "d", &prompt), (right.clone(), all, None));
    assert_eq!((covered(root, short), covered(root, long)), (3 * BLOCK, 0));
    // A longer prompt needs the other format: nothing of the first one counts.
    let longer = question(6, 1400);
    assert_eq!(longer[..500], prompt[..500]);
    assert_eq!(once(&model, root, "d", &longer), (right.clone(), 0, None));
    assert_eq!(once(&model, root, "d", &longer), (right.clone(), longer.len() - 1, None));
    assert_eq!((covered(root, short), covered(root, long)), (3 * BLOCK, 6 * BLOCK));
    // Each finds its own again.
    assert_eq!(once(&model, root, "d", &prompt), (right.clone(), all, None));
    // Growing beyond it in the middle of an answer: what was read, and loaded, is read again.
    fs::remove_dir_all(root.join(long.to_string())).unwrap();
    forget_rates(root);
    let store = Arc::new(Store::new(root.to_owned(), Bounds::default()));
    let mut session = cached(&model, &store, "d");
    let prompt = question(6, 300);
    let whole = answer(&mut session, &prompt, settings(0.0, None));
    assert_eq!(whole.content, reply);
    assert!(whole.cached_tokens > BLOCK && session.n_ctx() > 1024, "{}, {}", whole.cached_tokens, session.n_ctx());
    session.save(&whole);
    store.flush();
    assert_eq!((covered(root, short), covered(root, long)), (3 * BLOCK, 2 * BLOCK));
    assert_eq!(store.take_trouble(), None);
    // And between two answers of a talk.
    let mut session = cached(&model, &store, "d");
    let short_one = answer(&mut session, &prompt, settings(0.0, Some(12)));
    assert!(short_one.cached_tokens > BLOCK && session.n_ctx() <= 1024);
    let talk = [&prompt[..], &question(7, 1000)].concat();
    assert_eq!(answer(&mut session, &talk, settings(0.0, Some(12))).content, right);
    assert!(session.n_ctx() > 1024);
}

#[test]
fn rates_that_make_no_sense_are_not_believed() {
    let model = scripted(json!({ "replies": ["Right."] }));
    let folder = scratch();
    let prompt = question(7, 580);
    once(&model, folder.path(), "d", &prompt);
    let state = StateKey { content: "d".into(), state: model.state_format(768) }.name();
    let odd = [0.0, -1.0, 1e-300, 1e300, 5e-324];
    for (prefill, load) in odd.into_iter().flat_map(|prefill| odd.map(|load| (prefill, load))) {
        let store = Arc::new(Store::new(folder.path().to_owned(), Bounds::default()));
        let rates = Rates { prefill: Some(prefill), load: Some(load) };
        store.keep_about(state, &About { rates, ..About::default() });
        let answer = answer(&mut cached(&model, &store, "d"), &prompt, settings(0.0, Some(12)));
        assert_eq!(answer.content, "Right.", "reads {prefill}, loads {load}");
    }
    for text in ["", "{", "[1]", "{\"model\": 3}", "\0\0\0"] {
        fs::write(folder.path().join(state.to_string()).join("about.json"), text).unwrap();
        let store = Arc::new(Store::new(folder.path().to_owned(), Bounds::default()));
        let answer = answer(&mut cached(&model, &store, "d"), &prompt, settings(0.0, Some(12)));
        assert_eq!((answer.content.as_str(), store.take_trouble()), ("Right.", None), "{text:?}");
    }
}

#[test]
fn a_cache_folder_that_is_a_file_is_one_line() {
    let place = Place::tiny(1);
    let document = document(8, 700);
    let expected = place.without_cache(&document);
    fs::create_dir_all(place.sandbox.path("qchat/cache")).unwrap();
    fs::write(place.store(), "not a folder").unwrap();
    for _ in 0..2 {
        let said = place.run(&document);
        assert_eq!((said.with_a_line(), said.cached), (expected.as_str(), 0));
    }
    assert_eq!(fs::read(place.store()).unwrap(), b"not a folder");
    assert_eq!(stderr(&place.cache(&["prune"])).lines().count(), 1);
    // The whole cache folder is one: nothing can be made below it.
    fs::remove_dir_all(place.sandbox.path("qchat/cache")).unwrap();
    fs::write(place.sandbox.path("qchat/cache"), "not a folder").unwrap();
    for _ in 0..2 {
        assert_eq!(place.run(&document).with_a_line(), expected);
    }
    // A file where the folder of the model is to be.
    fs::remove_file(place.sandbox.path("qchat/cache")).unwrap();
    place.fill(&document);
    let state = place.store().join(states(&place.store())[0].to_string());
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "not a folder").unwrap();
    assert_eq!(place.run(&document).with_a_line(), expected);
}

/// What two runs said after `mount`, a shell line, was run in a file system view of its own. None where that is not allowed.
#[allow(clippy::print_stdout, reason = "a test that did not run says so")]
fn twice_in_a_mount(place: &Place, mount: &str, document: &str) -> Option<[Said; 2]> {
    fs::create_dir_all(place.sandbox.path("qchat/cache")).unwrap();
    place.sandbox.write("document", document);
    let words = "--temp 0 --max-tokens 12 --output json";
    let run = |n: u8| format!(r#""$0" run "$1" {words} "{QUESTION}" <document >out{n} 2>err{n} || exit 1"#);
    let line = format!("cd \"$HOME\" && ({mount}) && echo >mounted || exit 77\n{}\n{}", run(1), run(2));
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &line, env!("CARGO_BIN_EXE_qchat")]).arg(&place.model);
    let output = command.env_clear().envs(place.sandbox.environment()).output();
    if !place.sandbox.path("mounted").exists() {
        println!("skipped: mounting is not allowed here: {output:?}");
        return None;
    }
    let output = output.unwrap();
    let read = |name: String| fs::read(place.sandbox.path(&name)).unwrap();
    let said = |n: u8| {
        let (stdout, stderr) = (read(format!("out{n}")), read(format!("err{n}")));
        Said::of(&Output { status: output.status, stdout, stderr })
    };
    Some([said(1), said(2)])
}

#[test]
fn a_full_disk_is_one_line() {
    // A block has 131 KB. Without the bound nothing would be left in so small a place.
    let document = document(9, 900);
    let expected = Place::tiny(1).without_cache(&document);
    for (kilobytes, fit) in [(4, 0), (16, 0), (64, 0), (200, 1), (340, 2), (4000, 4)] {
        let place = Place::tiny(1);
        place.sandbox.write("qchat/config/config.toml", "[cache]\nmax_size = \"1GiB\"\n");
        let mount = format!("mount -t tmpfs -o size={kilobytes}k none qchat/cache");
        let Some([first, second]) = twice_in_a_mount(&place, &mount, &document) else { return };
        assert_eq!((first.content.as_str(), first.cached), (expected.as_str(), 0), "{kilobytes} kB");
        assert_eq!(second.content, expected, "{kilobytes} kB");
        if fit == 4 {
            assert!(second.cached > 900 && first.err.is_empty() && second.err.is_empty(), "{first:?} {second:?}");
        } else {
            assert_eq!(second.cached, fit * BLOCK as u64, "{kilobytes} kB");
            for said in [first, second] {
                said.with_a_line();
                assert!(said.err.contains("cannot be written"), "{}", said.err);
            }
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_still_read() {
    let place = Place::tiny(1);
    let (known, new) = (document(10, 700), document(11, 700));
    let filled = place.fill(&known);
    let mount = "mount --bind qchat/cache qchat/cache && mount -o remount,ro,bind qchat/cache";
    let Some(twice) = twice_in_a_mount(&place, mount, &known) else { return };
    assert_eq!(twice, [filled.clone(), filled]);
    let expected = place.without_cache(&new);
    for said in twice_in_a_mount(&place, mount, &new).unwrap() {
        assert_eq!((said.with_a_line(), said.cached), (expected.as_str(), 0));
    }
    // Nothing to read either.
    let empty = Place::tiny(1);
    for said in twice_in_a_mount(&empty, mount, &new).unwrap() {
        assert_eq!((said.with_a_line(), said.cached), (expected.as_str(), 0));
    }
}

#[test]
#[cfg(unix)]
fn a_long_prompt_needs_no_more_open_files_than_there_are() {
    let place = Place::scripted(json!({ "context": 65_536 }));
    let document = document(12, 40_000);
    place.run(&document);
    assert!(blocks(&place.store()).len() > 150);
    forget_rates(&place.store());
    let file = place.sandbox.write("document", &document);
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 100; exec "$0" "$@""#, env!("CARGO_BIN_EXE_qchat")]);
    command.args(place.command().get_args()).env_clear().envs(place.sandbox.environment());
    let said = Said::of(&command.stdin(fs::File::open(file).unwrap()).output().unwrap());
    assert_eq!(said.silently(), "Right.");
    assert!(said.cached > 40_000, "{}", said.cached);
}
