//! Models that are on this disk already, kept by Ollama, LM Studio or another program: found in place, never copied, never
//! deleted. And what qchat fetched itself, which `qchat rm` deletes with everything that is only its own.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::downloads::{COMMIT, described, files_below, ranged, sha256};
use super::outcome::{answered, json, refused};
use super::pty::Pty;
use super::server::{Reply, Request, Server};
use crate::common::blank::{Blank, F32};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

/// `ChatML` around one user message, a byte a token.
const AROUND: u64 = 19;
/// `<|im_start|>`, "system\n", the text, `<|im_end|>`, "\n".
const AROUND_SYSTEM: u64 = 1 + 7 + 1 + 1;

fn printable() -> Tiny {
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }
}

fn model() -> Vec<u8> {
    printable().bytes()
}

fn registry(sandbox: &Sandbox, text: &str) {
    sandbox.write("qchat/config/models.toml", text);
}

/// Everything below a folder, with what is in it.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| (name.clone(), std::fs::read(folder.join(&name)).unwrap_or_default());
    files_below(folder).into_iter().map(read).collect()
}

/// The rows of `qchat list`, by their names.
fn list(command: &mut Command) -> BTreeMap<String, Value> {
    let rows = json(&command.args(["list", "--output", "json"]).output().unwrap());
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Ollama's folder of models.
struct Ollama<'a> {
    sandbox: &'a Sandbox,
}

impl Ollama<'_> {
    fn root(&self) -> PathBuf {
        self.sandbox.path("ollama")
    }

    fn qchat(&self) -> Command {
        let mut command = self.sandbox.qchat();
        command.env("OLLAMA_MODELS", self.root());
        command
    }

    fn run(&self, model: &str, args: &[&str]) -> Output {
        let args = [&["run", model, "hi", "--no-stdin", "--max-tokens", "4"], args].concat();
        self.qchat().args(args).output().unwrap()
    }

    fn refuses(&self, model: &str, code: i32) -> String {
        refused(&self.run(model, &[]), code)
    }

    /// Writes a layer's bytes; answers the layer.
    fn layer(&self, kind: &str, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        self.sandbox.write(&format!("ollama/blobs/sha256-{digest}"), bytes);
        let media_type = format!("application/vnd.ollama.image.{kind}");
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() })
    }

    fn manifest(&self, place: &str, layers: &[Value]) {
        let config =
            json!({ "mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:0", "size": 9 });
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        self.raw_manifest(place, &manifest.to_string());
    }

    fn raw_manifest(&self, place: &str, text: &str) {
        self.sandbox.write(&format!("ollama/manifests/{place}"), text);
    }
}

#[test]
fn a_model_of_ollama_is_run_where_it_is() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let layers = [ollama.layer("license", b"MIT"), ollama.layer("model", &model())];
    for place in [
        "registry.ollama.ai/library/tiny/latest",
        "registry.ollama.ai/library/tiny/1b-q8_0",
        "registry.ollama.ai/someone/tiny/latest",
        "hf.co/owner/repo-GGUF/Q8_0",
        "localhost:5000/me/tiny/latest",
    ] {
        ollama.manifest(place, &layers);
    }
    let before = contents(&ollama.root());
    for name in
        ["tiny", "tiny:latest", "tiny:1b-q8_0", "someone/tiny", "hf.co/owner/repo-GGUF:Q8_0", "localhost:5000/me/tiny"]
    {
        let name = format!("ollama:{name}");
        let answer = json(&ollama.run(&name, &["--output", "json"]));
        assert_eq!((&answer["model"], &answer["usage"]["prompt_tokens"]), (&json!(name), &json!(AROUND + 2)));
    }
    // What `list` calls them is what `run` takes.
    let rows = list(&mut ollama.qchat());
    let rows: Vec<_> = rows.iter().filter(|(_, row)| row["where"] == "Ollama").collect();
    assert_eq!(rows.len(), 5);
    for (name, row) in rows {
        assert_eq!(row["bytes"], model().len());
        assert_eq!(answered(&ollama.run(name, &[])).len(), 5, "{name}");
    }
    // Nothing was written there, and nothing of it elsewhere.
    assert_eq!(contents(&ollama.root()), before);
    let own = sandbox.path("qchat");
    let large = |name: &String| own.join(name).metadata().unwrap().len() as usize > model().len() / 2;
    assert!(!files_below(&own).iter().any(large), "{:?}", files_below(&own));
    assert!(!sandbox.path("hub").exists());
    // It is Ollama's.
    for args in [&["rm", "ollama:tiny"][..], &["rm", "--yes", "ollama:tiny"], &["rm", "--dry-run", "ollama:tiny"]] {
        let line = refused(&ollama.qchat().args(args).output().unwrap(), 2);
        assert!(line.contains("another program") && line.contains("sha256-"), "{line}");
    }
    assert_eq!(contents(&ollama.root()), before);
}

