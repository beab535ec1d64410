//! What many prompts at once gain, what a long prompt costs the turns beside it, and what a grammar costs.
//!
//! `many throughput|latency|grammar MODEL.gguf [PAIRS]`; one run, interleaved, medians of pairs. Greedy, without drafts.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for one file")]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use qchat::chat::{Conversation, Message, Role};
use qchat::engine::llama::LoadSettings;
use qchat::engine::{ContextSettings, Model, Row, Rules, Token};
use qchat::error::Result;
use qchat::generate::{
    Answer, Limits, Next, Part, Reasoning, Request, Requests, Share, Sink, SinkClosed, Speaker, TurnSettings,
    answer_many,
};
use qchat::interrupt::Interrupt;
use serde_json::json;

const TURNS: usize = 8;
const TOKENS: usize = 64;
const QUESTIONS: [&str; 16] = [
    "Explain what a hash map is.",
    "Write a short story about a fox.",
    "How do I boil an egg?",
    "What is the capital of Japan, and why is it famous?",
    "List five uses of a paper clip.",
    "Explain recursion to a child.",
    "Describe the water cycle.",
    "Give me tips for learning Spanish.",
    "What are the pros and cons of remote work?",
    "Write a poem about the sea.",
    "Explain how a bicycle stays upright.",
    "What is a neural network?",
    "How does a fridge work?",
    "Tell me about the Roman empire.",
    "What is inflation?",
    "How do I plant a tree?",
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let settings = LoadSettings { gpu_layers: None, repack: true };
    let model = qchat::engine::open(Path::new(&args[2]), &settings, &mut |_| true).expect("a model");
    let limits = Limits { n_ctx: None, first: 4096, threads: num_cpus::get() };
    let speaker = Speaker::new(Arc::clone(&model), None, limits, Interrupt::default()).expect("a speaker");
    let pairs = args.get(3).map_or(5, |pairs| pairs.parse().expect("a number"));
    match args[1].as_str() {
        "throughput" => throughput(&speaker, &model, pairs),
        "latency" => latency(&speaker, &model, pairs),
        "grammar" => grammar(speaker, &model, pairs),
        other => panic!("{other}: throughput, latency or grammar is needed"),
    }
}

fn settings(max_tokens: usize) -> TurnSettings {
    TurnSettings { max_tokens: Some(max_tokens), reasoning: Reasoning::Watch, ..TurnSettings::default() }
}

fn prompt(speaker: &Speaker, text: &str) -> Vec<Token> {
    let mut talk = Conversation::new(None);
    talk.push(Message::new(Role::User, text));
    speaker.prompt(&talk).expect("a prompt").0
}

/// Requests of a list, and when each turn emitted.
#[derive(Default)]
struct Queue {
    left: VecDeque<(Vec<Token>, usize)>,
    given: usize,
    /// A request that comes once the first turn has emitted so many tokens.
    late: Option<(usize, Vec<Token>)>,
    times: BTreeMap<usize, Vec<Instant>>,
    done: BTreeMap<usize, Answer>,
}

impl Requests for Queue {
    fn next(&mut self, _: bool) -> Next {
        let emitted = self.times.get(&0).map_or(0, Vec::len);
        if let Some((_, prompt)) = self.late.take_if(|(after, _)| emitted >= *after) {
            self.left.push_back((prompt, 8));
        }
        match self.left.pop_front() {
            Some((prompt, tokens)) => {
                self.given += 1;
                let request = Request { prompt, settings: settings(tokens), speculator: None };
                Next::Request(self.given - 1, Box::new(request))
            }
            None if self.late.is_some() => Next::Later,
            None => Next::End,
        }
    }

    fn emitted(&mut self, number: usize, tokens: usize) {
        self.times.entry(number).or_default().extend(std::iter::repeat_n(Instant::now(), tokens));
    }

    fn done(&mut self, number: usize, answer: Result<Answer>) {
        self.done.insert(number, answer.expect("an answer"));
    }
}

fn run(model: &Arc<dyn Model>, turns: usize, tokens: usize, queue: &mut Queue) -> f64 {
    let began = Instant::now();
    let share = Share { turns, tokens, threads: num_cpus::get() };
    answer_many(model, share, &Interrupt::default(), None, queue).expect("answers");
    began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

/// Tokens a second of eight turns at once over those of one after the other; reading the prompts counts.
fn throughput(speaker: &Speaker, model: &Arc<dyn Model>, pairs: usize) {
    let prompts: Vec<Vec<Token>> = QUESTIONS.iter().map(|question| prompt(speaker, question)).collect();
    let queue = || Queue { left: prompts.iter().map(|own| (own.clone(), TOKENS)).collect(), ..Queue::default() };
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let mut rates = [0.0; 2];
        let mut answers: [BTreeMap<usize, Answer>; 2] = Default::default();
        for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let mut queue = queue();
            let time = run(model, [1, TURNS][side], 1024, &mut queue);
            rates[side] = queue.done.values().map(|answer| answer.tokens.len()).sum::<usize>() as f64 / time;
            answers[side] = queue.done;
        }
        println!(
            "one after the other {:.1} t/s, {TURNS} at once {:.1} t/s: {:.2}",
            rates[0],
            rates[1],
            rates[1] / rates[0]
        );
        ratios.push(rates[1] / rates[0]);
        if pair == 0 {
            compare(model, &prompts, &answers);
        }
    }
    println!("median of {pairs}: {:.2}", median(ratios));
}

