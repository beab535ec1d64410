//! Model names, registries, files and downloads. Knows headers, never inference.

mod facts;
pub mod fetch;
mod gguf;
mod hub;
mod identity;
mod inspect;
mod lmstudio;
mod memory;
mod mismatch;
mod names;
mod ollama;
mod pair;
mod receipts;
mod registry;
mod resolve;
mod texts;
mod vocabulary;

pub use facts::Facts;
pub use gguf::{Census, Header, HeaderError, Tally, type_name};
pub use identity::Identity;
pub use memory::{Needs, Shortage, available, reserve, room_for_draft};
pub use mismatch::Mismatch;
pub use pair::DraftWish;
pub use receipts::{Receipt, Removal};
pub use registry::{Entry, FileSpec, Registry, SamplingDefaults, Source};
pub use resolve::{Elsewhere, Installed, Resolved, Resolver, Target};
pub use vocabulary::Vocabulary;
