//! A smaller model of the same family. It draws with the target's own noise on its own distribution, so the two agree
//! nearly as often as rejection sampling would make them (Daliri, Musco, Suresh 2024).
//!
//! Invariant: the KV holds a prefix of what was emitted (without what was passed over, see `gaps`), perhaps followed by its
//! own last proposals; both are cut back to the common prefix before it reads on, so no token is evaluated twice.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::cached::{Cached, End, Stays};
use super::super::kv::{Kv, SEQ};
use super::gaps::Gaps;
use super::{At, Class, Drafter, MOST_ROWS, Offer, Proposed, Source, Step};
use crate::engine::{Context, EngineError, Model, Rollback, Row, Token};
use crate::interrupt::Interrupt;
use crate::sample::{Sampler, Sampling};

/// The first confidences of the classes.
const CLASSES: [f32; 8] = [0.0, 0.3, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99];

/// Loads the draft model when it is first wanted.
pub type DraftLoader = Box<dyn Fn() -> Result<Arc<dyn Model>, EngineError>>;

/// A thread that loads the draft model.
pub type Loading = JoinHandle<Result<Arc<dyn Model>, EngineError>>;

enum State {
    /// Not loaded; how long that is expected to take.
    Waiting(DraftLoader, Duration),
    /// Being loaded elsewhere: there is no draft until that is done.
    Loading(Loading),
    Ready(Box<Kv>),
    Gone(EngineError),
}

/// The model drafter.
pub struct ModelDrafter {
    state: State,
    threads: usize,
    interrupt: Interrupt,
    /// Until there is a context to give it to.
    cached: Option<Cached>,
    /// How many tokens of this turn's prompt the prefix cache has, once that was looked up.
    known: Option<usize>,
    /// What was read of this turn's text in long runs, and how long that took.
    read: (usize, Duration),
    sampler: Sampler,
    /// The size that the context grows to when it has to: the target's.
    n_ctx: usize,
    /// The parts of the text that its KV lacks.
    gaps: Gaps,
    /// The text of the last round and what was proposed behind it: proposals that were not judged and came true are not
    /// drawn again.
    chain: (Vec<Token>, Vec<Proposed>),
}

impl ModelDrafter {
    /// How many classes of tokens it has.
    pub const CLASSES: usize = CLASSES.len();

    /// One that is loaded when it is first wanted, which is expected to take `load_time`.
    pub fn new(loader: DraftLoader, load_time: Duration, threads: usize, interrupt: Interrupt) -> Self {
        Self::with(State::Waiting(loader, load_time), threads, interrupt)
    }

    /// One that is being loaded; it drafts from when that is done.
    pub fn loading(loading: Loading, threads: usize, interrupt: Interrupt) -> Self {
        Self::with(State::Loading(loading), threads, interrupt)
    }

    fn with(state: State, threads: usize, interrupt: Interrupt) -> Self {
        let sampler = Sampler::new(Sampling::greedy());
        let chain = (Vec::new(), Vec::new());
        Self {
            state,
            threads,
            interrupt,
            cached: None,
            known: None,
            read: (0, Duration::ZERO),
            sampler,
            n_ctx: 0,
            gaps: Gaps::default(),
            chain,
        }
    }

    /// Takes what was read before from `cached`, and gives it what is read.
    #[must_use]
    pub fn with_cache(mut self, cached: Option<Cached>) -> Self {
        self.cached = cached;
        self
    }

    fn ready(&mut self, model: Arc<dyn Model>) -> State {
        let mut kv = Kv::new(model, self.threads, self.interrupt.clone());
        kv.cache(self.cached.take());
        State::Ready(Box::new(kv))
    }

    /// The class of a token that the draft gave this probability.
    pub fn class(confidence: f32) -> Class {
        Class(CLASSES.iter().rposition(|first| *first <= confidence).unwrap_or(0) as u8)
    }

