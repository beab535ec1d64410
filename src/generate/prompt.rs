//! From a marked prompt to token ids, such that text of a message can never become a control token.
//!
//! The rendered prompt is split at the special tokens that no mark broke: the template's own, which become ids directly.
//! The marks are taken out and each run between them is tokenised whole, with special parsing off.

use std::collections::BTreeSet;

use crate::chat::Marked;
use crate::engine::{Special, Token, TokenKind, Vocab};

/// Encodes prompts for one vocabulary and template.
pub struct Encoder<'v> {
    vocab: &'v dyn Vocab,
    /// Longest first, so that `<|end|>` does not hide `<|end|>x`.
    guarded: Vec<&'v Special>,
    first_chars: BTreeSet<char>,
}

impl<'v> Encoder<'v> {
    /// `template` decides which user-defined tokens steer the model: those that it writes itself, and thoughts.
    /// Others (Gemma's runs of white space, HTML tags) are only text and stay matched in text.
    pub fn new(vocab: &'v dyn Vocab, template: Option<&str>) -> Self {
        // A text of one character cannot be told from the same character in a message, so it stays text.
        let steers = |special: &Special| match special.kind {
            _ if special.text.chars().count() < 2 => false,
            TokenKind::Control => true,
            TokenKind::UserDefined => {
                let text = special.text.as_str();
                text.trim() == text
                    && (text.contains("think") || text.contains("tool") || template.is_some_and(|t| t.contains(text)))
            }
            TokenKind::Normal => false,
        };
        let mut guarded: Vec<&Special> = vocab.specials().iter().filter(|special| steers(special)).collect();
        guarded.sort_by_key(|special| std::cmp::Reverse(special.text.len()));
        let first_chars = guarded.iter().filter_map(|special| special.text.chars().next()).collect();
        Self { vocab, guarded, first_chars }
    }

    /// The texts that messages must not bring in as tokens.
    pub fn guarded_texts(&self) -> Vec<String> {
        self.guarded.iter().map(|special| special.text.clone()).collect()
    }

    /// The text of a token as a template variable (`bos_token`).
    pub fn text_of(&self, token: Option<Token>) -> &str {
        let special = self.vocab.specials().iter().find(|special| Some(special.token) == token);
        special.map_or("", |special| &special.text)
    }

    /// The ids of a rendered conversation, BOS as declared and never twice.
    pub fn encode(&self, prompt: &Marked) -> Vec<Token> {
        self.with_bos(self.encode_marked(prompt))
    }

    /// The ids of the template's own text, within a prompt or an answer.
    pub fn encode_within(&self, text: &str) -> Vec<Token> {
        self.encode_marked(&Marked { text: text.to_owned(), mark: '\u{e000}' })
    }

    fn encode_marked(&self, prompt: &Marked) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut rest = prompt.text.as_str();
        let mut strip = false;
        loop {
            let found = self.next_special(rest);
            let (run, after) =
                found.map_or((rest, ""), |(at, special)| (&rest[..at], &rest[at + special.text.len()..]));
            let run = if strip { run.trim_start() } else { run };
            let run = if found.is_some_and(|(_, special)| special.strips_left) { run.trim_end() } else { run };
            self.encode_run(&run.replace(prompt.mark, ""), &mut tokens);
            let Some((_, special)) = found else { break };
            tokens.push(special.token);
            strip = special.strips_right;
            rest = after;
        }
        tokens
    }

    /// The ids of plain text: no template, no control tokens.
    pub fn encode_plain(&self, text: &str) -> Vec<Token> {
        self.with_bos(self.encode_text(text))
    }

    /// The ids of text that stands within a prompt.
    pub fn encode_text(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.encode_run(text, &mut tokens);
        tokens
    }

    fn with_bos(&self, mut tokens: Vec<Token>) -> Vec<Token> {
        let Some(bos) = self.vocab.bos() else {
            return tokens;
        };
        let written = tokens.iter().take_while(|token| **token == bos).count();
        let wanted = usize::from(written > 0 || self.vocab.adds_bos());
        tokens.splice(..written, std::iter::repeat_n(bos, wanted));
        tokens
    }

    /// The first special token in a text, the longest where several begin.
    fn next_special(&self, text: &str) -> Option<(usize, &'v Special)> {
        self.next_of(text, |_| true)
    }

    fn next_of(&self, text: &str, wanted: impl Fn(&Special) -> bool) -> Option<(usize, &'v Special)> {
        // One pass: most characters begin no special token.
        text.char_indices().filter(|(_, c)| self.first_chars.contains(c)).find_map(|(at, _)| {
            let here = |special: &&&Special| wanted(special) && text[at..].starts_with(&special.text);
            Some((at, *self.guarded.iter().find(here)?))
        })
    }

    /// Tokenises text of messages and template. Engines match user-defined tokens even where no special token may be
    /// parsed, so a text of one is cut before its last character.
    fn encode_run(&self, text: &str, tokens: &mut Vec<Token>) {
        let mut rest = text;
        while let Some((at, special)) = self.next_of(rest, |special| special.kind == TokenKind::UserDefined) {
            let last = special.text.chars().next_back().map_or(0, char::len_utf8);
            let (head, tail) = rest.split_at(at + special.text.len() - last);
            tokens.extend(self.vocab.tokenize(head));
            rest = tail;
        }
        if !rest.is_empty() {
            tokens.extend(self.vocab.tokenize(rest));
        }
    }
}
