//! From a name to a model that can speak.

use std::time::{Duration, Instant};

use crate::engine::llama::LoadSettings;
use crate::engine::{self, EngineError};
use crate::error::{Error, Result};
use crate::generate::{Limits, Speaker, TemplateFrom};
use crate::interrupt::Interrupt;
use crate::models::fetch::{Fetcher, Only};
use crate::models::{Entry, Resolver, Target};
use crate::settings::Settings;
use crate::ui::output::Terminal;
use crate::ui::progress::{Downloads, Waiting};

/// Loads models for this run.
pub(super) struct Loader<'a> {
    pub(super) resolver: Resolver<'a>,
    pub(super) settings: &'a Settings,
    pub(super) terminal: Terminal,
    pub(super) interrupt: &'a Interrupt,
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
}

impl Loader<'_> {
    /// Finds (or fetches) and loads a model. `first_context` is the size that its context starts with.
    ///
    /// # Errors
    /// When it cannot be had or used, or Ctrl-C stops it.
    pub(super) fn load(&self, target: &Target, first_context: usize) -> Result<Loaded> {
        let mut progress = Downloads::new(self.terminal);
        let mut fetcher = Fetcher { progress: &mut progress, interrupt: self.interrupt, only: Only::Any };
        let resolved = self.resolver.resolve(target, &mut fetcher)?;
        let waiting = Waiting::new(&self.terminal, &format!("loading {}", resolved.name));
        let began = Instant::now();
        let settings = LoadSettings { gpu_layers: self.settings.gpu_layers };
        let mut go_on = |done: f32| {
            waiting.at(done);
            !self.interrupt.is_set()
        };
        let model = engine::open(&resolved.file, &settings, &mut go_on);
        waiting.clear();
        let model = model.map_err(|error| match error {
            EngineError::Aborted => Error::interrupted(),
            error => Error::model(format!("{} cannot be loaded: {error}", resolved.file.display())),
        })?;
        let limits = Limits { n_ctx: self.settings.n_ctx, first: first_context, threads: self.settings.threads };
        let template = resolved.entry.as_ref().and_then(|entry| entry.template.as_deref());
        let trained = model.trained_context();
        if let Some(asked) = self.settings.n_ctx.filter(|asked| *asked > trained) {
            self.terminal
                .warn(&format!("the model was trained for {trained} tokens: a context of {asked} is cut to that"));
        }
        let speaker = if self.settings.raw {
            Speaker::without_template(model, limits, self.interrupt.clone())
        } else {
            Speaker::new(model, template, limits, self.interrupt.clone())?
        };
        if speaker.template_from() == Some(TemplateFrom::Fallback) {
            self.terminal.warn("the model brings no chat template; ChatML is used");
        }
        let load_time = began.elapsed();
        self.terminal.detail(&format!("loaded {} in {:.0} ms", resolved.file.display(), load_time.as_secs_f64() * 1e3));
        Ok(Loaded { name: resolved.name, entry: resolved.entry, quant: resolved.quant, speaker, load_time })
    }
}

impl Loaded {
    /// The system prompt: typed, else the entry's, else the configured one.
    pub(super) fn system(&self, settings: &Settings) -> Option<String> {
        let own = || self.entry.as_ref()?.system.clone();
        settings.system.clone().or_else(own).or_else(|| settings.config_system.clone())
    }
}
