//! The measurements of scripts/bench/prefix that need the library: each prints JSON lines.
//!
//! ```text
//! prefix texts MODEL DOCUMENT QUESTION...          the prompt for each question as text and ids, one line each
//! prefix whole-save MODEL STATE < TEXT             reads a prompt, saves llama.cpp's whole sequence state
//! prefix whole-load MODEL STATE < TEXT             loads it, cuts it back to what it shares, reads the rest, first token
//! prefix same MODEL STORE DOCUMENT QUESTION...     answers from the store, and in one context without it: equal?
//! prefix saving MODEL STORE LENGTH...              what saving a turn costs behind chats of these lengths
//! prefix lookup STORE                              finding among 10,000 blocks
//! ```

#![allow(clippy::print_stdout, reason = "this is its output")]

use std::ffi::CString;
use std::num::NonZeroU32;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use qchat::chat::{Conversation, Message, Role};
use qchat::engine::llama::LoadSettings;
use qchat::engine::{Model, Token};
use qchat::generate::{
    Answer, Cached, Content, Keep, Limits, Part, Reasoning, Sink, SinkClosed, Speaker, TurnSettings,
};
use qchat::interrupt::Interrupt;
use qchat::prefix::{Bounds, Header, Kind, Name, Store};
use qchat::sample::Sampling;
use serde_json::json;

fn main() {
    let began = Instant::now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args[0].as_str() {
        "texts" => texts(&args[1], &args[2], &args[3..]),
        "whole-save" => whole_save(&args[1], &args[2]),
        "whole-load" => whole_load(began, &args[1], &args[2]),
        "same" => same(&args[1], &args[2], &args[3], &args[4..]),
        "saving" => saving(&args[1], &args[2], &args[3..]),
        "lookup" => lookup(&args[1]),
        other => panic!("{other}?"),
    }
}

fn threads() -> usize {
    std::env::var("QCHAT_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or_else(num_cpus::get_physical)
}

fn open(path: &str) -> Arc<dyn Model> {
    let settings = LoadSettings { gpu_layers: None, repack: false };
    qchat::engine::open(Path::new(path), &settings, &mut |_| true).expect("a model")
}

fn speaker(model: &Arc<dyn Model>, store: Option<&Arc<Store>>, first: usize) -> Speaker {
    let limits = Limits { n_ctx: None, first, threads: threads() };
    let mut speaker = Speaker::new(Arc::clone(model), None, limits, Interrupt::default()).expect("a speaker");
    let content = Content::default();
    let _ = content.set("blake3:bench".into());
    let cached = store.map(|store| Cached::new(Arc::clone(store), "bench".into(), content));
    speaker.session_mut().cache(cached, Keep::All);
    speaker
}

struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }
}

fn answer(speaker: &mut Speaker, prompt: Vec<Token>, tokens: usize) -> Answer {
    let settings = TurnSettings {
        sampling: Sampling::greedy(),
        stops: Vec::new(),
        max_tokens: Some(tokens),
        reasoning: Reasoning::Off,
        ..TurnSettings::default()
    };
    speaker.answer(prompt, settings, &mut Silent).expect("an answer")
}

fn prompt(speaker: &Speaker, document: &str, question: &str) -> Vec<Token> {
    let mut talk = Conversation::new(None);
    let document = std::fs::read_to_string(document).expect("a document");
    talk.push(Message::new(Role::User, format!("{}\n\n{question}", document.trim_end())));
    speaker.prompt(&talk).expect("a prompt").0
}

fn texts(model: &str, document: &str, questions: &[String]) {
    let speaker = speaker(&open(model), None, 256);
    let vocab = speaker.session().model().vocab();
    for question in questions {
        let ids = prompt(&speaker, document, question);
        let mut text = Vec::new();
        for id in &ids {
            match vocab.specials().iter().find(|special| special.token == *id) {
                Some(special) => text.extend(special.text.bytes()),
                None => vocab.piece(*id, &mut text),
            }
        }
        let ids: Vec<i32> = ids.iter().map(|token| token.0).collect();
        println!("{}", json!({ "ids": ids, "text": String::from_utf8_lossy(&text) }));
    }
}

/// llama.cpp alone, with the settings that qchat uses.
struct Bare {
    model: LlamaModel,
    backend: LlamaBackend,
}

