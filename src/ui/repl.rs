//! The line editor of the REPL: history, several lines, pasted blocks, completion. Knows no model.

use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Context, EditMode, Editor, Event, EventHandler, Helper, Highlighter, Hinter};

use super::keys::Keys;
use super::output::Terminal;
use super::slash;
use crate::cli::Editing;
use crate::error::{Error, Result};
use crate::paths::expand_home;

/// What came from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Message(Message),
    /// Ctrl-C.
    Cancelled,
    /// Ctrl-D, or the end of the input.
    End,
}

/// A message, and the files that were named in it as `@PATH`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub files: Vec<PathBuf>,
}

/// Reads messages.
pub struct Lines {
    editor: Editor<Assistance, DefaultHistory>,
    history: Option<PathBuf>,
    terminal: Terminal,
    keys: Keys,
}

const HISTORY: usize = 10_000;

impl Lines {
    /// A line editor; `history` is where lines are kept, `models` are the names that Tab completes.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn new(terminal: Terminal, history: Option<PathBuf>, models: Vec<String>, editing: Editing) -> Result<Self> {
        let unusable = |error: ReadlineError| {
            Error::failed(format!("the terminal cannot be used: {error}")).hint("`qchat run MODEL PROMPT` needs none")
        };
        let config = Config::builder()
            .max_history_size(HISTORY)
            .map_err(unusable)?
            .auto_add_history(false)
            .bracketed_paste(true)
            .edit_mode(if editing == Editing::Vi { EditMode::Vi } else { EditMode::Emacs })
            // stdout may be a pipe that wants only answers: the prompt then goes to the terminal itself.
            .behavior(if terminal.stdout { Behavior::Stdio } else { Behavior::PreferTerm })
            .build();
        let mut editor = Editor::with_config(config).map_err(unusable)?;
        let keys = Keys::default();
        editor.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(keys.clone())));
        editor.set_helper(Some(Assistance { files: FilenameCompleter::new(), models }));
        if let Some(path) = &history {
            // A history that is not there yet, or cannot be read, is an empty one.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, terminal, keys })
    }

    /// The next message, `"""` resolved.
    ///
    /// # Errors
    /// When the terminal fails.
    pub fn read(&mut self) -> Result<Input> {
        let line = self.editor.readline(">>> ");
        let typed = self.keys.take();
        match line {
            Ok(line) => {
                let line = joined(&line, &typed.continued);
                let files = mentioned(&line);
                let text = typed.unfolded(&line);
                // A folded paste is too long to be edited in a line; `/edit` and the chat have it.
                if !text.trim().is_empty() && text == line {
                    self.remember(&text);
                }
                Ok(Input::Message(Message { text, files }))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Cancelled),
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

/// Resolves `"""` blocks, and takes out the backslashes at `continued`.
fn joined(line: &str, continued: &[usize]) -> String {
    let mut line = line.to_owned();
    for &place in continued.iter().rev() {
        // Elsewhere by now, if the line was edited: then it stays.
        if line.get(place..).is_some_and(|rest| rest.starts_with("\\\n")) {
            line.remove(place);
        }
    }
    let trimmed = line.trim();
    if let Some(inner) = trimmed.strip_prefix("\"\"\"").and_then(|rest| rest.strip_suffix("\"\"\"")) {
        return inner.strip_prefix('\n').unwrap_or(inner).trim_end_matches('\n').to_owned();
    }
    line.trim_end_matches('\n').to_owned()
}

/// The files that are named as `@PATH` at the beginning of a word; a space in a path is `\ `, as Tab writes it. What is no
/// file is only text: `@property`, `@alice`.
fn mentioned(line: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (at, _) in line.match_indices('@') {
        if !line[..at].chars().next_back().is_none_or(char::is_whitespace) {
            continue;
        }
        let mut word = String::new();
        let mut rest = line[at + 1..].chars();
        while let Some(c) = rest.next().filter(|c| !c.is_whitespace()) {
            word.push(if c == '\\' { rest.next().unwrap_or(c) } else { c });
        }
        // `what is in @README.md?`
        let ends = [word.as_str(), word.trim_end_matches(['?', '!', '.', ',', ';', ':', ')'])];
        let file = ends.into_iter().map(expand_home).find(|path| path.is_file());
        files.extend(file.filter(|file| !files.contains(file)));
    }
    files
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
        Ok(if open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
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
    use super::{joined, mentioned};

    #[test]
    fn files_are_named_by_an_at_sign_before_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.md"), "a").unwrap();
        std::fs::write(path("b c.md"), "b").unwrap();
        let (a, b) = (path("a.md"), path("b c.md"));
        let folder = folder.path().display();
        assert_eq!(mentioned(&format!("what is @{folder}/a.md?")), std::slice::from_ref(&a));
        assert_eq!(mentioned(&format!("@{folder}/b\\ c.md and (see) @{folder}/a.md, @{folder}/a.md")), [b, a]);
        assert!(mentioned(&format!("@property me@{folder}/a.md @{folder} @ @{folder}/none")).is_empty());
    }

    #[test]
    fn blocks_become_lines_and_pasted_text_stays() {
        assert_eq!(joined("\"\"\"\na\n  b\n\"\"\"", &[]), "a\n  b");
        assert_eq!(joined("\"\"\"one line\"\"\"", &[]), "one line");
        assert_eq!(joined("a\\\nb", &[1]), "a\nb");
        assert_eq!(joined("a\\\nb\\\n", &[1, 4]), "a\nb");
        assert_eq!(joined("longer\\\nb", &[1]), "longer\\\nb");
        assert_eq!(joined("cmd \\\n  arg", &[]), "cmd \\\n  arg");
        assert_eq!(joined("pasted\nblock\n", &[]), "pasted\nblock");
        assert_eq!(joined("say \"\"\" here", &[]), "say \"\"\" here");
    }
}
