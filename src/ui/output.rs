//! stdout gets the answer and nothing else; everything else goes to stderr. The only place that writes to stdout.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use unicode_width::UnicodeWidthStr as _;

use super::clean::{self, Cleaner};
use crate::cli::{Cli, Colour, UiArgs};
use crate::error::{Error, Kind, Result};
pub use crate::words::{count, size};

/// What the terminal allows and the user wants.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    pub stdout: bool,
    pub stderr: bool,
    /// Whether escape sequences may go to stdout.
    pub colour: bool,
    /// Whether the cursor of stdout can be moved.
    pub draws: bool,
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
            // Never into a pipe, whatever is asked: no escape byte reaches it.
            Colour::Always => stdout,
            Colour::Auto => stdout && !dumb && !no_colour,
            Colour::Never => false,
        };
        let verbosity = match (args.quiet, args.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, _) => Verbosity::Details,
        };
        Self { stdout, stderr, colour, draws: stdout && !dumb, verbosity }
    }

    /// Whether bars and spinners may be drawn.
    pub fn draws_progress(&self) -> bool {
        self.stderr && self.verbosity > Verbosity::Quiet
    }

    /// Columns and rows of the terminal that stdout is; none for a pipe, or where it does not know.
    pub fn size(&self) -> Option<(usize, usize)> {
        let size = self.stdout.then(terminal_size::terminal_size).flatten();
        let (terminal_size::Width(columns), terminal_size::Height(rows)) = size?;
        Some((columns.into(), rows.into())).filter(|(columns, rows)| *columns > 0 && *rows > 0)
    }

    /// A line for the user, on stderr.
    pub fn status(&self, line: &str) {
        if self.verbosity > Verbosity::Quiet {
            self.reply(line);
        }
    }

    /// A line that quiet does not silence: what a command asked for, and what was cut. A terminal breaks it between words.
    pub fn reply(&self, line: &str) {
        let size = self.stderr.then(|| terminal_size::terminal_size_of(io::stderr())).flatten();
        let columns = size.map(|(columns, _)| usize::from(columns.0)).filter(|columns| *columns > 0);
        let line = clean::line(line);
        let _ = writeln!(io::stderr(), "{}", columns.map_or_else(|| line.clone(), |columns| folded(&line, columns)));
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

/// A number with a comma at each thousand.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A line in rows of at most so many columns, as far as spaces allow.
fn folded(line: &str, columns: usize) -> String {
    let (mut rows, mut used) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        let is_blank = rows.trim_end_matches(' ').len() == rows.rfind('\n').map_or(0, |at| at + 1);
        if !is_blank && used + word.trim_end().width() > columns {
            rows.truncate(rows.trim_end_matches(' ').len());
            rows.push('\n');
            used = 0;
        }
        rows.push_str(word);
        used += word.width();
    }
    rows
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

/// A panic is one line too, with attributes reset and the cursor shown where a terminal listens.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = panic.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
        if io::stdout().is_terminal() && io::stderr().is_terminal() {
            let _ = write!(io::stderr(), "\x1b[0m\x1b[?25h\r\n");
        }
        say("qchat: ", &format!("this is a fault of qchat itself{place}: {text}"));
    }));
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
    if let Some(usage) = text.lines().find_map(|line| line.trim().strip_prefix("Usage:")) {
        return usage.split_whitespace().take_while(is_command).collect::<Vec<_>>().join(" ");
    }
    // The deepest subcommand that was typed: its help lists the flag.
    let mut command = Cli::command();
    let mut words = vec!["qchat".to_owned()];
    for word in std::env::args().skip(1) {
        let Some(found) = command.find_subcommand(&word).cloned() else { break };
        words.push(word);
        command = found;
    }
    words.join(" ")
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
    match write_now(text) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(cannot_write(&error)),
    }
}

/// Whether what is written to stdout goes into this file.
pub fn stdout_is(path: &std::path::Path) -> bool {
    #[cfg(unix)]
    {
        let own = rustix::fs::fstat(io::stdout()).map(|own| (own.st_dev, own.st_ino));
        own.is_ok() && own == rustix::fs::stat(path).map(|other| (other.st_dev, other.st_ino))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
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

/// A line of JSON on stdout. Errors are those of [`print`].
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&json_line(value))
}

/// A line of JSON without a control character in it: serde leaves DEL and the C1 controls, which terminals obey.
pub fn json_line(value: &serde_json::Value) -> String {
    let escaped = |c: char| if c.is_control() { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    let text = value.to_string();
    let text = if text.contains(char::is_control) { text.chars().map(escaped).collect() } else { text };
    text + "\n"
}

/// Writes to stdout at once.
pub(super) fn write_now(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

pub(super) fn cannot_write(error: &io::Error) -> Error {
    Error::failed(format!("stdout cannot be written to: {error}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_long_line_breaks_between_words() {
        for (line, columns, rows) in [
            ("one two", 7, "one two"),
            ("one two three", 8, "one two\nthree"),
            ("one two ", 7, "one two "),
            ("a-word-too-long b", 4, "a-word-too-long\nb"),
            ("漢字 漢字", 8, "漢字\n漢字"),
            ("  indented a", 4, "  indented\na"),
        ] {
            assert_eq!(super::folded(line, columns), rows, "{line}");
        }
    }
}
