//! What must never be taken for an answer: wrong files, names and texts. One line, the right code, no crash.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::outcome::{answered, refused};
use crate::common::tiny::{Tiny, header_claiming};
use crate::common::{Sandbox, stderr, with_stdin};

fn refuses(sandbox: &Sandbox, model: &str, code: i32) -> String {
    refused(&sandbox.qchat().args(["run", model, "hi", "--max-tokens", "4"]).output().unwrap(), code)
}

fn file_refused(sandbox: &Sandbox, bytes: &[u8]) -> String {
    let path = sandbox.path("model.gguf");
    let line = file_refused_saying(sandbox, bytes);
    assert!(line.contains(path.to_str().unwrap()), "the file is named: {line}");
    line
}

#[test]
fn files_that_are_no_model() {
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(name).display().to_string();
    assert!(refuses(&sandbox, &path("missing.gguf"), 3).contains("missing.gguf does not exist"));
    assert!(refuses(&sandbox, &path(""), 3).contains("directory"));
    std::fs::create_dir(sandbox.path("folder.gguf")).unwrap();
    assert!(refuses(&sandbox, &path("folder.gguf"), 3).contains("directory"));
    assert!(file_refused(&sandbox, b"Dear model,\nplease be a model.\n").contains("not a GGUF"));
    assert!(file_refused(&sandbox, b"").contains("GGUF"));
    assert!(file_refused(&sandbox, &header_claiming(1 << 60, 0)).contains("1152921504606846976 tensors"));
    assert!(file_refused(&sandbox, &header_claiming(0, 1 << 60)).contains("1152921504606846976 values"));
    file_refused(&sandbox, &header_claiming(0, 0));
    let other = [&b"GGUF"[..], &99_u32.to_le_bytes(), &[0; 64]].concat();
    assert!(file_refused(&sandbox, &other).contains("99"));
    // A name must not steer the terminal.
    refuses(&sandbox, &path("\x1b]52;c;aGk=\x07x\n.gguf"), 3);
    if cfg!(unix) {
        refuses(&sandbox, "/dev/null/model.gguf", 3);
        assert!(refuses(&sandbox, "/dev/null", 3).contains("GGUF"));
    }
}

#[test]
fn a_model_cut_anywhere_is_refused() {
    let sandbox = Sandbox::new();
    let whole = Tiny::default().bytes();
    let header = whole.len() - tensor_bytes(&whole);
    let early = (0..40).map(|i| i * header / 40);
    let late = (0..24).map(|i| header + i * (whole.len() - header) / 24);
    for len in early.chain(late).chain([whole.len() - 1]) {
        file_refused(&sandbox, &whole[..len]);
    }
}

/// The bytes behind the header: 32-bit numbers of the matrices and norms of `tests/common/tiny.rs`.
pub fn tensor_bytes(whole: &[u8]) -> usize {
    let norm = b"output_norm.weight";
    let at = whole.windows(norm.len()).position(|part| part == norm).unwrap();
    whole.len() - (at + 256).next_multiple_of(32)
}

#[test]
fn an_unknown_architecture_is_named() {
    let sandbox = Sandbox::new();
    let bytes = Tiny { architecture: "frobnicate".into(), ..Tiny::default() }.bytes();
    assert!(file_refused(&sandbox, &bytes).contains("frobnicate"));
}

#[test]
fn templates_that_cannot_be_used() {
    let sandbox = Sandbox::new();
    for (template, says) in [
        ("{% for m in messages %}{{ m.content }}", "template"),
        ("{{ raise_exception('roles must frob') }}", "roles must frob"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "template"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "template"),
        ("{{ messages | frobnicate }}", "frobnicate"),
    ] {
        let tiny = Tiny { template: Some(template.into()), ..Tiny::default() };
        let path = sandbox.path("template.gguf");
        tiny.write(&path).unwrap();
        let began = Instant::now();
        let line = refuses(&sandbox, path.to_str().unwrap(), 3);
        assert!(line.contains(says), "{line}");
        assert!(began.elapsed() < Duration::from_secs(20), "{template}: {:?}", began.elapsed());
        // The way out that the line names.
        let raw = sandbox.run(&path, &["hi", "--raw", "--max-tokens", "1"]);
        assert!(raw.status.success(), "{}", stderr(&raw));
    }
}

