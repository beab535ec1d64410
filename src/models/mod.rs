//! Model names, registries, files and downloads. Knows headers, never inference.

pub mod fetch;
mod gguf;
mod hub;
mod identity;
mod inspect;
mod memory;
mod mismatch;
mod names;
mod pair;
mod registry;
mod resolve;
mod texts;
mod vocabulary;

pub use gguf::{Header, HeaderError};
pub use identity::Identity;
pub use memory::{Needs, Shortage, available, room_for_draft};
pub use mismatch::Mismatch;
pub use pair::DraftWish;
pub use registry::{Entry, FileSpec, Registry, SamplingDefaults, Source};
pub use resolve::{Installed, Resolved, Resolver, Target};
pub use vocabulary::Vocabulary;
