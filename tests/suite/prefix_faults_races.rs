//! The prefix cache among processes: killed ones, many at once, and ones that clear away what others read.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qchat::engine::Token;
use qchat::prefix::{Bounds, Header, Kind, Name, Prune, Store, prune};

use super::engine::load;
use super::prefix_faults::{BLOCK, Place, Said, blocks, cached, document, question, scratch, tiny};
use super::turns::{answer, session, settings};
use crate::common::{Sandbox, stderr, with_stdin};

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
        let payload = store.payload(entry);
        assert!(payload.is_none_or(|payload| payload == vec![index as u8; 5000]));
    }
    assert_eq!(store.find(state, BLOCK, &tokens).tokens, 0);
    // Put in place anew by somebody else between finding and reading.
    fill();
    let mut hit = store.find(state, BLOCK, &tokens);
    prune(root, &all).unwrap();
    fill();
    for (index, entry) in hit.entries.iter_mut().enumerate() {
        assert_eq!(store.payload(entry), Some(vec![index as u8; 5000]));
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
