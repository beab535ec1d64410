//! What may come next where an answer is kept to a shape. JSON and choices are llguidance's (an Earley parser over derivatives
//! of regular expressions); GBNF, which knows no lexemes, has an automaton of its own over llguidance's trie of the vocabulary.

mod automaton;
mod gbnf;

use std::sync::{Arc, OnceLock};

use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use llguidance::toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

use super::{EngineError, Token, TokenKind, Vocab};

/// What a text is to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Rules {
    /// JSON of this JSON Schema.
    Schema(Value),
    /// A text of this grammar, in llama.cpp's GBNF.
    Gbnf(String),
    /// One of these.
    Texts(Vec<String>),
}

/// Why something is not a grammar.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}{cause}", place.map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct GrammarError {
    pub place: Option<Place>,
    pub cause: String,
}

/// A place in a text, counted from 1 in lines and characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    /// The place of a byte.
    pub fn of(text: &str, at: usize) -> Self {
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// White space between the parts of JSON, which a model could go on with for ever.
const SPACE: &str = r"( |\n{1,2}[ \t]{0,20})";

/// Bytes of a piece that the trie takes.
const LONGEST_PIECE: usize = 1000;
/// References of a schema: each may lead to the next, and llguidance calls itself for it, on a stack of this size.
const MOST_REFERENCES: usize = 2000;
const STACK: usize = 64 << 20;

/// What llguidance puts before what is wrong with a schema.
const IN_SCHEMA: &str = "failed to compile JSON schema: ";

/// A vocabulary as grammars see it, made when one first asks.
#[derive(Default)]
pub struct Grammars(OnceLock<Result<Shared, String>>);

#[derive(Clone)]
struct Shared {
    factory: Arc<ParserFactory>,
    /// The tokens that end an answer.
    ends: Arc<[Token]>,
    tokens: usize,
}

/// A vocabulary as llguidance wants it. Nothing is tokenised there: only what the model says is looked at.
struct Pieces(TokTrie);

impl TokenizerEnv for Pieces {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.0.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Shared {
    fn of(vocab: &dyn Vocab) -> Result<Self, String> {
        let mut pieces = vec![Vec::new(); vocab.len()];
        for (index, piece) in pieces.iter_mut().enumerate() {
            vocab.piece(Token::from_index(index), piece);
            // No text has a NUL.
            if piece.contains(&0) || piece.len() > LONGEST_PIECE {
                piece.clear();
            }
        }
        let ends: Arc<[Token]> = (0..pieces.len()).map(Token::from_index).filter(|own| vocab.is_end(*own)).collect();
        // A control token has no text, nor has one that ends an answer.
        let controls = vocab.specials().iter().filter(|special| special.kind == TokenKind::Control);
        let silent = controls.map(|special| special.token).chain(ends.iter().copied());
        silent.for_each(|token| pieces[token.index()].clear());
        let end = ends.first().map_or(INVALID_TOKEN, |end| end.0 as u32);
        let trie = TokTrie::from(&TokRxInfo::new(pieces.len() as u32, end), &pieces);
        let env: TokEnv = Arc::new(Pieces(trie));
        // Slices would make masks faster, but take longer to make than all masks of an answer: most tokens fit unmasked.
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        let mut factory = factory.map_err(|error| error.to_string())?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: 20_000_000,
            step_lexer_fuel: 1_000_000,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Self { factory: Arc::new(factory), ends, tokens: pieces.len() })
    }
}

impl Grammars {
    /// Compiles rules for the vocabulary that this belongs to; answers also what of a schema is not enforced.
    ///
    /// # Errors
    /// What is wrong with the rules.
    pub fn compile(&self, vocab: &dyn Vocab, rules: &Rules) -> Result<(Grammar, Vec<String>), GrammarError> {
        let wrong = |cause: String| GrammarError { place: None, cause };
        let shared = self.0.get_or_init(|| Shared::of(vocab)).clone().map_err(wrong)?;
        // Sentence-piece puts a space before the first word, which is not shown.
        let spaced = vocab.spaces_first_piece();
        let value = match rules {
            Rules::Schema(schema) => format!("%json {}", options(schema.clone()).map_err(wrong)?),
            Rules::Texts(texts) => texts.iter().map(|text| literal(text)).collect::<Vec<_>>().join(" | "),
            Rules::Gbnf(source) => {
                let text = automaton::Text::new(gbnf::program(source)?);
                return Ok((Grammar { place: At::Gbnf { text, may_space: spaced }, shared }, Vec::new()));
            }
        };
        let lark = format!("start: {}value\nvalue: {value}\n", if spaced { "\" \"? " } else { "" });
        let compile = || Matcher::new(shared.factory.create_parser(TopLevelGrammar::from_lark(lark)));
        let compiled = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, compile);
            thread.ok()?.join().ok()
        });
        let mut matcher = compiled.ok_or_else(|| wrong("it could not be compiled".into()))?;
        if let Some(error) = matcher.get_error() {
            // The place is one of the text around the schema, which nobody wrote.
            let said = error.lines().next().unwrap_or_default();
            return Err(wrong(said.split_once(IN_SCHEMA).map_or(said, |(_, cause)| cause).to_owned()));
        }
        let warnings = matcher.grammar_warnings();
        Ok((Grammar { place: At::Guided(Box::new(matcher)), shared }, warnings))
    }
}

