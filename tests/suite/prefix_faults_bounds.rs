//! The prefix cache within its bounds: what goes first, what the clock may do, and a store of ten thousand blocks.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use qchat::engine::Token;
use qchat::prefix::{Bounds, Header, Inventory, Kind, Name, Prune, Store, prune};
use serde_json::json;

use super::prefix_faults::{BLOCK, Place, blocks, document, hours, scratch, set_age};
use crate::common::stderr;

const STATE: Name = Name([1; 32]);
const BYTES: usize = 1000;

/// A store with blocks that are named by a letter, each behind another one, and used so many hours ago.
struct Tree {
    folder: tempfile::TempDir,
    blocks: Vec<(char, Header)>,
}

impl Tree {
    fn of(blocks: &[(char, Option<char>, u64)]) -> Self {
        let mut own = Self { folder: scratch(), blocks: Vec::new() };
        let store = own.store();
        for (letter, parent, _) in blocks {
            let parent = parent.map(|parent| own.header(parent).clone());
            let tokens: Vec<Token> = (0..BLOCK as i32).map(|n| Token(n + 1000 * *letter as i32)).collect();
            let first = parent.as_ref().map_or(0, |parent| parent.first + BLOCK);
            let parent = parent.map_or(STATE, |parent| Name::block(STATE, parent.parent, &parent.tokens));
            let header = Header { state: STATE, parent, kind: Kind::Block, first, tokens };
            store.put(header.clone(), vec![0; BYTES], None);
            own.blocks.push((*letter, header));
        }
        store.flush();
        for (letter, _, ago) in blocks {
            set_age(&store.path(own.header(*letter)), SystemTime::now() - hours(*ago));
        }
        own
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn store(&self) -> Store {
        Store::new(self.root().to_owned(), Bounds::default())
    }

    fn header(&self, letter: char) -> &Header {
        &self.blocks.iter().find(|(own, _)| *own == letter).unwrap().1
    }

    /// The letters of what is there.
    fn left(&self) -> String {
        let store = self.store();
        self.blocks.iter().filter(|(_, header)| store.has(header)).map(|(letter, _)| letter).collect()
    }

    /// Bytes of one block's file.
    fn one(&self) -> u64 {
        Inventory::of(self.root()).found[0].bytes
    }

    /// Leaves room for so many blocks.
    fn keep(&self, blocks: u64) -> String {
        let wanted = Prune { max_size: Some(blocks * self.one() + 1), ..Prune::default() };
        prune(self.root(), &wanted).unwrap().unwrap();
        self.left()
    }

    fn younger_than(&self, age: Duration) -> String {
        prune(self.root(), &Prune { max_age: Some(age), ..Prune::default() }).unwrap().unwrap();
        self.left()
    }
}

/// A system prompt a with three talks behind it, one of them longer, and a prompt of its own.
fn talks() -> Tree {
    let a = Some('a');
    Tree::of(&[('a', None, 90), ('b', a, 5), ('c', a, 60), ('d', Some('b'), 70), ('e', a, 10), ('x', None, 50)])
}

#[test]
fn the_least_recently_used_leaves_go_first() {
    // Not a, which was used least recently of all: others follow it. b only once d is gone.
    let tree = talks();
    assert_eq!(tree.keep(6), "abcdex");
    assert_eq!(tree.keep(5), "abcex");
    assert_eq!(tree.keep(4), "abex");
    assert_eq!(tree.keep(3), "abe");
    assert_eq!(tree.keep(2), "ab");
    assert_eq!(tree.keep(1), "a");
    assert_eq!(tree.keep(0), "");
    // Nothing is left of the folders either.
    assert!(fs::read_dir(tree.root()).unwrap().flatten().all(|entry| entry.file_type().unwrap().is_file()));
    // All at once comes to the same.
    assert_eq!(talks().keep(2), "ab");
}

#[test]
fn what_was_used_lives_on() {
    let tree = talks();
    let store = tree.store();
    let prompt = [&tree.header('a').tokens[..], &tree.header('b').tokens, &tree.header('d').tokens].concat();
    let mut hit = store.find(STATE, BLOCK, &prompt);
    assert_eq!(hit.tokens, 3 * BLOCK);
    hit.entries.iter_mut().for_each(qchat::prefix::Entry::touch);
    assert_eq!(tree.keep(3), "abd");
}

#[test]
fn what_is_too_old_goes_unless_others_follow_it() {
    let tree = talks();
    assert_eq!(tree.younger_than(hours(100)), "abcdex");
    assert_eq!(tree.younger_than(hours(65)), "abcex");
    assert_eq!(tree.younger_than(hours(20)), "abe");
    assert_eq!(tree.younger_than(hours(1)), "");
}

#[test]
fn a_clock_that_went_back_makes_nothing_old() {
    let tree = talks();
    let store = tree.store();
    let later = |letter: char, by: u64| set_age(&store.path(tree.header(letter)), SystemTime::now() + hours(by));
    for letter in "abcde".chars() {
        later(letter, 100_000);
    }
    // Only x has an age.
    assert_eq!(tree.younger_than(hours(1)), "abcde");
    assert_eq!(tree.younger_than(Duration::ZERO), "abcde");
    assert_eq!(store.find(STATE, BLOCK, &tree.header('a').tokens).tokens, BLOCK);
    // Bounds of size hold all the same.
    assert!(tree.keep(2).starts_with('a') && tree.left().len() == 2);
    // A temporary file of tomorrow may be somebody's.
    let temporary = store.path(tree.header('a')).with_file_name(".new-x");
    fs::write(&temporary, "").unwrap();
    set_age(&temporary, SystemTime::now() + hours(30));
    assert_eq!(tree.keep(1), "a");
    assert!(temporary.exists());
    // The note of the last sweep lies in the future: it is not waited for.
    let place = Place::scripted(json!({}));
    place.run(&document(1, 600));
    place.run(&document(2, 600));
    for path in blocks(&place.store()) {
        set_age(&path, SystemTime::now() - hours(24 * 60));
    }
    let old = blocks(&place.store());
    let swept = json!({ "bytes": 1, "swept": { "secs_since_epoch": 32_000_000_000_u64, "nanos_since_epoch": 0 } });
    fs::write(place.store().join("usage.json"), swept.to_string()).unwrap();
    assert_eq!(place.run(&document(3, 600)).silently(), "Right.");
    let left = blocks(&place.store());
    assert!(left.len() == 3 && !old.iter().any(|path| left.contains(path)), "{left:?}");
}

#[test]
fn blocks_of_tomorrow_answer_today() {
    let place = Place::tiny(1);
    let document = document(4, 700);
    let filled = place.fill(&document);
    for when in [SystemTime::now() + hours(24 * 400), SystemTime::UNIX_EPOCH + hours(1)] {
        blocks(&place.store()).iter().for_each(|path| set_age(path, when));
        assert_eq!(place.run(&document), filled);
        // They were of use today.
        let today = Inventory::of(&place.store()).found.into_iter().filter(|found| found.used <= SystemTime::now());
        assert_eq!(today.filter(|found| found.used > SystemTime::now() - hours(1)).count(), 3);
    }
    blocks(&place.store()).iter().for_each(|path| set_age(path, SystemTime::now() + hours(24 * 400)));
    let pruned = place.cache(&["prune", "--max-age", "1h"]);
    assert!(pruned.status.success() && stderr(&pruned).starts_with("0 blocks deleted"), "{}", stderr(&pruned));
    assert!(place.cache(&[]).status.success());
    assert_eq!(place.verified(), 3);
}

#[test]
fn a_store_stays_within_its_bounds_and_keeps_what_all_share() {
    let place = Place::tiny(1);
    // Three blocks and a bit: two that all share, and each its own end.
    place.sandbox.write("qchat/config/config.toml", "[cache]\nmax_size = \"900kB\"\n");
    let beginning = document(5, 2 * BLOCK);
    for n in 0..12 {
        let said = place.run(&format!("{beginning}{}", document(100 + n, 300)));
        // From the third on the digest and the blocks are there.
        assert!(n < 2 || said.cached >= 2 * BLOCK as u64, "{n}: {}", said.cached);
        said.silently();
        let bytes = Inventory::of(&place.store()).bytes();
        assert!(bytes <= 900_000, "{bytes} bytes after run {n}");
    }
    assert!(place.verified() >= 4);
    // `--max-size` takes the ends before the beginning.
    let blocks = Inventory::of(&place.store()).found;
    let first = blocks.iter().find(|found| found.parent == found.state).unwrap();
    let size = (2 * first.bytes + 1).to_string();
    assert!(place.cache(&["prune", "--max-size", &size]).status.success());
    assert_eq!(place.verified(), 2);
    assert_eq!(place.run(&format!("{beginning}other")).cached, 2 * BLOCK as u64);
}

#[test]
fn one_of_ten_thousand_is_found() {
    const SHARED: i32 = 100;
    let folder = scratch();
    let store = Store::new(folder.path().to_owned(), Bounds { max_size: Some(1 << 40), ..Bounds::default() });
    // Prompts that begin alike: half of them whole blocks, half ends behind one of these.
    let tokens = |seed: i32, count: i32| -> Vec<Token> {
        (0..count).map(|n| Token(if n < SHARED { n } else { seed * 7 + n * n })).collect()
    };
    let put = |parent: Name, first: usize, tokens: Vec<Token>| {
        store.put(Header { state: STATE, parent, kind: Kind::Block, first, tokens }, vec![0; 8], None);
    };
    for seed in 0..5000 {
        put(STATE, 0, tokens(seed, BLOCK as i32));
    }
    let parent = tokens(77, BLOCK as i32);
    let behind = Name::block(STATE, STATE, &parent);
    for seed in 0..5000 {
        put(behind, BLOCK, tokens(seed, 200));
    }
    store.flush();
    assert_eq!(Inventory::of(folder.path()).found.len(), 10_000);
    let mut longest = Duration::ZERO;
    let mut find = |prompt: &[Token]| {
        let began = Instant::now();
        let found = store.find(STATE, BLOCK, prompt).tokens;
        longest = longest.max(began.elapsed());
        found
    };
    for seed in [0, 1, 77, 2500, 4998, 4999] {
        // A whole block, and one that the prompt shares in part: 230 of its tokens.
        let own = tokens(seed, BLOCK as i32);
        let is_parent = seed == 77;
        assert_eq!(find(&own), BLOCK, "{seed}");
        let parting = [&own[..230], &[Token(-5)]].concat();
        assert_eq!(find(&parting), 230, "{seed}");
        // An end, all of it, and 170 of its tokens.
        let end = tokens(seed, 200);
        let whole = [&parent[..], &end, &[Token(-5)]].concat();
        assert_eq!(find(&whole), BLOCK + 200, "{seed}");
        let parting = [&parent[..], &end[..170], &[Token(-5)]].concat();
        assert_eq!(find(&parting), BLOCK + 170, "{seed}");
        // Behind the others there is nothing.
        let nothing = [&own[..], &end].concat();
        assert_eq!(find(&nothing), if is_parent { BLOCK + 200 } else { BLOCK }, "{seed}");
    }
    // What nobody has but for the beginning.
    let unknown = tokens(1_000_000, BLOCK as i32);
    let found = find(&unknown);
    assert!((64..=SHARED as usize + 8).contains(&found), "{found}");
    assert_eq!(find(&[Token(-1); 300]), 0);
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}
