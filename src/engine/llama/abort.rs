//! Where llama.cpp would end the process because a file contradicts itself in a way that only it sees: one line and an
//! exit code instead of a crash.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as sys;

use crate::error::{Error, Kind};

/// As `models` has it for files that it refuses itself.
const AGAIN: &str = "download it again (`qchat rm MODEL`, then `qchat pull MODEL`, if qchat fetched it)";

/// Whether a model has been evaluated: before that its file is to blame.
static WORKS: AtomicBool = AtomicBool::new(false);

pub(super) fn install() {
    // SAFETY: the callback is a plain function that lives as long as the program.
    unsafe { sys::ggml_set_abort_callback(Some(give_up)) };
}

/// Notes that a model was evaluated.
pub(super) fn works() {
    WORKS.store(true, Ordering::Relaxed);
}

unsafe extern "C" fn give_up(message: *const c_char) {
    unsafe extern "C" {
        fn _exit(code: c_int) -> !;
    }
    // SAFETY: ggml passes a NUL-terminated string that lives during the call.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // It may quote a name from the file.
    let message: String = short(&message).chars().filter(|c| !c.is_control()).collect();
    let error = Error::new(if WORKS.load(Ordering::Relaxed) { Kind::Failed } else { Kind::Model }, message)
        .hint(format!("the model file may be damaged: {AGAIN}"));
    let _ = writeln!(std::io::stderr(), "qchat: llama.cpp gave up: {error}");
    // SAFETY: ends the process at once. Other threads may hold any lock, so nothing may be cleaned up here.
    unsafe { _exit(c_int::from(error.kind().exit_code())) }
}

/// `/long/path/file.cpp:12: cause` -> `file.cpp:12: cause`.
fn short(message: &str) -> &str {
    let place = message.find(": ").unwrap_or(0);
    message[..place].rfind(['/', '\\']).map_or(message, |at| &message[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn folders_of_the_build_are_not_shown() {
        assert_eq!(short("/a/b/ggml.c:3758: GGML_ASSERT(x / y) failed"), "ggml.c:3758: GGML_ASSERT(x / y) failed");
        assert_eq!(short("no place"), "no place");
    }
}
