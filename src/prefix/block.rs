//! One file: the state of a run of positions, the tokens it stands for, and a seal.
//!
//! ```text
//! magic 8 | seal key's id 8 | state key 32 | parent 32 | kind 4 | tokens 4 | first position 8 | payload length 8
//! tokens 4 each | payload | seal 32: BLAKE3 of everything before it, keyed
//! ```
//!
//! Numbers are little-endian. Nothing of a file is believed before its seal is verified, except to find out whether it is
//! worth reading: the tokens decide that, and they are under the seal too.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::key::Name;
use super::layout::FileName;
use super::seal::{SEAL, SealKey};
use crate::engine::Token;

const MAGIC: &[u8; 8] = b"qchatkv1";
const FIXED: usize = 8 + 8 + 32 + 32 + 4 + 4 + 8 + 8;
/// More tokens than any model has positions.
const MOST_TOKENS: u32 = 1 << 24;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The KV of the tokens' positions.
    Block,
    /// The whole state behind them: of no use unless all of them match.
    Whole,
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub state: Name,
    pub parent: Name,
    pub kind: Kind,
    /// The first token's position.
    pub first: usize,
    pub tokens: Vec<Token>,
}

impl Header {
    /// Whether `path` ends as its name has it.
    pub(super) fn is_called_so(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == FileName::of(self).text().as_str())
    }
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Damaged or cut short.
    #[error("it is damaged")]
    Broken,
    /// Sealed with another key: nothing can be said of it.
    #[error("it was sealed with another key")]
    Foreign,
}

/// A file whose header was read; its payload comes with [`Entry::payload`].
#[derive(Debug)]
pub struct Entry {
    pub path: PathBuf,
    pub header: Header,
    pub payload_len: usize,
    /// None where it is to be opened again.
    file: Option<File>,
    /// The bytes before the payload, as they are under the seal.
    before: Vec<u8>,
}

