//! Whether an answer is in Chinese, and in the form that was asked.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::fences::prose;
use super::forms::GROUPS;
use super::script::script;

/// The written forms of Chinese.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Simplified,
    Traditional,
}

/// Below this share of Chinese characters among characters and words, an answer is in another language.
const LEAST_CHINESE: f64 = 0.6;
/// Kana above this share is Japanese.
const MOST_KANA: f64 = 0.1;
/// The other form above this share, and more than once, is no slip.
const MOST_OTHER: f64 = 0.1;
const OTHER_FROM: usize = 2;

static FORMS: LazyLock<HashMap<char, Form>> = LazyLock::new(|| {
    let forms = |group: &'static str| {
        group.chars().enumerate().map(|(i, c)| (c, if i == 0 { Form::Simplified } else { Form::Traditional }))
    };
    GROUPS.split_whitespace().flat_map(forms).collect()
});

pub(super) fn check(answer: &str, form: Option<Form>) -> Vec<String> {
    let text = prose(answer);
    // An answer that is all code has nothing to judge but its comments.
    let text = if text.trim().is_empty() { answer } else { &text };
    let count = |name| text.chars().filter(|c| script(*c) == Some(name)).count();
    let (han, kana) = (count("Han"), count("Kana"));
    let is_foreign = |word: &&str| word.chars().next().and_then(script).is_some_and(|s| s != "Han" && s != "Kana");
    let words = text.split(|c: char| !c.is_alphabetic() || script(c) == Some("Han")).filter(is_foreign).count();
    let mut says = Vec::new();
    if (han as f64) < LEAST_CHINESE * (han + words) as f64 || han == 0 {
        says.push(format!("not in Chinese: {han} characters beside {words} other words"));
    } else if kana as f64 > MOST_KANA * (han + kana) as f64 {
        says.push(format!("not in Chinese: {kana} of {} characters are kana", han + kana));
    }
    says.extend(form.and_then(|form| mixed(text, form)));
    says
}

fn mixed(text: &str, form: Form) -> Option<String> {
    let decided: Vec<(char, Form)> = text.chars().filter_map(|c| Some((c, *FORMS.get(&c)?))).collect();
    let others: String = decided.iter().filter(|(_, other)| *other != form).map(|(c, _)| *c).collect();
    let count = others.chars().count();
    let wrong = count >= OTHER_FROM && count as f64 > MOST_OTHER * decided.len() as f64;
    wrong.then(|| {
        let first: String = others.chars().take(8).collect();
        format!("{count} of {} characters are not {}: {first}", decided.len(), format!("{form:?}").to_lowercase())
    })
}
