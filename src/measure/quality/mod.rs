//! What breaks first in an answer when a model is quantised too far: loops, brackets, formats, scripts.
//!
//! Text in, findings out. Nothing here knows models, engines or files. The checks are rough on purpose and lean to
//! silence: a finding is worth a look, and a count of findings compares two builds on the same prompts.

use serde::{Deserialize, Serialize};

mod chinese;
mod code;
mod fences;
mod format;
mod forms;
mod garble;
mod lists;
mod repetition;
mod scan;
mod script;
mod syntax;

pub use chinese::Form;
pub use repetition::{Loop, find_loop, repeated_share};

/// What a prompt asks of its answer, as a prompt file names it: `{"check": "code", "language": "python"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "lowercase", deny_unknown_fields)]
pub enum Check {
    /// A JSON value alone or in one fence; an object, or an array of objects, with these keys if any are named.
    Json {
        #[serde(default)]
        keys: Vec<String>,
    },
    /// A Markdown table. (With braces, since a bare variant would let unknown fields of a file pass.)
    Table {},
    /// Code with brackets that match and, for Python, indentation that does.
    Code {
        #[serde(default)]
        language: String,
    },
    Chinese {
        #[serde(default)]
        form: Option<Form>,
    },
    /// A list with so many items.
    Items { count: usize },
    /// So many lines that are not blank.
    Lines { count: usize },
    /// One of these and nothing else.
    Word { among: Vec<String> },
    /// Sentences: mostly letters, whatever the script, and at least so many words (or Chinese characters).
    Prose {
        #[serde(default)]
        words: usize,
    },
    /// These texts are in it, letter by letter.
    Has { texts: Vec<String> },
}

/// Something that is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub says: String,
}

/// Everything that is wrong with an answer. A text that its token budget cut (not `finished`) is not blamed for what
/// it had no room to close.
pub fn examine(prompt: &str, answer: &str, finished: bool, wants: &[Check]) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    if finished && answer.trim().is_empty() {
        findings.add("empty", ["the answer is empty".to_owned()]);
        return findings.0;
    }
    findings.add("repetition", repetition::check(prompt, answer));
    findings.add("garble", garble::check(prompt, answer));
    findings.add("script", script::check(prompt, answer, wants.iter().any(|w| matches!(w, Check::Chinese { .. }))));
    for want in wants {
        match want {
            Check::Json { keys } => findings.add("json", format::json(answer, finished, keys)),
            Check::Table {} => findings.add("table", format::table(answer, finished)),
            Check::Code { language } => findings.add("code", code::check(answer, finished, language)),
            Check::Chinese { form } => findings.add("chinese", chinese::check(answer, *form)),
            Check::Items { count } => findings.add("items", lists::items(answer, finished, *count)),
            Check::Lines { count } => findings.add("lines", lists::lines(answer, finished, *count)),
            Check::Word { among } => findings.add("word", lists::word(answer, finished, among)),
            Check::Prose { words } => findings.add("prose", lists::prose(answer, finished, *words)),
            Check::Has { texts } => findings.add("has", lists::has(answer, finished, texts)),
        }
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, says: impl IntoIterator<Item = String>) {
        self.0.extend(says.into_iter().map(|says| Finding { check, says }));
    }
}

/// A short quotation of what a finding is about.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut short: String = text.chars().take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests;
