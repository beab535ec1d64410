//! stdout gets the answer and nothing else; everything else goes to stderr. The only place that writes to stdout.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use super::clean::{self, Cleaner};
use super::progress::Waiting;
use crate::cli::{Colour, OutputFormat, UiArgs};
use crate::error::{Error, Kind, Result};
use crate::generate::{Part, Sink, SinkClosed};

/// What the terminal allows and the user wants.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    pub stdout: bool,
    pub stderr: bool,
    /// Whether escape sequences may go to stdout.
    pub colour: bool,
    pub verbosity: Verbosity,
}

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Verbosity {
    Quiet,
    Normal,
    Details,
}

impl Terminal {
    pub fn new(args: &UiArgs) -> Self {
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = match args.color {
            // Never into a pipe, whatever is asked: product.md promises that no escape byte reaches it.
            Colour::Always => stdout,
            Colour::Auto => stdout && !dumb && !no_colour,
            Colour::Never => false,
        };
        let verbosity = match (args.quiet, args.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, _) => Verbosity::Details,
        };
        Self { stdout, stderr, colour, verbosity }
    }

    /// Whether bars and spinners may be drawn.
    pub fn draws_progress(&self) -> bool {
        self.stderr && self.verbosity > Verbosity::Quiet
    }

    /// The width of the terminal that stdout is; none for a pipe.
    pub fn columns(&self) -> Option<usize> {
        let (terminal_size::Width(columns), _) = self.stdout.then(terminal_size::terminal_size).flatten()?;
        // One that says 0 does not know.
        Some(usize::from(columns)).filter(|columns| *columns > 0)
    }

    /// A line for the user, on stderr.
    pub fn status(&self, line: &str) {
        if self.verbosity > Verbosity::Quiet {
            say("", line);
        }
    }

    /// A line that quiet does not silence: what a command asked for, and what was cut.
    pub fn reply(&self, line: &str) {
        say("", line);
    }

    /// A line for somebody who asked for more.
    pub fn detail(&self, line: &str) {
        if self.verbosity >= Verbosity::Details {
            say("", line);
        }
    }

    pub fn warn(&self, line: &str) {
        if self.verbosity > Verbosity::Quiet {
            say("qchat: ", line);
        }
    }
}

/// A number of things, in words.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Bytes of a model, in words.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// One line on stderr. Nobody has to be listening there.
fn say(prefix: &str, line: &str) {
    let _ = writeln!(io::stderr(), "{prefix}{}", clean::line(line));
}

/// The one line of an error.
pub fn report(error: &Error) {
    if error.kind() == Kind::Interrupted {
        return;
    }
    say("qchat: ", &error.to_string());
}

/// clap's help and errors: help as it is, an error as one line.
pub fn clap_error(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            help(error);
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help(error);
            ExitCode::from(Kind::Usage.exit_code())
        }
        _ => {
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let said: Vec<&str> =
                lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more")).collect();
            let message = said.join(" ");
            let message = message.trim_start_matches("error: ");
            report(&Error::usage(message).hint(format!("`{} --help` lists what can be given", command_of(&text))));
            ExitCode::from(Kind::Usage.exit_code())
        }
    }
}

/// The command that clap's error is about, by its line on usage; an error about a value has none.
fn command_of(text: &str) -> String {
    let is_command = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    match text.lines().find_map(|line| line.trim().strip_prefix("Usage:")) {
        Some(usage) => usage.split_whitespace().take_while(is_command).collect::<Vec<_>>().join(" "),
        None => std::env::args().nth(1).map_or_else(|| "qchat".into(), |command| format!("qchat {command}")),
    }
}

/// clap's own text; without styles where it does not go to a terminal, whatever the environment says.
fn help(error: &clap::Error) {
    let terminal = if error.use_stderr() { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let _ = match (terminal, error.use_stderr()) {
        (true, _) => error.print(),
        (false, true) => write!(io::stderr(), "{}", error.render()),
        (false, false) => write!(io::stdout(), "{}", error.render()),
    };
}

/// Writes to stdout. A reader that went away is told apart from a failure.
///
/// # Errors
/// When stdout cannot be written to, except for a closed pipe.
pub fn print(text: &str) -> Result<()> {
    print_to(text).map(|_| ())
}

/// The same; answers whether somebody is still there.
///
/// # Errors
/// As [`print`].
pub fn print_to(text: &str) -> Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(cannot_write(&error)),
    }
}

