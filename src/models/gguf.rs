//! The header of a GGUF file (version 2 and 3): facts about a model without loading it.
//!
//! Spec: ggml's docs/gguf.md. A header is untrusted: every count and length is checked against the bytes that are left
//! before anything is allocated, arrays are skipped and not kept, and tensors must lie inside the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

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

/// A scalar of the header.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// An array, of which only the length is kept.
    Array(u64),
}

/// What the header says.
#[derive(Debug)]
pub struct Header {
    pub version: u32,
    pub tensors: u64,
    values: BTreeMap<String, Value>,
}

/// Sanity bound: the largest keys of real files have a few dozen bytes, the largest strings (templates) a few dozen kB.
const MAX_KEY: u64 = 1 << 16;
const MAX_TEXT: u64 = 1 << 24;
const MAX_DIMS: u32 = 4;
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
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(HeaderError::NotGguf);
        }
        let len = file.metadata()?.len();
        Self::parse(BufReader::with_capacity(1 << 16, file), len)
    }

    /// Reads a header from `len` bytes.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn parse(reader: impl Read + Seek, len: u64) -> Result<Self, HeaderError> {
        let mut bytes = Bytes { reader, left: len };
        let mut magic = [0; 4];
        if len < 4 || bytes.take(&mut magic).is_err() || &magic != b"GGUF" {
            return Err(HeaderError::NotGguf);
        }
        let version = bytes.u32()?;
        if !(2..=3).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        let (tensors, count) = (bytes.u64()?, bytes.u64()?);
        if tensors > bytes.left / MIN_TENSOR_ENTRY || count > bytes.left / MIN_VALUE_ENTRY {
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
        let header = Self { version, tensors, values };
        let end = bytes.tensor_data_end(tensors, header.unsigned("general.alignment").unwrap_or(32), len)?;
        if end > len {
            return Err(HeaderError::Truncated(format!("the tensors need {end} bytes and the file has {len}")));
        }
        Ok(header)
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
        match self.get(key) {
            Some(Value::Unsigned(n)) => Some(*n),
            Some(Value::Signed(n)) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    pub fn architecture(&self) -> Option<&str> {
        self.text("general.architecture")
    }

    pub fn chat_template(&self) -> Option<&str> {
        self.text("tokenizer.chat_template")
    }

    /// How many files a split model has; 1 for others.
    pub fn splits(&self) -> u64 {
        self.unsigned("split.count").unwrap_or(1).max(1)
    }
}

struct Bytes<R> {
    reader: R,
    left: u64,
}

impl<R: Read + Seek> Bytes<R> {
    fn take(&mut self, buffer: &mut [u8]) -> Result<(), HeaderError> {
        self.spend(buffer.len() as u64)?;
        self.reader.read_exact(buffer)?;
        Ok(())
    }

    fn spend(&mut self, count: u64) -> Result<(), HeaderError> {
        self.left =
            self.left.checked_sub(count).ok_or_else(|| HeaderError::Truncated("it ends inside its header".into()))?;
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), HeaderError> {
        self.spend(count)?;
        let count = i64::try_from(count).map_err(|_| HeaderError::Damaged("a length is too large".into()))?;
        // Within the buffer this moves a cursor only: vocabularies are 100,000 short strings.
        self.reader.seek(SeekFrom::Current(count)).map(drop).map_err(HeaderError::from)
    }

    fn u32(&mut self) -> Result<u32, HeaderError> {
        let mut bytes = [0; 4];
        self.take(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, HeaderError> {
        let mut bytes = [0; 8];
        self.take(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self, most: u64) -> Result<String, HeaderError> {
        let len = self.u64()?;
        if len > most {
            return Err(HeaderError::Damaged(format!("a text of {len} bytes")));
        }
        if len > self.left {
            return Err(HeaderError::Truncated("it ends inside its header".into()));
        }
        let mut bytes = vec![0; len as usize];
        self.take(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Value, HeaderError> {
        if kind == 8 {
            return Ok(Value::Text(self.text(MAX_TEXT)?));
        }
        if kind == 9 {
            return self.array(depth);
        }
        let width = scalar_width(kind)?;
        let mut bytes = [0; 8];
        self.take(&mut bytes[..width])?;
        let raw = u64::from_le_bytes(bytes);
        Ok(match kind {
            0 | 2 | 4 | 10 => Value::Unsigned(raw),
            1 => Value::Signed(i64::from(raw as u8 as i8)),
            3 => Value::Signed(i64::from(raw as u16 as i16)),
            5 => Value::Signed(i64::from(raw as u32 as i32)),
            6 => Value::Float(f64::from(f32::from_bits(raw as u32))),
            7 => Value::Bool(raw != 0),
            11 => Value::Signed(raw.cast_signed()),
            _ => Value::Float(f64::from_bits(raw)),
        })
    }

    fn array(&mut self, depth: u32) -> Result<Value, HeaderError> {
        let kind = self.u32()?;
        let count = self.u64()?;
        match kind {
            8 => {
                if count > self.left / 8 {
                    return Err(HeaderError::Damaged(format!("an array of {count} texts")));
                }
                for _ in 0..count {
                    let len = self.u64()?;
                    self.skip_text(len)?;
                }
            }
            9 if depth < 2 => {
                if count > self.left / 12 {
                    return Err(HeaderError::Damaged(format!("an array of {count} arrays")));
                }
                for _ in 0..count {
                    self.array(depth + 1)?;
                }
            }
            9 => {
                return Err(HeaderError::Damaged("arrays inside arrays inside arrays".into()));
            }
            kind => {
                let bytes = count.checked_mul(scalar_width(kind)? as u64);
                self.skip(bytes.ok_or_else(|| HeaderError::Damaged(format!("an array of {count} values")))?)?;
            }
        }
        Ok(Value::Array(count))
    }

    /// Skips a short text without a system call where the buffer holds it.
    fn skip_text(&mut self, len: u64) -> Result<(), HeaderError> {
        if len > 64 {
            return self.skip(len);
        }
        let mut scratch = [0; 64];
        self.take(&mut scratch[..len as usize])
    }

    /// Where the last tensor ends, from the list of tensors that follows the values.
    fn tensor_data_end(&mut self, tensors: u64, alignment: u64, len: u64) -> Result<u64, HeaderError> {
        if !alignment.is_power_of_two() {
            return Err(HeaderError::Damaged(format!("an alignment of {alignment}")));
        }
        let overflow = || HeaderError::Damaged("a tensor's size is out of range".into());
        let mut end = 0u64;
        for _ in 0..tensors {
            let name = self.text(MAX_KEY)?;
            let dims = self.u32()?;
            if dims > MAX_DIMS {
                return Err(HeaderError::Damaged(format!("tensor {name} has {dims} dimensions")));
            }
            let mut elements = 1u64;
            for _ in 0..dims {
                elements = elements.checked_mul(self.u64()?).ok_or_else(overflow)?;
            }
            let kind = self.u32()?;
            let offset = self.u64()?;
            // Types newer than this table are left to llama.cpp; only their offset is checked.
            let size = match block_size(kind) {
                Some((block, bytes)) => (elements / block).checked_mul(bytes).ok_or_else(overflow)?,
                None => 0,
            };
            end = end.max(offset.checked_add(size).ok_or_else(overflow)?);
        }
        let data = (len - self.left).next_multiple_of(alignment);
        data.checked_add(end).ok_or_else(overflow)
    }
}

fn scalar_width(kind: u32) -> Result<usize, HeaderError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(HeaderError::Damaged(format!("a value of type {kind}"))),
    }
}

/// Elements and bytes of one block of a tensor type (ggml.h, enum `ggml_type`).
fn block_size(kind: u32) -> Option<(u64, u64)> {
    Some(match kind {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        2 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        10 => (256, 84),
        11 => (256, 110),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        24 => (1, 1),
        27 | 28 => (1, 8),
        20 => (32, 18),
        39 => (32, 17),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::parse(Cursor::new(bytes), bytes.len() as u64)
    }

    /// A header with one text, one array of texts, and one F32 tensor of 8 elements.
    fn sample() -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        let text = |out: &mut Vec<u8>, s: &str| {
            out.extend((s.len() as u64).to_le_bytes());
            out.extend(s.as_bytes());
        };
        out.extend(3u32.to_le_bytes());
        out.extend(1u64.to_le_bytes());
        out.extend(2u64.to_le_bytes());
        text(&mut out, "general.architecture");
        out.extend(8u32.to_le_bytes());
        text(&mut out, "llama");
        text(&mut out, "tokenizer.ggml.tokens");
        out.extend(9u32.to_le_bytes());
        out.extend(8u32.to_le_bytes());
        out.extend(2u64.to_le_bytes());
        text(&mut out, "a");
        text(&mut out, "b");
        text(&mut out, "w");
        out.extend(1u32.to_le_bytes());
        out.extend(8u64.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend([0; 32]);
        out
    }

    #[test]
    fn a_whole_header_is_read() {
        let header = parse(&sample()).unwrap();
        assert_eq!(header.architecture(), Some("llama"));
        assert_eq!(header.get("tokenizer.ggml.tokens"), Some(&Value::Array(2)));
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let whole = sample();
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn flipped_bits_never_panic_or_allocate_much() {
        let whole = sample();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn a_header_that_claims_2_to_the_60_tensors_is_refused() {
        let mut bytes = sample();
        bytes[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(matches!(parse(&bytes), Err(HeaderError::Damaged(_))));
        let mut bytes = sample();
        bytes[16..24].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(matches!(parse(&bytes), Err(HeaderError::Damaged(_))));
    }
}
