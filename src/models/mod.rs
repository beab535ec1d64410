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
pub use gguf::{Header, type_name};
pub use identity::Identity;
pub use memory::{Needs, available, reserve, room_for_draft};
pub use mismatch::Mismatch;
pub use pair::DraftWish;
pub use receipts::Receipt;
pub use registry::{Entry, Registry, SamplingDefaults, Source};
pub use resolve::{Resolved, Resolver, Target};
pub use vocabulary::Vocabulary;