impl Bare {
    fn load(path: &str) -> Self {
        let mut backend = LlamaBackend::init().expect("a backend");
        backend.void_logs();
        let path = CString::new(path).expect("a path");
        // SAFETY: as in engine/llama/load.rs: the binding's model is a transparent wrapper of this pointer.
        let model = unsafe {
            let mut params = llama_cpp_sys_2::llama_model_default_params();
            params.use_extra_bufts = false;
            let model = llama_cpp_sys_2::llama_model_load_from_file(path.as_ptr(), params);
            std::mem::transmute::<NonNull<llama_cpp_sys_2::llama_model>, LlamaModel>(
                NonNull::new(model).expect("a model"),
            )
        };
        Self { model, backend }
    }

    /// The prompt on stdin.
    fn ids(&self) -> Vec<i32> {
        let text = std::io::read_to_string(std::io::stdin()).expect("a prompt");
        let tokens = self.model.vocab().tokenize(text.as_bytes(), false, true);
        tokens.iter().map(|token| token.0).collect()
    }

    fn params(tokens: usize) -> LlamaContextParams {
        LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new((tokens + 512).next_multiple_of(256) as u32))
            .with_n_batch(512)
            .with_n_ubatch(512)
            .with_flash_attention_policy(llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED)
            .with_n_threads(threads() as i32)
            .with_n_threads_batch(threads() as i32)
    }
}

fn read(context: &mut llama_cpp_2::context::LlamaContext, ids: &[i32], from: usize) {
    let mut batch = LlamaBatch::new(512, 1);
    for (start, run) in ids.chunks(512).enumerate() {
        batch.clear();
        for (at, id) in run.iter().enumerate() {
            let pos = from + start * 512 + at;
            batch.add(LlamaToken(*id), pos as i32, &[0], pos + 1 == from + ids.len()).expect("room");
        }
        context.decode(&mut batch).expect("prefill");
    }
}

fn whole_save(model: &str, state: &str) {
    let bare = Bare::load(model);
    let ids = bare.ids();
    let mut context = bare.model.new_context(&bare.backend, Bare::params(ids.len())).expect("a context");
    read(&mut context, &ids, 0);
    let tokens: Vec<LlamaToken> = ids.iter().map(|id| LlamaToken(*id)).collect();
    context.state_seq_save_file(state, 0, &tokens).expect("a state");
}

fn whole_load(began: Instant, model: &str, state: &str) {
    let bare = Bare::load(model);
    let ids = bare.ids();
    let mut context = bare.model.new_context(&bare.backend, Bare::params(ids.len())).expect("a context");
    let loaded = ms(began);
    let restoring = Instant::now();
    let (saved, _) = context.state_seq_load_file(state, 0, ids.len() + 512).expect("a state");
    let shared = saved.iter().zip(&ids[..ids.len() - 1]).take_while(|(saved, id)| saved.0 == **id).count();
    context.clear_kv_cache_seq(Some(0), Some(shared as u32), None).expect("a trim");
    let restore = ms(restoring);
    read(&mut context, &ids[shared..], shared);
    let row = (ids.len() - shared - 1) % 512;
    let logits = context.get_logits_ith(row as i32);
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(token, _)| token);
    println!(
        "{}",
        json!({ "ttft_ms": ms(began), "load_ms": loaded, "restore_ms": restore, "token": best, "tokens": ids.len() })
    );
}

/// The first question fills the store. Each other one is answered by a new context from the store, and by one context
/// that answered the first question and never saw the store: both evaluate the same batches.
fn same(model: &str, store: &str, document: &str, questions: &[String]) {
    let model = open(model);
    let store = Arc::new(Store::new(store.into(), Bounds::default()));
    let mut first = speaker(&model, Some(&store), 256);
    let ask = |speaker: &mut Speaker, question: &str, tokens: usize| {
        let prompt = prompt(speaker, document, question);
        answer(speaker, prompt, tokens)
    };
    let told = ask(&mut first, &questions[0], 1);
    first.session_mut().save(&told);
    store.flush();
    for question in &questions[1..] {
        let mut restored = speaker(&model, Some(&store), 256);
        let from_store = ask(&mut restored, question, 48);
        let mut kept = speaker(&model, None, 256);
        ask(&mut kept, &questions[0], 1);
        let in_memory = ask(&mut kept, question, 48);
        let cold = ask(&mut speaker(&model, None, 256), question, 48);
        let until = |other: &Answer| from_store.tokens.iter().zip(&other.tokens).take_while(|(a, b)| a == b).count();
        println!(
            "{}",
            json!({
                "question": question,
                "cached": from_store.cached_tokens,
                "kept": in_memory.cached_tokens,
                "equal": from_store.tokens == in_memory.tokens,
                "tokens": from_store.tokens.len(),
                "like_one_batch_until": until(&cold),
            })
        );
    }
}

