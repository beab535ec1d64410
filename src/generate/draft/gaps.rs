//! What a draft model passes over: while it was switched off an answer went on, and reading all of that again would cost
//! more than trying again may. It reads the last tokens only, behind what it holds, as if nothing had been between
//! (attention keeps its first tokens and a window; Xiao et al. 2023, "Efficient Streaming Language Models with Attention
//! Sinks"). A draft may know less than the target: it is only accepted less often.

use std::borrow::Cow;
use std::ops::Range;

use super::At;
use crate::engine::Token;

/// The most tokens of an answer that are read to catch up with it.
const WINDOW: usize = 48;

/// Parts of a text that are passed over, in order.
#[derive(Clone, Debug, Default)]
pub struct Gaps(Vec<Range<usize>>);

impl Gaps {
    /// The text without them.
    pub fn view<'a>(&self, text: &'a [Token]) -> Cow<'a, [Token]> {
        // Most answers have none, and this is asked every round.
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut view = Vec::with_capacity(text.len());
        let mut from = 0;
        for gap in self.0.iter().filter(|gap| gap.end <= text.len()) {
            view.extend_from_slice(&text[from..gap.start]);
            from = gap.end;
        }
        view.extend_from_slice(&text[from..]);
        Cow::Owned(view)
    }

    /// How long the view of the first `len` tokens of a text is.
    pub fn within(&self, len: usize) -> usize {
        len - self.0.iter().map(|gap| gap.end.min(len).saturating_sub(gap.start)).sum::<usize>()
    }

    /// Where the first `held` tokens of the view end in the text. Gaps behind that are forgotten.
    pub fn cut(&mut self, held: usize) -> usize {
        let mut end = held;
        let keeps = self.0.iter().take_while(|gap| {
            let behind = end > gap.start;
            end += if behind { gap.len() } else { 0 };
            behind
        });
        let keeps = keeps.count();
        self.0.truncate(keeps);
        end
    }

    /// The part to pass over where the first `read` tokens of a text have been read: of an answer all but its last tokens,
    /// of a prompt nothing.
    pub fn next(at: &At, read: usize) -> Option<Range<usize>> {
        let gap = read.max(at.prompt_len)..at.tokens.len().saturating_sub(WINDOW);
        // A gap of a few tokens is not worth what is lost by it.
        (gap.len() >= WINDOW).then_some(gap)
    }

    pub fn push(&mut self, gap: Range<usize>) {
        self.0.push(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> Vec<Token> {
        (0..len).map(Token::from_index).collect()
    }

    #[test]
    fn a_view_leaves_out_what_was_passed_over() {
        let mut gaps = Gaps::default();
        gaps.push(3..5);
        gaps.push(7..8);
        assert_eq!(gaps.view(&text(10))[..], [0, 1, 2, 5, 6, 8, 9].map(Token));
        assert!(matches!(Gaps::default().view(&text(3)), Cow::Borrowed(all) if all.len() == 3));
        assert_eq!([0, 3, 4, 5, 7, 8, 10].map(|len| gaps.within(len)), [0, 3, 3, 3, 5, 5, 7]);
        // Cut back between both, to the first one, and before it.
        assert_eq!(gaps.clone().cut(6), 9);
        assert_eq!(gaps.clone().cut(4), 6);
        assert_eq!(gaps.clone().cut(5), 7);
        assert_eq!((gaps.cut(3), gaps.view(&text(4)).len()), (3, 4));
    }

    #[test]
    fn a_prompt_is_never_passed_over() {
        let tokens = text(1000);
        let gap = |prompt_len, read| Gaps::next(&At { tokens: &tokens, prompt_len }, read);
        assert_eq!(gap(100, 150), Some(150..1000 - WINDOW));
        assert_eq!(gap(100, 50), Some(100..1000 - WINDOW));
        assert_eq!(gap(990, 0), None);
        assert_eq!(gap(100, 1000 - 2 * WINDOW + 1), None);
    }
}