/// Whether answers are the same, and where they are not, how far apart the two tokens were.
fn compare(model: &Arc<dyn Model>, prompts: &[Vec<Token>], answers: &[BTreeMap<usize, Answer>; 2]) {
    let (mut same, mut gaps) = (0, Vec::new());
    for (number, prompt) in prompts.iter().enumerate() {
        let [one, other] = [0, 1].map(|side| &answers[side][&number].tokens);
        let at = one.iter().zip(other).take_while(|(a, b)| a == b).count();
        let Some((a, b)) = one.get(at).zip(other.get(at)) else {
            same += 1;
            continue;
        };
        let text: Vec<Token> = prompt.iter().chain(&one[..at]).copied().collect();
        let settings = ContextSettings { n_ctx: 2048, sequences: 1, threads: num_cpus::get(), cancel: Arc::default() };
        let mut context = Arc::clone(model).context(&settings).expect("a context");
        for (pos, token) in text.iter().enumerate() {
            context.eval(&[Row { seq: 0, token: *token, pos, want_logits: pos + 1 == text.len() }]).expect("logits");
        }
        let logits = context.logits(0);
        gaps.push(f64::from((logits[a.index()] - logits[b.index()]).abs()));
    }
    let widest = gaps.iter().copied().fold(0.0, f64::max);
    println!(
        "{same} of {} answers are the same; the others part where two logits are {widest:.2} apart at most",
        prompts.len()
    );
}

/// Times between tokens of seven turns while a prompt of 2,000 tokens is read beside them, over their median without it.
fn latency(speaker: &Speaker, model: &Arc<dyn Model>, runs: usize) {
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let long = prompt(speaker, &"The quick brown fox jumps over the lazy dog, and so on. ".repeat(150));
        let long = [&long[..1990], &long[long.len() - 10..]].concat();
        let short = (0..TURNS - 1)
            .map(|number| (prompt(speaker, &format!("Write a long story about the number {number}.")), 150));
        let mut queue = Queue { left: short.collect(), late: Some((30, long)), ..Queue::default() };
        run(model, TURNS, 2304, &mut queue);
        let late = TURNS - 1;
        let began = queue.times[&0][29];
        let ended = queue.times[&late][0];
        let (mut beside, mut alone) = (Vec::new(), Vec::new());
        for number in 0..late {
            for pair in queue.times[&number].windows(2) {
                let gap = (pair[1] - pair[0]).as_secs_f64() * 1e3;
                if pair[0] >= began && pair[1] <= ended {
                    beside.push(gap);
                } else if pair[1] < began {
                    alone.push(gap);
                }
            }
        }
        let (usual, p95, all) = (quantile(&mut alone, 0.5), quantile(&mut beside, 0.95), quantile(&mut beside, 0.5));
        let reading = (ended - began).as_secs_f64();
        println!(
            "usually {usual:.0} ms, beside the prompt median {all:.0} ms and p95 {p95:.0} ms; read in {reading:.1} s: {:.2}",
            p95 / usual
        );
        ratios.push(p95 / usual);
    }
    println!("median of {runs}: {:.2}", median(ratios));
}

struct Silent;

impl Sink for Silent {
    fn write(&mut self, _: Part, _: &str) -> std::result::Result<(), SinkClosed> {
        Ok(())
    }
}

/// Decode rate under a schema of ten fields over that of free text of as many tokens.
fn grammar(mut speaker: Speaker, model: &Arc<dyn Model>, pairs: usize) {
    let names = ["name", "age", "email", "city", "country", "job", "company", "score", "active", "tags"];
    let kind = |name: &str| match name {
        "age" => json!({ "type": "integer", "minimum": 0, "maximum": 120 }),
        "score" => json!({ "type": "number" }),
        "active" => json!({ "type": "boolean" }),
        "tags" => {
            json!({ "type": "array", "items": { "type": "string", "maxLength": 12 }, "minItems": 2, "maxItems": 4 })
        }
        _ => json!({ "type": "string", "maxLength": 40 }),
    };
    let fields: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), kind(name))).collect();
    let rules = Rules::Schema(json!({ "type": "object", "properties": fields, "required": names }));
    let began = Instant::now();
    let own = model.grammar(&rules).expect("a grammar").0;
    println!("compiled in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    let asked = "Invent a person. Answer with a JSON object that has exactly these fields: name, age, email, city, country, \
        job, company, score, active, tags (a list of short texts).";
    let prompt = prompt(&speaker, asked);
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let kept = TurnSettings { grammar: Some(own.clone()), ..settings(400) };
        let first = speaker.answer(prompt.clone(), kept.clone(), &mut Silent).expect("an answer");
        assert!(
            first.is_complete && serde_json::from_str::<serde_json::Value>(&first.content).is_ok(),
            "{}",
            first.content
        );
        let free = settings(first.tokens.len());
        let mut rates = [0.0; 2];
        for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let turn = if side == 0 { free.clone() } else { kept.clone() };
            let answer = speaker.answer(prompt.clone(), turn, &mut Silent).expect("an answer");
            rates[side] = (answer.tokens.len() - 1) as f64 / answer.timings.decode.as_secs_f64();
        }
        println!(
            "free {:.1} t/s, kept {:.1} t/s ({} tokens): {:.3}",
            rates[0],
            rates[1],
            first.tokens.len(),
            rates[1] / rates[0]
        );
        ratios.push(rates[1] / rates[0]);
    }
    println!("median of {pairs}: {:.3}", median(ratios));
}
