//! `qchat list` and `qchat show` against arithmetic, the user's models.toml, and the scripts for shells.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::outcome::{answered, json, refused};
use super::pty::Pty;
use crate::common::blank::{Blank, F16, F32, Q4_K, Q6_K, Q8_0};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr, with_stdin};

fn registry(sandbox: &Sandbox, text: &str) -> String {
    sandbox.write("qchat/config/models.toml", text).display().to_string()
}

fn show(sandbox: &Sandbox, model: &Path) -> Value {
    json(&sandbox.qchat().arg("show").arg(model).args(["--output", "json"]).output().unwrap())
}

fn text(sandbox: &Sandbox, model: &Path) -> String {
    answered(&sandbox.qchat().arg("show").arg(model).output().unwrap())
}

/// The words behind a label.
fn said<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix("  ")).map(str::trim_start)
}

/// A model of 2 layers: width 256, 8 heads of 32, 2 KV heads, 512 tokens.
fn plain() -> Blank {
    let words: Vec<String> = (0..512).map(|id| format!("t{id}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Blank::new("llama")
        .number("llama.block_count", 2)
        .number("llama.context_length", 2048)
        .number("llama.embedding_length", 256)
        .number("llama.feed_forward_length", 512)
        .number("llama.attention.head_count", 8)
        .number("llama.attention.head_count_kv", 2)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "qwen2")
        .texts("tokenizer.ggml.tokens", &words)
        .text("tokenizer.chat_template", "<|im_start|>")
        .text("general.license", "apache-2.0")
        // 131,072 numbers; 65,536 in blocks of 256; 65,536; 256.
        .tensor("token_embd.weight", &[256, 512], Q8_0, 139_264)
        .tensor("blk.0.attn_q.weight", &[256, 256], Q4_K, 36_864)
        .tensor("blk.1.attn_q.weight", &[256, 256], Q6_K, 53_760)
        .tensor("output_norm.weight", &[256], F32, 1024)
}

#[test]
fn show_counts_what_the_file_holds() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("plain.gguf");
    let bytes = plain().write(&path).unwrap();
    let sheet = show(&sandbox, &path);
    let all = 139_264 + 36_864 + 53_760 + 1024;
    for (key, value) in [
        ("name", json!("plain")),
        ("file", json!(path)),
        ("bytes", json!(bytes)),
        ("architecture", json!("llama")),
        ("parameters", json!(131_072 + 65_536 + 65_536 + 256)),
        ("bytes_read_per_token", json!(all)),
        ("context", json!(2048)),
        ("template", json!("ChatML")),
        ("tokenizer", json!("gpt2 (qwen2), 512 tokens")),
        ("licence", json!("apache-2.0")),
        ("prefix_cache", json!([])),
        ("quantisation", Value::Null),
        ("draft", Value::Null),
    ] {
        assert_eq!(sheet[key], value, "{key}");
    }
    let types = json!({
        "Q8_0": { "tensors": 1, "bytes": 139_264 }, "Q6_K": { "tensors": 1, "bytes": 53_760 },
        "Q4_K": { "tensors": 1, "bytes": 36_864 }, "F32": { "tensors": 1, "bytes": 1024 },
    });
    assert_eq!(sheet["tensor_types"], types);
    // 2 layers, 2 KV heads, a key and a value of 32 numbers; a block of 32 is 64, 34, 24 or 18 bytes.
    let blocks = 2 * 2 * 2;
    let kv = json!({ "f16": blocks * 64, "q8_0": blocks * 34, "q4_0": blocks * 18 });
    assert_eq!(sheet["kv_bytes_per_token"], kv);
    let memory = sheet["memory_bytes"].as_u64().unwrap();
    assert!(memory > bytes + 2048 * 512 && memory < bytes + 2048 * 512 + 100_000_000, "{memory}");
    let words = text(&sandbox, &path);
    for (label, expected) in [
        ("parameters", "262400"),
        ("tensors", "Q8_0 0.1 MB in 1 tensor"),
        ("read a token", "0.2 MB"),
        ("context", "2048 tokens"),
        ("template", "ChatML"),
        ("KV a token", "f16 0.5 KiB, q8_0 0.3 KiB, q4_0 0.1 KiB"),
        ("licence", "apache-2.0"),
        ("prefix cache", "nothing"),
    ] {
        assert_eq!(said(&words, label), Some(expected), "{words}");
    }
    // A type a line, the largest first.
    let at = words.lines().position(|line| line.starts_with("tensors")).unwrap();
    let types: Vec<&str> = words.lines().skip(at).take(4).map(|line| line[16..].split(' ').next().unwrap()).collect();
    assert_eq!(types, ["Q8_0", "Q6_K", "Q4_K", "F32"], "{words}");
    for (memory, fits) in [("1000", false), ("100000000000", true)] {
        let mut command = sandbox.qchat();
        command.env("QCHAT_MEMORY", memory).arg("show").arg(&path);
        let words = answered(&command.output().unwrap());
        let verdict =
            if fits { "2048 tokens, fits (100.00 GB free)" } else { "2048 tokens, does not fit (0.0 MB free)" };
        assert!(said(&words, "memory").unwrap().ends_with(verdict), "{words}");
        assert_eq!(json(&command.args(["--output", "json"]).output().unwrap())["fits"], fits);
    }
}

