//! An engine that plays a script: tokens and logits as a test wrote them, exact and instant. Only in test builds
//! (feature `scripted`), where any command takes a `.script` file for a model.
//!
//! The vocabulary is bytes 0 to 255, then `<|endoftext|>` (256), `<|im_start|>` (257), `<|im_end|>` (258); the template is
//! ChatML. To the n-th user message of a talk the n-th reply is given, byte by byte, and `<|im_end|>`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{
    Capabilities, Context, ContextSettings, EngineError, Grammars, KvLayout, LoadProgress, Model, Rollback, Row, Save,
    Seq, Special, StateFormat, Token, TokenKind, Vocab,
};

const BYTES: usize = 256;
const START: Token = Token(257);
const END: Token = Token(258);
const TEXTS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// What a script file says (JSON).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    pub replies: Vec<String>,
    #[serde(default = "default_context")]
    pub context: usize,
    /// Milliseconds that loading takes.
    #[serde(default)]
    pub load_ms: u64,
    /// Milliseconds that each evaluated row takes.
    #[serde(default)]
    pub row_ms: u64,
    /// The number of the evaluation that fails, counted from 1.
    #[serde(default)]
    pub fails_at: Option<usize>,
    /// The number of the evaluation that panics, counted from 1.
    #[serde(default)]
    pub panics_at: Option<usize>,
    /// Whether a sequence can be cut back, or only cleared.
    #[serde(default = "yes")]
    pub can_trim: bool,
    /// How many tokens a sequence can be cut back by, where it cannot be cut back anywhere.
    #[serde(default)]
    pub rollback: usize,
    /// The number of the cut that fails, counted from 1.
    #[serde(default)]
    pub trim_fails_at: Option<usize>,
    /// In place of replies: logits that depend on the last three tokens.
    #[serde(default)]
    pub random: Option<Random>,
    /// A context larger than this cannot be had.
    #[serde(default)]
    pub memory: Option<usize>,
    #[serde(default)]
    pub no_template: bool,
    /// The most positions of a saved range; 0: only whole states can be saved.
    #[serde(default = "any_range")]
    pub save_most: usize,
    /// The context above which its states have another format, as those of a long-RoPE model.
    #[serde(default)]
    pub original_context: Option<usize>,
    /// Bytes that a saved state has at least.
    #[serde(default)]
    pub state_bytes: usize,
    /// Milliseconds that loading a state takes.
    #[serde(default)]
    pub restore_ms: u64,
}

/// Logits of the letters a to z: normal-like numbers, a hash of seed and context. The others never come.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {
    pub seed: u64,
    /// Their standard deviation.
    pub spread: f32,
    /// How far a model of the same seed is off: 0 is the same model.
    #[serde(default)]
    pub off: f32,
}

impl Random {
    fn logits(self, tokens: &[Token], logits: &mut [f32]) {
        let context = tokens.iter().rev().take(3).fold(1u64, |hash, token| mix(hash ^ token.index() as u64));
        logits.fill(-1e9);
        for (token, logit) in logits.iter_mut().enumerate().take(usize::from(b'z') + 1).skip(usize::from(b'a')) {
            let normal = |seed: u64| {
                let bits = mix(context ^ mix(seed ^ (token as u64) << 32));
                let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
                (sum as f32 - 131_070.0) / 37_837.0
            };
            *logit = self.spread * normal(self.seed) + self.off * normal(!self.seed);
        }
    }
}

/// The finaliser of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn default_context() -> usize {
    4096
}

fn any_range() -> usize {
    usize::MAX
}

fn yes() -> bool {
    true
}

pub struct ScriptedModel {
    script: Script,
    vocab: ByteVocab,
    grammars: Grammars,
}

impl ScriptedModel {
    pub fn new(script: Script) -> Self {
        let special = |(index, text): (usize, &&str)| Special {
            token: Token::from_index(BYTES + index),
            text: (*text).to_owned(),
            kind: TokenKind::Control,
            strips_left: false,
            strips_right: false,
        };
        let vocab = ByteVocab { specials: TEXTS.iter().enumerate().map(special).collect() };
        Self { script, vocab, grammars: Grammars::default() }
    }

