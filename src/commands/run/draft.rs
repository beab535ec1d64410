//! Who drafts for a model, and what was measured of the costs: kept per machine, build and pair of models.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cache::Owner;
use super::load::{Loaded, Loader, Way};
use crate::cli::DrafterKind;
use crate::commands::slot::{Here, Slot, identity};
use crate::engine::{self, KvLayout};
use crate::generate::Answer;
use crate::generate::draft::{Adaptive, Costs, DraftLoader, Drafter, Loading, ModelDrafter, Ngram, Speculator};
use crate::models::{DraftWish, Resolved};

/// Bytes a second at which a draft is expected to load.
const LOAD_RATE: f64 = 1e9;
const _: () = assert!(crate::cli::MOST_DRAFTED == crate::generate::draft::MOST_DRAFTED);

/// What is known of one pair's costs, and where that is kept.
pub(super) struct Drafting {
    /// The draft model.
    pub(super) draft: Option<String>,
    /// Whose states the draft's are, until somebody takes care of that.
    pub(super) owner: Option<Arc<Owner>>,
    kept: Option<Slot<Pair>>,
}

/// What a measurement belongs to; another machine, build or pair begins anew.
#[derive(PartialEq, Serialize, Deserialize)]
struct Pair {
    #[serde(flatten)]
    here: Here,
    threads: usize,
    gpu_layers: Option<u32>,
    repack: bool,
    layout: KvLayout,
    target: (String, u64),
    draft: Option<(String, u64)>,
}

/// When the draft model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preload {
    /// When drafting first promises to pay for it.
    Never,
    /// At once, beside whatever else is done: a talk waits for its first message anyway.
    Now,
}

impl Loader<'_> {
    /// Drafters and policy for a target, with `draft` as its model; nothing where drafts are off.
    pub(super) fn speculator(
        &self,
        target: &Resolved,
        draft: Option<Resolved>,
        wish: &DraftWish,
        way: &Way,
        preload: Preload,
    ) -> (Option<Speculator>, Drafting) {
        let settings = self.settings;
        let mut drafting = Drafting { draft: draft.as_ref().map(|draft| draft.name.clone()), owner: None, kept: None };
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        if *wish != DraftWish::Off && settings.drafters.contains(&DrafterKind::Ngram) {
            drafters.push(Box::new(Ngram::default()));
        }
        let size = draft.as_ref().map_or(1.0, |draft| draft.bytes as f64 / (target.bytes as f64).max(1.0));
        let kept = Slot::new(&settings.paths.speculation(), Pair::new(target, draft.as_ref(), way));
        if let Some(draft) = draft {
            let expected = Duration::from_secs_f64(draft.bytes as f64 / LOAD_RATE);
            let (threads, interrupt) = (way.threads, self.interrupt.clone());
            let (cached, owner) = self.cached(&draft).unzip();
            drafting.owner = owner;
            let drafter = match preload {
                Preload::Never => ModelDrafter::new(opens(self, draft, way), expected, threads, interrupt),
                Preload::Now => ModelDrafter::loading(preloads(draft, way), threads, interrupt),
            };
            drafters.push(Box::new(drafter.with_cache(cached)));
        }
        if drafters.is_empty() {
            return (None, drafting);
        }
        let known = kept.read().unwrap_or_default();
        drafting.kept = (!settings.private).then_some(kept);
        let sources = drafters.iter().map(|drafter| drafter.source()).collect();
        let policy = Adaptive::new(sources, Costs::from_calibration(&known, size), settings.draft_max);
        (Some(Speculator::new(drafters, Box::new(policy))), drafting)
    }
}

fn opens(loader: &Loader, draft: Resolved, way: &Way) -> DraftLoader {
    let (interrupt, way) = (loader.interrupt.clone(), way.clone());
    Box::new(move || Ok(engine::open(&draft.file, &way.load, &mut |_| !interrupt.is_set())?.with_layout(way.layout)))
}

fn preloads(draft: Resolved, way: &Way) -> Loading {
    let way = way.clone();
    std::thread::spawn(move || Ok(engine::open(&draft.file, &way.load, &mut |_| true)?.with_layout(way.layout)))
}

/// The share of an answer's time that may go into measuring after it has been shown.
const MEASURE_SHARE: f64 = 0.1;

impl Loaded {
    /// Measures what is not known yet of this pair's costs, now that the answer is out, and keeps it. What cannot be
    /// measured is not missed.
    pub(super) fn measure(&mut self, answer: &Answer) {
        let spent = answer.timings.prefill + answer.timings.decode;
        let session = self.speaker.session_mut();
        if session.calibrate(spent.mul_f64(MEASURE_SHARE)).is_ok()
            && let Some(costs) = session.speculator().and_then(|speculator| speculator.costs())
        {
            self.drafting.keep(costs);
        }
    }
}

impl Drafting {
    /// What was measured before of the target's own costs.
    pub(super) fn costs(&self) -> Costs {
        let known = self.kept.as_ref().and_then(Slot::read).unwrap_or_default();
        Costs::from_calibration(&known, 1.0)
    }

    /// Keeps what was measured for the next time. A cache: failing to write it costs a measurement, nothing else.
    pub(super) fn keep(&self, costs: &Costs) {
        let _ = self.kept.as_ref().map(|kept| kept.keep(costs.calibration()));
    }
}

impl Pair {
    fn new(target: &Resolved, draft: Option<&Resolved>, way: &Way) -> Self {
        Self {
            here: Here::new(),
            threads: way.threads,
            gpu_layers: way.load.gpu_layers,
            repack: way.load.repack,
            layout: way.layout,
            target: identity(target),
            draft: draft.map(identity),
        }
    }
}
