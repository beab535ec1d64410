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

use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;

/// llama.cpp's process-wide backend, started once and never freed: contexts may outlive any owner we could name.
fn backend() -> &'static LlamaBackend {
    static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        log::install();
        abort::install();
        LlamaBackend::init().expect("the backend is initialised once, here")
    })
}
