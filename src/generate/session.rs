//! A model, a context that grows, and the tokens it has read: answers one prompt after another, reading none twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::align::align;
use super::cached::{Cached, End, Saved, Stays};
use super::draft::{MOST_ROWS, Speculator};
use super::driver::{Ended, Lane, drive};
use super::kv::{Kv, SEQ};
use super::stats::{Answer, Finish};
use super::text::Sink;
use super::turn::{Turn, TurnSettings};
use crate::engine::{EngineError, Model, Rollback, Row, Save, Token};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;

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

/// A prompt with so many tokens that are read anew is saved before it is answered.
const LONG: usize = 512;

/// What of an answer is worth saving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The prompt: another question may begin the same way.
    Prompt,
    /// The answer too: the talk goes on.
    All,
}

/// One conversation over one model.
pub struct Session {
    kv: Kv,
    limits: Limits,
    speculator: Option<Speculator>,
    interrupt: Interrupt,
    keep: Keep,
    /// Prompt and answer of the last turn, as they were decoded.
    decoded: Vec<Token>,
    /// Tokens that were read for it and how long that took, until the prefix cache has taken that in.
    unmeasured: Option<(usize, Duration)>,
}

impl Session {
    pub fn new(model: Arc<dyn Model>, limits: Limits, interrupt: Interrupt) -> Self {
        let kv = Kv::new(model, limits.threads, interrupt.clone());
        Self { kv, limits, speculator: None, interrupt, keep: Keep::All, decoded: Vec::new(), unmeasured: None }
    }

    /// Takes what was read before from `cached`, and gives it what is read: of answers as much as `keep` says.
    pub fn cache(&mut self, cached: Option<Cached>, keep: Keep) {
        self.kv.cache(cached);
        self.keep = keep;
    }

    /// Goes on without the prefix cache, which somebody else uses now.
    pub fn take_cached(&mut self) -> Option<Cached> {
        self.kv.take_cached()
    }

    /// Prompt and answer of the last turn, as they were decoded.
    pub fn decoded(&self) -> &[Token] {
        &self.decoded
    }

    /// Takes up a talk whose last turn was decoded like this.
    pub fn take_up(&mut self, decoded: Vec<Token>) {
        self.decoded = decoded;
    }

    /// The last blocks of what was saved or loaded since they were last taken, of the model and of its draft.
    pub fn take_ends(&mut self) -> Vec<End> {
        let draft = self.speculator.as_mut().map_or_else(Vec::new, Speculator::take_ends);
        [self.kv.take_ends(), draft].concat()
    }

    pub fn model(&self) -> &Arc<dyn Model> {
        self.kv.model()
    }

    /// Lets drafters compete from the next answer on; `None` is plain decoding.
    pub fn speculate(&mut self, speculator: Option<Speculator>) {
        self.speculator = speculator;
    }

    pub fn speculator(&mut self) -> Option<&mut Speculator> {
        self.speculator.as_mut()
    }

    /// The most tokens that prompt and answer can have together.
    pub fn max_context(&self) -> usize {
        self.kv.most().min(self.limits_to())
    }

    /// The limit that was asked for, where one was.
    pub fn limit(&self) -> Option<usize> {
        self.limits.n_ctx
    }

    /// Sets the limit, or none. A context that is larger already stays, but is not used beyond it.
    pub fn limit_context(&mut self, tokens: Option<usize>) {
        self.limits.n_ctx = tokens;
    }

    /// A context that is made from now on starts at least this large.
    pub fn start_with(&mut self, tokens: usize) {
        self.limits.first = tokens;
    }

    /// The tokens of context there are now.
    pub fn n_ctx(&self) -> usize {
        self.kv.n_ctx()
    }

    /// What the KV holds.
    pub fn held(&self) -> &[Token] {
        self.kv.held()
    }

    /// Forgets what the KV holds.
    ///
    /// # Errors
    /// Engine failures.
    pub fn forget(&mut self) -> Result<()> {
        self.decoded.clear();
        self.kv.forget().map_err(failed)
    }

