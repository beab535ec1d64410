//! A model's context of one sequence: it grows with what is asked of it, and keeps what it has read.

use std::sync::Arc;

use crate::engine::{Context, ContextSettings, EngineError, Model, Seq, Token};
use crate::interrupt::Interrupt;

/// The only sequence.
pub(super) const SEQ: Seq = 0;
/// Contexts come in steps of this many tokens.
const STEP: usize = 256;

/// A model, its context, and the tokens that are in it.
pub(super) struct Kv {
    model: Arc<dyn Model>,
    context: Option<Box<dyn Context>>,
    threads: usize,
    interrupt: Interrupt,
    /// The largest context that could be had, once a larger one could not.
    memory_limit: Option<usize>,
}

impl Kv {
    pub(super) fn new(model: Arc<dyn Model>, threads: usize, interrupt: Interrupt) -> Self {
        Self { model, context: None, threads, interrupt, memory_limit: None }
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
        let state = match &mut self.context {
            Some(context) if !held.is_empty() => Some(context.save(SEQ, 0..held.len())?),
            _ => None,
        };
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
        if let Some(state) = state {
            context.load(SEQ, &state, &held)?;
        }
        self.context = Some(context);
        Ok(())
    }

    fn create(&self, n_ctx: usize) -> Result<Box<dyn Context>, EngineError> {
        let settings = ContextSettings { n_ctx, sequences: 1, threads: self.threads, cancel: self.interrupt.flag() };
        Arc::clone(&self.model).context(&settings)
    }

    /// How many tokens it shares with `tokens`, of which the last one never counts: its logits are needed.
    pub(super) fn shared(&self, tokens: &[Token]) -> usize {
        let end = tokens.len().saturating_sub(1);
        self.held().iter().zip(&tokens[..end]).take_while(|(a, b)| a == b).count()
    }

    /// Cuts the KV back to what it shares with `tokens`, by tokens that were really decoded; answers how many.
    pub(super) fn reuse(&mut self, tokens: &[Token]) -> Result<usize, EngineError> {
        let shared = self.shared(tokens);
        let Some(context) = &mut self.context else {
            return Ok(0);
        };
        match context.trim(SEQ, shared) {
            Ok(()) => Ok(shared),
            // A state that cannot be cut back is read again from the start.
            Err(EngineError::CannotTrim { .. }) => context.trim(SEQ, 0).map(|()| 0),
            Err(error) => Err(error),
        }
    }

    /// The context; [`Kv::reserve`] makes it.
    pub(super) fn context(&mut self) -> Result<&mut dyn Context, EngineError> {
        match &mut self.context {
            Some(context) => Ok(context.as_mut()),
            None => Err(EngineError::Failed("there is no context".into())),
        }
    }
}