#[test]
fn a_base_model_continues_and_does_not_talk() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("base.gguf");
    let specials = vec![("</s>".to_owned(), crate::common::tiny::Kind::Control)];
    let says: fn(usize) -> bool = |id| (32..127).contains(&id);
    Tiny { template: None, specials, bos: None, eos: Some(0), says, ..Tiny::default() }.write(&path).unwrap();
    let output = sandbox.run(&path, &["Once", "--max-tokens", "5", "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&answered(&output)).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
}

#[test]
fn unknown_names_answer_with_the_nearest() {
    let sandbox = Sandbox::new();
    let line = refuses(&sandbox, "smolm2-135m", 3);
    assert!(line.contains("smolm2-135m") && line.contains("did you mean smollm2-135m"), "{line}");
    assert!(refuses(&sandbox, "zzzz", 3).contains("qchat list"));
    assert!(refuses(&sandbox, "qwen2.5-coder", 3).contains("could be"));
    let line = refused(&sandbox.qchat().args(["pull", "smolm2-135m"]).output().unwrap(), 3);
    assert!(line.contains("did you mean smollm2-135m"), "{line}");
}

#[test]
fn addresses_that_are_none() {
    let sandbox = Sandbox::new();
    for address in
        ["hf:", "hf:owner", "hf:/repo", "hf:owner/", "hf:../x", "hf:o/r/../f.gguf", "hf:o/r/f.txt", "hf:o r/x"]
    {
        let line = refuses(&sandbox, address, 2);
        assert!(line.contains("hf:owner/repo"), "{line}");
    }
    // Offline, a good one says why it is not here.
    assert!(refuses(&sandbox, "hf:owner/repo:Q8_0", 3).contains("HF_HUB_OFFLINE"));
}

#[test]
fn a_prompt_that_does_not_fit_says_by_how_much() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["Hello."], serde_json::json!({ "context": 64 }));
    // ChatML takes 19 tokens, and one place must be left for the answer.
    let over = |len: usize, ctx: usize| 19 + len + 1 - ctx;
    let line = refused(&sandbox.run(&model, &[&"x".repeat(100)]), 4);
    assert!(line.contains(&format!("{} too many", over(100, 64))), "{line}");
    let line = refused(&sandbox.run(&model, &[&"x".repeat(45)]), 4);
    assert!(line.contains(&format!("{} too many", over(45, 64))), "{line}");
    answered(&sandbox.run(&model, &[&"x".repeat(44)]));
    let line = refused(&sandbox.run(&model, &[&"x".repeat(44), "--ctx", "32"]), 4);
    assert!(line.contains(&format!("{} too many", over(44, 32))), "{line}");
}

#[test]
fn what_is_no_text_is_not_asked() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let gives = |stdin: &[u8], args: &[&str]| {
        let mut command = sandbox.qchat();
        command.arg("run").arg(&model).args(args);
        with_stdin(command, stdin)
    };
    assert!(refused(&gives(b"caf\xe9 au lait", &[]), 2).contains("byte 3"));
    assert!(refused(&gives(b"cut off \xf0\x9f\x91", &["what?"]), 2).contains("byte 8"));
    assert!(refused(&gives(b"a\0b", &[]), 2).contains("byte 1"));
    for empty in [&b""[..], b"\n", b" \t\r\n\n"] {
        assert!(refused(&gives(empty, &[]), 2).contains("no input"));
    }
    assert!(refused(&gives(b"", &[""]), 2).contains("no input"));
    assert!(refused(&gives(b"", &["--no-stdin"]), 2).contains("no input"));
    // A byte order mark is no text.
    let output = gives(b"\xef\xbb\xbfhi", &["--output", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&answered(&output)).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], 19 + 2);
    let binary = sandbox.write("binary.dat", b"\x7fELF\0\0");
    let line = refused(&gives(b"", &["-f", binary.to_str().unwrap()]), 2);
    assert!(line.contains("binary.dat") && line.contains("NUL"), "{line}");
}

#[test]
fn a_home_that_cannot_be_stands_in_nobodys_way() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let with = |command: &mut Command| command.env("QCHAT_HOME", "/dev/null/x").output().unwrap();
    assert_eq!(answered(&with(sandbox.qchat().arg("run").arg(&model).arg("hi"))), "Hello.\n");
    assert!(answered(&with(sandbox.qchat().arg("list"))).contains("smollm2-135m"));
}

