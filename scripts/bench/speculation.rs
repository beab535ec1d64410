//! The runs of scripts/bench/speculation: settings interleaved prompt by prompt, one JSON object a run on stdout.
//!
//! Target and draft are loaded once. Each setting begins with a draft that has read nothing, so reading the prompt with the
//! draft counts; the target's prompt is read once a prompt. With `--traces FILE` it writes what each drafter would have
//! proposed at every position of the plain answers instead (see tests/suite/replay.rs).

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for one script")]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qchat::chat::{Conversation, Message, Role};
use qchat::engine::llama::LoadSettings;
use qchat::engine::{Context, ContextSettings, EngineError, Model, Row, Token};
use qchat::generate::draft::{
    Adaptive, At, Costs, Drafter, MOST_DRAFTED, ModelDrafter, Ngram, Offer, Plan, Policy, Proposed, Source, Speculator,
    Step,
};
use qchat::generate::{Answer, Limits, Part, Sink, SinkClosed, Speaker, TurnSettings};
use qchat::interrupt::Interrupt;
use qchat::sample::{Sampler, Sampling};
use serde_json::{Value, json};

/// What is averaged where a setting ran twice.
const TIMES: [&str; 7] = ["decode_ms", "draft_ms", "draft_read_ms", "verify_ms", "policy_ms", "sample_ms", "ttft_ms"];
/// How far the chains of a trace reach.
const CHAIN: usize = 8;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let flag = |name: &str| args.iter().position(|arg| arg == name).map(|at| args[at + 1].clone());
    let number = |name: &str, default: usize| flag(name).map_or(default, |text| text.parse().expect("a number"));
    let (target, draft) = (flag("--target").expect("--target"), flag("--draft").expect("--draft"));
    let bytes = |path: &str| std::fs::metadata(path).unwrap().len() as f64;
    let size = bytes(&draft) / bytes(&target);
    let temperature = flag("--temp").map_or(0.0, |text| text.parse().expect("a number"));
    let mut bench = Bench {
        speaker: speaker(&target, number("--threads", 2)),
        draft: open(&draft),
        threads: number("--threads", 2),
        sampling: Sampling { temperature, top_k: 40, top_p: 0.95, min_p: 0.05, ..Sampling::greedy() },
        tokens: number("--tokens", 64),
        costs: Costs::expected(size),
        check: None,
    };
    let text = std::fs::read_to_string(flag("--prompts").expect("--prompts")).unwrap();
    let prompts: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let per_kind = number("--per-kind", 3);
    let mut taken = std::collections::HashMap::new();
    let prompts = prompts.into_iter().filter(|prompt| {
        let count: &mut usize = taken.entry(prompt["kind"].to_string()).or_default();
        *count += 1;
        *count <= per_kind
    });
    let settings = flag("--settings").unwrap_or_else(|| "plain,policy".into());
    let settings: Vec<&str> = settings.split(',').filter(|name| *name != "plain").collect();
    bench.calibrate();
    let mut traces = flag("--traces").map(|path| std::fs::File::create(path).unwrap());
    for (number, prompt) in prompts.enumerate() {
        match &mut traces {
            Some(file) => bench.trace(&prompt, file),
            None => bench.compare(&prompt, &settings, number),
        }
    }
    eprintln!("{}", serde_json::to_string(&bench.costs.calibration()).unwrap());
}

fn open(path: &str) -> Arc<dyn Model> {
    qchat::engine::open(Path::new(path), &LoadSettings { gpu_layers: None, repack: true }, &mut |_| true)
        .expect("a model")
}

fn speaker(path: &str, threads: usize) -> Speaker {
    let limits = Limits { n_ctx: None, first: 2048, threads };
    Speaker::new(open(path), None, limits, Interrupt::default()).expect("a speaker")
}

struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }
}

struct Bench {
    speaker: Speaker,
    draft: Arc<dyn Model>,
    threads: usize,
    sampling: Sampling,
    tokens: usize,
    costs: Costs,
    /// A second context of the target, for the logits where answers part.
    check: Option<Box<dyn Context>>,
}

impl Bench {
    fn calibrate(&mut self) {
        self.set("policy");
        let prompt = self.speaker.plain_prompt("The quick brown fox jumps over the lazy dog.");
        self.answer(prompt, 8);
        for _ in 0..2 {
            self.speaker.session_mut().calibrate(Duration::from_secs(60)).unwrap();
        }
        self.keep_costs();
    }

    fn keep_costs(&mut self) {
        if let Some(costs) = self.speaker.session_mut().speculator().and_then(|own| own.costs().cloned()) {
            self.costs = costs;
        }
    }