#[test]
fn what_a_token_reads_depends_on_the_output_matrix_and_the_experts() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("m.gguf");
    let reads = |blank: &Blank| {
        blank.write(&path).unwrap();
        show(&sandbox, &path)["bytes_read_per_token"].as_u64().unwrap()
    };
    let rest = 36_864 + 53_760 + 1024;
    assert_eq!(reads(&plain()), rest + 139_264, "a table that is the output matrix too is read whole");
    let untied = plain().tensor("output.weight", &[256, 512], F16, 262_144);
    assert_eq!(reads(&untied), rest + 262_144, "else a token reads a row of it, which is nothing");
    // Of 8 experts 2 are read, of a shared one everything.
    let experts = untied
        .number("llama.expert_count", 8)
        .number("llama.expert_used_count", 2)
        .tensor("blk.0.ffn_up_exps.weight", &[256, 64, 8], F16, 262_144)
        .tensor("blk.0.ffn_gate_exps.weight", &[256, 64, 8], F16, 262_144)
        .tensor("blk.0.ffn_up_shexp.weight", &[256, 64], F16, 32_768);
    assert_eq!(reads(&experts), rest + 262_144 + 2 * 262_144 / 4 + 32_768);
    // More in use than there are is all of them.
    let odd = plain().number("llama.expert_count", 2).number("llama.expert_used_count", 9);
    assert_eq!(reads(&odd.tensor("blk.0.ffn_up_exps.weight", &[256, 64], F16, 32_768)), rest + 139_264 + 32_768);
}

#[test]
fn the_kv_counts_each_layer_and_what_the_file_does_not_say_is_not_made_up() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("m.gguf");
    let heads = |heads: &[u32]| {
        let blank = Blank::new("x").number("x.block_count", 4).number("x.embedding_length", 512);
        let blank = blank.number("x.attention.head_count", 8).numbers("x.attention.head_count_kv", heads);
        blank.tensor("w", &[32], F32, 128).write(&path).unwrap();
        show(&sandbox, &path)
    };
    let sheet = heads(&[0, 4, 0, 8]);
    assert_eq!(sheet["kv_bytes_per_token"]["f16"], (4 + 8) * (64 + 64) * 2);
    for key in ["context", "licence", "quantisation"] {
        assert_eq!(sheet[key], Value::Null, "{key}");
    }
    assert_eq!((&sheet["template"], &sheet["tokenizer"]), (&json!("none"), &json!("? (?)")));
    for (template, kind) in [
        ("<|im_start|>a<|im_sep|>", "Phi 4"),
        ("<|start_header_id|>", "Llama 3"),
        ("<start_of_turn>", "Gemma"),
        ("[INST]", "Mistral"),
        ("<|assistant|>", "Phi 3"),
        ("<|start|>x<|channel|>", "Harmony"),
        ("{{ x }}", "its own"),
    ] {
        let blank = Blank::new("llama").text("tokenizer.chat_template", template).tensor("w", &[32], F32, 128);
        blank.write(&path).unwrap();
        assert_eq!(show(&sandbox, &path)["template"], kind);
    }
}

