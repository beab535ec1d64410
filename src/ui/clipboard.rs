//! The clipboard: a program of the desktop where there is one, else the terminal's own (OSC 52).

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

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
    let sequence = format!("\x1b]52;c;{}\x07", base64(text.as_bytes()));
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

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, section 10.
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }
}
