//! The list of tensors of a GGUF header: types, sizes, what a token reads of them.

use std::collections::BTreeMap;
use std::io::{BufRead, Seek};

use super::{Bytes, HeaderError, MAX_KEY};

const MAX_DIMS: u32 = 4;

/// Tensors counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub tensors: u64,
    pub elements: u64,
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, elements: u64, bytes: u64) {
        self.tensors += 1;
        self.elements = self.elements.saturating_add(elements);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn take_in(&mut self, other: &Self) {
        self.tensors += other.tensors;
        self.elements = self.elements.saturating_add(other.elements);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What the tensors of a file are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// By GGUF's number of the type.
    pub types: BTreeMap<u32, Tally>,
    pub all: Tally,
    /// The table of token embeddings: a token reads one row of it, unless it is the output matrix too.
    pub embedding: Tally,
    pub has_output: bool,
    /// Weights of experts, of which a token reads a few.
    pub experts: Tally,
}

impl Census {
    /// Reads the list of tensors; answers where the last one ends, in bytes from the start of the file.
    pub(super) fn take(
        bytes: &mut Bytes<impl BufRead + Seek>,
        tensors: u64,
        alignment: u64,
    ) -> Result<(Self, u64), HeaderError> {
        if !alignment.is_power_of_two() {
            return Err(HeaderError::Damaged(format!("an alignment of {alignment}")));
        }
        let overflow = || HeaderError::Damaged("a tensor's size is out of range".into());
        let mut census = Self::default();
        let mut end = 0u64;
        for _ in 0..tensors {
            let name = bytes.text(MAX_KEY)?;
            let dims = bytes.u32()?;
            if dims > MAX_DIMS {
                return Err(HeaderError::Damaged(format!("tensor {name} has {dims} dimensions")));
            }
            let mut elements = 1u64;
            for _ in 0..dims {
                elements = elements.checked_mul(bytes.u64()?).ok_or_else(overflow)?;
            }
            let kind = bytes.u32()?;
            let offset = bytes.u64()?;
            // Types newer than this table are left to llama.cpp; only their offset is checked.
            let size = match type_of(kind) {
                Some((_, block, size)) => (elements / block).checked_mul(size).ok_or_else(overflow)?,
                None => 0,
            };
            end = end.max(offset.checked_add(size).ok_or_else(overflow)?);
            census.count(&name, kind, elements, size);
        }
        let data = bytes.at().next_multiple_of(alignment);
        Ok((census, data.checked_add(end).ok_or_else(overflow)?))
    }

    fn count(&mut self, name: &str, kind: u32, elements: u64, bytes: u64) {
        self.all.add(elements, bytes);
        self.types.entry(kind).or_default().add(elements, bytes);
        if name == "token_embd.weight" {
            self.embedding.add(elements, bytes);
        }
        if name.contains("_exps.") {
            self.experts.add(elements, bytes);
        }
        self.has_output |= name == "output.weight";
    }

    /// Takes in those of another file of the same model.
    pub fn add(&mut self, other: &Self) {
        for (kind, tally) in &other.types {
            self.types.entry(*kind).or_default().take_in(tally);
        }
        self.all.take_in(&other.all);
        self.embedding.take_in(&other.embedding);
        self.experts.take_in(&other.experts);
        self.has_output |= other.has_output;
    }

    /// The bytes of weights that a token reads, where `used` of `experts` experts are.
    pub fn read_per_token(&self, used: u64, experts: u64) -> u64 {
        let table = if self.has_output { self.embedding.bytes } else { 0 };
        let spared = match experts {
            0 => 0,
            experts => (self.experts.bytes as f64 * (1.0 - (used.min(experts) as f64 / experts as f64))) as u64,
        };
        self.all.bytes.saturating_sub(table).saturating_sub(spared)
    }
}

/// The name of a tensor type.
pub fn type_name(kind: u32) -> String {
    type_of(kind).map_or_else(|| format!("type {kind}"), |(name, ..)| name.to_owned())
}

/// Name, elements and bytes of one block of a tensor type (ggml.h, enum `ggml_type`; the blocks of ggml-common.h).
fn type_of(kind: u32) -> Option<(&'static str, u64, u64)> {
    Some(match kind {
        0 => ("F32", 1, 4),
        1 => ("F16", 1, 2),
        2 => ("Q4_0", 32, 18),
        3 => ("Q4_1", 32, 20),
        6 => ("Q5_0", 32, 22),
        7 => ("Q5_1", 32, 24),
        8 => ("Q8_0", 32, 34),
        10 => ("Q2_K", 256, 84),
        11 => ("Q3_K", 256, 110),
        12 => ("Q4_K", 256, 144),
        13 => ("Q5_K", 256, 176),
        14 => ("Q6_K", 256, 210),
        16 => ("IQ2_XXS", 256, 66),
        17 => ("IQ2_XS", 256, 74),
        18 => ("IQ3_XXS", 256, 98),
        19 => ("IQ1_S", 256, 50),
        20 => ("IQ4_NL", 32, 18),
        21 => ("IQ3_S", 256, 110),
        22 => ("IQ2_S", 256, 82),
        23 => ("IQ4_XS", 256, 136),
        24 => ("I8", 1, 1),
        25 => ("I16", 1, 2),
        26 => ("I32", 1, 4),
        27 => ("I64", 1, 8),
        28 => ("F64", 1, 8),
        29 => ("IQ1_M", 256, 56),
        30 => ("BF16", 1, 2),
        34 => ("TQ1_0", 256, 54),
        35 => ("TQ2_0", 256, 66),
        39 => ("MXFP4", 32, 17),
        40 => ("NVFP4", 64, 36),
        41 => ("Q1_0", 128, 18),
        42 => ("Q2_0", 64, 18),
        _ => return None,
    })
}
