//! What was read once need not be read again: states of prompts on disk, in blocks that share their beginnings.
//!
//! Knows tokens, keys and bytes; not models, not prompts. A miss whenever there is doubt, and never an answer that fails:
//! trouble is one line.

mod about;
mod block;
mod evict;
mod key;
mod layout;
mod plan;
mod seal;
mod store;
mod write;

pub use about::{About, Rates, Spared};
pub use block::{Entry, Fault, Header, Kind};
pub use evict::{Bounds, Found, Inventory, MAX_AGE, Prune, Pruned, prune};
pub use key::{Name, StateKey};
pub use plan::Plan;
pub use seal::SealKey;
pub use store::{Checked, Hit, Store, Usage};
