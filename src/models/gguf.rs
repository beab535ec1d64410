//! The header of a GGUF file (version 2 and 3): facts about a model without loading it.
//!
//! Spec: ggml's docs/gguf.md. A header is untrusted: every count and length is checked against the bytes that are left
//! before anything is allocated, of most arrays only the place is kept, and tensors must lie inside the file.

mod bytes;
#[cfg(test)]
pub(super) mod sample;
mod tensors;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

pub(super) use bytes::{Bytes, TEXT};
pub(super) use tensors::Census;
pub use tensors::type_name;

/// Why a file is not a usable GGUF.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it is not a GGUF file")]
    NotGguf,
    #[error("GGUF version {0} is not supported (2 and 3 are)")]
    Version(u32),
    #[error("it is truncated: {0}")]
    Truncated(String),
    #[error("its header is damaged: {0}")]
    Damaged(String),
}

/// A value of the header.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// A short array of integers or truth values, such as one with a number for each layer.
    Integers(Vec<i64>),
    /// Any other array, of which only the place is kept.
    Array(Array),
}

impl Value {
    fn unsigned(&self) -> Option<u64> {
        match self {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}

/// Where the items of an array lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// GGUF's number of the items' type.
    pub kind: u32,
    pub count: u64,
    /// The place of the first item, in bytes from the start of the file.
    pub at: u64,
}

/// What the header says.
#[derive(Clone, Debug)]
pub struct Header {
    pub tensors: u64,
    /// What the tensors are, of this file alone.
    pub census: Census,
    values: BTreeMap<String, Value>,
}

/// Sanity bound: the largest keys of real files have a few dozen bytes.
const MAX_KEY: u64 = 1 << 16;
/// The smallest tensor entry: name length, dimension count, type, offset.
const MIN_TENSOR_ENTRY: u64 = 8 + 4 + 4 + 8;
/// The smallest key-value entry: key length, type, one byte.
const MIN_VALUE_ENTRY: u64 = 8 + 4 + 1;

impl Header {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// When the file is no GGUF, is cut short, or contradicts itself.
    pub fn read(path: &Path) -> Result<Self, HeaderError> {
        let (reader, len) = open(path)?;
        Self::parse(reader, len)
    }

    /// Reads a header from `len` bytes.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn parse(reader: impl BufRead + Seek, len: u64) -> Result<Self, HeaderError> {
        let mut bytes = Bytes::new(reader, len);
        let mut magic = [0; 4];
        if len < 4 || bytes.take(&mut magic).is_err() || &magic != b"GGUF" {
            return Err(HeaderError::NotGguf);
        }
        let version = bytes.u32()?;
        if !(2..=3).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        let (tensors, count) = (bytes.u64()?, bytes.u64()?);
        if tensors > bytes.left() / MIN_TENSOR_ENTRY || count > bytes.left() / MIN_VALUE_ENTRY {
            let claim = format!("it claims {tensors} tensors and {count} values in {len} bytes");
            return Err(HeaderError::Damaged(claim));
        }
        let mut values = BTreeMap::new();
        for _ in 0..count {
            let key = bytes.text(MAX_KEY)?;
            let kind = bytes.u32()?;
            let value = bytes.value(kind, 0)?;
            values.insert(key, value);
        }
        let mut header = Self { tensors, values, census: Census::default() };
        let alignment = header.unsigned("general.alignment").unwrap_or(32);
        let (census, end) = Census::take(&mut bytes, tensors, alignment)?;
        if end > len {
            return Err(HeaderError::Truncated(format!("the tensors need {end} bytes and the file has {len}")));
        }
        header.census = census;
        Ok(header)
    }

