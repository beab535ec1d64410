//! From a name to a model that can speak.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::Caching;
use super::draft::{Drafting, Preload};
use crate::chat::THINKING;
use crate::cli::{DrafterKind, Visibility};
use crate::commands::{free_memory, not_loaded, tuning};
use crate::engine::llama::LoadSettings;
use crate::engine::{self, Grammar, KvLayout, KvType};
use crate::error::Result;
use crate::generate::{Keep, Limits, Reasoning, Speaker, TemplateFrom, TurnSettings};
use crate::interrupt::Interrupt;
use crate::measure::tune::Task;
use crate::models::fetch::{Fetcher, Only};
use crate::models::{self, DraftWish, Entry, Needs, Resolved, Resolver, Target};
use crate::prefix::Store;
use crate::settings::{Settings, physical_cores};
use crate::ui::output::{Terminal, count};
use crate::ui::progress::{Downloads, Waiting};

/// Memory is planned for a context of at least so many tokens.
const LEAST_PLANNED: usize = 4096;

/// What is expected where nothing is known: bytes of a question in a talk, tokens of an answer, bytes of a token.
const USUAL_QUESTION: usize = 400;
const USUAL_ANSWER: usize = 256;
const BYTES_A_TOKEN: f64 = 4.0;

/// Loads models for this run.
pub(super) struct Loader<'a> {
    pub(super) resolver: Resolver,
    pub(super) settings: &'a Settings,
    pub(super) terminal: Terminal,
    pub(super) interrupt: &'a Interrupt,
    /// The prefix cache; none where it is off.
    pub(super) store: Option<Arc<Store>>,
    /// When the process began.
    pub(super) began: Instant,
}

/// A model in memory.
pub(super) struct Loaded {
    pub(super) name: String,
    pub(super) entry: Option<Entry>,
    pub(super) quant: Option<String>,
    pub(super) speaker: Speaker,
    pub(super) load_time: Duration,
    pub(super) drafting: Drafting,
    pub(super) way: Way,
    pub(super) caching: Option<Caching>,
    /// The files, for another draft.
    pub(super) resolved: Resolved,
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One answer to a prompt of so many bytes: its first token is waited for.
    Once { bytes: usize },
    /// Many answers: a longer load pays.
    Talk,
    /// Many prompts, several at once.
    Many,
}

/// How a model is run.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) load: LoadSettings,
    pub(super) layout: KvLayout,
    pub(super) threads: usize,
}

