//! One answer as a state machine: it says which rows it wants evaluated, takes their logits, emits tokens.
//!
//! Invariants: `tokens` is prompt + emitted. The KV holds a prefix of it; what follows that prefix is what the turn wants
//! evaluated next. While decoding that is exactly one pending token: emitted, not yet in the KV. The rows of a draft follow
//! the pending one and are judged in order by the same `absorb`; plain decoding is a draft of zero.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::cached::{Restored, Saved};
use super::constraint::Constraint;
use super::draft::{Judged, Proposed};
use super::logprobs::Logprobs;
use super::stats::{Answer, Finish, Timings};
use super::text::{Place, Reasoning, Sink, TextStream};
use crate::engine::{Grammar, Row, Seq, Token, Vocab};
use crate::sample::{Sampler, Sampling};

/// What one answer is made with.
#[derive(Clone, Debug)]
pub struct TurnSettings {
    pub sampling: Sampling,
    /// Stop strings.
    pub stops: Vec<String>,
    /// The most tokens to emit.
    pub max_tokens: Option<usize>,
    pub reasoning: Reasoning,
    /// Ends thoughts that grow too long.
    pub thoughts: Option<ThoughtLimit>,
    /// Lengths of the prompt where others may part from it: models of which only whole states can be saved are saved there.
    pub boundaries: Vec<usize>,
    /// What the content is kept to.
    pub grammar: Option<Grammar>,
    /// What the content begins with: the end of the prompt, and the beginning of what is shown.
    pub prefill: String,
    /// Likeliest tokens whose probabilities are kept at each place.
    pub logprobs: Option<usize>,
}

impl Default for TurnSettings {
    fn default() -> Self {
        Self {
            sampling: Sampling::greedy(),
            stops: Vec::new(),
            max_tokens: None,
            reasoning: Reasoning::Off,
            thoughts: None,
            boundaries: Vec::new(),
            grammar: None,
            prefill: String::new(),
            logprobs: None,
        }
    }
}

/// How long thoughts may grow, and what ends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThoughtLimit {
    /// Tokens of thoughts.
    pub tokens: usize,
    /// What the model is made to say then.
    pub end: Vec<Token>,
}

/// One answer in the making.
pub struct Turn<'v> {
    seq: Seq,
    vocab: &'v dyn Vocab,
    tokens: Vec<Token>,
    prompt_len: usize,
    cached: usize,
    max_tokens: usize,
    /// Lengths of the prompt that are to be read up to exactly, the next one last.
    marks: Vec<usize>,
    /// Proposed tokens behind the pending one, to be judged in the next round.
    draft: Vec<Token>,
    sampler: Sampler,
    constraint: Option<Constraint>,
    text: TextStream,
    limit: Option<ThoughtLimit>,
    /// Tokens of thoughts so far.
    thought: usize,
    /// Tokens that come next whatever the model would say.
    forced: VecDeque<Token>,
    logprobs: Option<Logprobs>,
    piece: Vec<u8>,
    finish: Option<Finish>,
    began: Instant,
    prefill: Option<Duration>,
    decode: Duration,
    sampling: Duration,
}

impl<'v> Turn<'v> {
    /// A turn over `prompt`, of which the sequence already holds the first `cached` tokens.
    pub fn new(seq: Seq, vocab: &'v dyn Vocab, prompt: Vec<Token>, cached: usize, settings: TurnSettings) -> Self {
        // Behind a template the first piece's space is the tokenizer's; where text is continued it is the model's.
        let begins = settings.reasoning != Reasoning::Off || settings.grammar.is_some();
        let trims_first_space = vocab.spaces_first_piece() && begins && settings.prefill.is_empty();
        let mut constraint = settings.grammar.map(|grammar| Constraint::new(grammar, vocab));
        let fits = constraint.as_mut().is_none_or(|own| own.began_with(&settings.prefill, vocab).is_ok());
        let mut turn = Self {
            seq,
            vocab,
            prompt_len: prompt.len(),
            tokens: prompt,
            cached,
            max_tokens: settings.max_tokens.unwrap_or(usize::MAX),
            text: TextStream::new(settings.reasoning, &settings.stops, trims_first_space, settings.prefill),
            marks: Vec::new(),
            draft: Vec::new(),
            sampler: Sampler::new(settings.sampling),
            limit: settings.thoughts,
            thought: 0,
            forced: VecDeque::new(),
            constraint,
            logprobs: settings.logprobs.map(Logprobs::new),
            piece: Vec::new(),
            finish: match settings.max_tokens {
                _ if !fits => Some(Finish::Stuck),
                Some(0) => Some(Finish::Length),
                _ => None,
            },
            began: Instant::now(),
            prefill: None,
            decode: Duration::ZERO,
            sampling: Duration::ZERO,
        };
        turn.limit_thoughts();
        turn
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }

