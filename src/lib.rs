//! qchat: a chat program for GGUF models. This file is the map of the rooms; read it first.
//!
//! | room | what it is for |
//! |---|---|
//! | [`cli`] | what was typed: parsed, ranges checked, nothing looked up |
//! | [`settings`] | flags, environment and files made into decisions |
//! | [`models`] | names, registries, GGUF headers, downloads; which model drafts for which, and in how much memory |
//! | [`chat`] | a conversation, and how a template makes one prompt of it |
//! | [`engine`] | tokens in, logits out: the traits, llama.cpp behind them, a scripted one for tests; which tokens fit a grammar |
//! | [`prefix`] | what was read once: blocks of tokens and their KV on disk, found, verified, evicted |
//! | [`sample`] | a token from logits, with noise that belongs to the position |
//! | [`generate`] | one answer as a state machine, the driver of one or many, drafts ([`generate::draft`]) |
//! | [`measure`] | figures side by side, how sure they are, and what the machine allows |
//! | [`ui`] | stdout for data, stderr for status, the REPL |
//! | [`commands`] | one file a subcommand: wiring only |
//! | [`error`], [`interrupt`], [`paths`], [`words`] | used everywhere |
//!
//! Arrows point down only:
//!
//! ```text
//! main -> lib -> commands -> all below
//! ui, measure -> generate -> chat, sample, prefix, engine     measure -> chat, sample, prefix, engine
//! settings -> models, cli, sample, prefix, engine's KvLayout, chat's THINKING     sample -> engine::Token     chat -> error only
//! prefix -> engine's Token and StateFormat
//! models -> error, interrupt, paths (and the names of chat's templates)
//! cli -> engine's KvType     ui -> cli's enums, models::fetch::Progress     engine::scripted -> one of chat's templates
//! ```
//!
//! `engine::llama` is the only place that names llama.cpp's binding and the only one with `unsafe`;
//! `ui::output` is the only place that writes to stdout.

pub mod chat;
pub mod cli;
pub mod commands;
pub mod engine;
pub mod error;
pub mod generate;
pub mod interrupt;
pub mod measure;
pub mod models;
pub mod paths;
pub mod prefix;
pub mod sample;
pub mod settings;
pub mod ui;
pub mod words;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;

/// Parses the command line, runs the command, reports its error.
pub fn run() -> ExitCode {
    let began = Instant::now();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ui::output::clap_error(&error),
    };
    ui::output::report_panics();
    // What unwinds gives the terminal back as it was.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| commands::run(cli, began)));
    let Ok(done) = done else { return ExitCode::from(error::Kind::Failed.exit_code()) };
    if let Some(code) = interrupt::ending() {
        return ExitCode::from(code);
    }
    match done {
        Ok(code) => code,
        Err(error) => {
            ui::output::report(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}
