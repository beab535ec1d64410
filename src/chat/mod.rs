//! A conversation, how a template makes one prompt of it, and how it is kept. No engine; files only in `store`.

mod conversation;
mod events;
mod export;
mod filters;
mod messages;
mod named;
mod store;
mod template;

pub use conversation::{Conversation, Message, Role};
pub use events::{Decoded, Event, Past};
pub use export::{json, markdown};
pub use messages::{Asked, AskedShape, conversation, id, object, request};
pub use named::{NAMES as TEMPLATES, named};
pub use store::{Chat, ChatName, Chats, Listed, Opened, begun, now};
pub use template::{Marked, THINKING, Template};
