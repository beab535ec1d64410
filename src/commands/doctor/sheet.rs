//! What a doctor says, in words and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Lines for people and values for programs, made together.
#[derive(Default)]
pub(super) struct Sheet {
    pub(super) lines: String,
    pub(super) values: Map<String, Value>,
}

impl Sheet {
    pub(super) fn heading(&mut self, words: &str) {
        if !self.lines.is_empty() {
            self.lines.push('\n');
        }
        self.lines.push_str(words);
        self.lines.push('\n');
    }

    pub(super) fn line(&mut self, label: &str, words: &str) {
        for (at, line) in words.lines().enumerate() {
            let label = if at == 0 { label } else { "" };
            let _ = writeln!(self.lines, "  {label:<14} {line}");
        }
    }

    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.values.insert(key.to_owned(), value);
    }
}