#[test]
fn the_parts_of_a_split_model_are_shown_together() {
    let sandbox = Sandbox::new();
    let first = sandbox.path("m-00001-of-00003.gguf");
    let part = |number: u32| sandbox.path(&format!("m-0000{}-of-00003.gguf", number + 1));
    let more = |number: u32| Blank::new("llama").number("split.count", 3).number("split.no", number);
    let mut bytes = plain().number("split.count", 3).number("split.no", 0).write(&first).unwrap();
    bytes += more(1).tensor("blk.0.ffn_up.weight", &[256, 32], Q8_0, 8704).write(&part(1)).unwrap();
    bytes += more(2).tensor("output.weight", &[256, 512], Q8_0, 139_264).write(&part(2)).unwrap();
    let sheet = show(&sandbox, &first);
    assert_eq!((&sheet["bytes"], &sheet["parameters"]), (&json!(bytes), &json!(262_400 + 8192 + 131_072)));
    assert_eq!(sheet["tensor_types"]["Q8_0"], json!({ "tensors": 3, "bytes": 139_264 + 8704 + 139_264 }));
    // The output matrix of a later part counts.
    assert_eq!(sheet["bytes_read_per_token"], 36_864 + 53_760 + 1024 + 8704 + 139_264);
    // In a registry it is as large.
    registry(&sandbox, &format!("[[model]]\nname = 'split'\n[[model.source]]\npath = {first:?}\n"));
    assert_eq!(row(&sandbox, "split")["bytes"], bytes);
    assert_eq!(show(&sandbox, Path::new("split"))["bytes"], bytes);
    let refused_show = |path: &Path| refused(&sandbox.qchat().arg("show").arg(path).output().unwrap(), 3);
    assert!(refused_show(&part(1)).contains("name its first part"));
    std::fs::remove_file(part(2)).unwrap();
    assert!(refused_show(&first).contains("m-00003-of-00003.gguf"));
}

#[test]
fn what_cannot_be_shown_says_what_to_do() {
    let sandbox = Sandbox::new();
    let shows = |model: &str, code: i32| refused(&sandbox.qchat().args(["show", model]).output().unwrap(), code);
    assert!(shows("smolm2-135m", 3).contains("did you mean smollm2-135m"));
    assert!(shows("smollm2-135m", 3).contains("`qchat pull smollm2-135m`"));
    assert!(shows("hf:owner/repo:Q8_0", 3).contains("`qchat pull hf:owner/repo:Q8_0`"));
    assert!(shows("hf:owner", 2).contains("hf:owner/repo"));
    assert!(shows("/no/such.gguf", 3).contains("does not exist"));
    let text = sandbox.write("text.gguf", "text");
    assert!(shows(text.to_str().unwrap(), 3).contains("not a GGUF"));
    let encoder = sandbox.path("encoder.gguf");
    Blank::new("nomic-bert").tensor("w", &[32], F32, 128).write(&encoder).unwrap();
    assert!(shows(encoder.to_str().unwrap(), 3).contains("does not write text"));
    assert_eq!(text_of_script(&sandbox), Some("nothing".into()), "a script has no header, and is shown all the same");
}

fn text_of_script(sandbox: &Sandbox) -> Option<String> {
    let words = text(sandbox, &sandbox.script(&["Hello."]));
    said(&words, "prefix cache").map(str::to_owned)
}

/// The row of a model in `qchat list`.
fn row(sandbox: &Sandbox, name: &str) -> Value {
    let rows = json(&sandbox.qchat().args(["list", "--output", "json"]).output().unwrap());
    rows.as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn list_tells_what_is_here_and_what_fits() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("big.gguf");
    let bytes = plain().tensor("output.weight", &[1 << 15, 1 << 16], F16, 1 << 32).write(&path).unwrap();
    let text = format!(
        "[[model]]\nname = 'here'\ndraft = 'smollm2-135m'\n[[model.source]]\nquant = 'F16'\npath = {path:?}\n\
         [[model]]\nname = 'unsized'\n[[model.source]]\nhf = 'owner/repo'\n\
         [[model]]\nname = 'nowhere'\n[[model.source]]\npath = '/no/such.gguf'\n"
    );
    registry(&sandbox, &text);
    let rows = |memory: &str| {
        let mut command = sandbox.qchat();
        command.env("QCHAT_MEMORY", memory).args(["list", "--output", "json"]);
        json(&command.output().unwrap()).as_array().unwrap().clone()
    };
    let rows_here = rows("8000000000");
    let expected = json!({
        "name": "here", "bytes": bytes, "quantisation": "F16", "where": "here", "file": path, "fits": true,
        "draft": "smollm2-135m",
    });
    assert_eq!(rows_here[0], expected, "what is here comes first");
    let find = |rows: &[Value], name: &str| rows.iter().find(|row| row["name"] == name).unwrap().clone();
    for name in ["unsized", "nowhere"] {
        let row = find(&rows_here, name);
        assert_eq!((&row["where"], &row["bytes"], &row["fits"]), (&json!("available"), &Value::Null, &Value::Null));
    }
    let shipped = find(&rows_here, "qwen2.5-0.5b");
    assert_eq!((&shipped["bytes"], &shipped["quantisation"]), (&json!(491_400_032), &json!("Q4_K_M")));
    assert_eq!((&shipped["fits"], &shipped["file"]), (&json!(true), &Value::Null));
    // The parts of a split one together.
    assert_eq!(find(&rows_here, "qwen2.5-7b")["bytes"], 3_993_201_344_u64 + 689_872_288);
    assert_eq!(find(&rows("4000000000"), "here")["fits"], false);
    // As text, a row a model and its columns under each other, however long a name is.
    let mut command = sandbox.qchat();
    let output = command.env("QCHAT_MEMORY", "4000000000").arg("list").output().unwrap();
    let text = answered(&output);
    assert_eq!(text.lines().count(), rows_here.len());
    let line = |name: &str| text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    assert!(line("here").contains("4.30 GB  here, too large  F16"), "{text}");
    assert!(line("here").ends_with("  smollm2-135m"), "{text}");
    assert!(line("unsized").ends_with(" ?") && line("qwen2.5-72b").contains("GB  too large"), "{text}");
    let column = |name: &str, word: &str| line(name).find(word).unwrap();
    assert_eq!(column("here", "F16"), column("qwen2.5-72b", "Q4_K_M"));
    assert!(stderr(&output).is_empty() && !text.contains('\x1b'));
}

