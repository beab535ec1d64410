//! The same again and again: the first thing that a broken model does at temperature 0.

use super::fences::{parts, prose};
use super::quoted;
use super::script::is_cjk;

/// The longest unit that is looked for, in characters.
const LONGEST_UNIT: usize = 600;
/// N-grams of so many words, or characters where a script has no spaces (Welleck et al. 2019, seq-rep-4).
const GRAM: usize = 4;
/// Of 400 READMEs and change logs one in a hundred is above 0.45; counted loops (`1. Again. 2. Again.`) pass 0.9.
const MOST_REPEATED: f64 = 0.5;
/// Fewer n-grams than this say little.
const GRAMS_FROM: usize = 50;

pub(super) fn check(prompt: &str, answer: &str) -> Vec<String> {
    let found = find_loop(answer).filter(|found| !prompt.contains(&found.unit.repeat(3)));
    if let Some(found) = found {
        return vec![format!("{} comes {} times in a row", quoted(found.unit), found.times)];
    }
    let rows_aside: String =
        prose(answer).lines().filter(|line| !line.contains('|')).map(|l| l.to_owned() + "\n").collect();
    let grams = units(&rows_aside).len().saturating_sub(GRAM - 1);
    let share = repeated_share(&rows_aside).filter(|share| *share > MOST_REPEATED && grams >= GRAMS_FROM);
    share.map(|share| format!("{:.0} % of its {GRAM}-grams are repeated", 100.0 * share)).into_iter().collect()
}

/// The share of n-grams that came before: 1 - distinct / all. Numbers do not count, so that counting hides no loop.
/// None for fewer than four words.
pub fn repeated_share(text: &str) -> Option<f64> {
    let units = units(text);
    let all = units.windows(GRAM).count();
    let distinct: std::collections::HashSet<_> = units.windows(GRAM).collect();
    (all > 0).then(|| 1.0 - distinct.len() as f64 / all as f64)
}

/// Words without numbers, and each character of a script without spaces.
pub(super) fn units(text: &str) -> Vec<&str> {
    let mut units = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        let mut rest = word;
        while let Some(c) = rest.chars().next() {
            let end = if is_cjk(c) { c.len_utf8() } else { rest.find(is_cjk).unwrap_or(rest.len()) };
            let unit;
            (unit, rest) = rest.split_at(end);
            if unit.contains(char::is_alphabetic) {
                units.push(unit);
            }
        }
    }
    units
}

/// A unit that follows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop<'a> {
    pub unit: &'a str,
    pub times: usize,
}

/// The loop with the shortest unit, if the text has one that is long enough to be no accident.
///
/// Patience depends on the unit: rules, blanks and zeros may run on for long, code and table cells for a while.
pub fn find_loop(text: &str) -> Option<Loop<'_>> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let offset = |i: usize| chars.get(i).map_or(text.len(), |(at, _)| *at);
    let code: Vec<_> = parts(text).into_iter().filter(|part| part.fence.is_some()).collect();
    for period in 1..=LONGEST_UNIT.min(chars.len() / 3) {
        let mut same = 0;
        for i in period..=chars.len() {
            if i < chars.len() && chars[i].1 == chars[i - period].1 {
                same += 1;
                continue;
            }
            // `same` characters equal the ones a period before: that many and one unit more repeat.
            let length = same + period;
            let (start, times) = (i - length, length / period);
            same = 0;
            if times < 3 {
                continue;
            }
            let unit = &text[offset(start)..offset(start + period)];
            let stretch = offset(start)..offset(i);
            // Most of it in one block: a block that comes again and again is no code.
            let in_code = code.iter().any(|block| {
                let end = stretch.end.min(block.start + block.text.len());
                2 * end.saturating_sub(stretch.start.max(block.start)) > stretch.len()
            });
            let (least, least_times) = patience(unit, in_code);
            if length >= least && times >= least_times {
                return Some(Loop { unit, times });
            }
        }
    }
    None
}

/// How many characters, and how many times, a unit has to go on to be a loop.
fn patience(unit: &str, in_code: bool) -> (usize, usize) {
    if unit.chars().all(is_filler) {
        return (400, 3);
    }
    if in_code || unit.contains('|') {
        return (200, 6);
    }
    let letters = unit.chars().filter(|c| c.is_alphabetic()).count();
    let cjk = unit.chars().filter(|c| is_cjk(*c)).count();
    if cjk > 0 && 2 * cjk >= letters { (24, 3) } else { (40, 3) }
}

/// What rules, frames, blanks to fill in and matrices of zeros are made of.
fn is_filler(c: char) -> bool {
    c.is_whitespace()
        || c.is_numeric()
        || "-=_*~#.|+:,;<>/\\[](){}'\"`^".contains(c)
        || "·•…—–－＝＿・．。、│".contains(c)
        || ('\u{2500}'..='\u{259f}').contains(&c)
}
