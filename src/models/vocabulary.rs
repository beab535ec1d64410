//! What a model's tokens are, read from its file: whether one model can draft for another.

use std::io::{BufRead, Seek};
use std::path::Path;

use super::gguf::{self, Array, Bytes, Header, HeaderError, TEXT, Value};
use super::mismatch::Mismatch;
use super::texts::Texts;

/// Sanity bound: the largest vocabularies have 262,144 tokens.
const MAX_TOKENS: u64 = 1 << 22;
/// GGUF's type of tokens that stand for nothing: rows added to round the matrices up.
const UNUSED: u8 = 5;
/// The special tokens that two models must agree on: those that begin, end or divide a text. Not padding, unknown and
/// mask tokens, which are never said, and which converters set as they like.
const SPECIALS: [&str; 10] =
    ["bos", "eos", "eot", "eom", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"];

/// How a model names its tokens, from the header alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tokenizer {
    model: String,
    /// How text is split before it is merged.
    pre: String,
    /// In the order of [`SPECIALS`].
    specials: [Option<u64>; SPECIALS.len()],
}

/// A model's tokens.
#[derive(Debug)]
pub struct Vocabulary {
    tokenizer: Tokenizer,
    texts: Texts,
    /// GGUF's token types; a token without one is a normal one.
    kinds: Vec<u8>,
}

impl Tokenizer {
    pub(super) fn of(header: &Header) -> Self {
        let text = |key: &str, default: &str| header.text(key).unwrap_or(default).to_owned();
        Self {
            model: text("tokenizer.ggml.model", "none"),
            pre: text("tokenizer.ggml.pre", "default"),
            specials: SPECIALS.map(|name| header.unsigned(&format!("tokenizer.ggml.{name}_token_id"))),
        }
    }

    /// What stands against a draft, as far as its header says.
    pub(super) fn mismatch(&self, draft: &Self) -> Option<Mismatch> {
        if (&self.model, &self.pre) != (&draft.model, &draft.pre) {
            let name = |own: &Self| format!("{}/{}", own.model, own.pre);
            return Some(Mismatch::Tokenizer { target: name(self), draft: name(draft) });
        }
        let pairs = SPECIALS.into_iter().zip(self.specials.into_iter().zip(draft.specials));
        pairs.into_iter().find_map(|(name, ids)| match ids {
            (Some(target), Some(draft)) if target != draft => Some(Mismatch::Special { name, target, draft }),
            _ => None,
        })
    }
}

impl Vocabulary {
    /// Reads the tokens of a file (the first one of a split model) whose header was read before.
    ///
    /// # Errors
    /// When the file has no tokens, or cannot be read.
    pub fn read(path: &Path, header: &Header) -> Result<Self, HeaderError> {
        let (reader, len) = gguf::open(path)?;
        Self::parse(reader, len, header)
    }

    fn parse(reader: impl BufRead + Seek, len: u64, header: &Header) -> Result<Self, HeaderError> {
        let Some(Value::Array(Array { kind: TEXT, count, at })) = header.get("tokenizer.ggml.tokens") else {
            return Err(HeaderError::Damaged("it has no list of tokens".into()));
        };
        if *count > MAX_TOKENS {
            return Err(HeaderError::Damaged(format!("a vocabulary of {count} tokens")));
        }
        let mut bytes = Bytes::new(reader, len);
        bytes.go_to(*at)?;
        let mut texts = Texts::with_capacity(*count as usize);
        let too_long = || HeaderError::Damaged("its tokens have too many bytes".into());
        bytes.texts(*count, |text| texts.push(text).ok_or_else(too_long))?;
        Ok(Self { tokenizer: Tokenizer::of(header), texts, kinds: kinds(&mut bytes, *count, header)? })
    }