#[test]
fn a_list_fits_its_terminal() {
    let sandbox = Sandbox::new();
    let name = "Some-Longish-Model-Name-13B-Instruct-Q4_K_M.gguf";
    sandbox.write(&format!(".lmstudio/models/some-organisation/Some-Longish-Model-Name-GGUF/{name}"), "x");
    let address = format!("hf:some-organisation/Some-Longish-Model-Name-GGUF/{name}");
    for columns in [80_u16, 40] {
        let argv = [env!("CARGO_BIN_EXE_qchat"), "list"];
        let mut pty = Pty::command(&sandbox, (200, columns), &argv, &[("QCHAT_MEMORY", "20000000000")]);
        assert_eq!(pty.wait_exit(), 0);
        let rows = pty.rows();
        // Only the long name needs more than its row (which is one here, and in the terminal as many as it takes).
        assert_eq!((rows[0].as_str(), rows[1].trim()), (address.as_str(), "0.0 MB  LM Studio"));
        assert!(rows[1..].iter().all(|row| row.chars().count() <= columns.into()), "{rows:#?}");
        let large = ["qwen2.5-72b", "44.01 GB", "too large", "Q4_K_M", "qwen2.5-0.5b"];
        let row = rows.iter().find(|row| row.starts_with(large[0])).unwrap();
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, large[..if columns == 80 { 5 } else { 3 }], "{rows:#?}");
        let shipped = json(&sandbox.qchat().args(["list", "--output", "json"]).output().unwrap());
        let names = shipped.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
        assert!(names.into_iter().all(|name| rows.iter().any(|row| row.split(' ').next() == Some(name))), "{rows:#?}");
    }
}