/// Who reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    There,
    Gone,
}

/// The same for text that somebody else wrote: a terminal gets no control sequences.
///
/// # Errors
/// As [`print`].
pub fn print_clean(terminal: &Terminal, text: &str) -> Result<()> {
    if terminal.stdout { print(&Cleaner::default().clean(text)) } else { print(text) }
}

/// JSON in which no control character is left as it is: serde leaves DEL and the C1 controls, which terminals obey.
pub fn json_line(value: &serde_json::Value) -> String {
    let text = value.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().map(|c| if c.is_control() { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect()
}

fn cannot_write(error: &io::Error) -> Error {
    Error::failed(format!("stdout cannot be written to: {error}"))
}

/// Writes an answer to stdout as it is made.
pub struct AnswerSink {
    format: OutputFormat,
    shows_reasoning: bool,
    colour: bool,
    cleaner: Option<Cleaner>,
    last_part: Option<Part>,
    ends_with_newline: bool,
    failure: Option<io::Error>,
    /// Until the first token.
    waiting: Option<Waiting>,
}

impl AnswerSink {
    pub fn new(terminal: &Terminal, format: OutputFormat, shows_reasoning: bool) -> Self {
        Self {
            format,
            shows_reasoning,
            colour: terminal.colour,
            cleaner: terminal.stdout.then(Cleaner::default),
            last_part: None,
            ends_with_newline: false,
            failure: None,
            waiting: Some(Waiting::new(terminal, "reading the prompt")),
        }
    }

    /// Ends the answer's last line. Answers whether the reader is still there.
    ///
    /// # Errors
    /// When stdout could not be written to, except for a closed pipe.
    pub fn finish(mut self) -> Result<()> {
        self.waiting = None;
        if self.format == OutputFormat::Text && self.failure.is_none() {
            self.leave_part();
            if !self.ends_with_newline && self.last_part.is_some() {
                self.put("\n");
            }
        }
        match self.failure {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write(&error)),
            _ => Ok(()),
        }
    }

    fn put(&mut self, text: &str) {
        self.write_out(text);
        self.ends_with_newline = text.ends_with('\n');
    }

    /// An escape sequence: it moves nothing, so the line ends where it ended.
    fn style(&mut self, sequence: &str) {
        if self.colour {
            self.write_out(sequence);
        }
    }

    fn write_out(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.failure = Some(error);
        }
    }

    fn leave_part(&mut self) {
        if self.last_part == Some(Part::Reasoning) {
            self.style("\x1b[0m");
        }
    }
}

impl Sink for AnswerSink {
    fn reading(&mut self, read: usize, of: usize) {
        if let Some(waiting) = &self.waiting {
            waiting.at(read as f32 / of as f32);
        }
    }

    fn write(&mut self, part: Part, text: &str) -> Result<(), SinkClosed> {
        self.waiting = None;
        if part == Part::Reasoning && !self.shows_reasoning {
            return Ok(());
        }
        match self.format {
            OutputFormat::Text => {
                let mut text = self.cleaner.as_mut().map_or_else(|| text.to_owned(), |cleaner| cleaner.clean(text));
                if self.last_part != Some(part) {
                    // Models put <think> on a line of its own; the rest of that line says nothing.
                    if part == Part::Reasoning {
                        text = text.trim_start().to_owned();
                        if text.is_empty() {
                            return Ok(());
                        }
                    }
                    self.leave_part();
                    if self.last_part.is_some() {
                        self.put(if self.ends_with_newline { "\n" } else { "\n\n" });
                    }
                    if part == Part::Reasoning {
                        self.style("\x1b[2m");
                    }
                    self.last_part = Some(part);
                }
                self.put(&text);
            }
            OutputFormat::Jsonl => {
                let chunk = match part {
                    Part::Content => serde_json::json!({ "content": text }),
                    Part::Reasoning => serde_json::json!({ "reasoning": text }),
                };
                self.put(&format!("{}\n", json_line(&chunk)));
            }
            OutputFormat::Json => {}
        }
        if self.failure.is_some() { Err(SinkClosed) } else { Ok(()) }
    }
}