    /// Reads `prompt`, except for what the KV holds of it already, and answers.
    ///
    /// # Errors
    /// [`Kind::TooLong`] when the prompt leaves no room for an answer; engine failures. Ctrl-C is an answer that
    /// ended early, not an error.
    pub fn answer(&mut self, prompt: Vec<Token>, mut settings: TurnSettings, sink: &mut dyn Sink) -> Result<Answer> {
        let prompt = align(self.model().vocab(), &self.decoded, prompt);
        let (len, max) = (prompt.len(), self.max_context());
        if len == 0 {
            return Err(Error::usage("the prompt is empty").hint("type a question, or pipe one in"));
        }
        if len >= max {
            let over = len + 1 - max;
            let message = format!("the prompt has {len} tokens and the context holds {max}: {over} too many");
            let hint = if max < self.model().trained_context() {
                "shorten it, or raise the limit (--ctx)"
            } else {
                "shorten it, or take a model with a longer context"
            };
            return Err(Error::new(Kind::TooLong, message).hint(hint));
        }
        // Engines may round a context up; the last token emitted needs no place in it.
        let budget = settings.max_tokens.unwrap_or(usize::MAX).min(max + 1 - len);
        settings.max_tokens = Some(budget);
        let first = (len + budget.min(FIRST_ROOM)).max(self.limits.first);
        self.kv.look_ahead(first, max, &prompt);
        self.kv.reserve(len + 1, first, max).map_err(failed)?;
        let reused = self.kv.reuse(&prompt, &settings.boundaries).map_err(failed)?;
        if let Some(speculator) = &mut self.speculator {
            speculator.begin(&settings.sampling, self.kv.n_ctx(), budget);
        }
        let unread = len - reused.tokens;
        sink.reads(unread, self.kv.prefill_time(unread));
        let model = Arc::clone(self.kv.model());
        let mut marks = std::mem::take(&mut settings.boundaries);
        if unread >= LONG {
            // A hit never covers the last token, and a whole state cannot be cut back to what it covers.
            marks.push(if self.model().save() == Save::Whole { len - 1 } else { len });
        }
        let mut turn = Turn::new(SEQ, model.vocab(), prompt, reused.tokens, settings);
        if self.kv.is_cached() {
            turn.stop_at(marks);
        }
        let mut saved = Saved::default();
        let mut lanes = [Lane { turn: &mut turn, sink, speculator: self.speculator.as_mut() }];
        loop {
            match drive(self.kv.context().map_err(failed)?, &mut lanes, &self.interrupt).map_err(failed)? {
                Ended::Finished => break,
                Ended::Marked => {
                    let held = self.kv.held().len();
                    // What cannot be saved is read again another time.
                    if let Ok(more) = self.kv.save(held, Stays::AsLongAsItCan) {
                        saved.tokens += more.tokens;
                        saved.time += more.time;
                    }
                }
                Ended::Full => {
                    let before = self.kv.n_ctx();
                    self.kv.reserve(before, 2 * before, max).map_err(failed)?;
                    if self.kv.n_ctx() == before {
                        let [lane] = &mut lanes;
                        lane.turn.end(Finish::Length, lane.sink);
                        break;
                    }
                }
            }
        }
        self.decoded = turn.tokens().to_vec();
        let mut answer = turn.into_answer();
        self.unmeasured = Some((answer.timings.prefilled, answer.timings.prefill));
        answer.restored = reused.restored;
        answer.saved = saved;
        answer.speculation = self.speculator.as_ref().map(Speculator::speculation);
        Ok(answer)
    }

    /// Saves what was read for `answer` and not saved yet. Meant for when it has been shown.
    pub fn save(&mut self, answer: &Answer) -> Saved {
        let upto = match self.keep {
            Keep::Prompt => answer.prompt_tokens.min(self.kv.held().len()),
            Keep::All => self.kv.held().len(),
        };
        let saved = self.kv.save(upto, Stays::UntilLonger).unwrap_or_default();
        // Once an answer, and not before it is known whose rate it is.
        if let Some((tokens, time)) = self.unmeasured
            && self.kv.saw_prefill(tokens, time)
        {
            self.unmeasured = None;
        }
        if let Some(speculator) = &mut self.speculator {
            speculator.save(upto);
        }
        saved
    }

    /// Measures what evaluations of several rows cost, for the policy of drafts, where that is not known yet; stops after
    /// about `budget`, and at a Ctrl-C. Meant for when an answer has been shown.
    ///
    /// # Errors
    /// Engine failures.
    pub fn calibrate(&mut self, budget: Duration) -> Result<()> {
        let Some(mut costs) = self.speculator.as_ref().and_then(|speculator| speculator.costs().cloned()) else {
            return Ok(());
        };
        let held = self.kv.held().len();
        let Some(last) = self.kv.held().last().copied() else { return Ok(()) };
        if self.kv.context().map_err(failed)?.capabilities().rollback != Rollback::Anywhere {
            return Ok(());
        }
        let began = Instant::now();
        // The lengths that are most often chosen first: after a stop the others lie between.
        for rows in [1, 4, 2, 8, 3, 5, MOST_ROWS, 6, 12, 7, 9] {
            if costs.is_measured(rows) && rows > 1 {
                continue;
            }
            if began.elapsed() > budget || self.interrupt.is_set() || held + rows > self.kv.n_ctx() {
                break;
            }
            let context = self.kv.context().map_err(failed)?;
            let row = |i| Row { seq: SEQ, token: last, pos: held + i, want_logits: true };
            let start = Instant::now();
            let evaluated = context.eval(&(0..rows).map(row).collect::<Vec<_>>());
            let time = start.elapsed();
            context.trim(SEQ, held).map_err(failed)?;
            match evaluated {
                Err(EngineError::Aborted) => break,
                evaluated => evaluated.map_err(failed)?,
            }
            costs.saw_target(rows, time);
        }
        if let Some(speculator) = &mut self.speculator {
            speculator.calibrate(costs);
        }
        Ok(())
    }

    fn limits_to(&self) -> usize {
        self.limits.n_ctx.unwrap_or(usize::MAX)
    }
}

fn failed(error: EngineError) -> Error {
    match error {
        EngineError::OutOfMemory { .. } => {
            Error::failed(error).hint("take a smaller context (--ctx), smaller keys (--kv q8_0) or a smaller model")
        }
        EngineError::Aborted => Error::interrupted(),
        error => {
            Error::failed(format!("the engine failed: {error}")).hint("-vv shows llama.cpp's log, --log FILE keeps it")
        }
    }
}
