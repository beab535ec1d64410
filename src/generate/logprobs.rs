//! How likely the model found the tokens of an answer, before temperature and truncation.

use crate::engine::Token;

/// A token of the answer, and the likeliest ones in its place; natural logarithms of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: Token,
    pub logprob: f32,
    pub top: Vec<(Token, f32)>,
}

/// Keeps them while an answer is made.
pub(super) struct Logprobs {
    top: usize,
    tokens: Vec<TokenLogprob>,
}

impl Logprobs {
    pub(super) fn new(top: usize) -> Self {
        Self { top, tokens: Vec::new() }
    }

    /// Takes in the token that was chosen by these logits.
    pub(super) fn take(&mut self, token: Token, logits: &[f32]) {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
        let logprob = |index: usize| (f64::from(logits[index] - most) - sum.ln()) as f32;
        let mut order: Vec<usize> = (0..logits.len()).collect();
        let top = self.top.min(order.len());
        if top > 0 {
            order.select_nth_unstable_by(top - 1, |a, b| logits[*b].total_cmp(&logits[*a]));
        }
        order.truncate(top);
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let top = order.into_iter().map(|index| (Token::from_index(index), logprob(index))).collect();
        self.tokens.push(TokenLogprob { token, logprob: logprob(token.index()), top });
    }

    pub(super) fn into_tokens(self) -> Vec<TokenLogprob> {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let mut own = Logprobs::new(2);
        // e^ln(1..4) are 1 to 4 of 10.
        own.take(Token(0), &[1f32.ln(), 4f32.ln(), 3f32.ln(), 2f32.ln()]);
        let said = &own.into_tokens()[0];
        assert!((said.logprob - 0.1f32.ln()).abs() < 1e-6);
        let top: Vec<(i32, i32)> =
            said.top.iter().map(|(token, p)| (token.0, (p.exp() * 100.0).round() as i32)).collect();
        assert_eq!(top, [(1, 40), (2, 30)]);
    }
}
