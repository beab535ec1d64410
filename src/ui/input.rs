//! Where a prompt comes from: stdin, files, the command line; joined so that the document comes first and many
//! questions about it share their beginning.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::output::Terminal;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// A pipe that says nothing for this long gets a hint.
pub const SILENCE: Duration = Duration::from_secs(3);

pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Asks on the terminal; only a y is a yes.
///
/// # Errors
/// When the terminal cannot be read.
pub fn confirms(question: &str) -> Result<bool> {
    let mut answer = String::new();
    let _ = write!(io::stderr(), "{} [y/N] ", super::clean::line(question));
    io::stdin().read_line(&mut answer).map_err(|error| Error::failed(format!("stdin cannot be read: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// All of stdin as text.
///
/// # Errors
/// When it cannot be read, is no text, or Ctrl-C comes first.
pub fn read_stdin(terminal: &Terminal, interrupt: &Interrupt) -> Result<String> {
    let (sender, receiver) = mpsc::channel();
    // A thread, so that Ctrl-C and the hint do not wait for a pipe that stays open.
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = stdin.read(&mut buffer).map(|count| buffer[..count].to_vec());
            let done = !matches!(&read, Ok(bytes) if !bytes.is_empty());
            if sender.send(read).is_err() || done {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    let began = Instant::now();
    let mut hinted = false;
    loop {
        if interrupt.is_set() {
            return Err(Error::interrupted());
        }
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(Ok(read)) if read.is_empty() => break,
            Ok(Ok(read)) => bytes.extend(read),
            Ok(Err(error)) => {
                return Err(Error::failed(format!("stdin cannot be read: {error}")).hint("--no-stdin leaves it out"));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if bytes.is_empty() && !hinted && began.elapsed() > SILENCE {
                    hinted = true;
                    terminal.status("qchat: waiting for input on stdin (end it with Ctrl-D, or use --no-stdin)");
                }
            }
        }
    }
    text(bytes, "stdin")
}

/// A file as text.
///
/// # Errors
/// When it cannot be read or is no text.
pub fn read_file(path: &Path) -> Result<String> {
    let name = path.display();
    let bytes = std::fs::read(path);
    let bytes =
        bytes.map_err(|error| Error::usage(format!("{name} cannot be read: {error}")).hint("name a text file"))?;
    text(bytes, &name.to_string())
}

fn text(bytes: Vec<u8>, name: &str) -> Result<String> {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(Error::usage(format!("{name} is not text: byte {at} is NUL"))
            .hint("take a text file, or one made into text, as with pdftotext"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::usage(format!("{name} is not UTF-8: byte {at} is not part of a character"))
            .hint("convert it, for example with iconv -t UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

/// Documents first, then the question; a blank line between.
pub fn join(parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.trim_end_matches(['\n', '\r']).to_owned()).collect();
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_comes_first_and_empty_parts_go() {
        assert_eq!(join(["doc\n\n".into(), "question?".into()]), "doc\n\nquestion?");
        assert_eq!(join([" \n".into(), "  code\n".into()]), "  code");
        assert_eq!(join([String::new()]), "");
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert!(text(vec![b'a', 0], "stdin").unwrap_err().to_string().contains("byte 1 is NUL"));
        assert!(text(vec![b'a', 0xff], "stdin").unwrap_err().to_string().contains("byte 1"));
        assert_eq!(text("\u{feff}hi".into(), "x").unwrap(), "hi");
    }
}
