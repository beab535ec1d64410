//! What an inference engine must offer: a model with a vocabulary, and contexts over it.
//!
//! No prompt, template or sampling rule enters here. `llama/` is the real engine; `scripted` plays one from a file
//! in test builds. Callers ask [`Capabilities`] before they rely on what a model may not allow.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use grammar::{Grammar, GrammarError, Grammars, Rules};

pub mod grammar;
pub mod llama;
#[cfg(feature = "scripted")]
pub mod scripted;

/// A token id of one vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Token(pub i32);

impl Token {
    /// As an index into logits.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub fn from_index(index: usize) -> Self {
        Self(i32::try_from(index).unwrap_or(i32::MAX))
    }
}

/// A sequence of a context: one conversation, or a spare one.
pub type Seq = u32;

/// One token to evaluate at a position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub seq: Seq,
    pub token: Token,
    /// Position in the sequence, from 0; rows of a sequence follow what it holds without a gap.
    pub pos: usize,
    pub want_logits: bool,
}

/// What a model's KV can do. Ask before relying on it: trim, else checkpoint, else prefill again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub rollback: Rollback,
    pub save: Save,
    /// The most rows of one `eval`.
    pub max_rows: usize,
    /// The most rows of one `eval` that may ask for logits.
    pub max_logits: usize,
}

/// How far a sequence can be cut back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// To any position.
    Anywhere,
    /// By at most this many tokens of the last evaluation, once, and not by its first row; 0 means not at all, only cleared.
    AtMost(usize),
}

/// What can be saved of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// The KV of a range of positions, at most so many at once: a sliding window loses more than its own length.
    Ranges { most: usize },
    /// Only the whole state.
    Whole,
}

/// What a saved state depends on besides the content of the model's file. In words, so that it can be shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StateFormat {
    /// The engine and its version.
    pub engine: String,
    pub architecture: String,
    pub layers: u32,
    /// The types of keys and values.
    pub keys: String,
    pub values: String,
    pub flash_attention: bool,
    /// Whether layers with a sliding window keep all positions.
    pub full_window: bool,
    /// How positions are turned into rotations, and for which context where that depends on it.
    pub rope: String,
    pub adapters: Vec<String>,
}

/// How contexts keep keys and values, and attend to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct KvLayout {
    pub kv: KvType,
    /// The attention in one kernel; quantised values need it.
    pub flash_attention: bool,
}

impl Default for KvLayout {
    fn default() -> Self {
        Self { kv: KvType::F16, flash_attention: true }
    }
}

/// The type of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    F16,
    Q8_0,
    Q4_0,
}

impl KvType {
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Bytes of a number: a block of 32 of the quantised ones has a scale of two bytes.
    pub fn bytes(self) -> f64 {
        match self {
            Self::F16 => 2.0,
            Self::Q8_0 => 34.0 / 32.0,
            Self::Q4_0 => 18.0 / 32.0,
        }
    }
}

/// Why an engine could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum EngineError {
    /// Stopped by the interrupt flag. The KV is as it was before the call.
    #[error("stopped")]
    Aborted,
    /// The rows do not fit the context. The KV is as it was before the call.
    #[error("the context of {n_ctx} tokens is full")]
    Full { n_ctx: usize },
    /// The model cannot be cut back that far.
    #[error("this model's state cannot be cut back to position {from}")]
    CannotTrim { from: usize },
    /// The caller's rows contradict the sequence. A bug, reported instead of computed with.
    #[error("row at position {pos} of sequence {seq}, which holds {held} tokens")]
    Gap { seq: Seq, pos: usize, held: usize },
    #[error("out of memory for {what}")]
    OutOfMemory { what: String },
    #[error("{0}")]
    Failed(String),
}

impl dyn Model + '_ {
    /// Compiles rules; answers also what of a schema is not enforced.
    ///
    /// # Errors
    /// What is wrong with the rules.
    pub fn grammar(&self, rules: &Rules) -> Result<(Grammar, Vec<String>), GrammarError> {
        self.grammars().compile(self.vocab(), rules)
    }
}

/// Told how much of a model is loaded, 0 to 1; answers whether to go on.
pub type LoadProgress<'a> = &'a mut dyn FnMut(f32) -> bool;

/// Opens a model file with the engine for it.
///
/// # Errors
/// [`EngineError::Aborted`] when `progress` answers false, else why the file cannot be used.
pub fn open(
    path: &Path,
    settings: &llama::LoadSettings,
    progress: LoadProgress,
) -> Result<Arc<dyn Model>, EngineError> {
    #[cfg(feature = "scripted")]
    if path.extension().is_some_and(|extension| extension == "script") {
        return Ok(Arc::new(scripted::ScriptedModel::load(path, progress)?));
    }
    Ok(Arc::new(llama::LlamaModel::load(path, settings, progress)?))
}

