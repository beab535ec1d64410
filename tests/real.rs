//! The real-model suite: smollm2-135m, pulled by qchat itself (scripts/test does) into `QCHAT_HOME`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unreachable_pub, reason = "a test harness has no outside")]

mod common;
#[path = "common/talks.rs"]
mod talks;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{stderr, stdout, with_stdin};
use qchat::chat::{Conversation, Message, Role};
use qchat::engine::llama::LoadSettings;
use qchat::engine::{ContextSettings, Model, Row, Save, Token};
use qchat::generate::draft::{Ngram, Offer, Plan, Policy, Speculator};
use qchat::generate::{Cached, Content, Keep, Limits, Part, Reasoning, Sink, SinkClosed, Speaker, TurnSettings};
use qchat::interrupt::Interrupt;
use qchat::models::{DraftWish, Resolver};
use qchat::paths::Paths;
use qchat::prefix::{About, Bounds, Inventory, Store};
use qchat::sample::Sampling;
use talks::Talk;

const MODEL: &str = "smollm2-135m";
const FILE: &str = "data/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf";

fn home() -> PathBuf {
    let home = std::env::var("QCHAT_HOME").expect("QCHAT_HOME names the folder that the models were pulled into");
    let home = PathBuf::from(home);
    assert!(home.join(FILE).is_file(), "run scripts/test, which pulls {MODEL}");
    home
}

fn qchat() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qchat"));
    command.env("QCHAT_HOME", home()).env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Command {
    let mut command = qchat();
    command.arg("run").arg(MODEL).args(args);
    command
}

#[test]
fn a_piped_question_gets_only_its_answer() {
    let output = with_stdin(run(&["--temp", "0"]), b"What is 2+2?\n");
    assert!(output.status.success(), "{}", stderr(&output));
    let answer = stdout(&output);
    assert!(answer.contains('4') && answer.ends_with('\n') && !answer.contains('\x1b'), "{answer:?}");
    assert_eq!(answer.trim_end().lines().count(), 1, "{answer:?}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn prompts_have_the_ids_of_the_models_own_tokenizer() {
    #[derive(serde::Deserialize)]
    struct Case {
        model: String,
        conversations: Vec<Talk>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/real_ids.json")).unwrap();
    // The second model of the file is for machines that have pulled it (scripts/bench does).
    let files = [
        (MODEL, FILE),
        ("qwen2.5-coder-0.5b", "data/models/qwen2.5-coder-0.5b/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ];
    for (model, file) in files.into_iter().filter(|(_, file)| home().join(file).is_file()) {
        let limits = Limits { n_ctx: None, first: 0, threads: 1 };
        let speaker = Speaker::new(load(&home().join(file)), None, limits, Interrupt::default()).unwrap();
        let case = cases.iter().find(|case| case.model == model).unwrap();
        assert!(case.conversations.len() > 8);
        for talk in case.conversations.iter().filter(|talk| talk.enable_thinking.is_none()) {
            assert_eq!(talk.ids_of(&speaker), talk.ids, "{model}: {}", talk.name);
        }
    }
}

#[test]
fn greedy_text_is_that_of_a_bare_loop() {
    // The reference is scripts/bench/bare.rs: the binding alone, one batch for the prompt, then one token at a time.
    let cases: serde_json::Value = serde_json::from_str(include_str!("data/real_ids.json")).unwrap();
    let talk = &cases[0]["conversations"][0];
    assert_eq!(talk["messages"][0]["content"], "Hello, who are you?");
    let ids: Vec<i32> = serde_json::from_value(talk["ids"].clone()).unwrap();
    let bare = PathBuf::from(env!("CARGO_BIN_EXE_qchat")).parent().unwrap().join("examples/bare");
    let path = home().join(FILE);
    let mut reference = Command::new(&bare);
    reference.arg(&path).args(["2", "1024", "39", "plain"]).args(ids.iter().map(ToString::to_string));
    let reference = reference.output().unwrap_or_else(|error| panic!("{}: {error}; build the example", bare.display()));
    let reference: serde_json::Value = serde_json::from_str(stdout(&reference).lines().last().unwrap()).unwrap();
    let tokens: Vec<i32> = serde_json::from_value(reference["tokens"].clone()).unwrap();

    let model = load(&path);
    let vocab = model.vocab();
    let mut bytes = Vec::new();
    for token in tokens.into_iter().map(Token).take_while(|token| !vocab.is_end(*token)) {
        vocab.piece(token, &mut bytes);
    }
    let asked = [
        "--temp",
        "0",
        "--max-tokens",
        "40",
        "--threads",
        "2",
        "--draft",
        "off",
        "--output",
        "json",
        "Hello, who are you?",
    ];
    let answer: serde_json::Value = serde_json::from_slice(&run(&asked).output().unwrap().stdout).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], ids.len());
    assert_eq!(answer["content"], String::from_utf8(bytes).unwrap());
}

fn load(path: &Path) -> Arc<dyn Model> {
    qchat::engine::open(path, &LoadSettings { gpu_layers: Some(0), repack: true }, &mut |_| true).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_text() {
    // Without drafts: steps of several rows round differently, and a near-tie may fall the other way.
    let text = |seed: &str| {
        let asked = ["--temp", "0.9", "--seed", seed, "--max-tokens", "30", "--draft", "off", "Tell me something."];
        stdout(&run(&asked).output().unwrap())
    };
    let first = text("1");
    assert_eq!(first, text("1"));
    assert_ne!(first, text("2"));
    assert!(!first.trim().is_empty());
}

struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }
}

/// Always seven tokens of the n-gram drafter.
struct Seven;

impl Policy for Seven {
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        offers[0].as_ref().map(|_| Plan { drafter: 0, most: most.min(7) })
    }
}

