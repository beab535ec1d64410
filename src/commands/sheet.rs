//! What a command says of one thing, in words and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::cli::ListFormat;
use crate::error::Result;
use crate::ui::output::{self, Terminal};

/// Lines for people and values for programs, made together.
#[derive(Default)]
pub(super) struct Sheet {
    lines: String,
    values: Map<String, Value>,
    /// Whether lines stand below a heading.
    indented: bool,
}

impl Sheet {
    pub(super) fn heading(&mut self, words: &str) {
        if !self.lines.is_empty() {
            self.lines.push('\n');
        }
        let _ = writeln!(self.lines, "{words}");
        self.indented = true;
    }

    pub(super) fn line(&mut self, label: &str, words: &str) {
        let (indent, width) = if self.indented { ("  ", 14) } else { ("", 15) };
        for (at, line) in words.lines().enumerate() {
            let label = if at == 0 { label } else { "" };
            let _ = writeln!(self.lines, "{indent}{label:<width$} {line}");
        }
    }

    pub(super) fn fact(&mut self, label: &str, words: &str, key: &str, value: Value) {
        self.line(label, words);
        self.put(key, value);
    }

    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.values.insert(key.to_owned(), value);
    }

    pub(super) fn print(self, terminal: &Terminal, format: ListFormat) -> Result<()> {
        match format {
            ListFormat::Json => output::print_json(&Value::Object(self.values)),
            ListFormat::Text => output::print_clean(terminal, &self.lines),
        }
    }
}
