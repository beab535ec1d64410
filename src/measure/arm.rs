//! One thing that is compared: a model and how it is used.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::drafting::Drafting;
use super::machine::energy::Meter;
use super::machine::peak::Peak;
use super::workload::Prompt;
use crate::chat::{Conversation, Message, Role};
use crate::engine::llama::LoadSettings;
use crate::engine::{self, Context, ContextSettings, EngineError, KvLayout, LoadProgress, Model, Row, Token, Vocab};
use crate::error::{Error, Kind, Result};
use crate::generate::draft::Costs;
use crate::generate::{
    Answer, Cached, Content, Keep, Limits, Part, Reasoning, Sink, SinkClosed, Speaker, TurnSettings,
};
use crate::interrupt::Interrupt;
use crate::prefix::Store;
use crate::sample::Sampling;

/// How a model is used.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: String,
    pub drafting: Drafting,
    pub threads: usize,
    pub layout: KvLayout,
    pub repack: bool,
    /// A prompt's document is in the prefix cache.
    pub warm: bool,
}

/// A model that is loaded, for arms to share.
#[derive(Clone)]
pub struct Shared {
    pub name: String,
    pub model: Arc<dyn Model>,
    /// Of the registry, where it names one.
    pub template: Option<String>,
    pub system: Option<String>,
    /// Bytes that it added to the process.
    pub memory: Option<u64>,
    pub draft: Option<Draft>,
}

/// The draft of a model.
#[derive(Clone)]
pub struct Draft {
    pub name: String,
    pub model: Arc<dyn Model>,
    /// How large it is beside its target, by bytes.
    pub size: f64,
    pub memory: Option<u64>,
}

/// A model that was loaded.
pub struct InMemory {
    pub model: Arc<dyn Model>,
    /// Until there was a context too.
    pub load_ms: f64,
    /// Bytes that it added to this process once all of it was used.
    pub memory: Option<u64>,
}

