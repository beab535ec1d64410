//! A model, a context that grows, and the tokens it has read: answers one prompt after another, reading none twice.

use std::sync::Arc;

use super::driver::{Ended, Lane, drive};
use super::stats::{Answer, Finish};
use super::text::Sink;
use super::turn::{Turn, TurnSettings};
use crate::engine::{Context, ContextSettings, EngineError, Model, Seq, Token};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;

const SEQ: Seq = 0;
/// Contexts come in steps of this many tokens.
const STEP: usize = 256;
/// Room for an answer that a context starts with.
const FIRST_ROOM: usize = 512;

/// How large a context may become, and what it runs on.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Asked for by the user; `None` is what the model was trained for.
    pub n_ctx: Option<usize>,
    /// A context starts at least this large (where the limit allows it).
    pub first: usize,
    pub threads: usize,
}

/// One conversation over one model.
pub struct Session {
    model: Arc<dyn Model>,
    context: Option<Box<dyn Context>>,
    limits: Limits,
    /// The largest context that could be had, once a larger one could not.
    memory_limit: Option<usize>,
    interrupt: Interrupt,
}

impl Session {
    pub fn new(model: Arc<dyn Model>, limits: Limits, interrupt: Interrupt) -> Self {
        Self { model, context: None, limits, memory_limit: None, interrupt }
    }

    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// The most tokens that prompt and answer can have together.
    pub fn max_context(&self) -> usize {
        let trained = self.model.trained_context().max(1);
        [self.limits.n_ctx, self.memory_limit].into_iter().flatten().fold(trained, usize::min)
    }

    /// The limit that was asked for, where one was.
    pub fn limit(&self) -> Option<usize> {
        self.limits.n_ctx
    }

    /// Sets the limit. A context that is larger already stays, but is not used beyond it.
    pub fn limit_context(&mut self, tokens: usize) {
        self.limits.n_ctx = Some(tokens);
    }

    /// The tokens of context there are now.
    pub fn n_ctx(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.n_ctx())
    }

    /// What the KV holds.
    pub fn held(&self) -> &[Token] {
        self.context.as_ref().map_or(&[], |context| context.tokens(SEQ))
    }

    /// Reads `prompt`, except for what the KV holds of it already, and answers.
    ///
    /// # Errors
    /// [`Kind::TooLong`] when the prompt leaves no room for an answer; engine failures. Ctrl-C is an answer that
    /// ended early, not an error.
    pub fn answer(&mut self, prompt: Vec<Token>, mut settings: TurnSettings, sink: &mut dyn Sink) -> Result<Answer> {
        let (len, max) = (prompt.len(), self.max_context());
        if len == 0 {
            return Err(Error::usage("the prompt is empty").hint("type a question, or pipe one in"));
        }
        if len >= max {
            let over = len + 1 - max;
            let message = format!("the prompt has {len} tokens and the context holds {max}: {over} too many");
            let hint = if max < self.model.trained_context() {
                "shorten it, or raise the limit (--ctx)"
            } else {
                "shorten it, or take a model with a longer context"
            };
            return Err(Error::new(Kind::TooLong, message).hint(hint));
        }
        // Engines may round a context up; the last token emitted needs no place in it.
        let budget = settings.max_tokens.unwrap_or(usize::MAX).min(max + 1 - len);
        settings.max_tokens = Some(budget);
        self.reserve(len + 1, len + budget.min(FIRST_ROOM)).map_err(failed)?;
        let cached = self.reuse(&prompt).map_err(failed)?;
        let model = Arc::clone(&self.model);
        let turn = Turn::new(SEQ, model.vocab(), prompt, cached, settings);
        let mut lanes = [Lane { turn, sink }];
        loop {
            let interrupt = self.interrupt.clone();
            match drive(self.context()?, &mut lanes, &interrupt).map_err(failed)? {
                Ended::Finished => break,
                Ended::Full => {
                    let before = self.n_ctx();
                    self.reserve(before, 2 * before).map_err(failed)?;
                    if self.n_ctx() == before {
                        let [lane] = &mut lanes;
                        lane.turn.end(Finish::Length, lane.sink);
                        break;
                    }
                }
            }
        }
        let [lane] = lanes;
        Ok(lane.turn.into_answer())
    }

    /// Makes the context `wanted` tokens large, keeping what it holds; as large as it was where memory or the limit
    /// does not allow that, which is an error only when fewer than `needed` remain.
    fn reserve(&mut self, needed: usize, wanted: usize) -> Result<(), EngineError> {
        let now = self.n_ctx();
        let wanted = wanted.min(self.max_context());
        if now >= wanted {
            return Ok(());
        }
        let size = wanted.max(self.limits.first).max(2 * now).next_multiple_of(STEP).min(self.max_context());
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
        let settings =
            ContextSettings { n_ctx, sequences: 1, threads: self.limits.threads, cancel: self.interrupt.flag() };
        Arc::clone(&self.model).context(&settings)
    }

    /// Cuts the KV back to what it shares with `prompt`, by tokens that were really decoded; answers how many.
    /// The last token never counts: its logits are needed.
    fn reuse(&mut self, prompt: &[Token]) -> Result<usize, EngineError> {
        let shared = self.held().iter().zip(&prompt[..prompt.len() - 1]).take_while(|(a, b)| a == b).count();
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

    fn context(&mut self) -> Result<&mut dyn Context> {
        match &mut self.context {
            Some(context) => Ok(context.as_mut()),
            None => Err(Error::failed("there is no context")),
        }
    }
}

fn failed(error: EngineError) -> Error {
    match error {
        EngineError::OutOfMemory { .. } => Error::failed(error).hint("lower --ctx, or take a smaller model"),
        EngineError::Aborted => Error::interrupted(),
        error => Error::failed(format!("the engine failed: {error}")),
    }
}
