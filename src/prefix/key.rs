//! What a saved state belongs to, and the names of blocks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine::{StateFormat, Token};

/// A model and all that its saved states depend on: change any of it, and what was saved before is a miss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKey {
    /// A digest of the model's files, `blake3:...` or `sha256:...`.
    pub content: String,
    pub state: StateFormat,
}

impl StateKey {
    /// The name of its folder, and of what the first block of a prompt follows.
    pub fn name(&self) -> Name {
        let text = serde_json::to_vec(self).unwrap_or_default();
        Name(*blake3::Hasher::new_derive_key("qchat 2026-11 model state key").update(&text).finalize().as_bytes())
    }
}

/// The BLAKE3 digest that names a state key or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u8; 32]);

impl Name {
    pub const LEN: usize = 32;

    /// The block of `tokens` behind `parent`; the first one's parent is the state key's own name.
    pub fn block(state: Name, parent: Name, tokens: &[Token]) -> Self {
        let mut hash = Naming::new(state, parent);
        hash.push(tokens);
        hash.name()
    }

    /// From the 64 hexadecimal digits of its text.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text).ok()?;
        // One text for one name: no upper case.
        (hash.to_hex().as_str() == text).then_some(Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

/// A name in the making: of ever longer runs of tokens behind one parent.
#[derive(Clone)]
pub(super) struct Naming(blake3::Hasher);

impl Naming {
    pub(super) fn new(state: Name, parent: Name) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(&state.0).update(&parent.0);
        Self(hash)
    }

    pub(super) fn push(&mut self, tokens: &[Token]) {
        for run in tokens.chunks(256) {
            let bytes: Vec<u8> = run.iter().flat_map(|token| token.0.to_le_bytes()).collect();
            self.0.update(&bytes);
        }
    }

    pub(super) fn name(&self) -> Name {
        Name(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StateKey {
        let state = StateFormat {
            engine: "e 1".into(),
            architecture: "llama".into(),
            layers: 2,
            keys: "f16".into(),
            values: "f16".into(),
            flash_attention: true,
            full_window: true,
            rope: "as trained".into(),
            adapters: Vec::new(),
        };
        StateKey { content: "blake3:00".into(), state }
    }

    #[test]
    fn any_change_of_the_key_is_another_name() {
        type Change = fn(&mut StateKey);
        let changes: [Change; 10] = [
            |key| key.content.push('1'),
            |key| key.state.engine = "e 2".into(),
            |key| key.state.architecture = "qwen2".into(),
            |key| key.state.layers = 3,
            |key| key.state.keys = "q8_0".into(),
            |key| key.state.values = "q8_0".into(),
            |key| key.state.flash_attention = false,
            |key| key.state.full_window = false,
            |key| key.state.rope = "long factors".into(),
            |key| key.state.adapters = vec!["a".into()],
        ];
        let mut names = vec![key().name()];
        for change in changes {
            let mut changed = key();
            change(&mut changed);
            names.push(changed.name());
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(key().name(), key().name());
    }

    #[test]
    fn a_name_depends_on_state_parent_and_tokens() {
        let name = |byte: u8| Name([byte; 32]);
        let tokens = [Token(1), Token(2)];
        let block = Name::block(name(1), name(2), &tokens);
        assert_eq!(block, Name::block(name(1), name(2), &tokens));
        assert_ne!(block, Name::block(name(3), name(2), &tokens));
        assert_ne!(block, Name::block(name(1), name(3), &tokens));
        assert_ne!(block, Name::block(name(1), name(2), &tokens[..1]));
        assert_eq!(Name::parse(&block.to_string()), Some(block));
        assert_eq!(Name::parse(&block.to_string().to_uppercase()), None);
        assert_eq!(Name::parse("../x"), None);
    }
}