impl Entry {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// When it is not there, is damaged, or of another key.
    pub fn open(path: &Path, key: &SealKey) -> Result<Self, Fault> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut before = vec![0; FIXED];
        // One read brings the header of a block: its tokens are a kilobyte.
        let mut start = vec![0; FIXED + 1024];
        let got = read_up_to(&mut file, &mut start)?;
        if got < FIXED || &start[..8] != MAGIC {
            return Err(Fault::Broken);
        }
        before.copy_from_slice(&start[..FIXED]);
        if before[8..16] != key.id() {
            return Err(Fault::Foreign);
        }
        let u32_at = |at: usize| u32::from_le_bytes(before[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(before[at..at + 8].try_into().unwrap_or_default());
        let name_at = |at: usize| Name(before[at..at + 32].try_into().unwrap_or_default());
        let kind = match u32_at(80) {
            0 => Kind::Block,
            1 => Kind::Whole,
            _ => return Err(Fault::Broken),
        };
        let (count, first, payload_len) = (u32_at(84), u64_at(88), u64_at(96));
        let (state, parent) = (name_at(16), name_at(48));
        let whole = (FIXED as u64) + u64::from(count) * 4;
        if count == 0
            || count > MOST_TOKENS
            || whole.checked_add(payload_len).is_none_or(|end| end + SEAL as u64 != len)
        {
            return Err(Fault::Broken);
        }
        let wanted = whole as usize;
        before.extend_from_slice(&start[FIXED..got.min(wanted).max(FIXED)]);
        let have = before.len();
        before.resize(wanted, 0);
        if have < wanted {
            file.read_exact(&mut before[have..])?;
        } else {
            file.seek(SeekFrom::Start(whole))?;
        }
        let token = |bytes: &[u8]| Token(i32::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let tokens = before[FIXED..].chunks_exact(4).map(token).collect();
        let header = Header { state, parent, kind, first: usize::try_from(first).unwrap_or(usize::MAX), tokens };
        Ok(Self { path: path.to_owned(), header, payload_len: payload_len as usize, file: Some(file), before })
    }

    /// Reads the payload into `payload`, which may have room from before, and verifies its seal.
    ///
    /// # Errors
    /// When a single bit is wrong.
    pub fn payload(&mut self, key: &SealKey, payload: &mut Vec<u8>) -> Result<(), Fault> {
        let file = match &mut self.file {
            Some(file) => file,
            closed => {
                let mut file = File::open(&self.path)?;
                file.seek(SeekFrom::Start(self.before.len() as u64))?;
                closed.insert(file)
            }
        };
        let mut hash = key.hasher();
        hash.update(&self.before);
        payload.resize(self.payload_len, 0);
        // Hashed while it is in the processor's cache.
        for piece in payload.chunks_mut(1 << 18) {
            file.read_exact(piece).map_err(short)?;
            hash.update(piece);
        }
        let mut seal = [0; SEAL];
        file.read_exact(&mut seal).map_err(short)?;
        // Compared in constant time, as blake3's hashes are.
        if hash.finalize() == blake3::Hash::from_bytes(seal) { Ok(()) } else { Err(Fault::Broken) }
    }

    /// Says that it was of use now: what was not used for longest is evicted first. Closes the file.
    pub fn touch(&mut self) {
        // Where that is not allowed, order suffers and nothing else.
        let _ = self.file.take().map(|file| file.set_modified(std::time::SystemTime::now()));
    }

    /// Closes the file; its payload can be had as long as it is there.
    pub(super) fn close(&mut self) {
        self.file = None;
    }
}

/// Whether a file says that it was sealed with this key.
pub(super) fn is_of(path: &Path, key: &SealKey) -> bool {
    let mut start = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start[..8] == *MAGIC && start[8..] == key.id()
}

fn short(error: io::Error) -> Fault {
    if error.kind() == io::ErrorKind::UnexpectedEof { Fault::Broken } else { Fault::Io(error) }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Writes header, payload and seal.
///
/// # Errors
/// What the writer says.
pub(super) fn write(out: &mut impl Write, header: &Header, payload: &[u8], key: &SealKey) -> io::Result<()> {
    let mut before = Vec::with_capacity(FIXED + header.tokens.len() * 4);
    before.extend_from_slice(MAGIC);
    before.extend_from_slice(&key.id());
    before.extend_from_slice(&header.state.0);
    before.extend_from_slice(&header.parent.0);
    before.extend_from_slice(&(header.kind as u32).to_le_bytes());
    before.extend_from_slice(&(header.tokens.len() as u32).to_le_bytes());
    before.extend_from_slice(&(header.first as u64).to_le_bytes());
    before.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    before.extend(header.tokens.iter().flat_map(|token| token.0.to_le_bytes()));
    let mut hash = key.hasher();
    hash.update(&before).update(payload);
    out.write_all(&before)?;
    out.write_all(payload)?;
    out.write_all(hash.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, Vec<u8>) {
        let tokens = (0..300).map(Token).collect();
        let header = Header { state: Name([1; 32]), parent: Name([2; 32]), kind: Kind::Whole, first: 512, tokens };
        (header, (0..1000u32).flat_map(u32::to_le_bytes).collect())
    }

    fn file(folder: &Path, bytes: &[u8]) -> PathBuf {
        let path = folder.join("block");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn bytes(key: &SealKey) -> Vec<u8> {
        let (header, payload) = sample();
        let mut bytes = Vec::new();
        write(&mut bytes, &header, &payload, key).unwrap();
        bytes
    }

    fn read(path: &Path, key: &SealKey) -> Result<(Header, Vec<u8>), Fault> {
        let mut entry = Entry::open(path, key)?;
        let mut payload = vec![7; 9];
        entry.payload(key, &mut payload)?;
        Ok((entry.header, payload))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let key = SealKey::of([7; 32]);
        let (header, payload) = sample();
        for (count, kind) in [(1, Kind::Block), (255, Kind::Block), (256, Kind::Block), (300, Kind::Whole)] {
            let header = Header { tokens: header.tokens[..count].to_vec(), kind, ..header.clone() };
            let mut bytes = Vec::new();
            write(&mut bytes, &header, &payload, &key).unwrap();
            assert_eq!(read(&file(folder.path(), &bytes), &key).unwrap(), (header, payload.clone()));
        }
    }

    #[test]
    fn a_file_cut_anywhere_or_longer_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let key = SealKey::of([7; 32]);
        let whole = bytes(&key);
        for len in (0..200).chain((200..whole.len()).step_by(37)) {
            assert!(matches!(read(&file(folder.path(), &whole[..len]), &key), Err(Fault::Broken)), "cut at {len}");
        }
        let longer = [whole, vec![0]].concat();
        assert!(matches!(read(&file(folder.path(), &longer), &key), Err(Fault::Broken)));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let key = SealKey::of([7; 32]);
        let whole = bytes(&key);
        for at in (0..1600).chain((1600..whole.len()).step_by(29)).chain(whole.len() - 40..whole.len()) {
            let mut bad = whole.clone();
            bad[at] ^= 1 << (at % 8);
            let fault = read(&file(folder.path(), &bad), &key).unwrap_err();
            // The key's id is what tells a file of another key; all else is damage.
            assert_eq!(matches!(fault, Fault::Foreign), (8..16).contains(&at), "byte {at}: {fault:?}");
        }
    }

    #[test]
    fn another_key_is_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), &bytes(&SealKey::of([7; 32])));
        assert!(matches!(read(&path, &SealKey::of([8; 32])), Err(Fault::Foreign)));
    }
}
