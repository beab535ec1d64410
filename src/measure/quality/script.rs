//! Characters of a script that the answer has no reason to use.
//!
//! A hand table of blocks (Unicode 16) in place of the Script property: a finding names a script, it does not set type.

use std::collections::BTreeSet;

use super::quoted;

type Name = &'static str;

/// First match counts. Latin is never unexpected, and blocks that are missing belong to none.
const BLOCKS: [(u32, u32, Name); 44] = [
    (0x0041, 0x02af, "Latin"),
    (0x0370, 0x03ff, "Greek"),
    (0x0400, 0x052f, "Cyrillic"),
    (0x0531, 0x058f, "Armenian"),
    (0x0591, 0x05f4, "Hebrew"),
    (0x0600, 0x06ff, "Arabic"),
    (0x0750, 0x077f, "Arabic"),
    (0x08a0, 0x08ff, "Arabic"),
    (0x0700, 0x08ff, "a rare script"),
    (0x0900, 0x097f, "Devanagari"),
    (0x0980, 0x09ff, "Bengali"),
    (0x0a00, 0x0a7f, "Gurmukhi"),
    (0x0a80, 0x0aff, "Gujarati"),
    (0x0b00, 0x0b7f, "Odia"),
    (0x0b80, 0x0bff, "Tamil"),
    (0x0c00, 0x0c7f, "Telugu"),
    (0x0c80, 0x0cff, "Kannada"),
    (0x0d00, 0x0d7f, "Malayalam"),
    (0x0d80, 0x0dff, "Sinhala"),
    (0x0e00, 0x0e7f, "Thai"),
    (0x0e80, 0x0eff, "Lao"),
    (0x0f00, 0x0fff, "Tibetan"),
    (0x1000, 0x109f, "Burmese"),
    (0x10a0, 0x10ff, "Georgian"),
    (0x1100, 0x11ff, "Hangul"),
    (0x1200, 0x139f, "Ethiopic"),
    (0x1780, 0x17ff, "Khmer"),
    (0x1800, 0x18af, "Mongolian"),
    (0x13a0, 0x1cff, "a rare script"),
    (0x1d00, 0x1eff, "Latin"),
    (0x1f00, 0x1fff, "Greek"),
    (0x2de0, 0x2dff, "Cyrillic"),
    (0x2e80, 0x3007, "Han"),
    (0x3040, 0x30ff, "Kana"),
    (0x3100, 0x312f, "Bopomofo"),
    (0x3130, 0x318f, "Hangul"),
    (0x3400, 0x9fff, "Han"),
    (0xa000, 0xabff, "a rare script"),
    (0xac00, 0xd7af, "Hangul"),
    (0xf900, 0xfaff, "Han"),
    (0xfb1d, 0xfb4f, "Hebrew"),
    (0xfb50, 0xfdff, "Arabic"),
    (0xff66, 0xff9f, "Kana"),
    (0x20000, 0x323af, "Han"),
];

/// What names a language, and the scripts that it brings.
const LANGUAGES: [(&[&str], &[Name]); 11] = [
    (&["russian", "ukrainian", "bulgarian", "serbian", "cyrillic", "俄"], &["Cyrillic"]),
    (&["greek", "希腊", "希臘"], &["Greek"]),
    (&["chinese", "mandarin", "cantonese", "hanzi", "中文", "汉字", "漢字"], &["Han", "Bopomofo"]),
    (&["japan", "kanji", "日语", "日語", "日文", "日本"], &["Han", "Kana"]),
    (&["korea", "hangul", "韩", "韓"], &["Hangul", "Han"]),
    (&["hindi", "sanskrit", "marathi", "nepali", "印地"], &["Devanagari"]),
    (&["arabic", "persian", "farsi", "urdu", "阿拉伯"], &["Arabic"]),
    (&["hebrew", "yiddish", "希伯来"], &["Hebrew"]),
    (&["thai", "泰语", "泰語"], &["Thai"]),
    (&["armenia"], &["Armenian"]),
    (&["georgia"], &["Georgian"]),
];

/// One script a finding, with the first word that has it.
pub(super) fn check(prompt: &str, answer: &str, chinese: bool) -> Vec<String> {
    let mut expected: BTreeSet<Name> = prompt.chars().filter_map(script).collect();
    expected.extend(named_in(prompt));
    expected.insert("Latin");
    if chinese {
        expected.extend(["Han", "Bopomofo"]);
    }
    let mut says = Vec::new();
    for line in answer.lines() {
        let named: BTreeSet<Name> = named_in(line).collect();
        let plain = without_glosses(line);
        for word in plain.split(|c: char| !c.is_alphabetic()) {
            let Some(found) = word.chars().filter_map(script).find(|s| !expected.contains(s) && !named.contains(s))
            else {
                continue;
            };
            // α, Δt, σ₁ and μs are mathematics.
            if found == "Greek" && word.chars().filter(|c| script(*c) == Some("Greek")).count() <= 3 {
                continue;
            }
            expected.insert(found);
            says.push(format!("{found} without a reason: {}", quoted(word)));
        }
    }
    says
}

fn named_in(text: &str) -> impl Iterator<Item = Name> {
    let text = text.to_lowercase();
    let named = LANGUAGES.iter().filter(move |(names, _)| names.iter().any(|name| text.contains(name)));
    named.flat_map(|(_, scripts)| *scripts).copied()
}

/// A line without what stands in brackets, quotation marks or backticks: `Tokyo (東京)` has its reason.
fn without_glosses(line: &str) -> String {
    let (mut depth, mut marks) = (0usize, [false; 2]);
    let outside = |c: &char| {
        match c {
            '(' | '[' | '（' | '「' | '『' | '《' | '“' | '«' => depth += 1,
            ')' | ']' | '）' | '」' | '』' | '》' | '”' | '»' => depth = depth.saturating_sub(1),
            '"' => marks[0] = !marks[0],
            '`' => marks[1] = !marks[1],
            _ => {}
        }
        depth == 0 && marks == [false; 2]
    };
    line.chars().filter(outside).collect()
}

/// The script of a letter; None for signs, digits, emoji, and letters that mathematics borrowed.
pub(super) fn script(c: char) -> Option<Name> {
    let code = u32::from(c);
    let block = BLOCKS.iter().find(|(first, last, _)| (*first..=*last).contains(&code));
    block.filter(|_| c.is_alphabetic()).map(|(_, _, name)| *name)
}

/// A character that is a word by itself, more or less.
pub(super) fn is_cjk(c: char) -> bool {
    matches!(script(c), Some("Han" | "Kana"))
}
