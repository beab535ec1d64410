//! Sequence states as bytes. llama.cpp saves a whole sequence, so a range goes through the spare one:
//! copy the range there, save it, drop it; and the same way back.

use std::ops::Range;

use llama_cpp_2::context::session::LlamaStateSeqFlags;

use super::context::LlamaContext;
use crate::engine::{Context, EngineError, Save, Seq, Token};

impl LlamaContext {
    pub(super) fn copy_range(&mut self, from: Seq, to: Seq, range: Range<usize>) -> Result<(), EngineError> {
        let held = self.held[from as usize].len();
        let whole = self.saves_whole() && range != (0..held);
        // All that the sequence has is copied, so that a window's length is no limit.
        if range.is_empty() || range.end > held || whole || self.window_has_holes(from, range.end) {
            return Err(EngineError::Failed(format!("cannot copy positions {range:?} of {held}")));
        }
        let held = self.held[to as usize].len();
        if held != range.start {
            return Err(EngineError::Gap { seq: to, pos: range.start, held });
        }
        let copied = self.held[from as usize][range.clone()].to_vec();
        if self.saves_whole() {
            // llama.cpp's copy would be of the state before it was taken back.
            let bytes = self.bytes_of(from as i32)?;
            return self.load_range(to, &bytes, &copied);
        }
        self.copy(from as i32, to as i32, &range)?;
        self.held[to as usize].extend(copied);
        Ok(())
    }

    pub(super) fn save_range(&mut self, seq: Seq, range: Range<usize>) -> Result<Vec<u8>, EngineError> {
        self.check_range(seq, &range)?;
        if range == (0..self.held[seq as usize].len()) {
            return self.bytes_of(seq as i32);
        }
        let spare = self.spare();
        self.copy(seq as i32, spare, &range)?;
        let bytes = self.bytes_of(spare);
        self.remove(spare, 0);
        bytes
    }

    pub(super) fn load_range(&mut self, seq: Seq, bytes: &[u8], tokens: &[Token]) -> Result<(), EngineError> {
        let spare = self.spare();
        let start = self.held[seq as usize].len();
        let range = start..start + tokens.len();
        // SAFETY: the slice is valid for its length. llama.cpp parses it and may abort on malformed bytes: callers pass
        // only what `save` of the same model and settings gave (the prefix cache verifies a seal first).
        let read = unsafe { self.raw.state_seq_set_data_ext(bytes, spare, LlamaStateSeqFlags::empty()) };
        let last = self.raw.kv_cache_seq_pos_max(spare);
        let first = self.raw.kv_cache_seq_pos_min(spare);
        let starts = if self.saves_whole() { start == 0 } else { first == start as i32 };
        let fits = read && last + 1 == range.end as i32 && starts;
        let copied = if fits { self.copy(spare, seq as i32, &range) } else { Ok(()) };
        self.remove(spare, 0);
        copied?;
        if !fits {
            return Err(EngineError::Failed("the saved state does not belong to this model and position".into()));
        }
        self.held[seq as usize].extend_from_slice(tokens);
        Ok(())
    }

    fn saves_whole(&self) -> bool {
        self.capabilities().save == Save::Whole
    }

    fn check_range(&self, seq: Seq, range: &Range<usize>) -> Result<(), EngineError> {
        let held = self.held[seq as usize].len();
        let allowed = match self.capabilities().save {
            Save::Whole => *range == (0..held),
            Save::Ranges { most } => range.len() <= most,
        };
        // What the window has passed may have been given away (see `window_has_holes`).
        let lost = !self.saves_whole() && self.raw.kv_cache_seq_pos_min(seq as i32) > range.start as i32;
        if range.is_empty() || range.end > held || !allowed || lost {
            return Err(EngineError::Failed(format!("cannot save positions {range:?} of {held}")));
        }
        Ok(())
    }

    fn copy(&mut self, from: i32, to: i32, range: &Range<usize>) -> Result<(), EngineError> {
        // A recurrent state has no range: -1 copies all of it.
        let (start, end) =
            if self.saves_whole() { (None, None) } else { (Some(range.start as u32), Some(range.end as u32)) };
        self.raw.copy_kv_cache_seq(from, to, start, end).map_err(|error| EngineError::Failed(error.to_string()))
    }

    fn bytes_of(&self, seq: i32) -> Result<Vec<u8>, EngineError> {
        let flags = LlamaStateSeqFlags::empty();
        let mut bytes = vec![0u8; self.raw.state_seq_get_size_ext(seq, flags)];
        // SAFETY: the buffer has the size that llama.cpp asked for.
        let written = unsafe { self.raw.state_seq_get_data_ext(bytes.as_mut_ptr(), seq, flags) };
        if written != bytes.len() {
            return Err(EngineError::Failed("llama.cpp could not save a sequence".into()));
        }
        Ok(bytes)
    }
}