impl Loader<'_> {
    /// What is shown of thoughts: a pipe gets none unless they are asked for, and without moving the cursor nothing folds.
    pub(super) fn visibility(&self) -> Visibility {
        match self.settings.reasoning {
            Some(Visibility::Fold) | None if self.terminal.draws => Visibility::Fold,
            Some(Visibility::Fold) => Visibility::Show,
            None if self.terminal.stdout => Visibility::Show,
            None => Visibility::Hide,
            Some(asked) => asked,
        }
    }

    /// Finds (or fetches) and loads a model, and who drafts for it. `first_context` is the size that its context starts
    /// with.
    ///
    /// # Errors
    /// When it cannot be had or used, or Ctrl-C stops it; when a draft that was named does not fit.
    pub(super) fn load(
        &self,
        target: &Target,
        first_context: usize,
        purpose: Purpose,
        wish: &DraftWish,
    ) -> Result<Loaded> {
        let mut progress = Downloads::new(self.terminal);
        let mut fetcher = Fetcher { progress: &mut progress, interrupt: self.interrupt, only: Only::Any };
        let resolved = self.resolver.resolve(target, &mut fetcher)?;
        let waiting = Waiting::new(&self.terminal, &format!("loading {}", resolved.name));
        let began = Instant::now();
        let way = self.way(&resolved, purpose, wish);
        let mut go_on = |done: f32| {
            waiting.at(done);
            !self.interrupt.is_set()
        };
        let free = free_memory();
        let cached = self.cached(&resolved);
        // Vocabularies are compared while the target loads.
        let (model, draft) = std::thread::scope(|scope| {
            let draft = scope.spawn(|| match purpose {
                // A draft model would need a context for each turn.
                Purpose::Many => Ok(None),
                Purpose::Once { .. } | Purpose::Talk => self.draft_for(&resolved, wish, first_context, free),
            });
            let model = engine::open(&resolved.file, &way.load, &mut go_on);
            (model, draft.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        drop(waiting);
        let model = model.map_err(|error| not_loaded(&resolved.file, &error))?.with_layout(way.layout);
        let limits = Limits { n_ctx: self.settings.n_ctx, first: first_context, threads: way.threads };
        let has_one = model.chat_template().is_some();
        let template = resolved.entry.as_ref().and_then(|entry| entry.named_template(has_one));
        let trained = model.trained_context();
        if let Some(asked) = self.settings.n_ctx.filter(|asked| *asked > trained) {
            self.terminal
                .warn(&format!("the model was trained for {trained} tokens: a context of {asked} is cut to that"));
        }
        let mut speaker = if self.settings.raw {
            Speaker::without_template(model, limits, self.interrupt.clone())
        } else {
            Speaker::new(model, template.as_deref(), limits, self.interrupt.clone())?
        };
        if speaker.template_from() == Some(TemplateFrom::Fallback) {
            self.terminal.warn("the model brings no chat template; ChatML is used");
        }
        if self.settings.reasoning_budget == Some(0) {
            switch_thinking(&mut speaker, false)?;
        }
        for (name, value) in &self.settings.template_variables {
            speaker.set_variable(name, value.clone())?;
            if !speaker.looks_at(name) {
                self.terminal.warn(&format!("the chat template does not look at '{name}'"));
            }
        }
        if let (Purpose::Many, DraftWish::Named(name)) = (purpose, wish) {
            self.terminal.warn(&format!("{name} does not draft for several answers at once: only n-grams do"));
        }
        let (preload, keep) = match purpose {
            Purpose::Talk => (Preload::Now, Keep::All),
            Purpose::Once { .. } | Purpose::Many => (Preload::Never, Keep::Prompt),
        };
        let (speculator, mut drafting) = self.speculator(&resolved, draft?, wish, &way, preload);
        let (cached, owner) = cached.unzip();
        let session = speaker.session_mut();
        session.speculate(speculator);
        session.cache(cached, keep);
        let caching = owner.and_then(|target| self.caching(target, drafting.owner.take()));
        let load_time = began.elapsed();
        self.terminal.detail(&format!("loaded {} in {:.0} ms", resolved.file.display(), load_time.as_secs_f64() * 1e3));
        let (name, entry, quant) = (resolved.name.clone(), resolved.entry.clone(), resolved.quant.clone());
        Ok(Loaded { name, entry, quant, speaker, load_time, drafting, way, caching, resolved })
    }

    /// How to run a model: what was typed, else what `doctor --tune` found best for what it is to do, else weights
    /// rearranged in a talk (its drafts are worth a longer load), a thread a core, flash attention.
    fn way(&self, model: &Resolved, purpose: Purpose, wish: &DraftWish) -> Way {
        let settings = self.settings;
        let (talk, bytes) = match purpose {
            Purpose::Talk | Purpose::Many => (true, USUAL_QUESTION),
            Purpose::Once { bytes } => (false, bytes),
        };
        let task = Task {
            prompt: bytes as f64 / BYTES_A_TOKEN,
            answer: settings.max_tokens.unwrap_or(USUAL_ANSWER).min(USUAL_ANSWER) as f64,
            drafts: *wish != DraftWish::Off && !settings.drafters.is_empty(),
            talk,
        };
        let tuned = tuning::known(model, settings.gpu_layers, &settings.paths);
        let tuned = tuned.as_ref().map(|tuned| match settings.repack {
            Some(true) => &tuned.repacked,
            Some(false) => &tuned.stored,
            None => tuned.choose(&task),
        });
        let repack = settings.repack.unwrap_or(tuned.map_or(talk, |tuned| tuned.repack));
        let flash = settings.flash_attention.or(tuned.map(|tuned| tuned.flash_attention)).unwrap_or(true);
        let flash = flash || settings.kv != KvType::F16;
        let threads = settings.threads.or(tuned.map(|tuned| tuned.threads)).unwrap_or_else(physical_cores);
        if let Some(tuned) = tuned {
            self.terminal.detail(&format!(
                "tuned: {}, weights {}, flash attention {} ({:.1} t/s in `doctor --tune`)",
                count(threads, "thread"),
                if repack { "rearranged" } else { "as stored" },
                if flash { "on" } else { "off" },
                tuned.speed.decode(),
            ));
        }
        Way {
            load: LoadSettings { gpu_layers: settings.gpu_layers, repack },
            layout: KvLayout { kv: settings.kv, flash_attention: flash },
            threads,
        }
    }

    /// The draft model of a target, where one is wanted, fits, and has room beside it in `free` bytes (of which the target
    /// takes its part).
    ///
    /// # Errors
    /// When one that was named does not fit or is not here.
    pub(super) fn draft_for(
        &self,
        target: &Resolved,
        wish: &DraftWish,
        n_ctx: usize,
        free: Option<u64>,
    ) -> Result<Option<Resolved>> {
        if !self.settings.drafters.contains(&DrafterKind::Model) {
            return Ok(None);
        }
        let Some(draft) = self.resolver.draft_for(target, wish)? else { return Ok(None) };
        let needs = |model| Some(Needs::of(model)?.with_kv(self.settings.kv.bytes()));
        let needs = needs(target).zip(needs(&draft));
        if let (Some((own, its)), Some(free)) = (needs, free)
            && let Err(shortage) = models::room_for_draft(&own, &its, n_ctx.max(LEAST_PLANNED), free)
        {
            self.terminal.warn(&format!("no draft model: {shortage}"));
            return Ok(None);
        }
        self.terminal.detail(&format!("draft model: {}", draft.name));
        Ok(Some(draft))
    }
}

/// Switches thoughts on or off where the template has a switch; false where it has none.
fn switch_thinking(speaker: &mut Speaker, thinks: bool) -> Result<bool> {
    let mut there = false;
    for name in THINKING {
        if speaker.looks_at(name) {
            there = true;
            speaker.set_variable(name, thinks.into())?;
        }
    }
    Ok(there)
}

impl Loaded {
    /// As [`switch_thinking`].
    pub(super) fn switch_thinking(&mut self, thinks: bool) -> Result<bool> {
        switch_thinking(&mut self.speaker, thinks)
    }

    /// The file of a model that was named by it, from wherever it is named again.
    pub(super) fn own_file(&self) -> Option<String> {
        let file = self.entry.is_none().then(|| std::path::absolute(&self.resolved.file).ok()).flatten()?;
        file.into_os_string().into_string().ok()
    }

    /// What an answer is made with where nothing else is asked.
    pub(super) fn turn(&self, settings: &Settings, reasoning: Reasoning, grammar: Option<Grammar>) -> TurnSettings {
        TurnSettings {
            sampling: settings.sampling.for_model(self.entry.as_ref()),
            stops: settings.stops.clone(),
            max_tokens: settings.max_tokens,
            reasoning,
            thoughts: settings.reasoning_budget.map(|tokens| self.speaker.thought_limit(tokens)),
            boundaries: Vec::new(),
            grammar,
            prefill: settings.prefill.clone().unwrap_or_default(),
            logprobs: settings.logprobs,
        }
    }

    /// The system prompt: typed, else the entry's, else the configured one.
    pub(super) fn system(&self, settings: &Settings) -> Option<String> {
        let own = || self.entry.as_ref()?.system.clone();
        settings.system.clone().or_else(own).or_else(|| settings.config_system.clone())
    }
}