#[test]
fn a_template_of_ollama_is_for_a_file_without_one() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let bare = Tiny { template: None, ..printable() }.bytes();
    let path = sandbox.write("bare.gguf", &bare);
    let prompt_tokens = |output: &Output| json(output)["usage"]["prompt_tokens"].as_u64().unwrap();
    let asks = |model: &str| prompt_tokens(&ollama.run(model, &["--output", "json"]));
    let mut seen = Vec::new();
    for (mark, family) in [
        ("{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>{{ end }}", "chatml"),
        ("<|start_header_id|>user<|end_header_id|>\n\n{{ .Prompt }}<|eot_id|>", "llama3"),
        ("<start_of_turn>user\n{{ .Prompt }}<end_of_turn>", "gemma"),
        ("<|im_start|>user<|im_sep|>{{ .Prompt }}<|im_end|>", "phi4"),
        ("<|user|>\n{{ .Prompt }}<|end|>\n<|assistant|>", "phi3"),
        ("[INST] {{ .Prompt }}[/INST]", "mistral"),
    ] {
        let template = ollama.layer("template", mark.as_bytes());
        ollama.manifest("registry.ollama.ai/library/bare/latest", &[ollama.layer("model", &bare), template.clone()]);
        ollama.manifest("registry.ollama.ai/library/own/latest", &[template, ollama.layer("model", &model())]);
        registry(
            &sandbox,
            &format!("[[model]]\nname = 'named'\ntemplate = '{family}'\n[[model.source]]\npath = {path:?}\n"),
        );
        // The same prompt as with that family's template by its name.
        let tokens = asks("ollama:bare");
        assert_eq!(tokens, asks("named"), "{family}");
        assert_eq!(asks("ollama:own"), AROUND + 2, "{family}");
        seen.push(tokens);
    }
    assert_eq!(seen[0], AROUND + 2);
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 4, "templates differ: {seen:?}");
}

