//! Who decides: flag, environment, the model's entry, config.toml, built in; and what is said of mistakes in them.

use std::path::PathBuf;
use std::process::Command;

use super::outcome::{answered, json, refused};
use crate::common::tiny::Tiny;
use crate::common::{Sandbox, stderr};

/// `ChatML` around one user message, a byte a token.
const AROUND: u64 = 19;
/// `<|im_start|>`, "system\n", the text, `<|im_end|>`, "\n".
const AROUND_SYSTEM: u64 = 1 + 7 + 1 + 1;

fn config(sandbox: &Sandbox, text: &str) -> PathBuf {
    sandbox.write("qchat/config/config.toml", text)
}

fn registry(sandbox: &Sandbox, text: &str) -> PathBuf {
    sandbox.write("qchat/config/models.toml", text)
}

fn run(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.qchat();
    command.arg("run").args(args).args(["--output", "json"]);
    command
}

fn usage(command: &mut Command, name: &str) -> u64 {
    json(&command.output().unwrap())["usage"][name].as_u64().unwrap()
}

#[test]
fn flag_environment_config_built_in() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["a reply of some length"]);
    let model = model.to_str().unwrap();
    let tokens = |command: &mut Command| usage(command, "completion_tokens");
    assert_eq!(tokens(&mut run(&sandbox, &[model, "hi"])), 22);
    config(&sandbox, "max_tokens = 5\n");
    assert_eq!(tokens(&mut run(&sandbox, &[model, "hi"])), 5);
    assert_eq!(tokens(run(&sandbox, &[model, "hi"]).env("QCHAT_MAX_TOKENS", "4")), 4);
    assert_eq!(tokens(run(&sandbox, &[model, "hi", "--max-tokens", "3"]).env("QCHAT_MAX_TOKENS", "4")), 3);
    let seed = json(&run(&sandbox, &[model, "hi"]).env("QCHAT_SEED", "77").output().unwrap())["seed"].clone();
    assert_eq!(seed, 77);
}

#[test]
fn a_system_prompt_comes_from_the_nearest_place() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    let path = model.to_str().unwrap();
    let system = |command: &mut Command| usage(command, "prompt_tokens").checked_sub(AROUND + 2 + AROUND_SYSTEM);
    assert_eq!(usage(&mut run(&sandbox, &[path, "hi"]), "prompt_tokens"), AROUND + 2);
    config(&sandbox, "system = \"1\"\n");
    assert_eq!(system(&mut run(&sandbox, &[path, "hi"])), Some(1));
    let entry = |rest: &str| format!("[[model]]\nname = \"mine\"\n{rest}[[model.source]]\npath = {path:?}\n");
    registry(&sandbox, &entry(""));
    assert_eq!(system(&mut run(&sandbox, &["mine", "hi"])), Some(1));
    registry(&sandbox, &entry("system = \"22\"\n"));
    assert_eq!(system(&mut run(&sandbox, &["mine", "hi"])), Some(2), "the model's entry is above config.toml");
    assert_eq!(system(run(&sandbox, &["mine", "hi"]).env("QCHAT_SYSTEM", "333")), Some(3));
    let flag = |text: &str| system(run(&sandbox, &["mine", "hi", "--system", text]).env("QCHAT_SYSTEM", "333"));
    assert_eq!(flag("4444"), Some(4));
    let file = sandbox.write("system.txt", "55555\n");
    assert_eq!(flag(&format!("@{}", file.display())), Some(5));
    let missing = run(&sandbox, &["mine", "hi", "--system", "@/no/such/file"]).output().unwrap();
    assert!(refused(&missing, 2).contains("/no/such/file"));
}

#[test]
fn temperature_has_five_places() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("tiny.gguf");
    Tiny { says: |id| (32..127).contains(&id), ..Tiny::default() }.write(&model).unwrap();
    let entry = |rest: &str| format!("[[model]]\nname = \"mine\"\n{rest}[[model.source]]\npath = {model:?}\n");
    // Without randomness two seeds say the same.
    let random = |args: &[&str], env: Option<&str>| {
        let say = |seed: &str| {
            let mut command = run(&sandbox, &[&["mine", "hi", "--seed", seed, "--max-tokens", "24"], args].concat());
            command.envs(env.map(|value| ("QCHAT_TEMP", value)));
            json(&command.output().unwrap())["content"].clone()
        };
        say("1") != say("2")
    };
    registry(&sandbox, &entry(""));
    assert!(random(&[], None), "built in");
    config(&sandbox, "[sampling]\ntemperature = 0.0\n");
    assert!(!random(&[], None), "config.toml");
    registry(&sandbox, &entry("sampling = { temperature = 2.0 }\n"));
    assert!(random(&[], None), "the entry");
    assert!(!random(&[], Some("0")), "the environment");
    assert!(random(&["--temp", "2"], Some("0")), "the flag");
}

