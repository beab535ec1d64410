//! The prefix cache among processes: killed ones, many at once, and ones that clear away what others read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use qchat::engine::Token;
use qchat::prefix::{Bounds, Header, Inventory, Kind, Name, Prune, Store, prune};
use serde_json::json;

use super::engine::load;
use super::prefix_faults::{BLOCK, Place, Said, blocks, cached, document, hours, question, scratch, set_age, tiny};
use super::turns::{answer, session, settings};
use crate::common::{Sandbox, stderr, with_stdin};

/// Everything that was begun under another name and not finished, in all of the cache folder.
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(unfinished(&entry.path()));
        } else if name.starts_with(".new-") || name.starts_with(".tmp") {
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn a_process_killed_at_any_moment_harms_nothing() {
    const KILLS: u32 = 240;
    // Blocks that take a while to be written.
    let place = Place::scripted(json!({ "context": 8192, "state_bytes": 200_000 }));
    // All share a beginning, so that each finds the blocks of others.
    let beginning = document(1, 4 * BLOCK);
    let document = |n: u32| format!("{beginning}{}", document(1000 + u64::from(n), 3 * BLOCK));
    let mut lives = [0, 1, 2, 3, 4].map(|n| {
        let began = Instant::now();
        assert_eq!(place.run(&document(KILLS + n)).silently(), "Right.");
        began.elapsed()
    });
    lives.sort();
    let life = lives[2];
    let (mut killed, mut saving, mut before) = (0, 0, Inventory::of(&place.store()).found.len());
    for n in 0..KILLS {
        if n % 8 == 0 {
            // As on the first day: who the model is must be found out, and a key be made.
            let _ = fs::remove_dir_all(place.sandbox.path("qchat/cache/identity-v1"));
        }
        if n % 60 == 30 {
            fs::remove_dir_all(place.store()).unwrap();
            before = 0;
        }
        let input = place.sandbox.write("document", document(n));
        let mut command = place.command();
        command.stdin(fs::File::open(input).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(life * (n % 60) / 50);
        child.kill().unwrap();
        let ended = child.wait().unwrap().success();
        let now = Inventory::of(&place.store()).found.len();
        killed += u32::from(!ended);
        saving += u32::from(!ended && now > before);
        assert!(now >= before, "kill {n} lost {} blocks", before - now);
        before = now;
    }
    // Many died before their end, some of them while they saved.
    assert!(killed > KILLS / 3 && saving > 0, "{killed}, {saving}");
    assert!(place.verified() > 0);
    for n in [0, 7, 30, 31, 101, KILLS - 1] {
        assert_eq!(place.run(&document(n)).silently(), "Right.");
        assert_eq!(place.run(&document(n)).silently(), "Right.");
    }
    let sound = place.verified();
    // What they left goes when nobody can need it any more, and not before.
    let folder = Inventory::of(&place.store()).found[0].path.parent().unwrap().to_owned();
    let left = [".new-in-a-folder", "../.new-about", "../../.new-usage"].map(|name| folder.join(name));
    for path in &left {
        fs::write(path, "half of it").unwrap();
    }
    assert!(place.cache(&["prune"]).status.success());
    assert!(left.iter().all(|path| path.exists()));
    for path in unfinished(&place.store()) {
        set_age(&path, SystemTime::now() - hours(2));
    }
    assert!(place.cache(&["prune"]).status.success());
    assert_eq!(unfinished(&place.store()), [] as [PathBuf; 0]);
    assert_eq!(place.verified(), sound);
}

/// Runs of so many processes at once; what each said.
fn at_once(place: &Place, documents: &[String]) -> Vec<Said> {
    std::thread::scope(|scope| {
        let started: Vec<_> = documents.iter().map(|document| scope.spawn(|| place.run(document))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn processes_at_once_share_one_store() {
    for count in [2, 8] {
        for same in [true, false] {
            // An empty store: they make folder and key at once, too.
            let place = Place::tiny(1);
            let documents: Vec<String> = (0..count)
                .map(|n| format!("{}{}", document(1, 300), document(if same { 2 } else { 2 + n }, 300)))
                .collect();
            let expected: Vec<String> = documents.iter().map(|document| place.without_cache(document)).collect();
            for _ in 0..2 {
                for (said, expected) in at_once(&place, &documents).iter().zip(&expected) {
                    assert_eq!(said.silently(), expected);
                }
            }
            // Nobody's blocks are sealed with a key that lost.
            let blocks = place.verified();
            assert!((3..=3 * documents.len()).contains(&blocks), "{blocks}");
            assert_eq!(unfinished(&place.sandbox.path("qchat/cache")), [] as [PathBuf; 0]);
            for (document, expected) in documents.iter().zip(&expected) {
                let said = place.run(document);
                assert_eq!((said.silently(), said.cached > 512), (expected.as_str(), true));
            }
        }
    }
}

#[test]
fn what_is_evicted_while_it_is_read_is_read_to_its_end_or_is_a_miss() {
    let folder = scratch();
    let root = folder.path();
    let state = Name([1; 32]);
    let tokens: Vec<Token> = (0..700).map(Token).collect();
    let fill = || {
        let store = Store::new(root.to_owned(), Bounds::default());
        let mut parent = state;
        for (index, run) in tokens.chunks(BLOCK).enumerate() {
            let header = Header { state, parent, kind: Kind::Block, first: index * BLOCK, tokens: run.to_vec() };
            parent = Name::block(state, parent, run);
            store.put(header, vec![index as u8; 5000], None);
        }
    };
    fill();
    let store = Store::new(root.to_owned(), Bounds::default());
    let mut hit = store.find(state, BLOCK, &tokens);
    assert_eq!((hit.entries.len(), hit.tokens), (3, 700));
    let all = Prune { max_size: Some(0), ..Prune::default() };
    assert_eq!(prune(root, &all).unwrap().unwrap().files, 3);
    assert_eq!(blocks(root), [] as [PathBuf; 0]);
    for (index, entry) in hit.entries.iter_mut().enumerate() {
        let mut payload = Vec::new();
        let read = store.payload(entry, &mut payload);
        assert!(read.is_none() || payload == vec![index as u8; 5000]);
    }
    assert_eq!(store.find(state, BLOCK, &tokens).tokens, 0);
    // Put in place anew by somebody else between finding and reading.
    fill();
    let mut hit = store.find(state, BLOCK, &tokens);
    prune(root, &all).unwrap();
    fill();
    for (index, entry) in hit.entries.iter_mut().enumerate() {
        let mut payload = Vec::new();
        assert!(store.payload(entry, &mut payload).is_some());
        assert_eq!(payload, vec![index as u8; 5000]);
    }
    assert_eq!(store.take_trouble(), None);
}

#[test]
fn answers_are_right_while_others_evict() {
    let folder = scratch();
    let root = folder.path();
    let model = load(&Sandbox::new(), &tiny(1));
    let prompts = [1, 2].map(|seed| question(seed, 580));
    let plain =
        |prompt: &Vec<Token>| answer(&mut session(Arc::clone(&model), None, 0), prompt, settings(0.0, Some(8))).content;
    let expected = [plain(&prompts[0]), plain(&prompts[1])];
    let done = AtomicBool::new(false);
    let hits: usize = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                prune(root, &Prune { max_size: Some(0), ..Prune::default() }).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let hits = (0..60).map(|round| {
            let store = Arc::new(Store::new(root.to_owned(), Bounds::default()));
            let mut session = cached(&model, &store, "d");
            let answer = answer(&mut session, &prompts[round % 2], settings(0.0, Some(8)));
            assert_eq!(answer.content, expected[round % 2]);
            session.save(&answer);
            store.flush();
            assert_eq!(store.take_trouble(), None, "round {round}");
            answer.cached_tokens
        });
        let hits = hits.filter(|cached| *cached > 0).count();
        done.store(true, Ordering::Relaxed);
        hits
    });
    assert!(hits < 60, "nothing was ever evicted");
}

#[test]
fn processes_answer_while_others_prune() {
    let place = Place::tiny(1);
    let documents: Vec<String> = (0..4).map(|n| format!("{}{}", document(1, 300), document(2 + n, 300))).collect();
    let expected: Vec<String> = documents.iter().map(|document| place.without_cache(document)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Refused where one of the others looks for what is too old.
                place.cache(&["prune", "--max-size", "0"]);
            }
        });
        for _ in 0..4 {
            for (said, expected) in at_once(&place, &documents).iter().zip(&expected) {
                assert_eq!(said.silently(), expected);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    place.verified();
    place.run(&documents[0]);
    assert!(place.run(&documents[0]).cached > 512);
    place.verified();
}

#[test]
fn what_is_saved_after_everything_was_cleared_can_be_found() {
    // A talk goes on while `qchat cache clear` takes the folder away, and the key with it.
    let place = Place::scripted(json!({}));
    let state = Name([1; 32]);
    let store = Store::new(place.store(), Bounds::default());
    let header = |first: i32| Header {
        state,
        parent: state,
        kind: Kind::Block,
        first: 0,
        tokens: (first..first + BLOCK as i32).map(Token).collect(),
    };
    store.put(header(0), vec![0; 100], None);
    store.flush();
    assert!(place.cache(&["clear"]).status.success());
    assert_eq!(blocks(&place.store()).len(), 0);
    store.put(header(1000), vec![0; 100], None);
    store.flush();
    assert_eq!(store.take_trouble(), None);
    assert_eq!(place.verified(), 1);
    let other = Store::new(place.store(), Bounds::default());
    assert_eq!(other.find(state, BLOCK, &header(1000).tokens).tokens, BLOCK);
    // Where somebody else has made a new one meanwhile, that one stays.
    drop(other);
    let key = place.store().join("key");
    fs::write(&key, [7; 32]).unwrap();
    store.put(header(2000), vec![0; 100], None);
    store.flush();
    assert_eq!(fs::read(&key).unwrap(), [7; 32]);
}

#[test]
fn a_process_that_prunes_is_not_waited_for() {
    let place = Place::tiny(1);
    let document = document(1, 700);
    let filled = place.fill(&document);
    let lock = fs::File::create(place.store().join("lock")).unwrap();
    lock.lock().unwrap();
    let refused = place.cache(&["prune", "--max-size", "0"]);
    assert_eq!((refused.status.code(), stderr(&refused).lines().count()), (Some(1), 1));
    assert!(stderr(&refused).contains("another qchat is pruning"), "{}", stderr(&refused));
    assert_eq!(prune(&place.store(), &Prune { max_size: Some(0), ..Prune::default() }).unwrap(), None);
    assert_eq!(place.run(&document), filled);
    // Too much is left to whoever holds the lock.
    place.sandbox.write("qchat/config/config.toml", "[cache]\nmax_size = \"1kB\"\n");
    let longer = format!("{document}{document}");
    let said = Said::of(&with_stdin(place.command(), longer.as_bytes()));
    assert_eq!(said.silently(), place.without_cache(&longer));
    assert!(blocks(&place.store()).len() > 3);
    drop(lock);
    assert!(place.cache(&["prune", "--max-size", "0"]).status.success());
    assert_eq!(blocks(&place.store()), [] as [PathBuf; 0]);
}

#[test]
fn a_folder_that_is_taken_away_is_made_again() {
    let folder = scratch();
    let root = folder.path();
    let store = Store::new(root.to_owned(), Bounds::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                prune(root, &Prune { max_size: Some(0), ..Prune::default() }).unwrap();
            }
        });
        for n in 0..3000 {
            let state = Name([(n % 7) as u8; 32]);
            let header = Header { state, parent: state, kind: Kind::Block, first: 0, tokens: vec![Token(n); 8] };
            store.put(header, vec![0; 8], None);
        }
        store.flush();
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.take_trouble(), None);
}