    /// A header that nobody read.
    #[cfg(test)]
    pub(super) fn of_values(values: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self { tensors: 1, census: Census::default(), values: values.into_iter().collect() }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn unsigned(&self, key: &str) -> Option<u64> {
        self.get(key)?.unsigned()
    }

    /// The number `{architecture}.{key}`.
    pub fn own(&self, key: &str) -> Option<u64> {
        self.own_value(key)?.unsigned()
    }

    /// The same for one layer, where the key may be an array with a number for each.
    pub fn of_layer(&self, key: &str, layer: usize) -> Option<u64> {
        match self.own_value(key)? {
            Value::Integers(numbers) => u64::try_from(*numbers.get(layer)?).ok(),
            value => value.unsigned(),
        }
    }

    fn own_value(&self, key: &str) -> Option<&Value> {
        self.get(&format!("{}.{key}", self.architecture()?))
    }

    pub fn architecture(&self) -> Option<&str> {
        self.text("general.architecture")
    }

    /// The context that the model was trained for, in tokens.
    pub fn context(&self) -> Option<usize> {
        usize::try_from(self.own("context_length")?).ok()
    }

    pub fn chat_template(&self) -> Option<&str> {
        self.text("tokenizer.chat_template")
    }

    /// How many files a split model has; 1 for others.
    pub fn splits(&self) -> u64 {
        self.unsigned("split.count").unwrap_or(1).max(1)
    }
}

/// A file as this room reads it, with its length.
///
/// # Errors
/// When it cannot be opened, or is a directory.
pub(super) fn open(path: &Path) -> Result<(BufReader<File>, u64), HeaderError> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(HeaderError::NotGguf);
    }
    Ok((BufReader::with_capacity(1 << 16, file), meta.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::parse(Cursor::new(bytes), bytes.len() as u64)
    }

    /// A header with a text, an array of texts and one of numbers, and a tensor.
    fn whole() -> Vec<u8> {
        sample::file(&[
            sample::text("general.architecture", "llama"),
            sample::texts("tokenizer.ggml.tokens", &["a", "b"]),
            sample::numbers("llama.attention.head_count_kv", &[3, -1]),
            sample::number("llama.block_count", 2),
        ])
    }

    #[test]
    fn a_whole_header_is_read() {
        let header = parse(&whole()).unwrap();
        assert_eq!(header.architecture(), Some("llama"));
        let at = whole().windows(9).position(|bytes| bytes == b"\x01\0\0\0\0\0\0\0a").unwrap() as u64;
        assert_eq!(header.get("tokenizer.ggml.tokens"), Some(&Value::Array(Array { kind: TEXT, count: 2, at })));
        assert_eq!(header.own("block_count"), Some(2));
        let layers = [0, 1, 2].map(|layer| header.of_layer("attention.head_count_kv", layer));
        assert_eq!(layers, [Some(3), None, None]);
        assert_eq!(header.of_layer("block_count", 7), Some(2));
    }

    #[test]
    fn long_arrays_are_not_kept() {
        let long = sample::file(&[sample::numbers("x", &[7; 1025]), sample::numbers("y", &[7; 1024])]);
        let header = parse(&long).unwrap();
        assert!(matches!(header.get("x"), Some(Value::Array(Array { kind: 5, count: 1025, .. }))));
        assert_eq!(header.get("y"), Some(&Value::Integers(vec![7; 1024])));
    }

    #[test]
    fn texts_are_read_across_the_ends_of_a_buffer() {
        let words: Vec<String> = (0..200).map(|n| "x".repeat(n % 50)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bytes = sample::file(&[sample::texts("x", &words), sample::number("y", 5)]);
        for size in [1, 7, 8, 9, 64, 4096] {
            let reader = BufReader::with_capacity(size, Cursor::new(&bytes));
            assert_eq!(Header::parse(reader, bytes.len() as u64).unwrap().unsigned("y"), Some(5));
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let whole = whole();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn flipped_bits_never_panic_or_allocate_much() {
        let whole = whole();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn a_header_that_claims_2_to_the_60_tensors_is_refused() {
        let mut bytes = whole();
        bytes[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(matches!(parse(&bytes), Err(HeaderError::Damaged(_))));
        let mut bytes = whole();
        bytes[16..24].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(matches!(parse(&bytes), Err(HeaderError::Damaged(_))));
    }
}