    /// How many tokens there are, padding included.
    #[allow(clippy::len_without_is_empty, reason = "a vocabulary without tokens is not asked about")]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// What stands against `draft` proposing tokens to the model of this vocabulary; none where it fits.
    ///
    /// It fits when both name the same tokenizer and special tokens, every id that both have is the same text, and the
    /// ids that only one has are padding.
    pub fn mismatch(&self, draft: &Self) -> Option<Mismatch> {
        let text = |own: &Self, id| own.texts.get(id).map(|text| String::from_utf8_lossy(text).into_owned());
        // Of all that may differ, a token says most to a reader.
        let differs = self.texts.first_difference(&draft.texts);
        let lone = || {
            let longer = if self.len() > draft.len() { self } else { draft };
            (self.len().min(draft.len())..longer.len()).find(|id| !longer.is_padding(*id))
        };
        let token = |id| Mismatch::Token { id, target: text(self, id), draft: text(draft, id) };
        differs.or_else(lone).map(token).or_else(|| self.tokenizer.mismatch(&draft.tokenizer))
    }

    /// Whether a token only rounds the vocabulary up to a size.
    fn is_padding(&self, id: usize) -> bool {
        let text = self.texts.get(id).unwrap_or_default();
        let numbered = |start: &[u8], end: &[u8]| {
            let number = text.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            number.is_some_and(|number| number.iter().all(|c| c.is_ascii_digit() || *c == b'_'))
        };
        self.kinds.get(id) == Some(&UNUSED)
            || text.is_empty()
            || numbered(b"[PAD", b"]")
            || numbered(b"<unused", b">")
            || numbered(b"<|dummy", b"|>")
    }
}