    pub fn finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Prompt and emitted tokens so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn emitted(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Prompt and emitted tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// Tokens of the prompt that were not to be read.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// How many tokens there are.
    pub fn vocabulary_len(&self) -> usize {
        self.vocab.len()
    }

    /// Tokens that it may still emit.
    pub fn left(&self) -> usize {
        self.max_tokens.saturating_sub(self.emitted())
    }

    /// Whether exactly the pending token is left to evaluate for a sequence that holds `held` tokens: a draft may follow.
    pub fn is_decoding(&self, held: usize) -> bool {
        !self.finished() && self.emitted() > 0 && held + 1 == self.tokens.len()
    }

    /// Has the driver come back when exactly so many tokens of the prompt are read, for each of `marks`.
    pub fn stop_at(&mut self, mut marks: Vec<usize>) {
        marks.retain(|mark| (self.cached + 1..=self.prompt_len).contains(mark));
        marks.sort_unstable_by_key(|mark| std::cmp::Reverse(*mark));
        marks.dedup();
        self.marks = marks;
    }

    /// Whether a sequence that holds `held` tokens is at a mark; each counts once.
    pub fn pass_mark(&mut self, held: usize) -> bool {
        let here = self.marks.last() == Some(&held);
        // One that lies behind was passed while something was read again.
        self.marks.retain(|mark| *mark > held);
        here
    }

    /// Puts a draft behind the pending token, for the next round.
    pub fn propose(&mut self, draft: &[Proposed]) {
        self.draft.clear();
        self.draft.extend(draft.iter().map(|proposed| proposed.token));
    }

    /// Appends the rows that come next, at most `limit`, for a sequence that holds `held` tokens of this turn.
    pub fn next_rows(&self, held: usize, limit: usize, rows: &mut Vec<Row>) {
        if self.finished() {
            return;
        }
        let limit = self.marks.last().map_or(limit, |mark| limit.min(mark.saturating_sub(held).max(1)));
        let wanted = self.tokens[held..].iter().chain(&self.draft).zip(held..);
        rows.extend(wanted.take(limit).map(|(token, pos)| Row {
            seq: self.seq,
            token: *token,
            pos,
            want_logits: pos + 1 >= self.tokens.len(),
        }));
    }

    /// Takes the logits of its rows that wanted some, in order: samples the token of each position and emits it, as long as
    /// that is the token that the next row was evaluated with. What the KV holds behind [`Turn::valid`] is wrong then.
    pub fn absorb<'l>(&mut self, logits: impl IntoIterator<Item = &'l [f32]>, sink: &mut dyn Sink) -> Judged {
        let draft = std::mem::take(&mut self.draft);
        let mut judged = Judged::default();
        let mut proposals = draft.iter();
        for logits in logits {
            let began = Instant::now();
            let token = self.forced.pop_front().or_else(|| self.sample(logits));
            self.sampling += began.elapsed();
            let Some(token) = token else {
                self.end(Finish::Stuck, sink);
                break;
            };
            let agreed = proposals.next() == Some(&token);
            judged.accepted += usize::from(agreed);
            let before = self.tokens.len();
            self.emit(token, sink);
            judged.emitted += self.tokens.len() - before;
            if let Some(logprobs) = self.logprobs.as_mut().filter(|_| self.tokens.len() > before) {
                logprobs.take(token, logits);
            }
            if !agreed || self.finished() {
                break;
            }
        }
        self.draft = draft;
        self.draft.clear();
        judged
    }

    fn sample(&mut self, logits: &[f32]) -> Option<Token> {
        let (pos, answer) = (self.tokens.len(), &self.tokens[self.prompt_len..]);
        match &mut self.constraint {
            None => Some(self.sampler.sample(logits, pos, answer)),
            Some(constraint) => {
                constraint.sample(&mut self.sampler, logits, pos, answer, self.text.place(), self.vocab)
            }
        }
    }

