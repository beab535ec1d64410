//! A model: its ceilings, what it does, the memory it takes, and what would help most.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::Doctor;
use crate::chat::{Chats, Role};
use crate::commands::{free_memory, not_loaded, tuning};
use crate::engine::llama::LoadSettings;
use crate::engine::{ContextSettings, EngineError, KvLayout, KvType, Model};
use crate::error::{Error, Result};
use crate::measure::doctor::{Evidence, Talks, ceiling, ceilings, largest_context, verdicts};
use crate::measure::speed::{Speed, measure};
use crate::measure::tune::Tuned;
use crate::measure::{InMemory, load};
use crate::models::fetch::{Fetcher, Only};
use crate::models::{DraftWish, Facts, Needs, Resolved, Target};
use crate::prefix::Inventory;
use crate::ui::output::size;
use crate::ui::progress::{Downloads, Waiting};

/// The context of a measurement.
const CONTEXT: usize = 256;
/// The context for which memory is planned.
const PLANNED: usize = 4096;

/// What was measured of a model.
struct Seen {
    trained: usize,
    load_ms: f64,
    memory: Option<u64>,
    threads: usize,
    flash_attention: bool,
    repack: bool,
    speed: Speed,
    draft: Option<Speed>,
}

impl Doctor<'_> {
    pub(super) fn model(&mut self, target: &Target, bandwidth: Option<f64>) -> Result<()> {
        let mut progress = Downloads::new(self.terminal);
        let mut fetcher = Fetcher { progress: &mut progress, interrupt: &self.interrupt, only: Only::Any };
        let model = self.resolver.resolve(target, &mut fetcher)?;
        let facts = Facts::of(&model)?;
        let draft = self.resolver.draft_for(&model, &DraftWish::from_word(&self.args.draft))?;
        let gpu_layers = self.args.gpu_layers;
        let tuned = if self.args.tune {
            Some(self.tune(&model)?)
        } else {
            tuning::known(&model, gpu_layers, &self.resolver.paths)
        };
        let seen = self.look_at(&model, draft.as_ref(), tuned.as_ref())?;
        let quant = model.quant.as_ref().map_or_else(String::new, |quant| format!(" {quant}"));
        self.sheet.heading(&format!("{}{quant}", model.name));
        let share = self.speeds(&model, facts.as_ref(), &seen, bandwidth);
        self.memory(&model, draft.as_ref(), seen.trained);
        self.tuned(tuned.as_ref());
        let step = draft
            .as_ref()
            .zip(seen.draft.as_ref())
            .map(|(draft, own)| (draft.name.as_str(), own.step_ms / seen.speed.step_ms));
        let others = other_quantisations(&model);
        let bits =
            facts.as_ref().map_or(0.0, |facts| model.bytes as f64 * 8.0 / facts.census.all.elements.max(1) as f64);
        let (talks, spared) = (self.talks(), self.spared());
        let all = verdicts(&Evidence { speed: &seen.speed, share, bits, others: &others, talks, spared, draft: step });
        let sheet = &mut self.sheet;
        sheet.heading("Verdict");
        for (at, verdict) in all.iter().enumerate() {
            sheet.line(&format!("{}. {}", at + 1, verdict.about), &verdict.says);
        }
        if tuned.is_none() {
            let name = &model.name;
            sheet.line(
                "",
                &format!(
                    "threads, flash attention and rearranged weights: not tried; `qchat doctor {name} --tune` does"
                ),
            );
        }
        let draft = step.map(|(name, step)| json!({ "name": name, "step": step, "speed": seen.draft }));
        sheet.put("draft", json!(draft));
        sheet.put("talks", json!(talks));
        sheet.put("verdicts", json!(all));
        Ok(())
    }

    /// Measures a model and its draft as a talk would run them.
    fn look_at(&self, model: &Resolved, draft: Option<&Resolved>, tuned: Option<&Tuned>) -> Result<Seen> {
        let way = tuned.map(|tuned| &tuned.repacked);
        let threads =
            self.args.threads.map(|count| count as usize).or(way.map(|way| way.threads)).unwrap_or(self.threads);
        let layout = KvLayout { kv: KvType::F16, flash_attention: way.is_none_or(|way| way.flash_attention) };
        let load = LoadSettings { gpu_layers: self.args.gpu_layers, repack: way.is_none_or(|way| way.repack) };
        let loaded = self.open(&model.file, &load)?;
        let speed = self.speed(&loaded.model, layout, threads)?;
        let of_draft = |draft: &Resolved| {
            let own = self.open(&draft.file, &load)?;
            self.speed(&own.model, layout, threads)
        };
        let draft = draft.map(of_draft).transpose()?;
        let (trained, load_ms, memory) = (loaded.model.trained_context(), loaded.load_ms, loaded.memory);
        Ok(Seen {
            trained,
            load_ms,
            memory,
            threads,
            flash_attention: layout.flash_attention,
            repack: load.repack,
            speed,
            draft,
        })
    }

    /// Ceilings, and how much of them is reached, which is the answer.
    fn speeds(&mut self, model: &Resolved, facts: Option<&Facts>, seen: &Seen, bandwidth: Option<f64>) -> Option<f64> {
        let kv = Needs::of(model).map_or(0, |needs| needs.kv_per_token);
        let weights = facts.map_or(model.bytes, |facts| facts.read_per_token);
        let speed = &seen.speed;
        let all = bandwidth.map(|rate| ceilings(weights, kv, rate, seen.trained)).unwrap_or_default();
        let share = bandwidth.map(|rate| speed.decode() / ceiling(weights, kv, rate, speed.depth).rate);
        let sheet = &mut self.sheet;
        sheet.line(
            "reads a token",
            &format!("{} of weights, and {:.1} KiB of KV for each token before it", size(weights), kv as f64 / 1024.0),
        );
        let words: Vec<String> = all.iter().map(|own| format!("{:.1} t/s at {}", own.rate, own.depth)).collect();
        if !words.is_empty() {
            sheet.line("ceiling", &format!("{} tokens", words.join(", ")));
        }
        let of_it = share.map_or_else(String::new, |share| format!(", {:.0} % of the ceiling there", share * 100.0));
        sheet.line("decode", &format!("{:.1} t/s at {} tokens{of_it}", speed.decode(), speed.depth));
        sheet.line("prefill", &format!("{:.0} t/s", speed.prefill));
        let costs: Vec<String> = speed.rows.iter().map(|(rows, cost)| format!("{rows} rows {cost:.2}")).collect();
        if !costs.is_empty() {
            sheet.line("a step of", &format!("{} (in single steps)", costs.join(", ")));
        }
        let stored = if seen.repack { "rearranged" } else { "as stored" };
        sheet.line("load", &format!("{:.0} ms, weights {stored}", seen.load_ms));
        sheet.put(
            "model",
            json!({
                "name": model.name, "quantisation": model.quant, "bytes": model.bytes, "bytes_read_per_token": weights,
                "kv_bytes_per_token": kv, "ceilings": all, "threads": seen.threads, "repack": seen.repack,
                "flash_attention": seen.flash_attention, "load_ms": seen.load_ms, "memory_bytes": seen.memory,
                "speed": speed, "decode_tokens_per_second": speed.decode(), "share_of_ceiling": share,
            }),
        );
        share
    }

    pub(super) fn open(&self, file: &Path, settings: &LoadSettings) -> Result<InMemory> {
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let waiting = Waiting::new(&self.terminal, &format!("loading {name}"));
        let loaded = load(file, settings, &mut |done| {
            waiting.at(done);
            !self.interrupt.is_set()
        });
        loaded.map_err(|error| not_loaded(file, &error))
    }

    pub(super) fn speed(&self, model: &Arc<dyn Model>, layout: KvLayout, threads: usize) -> Result<Speed> {
        let settings = ContextSettings { n_ctx: CONTEXT, sequences: 1, threads, cancel: self.interrupt.flag() };
        let own = Arc::clone(model).with_layout(layout);
        let vocabulary = own.vocab().len();
        let context = own.context(&settings);
        let speed = context.and_then(|mut context| measure(context.as_mut(), vocabulary));
        speed.map_err(|error| match error {
            EngineError::Aborted => Error::interrupted(),
            EngineError::OutOfMemory { .. } => {
                Error::failed(error).hint("take a smaller model, or fewer --gpu-layers where it is the GPU's memory")
            }
            error => Error::failed(error),
        })
    }

    fn memory(&mut self, model: &Resolved, draft: Option<&Resolved>, trained: usize) {
        let Some(needs) = Needs::of(model) else { return };
        let draft_needs = draft.and_then(Needs::of);
        let planned = PLANNED.min(trained);
        let draft_bytes = draft_needs.map_or(0, |own| own.at(planned));
        let mut words = format!(
            "{} with {planned} tokens: weights {}, KV {}, buffers {}",
            size(needs.at(planned)),
            size(needs.weights),
            size(needs.kv_per_token * planned as u64),
            size(needs.compute)
        );
        if let Some(draft) = draft {
            let _ = write!(words, "; its draft {} takes {}", draft.name, size(draft_bytes));
        }
        self.sheet.line("memory", &words);
        let free = free_memory();
        if let Some(free) = free {
            let with = |tokens: usize| needs.at(tokens) + draft_needs.map_or(0, |own| own.at(tokens));
            let fits = largest_context(with, free, trained);
            let words = match fits {
                0 => format!("none: {} are free", size(free)),
                fits if fits == trained => {
                    format!("{fits} tokens, all that it was trained for, fit into the {} that are free", size(free))
                }
                fits => format!("{fits} tokens fit into the {} that are free", size(free)),
            };
            self.sheet.line("context", &words);
            self.sheet.put("largest_context", json!(fits));
        }
        self.sheet.put("memory", json!({
            "planned_context": planned, "bytes": needs.at(planned), "weights": needs.weights, "kv": needs.kv_per_token * planned as u64,
            "buffers": needs.compute, "draft_bytes": draft.map(|_| draft_bytes), "free_bytes": free, "model": model.name,
        }));
    }

    fn talks(&self) -> Talks {
        let chats = Chats::new(self.resolver.paths.chats());
        let mut talks = Talks::default();
        for past in chats.list().iter().filter_map(|listed| chats.read(&listed.name).ok()) {
            let messages = past.conversation.messages().iter();
            talks.add(messages.map(|message| (message.role != Role::Assistant, message.content.len())));
        }
        talks
    }

    /// Seconds that the prefix cache has saved, in how many answers.
    fn spared(&self) -> (f64, u64) {
        let inventory = Inventory::of(&self.resolver.paths.prefixes());
        let all = inventory.about.values().map(|about| about.spared);
        all.fold((0.0, 0), |(seconds, times), own| (seconds + own.seconds, times + own.times))
    }
}

/// Entries of the registry with the same model in another quantisation, and their bytes beside this one's.
fn other_quantisations(model: &Resolved) -> Vec<(String, f64)> {
    let Some(own) = &model.entry else { return Vec::new() };
    let mut others = Vec::new();
    for source in own.sources.iter().filter(|source| source.quant.is_some() && source.quant != model.quant) {
        if let (1.., Some(quant)) = (source.bytes(), &source.quant) {
            others.push((format!("{} {quant}", own.name), source.bytes() as f64 / model.bytes.max(1) as f64));
        }
    }
    others
}
