//! Reading that never goes beyond what is there: every count and length is checked against the bytes that are left
//! before anything is allocated.

use std::io::{BufRead, Seek, SeekFrom};

use super::{Array, HeaderError, Value};

/// The largest strings of real files (templates) have a few dozen kB.
const MAX_TEXT: u64 = 1 << 24;
/// Arrays with one number a layer are kept; those with one a token are not.
const MAX_KEPT: u64 = 1024;

/// The numbers of GGUF's value types that are not plain scalars.
pub(crate) const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// A file of `len` bytes, of which `left` are not read yet.
pub(crate) struct Bytes<R> {
    reader: R,
    len: u64,
    left: u64,
}

impl<R: BufRead + Seek> Bytes<R> {
    pub(crate) fn new(reader: R, len: u64) -> Self {
        Self { reader, len, left: len }
    }

    /// How many bytes were read: where the next one lies.
    pub(crate) fn at(&self) -> u64 {
        self.len - self.left
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Goes to a place of the file.
    pub(crate) fn go_to(&mut self, at: u64) -> Result<(), HeaderError> {
        self.left = self.len.checked_sub(at).ok_or_else(cut)?;
        self.reader.seek(SeekFrom::Start(at)).map(drop).map_err(HeaderError::from)
    }

    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> Result<(), HeaderError> {
        self.spend(buffer.len() as u64)?;
        self.reader.read_exact(buffer)?;
        Ok(())
    }

    fn spend(&mut self, count: u64) -> Result<(), HeaderError> {
        self.left = self.left.checked_sub(count).ok_or_else(cut)?;
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), HeaderError> {
        self.spend(count)?;
        let count = i64::try_from(count).map_err(|_| HeaderError::Damaged("a length is too large".into()))?;
        // Within the buffer this moves a cursor only.
        self.reader.seek_relative(count).map_err(HeaderError::from)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, HeaderError> {
        let mut bytes = [0; 4];
        self.take(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, HeaderError> {
        let mut bytes = [0; 8];
        self.take(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// `len` bytes, of which there may be at most `most`.
    pub(crate) fn run(&mut self, len: u64, most: u64) -> Result<Vec<u8>, HeaderError> {
        if len > most {
            return Err(HeaderError::Damaged(format!("a piece of {len} bytes")));
        }
        if len > self.left {
            return Err(cut());
        }
        let mut bytes = vec![0; len as usize];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, most: u64) -> Result<String, HeaderError> {
        let len = self.u64()?;
        Ok(String::from_utf8_lossy(&self.run(len, most)?).into_owned())
    }

    /// Hands on the `count` texts that come next, until `each` fails.
    ///
    /// Vocabularies are 100,000 short strings: those that lie whole in the reader's buffer are not copied.
    pub(crate) fn texts(
        &mut self,
        count: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        if count > self.left / 8 {
            return Err(HeaderError::Damaged(format!("an array of {count} texts")));
        }
        let mut rest = count;
        while rest > 0 {
            let buffer = self.reader.fill_buf()?;
            let mut used = 0;
            while rest > 0
                && let Some(text) = whole_text(&buffer[used..])
            {
                each(text)?;
                used += 8 + text.len();
                rest -= 1;
            }
            self.reader.consume(used);
            self.spend(used as u64)?;
            if rest > 0 {
                let len = self.u64()?;
                each(&self.run(len, MAX_TEXT)?)?;
                rest -= 1;
            }
        }
        Ok(())
    }

    /// A value of a type that was just read. `depth` is that of the array that it is in.
    pub(crate) fn value(&mut self, kind: u32, depth: u32) -> Result<Value, HeaderError> {
        match kind {
            TEXT => Ok(Value::Text(self.text(MAX_TEXT)?)),
            ARRAY => self.array(depth),
            kind => self.scalar(kind),
        }
    }

    fn scalar(&mut self, kind: u32) -> Result<Value, HeaderError> {
        let mut bytes = [0; 8];
        self.take(&mut bytes[..scalar_width(kind)?])?;
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
        let place = Array { kind, count, at: self.at() };
        match kind {
            TEXT => self.texts(count, |_| Ok(()))?,
            ARRAY if depth < 2 => {
                if count > self.left / 12 {
                    return Err(HeaderError::Damaged(format!("an array of {count} arrays")));
                }
                for _ in 0..count {
                    self.array(depth + 1)?;
                }
            }
            ARRAY => return Err(HeaderError::Damaged("arrays inside arrays inside arrays".into())),
            kind => {
                let bytes = count.checked_mul(scalar_width(kind)? as u64);
                let bytes = bytes.ok_or_else(|| HeaderError::Damaged(format!("an array of {count} values")))?;
                if count <= MAX_KEPT && !is_float(kind) {
                    return self.integers(kind, count);
                }
                self.skip(bytes)?;
            }
        }
        Ok(Value::Array(place))
    }

    fn integers(&mut self, kind: u32, count: u64) -> Result<Value, HeaderError> {
        let integer = |_| {
            Ok(match self.scalar(kind)? {
                Value::Unsigned(n) => i64::try_from(n).unwrap_or(i64::MAX),
                Value::Signed(n) => n,
                value => i64::from(value == Value::Bool(true)),
            })
        };
        Ok(Value::Integers((0..count).map(integer).collect::<Result<_, HeaderError>>()?))
    }
}

/// The text that a buffer begins with, where all of it is there.
fn whole_text(buffer: &[u8]) -> Option<&[u8]> {
    let (len, rest) = buffer.split_first_chunk::<8>()?;
    rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)
}

fn cut() -> HeaderError {
    HeaderError::Truncated("it ends inside its header".into())
}

fn is_float(kind: u32) -> bool {
    matches!(kind, 6 | 12)
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
