//! A llama.cpp context with several sequences.
//!
//! Invariants: `held[s]` is exactly what llama.cpp's memory holds for sequence `s`, after every call, also a failed one.
//! The last sequence of the context is spare: it carries ranges in and out (see `state`) and is empty between calls.

use std::ffi::c_void;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext as Raw;
use llama_cpp_2::context::params::{KvCacheType, LlamaContextParams};
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel as Weights;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_sys_2 as sys;

use crate::engine::{
    Capabilities, Context, ContextSettings, EngineError, KvLayout, KvType, Rollback, Row, Save, Seq, StateFormat, Token,
};

/// Rows of one evaluation. One micro-batch exactly, so that a stopped evaluation leaves nothing half done.
const MAX_ROWS: usize = 512;
/// Rows with logits of one evaluation: a draft for each of several turns. Bounds the largest compute buffer
/// (a row is 0.6 MB with Qwen's vocabulary).
const MAX_LOGITS: usize = 64;
/// Snapshots of a recurrent state, one a token, that a draft can be taken back with; each costs the memory of a state.
const SNAPSHOTS: u32 = 8;
/// Sequences of a context with snapshots. llama.cpp brings the states that it evaluates together next to each other, and
/// those that it moves out of the way lose their snapshots: with three sequences that can be one of the same evaluation.
const MOST_WITH_SNAPSHOTS: u32 = 2;
/// The architectures with a recurrent state that llama.cpp keeps snapshots of (its `llm_arch_supports_rs_rollback`; what a
/// context can do is hidden by the binding).
const ROLLS_BACK: [&str; 11] = [
    "kimi-k3",
    "qwen35",
    "qwen35moe",
    "qwen4exp",
    "deepseek4",
    "glm5-next",
    "nemotron_h",
    "nemotron_h_moe",
    "lfm2",
    "lfm2moe",
    "bailingmoe3",
];

pub(super) struct LlamaContext {
    // Dropped in this order: the context, then the model and the flag that it points to.
    pub(super) raw: Raw<'static>,
    weights: Arc<Weights>,
    cancel: Arc<AtomicBool>,
    batch: LlamaBatch<'static>,
    pub(super) held: Vec<Vec<Token>>,
    n_ctx: usize,
    wanted: Vec<bool>,
    /// For models with a recurrent state: how many tokens can be taken back at most, and now, by sequence. Snapshots are
    /// of the last evaluation only, and good for one rollback; an empty sequence has none.
    most_snapshots: usize,
    snapshots: Vec<usize>,
}

// The binding hides the abort callback in a struct whose only field is llama.cpp's own.
const _: () = assert!(size_of::<LlamaContextParams>() == size_of::<sys::llama_context_params>());
const _: () = assert!(align_of::<LlamaContextParams>() == align_of::<sys::llama_context_params>());

unsafe extern "C" fn should_abort(data: *mut c_void) -> bool {
    // SAFETY: `data` is the flag of the context that is evaluating, which holds an `Arc` of it.
    unsafe { &*data.cast::<AtomicBool>() }.load(Ordering::Relaxed)
}

/// Tokens that a recurrent state can be taken back by after an evaluation of many.
fn snapshots(weights: &Weights, sequences: u32) -> u32 {
    let architecture = weights.meta_val_str("general.architecture").unwrap_or_default();
    let kept = ROLLS_BACK.contains(&architecture.as_str()) && sequences <= MOST_WITH_SNAPSHOTS;
    if kept && (weights.is_recurrent() || weights.is_hybrid()) { SNAPSHOTS } else { 0 }
}

/// What can be saved of a model's sequences. A sequence's state leaves out what a sliding window does not see from its end,
/// so no range may be longer than the window.
pub(super) fn save(weights: &Weights) -> Save {
    if weights.is_recurrent() || weights.is_hybrid() {
        return Save::Whole;
    }
    Save::Ranges { most: window(weights).unwrap_or(usize::MAX) }
}

fn kv_type(kv: KvType) -> KvCacheType {
    match kv {
        KvType::F16 => KvCacheType::F16,
        KvType::Q8_0 => KvCacheType::Q8_0,
        KvType::Q4_0 => KvCacheType::Q4_0,
    }
}

/// The tokens of a sliding window.
fn window(weights: &Weights) -> Option<usize> {
    // SAFETY: the pointer is that of the model that `weights` owns.
    let window = unsafe { sys::llama_model_n_swa(super::load::pointer(weights)) };
    usize::try_from(window).ok().filter(|window| *window > 0)
}

