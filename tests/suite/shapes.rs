//! Answers that scripts rely on: kept to a shape or not given at all; begun, several, from messages; what was read and how sure.

use serde_json::{Value, json};

use super::outcome::{answered, refused};
use crate::common::tiny::{Kind, Tiny};
use crate::common::{Sandbox, stderr, stdout, with_stdin};

/// A model that says anything.
fn tiny(sandbox: &Sandbox) -> std::path::PathBuf {
    let path = sandbox.path("tiny.gguf");
    Tiny { spread: 1.0, ..Tiny::default() }.write(&path).unwrap();
    path
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "on": {"type": "boolean"}},
    "required": ["name", "on"]}"#;

#[test]
fn an_answer_is_of_its_shape() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let schema = sandbox.write("schema.json", SCHEMA).display().to_string();
    let digits = sandbox.write("digits.gbnf", "root ::= [0-9]{3} \"-\" [a-f]+\n").display().to_string();
    for seed in ["1", "2", "3"] {
        let said =
            |args: &[&str]| answered(&sandbox.run(&model, &[&["hi", "--temp", "1", "--seed", seed], args].concat()));
        for schema in [SCHEMA, &schema] {
            let value: Value = serde_json::from_str(&said(&["--schema", schema])).unwrap();
            assert!(value["name"].is_string() && value["on"].is_boolean(), "{value}");
        }
        let said = said(&["--choice", "yes", "--choice", "no\tway \"so\""]);
        assert!(["yes\n", "no\tway \"so\"\n"].contains(&said.as_str()), "{said:?}");
    }
    let text = answered(&sandbox.run(&model, &["hi", "--grammar", &digits, "--temp", "1", "--seed", "1"]));
    let (digits, letters) = text.trim_end().split_once('-').unwrap();
    assert!(digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()), "{text}");
    assert!(!letters.is_empty() && letters.bytes().all(|b| (b'a'..=b'f').contains(&b)), "{text}");
}

#[test]
fn what_was_cut_where_it_could_have_gone_on_is_no_answer() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let run = |args: &[&str]| sandbox.run(&model, &[&["hi", "--temp", "1"], args].concat());
    let cut = run(&["--choice", "no", "--choice", "none", "--max-tokens", "2"]);
    assert_eq!((cut.status.code(), stdout(&cut).as_str()), (Some(1), ""), "{}", stderr(&cut));
    assert!(stderr(&cut).contains("was cut after 2 tokens, before it was whole: no"), "{}", stderr(&cut));
    assert_eq!(answered(&run(&["--choice", "no", "--choice", "yes", "--prefill", "n", "--max-tokens", "1"])), "no\n");
    // Behind a value only white space may come: that is not waited for.
    let value = ["--schema", "{\"const\": {\"a\": 1}}", "--max-tokens", "60", "--output", "json"];
    let object: Value = serde_json::from_str(&answered(&run(&value))).unwrap();
    assert_eq!((object["finish_reason"].as_str(), object["complete"].as_bool()), (Some("stop"), Some(true)));
    assert!(object["content"].as_str().unwrap().ends_with('}'), "{object}");
}

#[test]
fn several_answers_say_which_are_not_whole() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let args = ["hi", "--n", "3", "--schema", SCHEMA, "--max-tokens", "5", "--temp", "1"];
    let output = sandbox.run(&model, &args);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("before it was whole: {"), "{}", stderr(&output));
    let output = sandbox.run(&model, &[&args[..], &["--output", "json"]].concat());
    let objects: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((output.status.code(), objects.len()), (Some(1), 3));
    assert!(objects.iter().all(|object| object["complete"] == false), "{objects:?}");
    // By how much a prompt is too long is said as for one answer, and a context is as long as was asked.
    let model = sandbox.script_with(&["x".repeat(400).as_str()], json!({ "context": 4096 }));
    let long = "a".repeat(300);
    let refusal = refused(&sandbox.run(&model, &[&long, "--n", "2", "--ctx", "256"]), 4);
    assert!(refusal.contains("64 too many"), "{refusal}");
    let output = sandbox.run(&model, &["hi", "--n", "2", "--ctx", "100"]);
    // 21 of the 100 are the prompt's; the last token needs no place.
    assert_eq!(answered(&output), format!("{0}\n---\n{0}\n", "x".repeat(80)));
    assert!(stderr(&output).contains("answer 2 was cut at the end of its context"), "{}", stderr(&output));
}