/// Loads a model from its file.
///
/// # Errors
/// Why it cannot be used.
pub fn load(path: &Path, settings: &LoadSettings, progress: LoadProgress) -> Result<InMemory, EngineError> {
    let peak = Peak::start();
    let before = peak.bytes();
    let began = Instant::now();
    let model = engine::open(path, settings, progress)?;
    let settings = ContextSettings { n_ctx: 256, sequences: 1, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(&model).context(&settings)?;
    let load_ms = began.elapsed().as_secs_f64() * 1e3;
    context.eval(&[Row { seq: 0, token: Token(0), pos: 0, want_logits: true }])?;
    drop(context);
    let memory = before.and_then(|before| Some(peak.bytes()?.saturating_sub(before)));
    Ok(InMemory { model, load_ms, memory })
}

/// A model and a setting.
pub struct Arm {
    pub setting: Setting,
    pub model: Shared,
    /// Bytes that loading and the first answer added to the process.
    pub memory: Option<u64>,
    speaker: Speaker,
    costs: Costs,
    interrupt: Interrupt,
}

/// One answer and when its tokens appeared.
pub struct Sample {
    pub answer: Answer,
    pub ttft: Duration,
    pub appeared: Vec<Instant>,
    pub joules: Option<f64>,
}

/// Notes when tokens appear.
#[derive(Default)]
struct Clock(Vec<Instant>);

impl Sink for Clock {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn emitted(&mut self, tokens: usize) {
        if tokens > 0 {
            self.0.push(Instant::now());
        }
    }
}

/// Tokens of an answer that measures rates, or what drafts cost.
const WARM_UP: usize = 12;

impl Arm {
    /// An arm over a model that is loaded; `store` is where a warm one finds its prompts.
    ///
    /// # Errors
    /// When the template cannot be compiled.
    pub fn new(model: &Shared, setting: Setting, store: &Arc<Store>, interrupt: &Interrupt) -> Result<Self> {
        let own = Arc::clone(&model.model).with_layout(setting.layout);
        let limits = Limits { n_ctx: None, first: 0, threads: setting.threads };
        let mut speaker = Speaker::new(own, model.template.as_deref(), limits, interrupt.clone())?;
        if setting.warm {
            let content = Content::default();
            let _ = content.set(format!("bench {}", model.name));
            let cached = Cached::new(Arc::clone(store), model.name.clone(), content);
            speaker.session_mut().cache(Some(cached), Keep::Prompt);
        }
        let costs = Costs::expected(model.draft.as_ref().map_or(1.0, |draft| draft.size));
        Ok(Self { setting, model: model.clone(), memory: None, speaker, costs, interrupt: interrupt.clone() })
    }

    /// The tokens of the longest of some prompts.
    ///
    /// # Errors
    /// When the template refuses one.
    pub fn longest(&self, prompts: &[Prompt]) -> Result<usize> {
        let lengths = prompts.iter().map(|prompt| Ok(self.tokens(&prompt.message())?.0.len()));
        lengths.collect::<Result<Vec<_>>>().map(|lengths| lengths.into_iter().max().unwrap_or(0))
    }

    /// The context holds so many tokens from the start: one that grows in the middle of an answer is not what is compared.
    ///
    /// # Errors
    /// When the model was trained for less.
    pub fn hold(&mut self, tokens: usize) -> Result<()> {
        let most = self.speaker.session().max_context();
        if tokens > most {
            let message =
                format!("{} holds {most} tokens, and these prompts and answers need {tokens}", self.model.name);
            return Err(
                Error::new(Kind::TooLong, message).hint("take shorter ones (--depth, --grid, --prompts, --tokens)")
            );
        }
        self.speaker.session_mut().start_with(tokens);
        Ok(())
    }

    /// Makes the context, reads and answers a little: the first time is slower. Answers what rates it saw, in tokens a
    /// second of prefill and decode.
    ///
    /// # Errors
    /// Engine failures.
    pub fn warm_up(&mut self) -> Result<(f64, f64)> {
        let peak = Peak::start();
        let before = peak.bytes();
        let text =
            "The quick brown fox jumps over the lazy dog, again and again, until both are tired of it. ".repeat(4);
        // As a chat: a text of its own may end at once, and say nothing of decoding.
        let answer = self.answer(&text, WARM_UP, &Sampling::greedy())?.answer;
        if self.setting.drafting == Drafting::Policy {
            for _ in 0..2 {
                self.speaker.session_mut().calibrate(Duration::from_secs(20))?;
            }
            self.learn();
        }
        let grown = before.and_then(|before| Some(peak.bytes()?.saturating_sub(before)));
        let drafts = self.setting.drafting.may_use_model();
        let draft = self.model.draft.as_ref().filter(|_| drafts).map_or(Some(0), |draft| draft.memory);
        self.memory = grown.and_then(|own| Some(own + self.model.memory? + draft?));
        let prefill = answer.timings.prefill_rate().unwrap_or(1.0);
        // Who has nothing to say takes no steps.
        Ok((prefill, answer.timings.decode_rate(answer.tokens.len()).unwrap_or(prefill)))
    }

    /// The tokens of a prompt, and how thoughts are told from content behind it.
    ///
    /// # Errors
    /// When the template refuses it.
    pub fn tokens(&self, prompt: &str) -> Result<(Vec<Token>, Reasoning)> {
        if self.speaker.template_from().is_none() {
            return Ok((self.speaker.plain_prompt(prompt), Reasoning::Off));
        }
        let mut talk = Conversation::new(self.model.system.clone());
        talk.push(Message::new(Role::User, prompt));
        self.speaker.prompt(&talk)
    }

    /// Puts a prompt's document into the prefix cache, as another question about it would have.
    ///
    /// # Errors
    /// Engine failures.
    pub fn prime(&mut self, prompt: &Prompt, store: &Store) -> Result<()> {
        if self.setting.warm && !prompt.document.is_empty() {
            let other = Prompt { prompt: "Which of these is the strangest?".into(), ..prompt.clone() };
            let sample = self.answer(&other.message(), 1, &Sampling::greedy())?;
            self.speaker.session_mut().save(&sample.answer);
            store.flush();
        }
        Ok(())
    }

    /// Answers a prompt of which nothing is in memory.
    ///
    /// # Errors
    /// Engine failures; a prompt that does not fit.
    pub fn answer(&mut self, prompt: &str, tokens: usize, sampling: &Sampling) -> Result<Sample> {
        let began = Instant::now();
        let (prompt, reasoning) = self.tokens(prompt)?;
        let tokenising = began.elapsed();
        let draft = self.model.draft.as_ref().map(|draft| Arc::clone(&draft.model).with_layout(self.setting.layout));
        let speculator = self.setting.drafting.speculator(draft.as_ref(), self.setting.threads, &self.costs);
        let session = self.speaker.session_mut();
        session.forget()?;
        session.speculate(speculator);
        let settings = TurnSettings {
            sampling: sampling.clone(),
            stops: Vec::new(),
            max_tokens: Some(tokens),
            reasoning,
            ..TurnSettings::default()
        };
        let mut clock = Clock::default();
        let meter = Meter::start();
        let began = Instant::now();
        let answer = self.speaker.answer(prompt, settings, &mut clock)?;
        let joules = meter.and_then(|meter| meter.joules());
        let ttft = answer.first_token.map_or(Duration::ZERO, |at| tokenising + (at - began));
        self.learn();
        Ok(Sample { answer, ttft, appeared: clock.0, joules })
    }

    /// What drafts cost is known to the next answer.
    fn learn(&mut self) {
        if let Some(costs) = self.speaker.session_mut().speculator().and_then(|own| own.costs().cloned()) {
            self.costs = costs;
        }
    }

    /// A context of its own, for what is not an answer.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn context(&self, n_ctx: usize) -> Result<Box<dyn Context>> {
        let settings =
            ContextSettings { n_ctx, sequences: 1, threads: self.setting.threads, cancel: self.interrupt.flag() };
        let model = Arc::clone(self.speaker.session().model());
        model.context(&settings).map_err(|error| Error::failed(error).hint("take shorter prompts, or a smaller model"))
    }

    /// The logits behind some tokens, read in a context of their own.
    ///
    /// # Errors
    /// Engine failures.
    pub fn logits_behind(&self, tokens: &[Token]) -> Result<Vec<f32>> {
        let mut context = self.context(tokens.len() + 1)?;
        let most = context.capabilities().max_rows;
        let row = |pos: usize| Row { seq: 0, token: tokens[pos], pos, want_logits: pos + 1 == tokens.len() };
        let rows: Vec<Row> = (0..tokens.len()).map(row).collect();
        let mut last = 0;
        for chunk in rows.chunks(most) {
            context.eval(chunk).map_err(Error::failed)?;
            last = chunk.len() - 1;
        }
        Ok(context.logits(last).to_vec())
    }

    /// The tokens that the model was trained for.
    pub fn most_context(&self) -> usize {
        self.speaker.session().max_context()
    }

    pub fn vocab(&self) -> &dyn Vocab {
        self.speaker.session().model().vocab()
    }

    /// The tokens of a text that is continued.
    pub fn plain(&self, text: &str) -> Vec<Token> {
        self.speaker.plain_prompt(text)
    }
}
