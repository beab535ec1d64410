//! Text to token ids and back with llama.cpp's tokenizer, special parsing always off.

use std::sync::Arc;

use llama_cpp_2::model::LlamaModel as Weights;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;

use crate::engine::{Special, Token, TokenKind, Vocab};

/// The vocabulary of a loaded model.
pub(super) struct LlamaVocab {
    weights: Arc<Weights>,
    len: usize,
    specials: Vec<Special>,
    /// The ids of the dummy that sentence-piece text is tokenised behind; empty for other tokenizers.
    dummy: Vec<Token>,
}

/// Every sentence-piece vocabulary has it, and text behind it begins without a space of its own.
const DUMMY: &str = "\n";

impl LlamaVocab {
    pub(super) fn new(weights: Arc<Weights>) -> Self {
        let (len, specials) = {
            let vocab = weights.vocab();
            let specials = vocab.tokens().filter_map(|token| special(&vocab, token)).collect();
            (usize::try_from(vocab.n_tokens()).unwrap_or(0), specials)
        };
        let mut this = Self { weights, len, specials, dummy: Vec::new() };
        // A tokenizer that puts a space before text turns "a" into the piece " a".
        let mut piece = Vec::new();
        if let Some(first) = this.raw("a").first() {
            this.piece(*first, &mut piece);
        }
        if piece.first() == Some(&b' ') {
            this.dummy = this.raw(DUMMY);
        }
        this
    }

    fn raw(&self, text: &str) -> Vec<Token> {
        let tokens = self.weights.vocab().tokenize(text.as_bytes(), false, false);
        tokens.into_iter().map(|token| Token(token.0)).collect()
    }
}

fn special(vocab: &llama_cpp_2::vocab::LlamaVocab, token: LlamaToken) -> Option<Special> {
    let attrs = vocab.attr(token);
    let kind = if attrs.contains(LlamaTokenAttr::Control) || attrs.contains(LlamaTokenAttr::Unknown) {
        TokenKind::Control
    } else if attrs.contains(LlamaTokenAttr::UserDefined) {
        TokenKind::UserDefined
    } else {
        return None;
    };
    let text = vocab.text(token)?.to_str().ok()?.to_owned();
    (!text.is_empty()).then_some(Special {
        token: Token(token.0),
        text,
        kind,
        strips_left: attrs.contains(LlamaTokenAttr::LStrip),
        strips_right: attrs.contains(LlamaTokenAttr::RStrip),
    })
}

impl Vocab for LlamaVocab {
    fn len(&self) -> usize {
        self.len
    }

    fn bos(&self) -> Option<Token> {
        present(self.weights.vocab().bos())
    }

    fn eos(&self) -> Option<Token> {
        present(self.weights.vocab().eos())
    }

    fn adds_bos(&self) -> bool {
        self.weights.vocab().should_add_bos()
    }

    fn is_end(&self, token: Token) -> bool {
        self.weights.vocab().is_eog(LlamaToken(token.0))
    }

    fn specials(&self) -> &[Special] {
        &self.specials
    }

    fn tokenize(&self, text: &str) -> Vec<Token> {
        if self.dummy.is_empty() {
            return self.raw(text);
        }
        let mut tokens = self.raw(&format!("{DUMMY}{text}"));
        if tokens.starts_with(&self.dummy) {
            tokens.drain(..self.dummy.len());
            return tokens;
        }
        // The dummy merged into the text (a run of newlines): the added space is the lesser evil.
        self.raw(text)
    }

    fn spaces_first_piece(&self) -> bool {
        !self.dummy.is_empty()
    }

    fn piece(&self, token: Token, bytes: &mut Vec<u8>) {
        self.weights.vocab().token_to_piece_into(LlamaToken(token.0), bytes, false, None);
    }
}

fn present(token: LlamaToken) -> Option<Token> {
    (token.0 >= 0).then_some(Token(token.0))
}
