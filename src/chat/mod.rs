//! A conversation, and how a template makes one prompt of it. Pure: strings in, strings out; no engine, no files.

mod conversation;
mod filters;
mod named;
mod template;

pub use conversation::{Conversation, Message, Role};
pub use named::named;
pub use template::{Marked, Template};
