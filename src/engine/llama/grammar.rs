//! What may come next, with llama.cpp's grammar sampler.
//!
//! llama.cpp ends the process where it is told of an end token too early, or asked after a token that did not fit; it
//! takes a control token for its name, and lets broken UTF-8 through. None of that gets past this file: every token is
//! checked before the sampler is told of it, and a grammar that lost its place allows nothing.

use std::sync::{Arc, OnceLock};

use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

use super::gbnf;
use super::vocab::LlamaVocab;
use crate::engine::{EngineError, Grammar, GrammarError, Token, TokenKind, Vocab};

/// A grammar at a place of a text.
pub(super) struct LlamaGrammar {
    sampler: LlamaSampler,
    // The sampler points into the model, which the vocabulary keeps.
    vocab: Arc<LlamaVocab>,
    /// The bytes of a character that is not complete.
    pending: Vec<u8>,
    /// Whether a token was taken that did not fit: the sampler must not be asked any more.
    lost: bool,
    /// Room for one and for all candidates.
    one: LlamaTokenDataArray,
    all: LlamaTokenDataArray,
}

/// What llama.cpp does not tell apart, looked up once a model.
#[derive(Default)]
pub(super) struct Odd {
    /// Control tokens that do not end an answer, and pieces with a NUL: they have no text here.
    never: Vec<Token>,
    ends: Vec<Token>,
    /// Pieces that are not UTF-8 by themselves.
    broken: Vec<(Token, Vec<u8>)>,
    /// A token for each byte that a piece can begin with; none where a byte has no token of its own.
    bytes: Vec<(Token, u8)>,
}

impl Odd {
    fn of(vocab: &LlamaVocab) -> Self {
        let mut this = Self::default();
        let controls = vocab.specials().iter().filter(|special| special.kind == TokenKind::Control);
        let (ends, never) = controls.map(|special| special.token).partition(|token| vocab.is_end(*token));
        (this.ends, this.never) = (ends, never);
        let (mut begins, mut alone) = ([false; 256], [None; 256]);
        let mut piece = Vec::new();
        for token in (0..vocab.len()).map(Token::from_index) {
            piece.clear();
            vocab.piece(token, &mut piece);
            match piece[..] {
                [] => continue,
                [byte] => alone[usize::from(byte)] = Some(token),
                [byte, ..] => begins[usize::from(byte)] = true,
            }
            if piece.contains(&0) {
                this.never.push(token);
            } else if std::str::from_utf8(&piece).is_err() {
                this.broken.push((token, piece.clone()));
            }
        }
        if begins.iter().zip(&alone).all(|(begins, alone)| !begins || alone.is_some()) {
            this.bytes = alone.into_iter().zip(0..=u8::MAX).filter_map(|(token, byte)| Some((token?, byte))).collect();
        }
        this
    }
}

/// White space that is tried, to see whether anything else may follow it.
const SPACES: usize = 3;

/// The rule that the grammar begins with: sentence-piece puts a space before the first word, which is not shown.
const SPACED: &str = "qchat-spaced-root";

impl LlamaGrammar {
    /// Compiles a grammar; its rule `root` is where it begins.
    pub(super) fn new(vocab: &Arc<LlamaVocab>, gbnf: &str) -> Result<Self, GrammarError> {
        // llama.cpp prints what it finds wrong to stderr, without the place.
        gbnf::check(gbnf)?;
        let (source, root) = if vocab.spaces_first_piece() {
            (format!("{gbnf}\n{SPACED} ::= \" \"? root\n"), SPACED)
        } else {
            (gbnf.to_owned(), gbnf::ROOT)
        };
        super::last_error();
        let sampler = LlamaSampler::grammar(vocab.weights(), &source, root).map_err(|error| {
            let cause = super::last_error().unwrap_or_else(|| error.to_string());
            GrammarError { place: None, cause }
        })?;
        let array = |len| LlamaTokenDataArray::new(Vec::with_capacity(len), false);
        Ok(Self { sampler, vocab: Arc::clone(vocab), pending: Vec::new(), lost: false, one: array(1), all: array(0) })
    }

    fn odd(&self) -> &Odd {
        self.vocab.odd.get_or_init(|| Odd::of(&self.vocab))
    }

    /// What would be pending after these bytes; none where no text goes on like that.
    fn after(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let whole = [&self.pending, bytes].concat();
        match std::str::from_utf8(&whole) {
            Ok(_) => Some(Vec::new()),
            Err(error) if error.error_len().is_none() => Some(whole[error.valid_up_to()..].to_vec()),
            Err(_) => None,
        }
    }

    /// Whether nothing but white space may follow, as far as `depth` characters of it tell. The converter allows some behind
    /// every JSON value.
    fn ends_in_space(&mut self, depth: usize) -> bool {
        let bytes = self.odd().bytes.clone();
        self.all.data.clear();
        self.all.data.extend(bytes.iter().map(|(token, _)| LlamaTokenData::new(LlamaToken(token.0), 0.0, 0.0)));
        self.all.apply_sampler(&mut self.sampler);
        let allowed =
            |(own, candidate): (&(Token, u8), &LlamaTokenData)| (candidate.logit() > f32::NEG_INFINITY).then_some(*own);
        let allowed: Vec<_> = bytes.iter().zip(&self.all.data).filter_map(allowed).collect();
        let after = |token: Token| {
            let mut next = self.copy();
            next.accept(token).is_ok() && next.ends_in_space(depth - 1)
        };
        !bytes.is_empty()
            && allowed.iter().all(|(token, byte)| byte.is_ascii_whitespace() && (depth == 0 || after(*token)))
    }

