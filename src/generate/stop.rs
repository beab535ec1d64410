//! Stop strings: they end an answer, may span tokens, and no part of one is ever shown.

/// Watches a stream of text for stop strings.
#[derive(Debug, Default)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    pub(super) fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Adds text; appends what can be shown to `shown`. True when a stop string was completed: what came before the
    /// first one is shown, it and what follows are not.
    pub(super) fn push(&mut self, text: &str, shown: &mut String) -> bool {
        if self.stops.is_empty() {
            shown.push_str(text);
            return false;
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            shown.push_str(&self.held[..at]);
            self.held.clear();
            return true;
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        shown.extend(self.held.drain(..self.held.len() - keep));
        false
    }

    /// The end of the answer: what was held back was no stop string.
    pub(super) fn finish(&mut self, shown: &mut String) {
        shown.push_str(&self.held);
        self.held.clear();
    }
}

/// The length of the longest end of `text` that begins `word`, and is not all of it.
pub(super) fn overlap(text: &str, word: &str) -> usize {
    let longest = word.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&len| text.as_bytes()[text.len() - len..] == word.as_bytes()[..len]).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(words: &[&str]) -> StopStrings {
        StopStrings::new(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_stop_string_is_found_however_it_is_cut() {
        let text = "say aab then STOP and more";
        for (stop, before) in [("STOP", "say aab then "), ("aab", "say "), ("ab then", "say a")] {
            for cut in 0..=text.len() {
                let (mut watch, mut shown) = (stops(&[stop, "never"]), String::new());
                let hit = watch.push(&text[..cut], &mut shown);
                assert!(before.starts_with(&shown), "{shown:?} shows part of {stop:?}");
                assert!(hit || watch.push(&text[cut..], &mut shown));
                assert_eq!(shown, before);
            }
            let (mut watch, mut shown) = (stops(&[stop]), String::new());
            assert!(text.chars().any(|c| watch.push(&c.to_string(), &mut shown)));
            assert_eq!(shown, before);
        }
    }

    #[test]
    fn the_first_stop_string_wins_and_a_near_miss_is_shown() {
        let (mut watch, mut shown) = (stops(&["<end>", "你好吗"]), String::new());
        assert!(!watch.push("a <en", &mut shown));
        assert_eq!(shown, "a ");
        assert!(!watch.push("tire> 你好", &mut shown));
        assert_eq!(shown, "a <entire> ");
        watch.finish(&mut shown);
        assert_eq!(shown, "a <entire> 你好");
        let (mut watch, mut shown) = (stops(&["bc", "ab"]), String::new());
        assert!(watch.push("xabc", &mut shown));
        assert_eq!(shown, "x");
    }
}
