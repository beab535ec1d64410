//! A model's context of one sequence: it grows with what is asked of it, and keeps what it has read.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::cached::{Cached, End, Restored, Saved, Stays};
use crate::engine::{Context, ContextSettings, EngineError, Model, Save, Seq, Token};
use crate::interrupt::Interrupt;

/// The only sequence.
pub(super) const SEQ: Seq = 0;
/// Contexts come in steps of this many tokens.
const STEP: usize = 256;

/// The state of some positions.
type Part = (Range<usize>, Vec<u8>);

/// A model, its context, and the tokens that are in it.
pub(super) struct Kv {
    model: Arc<dyn Model>,
    context: Option<Box<dyn Context>>,
    threads: usize,
    interrupt: Interrupt,
    /// The largest context that could be had, once a larger one could not.
    memory_limit: Option<usize>,
    /// What was read before, in other contexts.
    cached: Option<Cached>,
}

/// What need not be read of a prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct Reused {
    /// The tokens that the context holds now.
    pub(super) tokens: usize,
    /// The part of them that was loaded.
    pub(super) restored: Restored,
}

impl Kv {
    pub(super) fn new(model: Arc<dyn Model>, threads: usize, interrupt: Interrupt) -> Self {
        Self { model, context: None, threads, interrupt, memory_limit: None, cached: None }
    }

    /// Takes what was read before from `cached`, and gives it what is read.
    pub(super) fn cache(&mut self, cached: Option<Cached>) {
        self.cached = cached;
    }

    pub(super) fn take_cached(&mut self) -> Option<Cached> {
        self.cached.take()
    }

    pub(super) fn is_cached(&self) -> bool {
        self.cached.is_some()
    }

    /// The last blocks of what was saved or loaded.
    pub(super) fn take_ends(&mut self) -> Vec<End> {
        self.cached.as_mut().map_or_else(Vec::new, Cached::take_ends)
    }

    pub(super) fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// The most tokens that the model was trained for and memory holds.
    pub(super) fn most(&self) -> usize {
        let trained = self.model.trained_context().max(1);
        self.memory_limit.map_or(trained, |limit| limit.min(trained))
    }