    fn copy(&self) -> Self {
        let array = || LlamaTokenDataArray::new(Vec::new(), false);
        Self {
            sampler: self.sampler.clone(),
            vocab: Arc::clone(&self.vocab),
            pending: self.pending.clone(),
            lost: self.lost,
            one: array(),
            all: array(),
        }
    }

    fn sampler_allows(&mut self, token: Token) -> bool {
        self.one.data.clear();
        self.one.data.push(LlamaTokenData::new(LlamaToken(token.0), 0.0, 0.0));
        self.one.apply_sampler(&mut self.sampler);
        self.one.data[0].logit() > f32::NEG_INFINITY
    }
}

impl Grammar for LlamaGrammar {
    fn allows(&mut self, token: Token) -> bool {
        if self.lost || token.index() >= self.vocab.len() {
            return false;
        }
        if self.vocab.is_end(token) {
            return self.pending.is_empty() && self.sampler_allows(token);
        }
        let mut piece = Vec::new();
        self.vocab.piece(token, &mut piece);
        // A control token has no text here.
        !piece.is_empty() && !piece.contains(&0) && self.after(&piece).is_some() && self.sampler_allows(token)
    }

    fn accept(&mut self, token: Token) -> Result<(), EngineError> {
        let misfit = || EngineError::Failed(format!("token {} does not fit the grammar", token.0));
        if !self.allows(token) {
            self.lost = true;
            return Err(misfit());
        }
        if self.vocab.is_end(token) {
            return Ok(());
        }
        let mut piece = Vec::new();
        self.vocab.piece(token, &mut piece);
        self.pending = self.after(&piece).unwrap_or_default();
        self.sampler.try_accept(LlamaToken(token.0)).map_err(|_| {
            self.lost = true;
            misfit()
        })
    }

    fn mask(&mut self, logits: &mut [f32]) -> bool {
        if self.lost {
            logits.fill(f32::NEG_INFINITY);
            return false;
        }
        let known = logits.len().min(self.vocab.len());
        let (known, unknown) = logits.split_at_mut(known);
        unknown.fill(f32::NEG_INFINITY);
        self.all.data.clear();
        let candidate = |(id, logit): (i32, &f32)| LlamaTokenData::new(LlamaToken(id), *logit, 0.0);
        self.all.data.extend((0..).zip(known.iter()).map(candidate));
        self.all.apply_sampler(&mut self.sampler);
        for (logit, candidate) in known.iter_mut().zip(&self.all.data) {
            *logit = candidate.logit();
        }
        let odd = self.odd();
        let broken = odd.broken.iter().filter(|(_, piece)| self.after(piece).is_none()).map(|(token, _)| token);
        let ends = odd.ends.iter().filter(|_| !self.pending.is_empty());
        for token in odd.never.iter().chain(broken).chain(ends) {
            if let Some(logit) = known.get_mut(token.index()) {
                *logit = f32::NEG_INFINITY;
            }
        }
        known.iter().any(|logit| *logit > f32::NEG_INFINITY)
    }

    fn is_complete(&mut self) -> bool {
        let end = self.odd().ends.first().copied();
        end.is_some_and(|end| self.allows(end))
    }

    fn is_over(&mut self) -> bool {
        self.is_complete() && self.ends_in_space(SPACES)
    }

    fn fork(&self) -> Box<dyn Grammar> {
        Box::new(self.copy())
    }
}

impl std::fmt::Debug for LlamaGrammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LlamaGrammar").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// The vocabulary's place for what is looked up once.
pub(super) type OddOnce = OnceLock<Odd>;

/// Where the converter's grammar lets through what is no JSON to a strict reader: names of open objects that begin with a
/// backslash or a control character, exponents of sixteen digits, and halves of surrogate pairs.
const STRICTER: [(&str, &str); 3] = [
    (r#"[^""#, r#"[^"\\\x7F\x00-\x1F"#),
    ("([eE] [-+]? integral-part)?", "([eE] [-+]? [0-9]{1,2})?"),
    (
        r#""u" [0-9a-fA-F]{4})"#,
        r#""u" ([0-9a-cefA-CEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | [dD] [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}))"#,
    ),
];

/// The grammar of a JSON Schema, in GBNF.
///
/// # Errors
/// What the converter does not take. It does not say what, so that is to be found out before.
pub fn schema_to_gbnf(schema: &serde_json::Value) -> Result<String, GrammarError> {
    let gbnf = llama_cpp_2::json_schema_to_grammar(&schema.to_string())
        .map_err(|_| GrammarError { place: None, cause: "llama.cpp cannot make a grammar of this schema".into() })?;
    Ok(STRICTER.iter().fold(gbnf, |gbnf, (lax, strict)| gbnf.replace(lax, strict)))
}
