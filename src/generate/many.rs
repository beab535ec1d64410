//! Many prompts in one context: continuous batching (Yu et al. 2022, "Orca"). A turn that ends is replaced at once, prompts are
//! read in chunks so that the other turns go on, and what a prompt shares with one that was read is not read again.

use std::sync::Arc;

use super::cached::{Cached, Restored, Stays};
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
/// A shared beginning of fewer tokens is not kept on disk, nor as a whole state.
const WORTH_KEEPING: usize = 64;

/// A turn in its sequence.
struct Slot<'v> {
    number: usize,
    turn: Turn<'v>,
    speculator: Option<Speculator>,
    /// What came from disk.
    restored: Restored,
}

impl Slot<'_> {
    fn hand_back(self, requests: &mut dyn Requests) {
        let mut answer = self.turn.into_answer();
        answer.speculation = self.speculator.map(|speculator| speculator.speculation());
        answer.restored = self.restored;
        if answer.finish != Finish::Interrupted {
            requests.done(self.number, Ok(answer));
        }
    }
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

/// Answers all requests. An interrupt ends those that run; they are not handed back. What prompts begin with is taken from
/// `cached`, and what they share goes there.
///
/// # Errors
/// Engine failures.
pub fn answer_many(
    model: &Arc<dyn Model>,
    share: Share,
    interrupt: &Interrupt,
    cached: Option<&mut Cached>,
    requests: &mut dyn Requests,
) -> Result<()> {
    let settings = ContextSettings {
        n_ctx: share.turns * share.tokens,
        sequences: share.turns as u32,
        threads: share.threads,
        cancel: interrupt.flag(),
    };
    let mut context = Arc::clone(model).context(&settings).map_err(failed)?;
    let mut beginnings = Beginnings { cached, kept: 0, state: None, mark: None };
    let done = answer_in(context.as_mut(), model, share, interrupt, &mut beginnings, requests);
    if let Some(cached) = beginnings.cached {
        cached.keep_about(model.as_ref(), context.n_ctx());
    }
    done
}

fn answer_in(
    context: &mut dyn Context,
    model: &Arc<dyn Model>,
    share: Share,
    interrupt: &Interrupt,
    beginnings: &mut Beginnings,
    requests: &mut dyn Requests,
) -> Result<()> {
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
                    } else if beginnings.wait(context, &mut slots, &request.prompt) {
                        pending = Some((number, request));
                        break;
                    } else {
                        let seq = beginnings.share(context, &slots, &request.prompt, free as Seq).map_err(failed)?;
                        let restored =
                            beginnings.keep(model.as_ref(), context, seq, &request.prompt).map_err(failed)?;
                        let slot = start(model, context, seq, number, *request, share, restored);
                        // One whose beginning does not fit its grammar has ended already.
                        if slot.turn.finished() {
                            slot.hand_back(requests);
                        } else {
                            slots[seq as usize] = Some(slot);
                        }
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
        step(context, &mut slots, &mut pace, interrupt, requests).map_err(failed)?;
        for slot in &mut slots {
            if let Some(done) = slot.take_if(|slot| slot.turn.finished()) {
                done.hand_back(requests);
            }
        }
        if interrupt.is_set() {
            return Ok(());
        }
        beginnings.pass(context);
    }
}

/// What prompts begin with: read once, copied to each that begins alike, and kept on disk.
struct Beginnings<'a> {
    cached: Option<&'a mut Cached>,
    /// The longest one that was given to the prefix cache.
    kept: usize,
    /// For models of which only whole states can be copied: the last one that prompts shared.
    state: Option<(Vec<Token>, Vec<u8>)>,
    /// Where the next such state can be had: a sequence, when it holds exactly so many tokens.
    mark: Option<(Seq, usize)>,
}