/// A model loaded once; contexts share it.
pub trait Model: Send + Sync {
    fn vocab(&self) -> &dyn Vocab;
    /// The chat template that the file declares (Jinja).
    fn chat_template(&self) -> Option<String>;
    /// The context the model was trained for, in tokens.
    fn trained_context(&self) -> usize;
    /// The same model, whose contexts are laid out like this.
    fn with_layout(self: Arc<Self>, layout: KvLayout) -> Arc<dyn Model>;
    /// What its contexts can save.
    fn save(&self) -> Save;
    /// What the saved states of a context of `n_ctx` tokens depend on.
    fn state_format(&self, n_ctx: usize) -> StateFormat;
    /// What answers are kept to a shape with.
    fn grammars(&self) -> &Grammars;
    /// A context with `settings.sequences` sequences.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] when its KV or buffers cannot be had.
    fn context(self: Arc<Self>, settings: &ContextSettings) -> Result<Box<dyn Context>, EngineError>;
}

/// What a context is made with; the same for target and draft.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// Positions in all sequences together.
    pub n_ctx: usize,
    pub sequences: u32,
    pub threads: usize,
    /// Asked between and, where the backend can, inside evaluations.
    pub cancel: Arc<AtomicBool>,
}

/// What kind of text a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Normal,
    /// Steers the model and has no text of its own, like an end of turn.
    Control,
    /// Matched whole in text, but shown, like `<think>`.
    UserDefined,
}

/// The vocabulary: text to ids and back.
pub trait Vocab: Send + Sync {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn bos(&self) -> Option<Token>;
    fn eos(&self) -> Option<Token>;
    /// Whether the file asks for a BOS before every prompt.
    fn adds_bos(&self) -> bool;
    /// Any token that ends a generation: end of text, end of turn, end of message.
    fn is_end(&self, token: Token) -> bool;
    /// The control and user-defined tokens with their text.
    fn specials(&self) -> &[Special];
    /// The ids of plain text: no control token ever comes out, no space is added in front.
    fn tokenize(&self, text: &str) -> Vec<Token>;
    /// Whether the first piece of a text carries a space that was not written (sentence-piece).
    fn spaces_first_piece(&self) -> bool;
    /// Appends the bytes of a token; a control token has none.
    fn piece(&self, token: Token, bytes: &mut Vec<u8>);
}

/// A token whose text must not be matched inside what a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Special {
    pub token: Token,
    pub text: String,
    pub kind: TokenKind,
    /// White space before it belongs to it (in a template's text).
    pub strips_left: bool,
    /// White space after it belongs to it.
    pub strips_right: bool,
}

/// One model and a KV with several sequences.
///
/// Each sequence keeps the list of tokens that it holds: the single truth about position.
pub trait Context {
    fn capabilities(&self) -> Capabilities;
    /// Positions in all sequences together.
    fn n_ctx(&self) -> usize;
    /// What a sequence holds, in order.
    fn tokens(&self, seq: Seq) -> &[Token];
    /// Positions taken, in all sequences together.
    fn total(&self) -> usize;
    /// Evaluates rows. Afterwards [`Context::logits`] answers for those that asked.
    ///
    /// # Errors
    /// On any error every sequence holds what it held before the call (of a model that cannot be cut back anywhere it may
    /// hold nothing then).
    fn eval(&mut self, rows: &[Row]) -> Result<(), EngineError>;
    /// Logits (one a vocabulary entry) of row `row` of the last `eval`.
    fn logits(&self, row: usize) -> &[f32];
    /// Cuts a sequence back to its first `from` tokens.
    ///
    /// # Errors
    /// [`EngineError::CannotTrim`] when the model's state does not allow it; nothing is changed then.
    fn trim(&mut self, seq: Seq, from: usize) -> Result<(), EngineError>;
    /// The same; forgets all of a sequence that cannot be cut back, to be read again.
    ///
    /// # Errors
    /// Engine failures.
    fn trim_or_clear(&mut self, seq: Seq, from: usize) -> Result<(), EngineError> {
        match self.trim(seq, from) {
            Err(EngineError::CannotTrim { .. }) => self.trim(seq, 0),
            trimmed => trimmed,
        }
    }
    /// Copies the positions `range` of `from` to the end of `to`, which must hold `range.start` tokens.
    ///
    /// # Errors
    /// When the model allows only whole states and less than the whole is asked.
    fn fork(&mut self, from: Seq, to: Seq, range: Range<usize>) -> Result<(), EngineError>;
    /// The state of the positions `range` of a sequence as bytes.
    ///
    /// # Errors
    /// When [`Save`] does not allow it.
    fn save(&mut self, seq: Seq, range: Range<usize>) -> Result<Vec<u8>, EngineError>;
    /// Appends a state from [`Context::save`] to `seq`; `tokens` are the tokens it stands for. The bytes must come from
    /// a context of the same model and settings: engines check little of them.
    ///
    /// # Errors
    /// When the bytes are not a state of this model; the sequence is as it was then.
    fn load(&mut self, seq: Seq, bytes: &[u8], tokens: &[Token]) -> Result<(), EngineError>;
}
