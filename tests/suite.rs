//! The fast suite: one harness, one file a behaviour.

#![allow(unreachable_pub, reason = "a test harness has no outside")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/talks.rs"]
mod talks;

#[path = "suite/engine.rs"]
mod engine;
#[path = "suite/prompt_ids.rs"]
mod prompt_ids;
#[path = "suite/turns.rs"]
mod turns;
