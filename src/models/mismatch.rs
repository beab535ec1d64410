//! Why one model cannot draft for another, in one line.

use std::fmt;

/// The first thing in which two vocabularies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A token's texts; none where a model has no such token.
    Token { id: usize, target: Option<String>, draft: Option<String> },
    /// The names of the tokenizers.
    Tokenizer { target: String, draft: String },
    /// The ids of a special token.
    Special { name: &'static str, target: u64, draft: u64 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { id, target, draft } => {
                write!(
                    f,
                    "token {id} is {} in the target and {} in the draft",
                    shown(target.as_ref()),
                    shown(draft.as_ref())
                )
            }
            Self::Tokenizer { target, draft } => {
                write!(f, "the target's tokenizer is {target} and the draft's {draft}")
            }
            Self::Special { name, target, draft } => {
                write!(f, "the {name} token is {target} in the target and {draft} in the draft")
            }
        }
    }
}

/// A text as it can stand in a line: quoted, cut where it is long, without control characters.
fn shown(text: Option<&String>) -> String {
    const MOST: usize = 24;
    let Some(text) = text else { return "missing".into() };
    let more = if text.chars().count() > MOST { "..." } else { "" };
    let start: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    format!("'{start}{more}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_is_one_line_without_control_characters() {
        let token = |target: &str, draft: Option<&str>| {
            Mismatch::Token { id: 12, target: Some(target.into()), draft: draft.map(str::to_owned) }.to_string()
        };
        assert_eq!(token("foo", Some("bar")), "token 12 is 'foo' in the target and 'bar' in the draft");
        assert_eq!(
            token("a\n\x1b[2J\u{202e}", None),
            r"token 12 is 'a\n\u{1b}[2J\u{202e}' in the target and missing in the draft"
        );
        assert_eq!(token("Ġé", Some("")), "token 12 is 'Ġé' in the target and '' in the draft");
        let long = token(&"xy".repeat(40), Some("b"));
        assert_eq!(long, format!("token 12 is '{}...' in the target and 'b' in the draft", "xy".repeat(12)));
    }

    #[test]
    fn tokenizers_and_special_tokens_are_named() {
        let tokenizer = Mismatch::Tokenizer { target: "gpt2/qwen2".into(), draft: "gpt2/smollm".into() };
        assert_eq!(tokenizer.to_string(), "the target's tokenizer is gpt2/qwen2 and the draft's gpt2/smollm");
        let special = Mismatch::Special { name: "eos", target: 7, draft: 8 };
        assert_eq!(special.to_string(), "the eos token is 7 in the target and 8 in the draft");
    }
}