#[test]
fn an_entry_of_the_user_is_a_model() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&["Hello."], serde_json::json!({ "no_template": true }));
    let text = format!(
        "default_model = \"my-model\"\n[[model]]\nname = \"my-model\"\nalso = [\"other name\"]\ntemplate = \"gemma\"\n\
         [[model.source]]\npath = {model:?}\nquant = \"Q4_0\"\n"
    );
    registry(&sandbox, &text);
    // Gemma's turns are plain bytes in this vocabulary: <start_of_turn>user\n, hi, <end_of_turn>\n, <start_of_turn>model\n.
    let expected = 20 + 2 + 14 + 21;
    for name in ["my-model", "My_Model", "other-name", "my-m"] {
        let answer = json(&run(&sandbox, &[name, "hi"]).output().unwrap());
        assert_eq!((&answer["model"], &answer["usage"]["prompt_tokens"]), (&"my-model".into(), &expected.into()));
    }
    let mut command = sandbox.qchat();
    let output = crate::common::with_stdin(
        {
            command.args(["run", "--output", "json"]);
            command
        },
        b"hi",
    );
    assert_eq!(json(&output)["model"], "my-model", "no MODEL: the default");
    let list = answered(&sandbox.qchat().arg("list").output().unwrap());
    let mine = list.lines().find(|line| line.starts_with("my-model")).unwrap();
    assert!(mine.contains("Q4_0") && mine.contains("here"), "{mine}");
    // A file that went away is not here.
    std::fs::remove_file(&model).unwrap();
    let list = answered(&sandbox.qchat().arg("list").output().unwrap());
    let mine = list.lines().find(|line| line.starts_with("my-model")).unwrap();
    assert!(!mine.contains("here"), "{mine}");
    let line = refused(&run(&sandbox, &["my-model", "hi"]).output().unwrap(), 3);
    assert!(line.contains("model.script"), "{line}");
}

#[test]
fn mistakes_in_files_are_named_by_file_line_and_key() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    for (text, line, key) in [
        ("# mine\n\nmax_tokens = \"many\"\n", 3, "max_tokens"),
        ("tempo = 3\n", 1, "tempo"),
        ("[sampling]\ntemperature = 0.5\ntop_q = 1\n", 3, "top_q"),
        ("system = \"never closed\n", 1, "system"),
    ] {
        let path = config(&sandbox, text);
        let said = refused(&sandbox.run(&model, &["hi"]), 2);
        assert!(said.contains(path.to_str().unwrap()) && said.contains(&format!("line {line}")), "{said}");
        assert!(said.contains(key), "{said}");
        std::fs::remove_file(path).unwrap();
    }
    for (text, line, key) in [
        ("[[model]]\nname = \"m\"\ncontext = \"long\"\n", 3, "context"),
        ("[[model]]\nname = \"m\"\nflavour = 1\n", 3, "flavour"),
        ("[[model]]\nalso = [\"x\"]\n", 1, "name"),
        ("[[model]]\nname = \"m\"\n[[model.source]]\nhf = \"o/r\"\n[[model.source.files]]\nbytes = 3\n", 5, "name"),
    ] {
        let path = registry(&sandbox, text);
        for output in [sandbox.run(&model, &["hi"]), sandbox.qchat().arg("list").output().unwrap()] {
            let said = refused(&output, 2);
            assert!(said.contains(path.to_str().unwrap()) && said.contains(&format!("line {line}")), "{said}");
            assert!(said.contains(key), "{said}");
        }
    }
    for text in ["[[model]]\nname = \"m\"\ntemplate = \"frob\"\n", "[[model]]\nname = \"a/b\"\n"] {
        registry(&sandbox, text);
        let said = refused(&sandbox.run(&model, &["hi"]), 2);
        assert!(said.contains("frob") || said.contains("a/b"), "{said}");
    }
}

#[test]
fn a_wrong_command_line_is_one_line() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["Hello."]);
    for (args, names) in [
        (&["hi", "--frobnicate"][..], "--frobnicate"),
        (&["hi", "--temp", "11"], "from 0 to 10"),
        (&["hi", "--temp", "warm"], "from 0 to 10"),
        (&["hi", "--top-p", "-0.1"], "from 0 to 1"),
        (&["hi", "--max-tokens", "0"], "1.."),
        (&["hi", "--max-tokens", "-1"], "1.."),
        (&["hi", "--ctx", "3"], "16"),
        (&["hi", "--output", "xml"], "json"),
        (&["hi", "--seed"], "--seed"),
        (&["hi", "-q", "-v"], "-v"),
        (&["hi", "-f", "/no/such/file"], "/no/such/file"),
        (&["hi", "--log", "/no/such/folder/log"], "/no/such/folder/log"),
    ] {
        let said = refused(&sandbox.run(&model, args), 2);
        assert!(said.contains(names), "{said}");
    }
    let said = refused(&sandbox.qchat().arg("run").arg(&model).arg("hi").env("QCHAT_TEMP", "11").output().unwrap(), 2);
    assert!(said.contains("from 0 to 10"), "{said}");
    let help = sandbox.qchat().args(["run", "--help"]).output().unwrap();
    assert!(answered(&help).contains("--min-p") && stderr(&help).is_empty());
}

#[test]
fn without_a_home_the_platforms_folders_are_used() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["a reply of some length"]);
    sandbox.write("xdg/qchat/config.toml", "max_tokens = 5\n");
    let mut command = run(&sandbox, &[model.to_str().unwrap(), "hi"]);
    command.env_remove("QCHAT_HOME").env_remove("HOME").env("XDG_CONFIG_HOME", sandbox.path("xdg"));
    let output = command.output().unwrap();
    // The system may know the user's home all the same; where it does not, the way out is named.
    match output.status.code() {
        Some(0) => {
            let expected = if cfg!(target_os = "linux") { 5 } else { 22 };
            assert_eq!(json(&output)["usage"]["completion_tokens"], expected);
        }
        _ => assert!(refused(&output, 1).contains("QCHAT_HOME")),
    }
    // An empty QCHAT_HOME is none.
    assert_eq!(
        json(&command.env("QCHAT_HOME", "").env("HOME", sandbox.home.path()).output().unwrap())["model"],
        "model"
    );
}