/// The schema with how llguidance is to take it: what it does not know is said, not refused.
fn options(mut schema: Value) -> Result<Value, String> {
    if schema == true {
        schema = Value::Object(serde_json::Map::new());
    }
    if references(&schema) > MOST_REFERENCES {
        return Err(format!("more than {MOST_REFERENCES} references"));
    }
    if !composes(&schema) {
        close(&mut schema);
    }
    let Value::Object(fields) = &mut schema else {
        return Err("a schema is an object, like {\"type\": \"object\"}".into());
    };
    let options = serde_json::json!({ "whitespace_pattern": SPACE, "lenient": true });
    fields.insert("x-guidance".into(), options);
    Ok(schema)
}

fn references(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            usize::from(fields.contains_key("$ref")) + fields.values().map(references).sum::<usize>()
        }
        Value::Array(parts) => parts.iter().map(references).sum(),
        _ => 0,
    }
}

/// Keywords whose values are no schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Whether objects are put together of several schemas, none of which knows all names.
fn composes(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let several = ["properties", "$ref", "anyOf", "oneOf"].iter().filter(|name| fields.contains_key(**name));
            fields.contains_key("allOf")
                || several.count() > 1
                || fields.iter().any(|(name, part)| !DATA.contains(&name.as_str()) && composes(part))
        }
        Value::Array(parts) => parts.iter().any(composes),
        _ => false,
    }
}

/// Objects have the properties that are listed and no others, where nothing is said of others: a model goes on for long with
/// whatever it may invent.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let listed = fields.get("properties").and_then(Value::as_object);
            let asked = fields.get("required").and_then(Value::as_array).into_iter().flatten();
            let lists =
                listed.is_some_and(|listed| asked.filter_map(Value::as_str).all(|name| listed.contains_key(name)));
            let says = ["additionalProperties", "patternProperties", "unevaluatedProperties"];
            if lists && !says.iter().any(|name| fields.contains_key(*name)) {
                fields.insert("additionalProperties".into(), false.into());
            }
            fields.iter_mut().filter(|(name, _)| !DATA.contains(&name.as_str())).for_each(|(_, part)| close(part));
        }
        Value::Array(parts) => parts.iter_mut().for_each(close),
        _ => {}
    }
}

/// A text as Lark writes it.
fn literal(text: &str) -> String {
    let character = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(character).collect::<String>())
}

/// Where a text stands.
enum At {
    Guided(Box<Matcher>),
    Gbnf {
        text: automaton::Text,
        /// Whether the next piece may begin with a space that is not shown.
        may_space: bool,
    },
}

impl Clone for At {
    fn clone(&self) -> Self {
        match self {
            // What one answer uses up of the lexer's fuel is not another's.
            Self::Guided(matcher) => Self::Guided(Box::new(matcher.deep_clone())),
            Self::Gbnf { text, may_space } => Self::Gbnf { text: text.clone(), may_space: *may_space },
        }
    }
}

/// A grammar and the text so far: what may come next.
#[derive(Clone)]
pub struct Grammar {
    place: At,
    shared: Shared,
}

impl Grammar {
    /// Whether this token may come next; one that ends an answer may where the text is complete.
    pub fn allows(&mut self, token: Token) -> bool {
        if self.is_end(token) { self.is_complete() } else { self.fitting(&[token]) == 1 }
    }

