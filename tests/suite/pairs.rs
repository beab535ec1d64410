//! Which model drafts for which, and how much memory the two take.

use std::path::PathBuf;

use qchat::error::Kind;
use qchat::models::{DraftWish, Needs, Resolved, Resolver};
use qchat::paths::Paths;

use super::bad_input::{places, tensor_bytes};
use super::outcome::answered;
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

/// A home with models of its own in its registry.
struct Home {
    sandbox: Sandbox,
    paths: Paths,
    registry: String,
}

/// Five times as large as the smallest.
fn large() -> Tiny {
    Tiny { layers: 9, ..Tiny::default() }
}

fn small() -> Tiny {
    Tiny { layers: 1, seed: 2, ..Tiny::default() }
}

impl Home {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let paths = Paths::under(&sandbox.path("qchat"));
        Self { sandbox, paths, registry: String::new() }
    }

    fn add_bytes(&mut self, name: &str, draft: Option<&str>, bytes: &[u8]) -> PathBuf {
        let path = self.sandbox.write(&format!("{name}.gguf"), bytes);
        let lines = [
            "[[model]]".to_owned(),
            format!("name = '{name}'"),
            draft.map_or_else(String::new, |draft| format!("draft = '{draft}'")),
            "[[model.source]]".to_owned(),
            format!(
                "path = '{}'
",
                path.display()
            ),
        ];
        self.registry += &lines.join(
            "
",
        );
        path
    }

    fn add(&mut self, name: &str, draft: Option<&str>, tiny: &Tiny) -> PathBuf {
        self.add_bytes(name, draft, &tiny.bytes())
    }

    /// The draft of `target`, or why there is none.
    fn draft(&self, target: &str, wish: &DraftWish) -> Result<Option<Resolved>, qchat::error::Error> {
        std::fs::create_dir_all(&self.paths.config).unwrap();
        std::fs::write(self.paths.user_registry(), &self.registry).unwrap();
        let resolver = Resolver::new(self.paths.clone()).unwrap();
        let target = resolver.here(&resolver.target(target).unwrap()).unwrap().unwrap();
        resolver.draft_for(&target, wish)
    }

    fn auto(&self, target: &str) -> Option<String> {
        self.draft(target, &DraftWish::Auto).unwrap().map(|draft| draft.name)
    }

    fn refused(&self, target: &str, draft: &str) -> String {
        let error = self.draft(target, &DraftWish::Named(draft.into())).unwrap_err();
        assert_eq!(error.kind(), Kind::Model);
        let line = error.to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }
}

#[test]
fn a_named_draft_is_taken_where_it_fits() {
    let mut home = Home::new();
    home.add("large", None, &large());
    let path = home.add("small", None, &small());
    home.add("padded", None, &Tiny { padding: 3, ..small() });
    for name in ["small", "padded", path.to_str().unwrap()] {
        let draft = home.draft("large", &DraftWish::Named(name.into())).unwrap().unwrap();
        assert_eq!(draft.bytes, draft.file.metadata().unwrap().len());
        assert!(name.contains(&draft.name));
    }
    assert!(home.draft("large", &DraftWish::Off).unwrap().is_none());
}

#[test]
fn a_draft_of_another_vocabulary_is_refused_with_the_first_token_that_differs() {
    let mut home = Home::new();
    home.add("large", None, &Tiny { padding: 2, ..large() });
    home.add("renamed", None, &Tiny { renamed: Some((98, "x\nx")), ..small() });
    let line = home.refused("large", "renamed");
    let expected = r"renamed cannot draft for large: token 98 is 'b' in the target and 'x\nx' in the draft";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with("--draft auto picks one that fits"), "{line}");
    // Tokens that only one has are padding or a mismatch.
    home.add("short", None, &Tiny { specials: Tiny::default().specials[..2].to_vec(), eos: Some(1), ..small() });
    let line = home.refused("large", "short");
    assert!(line.contains("token 258 is '<|im_end|>' in the target and missing in the draft"), "{line}");
    home.add("ends", None, &Tiny { eos: Some(0), ..small() });
    assert!(home.refused("large", "ends").contains("the eos token is 258 in the target and 256 in the draft"));
}