/// What the states of a context of `n_ctx` tokens depend on, as [`LlamaContext::new`] sets it up.
pub(super) fn state_format(weights: &Weights, layout: KvLayout, n_ctx: usize) -> StateFormat {
    let architecture = weights.meta_val_str("general.architecture").unwrap_or_default();
    let original = format!("{architecture}.rope.scaling.original_context_length");
    let original = weights.meta_val_str(&original).ok().and_then(|text| text.parse::<usize>().ok());
    StateFormat {
        engine: super::build().into(),
        architecture,
        layers: weights.n_layer(),
        keys: layout.kv.name().into(),
        values: layout.kv.name().into(),
        flash_attention: layout.flash_attention,
        full_window: true,
        // Long-RoPE models take other factors where the context is longer than the original one.
        rope: match original {
            Some(original) if n_ctx > original => format!("as trained, context above {original}"),
            Some(original) => format!("as trained, context up to {original}"),
            None => "as trained".into(),
        },
        adapters: Vec::new(),
    }
}

impl LlamaContext {
    pub(super) fn new(
        weights: Arc<Weights>,
        layout: KvLayout,
        settings: &ContextSettings,
    ) -> Result<Self, EngineError> {
        let threads = i32::try_from(settings.threads).unwrap_or(i32::MAX);
        let n_ctx = u32::try_from(settings.n_ctx).unwrap_or(u32::MAX);
        let mut params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(n_ctx))
            .with_n_batch(MAX_ROWS as u32)
            .with_n_ubatch(MAX_ROWS as u32)
            .with_n_seq_max(settings.sequences + 1)
            .with_kv_unified(true)
            .with_swa_full(true)
            .with_n_threads(threads)
            .with_n_threads_batch(threads)
            // Set, never AUTO: what AUTO chose is hidden, and the prefix cache has to know it.
            .with_flash_attention_policy(if layout.flash_attention {
                sys::LLAMA_FLASH_ATTN_TYPE_ENABLED
            } else {
                sys::LLAMA_FLASH_ATTN_TYPE_DISABLED
            })
            .with_type_k(kv_type(layout.kv))
            .with_type_v(kv_type(layout.kv));
        let cancel = Arc::clone(&settings.cancel);
        // SAFETY: layout checked above; the flag outlives the context, which is dropped first.
        unsafe {
            let hidden = &mut *(&raw mut params).cast::<sys::llama_context_params>();
            hidden.abort_callback = Some(should_abort);
            hidden.abort_callback_data = Arc::as_ptr(&cancel).cast_mut().cast();
            hidden.n_outputs_max = MAX_LOGITS as u32;
            hidden.n_rs_seq = snapshots(&weights, settings.sequences);
        }
        super::last_error();
        let made = weights.new_context(super::backend(), params);
        // SAFETY: the context borrows the model, which `weights` keeps alive until after the context is dropped.
        let made = made.map(|raw| unsafe { std::mem::transmute::<Raw<'_>, Raw<'static>>(raw) });
        let raw = made.map_err(|_| EngineError::OutOfMemory {
            what: match super::last_error() {
                Some(cause) => format!("a context of {n_ctx} tokens ({cause})"),
                None => format!("a context of {n_ctx} tokens"),
            },
        })?;
        Ok(Self {
            n_ctx: raw.n_ctx() as usize,
            raw,
            cancel,
            batch: LlamaBatch::new(MAX_ROWS, 1),
            held: vec![Vec::new(); settings.sequences as usize],
            wanted: Vec::with_capacity(MAX_ROWS),
            most_snapshots: snapshots(&weights, settings.sequences) as usize,
            snapshots: vec![0; settings.sequences as usize],
            weights,
        })
    }

    fn whole_states_only(&self) -> bool {
        save(&self.weights) == Save::Whole
    }

    /// Whether a position that the token behind `from` would attend to is not there any more. llama.cpp promises no holes
    /// between the first position that it has and the last.
    pub(super) fn window_has_holes(&self, seq: Seq, from: usize) -> bool {
        let Some(window) = window(&self.weights) else { return false };
        let first = self.raw.kv_cache_seq_pos_min(seq as i32).max(0) as usize;
        first > 0 && first + window > from
    }

    /// The sequence that no caller sees.
    pub(super) fn spare(&self) -> i32 {
        self.held.len() as i32
    }

    pub(super) fn remove(&mut self, seq: i32, from: usize) -> bool {
        self.raw.kv_cache_seq_rm(seq, Some(from as u32), None).is_ok()
    }

    /// Checks rows against what the sequences hold and fills the batch.
    fn fill(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        if self.total() + rows.len() > self.n_ctx {
            return Err(EngineError::Full { n_ctx: self.n_ctx });
        }
        let logits = rows.iter().filter(|row| row.want_logits).count();
        if rows.is_empty() || rows.len() > MAX_ROWS || logits > MAX_LOGITS {
            let count = rows.len();
            return Err(EngineError::Failed(format!("{count} rows, {logits} with logits, in one evaluation")));
        }
        let mut next: Vec<usize> = self.held.iter().map(Vec::len).collect();
        self.batch.clear();
        self.wanted.clear();
        for row in rows {
            let held = next.get_mut(row.seq as usize);
            match held {
                Some(held) if *held == row.pos => *held += 1,
                held => {
                    let held = held.map_or(0, |held| *held);
                    return Err(EngineError::Gap { seq: row.seq, pos: row.pos, held });
                }
            }
            let added = self.batch.add(LlamaToken(row.token.0), row.pos as i32, &[row.seq as i32], row.want_logits);
            added.map_err(|error| EngineError::Failed(error.to_string()))?;
            self.wanted.push(row.want_logits);
        }
        Ok(())
    }

    /// After a failed evaluation: back to what each sequence held before, or to nothing where the model cannot.
    fn restore(&mut self, rows: &[Row]) {
        let mut touched: Vec<Seq> = rows.iter().map(|row| row.seq).collect();
        touched.dedup();
        if self.whole_states_only() && touched.len() > 1 {
            // States that were in the way of these may be lost between two places.
            touched = (0..self.held.len() as Seq).collect();
        }
        for seq in touched {
            let held = self.held[seq as usize].len();
            if self.whole_states_only() || !self.remove(seq as i32, held) {
                self.remove(seq as i32, 0);
                self.held[seq as usize].clear();
                self.snapshots[seq as usize] = 0;
            }
        }
    }
}