    /// A speculator for a setting: `plain`, `policy`, `modelN`, `ngramN`, `both`, `twiceN`.
    fn set(&mut self, setting: &str) {
        let model = |twice| -> Box<dyn Drafter> {
            let draft = Arc::clone(&self.draft);
            let own = ModelDrafter::new(
                Box::new(move || Ok(Arc::clone(&draft))),
                Duration::ZERO,
                self.threads,
                Interrupt::default(),
            );
            Box::new(Bare { own, twice, seen: 0 })
        };
        let ngram = || -> Box<dyn Drafter> { Box::new(Ngram::default()) };
        let digits = setting.trim_start_matches(char::is_alphabetic);
        let length = digits.parse::<usize>().unwrap_or(3);
        let fixed = |lengths: Vec<usize>| -> Box<dyn Policy> { Box::new(Fixed { lengths }) };
        let speculator = match setting.trim_end_matches(char::is_numeric) {
            "plain" => Speculator::new(Vec::new(), fixed(Vec::new())),
            "model" => Speculator::new(vec![model(false)], fixed(vec![length])),
            "twice" => Speculator::new(vec![model(true)], fixed(vec![length])),
            "ngram" => Speculator::new(vec![ngram()], fixed(vec![length])),
            "both" => Speculator::new(vec![ngram(), model(false)], fixed(vec![7, 3])),
            "policy" => {
                let adaptive = Adaptive::new(vec![Source::Ngram, Source::Model], self.costs.clone(), MOST_DRAFTED);
                Speculator::new(vec![ngram(), model(false)], Box::new(adaptive))
            }
            other => panic!("there is no setting '{other}'"),
        };
        self.speaker.session_mut().speculate(Some(speculator));
    }

    fn answer(&mut self, prompt: Vec<Token>, tokens: usize) -> (Answer, Duration) {
        let settings = TurnSettings {
            sampling: self.sampling.clone(),
            stops: Vec::new(),
            max_tokens: Some(tokens),
            reasoning: qchat::generate::Reasoning::Off,
            boundaries: Vec::new(),
        };
        let began = Instant::now();
        let answer = self.speaker.answer(prompt, settings, &mut Silent).expect("an answer");
        let ttft = answer.first_token.map_or(Duration::ZERO, |at| at - began);
        (answer, ttft)
    }

    fn prompt(&self, prompt: &Value) -> Vec<Token> {
        let mut talk = Conversation::new(None);
        talk.push(Message::new(Role::User, prompt["prompt"].as_str().unwrap()));
        self.speaker.prompt(&talk).expect("a prompt").0
    }

    fn compare(&mut self, prompt: &Value, settings: &[&str], number: usize) {
        let tokens = self.prompt(prompt);
        self.set("plain");
        let (_, prefill) = self.answer(tokens.clone(), 1);
        // Another order for each prompt; plain and policy at both ends, so that what drifts falls on all alike.
        let mut order: Vec<&str> = settings.iter().copied().filter(|name| *name != "policy").collect();
        let turned = number * 3 % order.len().max(1);
        order.rotate_left(turned);
        let policy = settings.contains(&"policy").then_some("policy");
        let order = policy.into_iter().chain(order).chain(policy);
        let mut rows: Vec<Value> = Vec::new();
        let mut plain: Option<Answer> = None;
        for setting in std::iter::once("plain").chain(order).chain(["plain"]) {
            self.set(setting);
            let (answer, ttft) = self.answer(tokens.clone(), self.tokens);
            let diverged = match &plain {
                Some(plain) => self.diverged(&tokens, plain, &answer),
                None => Value::Null,
            };
            if setting == "policy" {
                self.keep_costs();
            }
            let new = row(prompt, setting, &answer, [ttft, prefill], &diverged);
            plain.get_or_insert(answer);
            match rows.iter_mut().find(|row| row["setting"] == setting) {
                Some(row) => {
                    for key in TIMES {
                        row[key] = json!(f64::midpoint(row[key].as_f64().unwrap(), new[key].as_f64().unwrap()));
                    }
                }
                None => rows.push(new),
            }
        }
        for row in rows {
            println!("{row}");
        }
    }

    /// Where an answer parts from the plain one, and how near the two tokens were there.
    fn diverged(&mut self, prompt: &[Token], plain: &Answer, other: &Answer) -> Value {
        let pairs = plain.tokens.iter().zip(&other.tokens);
        let at = pairs.take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (plain.tokens.get(at), other.tokens.get(at)) else {
            return if plain.tokens.len() == other.tokens.len() {
                Value::Null
            } else {
                json!({ "at": at, "gap": null })
            };
        };
        let mut text = prompt.to_vec();
        text.extend(&plain.tokens[..at]);
        let logits = self.logits_behind(&text);
        let gap = (logits[a.index()] - logits[b.index()]).abs();
        json!({ "at": at, "plain": a, "other": b, "gap": gap })
    }

