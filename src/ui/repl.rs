//! The line editor of the REPL: history, several lines, pasted blocks, completion. Knows no model.

use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Context, Editor, Helper, Highlighter, Hinter};

use super::output::Terminal;
use super::slash;
use crate::error::{Error, Result};

/// What came from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Message(String),
    /// Ctrl-C; whether something had been typed.
    Cancelled {
        empty: bool,
    },
    /// Ctrl-D, or the end of the input.
    End,
}

/// Reads messages.
pub struct Lines {
    editor: Editor<Assistance, DefaultHistory>,
    history: Option<PathBuf>,
    terminal: Terminal,
}

const HISTORY: usize = 10_000;

impl Lines {
    /// A line editor; `history` is where lines are kept, `models` are the names that Tab completes.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn new(terminal: Terminal, history: Option<PathBuf>, models: Vec<String>) -> Result<Self> {
        let unusable = |error: ReadlineError| Error::failed(format!("the terminal cannot be used: {error}"));
        let config = Config::builder()
            .max_history_size(HISTORY)
            .map_err(unusable)?
            .auto_add_history(false)
            .bracketed_paste(true)
            // stdout may be a pipe that wants only answers: the prompt then goes to the terminal itself.
            .behavior(if terminal.stdout { Behavior::Stdio } else { Behavior::PreferTerm })
            .build();
        let mut editor = Editor::with_config(config).map_err(unusable)?;
        editor.set_helper(Some(Assistance { files: FilenameCompleter::new(), models }));
        if let Some(path) = &history {
            // A history that is not there yet, or cannot be read, is an empty one.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, terminal })
    }

    /// The next message, `"""` and trailing backslashes resolved.
    ///
    /// # Errors
    /// When the terminal fails.
    pub fn read(&mut self) -> Result<Input> {
        match self.editor.readline(">>> ") {
            Ok(line) => {
                let message = joined(&line);
                if !message.trim().is_empty() {
                    self.remember(&line);
                }
                Ok(Input::Message(message))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Cancelled { empty: true }),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(Error::failed(format!("the terminal cannot be read: {error}"))),
        }
    }

    /// Appends a line to the history on disk at once: a killed terminal loses nothing.
    fn remember(&mut self, line: &str) {
        let _ = self.editor.add_history_entry(line);
        let Some(path) = &self.history else { return };
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved = made.map_err(ReadlineError::from).and_then(|()| self.editor.append_history(path));
        if let Err(error) = saved {
            self.terminal.warn(&format!("the line history {} cannot be kept: {error}", path.display()));
            self.history = None;
        }
    }
}

/// Resolves `"""` blocks and lines that end in a backslash.
fn joined(line: &str) -> String {
    let trimmed = line.trim();
    if let Some(inner) = trimmed.strip_prefix("\"\"\"").and_then(|rest| rest.strip_suffix("\"\"\"")) {
        return inner.strip_prefix('\n').unwrap_or(inner).trim_end_matches('\n').to_owned();
    }
    line.replace("\\\n", "\n").trim_end_matches('\n').to_owned()
}

#[derive(Helper, Hinter, Highlighter)]
struct Assistance {
    files: FilenameCompleter,
    models: Vec<String>,
}

impl Validator for Assistance {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let open = text.trim_start().starts_with("\"\"\"") && text.matches("\"\"\"").count() < 2;
        let goes_on = open || text.ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Assistance {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..pos];
        let pair = |name: &str| Pair { display: name.to_owned(), replacement: format!("{name} ") };
        if let Some(start) = typed.strip_prefix("/model ") {
            let names = self.models.iter().filter(|name| name.starts_with(start)).map(|name| pair(name));
            let names: Vec<Pair> = names.collect();
            if !names.is_empty() {
                return Ok((pos - start.len(), names));
            }
        }
        if typed.starts_with('/') && !typed.contains(char::is_whitespace) {
            let names = slash::COMMANDS.iter().map(|(name, ..)| *name).filter(|name| name.starts_with(typed));
            let names: Vec<Pair> = names.map(pair).collect();
            if !names.is_empty() {
                return Ok((0, names));
            }
        }
        self.files.complete(line, pos, context)
    }
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn blocks_and_backslashes_become_lines() {
        assert_eq!(joined("\"\"\"\na\n  b\n\"\"\""), "a\n  b");
        assert_eq!(joined("\"\"\"one line\"\"\""), "one line");
        assert_eq!(joined("a\\\nb"), "a\nb");
        assert_eq!(joined("pasted\nblock\n"), "pasted\nblock");
        assert_eq!(joined("say \"\"\" here"), "say \"\"\" here");
    }
}
