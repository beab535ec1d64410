//! llama.cpp behind the traits of this room.
//!
//! The only place that names `llama_cpp_2` or `llama_cpp_sys_2`, and the only one with `unsafe`. Two things that the
//! binding hides are reached here with the layout checked at compile time: the load parameters (weights repacked or
//! not, progress and cancel) and the abort callback of a context.

mod abort;
mod context;
mod fit;
mod load;
mod log;
mod state;
mod vocab;

pub use fit::free_device_memory;
pub use load::{LlamaModel, LoadSettings};
use log::last_error;
pub use log::{LogTo, route as route_logs};

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_sys_2 as sys;

/// The version of llama.cpp, by the crate that brings it.
pub fn build() -> &'static str {
    "llama-cpp-sys-2 0.1.160"
}

/// The devices of this machine and the CPU features that llama.cpp was compiled for.
pub fn machine() -> String {
    backend();
    let text = |text: *const c_char| {
        // SAFETY: llama.cpp's strings are NUL-terminated and live as long as the program.
        if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
    };
    // SAFETY: each index below the count is a device, which lives as long as the program.
    let devices = unsafe { (0..sys::ggml_backend_dev_count()).map(|index| sys::ggml_backend_dev_get(index)) };
    // SAFETY: as above.
    let names = devices.map(|device| text(unsafe { sys::ggml_backend_dev_description(device) }));
    // SAFETY: takes nothing and returns a string of llama.cpp's own.
    let features = text(unsafe { sys::llama_print_system_info() });
    format!("{}; {}", names.collect::<Vec<_>>().join(", "), features.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// llama.cpp's process-wide backend, started once and never freed: contexts may outlive any owner we could name.
fn backend() -> &'static LlamaBackend {
    static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        log::install();
        abort::install();
        LlamaBackend::init().expect("the backend is initialised once, here")
    })
}
