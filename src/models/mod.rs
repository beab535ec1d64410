//! Model names, registries, files and downloads. Knows headers, never inference.

pub mod fetch;
mod gguf;
mod hub;
mod names;
mod registry;
mod resolve;

pub use gguf::{Header, HeaderError};
pub use registry::{Entry, FileSpec, Registry, SamplingDefaults, Source};
pub use resolve::{Installed, Resolved, Resolver, Target};
