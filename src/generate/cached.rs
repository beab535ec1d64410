//! The prefix cache as one context uses it: loads what a prompt shares with what was read before, saves what is new.
//!
//! Invariant: whatever is loaded ends up in the context only together with the tokens that it stands for, and a failure
//! leaves a shorter prefix in it, never a wrong one.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::read_ahead::{Coming, READERS, Read, read_ahead};
use crate::engine::{Context, EngineError, Model, Save, Seq, Token};
use crate::prefix::{About, Header, Hit, Kind, Name, Plan, StateKey, Store};

/// Tokens of a block, where the model's window allows it.
const BLOCK: usize = 256;
/// Shorter blocks are not worth a file; models with a shorter window save whole states.
const LEAST_BLOCK: usize = 32;
/// A shorter gain is not worth a look, a shorter tail not worth a file.
const LEAST: usize = 16;
/// Whole states of one talk that are kept.
const WHOLE_KEPT: usize = 2;

/// The digest of a model's files, once somebody has found it out; nothing is loaded or saved before.
pub type Content = Arc<OnceLock<String>>;

/// Which part of a model's store a context uses.
pub struct Cached {
    store: Arc<Store>,
    /// The model's name, for people.
    model: String,
    content: Content,
    state: Option<(StateKey, Name, About)>,
    /// Blocks that the store has, or will have when it has written what it was given.
    given: HashSet<Name>,
    /// What this context wrote or loaded last, if a longer one makes it useless.
    tail: Option<Last>,
    whole: Vec<PathBuf>,
    /// What is being read for a context that does not exist yet.
    coming: Option<Coming>,
    /// What was saved or loaded: a chat's blocks can be found from it.
    ends: Vec<End>,
}

struct Last {
    path: PathBuf,
    header: Header,
}

/// The last block of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub state: Name,
    pub parent: Name,
    pub block: Name,
}

/// What came out of the prefix cache.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Tokens that were loaded.
    pub tokens: usize,
    pub time: Duration,
    /// The decision, where there was something to decide.
    pub plan: Option<Plan>,
}

/// What went into it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Saved {
    pub tokens: usize,
    /// What the answer's thread spent on it.
    pub time: Duration,
}

/// How a model's states are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Blocks(usize),
    Whole,
}

fn cut(save: Save) -> Cut {
    match save {
        Save::Ranges { most } if most >= LEAST_BLOCK => Cut::Blocks(BLOCK.min(1 << most.ilog2().min(62))),
        _ => Cut::Whole,
    }
}

impl Cached {
    /// Over `store`, for the model called `model`.
    pub fn new(store: Arc<Store>, model: String, content: Content) -> Self {
        Self {
            store,
            model,
            content,
            state: None,
            given: HashSet::new(),
            tail: None,
            whole: Vec::new(),
            coming: None,
            ends: Vec::new(),
        }
    }