#[test]
fn an_entry_of_the_user_works_like_a_shipped_one() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("bare.gguf");
    let tiny = Tiny { template: None, says: |id| (32..127).contains(&id), ..Tiny::default() };
    tiny.write(&path).unwrap();
    let text = format!(
        "[[model]]\nname = 'pirate'\nalso = ['arr']\nlicence = 'mine'\nsystem = 'Arr.'\ntemplate = 'chatml'\n\
         sampling = {{ temperature = 0.0 }}\n[[model.source]]\npath = {path:?}\nquant = 'F32'\n\
         [[model]]\nname = 'smollm2-135m'\nsystem = 'Mine now.'\n[[model.source]]\npath = {path:?}\n"
    );
    registry(&sandbox, &text);
    let run = |args: &[&str]| -> Output {
        let args = [&["run"], args, &["hi", "--no-stdin", "--max-tokens", "12", "--output", "json"]].concat();
        sandbox.qchat().args(args).output().unwrap()
    };
    // ChatML around a system prompt of 4 bytes and a message of 2.
    let answer = json(&run(&["arr", "--seed", "1"]));
    assert_eq!((&answer["model"], &answer["usage"]["prompt_tokens"]), (&json!("pirate"), &json!(10 + 4 + 19 + 2)));
    assert_eq!(answer["content"], json(&run(&["pirate", "--seed", "2"]))["content"], "its temperature");
    let warm = |seed: &str| json(&run(&["pirate", "--temp", "2", "--seed", seed]))["content"].clone();
    assert_ne!(warm("1"), warm("2"), "a flag counts more");
    assert_eq!(json(&run(&["pirate", "--system", "No"]))["usage"]["prompt_tokens"], 10 + 2 + 19 + 2);
    let sheet = show(&sandbox, Path::new("arr"));
    assert_eq!(
        (&sheet["name"], &sheet["licence"], &sheet["quantisation"]),
        (&json!("pirate"), &json!("mine"), &json!("F32"))
    );
    assert_eq!(row(&sandbox, "pirate")["where"], "here");
    // A shipped name is replaced.
    assert_eq!(row(&sandbox, "smollm2-135m")["file"], json!(path));
    for name in ["pirate", "smollm2-135m"] {
        let line = refused(&sandbox.qchat().args(["rm", "--yes", name]).output().unwrap(), 2);
        assert!(line.contains("file of yours") && line.contains(path.to_str().unwrap()), "{line}");
    }
    assert!(path.exists());
    // What it names as its draft is said, and whether it is here.
    registry(&sandbox, &text.replace("licence = 'mine'", "draft = 'qwen-0.5b'"));
    assert_eq!(
        said(&self::text(&sandbox, Path::new("arr")), "draft"),
        Some("qwen-0.5b (not here; `qchat pull qwen-0.5b`)")
    );
    registry(&sandbox, &text.replace("licence = 'mine'", "draft = 'smollm2-135m'"));
    assert_eq!(said(&self::text(&sandbox, Path::new("arr")), "draft"), Some("smollm2-135m"));
    assert_eq!(show(&sandbox, Path::new("arr"))["draft"], "smollm2-135m");
}

#[test]
fn mistakes_in_models_toml_name_file_line_and_key() {
    let sandbox = Sandbox::new();
    let source = "[[model]]\nname = 'a'\n[[model.source]]\nhf = 'o/r'\n";
    let file = |file: &str| format!("{source}files = [{file}]\n");
    let digest = "f".repeat(64);
    for (text, line, says) in [
        ("[[model]]\nname = 'a'\ntemprature = 1\n".into(), 3, "temprature"),
        ("[[model]]\nname = 'a'\ncontext = 'long'\n".into(), 3, "context = 'long'"),
        ("[[model]]\nname = 'a'\nsampling = { temperature = 'hot' }\n".into(), 3, "temperature = 'hot'"),
        ("[[model]]\nname = 'a'\nsampling = { topp = 1 }\n".into(), 3, "topp"),
        ("# mine\n\n[[model]]\nname = 'a'\n# frob\ntemplate = 'frob'\n".into(), 6, "there is no template 'frob'"),
        ("[[model]]\nname = 'top_p'\nsampling = { top_p = 2.0 }\n".into(), 3, "top_p must be from 0 to 1"),
        ("[[model]]\nname = 'a'\n[model.sampling]\ntemperature = 0.5\nmin_p = -0.1\n".into(), 5, "min_p must be"),
        // The second of two, however alike they are.
        (
            "[[model]]\nname = 'a'\nsampling = { top_p = 1 }\n[[model]]\nname = 'b'\nsampling = { top_p = 2 }\n".into(),
            6,
            "model b",
        ),
        ("[[model]]\nname = 'a/b'\n".into(), 2, "a name must not"),
        ("[[model]]\nlicence = 'x'\nname = ''\n".into(), 3, "a name must not"),
        (file("{ name = '../x.gguf' }"), 5, "'../x.gguf' is not a file name"),
        (file("{ name = '/etc/passwd' }"), 5, "'/etc/passwd' is not a file name"),
        (file("{ name = 'x.gguf', bytes = 'many' }"), 5, "bytes"),
        (file("{ name = 'x.gguf', sha256 = 'abc' }"), 5, "64 hexadecimal digits"),
        (file(&format!("{{ name = 'x.gguf', sha256 = '{}g' }}", &digest[..63])), 5, "64 hexadecimal digits"),
        ("[[model]]\nname = 'a'\n[[model.source]]\nhf = '../r'\n".into(), 4, "hf must be owner/name"),
        ("[[model]]\nname = 'a'\n[[model.source]]\nhf = 'r'\n".into(), 4, "hf must be owner/name"),
        ("[[model]]\nname = 'a'\n[[model]]\nname = 'A'\n".into(), 4, "'A' is also a name of model a"),
        (
            "[[model]]\nname = 'a'\nalso = ['b']\n[[model]]\nname = 'c'\nalso = ['d', 'B']\n".into(),
            6,
            "'B' is also a name of model a",
        ),
    ] {
        let path = registry(&sandbox, &text);
        for args in [&["list"][..], &["show", "a"], &["run", "a", "hi"], &["rm", "a"]] {
            let said = refused(&sandbox.qchat().args(args).output().unwrap(), 2);
            assert!(said.contains(&format!("{path}, line {line} (")) && said.contains(says), "{text}: {said}");
        }
    }
    // A name that the shipped registry has too is no mistake.
    registry(&sandbox, "[[model]]\nname = 'mine'\nalso = ['qwen-7b', 'mine']\n");
    answered(&sandbox.qchat().arg("list").output().unwrap());
}

