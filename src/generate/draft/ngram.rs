//! Prompt lookup (Saxena 2023; "n-gram" drafts): proposes what followed the longest recent match of the last tokens, in
//! the prompt or in the answer. It costs nothing and wins where an answer repeats what was said.

use std::collections::HashMap;

use super::{At, Class, Drafter, Offer, Proposed, Source};
use crate::engine::Token;

/// A match of fewer tokens proposes too badly.
const SHORTEST: usize = 2;
/// Matches are not compared beyond this many tokens.
const LONGEST: usize = 32;
/// Earlier places that are looked at, newest first: bounds the work on a text that repeats one token.
const PLACES: usize = 64;
/// The first match lengths of the classes: longer matches are right more often.
const LENGTHS: [usize; 9] = [2, 3, 4, 5, 6, 8, 12, 16, 24];
/// Classes before those: equal matches that were followed by different tokens, and short matches in the answer itself, are
/// wrong more often than the length says.
const DISAGREE: u8 = 0;
const IN_ANSWER: u8 = 1;
const SHORT: usize = 2;

/// The n-gram drafter.
#[derive(Default)]
pub struct Ngram {
    /// The tokens that `places` knows.
    seen: Vec<Token>,
    /// Where each pair of tokens ended, oldest first.
    places: HashMap<[Token; SHORTEST], Vec<u32>>,
}

impl Ngram {
    /// How many classes of tokens it has.
    pub const CLASSES: usize = 1 + SHORT + LENGTHS.len();

    fn class(length: usize, in_answer: bool) -> Class {
        let at = LENGTHS.iter().rposition(|first| *first <= length).unwrap_or(0);
        Class(IN_ANSWER + if in_answer && at < SHORT { at } else { SHORT + at } as u8)
    }

    /// Takes in what is new; starts over where the text has changed.
    fn update(&mut self, tokens: &[Token]) {
        if !tokens.starts_with(&self.seen) {
            self.seen.clear();
            self.places.clear();
        }
        for end in self.seen.len()..tokens.len() {
            self.seen.push(tokens[end]);
            if end + 1 >= SHORTEST {
                let pair = [tokens[end - 1], tokens[end]];
                self.places.entry(pair).or_default().push(end as u32 + 1);
            }
        }
    }

    /// The longest earlier match of the last tokens, the newest of equals.
    fn longest(&self, tokens: &[Token]) -> Option<Match> {
        let tail: [Token; SHORTEST] = *tokens.last_chunk()?;
        let places = self.places.get(&tail)?.iter().rev().map(|end| *end as usize).filter(|end| *end < tokens.len());
        let length = |end: usize| {
            let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
            pairs.take(LONGEST).take_while(|(a, b)| a == b).count()
        };
        let mut best: Option<Match> = None;
        for end in places.take(PLACES) {
            let length = length(end);
            match &mut best {
                Some(best) if best.length > length => {}
                Some(best) if best.length == length => best.agreed &= tokens[best.end] == tokens[end],
                best => *best = Some(Match { end, length, agreed: true }),
            }
        }
        best
    }
}

/// An earlier place with the same last tokens.
struct Match {
    end: usize,
    length: usize,
    /// Whether all places with a match this long were followed by the same token.
    agreed: bool,
}

impl Drafter for Ngram {
    fn source(&self) -> Source {
        Source::Ngram
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        self.update(at.tokens);
        let Match { end, length, agreed } = self.longest(at.tokens)?;
        let follow = &at.tokens[end..];
        let class = |i: usize| match i {
            0 if !agreed => Class(DISAGREE),
            _ => Self::class(length + i, end > at.prompt_len),
        };
        // A match that reaches into itself repeats: what follows it goes round.
        let token = |i: usize| Proposed { token: follow[i % follow.len()], class: class(i) };
        Some(Offer::Free((0..most).map(token).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<Token> {
        text.bytes().map(|byte| Token(i32::from(byte))).collect()
    }

    fn proposed(ngram: &mut Ngram, said: &str, most: usize) -> Option<(String, u8)> {
        let tokens = text(said);
        match ngram.offer(&At { tokens: &tokens, prompt_len: tokens.len() }, most)? {
            Offer::Free(proposed) => {
                let text = proposed.iter().map(|p| char::from(p.token.0 as u8)).collect();
                Some((text, proposed[0].class.0))
            }
            Offer::Steps { .. } => None,
        }
    }

    #[test]
    fn what_followed_the_longest_match_is_proposed() {
        let mut ngram = Ngram::default();
        assert_eq!(proposed(&mut ngram, "abcdefg abc", 3), Some(("def".into(), 4)));
        // The longer match wins over the newer one.
        assert_eq!(proposed(&mut ngram, "xabc1 yabc2 xabc", 1), Some(("1".into(), 5)));
        // The newest of equals, though they disagree.
        assert_eq!(proposed(&mut ngram, "xabc1 yabc2 zabc", 1), Some(("2".into(), DISAGREE)));
        assert_eq!(proposed(&mut ngram, "xabc1 yabc1 zabc", 1), Some(("1".into(), 4)));
        assert_eq!(proposed(&mut ngram, "nothing like it", 4), None);
        assert_eq!(proposed(&mut ngram, "a", 4), None);
        assert_eq!(proposed(&mut ngram, "", 4), None);
    }

    #[test]
    fn a_match_that_reaches_into_itself_goes_round() {
        assert_eq!(proposed(&mut Ngram::default(), "-=-=-=", 5).unwrap().0, "-=-=-");
        assert_eq!(proposed(&mut Ngram::default(), "aaaa", 5).unwrap().0, "aaaaa");
    }

    #[test]
    fn a_text_that_goes_on_is_read_on_and_a_new_one_from_the_start() {
        let mut ngram = Ngram::default();
        let long = "one two three four one two";
        for end in 1..=long.len() {
            let step = proposed(&mut ngram, &long[..end], 4);
            assert_eq!(step, proposed(&mut Ngram::default(), &long[..end], 4), "{}", &long[..end]);
        }
        assert_eq!(proposed(&mut ngram, "other words", 4), None);
    }
}