    /// Loads the model if that was not done yet.
    ///
    /// # Errors
    /// Why it cannot be loaded; the drafter is of no use then.
    pub fn load(&mut self) -> Result<(), EngineError> {
        let State::Waiting(loader, _) = &self.state else { return Ok(()) };
        match loader() {
            Ok(model) => self.state = self.ready(model),
            // Stopped, not broken: another answer may want it.
            Err(EngineError::Aborted) => return Err(EngineError::Aborted),
            Err(error) => {
                self.state = State::Gone(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes over what a thread has loaded.
    fn take_loaded(&mut self) {
        if !matches!(&self.state, State::Loading(thread) if thread.is_finished()) {
            return;
        }
        let panicked = EngineError::Failed("loading it ended in a panic".into());
        let State::Loading(thread) = std::mem::replace(&mut self.state, State::Gone(panicked)) else { return };
        match thread.join() {
            Ok(Ok(model)) => self.state = self.ready(model),
            Ok(Err(error)) => self.state = State::Gone(error),
            Err(_) => {}
        }
    }

    /// Forgets all but the first `tokens` tokens of what it has read.
    ///
    /// # Errors
    /// When the model cannot be cut back.
    pub fn forget(&mut self, tokens: usize) -> Result<(), EngineError> {
        self.chain = (Vec::new(), Vec::new());
        match &mut self.state {
            State::Ready(kv) if kv.held().len() > tokens => kv.context()?.trim(SEQ, tokens),
            _ => Ok(()),
        }
    }

    fn kv(&mut self) -> Result<&mut Kv, EngineError> {
        self.load()?;
        match &mut self.state {
            State::Ready(kv) => Ok(kv),
            State::Gone(error) => Err(error.clone()),
            State::Waiting(..) | State::Loading(_) => Err(EngineError::Failed("the draft model is not loaded".into())),
        }
    }

    /// How much of the text the KV holds or the prefix cache has, without what was passed over; the last token never counts.
    fn already_read(&mut self, at: &At) -> usize {
        let n_ctx = self.n_ctx;
        let State::Ready(kv) = &mut self.state else { return 0 };
        let shared = self.gaps.cut(kv.shared(&self.gaps.view(at.tokens)));
        let prompt = &at.tokens[..at.prompt_len];
        let known = *self.known.get_or_insert_with(|| if shared < prompt.len() { kv.known(n_ctx, prompt) } else { 0 });
        shared.max(known)
    }

    /// Evaluates tokens behind what is held; answers which row of the last evaluation has the logits of the last token.
    fn read(context: &mut dyn Context, tokens: &[Token], steps: &mut Vec<Step>) -> Result<usize, EngineError> {
        let mut last = 0;
        let most = context.capabilities().max_rows;
        let mut left = tokens;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(most));
            let from = context.tokens(SEQ).len();
            let row = |(i, token): (usize, &Token)| Row {
                seq: SEQ,
                token: *token,
                pos: from + i,
                want_logits: later.is_empty() && i + 1 == now.len(),
            };
            let rows: Vec<Row> = now.iter().enumerate().map(row).collect();
            let began = Instant::now();
            context.eval(&rows)?;
            steps.push(Step { rows: rows.len(), time: began.elapsed() });
            last = rows.len() - 1;
            left = later;
        }
        Ok(last)
    }
}

impl Drafter for ModelDrafter {
    fn source(&self) -> Source {
        Source::Model
    }

    fn begin(&mut self, sampling: &Sampling, n_ctx: usize) {
        self.sampler = Sampler::new(sampling.clone());
        self.n_ctx = n_ctx;
        self.known = None;
        self.read = (0, Duration::ZERO);
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        self.take_loaded();
        let load = match &self.state {
            State::Waiting(_, time) => *time,
            State::Loading(_) => return None,
            State::Ready(kv) if self.gaps.within(at.tokens.len()) + 1 > kv.most() => return None,
            // What is gone says why when it is asked to draft.
            State::Ready(_) | State::Gone(_) => Duration::ZERO,
        };
        let read = self.already_read(at);
        let unread = at.tokens.len() - read - Gaps::next(at, read).map_or(0, |gap| gap.len());
        Some(Offer::Steps { most, unread, load })
    }

    fn draft(
        &mut self,
        at: &At,
        most: usize,
        go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        into: &mut Vec<Proposed>,
        steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        let began = Instant::now();
        let was_ready = matches!(self.state, State::Ready(_));
        let n_ctx = self.n_ctx;
        let (last_text, last_proposed) = std::mem::take(&mut self.chain);
        self.kv()?;
        let read = self.already_read(at);
        if let Some(gap) = Gaps::next(at, read) {
            self.gaps.push(gap);
        }
        let mut view = self.gaps.view(at.tokens).into_owned();
        let kv = self.kv()?;
        if view.len() + 1 > kv.most() {
            return Ok(());
        }
        kv.reserve(view.len(), n_ctx.max(view.len() + most), usize::MAX)?;
        let most = most.min(kv.n_ctx().saturating_sub(view.len()) + 1);
        let mut text = at.tokens.to_vec();
        let came_true = at.tokens.len().checked_sub(last_text.len()).filter(|_| at.tokens.starts_with(&last_text));
        let came_true = came_true.filter(|count| {
            let own = last_proposed.iter().map(|own| own.token);
            own.clone().count() > *count && own.take(*count).eq(at.tokens[last_text.len()..].iter().copied())
        });
        for own in came_true.map_or(&[][..], |count| &last_proposed[count..]).iter().take(most) {
            into.push(*own);
            text.push(own.token);
            view.push(own.token);
            if !go_on(into) {
                self.chain = (at.tokens.to_vec(), into.clone());
                return Ok(());
            }
        }
        let reused = kv.reuse(&view, &[])?;
        let mut held = reused.tokens;
        if !was_ready || reused.restored.tokens > 0 {
            steps.push(Step { rows: 0, time: began.elapsed() });
        }
        let State::Ready(kv) = &mut self.state else { return Ok(()) };
        let context = kv.context()?;
        if context.capabilities().rollback != Rollback::Anywhere {
            return Err(EngineError::Failed("the draft's state cannot be cut back".into()));
        }
        while into.len() < most {
            let before = steps.len();
            let last = Self::read(context, &view[held..], steps)?;
            for step in steps[before..].iter().filter(|step| step.rows > MOST_ROWS) {
                self.read = (self.read.0 + step.rows, self.read.1 + step.time);
            }
            held = view.len();
            let began = Instant::now();
            let logits = context.logits(last);
            let token = self.sampler.sample(logits, text.len(), &text[at.prompt_len..]);
            into.push(Proposed { token, class: Self::class(Sampler::confidence(logits, token)) });
            text.push(token);
            view.push(token);
            if let Some(step) = steps.last_mut() {
                step.time += began.elapsed();
            }
            if !go_on(into) {
                break;
            }
        }
        self.chain = (at.tokens.to_vec(), into.clone());
        Ok(())
    }

    fn save(&mut self, upto: usize) {
        if let State::Ready(kv) = &mut self.state {
            // What cannot be saved is read again another time.
            let _ = kv.save(self.gaps.within(upto), Stays::UntilLonger);
            kv.saw_prefill(self.read.0, self.read.1);
        }
    }

    fn take_ends(&mut self) -> Vec<End> {
        match &mut self.state {
            State::Ready(kv) => kv.take_ends(),
            _ => Vec::new(),
        }
    }
}