#[test]
fn drafts_change_nothing_but_near_ties() {
    let model = load(&home().join(FILE));
    let limits = Limits { n_ctx: None, first: 1024, threads: 2 };
    let mut speaker = Speaker::new(Arc::clone(&model), None, limits, Interrupt::default()).unwrap();
    for question in
        ["Repeat this list: apples, pears, plums, apples, pears, plums.", "Count from 1 to 30.", "Who are you?"]
    {
        let mut talk = Conversation::new(None);
        talk.push(Message::new(Role::User, question));
        let prompt = speaker.prompt(&talk).unwrap().0;
        let settings = TurnSettings {
            sampling: Sampling::greedy(),
            stops: Vec::new(),
            max_tokens: Some(60),
            reasoning: Reasoning::Off,
            ..TurnSettings::default()
        };
        speaker.session_mut().speculate(None);
        let plain = speaker.answer(prompt.clone(), settings.clone(), &mut Silent).unwrap();
        speaker.session_mut().speculate(Some(Speculator::new(vec![Box::new(Ngram::default())], Box::new(Seven))));
        let drafted = speaker.answer(prompt.clone(), settings, &mut Silent).unwrap();
        same_but_for_near_ties(&model, &prompt, &plain.tokens, &drafted.tokens);
        if question.starts_with("Repeat") {
            assert!(drafted.speculation.unwrap().accepted > 5);
        }
    }
}

#[test]
fn ctrl_c_stops_a_long_prefill_at_once() {
    let document = "The quick brown fox jumps over the lazy dog. ".repeat(600);
    let mut child =
        run(&["-v", "Summarise."]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, document.as_bytes()).unwrap();
    drop(stdin);
    // -v says how many tokens the prompt has just before it is read.
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    let mut byte = [0];
    while !said.contains("prompt tokens") {
        assert_eq!(errors.read(&mut byte).unwrap(), 1, "{said}");
        said.push(char::from(byte[0]));
    }
    std::thread::sleep(Duration::from_millis(300));
    let stopped = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stdout, b"");
    assert!(stopped.elapsed() < Duration::from_secs(2), "{:?}", stopped.elapsed());
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_the_numbers() {
    let output = with_stdin(run(&[]), "word ".repeat(10_000).as_bytes());
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("the context holds 8192"), "{}", stderr(&output));
}

#[test]
fn other_scripts_come_out_whole() {
    let output =
        run(&["--raw", "--temp", "0", "--max-tokens", "24", "--no-stdin", "你好，世界！你好，"]).output().unwrap();
    let answer = stdout(&output);
    assert!(!answer.is_empty() && !answer.contains('\u{fffd}'), "{answer:?}");
}

#[test]
fn a_model_of_another_family_is_no_draft() {
    let resolver = Resolver::new(Paths::under(&home())).unwrap();
    let here = |name: &str| resolver.here(&resolver.target(name).unwrap()).unwrap();
    // For machines that have pulled it (scripts/bench does).
    let Some(qwen) = here("qwen2.5-coder-0.5b") else { return };
    let error = resolver.draft_for(&qwen, &DraftWish::Named(MODEL.into())).unwrap_err().to_string();
    let line = "smollm2-135m cannot draft for qwen2.5-coder-0.5b: token 0 is '!' in the target and '<|endoftext|>' in the draft";
    assert!(error.starts_with(line), "{error}");
    assert_ne!(resolver.draft_for(&qwen, &DraftWish::Auto).unwrap().map(|draft| draft.name).as_deref(), Some(MODEL));
    if let Some(larger) = here("qwen2.5-coder-1.5b") {
        let draft = resolver.draft_for(&larger, &DraftWish::Auto).unwrap().unwrap();
        assert_eq!(draft.name, "qwen2.5-coder-0.5b");
    }
}

