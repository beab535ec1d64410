//! A prompt in the tokens that were really decoded: a model does not always write a text in the tokens that its tokenizer
//! would, and what is in the KV are those that it wrote.

use crate::engine::{Token, Vocab};

/// `prompt`, its beginning exchanged for that of `decoded` as far as both stand for the same text and the same control
/// tokens.
pub fn align(vocab: &dyn Vocab, decoded: &[Token], prompt: Vec<Token>) -> Vec<Token> {
    let mut same = Same { vocab, decoded, prompt: &prompt, at: (0, 0), ahead: (Vec::new(), Vec::new()) };
    let mut meet = (0, 0);
    while same.advance() {
        meet = same.at;
    }
    if meet.0 == meet.1 && decoded[..meet.0] == prompt[..meet.1] {
        return prompt;
    }
    let mut aligned = decoded[..meet.0].to_vec();
    aligned.extend_from_slice(&prompt[meet.1..]);
    aligned
}

/// Two runs of tokens, read as text side by side.
struct Same<'a> {
    vocab: &'a dyn Vocab,
    decoded: &'a [Token],
    prompt: &'a [Token],
    /// Tokens of both that were taken.
    at: (usize, usize),
    /// Bytes of them that the other has not matched yet.
    ahead: (Vec<u8>, Vec<u8>),
}

impl Same<'_> {
    /// On to the next place where a token ends in both; false where there is none.
    fn advance(&mut self) -> bool {
        loop {
            let (behind_first, behind_second) = (self.ahead.0.len() <= self.ahead.1.len(), self.ahead.0.is_empty());
            if behind_second && self.ahead.1.is_empty() {
                // Both stand at the end of a token: equal tokens need no reading, and control tokens are equal or not.
                let (Some(own), Some(other)) = (self.decoded.get(self.at.0), self.prompt.get(self.at.1)) else {
                    return false;
                };
                if own == other {
                    self.at = (self.at.0 + 1, self.at.1 + 1);
                    return true;
                }
            }
            let taken = if behind_first {
                take(self.vocab, self.decoded, &mut self.at.0, &mut self.ahead.0)
            } else {
                take(self.vocab, self.prompt, &mut self.at.1, &mut self.ahead.1)
            };
            if !taken {
                return false;
            }
            let common = self.ahead.0.len().min(self.ahead.1.len());
            if self.ahead.0[..common] != self.ahead.1[..common] {
                return false;
            }
            self.ahead.0.drain(..common);
            self.ahead.1.drain(..common);
            if common > 0 && self.ahead.0.is_empty() && self.ahead.1.is_empty() {
                return true;
            }
        }
    }
}

/// Appends the bytes of the next token; false at the end, and at a token without text, which only its like can match.
fn take(vocab: &dyn Vocab, tokens: &[Token], at: &mut usize, bytes: &mut Vec<u8>) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    let before = bytes.len();
    vocab.piece(*token, bytes);
    *at += 1;
    bytes.len() > before
}

/// A digest of a vocabulary: with another one, ids mean something else.
pub fn vocabulary_digest(vocab: &dyn Vocab) -> String {
    let mut hash = blake3::Hasher::new();
    let mut piece = Vec::new();
    for index in 0..vocab.len() {
        piece.clear();
        vocab.piece(Token::from_index(index), &mut piece);
        hash.update(&(piece.len() as u32).to_le_bytes()).update(&piece);
    }
    for special in vocab.specials() {
        hash.update(&special.token.0.to_le_bytes()).update(special.text.as_bytes());
    }
    hash.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Special;

    /// Tokens 0 to 25 are letters, 26 and up are these pairs; negative ids are control tokens.
    struct Pairs(Vec<&'static str>);

    impl Vocab for Pairs {
        fn len(&self) -> usize {
            26 + self.0.len()
        }
        fn bos(&self) -> Option<Token> {
            None
        }
        fn eos(&self) -> Option<Token> {
            None
        }
        fn adds_bos(&self) -> bool {
            false
        }
        fn is_end(&self, token: Token) -> bool {
            token.0 < 0
        }
        fn specials(&self) -> &[Special] {
            &[]
        }
        fn tokenize(&self, _: &str) -> Vec<Token> {
            Vec::new()
        }
        fn spaces_first_piece(&self) -> bool {
            false
        }
        fn piece(&self, token: Token, bytes: &mut Vec<u8>) {
            match token.0 {
                id @ 0..26 => bytes.push(b'a' + id as u8),
                id if id >= 26 => bytes.extend(self.0[id as usize - 26].bytes()),
                _ => {}
            }
        }
    }

    fn ids(ids: &[i32]) -> Vec<Token> {
        ids.iter().map(|id| Token(*id)).collect()
    }

    #[test]
    fn the_decoded_tokens_stand_for_the_same_text() {
        let vocab = Pairs(vec!["ab", "bc", "abc"]);
        let (ab, bc, abc) = (26, 27, 28);
        let cases: [(&[i32], &[i32], &[i32]); 9] = [
            // decoded, prompt, aligned
            (&[0, bc, -1], &[ab, 2, -1, 5], &[0, bc, -1, 5]),
            (&[0, 1, 2, -1, 3], &[abc, -1, 4], &[0, 1, 2, -1, 4]),
            (&[0, bc], &[ab, 2, 9], &[0, bc, 9]),
            // No token ends where the texts part.
            (&[0, bc, 7], &[ab, 3], &[ab, 3]),
            // A control token is matched by its like only.
            (&[0, -1, 1], &[0, 1], &[0, 1]),
            (&[-1, 0, bc], &[-2, abc], &[-2, abc]),
            (&[], &[1, 2], &[1, 2]),
            (&[1, 2], &[], &[]),
            (&[0, bc, 3, 4], &[abc, 3], &[0, bc, 3]),
        ];
        for (decoded, prompt, aligned) in cases {
            assert_eq!(align(&vocab, &ids(decoded), ids(prompt)), ids(aligned), "{decoded:?} {prompt:?}");
        }
    }

    #[test]
    fn the_text_never_changes() {
        let vocab = Pairs(vec!["ab", "bc", "abc", "aa", "ba"]);
        let text = |tokens: &[Token]| {
            let mut bytes = Vec::new();
            for token in tokens {
                if token.0 < 0 {
                    bytes.push(b'0' - token.0 as u8);
                }
                vocab.piece(*token, &mut bytes);
            }
            bytes
        };
        let mut seed = 1u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % most) as i32
        };
        let all = [0, 1, 2, 26, 27, 28, 29, 30, -1];
        let mut exchanged = 0;
        for _ in 0..20_000 {
            let run = |next: &mut dyn FnMut(u64) -> i32| {
                let length = next(7);
                (0..length).map(|_| Token(all[next(all.len() as u64) as usize])).collect::<Vec<_>>()
            };
            let (decoded, prompt) = (run(&mut next), run(&mut next));
            let aligned = align(&vocab, &decoded, prompt.clone());
            assert_eq!(text(&aligned), text(&prompt), "{decoded:?} {prompt:?}");
            exchanged += usize::from(aligned != prompt);
        }
        assert!(exchanged > 100, "{exchanged}");
    }
}