#[test]
fn what_a_model_of_ollama_says_of_itself_counts_and_a_flag_counts_more() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let with = |layers: &[(&str, &str)]| {
        let layers = layers.iter().map(|(kind, text)| ollama.layer(kind, text.as_bytes()));
        let layers: Vec<Value> = layers.chain([ollama.layer("model", &model())]).collect();
        ollama.manifest("registry.ollama.ai/library/tiny/latest", &layers);
    };
    // Without randomness two seeds say the same.
    let random = |args: &[&str]| {
        let say = |seed: &str| {
            let args =
                [&["run", "ollama:tiny", "hi", "--no-stdin", "--max-tokens", "24", "--seed", seed], args].concat();
            answered(&ollama.qchat().args(args).output().unwrap())
        };
        say("1") != say("2")
    };
    with(&[]);
    assert!(random(&[]));
    with(&[("params", r#"{"temperature":0,"stop":["<|im_end|>"],"num_ctx":4096}"#)]);
    assert!(!random(&[]));
    assert!(random(&["--temp", "2"]));
    with(&[("params", r#"{"temperature":2,"top_k":1}"#)]);
    assert!(!random(&[]) && random(&["--top-k", "0"]));
    // What is out of range, or no JSON, is nobody's wish.
    for params in [r#"{"temperature":99,"top_k":1}"#, "{", "[1]"] {
        with(&[("params", params)]);
        assert!(random(&[]), "{params}");
    }
    let system = |args: &[&str]| {
        let usage = json(&ollama.run("ollama:tiny", &[args, &["--output", "json"]].concat()))["usage"].clone();
        (usage["prompt_tokens"].as_u64().unwrap() - AROUND - 2).checked_sub(AROUND_SYSTEM)
    };
    with(&[("system", "Be brief.")]);
    assert_eq!((system(&[]), system(&["--system", "No."])), (Some(9), Some(3)));
    with(&[("system", "")]);
    assert_eq!(system(&[]), None, "an empty one is none");
}

#[test]
fn what_ollama_does_not_have_is_answered_with_what_it_has() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let line = refused(&sandbox.qchat().args(["show", "ollama:tiny"]).output().unwrap(), 3);
    assert!(line.contains("OLLAMA_MODELS"), "{line}");
    let layers = [ollama.layer("model", &model())];
    ollama.manifest("registry.ollama.ai/library/tiny/1b", &layers);
    ollama.manifest("registry.ollama.ai/someone/other/latest", &layers);
    for (name, command) in [("ollama:tiny", "run"), ("ollama:tiny:2b", "show"), ("ollama:someone/tiny", "pull")] {
        let line = refused(&ollama.qchat().args([command, name]).output().unwrap(), 3);
        assert!(line.contains("it has someone/other:latest, tiny:1b") && line.contains(&name[7..]), "{line}");
    }
}

#[test]
fn hostile_names_and_digests_lead_nowhere() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let bytes = model();
    // A model where a name or a digest with dots would lead.
    sandbox.write("ollama/outside.gguf", &bytes);
    let good = ollama.layer("model", &bytes);
    let manifest = json!({ "layers": [good] }).to_string();
    sandbox.write("ollama/escaped", &manifest);
    ollama.raw_manifest("registry.ollama.ai/library/x/.hidden", &manifest);
    for name in [
        "",
        ":",
        "x:",
        "a/b/c/d",
        "a//b",
        "/x",
        "../x",
        "x:..",
        "x:../../../../escaped",
        ".hidden",
        "x:.hidden",
        "a b",
        "a\\b",
        "x\u{1b}[31m",
        "../../../escaped",
    ] {
        let line = ollama.refuses(&format!("ollama:{name}"), 2);
        assert!(line.contains("ollama:NAME"), "{line}");
    }
    let hex = sha256(&bytes);
    // What each of them would lead to is there.
    sandbox.write("ollama/blobs/sha256-x/y", "");
    for name in [&hex[..63], &format!("{hex}0"), &format!("{}g", &hex[..63])] {
        sandbox.write(&format!("ollama/blobs/sha256-{name}"), &bytes);
    }
    for digest in [
        "sha256:x/../../outside.gguf".to_owned(),
        "sha256:../../outside.gguf".to_owned(),
        format!("sha256:{}/../../outside.gguf", &hex[..10]),
        format!("sha256:{}", &hex[..63]),
        format!("sha256:{hex}0"),
        format!("sha256:{}g", &hex[..63]),
        format!("md5:{hex}"),
        format!("sha256-{hex}"),
        hex.clone(),
        String::new(),
    ] {
        let layer = json!({ "mediaType": "application/vnd.ollama.image.model", "digest": digest });
        ollama.manifest("registry.ollama.ai/library/x/latest", &[layer]);
        let line = ollama.refuses("ollama:x", 3);
        assert!(line.contains("damaged") && line.contains("ollama pull x"), "{digest}: {line}");
        assert!(list(&mut ollama.qchat()).keys().all(|name| !name.starts_with("ollama:")), "{digest}");
    }
    ollama.manifest("registry.ollama.ai/library/x/latest", &[good]);
    assert_eq!(answered(&ollama.run("ollama:x", &[])).len(), 5, "the good one still is one");
}

#[test]
fn damaged_manifests_and_blobs_are_one_line() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let place = "registry.ollama.ai/library/x/latest";
    let good = ollama.layer("model", &model());
    let long = format!("{{\"layers\": [], \"x\": \"{}\"}}", "x".repeat(2 << 20));
    for text in ["", "{", "[]", "null", "{}", r#"{"layers": 7}"#, r#"{"layers": [{}]}"#, r#"{"layers": []}"#, &long] {
        ollama.raw_manifest(place, text);
        assert!(ollama.refuses("ollama:x", 3).contains("damaged"), "{text:.40}");
    }
    // Other layers are none of the model's.
    ollama.manifest(place, &[ollama.layer("projector", &model()), ollama.layer("adapter", b"x")]);
    assert!(ollama.refuses("ollama:x", 3).contains("damaged"));
    // A manifest before its blob has come.
    ollama
        .manifest(place, &[json!({ "mediaType": good["mediaType"], "digest": format!("sha256:{}", "0".repeat(64)) })]);
    assert!(ollama.refuses("ollama:x", 3).contains("damaged"));
    // A blob that is no model is named.
    ollama.manifest(place, &[ollama.layer("model", b"not a model")]);
    assert!(ollama.refuses("ollama:x", 3).contains("not a usable GGUF"));
    // Folders where files belong.
    std::fs::remove_file(ollama.root().join("manifests").join(place)).unwrap();
    std::fs::create_dir(ollama.root().join("manifests").join(place)).unwrap();
    ollama.refuses("ollama:x", 3);
    sandbox.write("ollama/manifests/stray", "x");
    sandbox.write("ollama/manifests/registry.ollama.ai/stray", "x");
    assert!(list(&mut ollama.qchat()).keys().all(|name| !name.starts_with("ollama:")));
}

/// An entry whose file is told by its size and digest.
fn exact_entry(bytes: u64, digest: &str) -> String {
    format!(
        "[[model]]\nname = 'mine'\n[[model.source]]\nhf = 'owner/repo'\n\
         files = [{{ name = 'tiny-Q8_0.gguf', bytes = {bytes}, sha256 = '{digest}' }}]\n"
    )
}

#[test]
fn a_file_that_ollama_has_is_not_fetched_again() {
    let sandbox = Sandbox::new();
    let ollama = Ollama { sandbox: &sandbox };
    let bytes = model();
    let (len, digest) = (bytes.len() as u64, sha256(&bytes));
    let layer = ollama.layer("model", &bytes);
    ollama.manifest("registry.ollama.ai/library/tiny/latest", &[layer]);
    let before = contents(&ollama.root());
    let server = Server::start(|_| Reply::new(404));
    // Typed in capitals it is the same digest.
    for digest in [digest.clone(), digest.to_uppercase()] {
        registry(&sandbox, &exact_entry(len, &digest));
        let mut pull = ollama.qchat();
        pull.env_remove("HF_HUB_OFFLINE").env("HF_ENDPOINT", server.url()).args(["pull", "mine"]);
        answered(&pull.output().unwrap());
        assert_eq!(answered(&ollama.run("mine", &[])).len(), 5);
    }
    assert!(server.seen().is_empty(), "{:?}", server.seen());
    assert!(!sandbox.path("hub").exists());
    let rows = list(&mut ollama.qchat());
    let blob = ollama.root().join(format!("blobs/sha256-{digest}"));
    assert_eq!((&rows["mine"]["where"], &rows["mine"]["file"]), (&json!("here"), &json!(blob)));
    assert!(!rows.contains_key("ollama:tiny:latest"), "listed once");
    let line = refused(&ollama.qchat().args(["rm", "mine"]).output().unwrap(), 2);
    assert!(line.contains("another program") && line.contains(&digest), "{line}");
    assert_eq!(contents(&ollama.root()), before);
    // Another size or digest is another file.
    for entry in [exact_entry(len + 1, &digest), exact_entry(len, &sha256(b"other"))] {
        registry(&sandbox, &entry);
        assert!(ollama.refuses("mine", 3).contains("HF_HUB_OFFLINE"));
    }
}

#[test]
fn models_of_lm_studio_are_found_by_their_addresses() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let file = sandbox.write("lm/owner/repo/tiny-Q8_0.gguf", &bytes);
    sandbox.write("lm/owner/repo/mmproj-Q8_0.gguf", "a projector");
    sandbox.write("lm/owner/repo/tiny-Q4_K_M.gguf.part", "half");
    let stray = sandbox.write("lm/some one/my models/tiny.gguf", &bytes);
    let first = sandbox.path("lm/owner/split/m-Q4_0-00001-of-00002.gguf");
    let part = Blank::new("llama").number("split.count", 2);
    let second = sandbox.path("lm/owner/split/m-Q4_0-00002-of-00002.gguf");
    let mut bytes_of_parts = part.clone().number("split.no", 0).tensor("a", &[64], F32, 256).write(&first).unwrap();
    bytes_of_parts += part.number("split.no", 1).tensor("b", &[128], F32, 512).write(&second).unwrap();
    let before = contents(&sandbox.path("lm"));
    let lm = || {
        let mut command = sandbox.qchat();
        command.env("LMSTUDIO_MODELS", sandbox.path("lm"));
        command
    };
    let run = |name: &str| lm().args(["run", name, "hi", "--max-tokens", "4", "--no-stdin"]).output().unwrap();
    registry(&sandbox, &exact_entry(bytes.len() as u64, &sha256(&bytes)));
    for name in ["mine", "hf:owner/repo:Q8_0", "hf:owner/repo:q8_0", "hf:owner/repo/tiny-Q8_0.gguf"] {
        assert_eq!(answered(&run(name)).len(), 5, "{name}");
        let line = refused(&lm().args(["rm", "--yes", name]).output().unwrap(), 2);
        assert!(line.contains("another program") && line.contains(file.to_str().unwrap()), "{line}");
    }
    assert!(refused(&run("hf:owner/repo:Q4_K_M"), 3).contains("HF_HUB_OFFLINE"), "half a file is none");
    registry(&sandbox, &exact_entry(9, &sha256(&bytes)));
    refused(&run("mine"), 3);
    let rows = list(&mut lm());
    let own: Vec<_> = rows.iter().filter(|(_, row)| row["where"] == "LM Studio").collect();
    let expected = BTreeMap::from([
        ("hf:owner/repo/tiny-Q8_0.gguf".to_owned(), (file, bytes.len() as u64)),
        ("hf:owner/split/m-Q4_0-00001-of-00002.gguf".to_owned(), (first, bytes_of_parts)),
        (stray.display().to_string(), (stray, bytes.len() as u64)),
    ]);
    assert_eq!(own.len(), expected.len(), "{own:?}");
    for (name, (file, bytes)) in &expected {
        assert_eq!((&rows[name]["file"], &rows[name]["bytes"]), (&json!(file), &json!(bytes)), "{name}");
    }
    assert_eq!(answered(&run(expected.keys().next().unwrap())).len(), 5);
    assert_eq!(contents(&sandbox.path("lm")), before);
    // Where nobody says another folder it is below the home.
    std::fs::create_dir_all(sandbox.path(".lmstudio")).unwrap();
    std::fs::rename(sandbox.path("lm"), sandbox.path(".lmstudio/models")).unwrap();
    let output = sandbox.run(Path::new("hf:owner/repo:Q8_0"), &["hi", "--max-tokens", "4"]);
    assert_eq!(answered(&output).len(), 5);
}

/// A file in the Hugging Face cache as `huggingface_hub` puts it there; answers its link.
fn cached(sandbox: &Sandbox, repo: &str, commit: &str, file: &str, bytes: &[u8]) -> PathBuf {
    let folder = sandbox.path(&format!("hub/models--{}", repo.replace('/', "--")));
    let blob = sandbox.write(folder.join("blobs").join(sha256(bytes)).to_str().unwrap(), bytes);
    let link = folder.join("snapshots").join(commit).join(file);
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(blob, &link).unwrap();
    sandbox.write(folder.join("refs/main").to_str().unwrap(), commit);
    link
}

#[test]
fn models_that_another_program_fetched_stay() {
    let sandbox = Sandbox::new();
    let bytes = model();
    let link = cached(&sandbox, "owner/repo", COMMIT, "tiny-Q8_0.gguf", &bytes);
    cached(&sandbox, "owner/repo", COMMIT, "README.md", b"# Tiny");
    cached(&sandbox, "owner/large", COMMIT, "UD-Q4/m-00001-of-00002.gguf", b"GGUF, or so");
    cached(&sandbox, "owner/large", COMMIT, "UD-Q4/m-00002-of-00002.gguf", b"more");
    registry(&sandbox, &exact_entry(bytes.len() as u64, &sha256(&bytes)));
    let before = contents(&sandbox.path("hub"));
    let rows = list(&mut sandbox.qchat());
    assert_eq!((&rows["mine"]["where"], &rows["mine"]["file"]), (&json!("here"), &json!(link)));
    assert!(!rows.contains_key("hf:owner/repo/tiny-Q8_0.gguf"), "listed once");
    registry(&sandbox, "");
    let rows = list(&mut sandbox.qchat());
    let row = |name: &str| (rows[name]["where"].clone(), rows[name]["bytes"].clone());
    assert_eq!(row("hf:owner/repo/tiny-Q8_0.gguf"), (json!("Hugging Face"), json!(bytes.len())));
    // A split model in a folder of its own, its parts together.
    assert_eq!(row("hf:owner/large/UD-Q4/m-00001-of-00002.gguf"), (json!("Hugging Face"), json!(11 + 4)));
    for name in ["hf:owner/repo:Q8_0", "hf:owner/repo/tiny-Q8_0.gguf"] {
        assert_eq!(answered(&sandbox.run(Path::new(name), &["hi", "--max-tokens", "4"])).len(), 5);
        let line = refused(&sandbox.qchat().args(["rm", "--yes", name]).output().unwrap(), 2);
        assert!(line.contains("another program"), "{line}");
    }
    // By its path it is a file of the user's.
    let line = refused(&sandbox.qchat().arg("rm").arg(&link).output().unwrap(), 2);
    assert!(line.contains("file of yours"), "{line}");
    assert_eq!(contents(&sandbox.path("hub")), before);
}

type File = (&'static str, Vec<u8>);

/// A hub that has these files in every repository.
fn hub(files: &[File]) -> Server {
    let files = files.to_vec();
    Server::start(move |request| answer(&files, request))
}

fn answer(files: &[File], request: &Request) -> Reply {
    if request.path.starts_with("/api/models/") {
        let siblings: Vec<Value> = files.iter().map(|(name, _)| json!({ "rfilename": name })).collect();
        return Reply::body(200, json!({ "siblings": siblings }).to_string().as_bytes());
    }
    let Some((_, bytes)) = files.iter().find(|(name, _)| request.path.ends_with(&format!("/main/{name}"))) else {
        return Reply::new(404);
    };
    described(ranged(request, bytes), bytes)
}

fn pull(sandbox: &Sandbox, server: &Server, names: &[&str]) {
    let mut command = sandbox.qchat();
    command.env_remove("HF_HUB_OFFLINE").env("HF_ENDPOINT", server.url()).arg("pull").args(names);
    answered(&command.output().unwrap());
}

fn remove(sandbox: &Sandbox, args: &[&str]) -> Output {
    sandbox.qchat().arg("rm").args(args).output().unwrap()
}

#[test]
fn what_qchat_fetched_goes_and_nothing_is_left() {
    let sandbox = Sandbox::new();
    let server = hub(&[("tiny-Q8_0.gguf", model())]);
    // Under the name it was fetched by, the name that `list` shows, and a name that the registry got later.
    for name in ["hf:owner/repo:Q8_0", "hf:owner/repo/tiny-Q8_0.gguf", "mine"] {
        registry(&sandbox, "");
        pull(&sandbox, &server, &["hf:owner/repo:Q8_0"]);
        assert_eq!(list(&mut sandbox.qchat())["hf:owner/repo/tiny-Q8_0.gguf"]["where"], "here");
        registry(&sandbox, &exact_entry(model().len() as u64, &sha256(&model())));
        let before = contents(&sandbox.path("hub"));
        let dry = remove(&sandbox, &["--dry-run", name]);
        assert_eq!(answered(&dry), "");
        let lines = stderr(&dry);
        assert!(lines.contains("0.5 MB") && lines.lines().count() == 3, "{lines}");
        assert!(lines.contains(&sha256(&model())) && lines.contains("tiny-Q8_0.gguf\n"), "{lines}");
        assert_eq!(contents(&sandbox.path("hub")), before);
        // Named twice it goes once.
        let gone = remove(&sandbox, &[name, "hf:owner/repo:Q8_0"]);
        assert_eq!(
            (answered(&gone).as_str(), stderr(&gone).as_str()),
            ("", "hf:owner/repo:Q8_0 is deleted (0.5 MB)\n")
        );
        let left = files_below(&sandbox.path("hub"));
        assert!(left.iter().all(|name| name.starts_with(".locks/")), "{left:?}");
        assert_eq!(files_below(&sandbox.path("qchat/data/receipts")), [""; 0]);
    }
    let line = refused(&remove(&sandbox, &["mine"]), 2);
    assert!(line.contains("not on this disk"), "{line}");
}

#[test]
fn what_somebody_else_uses_too_stays() {
    let sandbox = Sandbox::new();
    let server = hub(&[("tiny-Q8_0.gguf", model())]);
    pull(&sandbox, &server, &["hf:owner/repo:Q8_0"]);
    let other = cached(&sandbox, "owner/repo", &"f".repeat(40), "tiny-Q8_0.gguf", &model());
    let dry = stderr(&remove(&sandbox, &["--dry-run", "hf:owner/repo:Q8_0"]));
    assert!(!dry.contains("/blobs/") && dry.contains(COMMIT) && dry.contains("0.0 MB"), "{dry}");
    answered(&remove(&sandbox, &["hf:owner/repo:Q8_0"]));
    assert_eq!(std::fs::read(&other).unwrap(), model());
    assert!(!sandbox.path(&format!("hub/models--owner--repo/snapshots/{COMMIT}")).exists());
    // What is left is not qchat's.
    let line = refused(&remove(&sandbox, &["hf:owner/repo:Q8_0"]), 2);
    assert!(line.contains("another program"), "{line}");
    assert_eq!(std::fs::read(&other).unwrap(), model());
}

/// A model of two parts.
fn split() -> [File; 2] {
    let part = |number: u32, fill: u64| {
        let part = Blank::new("llama").number("split.count", 2).number("split.no", number);
        let (mut header, tensors) = part.tensor(&format!("t{number}"), &[fill], F32, 4 * fill).header();
        header.resize(header.len() + tensors as usize, 0);
        header
    };
    [("m-Q8_0-00001-of-00002.gguf", part(0, 64)), ("m-Q8_0-00002-of-00002.gguf", part(1, 128))]
}

#[test]
fn a_part_that_was_here_before_stays() {
    let sandbox = Sandbox::new();
    let parts = split();
    let found = cached(&sandbox, "owner/repo", COMMIT, parts[0].0, &parts[0].1);
    pull(&sandbox, &hub(&parts), &["hf:owner/repo:Q8_0"]);
    let dry = stderr(&remove(&sandbox, &["--dry-run", "hf:owner/repo:Q8_0"]));
    assert!(dry.contains(parts[1].0) && !dry.contains(parts[0].0), "{dry}");
    answered(&remove(&sandbox, &["hf:owner/repo:Q8_0"]));
    assert_eq!(std::fs::read(&found).unwrap(), parts[0].1);
    assert!(!found.with_file_name(parts[1].0).exists());
    // Where qchat fetched both, both go.
    std::fs::remove_dir_all(sandbox.path("hub")).unwrap();
    pull(&sandbox, &hub(&parts), &["hf:owner/repo:Q8_0"]);
    answered(&remove(&sandbox, &["hf:owner/repo:Q8_0"]));
    assert!(!sandbox.path("hub/models--owner--repo").exists());
}

#[test]
fn parts_of_a_download_that_failed_are_qchats_own() {
    let sandbox = Sandbox::new();
    let parts = split();
    let (files, fails) = (parts.clone(), Arc::new(AtomicBool::new(true)));
    let failing = Arc::clone(&fails);
    let server = Server::start(move |request| {
        // One byte is asked for what the hub says of a file.
        let is_transfer = request.to() != Some(0);
        let fails = failing.load(Ordering::SeqCst) && is_transfer && request.path.contains("00002-of-");
        if fails { Reply::new(404) } else { answer(&files, request) }
    });
    let mut command = sandbox.qchat();
    command.env_remove("HF_HUB_OFFLINE").env("HF_ENDPOINT", server.url()).args(["pull", "hf:owner/repo:Q8_0"]);
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    let first = |name: &String| name.ends_with(parts[0].0);
    assert!(files_below(&sandbox.path("hub")).iter().any(first), "one part came");
    fails.store(false, Ordering::SeqCst);
    pull(&sandbox, &server, &["hf:owner/repo:Q8_0"]);
    answered(&remove(&sandbox, &["hf:owner/repo:Q8_0"]));
    assert!(!sandbox.path("hub/models--owner--repo").exists(), "{:?}", files_below(&sandbox.path("hub")));
}

#[test]
fn several_go_all_or_none() {
    let sandbox = Sandbox::new();
    let server = hub(&[("tiny-Q8_0.gguf", model())]);
    pull(&sandbox, &server, &["hf:owner/one:Q8_0", "hf:owner/two:Q8_0"]);
    cached(&sandbox, "other/repo", COMMIT, "tiny-Q8_0.gguf", &model());
    let before = contents(&sandbox.path("hub"));
    for (other, code) in
        [("no-such-model", 3), ("smollm2-135m", 2), ("hf:other/repo:Q8_0", 2), ("/no/such.gguf", 2), ("hf:x", 2)]
    {
        refused(&remove(&sandbox, &["hf:owner/one:Q8_0", other]), code);
        refused(&remove(&sandbox, &[other, "hf:owner/one:Q8_0"]), code);
        assert_eq!(contents(&sandbox.path("hub")), before, "{other}");
    }
    answered(&remove(&sandbox, &["hf:owner/one:Q8_0", "hf:owner/two:Q8_0"]));
    assert!(!sandbox.path("hub/models--owner--one").exists() && !sandbox.path("hub/models--owner--two").exists());
    assert!(sandbox.path("hub/models--other--repo").exists());
}

#[test]
fn a_terminal_is_asked() {
    let sandbox = Sandbox::new();
    let server = hub(&[("tiny-Q8_0.gguf", model())]);
    pull(&sandbox, &server, &["hf:owner/repo:Q8_0"]);
    let before = contents(&sandbox.path("hub"));
    let ask = |answer: &str| {
        let argv = [env!("CARGO_BIN_EXE_qchat"), "rm", "hf:owner/repo:Q8_0"];
        let mut pty = Pty::command(&sandbox, (24, 80), &argv, &[]);
        pty.wait_for("delete hf:owner/repo:Q8_0 (0.5 MB)? [y/N]");
        pty.send(answer);
        assert_eq!(pty.wait_exit(), 0);
        pty.rows().last().unwrap().clone()
    };
    for answer in ["n\r", "\r", "Y?\r", "\x04"] {
        assert!(ask(answer).ends_with("hf:owner/repo:Q8_0 stays"), "{answer:?}");
        assert_eq!(contents(&sandbox.path("hub")), before);
    }
    assert_eq!(ask("y\r"), "hf:owner/repo:Q8_0 is deleted (0.5 MB)");
    assert!(!sandbox.path("hub/models--owner--repo").exists());
}

#[test]
fn a_receipt_is_for_the_name_in_it() {
    let sandbox = Sandbox::new();
    let server = hub(&[("tiny-Q8_0.gguf", model())]);
    pull(&sandbox, &server, &["hf:owner/repo:Q8_0"]);
    // A name that would be kept in the same file of receipts.
    let mine = sandbox.write("mine.gguf", model());
    registry(&sandbox, &format!("[[model]]\nname = 'hf+owner+repo+Q8_0'\n[[model.source]]\npath = {mine:?}\n"));
    let line = refused(&remove(&sandbox, &["hf+owner+repo+Q8_0"]), 2);
    assert!(line.contains("file of yours"), "{line}");
    assert!(mine.exists() && sandbox.path("hub/models--owner--repo").exists());
}
