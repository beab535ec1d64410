//! Many prompts in one context: continuous batching (Yu et al. 2022, "Orca"). A turn that ends is replaced at once, prompts are
//! read in chunks so that the other turns go on, and what a prompt shares with one that was read is not read again.

use std::sync::Arc;

use super::draft::Speculator;
use super::driver::{Lane, round};
use super::pace::Pace;
use super::stats::{Answer, Finish};
use super::text::{Part, Sink, SinkClosed};
use super::turn::{Turn, TurnSettings};
use crate::engine::{Context, ContextSettings, EngineError, Model, Save, Seq, Token};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;

/// How many turns share a context, and what of it each may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub turns: usize,
    /// Tokens of prompt and answer of one turn.
    pub tokens: usize,
    pub threads: usize,
}

/// A prompt to answer.
pub struct Request {
    pub prompt: Vec<Token>,
    pub settings: TurnSettings,
    pub speculator: Option<Speculator>,
}

/// What comes next.
pub enum Next {
    /// A prompt, and what its answer is handed back with.
    Request(usize, Box<Request>),
    /// Nothing now, perhaps later.
    Later,
    End,
}

/// Where prompts come from, and answers go.
pub trait Requests {
    /// The next one; `waits` says that nothing else is to be done meanwhile.
    fn next(&mut self, waits: bool) -> Next;
    /// A turn has emitted so many tokens, one after the other or those of a round together.
    fn emitted(&mut self, _number: usize, _tokens: usize) {}
    /// An answer, or why there is none; any order.
    fn done(&mut self, number: usize, answer: Result<Answer>);
}

/// A shared beginning of fewer tokens is not waited for.
const WORTH_WAITING: usize = 8;

/// A turn in its sequence.
struct Slot<'v> {
    number: usize,
    turn: Turn<'v>,
    speculator: Option<Speculator>,
}

/// Answers keep their own text; what is counted here are tokens.
#[derive(Clone, Default)]
struct Counted(usize);

impl Sink for Counted {
    fn write(&mut self, _: Part, _: &str) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn emitted(&mut self, tokens: usize) {
        self.0 += tokens;
    }
}

/// Answers all requests. An interrupt ends those that run; they are not handed back.
///
/// # Errors
/// Engine failures.
pub fn answer_many(
    model: &Arc<dyn Model>,
    share: Share,
    interrupt: &Interrupt,
    requests: &mut dyn Requests,
) -> Result<()> {
    let settings = ContextSettings {
        n_ctx: share.turns * share.tokens,
        sequences: share.turns as u32,
        threads: share.threads,
        cancel: interrupt.flag(),
    };
    let mut context = Arc::clone(model).context(&settings).map_err(failed)?;
    let mut slots: Vec<Option<Slot>> = (0..share.turns).map(|_| None).collect();
    let mut pending = None;
    let mut pace = Pace::default();
    let mut ended = false;
    loop {
        while let Some(free) = slots.iter().position(Option::is_none) {
            let idle = slots.iter().all(Option::is_none);
            let next = match pending.take() {
                Some((number, request)) => Next::Request(number, request),
                None if ended => break,
                None => requests.next(idle),
            };
            match next {
                Next::Later => break,
                Next::End => ended = true,
                Next::Request(number, request) => {
                    if let Some(error) = unfit(&request, share) {
                        requests.done(number, Err(error));
                    } else if waits(context.as_ref(), &slots, &request.prompt) {
                        pending = Some((number, request));
                        break;
                    } else {
                        let seq = begin(context.as_mut(), &slots, &request.prompt, free as Seq).map_err(failed)?;
                        slots[seq as usize] = Some(start(model, context.as_ref(), seq, number, *request, share));
                    }
                }
            }
        }
        if slots.iter().all(Option::is_none) {
            if ended && pending.is_none() || interrupt.is_set() {
                return Ok(());
            }
            continue;
        }
        step(context.as_mut(), &mut slots, &mut pace, interrupt, requests).map_err(failed)?;
        if interrupt.is_set() {
            return Ok(());
        }
        for slot in &mut slots {
            if let Some(done) = slot.take_if(|slot| slot.turn.finished()) {
                let mut answer = done.turn.into_answer();
                answer.speculation = done.speculator.map(|speculator| speculator.speculation());
                requests.done(done.number, Ok(answer));
            }
        }
    }
}

