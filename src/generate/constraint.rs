//! An answer kept to a grammar: thoughts go free, what follows them does not.

use super::text::Place;
use crate::engine::{EngineError, Grammar, Token, Vocab};
use crate::sample::Sampler;

/// White space between thoughts and content that is let through: it is not shown.
const MOST_BETWEEN: usize = 2;

/// A grammar and where the answer stands.
pub(super) struct Constraint {
    grammar: Grammar,
    /// The token that begins thoughts, where the vocabulary has one.
    opens: Option<Token>,
    ends: Vec<Token>,
    between: usize,
    masked: Vec<f32>,
}

impl Constraint {
    pub(super) fn new(grammar: Grammar, vocab: &dyn Vocab) -> Self {
        let specials = vocab.specials();
        let opens = specials.iter().find(|special| special.text == super::text::OPEN).map(|special| special.token);
        let ends = specials.iter().map(|special| special.token).filter(|token| vocab.is_end(*token)).collect();
        Self { grammar, opens, ends, between: 0, masked: Vec::new() }
    }

    /// Whether the grammar is not asked about this token at this place.
    fn is_free(&self, token: Token, place: Place, piece: &[u8]) -> bool {
        match place {
            Place::Thoughts => true,
            Place::Start => self.opens == Some(token),
            Place::Between => self.between < MOST_BETWEEN && !piece.is_empty() && piece.trim_ascii().is_empty(),
            Place::Content => false,
        }
    }

    fn allows(&mut self, token: Token, place: Place, piece: &[u8]) -> bool {
        match place {
            // Thoughts alone are no answer.
            Place::Thoughts => !self.ends.contains(&token),
            _ => self.is_free(token, place, piece) || self.grammar.allows(token),
        }
    }

    /// The sampled token where it is allowed, else the one sampled from those that are; none where there is none.
    pub(super) fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        pos: usize,
        answer: &[Token],
        place: Place,
        vocab: &dyn Vocab,
    ) -> Option<Token> {
        let token = sampler.sample(logits, pos, answer);
        let mut piece = Vec::new();
        vocab.piece(token, &mut piece);
        if self.allows(token, place, &piece) {
            return Some(token);
        }
        self.masked.clear();
        self.masked.extend_from_slice(logits);
        let any = match place {
            Place::Thoughts => {
                self.ends.iter().for_each(|end| self.masked[end.index()] = f32::NEG_INFINITY);
                true
            }
            _ => self.grammar.mask(&mut self.masked),
        };
        any.then(|| sampler.sample(&self.masked, pos, answer))
    }

    /// Takes in a token that was emitted at `place`.
    pub(super) fn emitted(&mut self, token: Token, place: Place, piece: &[u8]) -> Result<(), EngineError> {
        if self.is_free(token, place, piece) {
            self.between += usize::from(place == Place::Between);
            return Ok(());
        }
        self.grammar.accept(token)
    }

    /// Takes in content that came in one token with the end of thoughts.
    pub(super) fn began_with(&mut self, content: &str, vocab: &dyn Vocab) -> Result<(), EngineError> {
        vocab.tokenize(content).into_iter().try_for_each(|token| self.grammar.accept(token))
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.grammar.is_over()
    }

    pub(super) fn is_complete(&mut self) -> bool {
        self.grammar.is_complete()
    }

    /// How many of these tokens can all be said, one after the other. Not asked outside the content.
    pub(super) fn fitting(&mut self, tokens: &[Token], place: Place) -> usize {
        if place == Place::Content { self.grammar.fitting(tokens) } else { usize::MAX }
    }
}