/// Whether a program is on this machine.
fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|found| found.status.success())
}

#[test]
fn completions_are_what_each_shell_reads() {
    let sandbox = Sandbox::new();
    let script = |shell: &str| answered(&sandbox.qchat().args(["completions", shell]).output().unwrap());
    for (shell, check, word) in [
        ("bash", Some("bash -n"), "_qchat()"),
        ("zsh", Some("zsh -n"), "#compdef qchat"),
        ("fish", Some("fish --no-execute"), "complete -c qchat"),
        ("elvish", None, "edit:completion"),
        ("powershell", None, "Register-ArgumentCompleter"),
    ] {
        let text = script(shell);
        assert!(text.contains(word), "{shell}");
        for command in ["run", "pull", "list", "show", "rm", "chats", "cache", "bench", "completions"] {
            assert!(text.contains(command), "{shell}: {command}");
        }
        let Some(check) = check.filter(|check| has(check.split(' ').next().unwrap())) else { continue };
        let file = sandbox.write(&format!("completion.{shell}"), &text);
        let output = Command::new("sh").args(["-c", &format!("{check} \"$0\"")]).arg(&file).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{check}: {}", stderr(&output));
    }
    if has("bash") {
        // The shell's own words for what was typed.
        let ask =
            "source /dev/stdin; COMP_WORDS=(qchat sh); COMP_CWORD=1; _qchat qchat sh qchat; echo \"${COMPREPLY[*]}\"";
        let mut command = Command::new("bash");
        command.args(["-c", ask]);
        assert_eq!(answered(&with_stdin(command, script("bash").as_bytes())), "show\n");
    }
    assert!(refused(&sandbox.qchat().args(["completions", "tcsh"]).output().unwrap(), 2).contains("bash"));
}

#[test]
fn the_man_page_has_every_command_and_is_rendered_without_a_complaint() {
    let sandbox = Sandbox::new();
    let page = answered(&sandbox.qchat().args(["completions", "man"]).output().unwrap());
    assert_eq!(page.matches(".TH ").count(), 1);
    assert!(page.contains(".TH qchat 1") && !page.contains("(1)\n"), "no page that is not there is referred to");
    if !has("groff") {
        return;
    }
    let mut command = Command::new("groff");
    command.args(["-man", "-Tutf8", "-ww", "-P-c"]);
    let output = with_stdin(command, page.as_bytes());
    assert_eq!(stderr(&output), "");
    // What is struck twice is bold.
    let mut rendered = String::new();
    for c in answered(&output).chars() {
        if c == '\x08' { rendered.pop().map_or((), drop) } else { rendered.push(c) }
    }
    let sections: Vec<&str> = rendered.lines().filter(|line| line.starts_with("QCHAT ")).collect();
    let expected = [
        "QCHAT RUN",
        "QCHAT PULL",
        "QCHAT LIST",
        "QCHAT SHOW",
        "QCHAT RM",
        "QCHAT CHATS",
        "QCHAT CHATS LIST",
        "QCHAT CHATS SHOW",
        "QCHAT CHATS EXPORT",
        "QCHAT CHATS RM",
        "QCHAT CACHE",
        "QCHAT CACHE LIST",
        "QCHAT CACHE VERIFY",
        "QCHAT CACHE PRUNE",
        "QCHAT CACHE CLEAR",
        "QCHAT DOCTOR",
        "QCHAT BENCH",
        "QCHAT CONFIG",
        "QCHAT COMPLETIONS",
    ];
    assert_eq!(sections, expected, "{rendered}");
    assert!(rendered.contains("--repeat-penalty") && rendered.contains("--dry-run"), "{rendered}");
}
