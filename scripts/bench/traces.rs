//! Records what drafters would propose at every position of plain answers, for tests/suite/replay.rs: the policy of drafts is
//! tuned on these, in milliseconds and on any machine's costs.
//!
//! `traces TARGET.gguf DRAFT.gguf PER_KIND TOKENS > traces.jsonl`, greedy.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for one file")]

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use qchat::chat::{Conversation, Message, Role};
use qchat::engine::llama::LoadSettings;
use qchat::engine::{Context, ContextSettings, Model, Row, Token};
use qchat::generate::{Limits, Part, Reasoning, Sink, SinkClosed, Speaker, TurnSettings};
use qchat::interrupt::Interrupt;
use qchat::measure::workload::{Prompt, kinds};
use qchat::sample::{Sampler, Sampling};
use serde_json::json;

/// How far the chains reach.
const CHAIN: usize = 8;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (per_kind, tokens) = (args[3].parse().expect("a number"), args[4].parse().expect("a number"));
    let limits = Limits { n_ctx: None, first: 2048, threads: num_cpus::get() };
    let mut speaker = Speaker::new(open(&args[1]), None, limits, Interrupt::default()).expect("a speaker");
    let draft = open(&args[2]);
    let mut taken: HashMap<String, usize> = HashMap::new();
    for prompt in kinds() {
        let count = taken.entry(prompt.kind.clone()).or_default();
        *count += 1;
        if *count <= per_kind {
            println!("{}", trace(&mut speaker, &draft, &prompt, tokens));
            eprintln!("{}", prompt.id);
        }
    }
}

fn open(path: &str) -> Arc<dyn Model> {
    let settings = LoadSettings { gpu_layers: None, repack: true };
    qchat::engine::open(Path::new(path), &settings, &mut |_| true).expect("a model")
}

struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }
}

fn trace(speaker: &mut Speaker, draft: &Arc<dyn Model>, prompt: &Prompt, tokens: usize) -> serde_json::Value {
    let mut talk = Conversation::new(None);
    talk.push(Message::new(Role::User, prompt.message()));
    let asked = speaker.prompt(&talk).expect("a prompt").0;
    let settings = TurnSettings {
        sampling: Sampling::greedy(),
        stops: Vec::new(),
        max_tokens: Some(tokens),
        reasoning: Reasoning::Off,
        ..TurnSettings::default()
    };
    let plain = speaker.answer(asked.clone(), settings, &mut Silent).expect("an answer");
    let settings = ContextSettings { n_ctx: 2048, sequences: 1, threads: num_cpus::get(), cancel: Arc::default() };
    let mut context = Arc::clone(draft).context(&settings).unwrap();
    let mut text = asked.clone();
    read(context.as_mut(), &text);
    let mut sampler = Sampler::new(Sampling::greedy());
    let mut chains = Vec::new();
    let mut chain: VecDeque<(Token, u32)> = VecDeque::new();
    for (at, token) in plain.tokens.iter().enumerate() {
        text.push(*token);
        // While the draft is right its next chain is the rest of this one.
        if chain.pop_front().is_none_or(|(own, _)| own != *token) {
            chain.clear();
            context.trim(0, text.len() - 1).unwrap();
        }
        // Two tokens behind a wrong one show whether a policy would have gone on.
        let wrong = |chain: &VecDeque<(Token, u32)>| {
            let right = plain.tokens[at + 1..].iter().zip(chain).take_while(|(a, (b, _))| *a == b).count();
            chain.len() - right
        };
        while chain.len() < CHAIN && wrong(&chain) < 3 {
            let pending = chain.back().map_or(*token, |(token, _)| *token);
            read(context.as_mut(), &[pending]);
            let logits = context.logits(0);
            let next = sampler.sample(logits, text.len() + chain.len(), &[]);
            chain.push_back((next, (Sampler::confidence(logits, next) * 1000.0).round() as u32));
        }
        chains.push(chain.clone());
    }
    json!({ "id": prompt.id, "kind": prompt.kind, "prompt": asked, "answer": plain.tokens, "chains": chains })
}

fn read(context: &mut dyn Context, tokens: &[Token]) {
    for chunk in tokens.chunks(512) {
        let from = context.tokens(0).len();
        let row = |(i, token): (usize, &Token)| Row {
            seq: 0,
            token: *token,
            pos: from + i,
            want_logits: i + 1 == chunk.len(),
        };
        context.eval(&chunk.iter().enumerate().map(row).collect::<Vec<_>>()).unwrap();
    }
}