#[test]
fn a_draft_must_be_here_and_smaller() {
    let mut home = Home::new();
    let path = home.add("large", None, &large());
    home.add("as-large", None, &Tiny { seed: 2, ..large() });
    home.registry += "[[model]]\nname = 'gone'\n[[model.source]]\npath = '/nonexistent/gone.gguf'\n";
    assert!(home.refused("large", "gone").contains("get it with `qchat pull gone`"));
    assert!(home.refused("large", "/nonexistent/gone.gguf").contains("does not exist"));
    assert!(home.refused("large", "lagre").contains("did you mean"));
    assert!(home.refused("large", "as-large").contains("as-large cannot draft for large: it is not smaller"));
    assert!(home.refused("large", path.to_str().unwrap()).contains("it is the same model"));
    home.add_bytes("damaged", None, &small().bytes()[..5000]);
    assert!(home.refused("large", "damaged").contains("not a usable GGUF"));
}

#[test]
fn the_registrys_draft_comes_before_the_smallest_that_fits() {
    let mut home = Home::new();
    let path = home.add("large", Some("middle"), &large());
    assert_eq!(home.auto("large"), None);
    home.add("other", None, &Tiny { renamed: Some((98, "xx")), ..small() });
    home.add_bytes("damaged", None, &small().bytes()[..5000]);
    assert_eq!(home.auto("large"), None, "nothing fits");
    home.add("padded", None, &Tiny { padding: 2, ..small() });
    assert_eq!(home.auto("large").as_deref(), Some("padded"));
    home.add("small", None, &small());
    assert_eq!(home.auto("large").as_deref(), Some("small"));
    // More than a quarter, but named by the registry.
    let middle = Tiny { layers: 4, ..Tiny::default() };
    home.add("middle", None, &middle);
    assert_eq!(home.auto("large").as_deref(), Some("middle"));
    assert_eq!(home.auto(path.to_str().unwrap()).as_deref(), Some("middle"), "also for its path");
    assert_eq!(home.auto("middle"), None, "a quarter is asked for");
    // One that does not fit is passed over.
    home.sandbox.write("middle.gguf", Tiny { renamed: Some((98, "xx")), ..middle }.bytes());
    assert_eq!(home.auto("large").as_deref(), Some("small"));
}

#[test]
fn a_draft_with_a_flipped_bit_is_taken_or_refused() {
    let mut home = Home::new();
    home.add("large", None, &large());
    let whole = small().bytes();
    let bits = (whole.len() - tensor_bytes(&whole)) * 8;
    let path = home.add_bytes("flipped", None, &whole);
    let (mut taken, mut refused) = (0, 0);
    for bit in places(400, bits) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        match home.draft("large", &DraftWish::Named("flipped".into())) {
            Ok(_) => taken += 1,
            Err(error) => {
                refused += 1;
                assert_eq!((error.kind(), error.to_string().lines().count()), (Kind::Model, 1));
            }
        }
        home.auto("large");
    }
    assert!(taken > 0 && refused > 100, "{taken} taken, {refused} refused");
}

#[test]
fn memory_is_what_llama_cpp_says_it_takes() {
    let mut home = Home::new();
    let path = home.add("large", None, &Tiny { layers: 16, ..Tiny::default() });
    home.add("larger", None, &Tiny { layers: 99, ..Tiny::default() });
    let model = home.draft("larger", &DraftWish::Named("large".into())).unwrap().unwrap();
    let needs = Needs::of(&model).unwrap();
    assert_eq!(needs.weights, path.metadata().unwrap().len());
    assert_eq!(needs.kv_per_token, 16 * 2 * (32 + 32) * 2);

    let output = home.sandbox.run(&path, &["hi", "--max-tokens", "1", "-vv"]);
    answered(&output);
    let log = stderr(&output);
    let reported = |what: &str| {
        let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no '{what}' in {log}"));
        let number = line.split(what).nth(1).unwrap().split_whitespace().next().unwrap();
        number.parse::<f64>().unwrap() * f64::from(1 << 20)
    };
    assert!((reported("KV buffer size =") - (256 * needs.kv_per_token) as f64).abs() < 10_000.0, "{log}");
    assert!(reported("compute buffer size =") < needs.compute as f64, "{log}");
}

#[test]
fn a_script_drafts_for_a_script() {
    let mut home = Home::new();
    let sandbox = &home.sandbox;
    let target = sandbox.script(&["Hello."]).display().to_string();
    let other = sandbox.write("draft.script", "{}").display().to_string();
    let draft = home.draft(&target, &DraftWish::Named(other.clone())).unwrap().unwrap();
    assert_eq!((draft.name.as_str(), Needs::of(&draft)), ("draft", None));
    assert_eq!(home.auto(&target), None);
    let path = home.add("large", None, &large());
    assert!(home.refused(&target, path.to_str().unwrap()).contains("script"));
}
