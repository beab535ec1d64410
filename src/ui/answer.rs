//! An answer on stdout while it is made: as it is, drawn on a terminal, or as JSON.

use std::io;
use std::time::{Duration, Instant};

use super::clean::Cleaner;
use super::hush::Hush;
use super::markdown::Markdown;
use super::output::{Terminal, cannot_write, json_line, thousands, write_now};
use super::progress::Waiting;
use super::thoughts::Thoughts;
use crate::cli::{OutputFormat, Visibility};
use crate::error::Result;
use crate::generate::{Part, Sink, SinkClosed};

/// What an answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub format: OutputFormat,
    pub reasoning: Visibility,
    /// Whether a terminal that can gets its Markdown drawn.
    pub markdown: bool,
    /// Whether a text is shown only once it is whole.
    pub whole: bool,
}

/// A pipe gets whole lines, and what is shorter once in so long.
const CHUNK: Duration = Duration::from_millis(100);

/// Where a terminal gives no size.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// Writes an answer to stdout as it is made.
pub struct AnswerSink {
    terminal: Terminal,
    form: Form,
    cleaner: Option<Cleaner>,
    markdown: Option<Markdown>,
    thoughts: Option<Thoughts>,
    last_part: Option<Part>,
    ends_with_newline: bool,
    /// What a pipe has yet to get, and when it got something.
    unwritten: String,
    written: Option<Instant>,
    failure: Option<io::Error>,
    /// What waits to be whole.
    held: String,
    /// Until the first token.
    waiting: Option<Waiting>,
    to_read: usize,
    /// Typed keys would stand between what is drawn.
    _hush: Option<Hush>,
}

impl AnswerSink {
    pub fn new(terminal: &Terminal, form: Form) -> Self {
        let (columns, rows) = terminal.size().unwrap_or(USUAL_SIZE);
        let draws = terminal.draws && form.format == OutputFormat::Text;
        let hush = draws.then(Hush::begin);
        Self {
            terminal: *terminal,
            form,
            cleaner: terminal.stdout.then(Cleaner::default),
            markdown: (draws && form.markdown).then(|| Markdown::new(columns, rows, terminal.colour)),
            thoughts: (draws && form.reasoning == Visibility::Fold).then(|| Thoughts::new(terminal.colour)),
            last_part: None,
            ends_with_newline: false,
            unwritten: String::new(),
            written: None,
            failure: None,
            held: String::new(),
            waiting: Some(Waiting::new(terminal, "reading the prompt")),
            to_read: 0,
            _hush: hush,
        }
    }

    /// Ends the answer's last line. One that is not whole is not shown where that was wanted.
    ///
    /// # Errors
    /// When stdout could not be written to, except for a closed pipe.
    pub fn finish(mut self, is_whole: bool) -> Result<()> {
        self.waiting = None;
        let held = std::mem::take(&mut self.held);
        if is_whole && !held.is_empty() {
            self.write_text(Part::Content, &held);
        }
        if self.form.format == OutputFormat::Text && self.failure.is_none() {
            self.leave_part();
            if let Some(mut markdown) = self.markdown.take().filter(|_| self.last_part == Some(Part::Content)) {
                self.put(&markdown.finish());
            } else if !self.ends_with_newline && self.last_part.is_some() {
                self.put("\n");
            }
        }
        if !self.unwritten.is_empty() && self.failure.is_none() {
            self.flush();
        }
        match self.failure {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write(&error)),
            _ => Ok(()),
        }
    }

    fn put(&mut self, text: &str) {
        if !text.is_empty() {
            self.write_out(text);
            self.ends_with_newline = text.ends_with('\n');
        }
    }

    /// An escape sequence: it moves nothing, so the line ends where it ended.
    fn style(&mut self, sequence: &str) {
        if self.terminal.colour {
            self.write_out(sequence);
        }
    }

    fn write_out(&mut self, text: &str) {
        self.unwritten.push_str(text);
        if self.terminal.stdout || text.contains('\n') || self.written.is_none_or(|at| at.elapsed() >= CHUNK) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Err(error) = write_now(&std::mem::take(&mut self.unwritten)) {
            self.failure = Some(error);
        }
        self.written = Some(Instant::now());
    }

    /// The size of the window now.
    fn size(&self) -> (usize, usize) {
        self.terminal.size().unwrap_or(USUAL_SIZE)
    }

    fn leave_part(&mut self) {
        if self.last_part == Some(Part::Reasoning) {
            match self.thoughts.take() {
                Some(thoughts) => self.put(&thoughts.fold()),
                None => self.style("\x1b[0m"),
            }
        }
    }

    fn enter_part(&mut self, part: Part) {
        self.leave_part();
        if self.last_part.is_some() {
            self.put(if self.ends_with_newline { "\n" } else { "\n\n" });
        }
        if part == Part::Reasoning && self.thoughts.is_none() {
            self.style("\x1b[2m");
        }
        self.last_part = Some(part);
    }

    fn write_text(&mut self, part: Part, text: &str) {
        let mut text = self.cleaner.as_mut().map_or_else(|| text.to_owned(), |cleaner| cleaner.clean(text));
        if self.last_part != Some(part) {
            // Models put <think> on a line of its own; the rest of that line says nothing.
            if part == Part::Reasoning {
                text.drain(..text.len() - text.trim_start().len());
            }
            if text.is_empty() {
                return;
            }
            self.enter_part(part);
        }
        let (columns, rows) = self.size();
        let drawn = match (part, &mut self.thoughts, &mut self.markdown) {
            (Part::Reasoning, Some(thoughts), _) => thoughts.push(&text, columns),
            (Part::Content, _, Some(markdown)) => {
                markdown.resize(columns, rows);
                markdown.push(&text)
            }
            _ => text,
        };
        self.put(&drawn);
    }
}

impl Sink for AnswerSink {
    fn reads(&mut self, tokens: usize, time: Option<Duration>) {
        self.to_read = tokens;
        if let Some(waiting) = &self.waiting {
            waiting.say(&format!("reading the prompt ({} tokens)", thousands(tokens)));
            time.into_iter().for_each(|time| waiting.expect(time));
        }
    }

    fn reading(&mut self, read: usize) {
        if let Some(waiting) = &self.waiting {
            waiting.at(read as f32 / self.to_read.max(1) as f32);
        }
    }

    fn write(&mut self, part: Part, text: &str) -> Result<(), SinkClosed> {
        self.waiting = None;
        if part == Part::Reasoning && self.form.reasoning == Visibility::Hide {
            return Ok(());
        }
        match self.form.format {
            OutputFormat::Text if self.form.whole && part == Part::Content => self.held.push_str(text),
            OutputFormat::Text => self.write_text(part, text),
            OutputFormat::Jsonl => {
                let chunk = match part {
                    Part::Content => serde_json::json!({ "content": text }),
                    Part::Reasoning => serde_json::json!({ "reasoning": text }),
                };
                self.put(&json_line(&chunk));
            }
            OutputFormat::Json => {}
        }
        if self.failure.is_some() { Err(SinkClosed) } else { Ok(()) }
    }
}