    fn logits_behind(&mut self, text: &[Token]) -> Vec<f32> {
        let model = Arc::clone(self.speaker.session().model());
        let threads = self.threads;
        let context = self.check.get_or_insert_with(|| context(&model, threads));
        let shared = context.tokens(0).iter().zip(&text[..text.len() - 1]).take_while(|(a, b)| a == b).count();
        context.trim(0, shared).unwrap();
        read(context.as_mut(), &text[shared..]);
        context.logits((text.len() - shared - 1) % 512).to_vec()
    }

    /// What drafters would propose at every position of the plain answer.
    fn trace(&mut self, prompt: &Value, file: &mut std::fs::File) {
        let tokens = self.prompt(prompt);
        self.set("plain");
        let (plain, _) = self.answer(tokens.clone(), self.tokens);
        let mut text = tokens.clone();
        let mut context = context(&self.draft, self.threads);
        read(context.as_mut(), &text);
        let mut sampler = Sampler::new(self.sampling.clone());
        let mut chains = Vec::new();
        let mut chain: std::collections::VecDeque<(Token, u32)> = std::collections::VecDeque::new();
        for (at, token) in plain.tokens.iter().enumerate() {
            text.push(*token);
            // While the draft is right its next chain is the rest of this one.
            if chain.pop_front().is_none_or(|(own, _)| own != *token) {
                chain.clear();
                context.trim(0, text.len() - 1).unwrap();
            }
            // Two tokens behind a wrong one show whether a policy would have gone on.
            let wrong = |chain: &std::collections::VecDeque<(Token, u32)>| {
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
        let trace = json!({
            "id": prompt["id"], "kind": prompt["kind"], "prompt": tokens, "answer": plain.tokens, "chains": chains,
        });
        writeln!(file, "{trace}").unwrap();
        eprintln!("{}", prompt["id"]);
    }
}

fn row(prompt: &Value, setting: &str, answer: &Answer, [ttft, prefill]: [Duration; 2], diverged: &Value) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let own = answer.speculation.clone().unwrap_or_default();
    json!({
        "id": prompt["id"], "kind": prompt["kind"], "setting": setting,
        "prompt_tokens": answer.prompt_tokens, "tokens": answer.tokens.len(), "ids": answer.tokens,
        "prefill_ms": ms(prefill), "ttft_ms": ms(ttft), "decode_ms": ms(answer.timings.decode),
        "draft_ms": ms(own.draft), "draft_read_ms": ms(own.draft_read), "verify_ms": ms(own.verify),
        "policy_ms": ms(own.policy), "sample_ms": ms(answer.timings.sampling),
        "rounds": own.rounds, "plain_rounds": own.plain_rounds,
        "proposed": own.proposed, "accepted": own.accepted, "off": own.switched_off,
        "lengths": own.lengths, "by_drafter": own.by_drafter, "estimated_gain": own.estimated_gain(),
        "diverged": diverged,
    })
}

fn context(model: &Arc<dyn Model>, threads: usize) -> Box<dyn Context> {
    let settings = ContextSettings { n_ctx: 2048, sequences: 1, threads, cancel: Arc::default() };
    Arc::clone(model).context(&settings).unwrap()
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

/// The first drafter with an offer drafts, as many tokens as its number says.
struct Fixed {
    lengths: Vec<usize>,
}

impl Policy for Fixed {
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        let drafter = offers.iter().position(Option::is_some)?;
        Some(Plan { drafter, most: self.lengths[drafter].min(most) })
    }
}

/// The model drafter; with `twice` it evaluates accepted tokens again, as llama.cpp's example does.
struct Bare {
    own: ModelDrafter,
    twice: bool,
    /// How much of the text was there when it drafted last.
    seen: usize,
}

impl Drafter for Bare {
    fn source(&self) -> Source {
        Source::Model
    }

    fn begin(&mut self, sampling: &Sampling, n_ctx: usize) {
        self.own.begin(sampling, n_ctx);
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        if self.twice {
            self.own.forget(self.seen).ok()?;
        }
        self.own.offer(at, most)
    }

    fn draft(
        &mut self,
        at: &At,
        most: usize,
        go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        into: &mut Vec<Proposed>,
        steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        self.seen = at.tokens.len();
        self.own.draft(at, most, go_on, into, steps)
    }
}