impl Context for LlamaContext {
    fn capabilities(&self) -> Capabilities {
        let whole = self.whole_states_only();
        Capabilities {
            rollback: if whole { Rollback::AtMost(self.most_snapshots) } else { Rollback::Anywhere },
            save: save(&self.weights),
            max_rows: MAX_ROWS,
            max_logits: MAX_LOGITS,
        }
    }

    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn tokens(&self, seq: Seq) -> &[Token] {
        &self.held[seq as usize]
    }

    fn total(&self) -> usize {
        self.held.iter().map(Vec::len).sum()
    }

    fn eval(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(EngineError::Aborted);
        }
        self.fill(rows)?;
        match self.raw.decode(&mut self.batch) {
            Ok(()) => {
                super::abort::works();
                for row in rows {
                    // All rows of the evaluation but the first: what was before it has no snapshot.
                    self.snapshots[row.seq as usize] = 0;
                }
                let mut previous = None;
                for row in rows {
                    self.held[row.seq as usize].push(row.token);
                    let snapshots = &mut self.snapshots[row.seq as usize];
                    if previous == Some(row.seq) {
                        *snapshots = (*snapshots + 1).min(self.most_snapshots);
                    }
                    previous = Some(row.seq);
                }
                Ok(())
            }
            Err(error) => {
                self.restore(rows);
                self.wanted.clear();
                Err(match error {
                    DecodeError::NoKvCacheSlot => EngineError::Full { n_ctx: self.n_ctx },
                    DecodeError::Unknown(2) => EngineError::Aborted,
                    DecodeError::Unknown(-2) => EngineError::OutOfMemory { what: "an evaluation".into() },
                    error => EngineError::Failed(super::last_error().unwrap_or_else(|| error.to_string())),
                })
            }
        }
    }

    fn logits(&self, row: usize) -> &[f32] {
        if self.wanted.get(row) == Some(&true) { self.raw.get_logits_ith(row as i32) } else { &[] }
    }

    fn trim(&mut self, seq: Seq, from: usize) -> Result<(), EngineError> {
        let held = self.held[seq as usize].len();
        if from >= held {
            return Ok(());
        }
        let far = self.whole_states_only() && held - from > self.snapshots[seq as usize];
        if from > 0 && (far || self.window_has_holes(seq, from)) || !self.remove(seq as i32, from) {
            return Err(EngineError::CannotTrim { from });
        }
        self.snapshots[seq as usize] = 0;
        self.held[seq as usize].truncate(from);
        Ok(())
    }

    fn fork(&mut self, from: Seq, to: Seq, range: Range<usize>) -> Result<(), EngineError> {
        self.copy_range(from, to, range)
    }

    fn save(&mut self, seq: Seq, range: Range<usize>) -> Result<Vec<u8>, EngineError> {
        self.save_range(seq, range)
    }

    fn load(&mut self, seq: Seq, bytes: &[u8], tokens: &[Token]) -> Result<(), EngineError> {
        self.load_range(seq, bytes, tokens)
    }
}