#[test]
fn a_beginning_stands_behind_thoughts_that_the_template_opens() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("thinks.gguf");
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
        <|im_start|>assistant\n<think>\n";
    Tiny { template: Some(template.into()), ..Tiny::default() }.write(&path).unwrap();
    let prompt = |args: &[&str]| answered(&sandbox.run(&path, &[&["hi", "--print-prompt"], args].concat()));
    assert!(prompt(&[]).contains("assistant\n<think>\n["), "{}", prompt(&[]));
    assert!(
        prompt(&["--prefill", "Sure"]).contains("<think>\n</think>\n\nSure\n["),
        "{}",
        prompt(&["--prefill", "Sure"])
    );
    // A text of a token is that text, in a beginning as in a message.
    let template = qchat::chat::named("qwen3").map(str::to_owned);
    let mut model = Tiny { template, ..Tiny::default() };
    model.specials.push(("</think>".into(), Kind::UserDefined));
    model.write(&path).unwrap();
    let end = model.special("</think>");
    assert!(
        !prompt(&["--prefill", "a</think>b"]).contains(&format!(" {end},")),
        "{}",
        prompt(&["--prefill", "a</think>b"])
    );
}

#[test]
fn a_pipe_gets_lines_and_chunks() {
    let sandbox = Sandbox::new();
    let model =
        sandbox.script_with(&[&format!("{}\nend", "word ".repeat(60))], json!({ "row_ms": 1, "context": 4096 }));
    // Each datagram is one write.
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["hi", "--draft", "off"]);
    let mut child = command.stdout(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap();
    drop(command);
    let mut writes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    ours.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    while let Ok(bytes @ 1..) = ours.recv(&mut buffer) {
        writes.push(String::from_utf8(buffer[..bytes].to_vec()).unwrap());
        if writes.concat().ends_with("end\n") {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(writes.concat(), format!("{}\nend\n", "word ".repeat(60)));
    // The first token at once; 300 tokens take less than a second here, so not one write each.
    assert!(writes[0] == "w" && writes.len() < 60, "{}: {:?}", writes.len(), &writes[..3]);
}

#[test]
fn what_is_not_whole_is_no_answer() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let output = sandbox.run(&model, &["hi", "--schema", SCHEMA, "--max-tokens", "5", "--temp", "0"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let said = stderr(&output);
    assert!(said.starts_with("qchat: the answer was cut after 5 tokens, before it was whole: {"), "{said}");
    assert!(said.lines().count() == 1 && said.contains("raise --max-tokens"), "{said}");
    // JSON says so too, and so does its exit code.
    let output = sandbox.run(&model, &["hi", "--schema", SCHEMA, "--max-tokens", "5", "--output", "json"]);
    let object: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((output.status.code(), object["finish_reason"].as_str()), (Some(1), Some("length")));
    // A stop string inside it.
    let output = sandbox.run(&model, &["hi", "--schema", SCHEMA, "--stop", "\""]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
}

#[test]
fn mistakes_in_shapes_are_named_with_their_place() {
    let sandbox = Sandbox::new();
    let model = tiny(&sandbox);
    let grammar = sandbox.write("bad.gbnf", "root ::= \"a\"\nb ::= [x").display().to_string();
    let schema = sandbox.write("bad.json", "{\"type\":\n oops}").display().to_string();
    for (args, said) in [
        (&["--grammar", &grammar][..], "bad.gbnf: line 2, column 7: this set of characters has no end"),
        (&["--grammar", "none.gbnf"], "the grammar none.gbnf cannot be read"),
        (&["--schema", &schema], "bad.json is no JSON: expected value at line 2 column 2"),
        (&["--schema", "{\"type\": \"strnig\"}"], "the schema: Invalid type: strnig"),
        (&["--json", "--choice", "a"], "the argument '--json' cannot be used with"),
        (&["--logprobs", "2"], "--logprobs go into JSON. add --output json"),
        (&["--n", "65"], "65 is not in 1..=64"),
        (&["--prefill", "x", "--choice", "yes"], "no token of the model fits the grammar after 0 tokens"),
    ] {
        let output = sandbox.run(&model, &[&["hi"], args].concat());
        let code = if args[0] == "--prefill" { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        let line = stderr(&output);
        assert!(line.starts_with(&format!("qchat: {said}")) || line.contains(said), "{args:?}: {line}");
        assert_eq!((line.lines().count(), stdout(&output).as_str()), (1, ""), "{line}");
    }
    let output =
        sandbox.run(&model, &["hi", "--schema", "{\"type\": \"array\", \"uniqueItems\": true}", "--max-tokens", "400"]);
    assert!(stderr(&output).contains("is not enforced in full"), "{}", stderr(&output));
}

#[test]
fn an_answer_can_be_begun() {
    let sandbox = Sandbox::new();
    // The script counts what was spoken, so it goes on behind as many bytes.
    let model = sandbox.script(&["Hello there."]);
    assert_eq!(answered(&sandbox.run(&model, &["hi", "--prefill", "Hell, "])), "Hell, there.\n");
    // A stop string may begin in it.
    assert_eq!(answered(&sandbox.run(&model, &["hi", "--prefill", "Hello t", "--stop", "the"])), "Hello \n");
    let model = tiny(&sandbox);
    let args = ["hi", "--schema", SCHEMA, "--prefill", "{\"name\": \"ab", "--temp", "1", "--seed", "4"];
    let value: Value = serde_json::from_str(&answered(&sandbox.run(&model, &args))).unwrap();
    assert!(value["name"].as_str().unwrap().starts_with("ab"), "{value}");
}

#[test]
fn several_answers_have_seeds_of_their_own() {
    let sandbox = Sandbox::new();
    let model = sandbox.script_with(&[], json!({ "random": { "seed": 1, "spread": 3.0 } }));
    let args = |n: &str, more: &[&str]| -> Vec<String> {
        let base = ["hi", "--seed", "7", "--temp", "1", "--max-tokens", "9", "--n", n];
        base.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let run = |args: Vec<String>| {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        answered(&sandbox.run(&model, &words))
    };
    let text = run(args("3", &[]));
    let answers: Vec<&str> = text.trim_end().split("\n---\n").collect();
    assert!(answers.len() == 3 && answers[0] != answers[1] && answers[1] != answers[2], "{text}");
    for (seed, answer) in (7..).zip(&answers) {
        let alone = sandbox.run(&model, &["hi", "--seed", &seed.to_string(), "--temp", "1", "--max-tokens", "9"]);
        assert_eq!(answered(&alone).trim_end(), *answer);
    }
    let lines = run(args("2", &["--output", "json"]));
    let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let brief = |object: &Value| {
        (object["index"].as_u64(), object["seed"].as_u64(), object["content"].as_str().map(str::to_owned))
    };
    assert_eq!(brief(&objects[0]), (Some(0), Some(7), Some(answers[0].to_owned())));
    assert_eq!(brief(&objects[1]), (Some(1), Some(8), Some(answers[1].to_owned())));
}

#[test]
fn a_conversation_comes_as_messages() {
    let sandbox = Sandbox::new();
    let model = sandbox.script(&["One.", "Two."]);
    let talk = json!([
        { "role": "system", "content": "S" }, { "role": "user", "content": "a" },
        { "role": "assistant", "content": "One." }, { "role": "user", "content": "b" },
    ]);
    let file = sandbox.write("talk.json", talk.to_string()).display().to_string();
    assert_eq!(answered(&sandbox.run(&model, &["--messages", &file])), "Two.\n");
    let mut command = sandbox.qchat();
    command.arg("run").arg(&model).args(["--messages", "-"]);
    assert_eq!(stdout(&with_stdin(command, json!({ "messages": talk }).to_string().as_bytes())), "Two.\n");
    let prompt = answered(&sandbox.run(&model, &["--messages", &file, "--print-prompt"]));
    let wanted = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n\
        <|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n\n[257, 115, ";
    assert!(prompt.starts_with(wanted), "{prompt}");
    let bad = sandbox.write("bad.json", "[{\"role\": \"tool\", \"content\": \"x\"}]").display().to_string();
    let refusal = refused(&sandbox.run(&model, &["--messages", &bad]), 2);
    assert!(refusal.contains("bad.json: message 1 is from 'tool'"), "{refusal}");
    refused(&sandbox.run(&model, &["--messages", &file, "more"]), 2);
}

#[test]
fn template_variables_reach_the_template() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("thinks.gguf");
    let template = qchat::chat::named("qwen3").map(str::to_owned);
    Tiny { template, ..Tiny::default() }.write(&path).unwrap();
    let prompt = |args: &[&str]| answered(&sandbox.run(&path, &[&["hi", "--print-prompt"], args].concat()));
    let closed = "<think>\n\n</think>\n\n";
    assert!(!prompt(&[]).contains(closed));
    assert!(prompt(&["--template-var", "enable_thinking=false"]).contains(closed));
    assert!(prompt(&["--reasoning-budget", "0"]).contains(closed));
    sandbox.write("qchat/config/config.toml", "[template]\nenable_thinking = false\n");
    assert!(prompt(&[]).contains(closed));
    assert!(!prompt(&["--template-var", "enable_thinking=true"]).contains(closed));
    let output = sandbox.run(&path, &["hi", "--print-prompt", "--template-var", "tone=dry"]);
    assert!(stderr(&output).contains("the chat template does not look at 'tone'"), "{}", stderr(&output));
    refused(&sandbox.run(&path, &["hi", "--template-var", "messages=[]"]), 2);
    refused(&sandbox.run(&path, &["hi", "--template-var", "nothing"]), 2);
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let sandbox = Sandbox::new();
    // One logit of 40 and 258 of 0: the answer's tokens are all but certain.
    let model = sandbox.script(&["Hi"]);
    let object: Value =
        serde_json::from_str(&answered(&sandbox.run(&model, &["hi", "--logprobs", "2", "--output", "json"]))).unwrap();
    let tokens = object["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!((tokens[0]["token"].as_str(), tokens[0]["bytes"].clone()), (Some("H"), json!([72])));
    assert!(tokens[0]["logprob"].as_f64().unwrap().abs() < 1e-6);
    let top = tokens[0]["top_logprobs"].as_array().unwrap();
    assert!(
        top.len() == 2 && top[0]["token"] == "H" && (top[1]["logprob"].as_f64().unwrap() + 40.0).abs() < 1e-3,
        "{object}"
    );
}