    /// How many of these tokens could follow, as far as a grammar says.
    pub fn fitting(&mut self, tokens: &[Token]) -> usize {
        self.constraint.as_mut().map_or(usize::MAX, |constraint| constraint.fitting(tokens, self.text.place()))
    }

    /// How much of what the sequence holds after [`Turn::absorb`] is this turn's: all but the last token emitted, except
    /// where that one was drafted and the answer ended with it.
    pub fn valid(&self, held_before: usize, judged: Judged) -> usize {
        (held_before + 1 + judged.accepted).min(self.tokens.len())
    }

    fn emit(&mut self, token: Token, sink: &mut dyn Sink) {
        let prefill = *self.prefill.get_or_insert_with(|| self.began.elapsed());
        if self.vocab.is_end(token) {
            self.end(Finish::Stop, sink);
            return;
        }
        // Up to the last token of the answer: the one that ended it is not counted, so neither is its step.
        self.decode = self.began.elapsed().saturating_sub(prefill);
        self.tokens.push(token);
        self.piece.clear();
        self.vocab.piece(token, &mut self.piece);
        let place = self.text.place();
        self.thought += usize::from(place == Place::Thoughts);
        let pushed = self.text.push(&self.piece, sink);
        self.limit_thoughts();
        let over = self.keep_to_grammar(token, place);
        match pushed {
            Err(_) => self.finish = Some(Finish::ReaderGone),
            Ok(true) => self.finish = Some(Finish::Stop),
            Ok(false) if over.is_some() => self.end(over.unwrap_or(Finish::Stop), sink),
            Ok(false) if self.emitted() >= self.max_tokens => self.end(Finish::Length, sink),
            Ok(false) => {}
        }
    }

    fn limit_thoughts(&mut self) {
        if self.text.place() == Place::Thoughts
            && let Some(limit) = self.limit.take_if(|limit| self.thought >= limit.tokens)
        {
            self.forced = limit.end.into();
        }
    }

    /// Tells the grammar of a token that was emitted at `place`; whether that ends the answer.
    fn keep_to_grammar(&mut self, token: Token, place: Place) -> Option<Finish> {
        let constraint = self.constraint.as_mut()?;
        let mut taken = constraint.emitted(token, place, &self.piece);
        if place == Place::Thoughts && self.text.place() == Place::Content {
            taken = constraint.began_with(&self.text.content, self.vocab);
        }
        match taken {
            Err(_) => Some(Finish::Stuck),
            Ok(()) => (self.text.place() == Place::Content && constraint.is_over()).then_some(Finish::Stop),
        }
    }

    /// Ends the answer where it stands; what was held back is shown.
    pub fn end(&mut self, finish: Finish, sink: &mut dyn Sink) {
        if self.finish.is_none() {
            let shown = self.text.finish(sink);
            self.finish = Some(if shown.is_err() { Finish::ReaderGone } else { finish });
        }
    }

    /// What came of it.
    pub fn into_answer(mut self) -> Answer {
        // One that was cut where it might have gone on is not the whole one, though it fits (`no` of `none`, 4 of 42).
        let was_cut = self.finish == Some(Finish::Length);
        let is_whole = |own: &mut Constraint| if was_cut { own.is_over() } else { own.is_complete() };
        let is_complete = self.constraint.as_mut().is_none_or(is_whole);
        Answer {
            is_complete,
            logprobs: self.logprobs.map(Logprobs::into_tokens),
            content: self.text.content,
            reasoning: self.text.reasoning,
            finish: self.finish.unwrap_or(Finish::Interrupted),
            tokens: self.tokens[self.prompt_len..].to_vec(),
            prompt_tokens: self.prompt_len,
            cached_tokens: self.cached,
            restored: Restored::default(),
            saved: Saved::default(),
            first_token: self.prefill.map(|prefill| self.began + prefill),
            speculation: None,
            timings: Timings {
                prefill: self.prefill.unwrap_or_default(),
                decode: self.decode,
                sampling: self.sampling,
                prefilled: if self.prefill.is_some() { self.prompt_len - self.cached } else { 0 },
            },
        }
    }
}
