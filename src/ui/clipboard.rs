//! The clipboard: a program of the desktop where there is one, else the terminal's own (OSC 52).

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine as _};

/// Programs that take what comes through stdin, and the variable without which there is no desktop for them.
const PROGRAMS: [(&str, &[&str], Option<&str>); 4] = [
    ("pbcopy", &[], None),
    ("wl-copy", &[], Some("WAYLAND_DISPLAY")),
    ("xclip", &["-selection", "clipboard"], Some("DISPLAY")),
    ("xsel", &["--clipboard", "--input"], Some("DISPLAY")),
];
/// Terminals take no more than some tens of kilobytes in one sequence.
const MOST: usize = 70_000;

/// Puts a text into the clipboard; answers how, or why not, in words.
pub fn copy(text: &str, terminal: bool) -> Result<&'static str, &'static str> {
    for (program, arguments, variable) in PROGRAMS {
        if variable.is_none_or(|name| crate::paths::non_empty(name).is_some())
            && through(program, arguments, text).is_ok()
        {
            return Ok(program);
        }
    }
    if !terminal {
        return Err("there is no clipboard here");
    }
    if text.len() > MOST {
        return Err("it is too long for the terminal's clipboard");
    }
    let sequence = format!("\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text));
    io::stderr().write_all(sequence.as_bytes()).map(|()| "the terminal").map_err(|_| "the terminal does not take it")
}

fn through(program: &str, arguments: &[&str], text: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    if child.wait()?.success() { Ok(()) } else { Err(io::Error::other("it failed")) }
}