    pub(super) fn load(path: &Path, progress: LoadProgress) -> Result<Self, EngineError> {
        let text = std::fs::read_to_string(path).map_err(|error| EngineError::Failed(error.to_string()))?;
        let script: Script = serde_json::from_str(&text).map_err(|error| EngineError::Failed(error.to_string()))?;
        let began = Instant::now();
        loop {
            let done = began.elapsed().as_millis() as f32 / script.load_ms.max(1) as f32;
            if !progress(done.min(1.0)) {
                return Err(EngineError::Aborted);
            }
            if done >= 1.0 || script.load_ms == 0 {
                return Ok(Self::new(script));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Model for ScriptedModel {
    fn vocab(&self) -> &dyn Vocab {
        &self.vocab
    }

    fn chat_template(&self) -> Option<String> {
        (!self.script.no_template).then(|| crate::chat::named("chatml").unwrap_or_default().to_owned())
    }

    fn trained_context(&self) -> usize {
        self.script.context
    }

    fn with_layout(self: Arc<Self>, _: KvLayout) -> Arc<dyn Model> {
        self
    }

    fn save(&self) -> Save {
        match self.script.save_most {
            0 => Save::Whole,
            most => Save::Ranges { most },
        }
    }

    fn state_format(&self, n_ctx: usize) -> StateFormat {
        let original = self.script.original_context;
        StateFormat {
            engine: "scripted".into(),
            architecture: "script".into(),
            layers: 0,
            keys: "ids".into(),
            values: "ids".into(),
            flash_attention: false,
            full_window: true,
            rope: if original.is_some_and(|most| n_ctx > most) { "long" } else { "short" }.into(),
            adapters: Vec::new(),
        }
    }

    fn grammars(&self) -> &Grammars {
        &self.grammars
    }

    fn context(self: Arc<Self>, settings: &ContextSettings) -> Result<Box<dyn Context>, EngineError> {
        if self.script.memory.is_some_and(|most| settings.n_ctx > most) {
            return Err(EngineError::OutOfMemory { what: format!("a context of {} tokens", settings.n_ctx) });
        }
        let held = vec![Vec::new(); settings.sequences as usize];
        Ok(Box::new(ScriptedContext {
            model: self,
            settings: settings.clone(),
            mixed: vec![false; held.len()],
            held,
            logits: Vec::new(),
            evals: 0,
            trims: 0,
        }))
    }
}

struct ByteVocab {
    specials: Vec<Special>,
}

impl Vocab for ByteVocab {
    fn len(&self) -> usize {
        BYTES + self.specials.len()
    }

    fn bos(&self) -> Option<Token> {
        None
    }

    fn eos(&self) -> Option<Token> {
        Some(END)
    }

    fn adds_bos(&self) -> bool {
        false
    }

    fn is_end(&self, token: Token) -> bool {
        token == END || token == Token(256)
    }

    fn specials(&self) -> &[Special] {
        &self.specials
    }

    fn tokenize(&self, text: &str) -> Vec<Token> {
        text.bytes().map(|byte| Token(i32::from(byte))).collect()
    }

    fn spaces_first_piece(&self) -> bool {
        false
    }

    fn piece(&self, token: Token, bytes: &mut Vec<u8>) {
        bytes.extend(u8::try_from(token.0));
    }
}

struct ScriptedContext {
    model: Arc<ScriptedModel>,
    settings: ContextSettings,
    held: Vec<Vec<Token>>,
    /// Whether a sequence holds a state of another format: what follows is wrong then.
    mixed: Vec<bool>,
    logits: Vec<Vec<f32>>,
    evals: usize,
    trims: usize,
}

impl ScriptedContext {
    fn format(&self) -> u8 {
        self.model.state_format(self.settings.n_ctx).rope.as_bytes()[0]
    }

    /// The token that the script has after `tokens`.
    fn next(&self, tokens: &[Token]) -> Token {
        let header = self.model.vocab.tokenize("assistant\n");
        let user = self.model.vocab.tokenize("user\n");
        let starts = || tokens.iter().enumerate().filter(|(_, token)| **token == START).map(|(at, _)| at + 1);
        let users = starts().filter(|at| tokens[*at..].starts_with(&user)).count();
        let spoken = starts()
            .next_back()
            .filter(|at| tokens[*at..].starts_with(&header))
            .map_or(tokens, |at| &tokens[at + header.len()..]);
        let replies = &self.model.script.replies;
        let reply = replies.get(users.saturating_sub(1)).or(replies.last()).map_or("", String::as_str);
        reply.as_bytes().get(spoken.len()).map_or(END, |byte| Token(i32::from(*byte)))
    }
}

impl Context for ScriptedContext {
    fn capabilities(&self) -> Capabilities {
        let rollback =
            if self.model.script.can_trim { Rollback::Anywhere } else { Rollback::AtMost(self.model.script.rollback) };
        Capabilities { rollback, save: self.model.save(), max_rows: 64, max_logits: 64 }
    }

    fn n_ctx(&self) -> usize {
        self.settings.n_ctx
    }

    fn tokens(&self, seq: Seq) -> &[Token] {
        &self.held[seq as usize]
    }

    fn total(&self) -> usize {
        self.held.iter().map(Vec::len).sum()
    }

    fn eval(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        self.evals += 1;
        if self.model.script.fails_at == Some(self.evals) {
            return Err(EngineError::Failed("the script says so".into()));
        }
        assert!(self.model.script.panics_at != Some(self.evals), "the script says so");
        if self.total() + rows.len() > self.settings.n_ctx {
            return Err(EngineError::Full { n_ctx: self.settings.n_ctx });
        }
        let until = Instant::now() + Duration::from_millis(self.model.script.row_ms * rows.len() as u64);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.settings.cancel.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
        if self.settings.cancel.load(Ordering::Relaxed) {
            return Err(EngineError::Aborted);
        }
        self.logits.clear();
        for row in rows {
            let held = self.held[row.seq as usize].len();
            if row.pos != held {
                return Err(EngineError::Gap { seq: row.seq, pos: row.pos, held });
            }
            self.held[row.seq as usize].push(row.token);
            let mut logits = Vec::new();
            if row.want_logits {
                logits = vec![0.0; self.model.vocab.len()];
                let held = &self.held[row.seq as usize];
                match self.model.script.random {
                    Some(random) => random.logits(held, &mut logits),
                    None if self.mixed[row.seq as usize] => logits[usize::from(b'?')] = 40.0,
                    None => logits[self.next(held).index()] = 40.0,
                }
            }
            self.logits.push(logits);
        }
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row]
    }

    fn trim(&mut self, seq: Seq, from: usize) -> Result<(), EngineError> {
        let held = &mut self.held[seq as usize];
        if from >= held.len() {
            return Ok(());
        }
        self.trims += 1;
        let far = !self.model.script.can_trim && held.len() - from > self.model.script.rollback;
        if from > 0 && far || self.model.script.trim_fails_at == Some(self.trims) {
            return Err(EngineError::CannotTrim { from });
        }
        held.truncate(from);
        self.mixed[seq as usize] &= from > 0;
        Ok(())
    }

    fn fork(&mut self, from: Seq, to: Seq, range: Range<usize>) -> Result<(), EngineError> {
        let copied = self.held[from as usize][range].to_vec();
        self.held[to as usize].extend(copied);
        self.mixed[to as usize] |= self.mixed[from as usize];
        Ok(())
    }

    /// A state is the tokens themselves, a byte for its format, and nothing up to its size.
    fn save(&mut self, seq: Seq, range: Range<usize>) -> Result<Vec<u8>, EngineError> {
        let held = &self.held[seq as usize];
        let allowed = match self.model.save() {
            Save::Whole => range == (0..held.len()),
            Save::Ranges { most } => range.len() <= most,
        };
        if !allowed || range.is_empty() || range.end > held.len() {
            return Err(EngineError::Failed(format!("cannot save positions {range:?} of {}", held.len())));
        }
        let tokens = held[range].iter().flat_map(|token| token.0.to_le_bytes());
        let mut state: Vec<u8> = tokens.chain([self.format()]).collect();
        state.resize(state.len().max(self.model.script.state_bytes), 0);
        Ok(state)
    }

    fn load(&mut self, seq: Seq, bytes: &[u8], tokens: &[Token]) -> Result<(), EngineError> {
        std::thread::sleep(Duration::from_millis(self.model.script.restore_ms));
        let own: Vec<u8> = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
        let Some(format) = bytes.get(own.len()).filter(|_| bytes.starts_with(&own)) else {
            return Err(EngineError::Failed("not a state of this script".into()));
        };
        self.mixed[seq as usize] |= *format != self.format();
        self.held[seq as usize].extend_from_slice(tokens);
        Ok(())
    }
}
