//! Where files lie, and what their names tell.
//!
//! ```text
//! <root>/key                                  the seal key
//! <root>/lock                                 held while something is evicted
//! <root>/usage.json                           bytes in the store, about
//! <root>/<state key>/about.json               the state key in words, the model's name, measured rates
//! <root>/<state key>/<parent>/<block>.<marks> children of one block share a folder
//! <root>/<state key>/<state key>/<name>.w<n>  the whole state behind n tokens
//! ```
//!
//! The marks are a byte for each of some lengths, a digest of that many of the block's first tokens: of ten thousand
//! children, those that begin like a prompt are found by name.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::block::{Header, Kind};
use super::key::{Name, Naming};
use crate::engine::Token;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The lengths that have a mark.
const MARKED: [usize; 9] = [8, 16, 32, 64, 96, 128, 160, 192, 224];

/// A file's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) name: Name,
    pub(super) kind: Tail,
}

/// What follows the digest in a file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Marks(Vec<u8>),
    /// The tokens of a whole state.
    Whole(usize),
}

impl FileName {
    pub(super) fn of(header: &Header) -> Self {
        let name = Name::block(header.state, header.parent, &header.tokens);
        let kind = match header.kind {
            Kind::Block => Tail::Marks(marks(&header.tokens)),
            Kind::Whole => Tail::Whole(header.tokens.len()),
        };
        Self { name, kind }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, tail) = text.split_once('.')?;
        let kind = match tail.strip_prefix('w') {
            Some(count) => Tail::Whole(count.parse().ok()?),
            None => Tail::Marks(unhex(tail)?),
        };
        Some(Self { name: Name::parse(name)?, kind })
    }

    pub(super) fn text(&self) -> String {
        match &self.kind {
            Tail::Marks(marks) => format!("{}.{}", self.name, hex(marks)),
            Tail::Whole(count) => format!("{}.w{count}", self.name),
        }
    }
}

/// How many marks a file's name has like `wanted`, from the first on; none where it is no block's name.
pub(super) fn same_marks(name: &OsStr, wanted: &[u8]) -> Option<usize> {
    let bytes = name.as_encoded_bytes();
    let marks = bytes.get(2 * Name::LEN + 1..).filter(|_| bytes[2 * Name::LEN] == b'.')?;
    if marks.first() == Some(&b'w') {
        return None;
    }
    let same =
        |(own, wanted): (&[u8], &u8)| own == [DIGITS[usize::from(wanted >> 4)], DIGITS[usize::from(wanted & 15)]];
    Some(marks.chunks_exact(2).zip(wanted).take_while(|pair| same(*pair)).count())
}

/// The marks of a block.
pub(super) fn marks(tokens: &[Token]) -> Vec<u8> {
    let mut hash = Naming::new(Name([0; 32]), Name([0; 32]));
    let mut from = 0;
    let mut marks = Vec::new();
    for length in MARKED.into_iter().take_while(|length| *length <= tokens.len()) {
        hash.push(&tokens[from..length]);
        marks.push(hash.name().0[0]);
        from = length;
    }
    marks
}

/// The path of a block's file.
pub(super) fn path(root: &Path, header: &Header) -> PathBuf {
    folder(root, header.state, header.parent).join(FileName::of(header).text())
}

/// Where the children of `parent` lie.
pub(super) fn folder(root: &Path, state: Name, parent: Name) -> PathBuf {
    root.join(state.to_string()).join(parent.to_string())
}

/// Makes a folder and those above it, for this user alone.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// How a file for this user alone is opened to be written.
pub(super) fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::File::options();
    options.create(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    digits.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_as_they_were_made() {
        let tokens: Vec<Token> = (0..256).map(Token).collect();
        for (kind, count) in [(Kind::Block, 256), (Kind::Block, 3), (Kind::Block, 40), (Kind::Whole, 200)] {
            let header = Header {
                state: Name([1; 32]),
                parent: Name([2; 32]),
                kind,
                first: 0,
                tokens: tokens[..count].to_vec(),
            };
            let name = FileName::of(&header);
            assert_eq!(FileName::parse(&name.text()), Some(name));
        }
        for bad in ["", "x", "key", ".tmpABC", &format!("{}.zz", "a".repeat(64)), &format!("{}.abc", "a".repeat(64))] {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn marks_are_equal_as_far_as_tokens_are() {
        let tokens: Vec<Token> = (0..256).map(Token).collect();
        let mut other = tokens.clone();
        other[100] = Token(-1);
        let (a, b) = (marks(&tokens), marks(&other));
        // 8, 16, 32, 64 and 96 tokens are the same.
        assert_eq!(a[..5], b[..5]);
        assert_ne!(a[5..], b[5..]);
        assert_eq!(marks(&tokens[..40]), a[..3]);
        let header = Header { state: Name([1; 32]), parent: Name([2; 32]), kind: Kind::Block, first: 0, tokens };
        let name = FileName::of(&header).text();
        assert_eq!(same_marks(OsStr::new(&name), &b), Some(5));
        assert_eq!(same_marks(OsStr::new(&name), &a), Some(9));
        assert_eq!(same_marks(OsStr::new("key"), &a), None);
        let whole = FileName::of(&Header { kind: Kind::Whole, ..header }).text();
        assert_eq!(same_marks(OsStr::new(&whole), &a), None);
    }
}
