//! Errors are a kind, a cause and hints. One table turns the kind into an exit code.
//!
//! Everything that can reach a user ends up here; nothing below this room decides on an exit code.

use std::fmt;

/// What went wrong, as far as a script that called qchat has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something failed while running.
    Failed,
    /// The command line is wrong, or input is missing.
    Usage,
    /// The model is unknown, cannot be fetched, or is not a usable GGUF.
    Model,
    /// The input does not fit the context.
    TooLong,
    /// Ctrl-C.
    Interrupted,
}

impl Kind {
    /// The exit code of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Model => 3,
            Kind::TooLong => 4,
            Kind::Interrupted => 130,
        }
    }
}

/// A failure on its way to the user: printed as one line, `message. hint. hint.`
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hints: Vec<String>,
}

/// The result of everything that can fail in front of a user.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        // One line, whatever a library puts into its messages.
        let message = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, message, hints: Vec::new() }
    }

    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, message)
    }

    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub fn model(message: impl fmt::Display) -> Self {
        Self::new(Kind::Model, message)
    }

    /// A mistake in a TOML file: file and line are named, and the line is shown, since the message may not name the key.
    pub fn in_toml(name: &str, text: &str, error: &toml::de::Error) -> Self {
        let (number, line) = line_at(text, error.span().map_or(0, |span| span.start));
        Self::usage(format!("{name}, line {number} ({line}): {}", error.message()))
    }

    pub fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted")
    }

    /// Adds what the user can do next.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// Number and words of the line that a byte is on.
pub fn line_at(text: &str, at: usize) -> (usize, &str) {
    let number = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    (number, text.lines().nth(number - 1).unwrap_or_default().trim())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message.trim_end_matches('.'))?;
        for hint in &self.hints {
            write!(f, ". {}", hint.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_its_hints() {
        let error = Error::model("no such\n  model.").hint("try qchat list").hint("or pull it");
        assert_eq!(error.to_string(), "no such model. try qchat list. or pull it");
        assert_eq!(error.kind().exit_code(), 3);
    }
}