/// One evaluation for all that run.
fn step(
    context: &mut dyn Context,
    slots: &mut [Option<Slot>],
    pace: &mut Pace,
    interrupt: &Interrupt,
    requests: &mut dyn Requests,
) -> Result<(), EngineError> {
    let decoding = slots.iter().flatten().filter(|slot| slot.turn.emitted() > 0).count();
    let mut sinks = vec![Counted::default(); slots.len()];
    let mut lanes: Vec<Lane> = slots
        .iter_mut()
        .flatten()
        .zip(&mut sinks)
        .map(|(slot, sink)| Lane { turn: &mut slot.turn, sink, speculator: slot.speculator.as_mut() })
        .collect();
    let went = round(context, &mut lanes, pace.most_reading(decoding), interrupt)?;
    pace.saw(decoding, went.reading, went.took);
    for (slot, Counted(tokens)) in slots.iter().flatten().zip(sinks).filter(|(_, sink)| sink.0 > 0) {
        requests.emitted(slot.number, tokens);
    }
    Ok(())
}

fn unfit(request: &Request, share: Share) -> Option<Error> {
    let (len, most) = (request.prompt.len(), share.tokens);
    if len == 0 {
        return Some(Error::usage("the prompt is empty"));
    }
    (len >= most).then(|| {
        let message = format!("the prompt has {len} tokens and its share is {most}: {} too many", len + 1 - most);
        Error::new(Kind::TooLong, message).hint("a larger --ctx, or a smaller --parallel, makes the share larger")
    })
}

fn shared(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Whether another turn is about to read more of what `prompt` begins with than there is to copy now.
fn waits(context: &dyn Context, slots: &[Option<Slot>], prompt: &[Token]) -> bool {
    if context.capabilities().save == Save::Whole {
        return false;
    }
    let now = (0..slots.len()).map(|seq| shared(context.tokens(seq as Seq), prompt)).max().unwrap_or(0);
    slots.iter().flatten().filter(|slot| slot.turn.emitted() == 0).any(|slot| {
        let own = &slot.turn.tokens()[..slot.turn.prompt_len()];
        shared(own, &prompt[..prompt.len() - 1]) >= now + WORTH_WAITING
    })
}

/// Puts what is known of the prompt's beginning into a free sequence: one that has it, or a copy of one that does. Answers
/// which.
fn begin(context: &mut dyn Context, slots: &[Option<Slot>], prompt: &[Token], free: Seq) -> Result<Seq, EngineError> {
    let most = prompt.len() - 1;
    let known = |context: &dyn Context, seq: usize| shared(context.tokens(seq as Seq), &prompt[..most]);
    if context.capabilities().save == Save::Whole {
        context.trim(free, 0)?;
        return Ok(free);
    }
    let best = (0..slots.len()).max_by_key(|seq| (known(context, *seq), slots[*seq].is_none()));
    let best = best.unwrap_or(free as usize);
    let len = known(context, best);
    if slots[best].is_none() {
        match context.trim(best as Seq, len) {
            Err(EngineError::CannotTrim { .. }) => context.trim(best as Seq, 0)?,
            trimmed => trimmed?,
        }
        return Ok(best as Seq);
    }
    context.trim(free, 0)?;
    if len > 0 {
        context.fork(best as Seq, free, 0..len)?;
    }
    Ok(free)
}

fn start<'v>(
    model: &'v Arc<dyn Model>,
    context: &dyn Context,
    seq: Seq,
    number: usize,
    request: Request,
    share: Share,
) -> Slot<'v> {
    let Request { prompt, mut settings, mut speculator } = request;
    // The last token emitted needs no place.
    let budget = settings.max_tokens.unwrap_or(usize::MAX).min(share.tokens + 1 - prompt.len());
    settings.max_tokens = Some(budget);
    if let Some(speculator) = &mut speculator {
        speculator.begin(&settings.sampling, share.tokens, budget);
    }
    let cached = context.tokens(seq).len();
    Slot { number, turn: Turn::new(seq, model.vocab(), prompt, cached, settings), speculator }
}

fn failed(error: EngineError) -> Error {
    match error {
        EngineError::OutOfMemory { .. } => {
            Error::failed(error).hint("take a smaller --parallel, a smaller --ctx or --kv q8_0")
        }
        EngineError::Aborted => Error::interrupted(),
        error => Error::failed(format!("the engine failed: {error}")).hint("-vv shows llama.cpp's log"),
    }
}

/// Whether an answer ended because its share was used up, not because of what was asked.
pub fn was_cut(answer: &Answer, asked: Option<usize>) -> bool {
    answer.finish == Finish::Length && asked.is_none_or(|most| answer.tokens.len() < most)
}
