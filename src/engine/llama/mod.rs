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

use fit::text;
pub use fit::{Device, devices, free_device_memory};
pub use load::{LlamaModel, LoadSettings};
use log::last_error;
pub use log::{LogTo, route as route_logs};

use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_sys_2 as sys;

/// The version of llama.cpp, by the crate that brings it.
pub fn build() -> &'static str {
    "llama-cpp-sys-2 0.1.160"
}

/// The devices of this machine and the CPU features that llama.cpp was compiled for, in one line.
pub fn machine() -> String {
    let names: Vec<String> = devices().into_iter().map(|device| device.description).collect();
    format!("{}; {}", names.join(", "), features())
}

/// llama.cpp's line about the CPU features that it was compiled for.
pub fn features() -> String {
    backend();
    // SAFETY: takes nothing and returns a string of llama.cpp's own.
    let line = text(unsafe { sys::llama_print_system_info() });
    line.split_whitespace().collect::<Vec<_>>().join(" ")
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