    /// How many of these tokens may come next, one after the other.
    pub fn fitting(&mut self, tokens: &[Token]) -> usize {
        let known = tokens.iter().take_while(|token| token.index() < self.shared.tokens && !self.is_end(**token));
        let known: Vec<u32> = known.map(|token| token.0 as u32).collect();
        match &mut self.place {
            At::Guided(matcher) if matcher.is_stopped() => 0,
            At::Guided(matcher) => matcher.validate_tokens(&known).unwrap_or(0),
            At::Gbnf { text, may_space } => {
                let trie = self.shared.factory.tok_env().tok_trie();
                let pieces = || known.iter().map(|token| trie.token(*token));
                let first = pieces().next().and_then(|piece| piece.strip_prefix(b" ")).filter(|_| *may_space);
                let spaced = first.map_or(0, |first| text.fitting([first].into_iter().chain(pieces().skip(1))));
                text.fitting(pieces()).max(spaced)
            }
        }
    }

    fn is_end(&self, token: Token) -> bool {
        self.shared.ends.contains(&token)
    }

    /// Goes on behind this token.
    ///
    /// # Errors
    /// When it may not come next; nothing may then.
    pub fn accept(&mut self, token: Token) -> Result<(), EngineError> {
        let fits = self.allows(token);
        if fits && self.is_end(token) {
            return Ok(());
        }
        // What does not fit is taken too, so that nothing fits any more.
        let id = u32::try_from(token.0).unwrap_or(u32::MAX);
        let taken = match &mut self.place {
            At::Guided(matcher) => matcher.consume_token(id).is_ok(),
            At::Gbnf { text, may_space } => {
                let piece = if fits { self.shared.factory.tok_env().tok_trie().token(id) } else { b"\xff" };
                let before = text.clone();
                let taken = text.push(piece);
                match piece.strip_prefix(b" ").filter(|_| !taken && *may_space) {
                    Some(piece) => {
                        *text = before;
                        text.push(piece)
                    }
                    None => taken,
                }
            }
        };
        if let At::Gbnf { may_space, .. } = &mut self.place {
            *may_space = false;
        }
        if fits && taken {
            return Ok(());
        }
        Err(EngineError::Failed(format!("token {} does not fit the grammar", token.0)))
    }

    /// Makes the logits of tokens that may not come next negative infinity; whether any other is left.
    pub fn mask(&mut self, logits: &mut [f32]) -> bool {
        let may_end = self.is_complete();
        let trie = self.shared.factory.tok_env().tok_trie();
        let allowed = match &mut self.place {
            At::Guided(matcher) if matcher.is_stopped() => trie.alloc_token_set(),
            At::Guided(matcher) => matcher.compute_mask().unwrap_or_else(|_| trie.alloc_token_set()),
            At::Gbnf { text, may_space } => {
                let mut allowed = text.allowed(trie);
                for token in (0..self.shared.tokens as u32).filter(|_| *may_space) {
                    if let Some(rest @ [_, ..]) = trie.token(token).strip_prefix(b" ")
                        && text.fitting([rest].into_iter()) == 1
                    {
                        allowed.allow_token(token);
                    }
                }
                allowed
            }
        };
        let mut any = false;
        for (index, logit) in logits.iter_mut().enumerate() {
            let token = Token::from_index(index);
            let fits = if self.shared.ends.contains(&token) {
                may_end
            } else {
                index < self.shared.tokens && allowed.is_allowed(index as u32)
            };
            any |= fits;
            *logit = if fits { *logit } else { f32::NEG_INFINITY };
        }
        any
    }

    /// Whether the text may end here.
    pub fn is_complete(&mut self) -> bool {
        match &mut self.place {
            At::Gbnf { text, .. } => text.may_end().0,
            At::Guided(matcher) => match matcher.stop_reason() {
                StopReason::NotStopped => matcher.is_accepting().unwrap_or(false),
                StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => true,
                _ => false,
            },
        }
    }

    /// Whether it has to.
    pub fn is_over(&mut self) -> bool {
        match &self.place {
            At::Gbnf { text, .. } => text.may_end().1,
            At::Guided(matcher) => matcher.is_stopped() && self.is_complete(),
        }
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}
