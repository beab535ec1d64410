//! Threads, flash attention, weights rearranged or not: tried with a model, the best kept for `run`.

use serde_json::json;

use super::Doctor;
use crate::commands::tuning;
use crate::engine::llama::LoadSettings;
use crate::engine::{KvLayout, KvType};
use crate::error::{Error, Result};
use crate::measure::distinct;
use crate::measure::tune::{Trial, Tuned, best};
use crate::models::Resolved;

impl Doctor<'_> {
    /// Tries what can be chosen, and keeps the best for `run`.
    pub(super) fn tune(&self, model: &Resolved) -> Result<Tuned> {
        let threads = distinct([self.threads, num_cpus::get(), self.threads.div_ceil(2)]);
        let mut found = Vec::new();
        for repack in [false, true] {
            let loaded = self.open(&model.file, &LoadSettings { gpu_layers: self.args.gpu_layers, repack })?;
            let mut trials = Vec::new();
            let trial = |threads: usize, flash_attention: bool| -> Result<Trial> {
                let layout = KvLayout { kv: KvType::F16, flash_attention };
                let speed = self.speed(&loaded.model, layout, threads)?;
                let trial = Trial { repack, threads, flash_attention, load_ms: loaded.load_ms, speed };
                let (decode, prefill) = (trial.speed.decode(), trial.speed.prefill);
                self.terminal.status(&format!("{}: decode {decode:.1} t/s, prefill {prefill:.0} t/s", trial.words()));
                Ok(trial)
            };
            for count in &threads {
                trials.push(trial(*count, true)?);
            }
            if let Some(count) = best(&trials).map(|own| own.threads) {
                trials.push(trial(count, false)?);
            }
            found.push(best(&trials).cloned());
        }
        let mut found = found.into_iter().flatten();
        let (Some(stored), Some(repacked)) = (found.next(), found.next()) else {
            return Err(Error::failed("nothing could be measured"));
        };
        let tuned = Tuned { stored, repacked };
        if let Err(error) = tuning::keep(model, self.args.gpu_layers, &tuned, &self.resolver.paths) {
            self.terminal.warn(&format!("what was found cannot be kept: {error}"));
        }
        Ok(tuned)
    }

    pub(super) fn tuned(&mut self, tuned: Option<&Tuned>) {
        let Some(tuned) = tuned else { return };
        for trial in [&tuned.stored, &tuned.repacked] {
            let four = trial.speed.cost(4).map_or_else(String::new, |cost| format!(", four rows {cost:.2} steps"));
            let words = format!(
                "{}: load {:.0} ms, prefill {:.0} t/s, decode {:.1} t/s{four}",
                trial.words(),
                trial.load_ms,
                trial.speed.prefill,
                trial.speed.decode(),
            );
            self.sheet.line(if trial.repack { "" } else { "tuned" }, &words);
        }
        self.sheet.put("tuned", json!(tuned));
    }
}
