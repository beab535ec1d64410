//! The models of a comparison, loaded, and an arm of each with each setting.

use std::sync::Arc;

use super::Bench;
use crate::commands::not_loaded;
use crate::engine::llama::LoadSettings;
use crate::error::{Error, Result};
use crate::measure::{Arm, Axis, Draft, ModelReport, Setting, Shared, load};
use crate::models::DraftWish;
use crate::models::fetch::{Fetcher, Only};
use crate::prefix::Store;
use crate::ui::progress::{Downloads, Waiting};

impl Bench<'_> {
    /// Loads every model that is compared, and makes an arm of each with each setting.
    pub(super) fn arms(
        &self,
        axis: Option<&Axis>,
        base: &Setting,
        store: &Arc<Store>,
    ) -> Result<(Vec<Arm>, Vec<ModelReport>)> {
        let (mut arms, mut reports) = (Vec::new(), Vec::new());
        for name in &self.args.models {
            let mut loaded: Vec<(bool, Shared)> = Vec::new();
            let (first, report) = self.shared(name, base.repack, axis)?;
            let has_draft = first.draft.is_some();
            loaded.push((base.repack, first));
            reports.push(report);
            let settings = match axis {
                Some(axis) => axis.settings(base, has_draft, num_cpus::get(), self.args.full),
                None => vec![Setting { name: loaded[0].1.name.clone(), ..base.clone() }],
            };
            for mut setting in settings {
                if setting.drafting.wants_model() && !has_draft {
                    return Err(Error::usage(format!("{name} has no draft model here for {}", setting.name))
                        .hint("name one with --draft, or `qchat pull` its draft"));
                }
                if self.args.models.len() > 1 && axis.is_some() {
                    setting.name = format!("{} {}", loaded[0].1.name, setting.name);
                }
                if arms.iter().any(|arm: &Arm| arm.setting.name == setting.name) {
                    setting.name = format!("{} ({})", setting.name, arms.len() + 1);
                }
                if !loaded.iter().any(|(repack, _)| *repack == setting.repack) {
                    loaded.push((setting.repack, self.shared(name, setting.repack, axis)?.0));
                }
                let shared = loaded.iter().find(|(repack, _)| *repack == setting.repack).map(|(_, shared)| shared);
                if let Some(shared) = shared {
                    arms.push(Arm::new(shared, setting, store, &self.interrupt)?);
                }
            }
        }
        Ok((arms, reports))
    }

    /// A model in memory, with its draft where drafts are compared.
    fn shared(&self, name: &str, repack: bool, axis: Option<&Axis>) -> Result<(Shared, ModelReport)> {
        let mut progress = Downloads::new(self.terminal);
        let mut fetcher = Fetcher { progress: &mut progress, interrupt: &self.interrupt, only: Only::Any };
        let model = self.resolver.resolve(&self.resolver.target(name)?, &mut fetcher)?;
        let settings = LoadSettings { gpu_layers: self.args.gpu_layers, repack };
        let waiting = Waiting::new(&self.terminal, &format!("loading {}", model.name));
        let open = |file: &std::path::Path| {
            let loaded = load(file, &settings, &mut |done| {
                waiting.at(done);
                !self.interrupt.is_set()
            });
            loaded.map_err(|error| not_loaded(file, &error))
        };
        let loaded = open(&model.file)?;
        let has_one = loaded.model.chat_template().is_some();
        let template = model.entry.as_ref().and_then(|entry| entry.named_template(has_one));
        let wish = DraftWish::from_word(&self.args.draft);
        let draft = match axis {
            Some(Axis::Draft(_)) => self.resolver.draft_for(&model, &wish)?,
            _ => None,
        };
        let draft = draft.map(|draft| -> Result<Draft> {
            let own = open(&draft.file)?;
            let size = draft.bytes as f64 / (model.bytes as f64).max(1.0);
            Ok(Draft { name: draft.name, model: own.model, size, memory: own.memory })
        });
        let draft = draft.transpose()?;
        let system = model.entry.as_ref().and_then(|entry| entry.system.clone());
        let report = ModelReport {
            name: model.name.clone(),
            quantisation: model.quant.clone(),
            bytes: model.bytes,
            load_ms: loaded.load_ms,
            draft: draft.as_ref().map(|draft| draft.name.clone()),
        };
        let memory = loaded.memory;
        Ok((Shared { name: model.name, model: loaded.model, template, system, memory, draft }, report))
    }
}