/// Two answers to a prompt are one, or part where both tokens are about as likely.
fn same_but_for_near_ties(model: &Arc<dyn Model>, prompt: &[Token], one: &[Token], other: &[Token]) {
    let at = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (Some(a), Some(b)) = (one.get(at), other.get(at)) else {
        assert_eq!(one.len(), other.len());
        return;
    };
    let text: Vec<Token> = prompt.iter().chain(&one[..at]).copied().collect();
    let n_ctx = text.len().next_multiple_of(256);
    let settings = ContextSettings { n_ctx, sequences: 1, threads: 2, cancel: Arc::default() };
    let mut context = Arc::clone(model).context(&settings).unwrap();
    let row = |(pos, token): (usize, &Token)| Row { seq: 0, token: *token, pos, want_logits: pos + 1 == text.len() };
    let rows: Vec<Row> = text.iter().enumerate().map(row).collect();
    let most = context.capabilities().max_rows;
    rows.chunks(most).for_each(|rows| context.eval(rows).unwrap());
    let logits = context.logits((text.len() - 1) % most);
    // 0.4 was seen between rows of batches and single ones (activations are quantised again).
    let gap = (logits[a.index()] - logits[b.index()]).abs();
    assert!(gap < 0.5, "they part at {at}, and the logits by {gap}");
}

#[test]
fn a_talk_of_8_000_tokens_fills_the_context_and_goes_on() {
    let model = load(&home().join(FILE));
    let text = include_str!("../README.md");
    let limits = Limits { n_ctx: None, first: 4096, threads: 2 };
    let mut own = Speaker::new(Arc::clone(&model), None, limits, Interrupt::default()).unwrap();
    let mut talk = Conversation::new(None);
    let (mut sizes, mut longest) = (Vec::new(), 0);
    for number in 0.. {
        let part: String = text.chars().cycle().skip(number * 2400).take(2400).collect();
        talk.push(Message::new(Role::User, format!("What is this about?\n\n{part}")));
        let fitted = own.fit(&mut talk).unwrap();
        let answer = own.answer(fitted.prompt.clone(), greedy(24), &mut Silent).unwrap();
        sizes.push(own.session().n_ctx());
        if fitted.dropped > 0 {
            assert!(fitted.prompt.len() <= 8192 * 2 / 3, "{}", fitted.prompt.len());
            assert!(answer.cached_tokens < 200 && !answer.content.trim().is_empty(), "{answer:?}");
            break;
        }
        longest = fitted.prompt.len() + answer.tokens.len();
        // What was read before is not read again, also where the context grew.
        assert!(fitted.prompt.len() - answer.cached_tokens < 2000, "{longest}: {}", answer.cached_tokens);
        talk.push(Message::new(Role::Assistant, answer.content));
    }
    sizes.dedup();
    assert_eq!(sizes, [4096, 8192]);
    assert!(longest > 7000, "{longest}");
}

/// A session's part of a store in `folder`, as a new process has it. What was measured is forgotten, since how fast a
/// test's machine is must not decide what is loaded.
fn cached(folder: &Path) -> Cached {
    let root = folder.join("kv");
    let store = Store::new(root.clone(), Bounds::default());
    for state in Inventory::of(&root).about.keys() {
        store.keep_about(*state, &About::default());
    }
    let content = Content::default();
    content.set("test".into()).unwrap();
    Cached::new(Arc::new(store), "test".into(), content)
}

fn greedy(max_tokens: usize) -> TurnSettings {
    TurnSettings {
        sampling: Sampling::greedy(),
        stops: Vec::new(),
        max_tokens: Some(max_tokens),
        reasoning: Reasoning::Off,
        ..TurnSettings::default()
    }
}