/// The token types, one 32-bit number each.
fn kinds(bytes: &mut Bytes<impl BufRead + Seek>, tokens: u64, header: &Header) -> Result<Vec<u8>, HeaderError> {
    let narrow = |kind: i64| u8::try_from(kind).unwrap_or(0);
    match header.get("tokenizer.ggml.token_type") {
        Some(Value::Integers(kinds)) => Ok(kinds.iter().map(|kind| narrow(*kind)).collect()),
        Some(Value::Array(Array { kind: 4 | 5, count, at })) => {
            bytes.go_to(*at)?;
            let numbers = bytes.run((*count).min(tokens) * 4, MAX_TOKENS * 4)?;
            let (numbers, _) = numbers.as_chunks::<4>();
            Ok(numbers.iter().map(|kind| narrow(i64::from(i32::from_le_bytes(*kind)))).collect())
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::gguf::sample;
    use std::io::Cursor;

    const TOKENS: &str = "tokenizer.ggml.tokens";
    const KINDS: &str = "tokenizer.ggml.token_type";

    fn parse(bytes: &[u8]) -> Result<Vocabulary, HeaderError> {
        let len = bytes.len() as u64;
        Vocabulary::parse(Cursor::new(bytes), len, &Header::parse(Cursor::new(bytes), len)?)
    }

    fn with(tokens: &[&str], more: &[Vec<u8>]) -> Vocabulary {
        let own = [sample::text("tokenizer.ggml.model", "gpt2"), sample::texts(TOKENS, tokens)];
        parse(&sample::file(&[&own[..], more].concat())).unwrap()
    }

    fn mismatch(target: &Vocabulary, draft: &Vocabulary) -> String {
        let lines = [(target, draft), (draft, target)].map(|(a, b)| a.mismatch(b).map(|mismatch| mismatch.to_string()));
        assert_eq!(lines[0].is_some(), lines[1].is_some(), "it fits both ways or none");
        lines[0].clone().unwrap_or_default()
    }

    const ABC: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn the_first_token_that_differs_is_named() {
        let target = with(&ABC, &[]);
        assert_eq!(mismatch(&target, &with(&ABC, &[])), "");
        assert_eq!(
            mismatch(&target, &with(&["a", "x", "y"], &[])),
            "token 1 is 'b' in the target and 'x' in the draft"
        );
        // Also where the tokenizers have other names.
        let other = with(&["x"], &[sample::text("tokenizer.ggml.pre", "other")]);
        assert_eq!(mismatch(&target, &other), "token 0 is 'a' in the target and 'x' in the draft");
    }

    #[test]
    fn only_padding_may_be_missing() {
        let target = with(&ABC, &[]);
        for padding in ["[PAD3]", "<unused3>", "<|dummy_3|>", ""] {
            assert_eq!(mismatch(&with(&[&ABC[..], &[padding, "[PAD4]"]].concat(), &[]), &target), "", "{padding}");
        }
        for text in ["d", "[PADx]", "<unused3", "x<|dummy|>"] {
            let longer = with(&[&ABC[..], &["[PAD3]", text]].concat(), &[]);
            let line = format!("token 4 is missing in the target and '{text}' in the draft");
            assert_eq!(mismatch(&target, &longer), line);
        }
        // A token of the type that stands for nothing, whatever its text.
        let kinds = [sample::numbers(KINDS, &[1, 1, 1, 5])];
        assert_eq!(mismatch(&target, &with(&["a", "b", "c", "d"], &kinds)), "");
        // Where both have padding it is compared like any token.
        assert!(mismatch(&with(&["a", "[PAD1]"], &[]), &with(&["a", "<unused1>"], &[])).contains("[PAD1]"));
    }

    #[test]
    fn tokenizers_and_special_tokens_are_compared() {
        let target = with(&ABC, &[]);
        let pre = |name: &str| with(&ABC, &[sample::text("tokenizer.ggml.pre", name)]);
        assert_eq!(mismatch(&target, &pre("default")), "");
        assert_eq!(mismatch(&target, &pre("x")), "the target's tokenizer is gpt2/default and the draft's gpt2/x");
        let id = |name: &str, id: u32| with(&ABC, &[sample::number(&format!("tokenizer.ggml.{name}_token_id"), id)]);
        assert_eq!(mismatch(&id("eos", 1), &id("eos", 1)), "");
        assert_eq!(mismatch(&id("eos", 1), &id("eos", 2)), "the eos token is 1 in the target and 2 in the draft");
        // Only what both name, and not what is never said.
        assert_eq!(mismatch(&id("eos", 1), &target), "");
        assert_eq!(mismatch(&id("padding", 1), &id("padding", 2)), "");
    }

    #[test]
    fn long_lists_of_types_are_read_from_their_place() {
        let tokens: Vec<String> = (0..2000).map(|id| format!("t{id}")).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let kinds: Vec<i32> = (0..2000).map(|id| if id < 1500 { 1 } else { 5 }).collect();
        let longer = with(&tokens, &[sample::numbers(KINDS, &kinds)]);
        assert_eq!(longer.len(), 2000);
        assert_eq!(mismatch(&longer, &with(&tokens[..1500], &[])), "");
        assert!(mismatch(&longer, &with(&tokens[..1499], &[])).starts_with("token 1499 is 't1499' in the target"));
    }

    #[test]
    fn flipped_bits_never_panic_or_allocate_much() {
        let own = [sample::texts(TOKENS, &["a", "bc", "", "def"]), sample::numbers(KINDS, &[1, 3, 5, 1])];
        let whole = sample::file(&own);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(vocabulary) = parse(&bytes) {
                assert!(vocabulary.len() <= whole.len() / 8 && vocabulary.kinds.len() <= whole.len() / 4, "bit {bit}");
            }
            // A header that was read from another file.
            let header = Header::parse(Cursor::new(&whole), whole.len() as u64).unwrap();
            for len in [whole.len(), bit / 8] {
                let _ = Vocabulary::parse(Cursor::new(&bytes[..len]), len as u64, &header);
            }
        }
    }

    #[test]
    fn a_file_without_tokens_is_an_error() {
        assert!(parse(&sample::file(&[sample::text("general.architecture", "llama")])).is_err());
    }
}
