//! What a person sees: stdout for data, stderr for the rest, the REPL.

pub mod answer;
pub mod clean;
pub mod clipboard;
pub mod editor;
pub mod hush;
pub mod input;
mod keys;
mod markdown;
pub mod output;
pub mod progress;
pub mod repl;
pub mod slash;
mod thoughts;