#[test]
fn a_failing_engine_is_one_line_and_a_log_only_where_asked() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["Hello."], serde_json::json!({ "fails_at": 1 }));
    assert!(refused(&sandbox.run(&model, &["hi"]), 1).contains("the script says so"));
    let model = sandbox.script_with(&["Hello."], serde_json::json!({ "memory": 16 }));
    assert!(refused(&sandbox.run(&model, &["hi"]), 1).contains("--ctx"));
    let (tiny, log) = (sandbox.path("tiny.gguf"), sandbox.path("llama.log"));
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&tiny).unwrap();
    let quiet = sandbox.run(&tiny, &["hi", "--max-tokens", "4"]);
    assert_eq!((answered(&quiet).len(), stderr(&quiet).as_str()), (5, ""));
    let logged = sandbox.run(&tiny, &["hi", "--max-tokens", "4", "--log", log.to_str().unwrap()]);
    assert_eq!((answered(&logged).len(), stderr(&logged).as_str()), (5, ""));
    assert!(std::fs::read_to_string(&log).unwrap().contains("llama"));
    let loud = sandbox.run(&tiny, &["hi", "--max-tokens", "4", "-vv"]);
    assert!(answered(&loud).len() == 5 && stderr(&loud).contains("llama_"), "{}", stderr(&loud));
    // A failed load too.
    let bytes = Tiny { architecture: "frobnicate".into(), ..Tiny::default() }.bytes();
    let bad = sandbox.write("bad.gguf", bytes);
    refused(&sandbox.run(&bad, &["hi", "--log", log.to_str().unwrap()]), 3);
    assert!(std::fs::read_to_string(&log).unwrap().contains("frobnicate"));
}

#[test]
fn contradictions_that_only_llama_cpp_sees_are_one_line() {
    let sandbox = Sandbox::new();
    let with = |key: &str, value: u32| {
        let mut bytes = Tiny::default().bytes();
        // The value follows the key and its type.
        let at = bytes.windows(key.len()).position(|part| part == key.as_bytes()).unwrap() + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        file_refused_saying(&sandbox, &bytes)
    };
    let says = |line: &str, what: &str| assert!(line.contains(what), "{line}");
    says(&with("llama.context_length", u32::MAX), "4294967295 tokens");
    says(&with("llama.block_count", 0), "n_layer");
    says(&with("llama.block_count", 513), "n_layer");
    // A token that is there twice, heads that do not fit the matrices, and a negative epsilon: ggml's own assertions.
    let mut twice = Tiny::default().bytes();
    let letter = |letter: u8| [&1_u64.to_le_bytes()[..], &[letter]].concat();
    let at = twice.windows(9).position(|part| part == letter(b'b')).unwrap();
    twice[at..at + 9].copy_from_slice(&letter(b'a'));
    says(&file_refused_saying(&sandbox, &twice), "id_to_token");
    with("llama.attention.head_count", 12);
    says(&with("llama.attention.layer_norm_rms_epsilon", (-1e-5_f32).to_bits()), "eps");
}

fn file_refused_saying(sandbox: &Sandbox, bytes: &[u8]) -> String {
    let path = sandbox.write("model.gguf", bytes);
    refuses(sandbox, path.to_str().unwrap(), 3)
}

/// Places of a header, the same in every run.
pub fn places(count: u64, below: usize) -> impl Iterator<Item = usize> {
    let mix = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 24;
    (1..=count).map(move |i| mix(i) as usize % below)
}

#[test]
fn a_flipped_bit_of_a_header_never_ends_in_a_signal() {
    let sandbox = Sandbox::new();
    let whole = Tiny::default().bytes();
    let bits = (whole.len() - tensor_bytes(&whole)) * 8;
    let count = std::env::var("QCHAT_TEST_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut killed = Vec::new();
    let path: PathBuf = sandbox.path("flipped.gguf");
    for bit in places(count, bits) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let output = sandbox.run(&path, &["hi", "--max-tokens", "2", "--no-stdin"]);
        match output.status.code() {
            Some(0) => {}
            Some(1..=4) => {
                assert_eq!(output.stdout, b"", "bit {bit}");
                assert_eq!(stderr(&output).lines().count(), 1, "bit {bit}: {}", stderr(&output));
            }
            _ => killed.push((bit / 8, output.status, stderr(&output))),
        }
    }
    assert!(killed.is_empty(), "{killed:#?}");
}
