//! What a person sees: stdout for data, stderr for the rest, the REPL.

pub mod clean;
pub mod clipboard;
pub mod editor;
pub mod input;
pub mod output;
pub mod progress;
pub mod repl;
pub mod slash;
