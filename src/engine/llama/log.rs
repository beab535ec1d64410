//! llama.cpp's log: kept off the terminal, sent to a file or to stderr when asked, and its last error remembered,
//! since a failed load answers with a null pointer and says why only here.

use std::ffi::{CStr, c_char, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

/// Where llama.cpp's log lines go.
pub enum LogTo {
    Nowhere,
    Stderr,
    File(File),
}

struct State {
    to: LogTo,
    last_error: Option<String>,
}

static STATE: Mutex<State> = Mutex::new(State { to: LogTo::Nowhere, last_error: None });

/// Sends llama.cpp's log to `to` from now on.
pub fn route(to: LogTo) {
    if let Ok(mut state) = STATE.lock() {
        state.to = to;
    }
}

/// Takes llama.cpp's log away from the terminal, where it goes by itself.
pub(super) fn install() {
    // SAFETY: the callback is a plain function that lives as long as the program and takes no user data.
    unsafe { llama_cpp_sys_2::llama_log_set(Some(receive), std::ptr::null_mut()) };
}

/// The last error line since the last call, without llama.cpp's function prefix.
pub(super) fn last_error() -> Option<String> {
    STATE.lock().ok()?.last_error.take()
}

unsafe extern "C" fn receive(level: llama_cpp_sys_2::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let Ok(mut state) = STATE.lock() else { return };
    if level == llama_cpp_sys_2::GGML_LOG_LEVEL_ERROR {
        let line = text.trim();
        // The first error of a chain names the cause ("unknown model architecture"); later ones only repeat the failure.
        let repeats = line.contains("failed to load model") || line.contains("error loading model vocabulary");
        if state.last_error.is_none() || !repeats {
            state.last_error = Some(without_prefix(line).to_owned());
        }
    }
    // A log that cannot be written must not stop an answer.
    let _ = match &mut state.to {
        LogTo::Nowhere => Ok(()),
        // Metadata of a file is in it, and a terminal would obey its control sequences.
        LogTo::Stderr => {
            let text: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
            std::io::stderr().write_all(text.as_bytes())
        }
        LogTo::File(file) => file.write_all(text.as_bytes()),
    };
}

/// `llama_model_load: error loading model: X` -> `X`.
fn without_prefix(line: &str) -> &str {
    let line = line.split_once("error loading model: ").map_or(line, |(_, cause)| cause);
    match line.split_once(": ") {
        Some((function, rest)) if !function.contains(' ') => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::without_prefix;

    #[test]
    fn the_cause_is_taken_out_of_the_prefixes() {
        let line = "llama_model_load: error loading model: unknown model architecture: 'frob'";
        assert_eq!(without_prefix(line), "unknown model architecture: 'frob'");
        assert_eq!(without_prefix("gguf_init: bad magic"), "bad magic");
    }
}