    /// The last blocks of what was saved or loaded since they were last taken.
    pub fn take_ends(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends)
    }

    fn ended(&mut self, end: End) {
        if !self.ends.contains(&end) {
            self.ends.push(end);
        }
    }

    /// The part of the store for contexts of `n_ctx` tokens.
    fn state(&mut self, model: &dyn Model, n_ctx: usize) -> Option<(Name, &mut About)> {
        let key = StateKey { content: self.content.get()?.clone(), state: model.state_format(n_ctx) };
        if self.state.as_ref().is_none_or(|(own, ..)| *own != key) {
            let name = key.name();
            let about = self.store.about(name);
            self.state = Some((key, name, about));
            self.tail = None;
            self.whole.clear();
            self.given.clear();
        }
        self.state.as_mut().map(|(_, name, about)| (*name, about))
    }

    fn find(&mut self, model: &dyn Model, n_ctx: usize, tokens: &[Token]) -> Option<(Hit, Option<usize>)> {
        let (state, _) = self.state(model, n_ctx)?;
        Some(match cut(model.save()) {
            Cut::Blocks(block) => {
                let mut hit = self.store.find(state, block, tokens);
                // A block reaches beyond what is used of it, and must fit all the same.
                while hit.entries.last().is_some_and(|last| last.header.first + last.header.tokens.len() > n_ctx) {
                    hit.tokens = hit.entries.pop().map_or(0, |last| last.header.first);
                }
                (hit, Some(block))
            }
            Cut::Whole => (self.store.find_whole(state, tokens), None),
        })
    }

    /// How many of `tokens` the store has, for a context of `n_ctx` tokens.
    pub(super) fn known(&mut self, model: &dyn Model, n_ctx: usize, tokens: &[Token]) -> usize {
        self.find(model, n_ctx, tokens).map_or(0, |(hit, _)| hit.tokens)
    }

    /// Looks for what the store has of `tokens` beyond the `held` first ones, decides what of it is loaded, and begins to read
    /// and verify that on threads of its own.
    fn seek(&mut self, model: &dyn Model, n_ctx: usize, held: usize, tokens: &[Token]) -> Option<Coming> {
        let (hit, block) = self.find(model, n_ctx, tokens)?;
        let (state, about) = self.state(model, n_ctx)?;
        let plan = Plan::of(&hit, held, block, &about.rates);
        let wanted = plan.tokens >= held + LEAST && plan.loads();
        let lanes = if wanted { read_ahead(&self.store, hit.entries, &plan) } else { Vec::new() };
        Some(Coming { state, plan, block, held, of: tokens.len(), lanes })
    }

    /// Begins to read what the store has of `tokens`, for a context of `n_ctx` tokens that is being made meanwhile.
    pub(super) fn look_ahead(&mut self, model: &dyn Model, n_ctx: usize, tokens: &[Token]) {
        self.coming = self.seek(model, n_ctx, 0, tokens);
    }

    /// Loads what the store has of `tokens` beyond what `seq` of `context` holds of them, which must be a prefix of them,
    /// where that is cheaper than reading it. Whole states behind one of `boundaries` belong to others too.
    ///
    /// # Errors
    /// Those of the engine that leave the context in doubt.
    pub(super) fn restore(
        &mut self,
        model: &dyn Model,
        context: &mut dyn Context,
        seq: Seq,
        tokens: &[Token],
        boundaries: &[usize],
    ) -> Result<Restored, EngineError> {
        let held = context.tokens(seq).len();
        if tokens.len() < held + LEAST {
            return Ok(Restored::default());
        }
        let began = Instant::now();
        let n_ctx = context.n_ctx();
        let Some((state, _)) = self.state(model, n_ctx) else { return Ok(Restored::default()) };
        let ahead = self.coming.take().filter(|own| (own.state, own.held, own.of) == (state, held, tokens.len()));
        let Some(coming) = ahead.or_else(|| self.seek(model, n_ctx, held, tokens)) else {
            return Ok(Restored::default());
        };
        let plan = coming.plan;
        let mut restored = Restored { plan: (plan.found >= held + LEAST).then_some(plan), ..Restored::default() };
        if coming.lanes.is_empty() {
            return Ok(restored);
        }
        match context.trim(seq, coming.block.map_or(0, |block| plan.from * block)) {
            Ok(()) => {}
            Err(EngineError::CannotTrim { .. }) => return Ok(restored),
            Err(error) => return Err(error),
        }
        let loading = Instant::now();
        let (bytes, last) = self.load(context, seq, &coming);
        let time = loading.elapsed();
        if context.tokens(seq).len() > plan.tokens {
            context.trim_or_clear(seq, plan.tokens)?;
        }
        if let Some(last) = last {
            self.note(state, last.path, last.header, plan.tokens, boundaries);
        }
        restored.tokens = context.tokens(seq).len().saturating_sub(held);
        restored.time = began.elapsed();
        if let Some((_, about)) = self.state(model, n_ctx) {
            about.rates.saw_load(bytes, time);
            about.spared.times += u64::from(restored.tokens > 0);
            about.spared.tokens += restored.tokens as u64;
            let reading = about.rates.prefill_time(restored.tokens).unwrap_or_default();
            about.spared.seconds += reading.saturating_sub(restored.time).as_secs_f64();
        }
        Ok(restored)
    }

    /// Loads what comes, in order, as far as it is sound; answers the bytes, and the last block.
    fn load(&self, context: &mut dyn Context, seq: Seq, coming: &Coming) -> (usize, Option<Last>) {
        let (mut bytes, mut last) = (0, None);
        for index in 0..coming.plan.to - coming.plan.from {
            let lane = &coming.lanes[index % READERS];
            let Ok(Read { payload, path, header }) = lane.take.recv() else { break };
            if context.load(seq, &payload, &header.tokens).is_err() {
                self.store.discard(&path);
                break;
            }
            bytes += payload.len();
            last = Some(Last { path, header });
            let _ = lane.give_back.try_send(payload);
        }
        (bytes, last)
    }

    /// Remembers what a longer tail makes useless: an entry that was loaded, if all of it was used, and no other talk may
    /// begin with it.
    fn note(&mut self, state: Name, path: PathBuf, header: Header, used: usize, boundaries: &[usize]) {
        let block = Name::block(state, header.parent, &header.tokens);
        // The rest of one that was used in part is somebody else's.
        let is_whole = header.kind == Kind::Whole || header.first + header.tokens.len() <= used;
        if is_whole || header.parent != state {
            self.ended(End { state, parent: header.parent, block: if is_whole { block } else { header.parent } });
        }
        match header.kind {
            Kind::Block if is_whole => self.tail = Some(Last { path, header }),
            Kind::Block => self.tail = None,
            Kind::Whole if boundaries.contains(&used) => {}
            Kind::Whole => {
                // The talk goes on from it again: those that led elsewhere go first.
                self.whole.retain(|own| *own != path);
                self.whole.push(path);
            }
        }
    }

    /// Saves what the store lacks of the first `upto` tokens of `seq` of `context`. Whole states are saved only where it
    /// holds exactly so many.
    ///
    /// # Errors
    /// When the engine cannot save, which costs nothing but the saving.
    pub(super) fn save(
        &mut self,
        model: &dyn Model,
        context: &mut dyn Context,
        seq: Seq,
        upto: usize,
        stays: Stays,
    ) -> Result<Saved, EngineError> {
        let began = Instant::now();
        let held = context.tokens(seq)[..upto.min(context.tokens(seq).len())].to_vec();
        let Some((state, _)) = self.state(model, context.n_ctx()) else { return Ok(Saved::default()) };
        let mut saved = match cut(model.save()) {
            Cut::Blocks(block) => self.save_blocks(context, seq, state, block, &held)?,
            Cut::Whole if held.len() >= LEAST && held.len() == context.tokens(seq).len() => {
                self.save_whole(context, seq, state, held, stays)?
            }
            Cut::Whole => Saved::default(),
        };
        saved.time = began.elapsed();
        Ok(saved)
    }

    fn save_blocks(
        &mut self,
        context: &mut dyn Context,
        seq: Seq,
        state: Name,
        block: usize,
        held: &[Token],
    ) -> Result<Saved, EngineError> {
        let mut saved = Saved::default();
        let (mut parent, mut end) = (state, None);
        let mut first = 0;
        for run in held.chunks(block) {
            let header = Header { state, parent, kind: Kind::Block, first, tokens: run.to_vec() };
            let is_tail = run.len() < block;
            let name = Name::block(state, parent, run);
            let here =
                || if is_tail { run.len() < LEAST || self.store.covers(&header) } else { self.store.has(&header) };
            if self.given.insert(name) && !here() {
                let payload = context.save(seq, first..first + run.len())?;
                saved.tokens += run.len();
                let extends = |last: &Last| last.header.parent == parent && run.starts_with(&last.header.tokens);
                let replaces = self.tail.take_if(|last| extends(last)).map(|last| last.path);
                let path = self.store.path(&header);
                if is_tail {
                    self.tail = Some(Last { path, header: header.clone() });
                }
                self.store.put(header, payload, replaces);
            }
            if !is_tail || run.len() >= LEAST {
                end = Some(End { state, parent, block: name });
            }
            parent = name;
            first += run.len();
        }
        end.into_iter().for_each(|end| self.ended(end));
        Ok(saved)
    }

    fn save_whole(
        &mut self,
        context: &mut dyn Context,
        seq: Seq,
        state: Name,
        held: Vec<Token>,
        stays: Stays,
    ) -> Result<Saved, EngineError> {
        let header = Header { state, parent: state, kind: Kind::Whole, first: 0, tokens: held };
        let block = Name::block(state, state, &header.tokens);
        self.ended(End { state, parent: state, block });
        if !self.given.insert(block) || self.store.has(&header) {
            return Ok(Saved::default());
        }
        let tokens = header.tokens.len();
        let payload = context.save(seq, 0..tokens)?;
        let mut replaces = None;
        if stays == Stays::UntilLonger {
            self.whole.push(self.store.path(&header));
            replaces = (self.whole.len() > WHOLE_KEPT).then(|| self.whole.remove(0));
        }
        self.store.put(header, payload, replaces);
        Ok(Saved { tokens, ..Saved::default() })
    }

    /// How long reading so many tokens took before; none where nothing is known.
    pub(super) fn prefill_time(&mut self, model: &dyn Model, n_ctx: usize, tokens: usize) -> Option<Duration> {
        self.state(model, n_ctx)?.1.rates.prefill_time(tokens)
    }

    /// Takes a measurement of reading a prompt, and keeps what is known; false where it is not known yet whose it is.
    pub(super) fn saw_prefill(&mut self, model: &dyn Model, n_ctx: usize, tokens: usize, time: Duration) -> bool {
        let Some((_, about)) = self.state(model, n_ctx) else { return false };
        if tokens >= LEAST {
            about.rates.saw_prefill(tokens, time);
        }
        self.keep_about(model, n_ctx)
    }

    /// Keeps what is known of a model's states; false where it is not known yet whose they are.
    pub(super) fn keep_about(&mut self, model: &dyn Model, n_ctx: usize) -> bool {
        let name = self.model.clone();
        let store = Arc::clone(&self.store);
        let Some((state, about)) = self.state(model, n_ctx) else { return false };
        about.model = name;
        let about = about.clone();
        let key = self.state.as_ref().map(|(key, ..)| key.clone());
        store.keep_about(state, &About { key, ..about });
        true
    }
}

/// How long a whole state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Until there are two longer ones of the same talk.
    UntilLonger,
    /// As long as the bounds of the store allow: others may begin the same way.
    AsLongAsItCan,
}