impl Beginnings<'_> {
    /// Whether another turn is about to read more of what `prompt` begins with than there is to copy now.
    fn wait(&mut self, context: &dyn Context, slots: &mut [Option<Slot>], prompt: &[Token]) -> bool {
        let most = &prompt[..prompt.len() - 1];
        let whole = context.capabilities().save == Save::Whole;
        let now = if whole {
            self.state.as_ref().map_or(0, |(tokens, _)| if most.starts_with(tokens) { tokens.len() } else { 0 })
        } else {
            (0..slots.len()).map(|seq| shared(context.tokens(seq as Seq), most)).max().unwrap_or(0)
        };
        let worth = now + if whole { WORTH_KEEPING } else { WORTH_WAITING };
        for turn in slots.iter_mut().flatten().map(|slot| &mut slot.turn).filter(|turn| turn.emitted() == 0) {
            let (seq, len) = (turn.seq(), shared(&turn.tokens()[..turn.prompt_len()], most));
            if len < worth || whole && context.tokens(seq).len() >= len {
                continue;
            }
            if whole {
                turn.stop_at(vec![len]);
                self.mark = Some((seq, len));
            }
            return true;
        }
        false
    }

    /// Takes the state that is waited for, when it is there.
    fn pass(&mut self, context: &mut dyn Context) {
        if let Some((seq, len)) = self.mark.take_if(|(seq, len)| context.tokens(*seq).len() >= *len)
            && let Ok(state) = context.save(seq, 0..len)
        {
            self.state = Some((context.tokens(seq).to_vec(), state));
        }
    }

    /// Puts what is known of the prompt's beginning into a free sequence: one that has it, or a copy of one that does.
    /// Answers which.
    fn share(
        &self,
        context: &mut dyn Context,
        slots: &[Option<Slot>],
        prompt: &[Token],
        free: Seq,
    ) -> Result<Seq, EngineError> {
        let most = &prompt[..prompt.len() - 1];
        if context.capabilities().save == Save::Whole {
            context.trim(free, 0)?;
            if let Some((tokens, state)) = self.state.as_ref().filter(|(tokens, _)| most.starts_with(tokens))
                && context.load(free, state, tokens).is_err()
            {
                context.trim(free, 0)?;
            }
            return Ok(free);
        }
        let known = |context: &dyn Context, seq: usize| shared(context.tokens(seq as Seq), most);
        let best = (0..slots.len()).max_by_key(|seq| (known(context, *seq), slots[*seq].is_none()));
        let best = best.unwrap_or(free as usize);
        let len = known(context, best);
        if slots[best].is_none() {
            context.trim_or_clear(best as Seq, len)?;
            return Ok(best as Seq);
        }
        context.trim(free, 0)?;
        // What cannot be copied (a window that has moved on) is read again.
        if len > 0 && context.fork(best as Seq, free, 0..len).is_err() {
            context.trim(free, 0)?;
        }
        Ok(free)
    }

    /// Keeps on disk what the prompt, whose beginning `seq` holds, shares with others; loads what it begins with beyond that.
    fn keep(
        &mut self,
        model: &dyn Model,
        context: &mut dyn Context,
        seq: Seq,
        prompt: &[Token],
    ) -> Result<Restored, EngineError> {
        let Some(cached) = &mut self.cached else { return Ok(Restored::default()) };
        let shared = context.tokens(seq).len();
        if shared >= WORTH_KEEPING && shared > self.kept {
            // What cannot be saved is read again another time.
            let saved = cached.save(model, context, seq, shared, Stays::AsLongAsItCan).unwrap_or_default();
            self.kept = if saved.tokens > 0 { shared } else { self.kept };
        }
        cached.restore(model, context, seq, &prompt[..prompt.len() - 1], &[])
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

fn start<'v>(
    model: &'v Arc<dyn Model>,
    context: &dyn Context,
    seq: Seq,
    number: usize,
    request: Request,
    share: Share,
    restored: Restored,
) -> Slot<'v> {
    let Request { prompt, mut settings, mut speculator } = request;
    // The last token emitted needs no place.
    let budget = settings.max_tokens.unwrap_or(usize::MAX).min(share.tokens + 1 - prompt.len());
    settings.max_tokens = Some(budget);
    if let Some(speculator) = &mut speculator {
        speculator.begin(&settings.sampling, share.tokens, budget);
    }
    let cached = context.tokens(seq).len();
    let turn = Turn::new(seq, model.vocab(), prompt, cached, settings);
    Slot { number, turn, speculator, restored }
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
