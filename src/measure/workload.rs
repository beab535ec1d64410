//! What is asked: prompts of several kinds, prompts of a given length, prompts whose answers can be checked.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::quality::Check;
use crate::error::{Error, Result};

/// One prompt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    #[serde(default)]
    pub id: String,
    #[serde(default = "own_kind")]
    pub kind: String,
    /// The question.
    pub prompt: String,
    /// A document before it.
    #[serde(default)]
    pub document: String,
    /// The most tokens of an answer, where the prompt says so.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// What an answer must be.
    #[serde(default)]
    pub checks: Vec<Check>,
}

fn own_kind() -> String {
    "own".into()
}

impl Prompt {
    /// Document and question as one message.
    pub fn message(&self) -> String {
        if self.document.is_empty() { self.prompt.clone() } else { format!("{}\n\n{}", self.document, self.prompt) }
    }
}

/// Seven kinds, several fresh prompts of each: repetition, edit, code, extraction, summary, chat, translation.
pub fn kinds() -> Vec<Prompt> {
    built_in(include_str!("prompts.jsonl"))
}

/// Prompts whose answers can be checked: long, format, code, chinese, rare.
pub fn checked() -> Vec<Prompt> {
    built_in(include_str!("quality.jsonl"))
}

/// A text with prose, code, numbers and two scripts, to compare likelihoods on.
pub const SAMPLE: &str = include_str!("sample.txt");

fn built_in(lines: &str) -> Vec<Prompt> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A file of prompts: a JSON object a line with `prompt` and, where wanted, `id`, `kind`, `document`, `max_tokens`, `checks`;
/// or one prompt a line as it stands.
///
/// # Errors
/// When it cannot be read, a line is not such an object, or there is no prompt.
pub fn from_file(path: &Path) -> Result<Vec<Prompt>> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("{name} cannot be read: {error}")).hint("--prompts takes a text file"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompt = |(at, line): (usize, &str)| {
        let mut prompt: Prompt = if line.trim_start().starts_with('{') {
            serde_json::from_str(line).map_err(|error| {
                // serde_json knows of one line only.
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default();
                Error::usage(format!("{name}, line {}, column {}: {what}", at + 1, error.column()))
                    .hint("--prompts takes a line of text a prompt, or an object with \"prompt\"")
            })?
        } else {
            Prompt { kind: own_kind(), prompt: line.to_owned(), ..Prompt::default() }
        };
        if prompt.id.is_empty() {
            prompt.id = format!("{}-{}", prompt.kind, at + 1);
        }
        Ok(prompt)
    };
    let prompts = lines.map(prompt).collect::<Result<Vec<_>>>()?;
    // Answers are paired by the ids of their prompts.
    let mut ids = HashSet::new();
    if let Some(twice) = prompts.iter().find(|prompt| !ids.insert(prompt.id.as_str())) {
        return Err(
            Error::usage(format!("{name} has two prompts with the id '{}'", twice.id)).hint("give one another id")
        );
    }
    if prompts.is_empty() {
        return Err(Error::usage(format!("{name} has no prompts"))
            .hint("--prompts takes one a line, or JSON objects with \"prompt\""));
    }
    Ok(prompts)
}

/// A prompt with a document of about `words` words, another one for each `number`.
pub fn long(words: usize, number: usize, kind: String) -> Prompt {
    const WHO: [&str; 8] = [
        "The harbour master",
        "A courier",
        "The archivist",
        "Her brother",
        "An engineer",
        "The miller",
        "A guest",
        "The crew",
    ];
    const DID: [&str; 8] = ["counted", "moved", "forgot", "repaired", "described", "exchanged", "measured", "returned"];
    const WHAT: [&str; 8] = [
        "the lanterns",
        "three barrels",
        "a map of the coast",
        "the spare parts",
        "old letters",
        "a copper bell",
        "the ropes",
        "nine keys",
    ];
    const WHEN: [&str; 8] = [
        "before the rain began",
        "late on a Tuesday",
        "while nobody looked",
        "in the year of the flood",
        "after supper",
        "without a word",
        "near the northern gate",
        "for the second time",
    ];
    let mut state = number as u64 + 1;
    let mut one = |of: [&'static str; 8]| {
        // A step of Knuth's MMIX generator; its high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        of[(state >> 61) as usize]
    };
    let mut document = String::new();
    let mut sentence = 0;
    while document.split_whitespace().count() < words {
        // Many at once: counting is not cheap.
        for _ in 0..(words / 40).max(1) {
            sentence += 1;
            let _ = write!(document, "{sentence}. {} {} {} {}. ", one(WHO), one(DID), one(WHAT), one(WHEN));
        }
    }
    let cut = document.split_inclusive(' ').take(words).collect::<String>();
    let prompt = "Summarise what happened.".to_owned();
    Prompt { id: format!("{kind}-{}", number + 1), kind, prompt, document: cut, ..Prompt::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_whole() {
        let kinds = kinds();
        for kind in ["repetition", "edit", "code", "extraction", "summary", "chat", "translation"] {
            assert!(kinds.iter().filter(|prompt| prompt.kind == kind).count() >= 4, "{kind}");
        }
        assert_eq!(kinds.len(), include_str!("prompts.jsonl").lines().count());
        let checked = checked();
        assert_eq!(checked.len(), include_str!("quality.jsonl").lines().count());
        assert!(checked.iter().all(|prompt| !prompt.checks.is_empty()));
    }

    #[test]
    fn a_long_prompt_is_as_long_as_asked_and_another_one_each_time() {
        let words = |prompt: &Prompt| prompt.document.split_whitespace().count();
        for count in [10, 500, 3000] {
            assert_eq!(words(&long(count, 0, "long".into())), count);
        }
        assert_ne!(long(50, 0, "long".into()).document, long(50, 1, "long".into()).document);
        assert_eq!(long(50, 1, "long".into()).document, long(50, 1, "long".into()).document);
    }

    #[test]
    fn a_file_of_prompts_says_which_line_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        std::fs::write(&path, "Why?\n\n{\"prompt\": \"How?\", \"kind\": \"k\"}\n").unwrap();
        let prompts = from_file(&path).unwrap();
        let own: Vec<_> = prompts.iter().map(|p| (p.id.as_str(), p.prompt.as_str())).collect();
        assert_eq!(own, [("own-1", "Why?"), ("k-3", "How?")]);
        let twice = "{\"prompt\": \"a\", \"id\": \"own-2\"}\nb\n";
        for (text, says) in [("{\"pompt\": 1}", "line 1"), ("\n", "no prompts"), (twice, "the id 'own-2'")] {
            std::fs::write(&path, text).unwrap();
            assert!(from_file(&path).unwrap_err().to_string().contains(says), "{text}");
        }
    }
}