    /// The tokens of context there are now.
    pub(super) fn n_ctx(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.n_ctx())
    }

    /// What is in it.
    pub(super) fn held(&self) -> &[Token] {
        self.context.as_ref().map_or(&[], |context| context.tokens(SEQ))
    }

    /// Begins to read what the prefix cache has of `tokens`, where the context of `wanted` tokens (at most `most`) has yet to be
    /// made, which takes about as long.
    pub(super) fn look_ahead(&mut self, wanted: usize, most: usize, tokens: &[Token]) {
        let n_ctx = wanted.next_multiple_of(STEP).min(most).min(self.most());
        if let (Some(cached), None) = (&mut self.cached, &self.context) {
            cached.look_ahead(self.model.as_ref(), n_ctx, &tokens[..tokens.len().saturating_sub(1)]);
        }
    }

    /// Makes the context `wanted` tokens large (at most `most`), keeping what it holds; as large as it was where memory
    /// does not allow that, which is an error only when fewer than `needed` remain.
    pub(super) fn reserve(&mut self, needed: usize, wanted: usize, most: usize) -> Result<(), EngineError> {
        let now = self.n_ctx();
        let most = most.min(self.most());
        if now >= wanted.min(most) {
            return Ok(());
        }
        let size = wanted.max(2 * now).next_multiple_of(STEP).min(most);
        let held = self.held().to_vec();
        let states = self.save_all()?;
        // Both at once might not fit: the old one goes first, and comes back if the larger one cannot be had.
        self.context = None;
        let mut context = match self.create(size) {
            Ok(context) => context,
            Err(error) if now == 0 => return Err(error),
            Err(error) => {
                self.memory_limit = Some(now);
                let old = self.create(now)?;
                if now < needed {
                    self.context = Some(old);
                    return Err(error);
                }
                old
            }
        };
        // Never the positions of one format behind those of another: what cannot be taken over is read again.
        if self.model.state_format(now) == self.model.state_format(context.n_ctx()) {
            for (range, state) in states {
                if context.load(SEQ, &state, &held[range]).is_err() {
                    break;
                }
            }
        }
        self.context = Some(context);
        Ok(())
    }

    /// What the context holds, in as many states as that takes.
    fn save_all(&mut self) -> Result<Vec<Part>, EngineError> {
        let Some(context) = &mut self.context else { return Ok(Vec::new()) };
        let held = context.tokens(SEQ).len();
        let most = match context.capabilities().save {
            Save::Whole => held,
            Save::Ranges { most } => most.min(held),
        };
        let starts = (0..held).step_by(most.max(1));
        let range = |start: usize| start..(start + most).min(held);
        starts.map(|start| Ok((range(start), context.save(SEQ, range(start))?))).collect()
    }

    fn create(&self, n_ctx: usize) -> Result<Box<dyn Context>, EngineError> {
        let settings = ContextSettings { n_ctx, sequences: 1, threads: self.threads, cancel: self.interrupt.flag() };
        Arc::clone(&self.model).context(&settings)
    }

    /// Empties it.
    pub(super) fn forget(&mut self) -> Result<(), EngineError> {
        self.context.as_mut().map_or(Ok(()), |context| context.trim(SEQ, 0))
    }

    /// How many tokens it shares with `tokens`, of which the last one never counts: its logits are needed.
    pub(super) fn shared(&self, tokens: &[Token]) -> usize {
        let end = tokens.len().saturating_sub(1);
        self.held().iter().zip(&tokens[..end]).take_while(|(a, b)| a == b).count()
    }

    /// Cuts the KV back to what it shares with `tokens`, by tokens that were really decoded, and loads what the prefix cache
    /// has beyond that; `boundaries` as for [`Cached::restore`].
    pub(super) fn reuse(&mut self, tokens: &[Token], boundaries: &[usize]) -> Result<Reused, EngineError> {
        let shared = self.shared(tokens);
        let Some(context) = &mut self.context else {
            return Ok(Reused::default());
        };
        context.trim_or_clear(SEQ, shared)?;
        let restored = match &mut self.cached {
            Some(cached) => {
                let end = tokens.len().saturating_sub(1);
                cached.restore(self.model.as_ref(), context.as_mut(), SEQ, &tokens[..end], boundaries)?
            }
            None => Restored::default(),
        };
        Ok(Reused { tokens: context.tokens(SEQ).len(), restored })
    }

    /// How many of `tokens` the prefix cache has, for a context of at least `n_ctx` tokens.
    pub(super) fn known(&mut self, n_ctx: usize, tokens: &[Token]) -> usize {
        let n_ctx = n_ctx.max(self.n_ctx());
        self.cached.as_mut().map_or(0, |cached| cached.known(self.model.as_ref(), n_ctx, tokens))
    }

    /// Saves what the prefix cache lacks of the first `upto` tokens.
    pub(super) fn save(&mut self, upto: usize, stays: Stays) -> Result<Saved, EngineError> {
        match (&mut self.cached, &mut self.context) {
            (Some(cached), Some(context)) => cached.save(self.model.as_ref(), context.as_mut(), SEQ, upto, stays),
            _ => Ok(Saved::default()),
        }
    }

    /// How long reading so many tokens took before, where the prefix cache knows.
    pub(super) fn prefill_time(&mut self, tokens: usize) -> Option<Duration> {
        let n_ctx = self.n_ctx();
        self.cached.as_mut()?.prefill_time(self.model.as_ref(), n_ctx, tokens)
    }

    /// Takes a measurement of reading a prompt; false where the prefix cache cannot use it yet.
    pub(super) fn saw_prefill(&mut self, tokens: usize, time: Duration) -> bool {
        let n_ctx = self.n_ctx();
        self.cached.as_mut().is_some_and(|cached| cached.saw_prefill(self.model.as_ref(), n_ctx, tokens, time))
    }

    /// The context; [`Kv::reserve`] makes it.
    pub(super) fn context(&mut self) -> Result<&mut dyn Context, EngineError> {
        match &mut self.context {
            Some(context) => Ok(context.as_mut()),
            None => Err(EngineError::Failed("there is no context".into())),
        }
    }
}
