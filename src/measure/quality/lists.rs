//! Answers that had to have a number of items or lines, one word of some, certain texts, or plain sentences.

use super::fences::prose as without_code;
use super::quoted;
use super::repetition::units;

pub(super) fn items(answer: &str, finished: bool, count: usize) -> Option<String> {
    let text = without_code(answer);
    let items: Vec<Item> = text.lines().filter_map(item).collect();
    // Bullets below numbers, and whatever is indented further than the first item, are details.
    let first = items.first();
    let is_top = |item: &&Item| first.is_some_and(|f| item.numbered == f.numbered && item.indent <= f.indent + 1);
    wrong_count("items", items.iter().filter(is_top).count(), count, finished)
}

pub(super) fn lines(answer: &str, finished: bool, count: usize) -> Option<String> {
    wrong_count("lines", answer.lines().filter(|line| !line.trim().is_empty()).count(), count, finished)
}

fn wrong_count(what: &str, found: usize, wanted: usize, finished: bool) -> Option<String> {
    let wrong = found > wanted || (finished && found < wanted);
    wrong.then(|| format!("{found} {what}, asked for {wanted}"))
}

struct Item {
    indent: usize,
    numbered: bool,
}

/// A line that begins a list item: `- x`, `* x`, `3. x`, `3) x`, `**3.** x`, `### 3. x`, `3、x`, `三、x`.
fn item(line: &str) -> Option<Item> {
    let text = line.trim_start();
    let indent = line.chars().count() - text.chars().count();
    let bullet = text.chars().next().filter(|c| "-*+•◦–·".contains(*c));
    if bullet.is_some_and(|c| text[c.len_utf8()..].starts_with(char::is_whitespace)) {
        // A rule of dashes has no words.
        return text.contains(char::is_alphanumeric).then_some(Item { indent, numbered: false });
    }
    let text = text.trim_start_matches(['*', '#', ' ', '(', '（']);
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || "一二三四五六七八九十".contains(c));
    let number = text.len() - rest.len();
    let mark = rest.chars().next().filter(|c| ".)、．）：".contains(*c))?;
    let after = &rest[mark.len_utf8()..];
    let counts = (1..=9).contains(&number) && !after.starts_with(|c: char| c.is_ascii_digit());
    (counts && after.contains(char::is_alphanumeric)).then_some(Item { indent, numbered: true })
}

pub(super) fn word(answer: &str, finished: bool, among: &[String]) -> Option<String> {
    let word = answer.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let fits = |choice: &String| {
        let choice = choice.trim().to_lowercase();
        choice == word || (!finished && choice.starts_with(&word))
    };
    (!among.iter().any(fits)).then(|| format!("{} is none of {}", quoted(answer.trim()), among.join(", ")))
}

pub(super) fn has(answer: &str, finished: bool, texts: &[String]) -> Option<String> {
    let lacking = texts.iter().find(|text| finished && !answer.contains(*text))?;
    Some(format!("without {}", quoted(lacking)))
}

pub(super) fn prose(answer: &str, finished: bool, words: usize) -> Option<String> {
    let count = |fits: fn(char) -> bool| answer.chars().filter(|c| fits(*c)).count();
    let (letters, others) = (count(char::is_alphabetic), count(|c| !c.is_alphabetic() && !c.is_whitespace()));
    let found = units(answer).len();
    if letters < others || letters == 0 {
        Some(format!("{letters} letters beside {others} other signs"))
    } else {
        (finished && found < words).then(|| format!("{found} words, asked for {words}"))
    }
}