#[test]
fn tokens_that_no_tokenizer_would_write_are_found_again() {
    let model = load(&home().join(FILE));
    let folder = tempfile::tempdir().unwrap();
    let speaker = || {
        let limits = Limits { n_ctx: None, first: 1024, threads: 2 };
        let mut speaker = Speaker::new(Arc::clone(&model), None, limits, Interrupt::default()).unwrap();
        speaker.session_mut().cache(Some(cached(folder.path())), Keep::All);
        speaker
    };
    let mut first = speaker();
    let mut talk = Conversation::new(None);
    talk.push(Message::new(Role::User, "Invent twenty names of places that nobody has heard of."));
    let mut found = 0;
    for seed in 0..20 {
        let sampling = Sampling { temperature: 1.4, seed, ..Sampling::greedy() };
        let prompt = first.prompt(&talk).unwrap().0;
        let said = first.answer(prompt, TurnSettings { sampling, ..greedy(80) }, &mut Silent).unwrap();
        let decoded = first.session().decoded().to_vec();
        let mut later = talk.clone();
        later.push(Message { role: Role::Assistant, content: said.content.clone(), reasoning: None });
        later.push(Message::new(Role::User, "Which one is the nicest?"));
        let prompt = first.prompt(&later).unwrap().0;
        // The tail of what was read must be long enough to be kept, and half a character has no text to go by.
        if prompt.starts_with(&decoded) || said.content.contains('\u{fffd}') || (decoded.len() - 1) % 256 < 16 {
            continue;
        }
        found += 1;
        first.session_mut().save(&said);
        let expected = first.answer(prompt.clone(), greedy(20), &mut Silent).unwrap();
        let mut second = speaker();
        second.session_mut().take_up(decoded.clone());
        let again = second.answer(prompt.clone(), greedy(20), &mut Silent).unwrap();
        // All but the last token, which was never read.
        assert_eq!((again.cached_tokens, again.restored.tokens), (decoded.len() - 1, decoded.len() - 1));
        assert_eq!(again.cached_tokens, expected.cached_tokens);
        assert_eq!(again.tokens, expected.tokens);
        // By its text alone less of it is found.
        let forgotten = speaker().answer(prompt, greedy(1), &mut Silent).unwrap();
        assert!(forgotten.cached_tokens < again.cached_tokens, "{}", forgotten.cached_tokens);
        if found == 3 {
            return;
        }
    }
    panic!("{found} of 20 answers had tokens of their own");
}

#[test]
fn a_sliding_window_restores_what_it_had_read() {
    // For machines that have pulled it: a base model, with a window of 512.
    let path = home().join("data/models/gemma3-270m/gemma-3-270m-q4_k_m.gguf");
    if !path.is_file() {
        #[allow(clippy::print_stderr, reason = "a test says that it was skipped")]
        {
            eprintln!("skipped: gemma3-270m is not there");
        }
        return;
    }
    let model = load(&path);
    assert_eq!(model.save(), Save::Ranges { most: 512 });
    let folder = tempfile::tempdir().unwrap();
    let speaker = |is_cached: bool| {
        let limits = Limits { n_ctx: None, first: 2048, threads: 2 };
        let mut speaker = Speaker::without_template(Arc::clone(&model), limits, Interrupt::default());
        if is_cached {
            speaker.session_mut().cache(Some(cached(folder.path())), Keep::All);
        }
        speaker
    };
    let counted: Vec<String> = (1..240).map(|number| format!("Day {number}: {} miles.", number * 7 % 90)).collect();
    let mut memory = speaker(false);
    let document = memory.plain_prompt(&counted.join("\n"));
    assert!(document.len() > 1500, "{}", document.len());
    let mut writer = speaker(true);
    let said = writer.answer(document.clone(), greedy(4), &mut Silent).unwrap();
    writer.session_mut().save(&said);
    drop(writer);
    memory.answer(document.clone(), greedy(4), &mut Silent).unwrap();
    let question = memory.plain_prompt("\nThe longest day was day")[1..].to_vec();
    // From the longest to the shortest, so that what is in memory was read in the same pieces.
    for shared in [document.len() - 1, 1400, 1030, 1024, 1023, 769, 600, 513, 512, 511, 300, 256, 100] {
        let prompt = [&document[..shared], &question].concat();
        let again = speaker(true).answer(prompt.clone(), greedy(16), &mut Silent).unwrap();
        let expected = memory.answer(prompt.clone(), greedy(16), &mut Silent).unwrap();
        assert!(again.cached_tokens >= shared && again.cached_tokens == expected.cached_tokens, "{shared}");
        assert_eq!(again.restored.tokens, again.cached_tokens);
        assert_eq!(again.tokens, expected.tokens, "{shared} tokens shared");
    }
}