/// A chat of `length` tokens, then turns of 40 new tokens and 48 of answer: what a turn takes, and what saving it takes,
/// on the answer's thread and on the one that writes.
fn saving(model: &str, store: &str, lengths: &[String]) {
    let model = open(model);
    let words = "Item: the committee met to discuss bridge repairs, school budgets and a new bus line. ";
    for length in lengths {
        let length: usize = length.parse().expect("a length");
        let store = Arc::new(Store::new(Path::new(store).join(length.to_string()), Bounds::default()));
        let mut speaker = speaker(&model, Some(&store), 256);
        let mut tokens = speaker.plain_prompt(&words.repeat(length / 12));
        tokens.truncate(length);
        let told = answer(&mut speaker, tokens.clone(), 1);
        let began = Instant::now();
        let saved = speaker.session_mut().save(&told);
        store.flush();
        let first = json!({ "tokens": saved.tokens + told.saved.tokens, "copy_ms": millis(saved.time + told.saved.time), "all_ms": ms(began) });
        let mut turns = Vec::new();
        for turn in 0..7 {
            tokens = speaker.session().decoded().to_vec();
            let more = speaker.plain_prompt(&format!("Number {turn}. {}", words.repeat(3)));
            tokens.extend(&more[..40]);
            let began = Instant::now();
            let told = answer(&mut speaker, tokens.clone(), 48);
            let turn_ms = ms(began);
            let saving = Instant::now();
            let saved = speaker.session_mut().save(&told);
            let copy_ms = ms(saving);
            store.flush();
            turns.push(json!({ "turn_ms": turn_ms, "copy_ms": copy_ms, "all_ms": ms(saving), "tokens": saved.tokens }));
        }
        println!("{}", json!({ "length": length, "first": first, "turns": turns }));
    }
}

/// Ten thousand blocks: 5,000 first ones that begin alike, and 5,000 in chains of fifty.
fn lookup(root: &str) {
    let store = Store::new(root.into(), Bounds { max_size: Some(u64::MAX / 4), ..Bounds::default() });
    let state = Name([7; 32]);
    let run = |seed: usize| -> Vec<Token> {
        let system = (0..20).map(Token);
        system.chain((20..256).map(|i| Token(((seed * 7919 + i * 31) % 50_000) as i32))).collect()
    };
    let put = |parent: Name, first: usize, tokens: &[Token]| {
        let header = Header { state, parent, kind: Kind::Block, first, tokens: tokens.to_vec() };
        store.put(header, vec![0; 64], None);
        Name::block(state, parent, tokens)
    };
    for seed in 0..4_900 {
        put(state, 0, &run(seed));
    }
    let mut last = Vec::new();
    for chain in 0..102 {
        let (mut parent, mut all) = (state, Vec::new());
        for link in 0..50 {
            let tokens = run(100_000 + chain * 50 + link);
            parent = put(parent, all.len(), &tokens);
            all.extend(tokens);
        }
        last = all;
    }
    store.flush();
    let measure = |name: &str, tokens: &[Token], expected: usize| {
        let mut times: Vec<f64> = (0..21)
            .map(|_| {
                let began = Instant::now();
                let hit = store.find(state, 256, tokens);
                assert!(hit.tokens >= expected, "{name}: {} of {expected}", hit.tokens);
                ms(began)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{}", json!({ "what": name, "median_ms": times[10], "max_ms": times[20] }));
    };
    let mut half = run(77);
    half.truncate(150);
    half.extend(run(44_567).into_iter().skip(150));
    measure("a chain of 50 blocks", &last, 12_800);
    measure("half a block among 5,002 that begin alike", &half, 150);
    measure("a system prompt and nothing else", &run(34_567), 16);
    measure("nothing", &vec![Token(9); 2_000], 0);
}

fn ms(since: Instant) -> f64 {
    millis(since.elapsed())
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
