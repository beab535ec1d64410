//! One file a subcommand. These wire rooms together; logic found here belongs lower.

mod bench;
mod cache;
mod chats;
mod completions;
mod config;
mod doctor;
mod list;
mod pull;
mod rm;
mod run;
mod sheet;
mod show;
mod slot;
mod tuning;
mod welcome;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::cli::{Cli, Command};
use crate::engine::{EngineError, llama};
use crate::error::{Error, Result};
use crate::models;

/// Runs what was typed; `began` is when the process did.
///
/// # Errors
/// What the command reports; the caller prints it.
pub fn run(cli: Cli, began: Instant) -> Result<ExitCode> {
    let Some(command) = cli.command else { return welcome::run() };
    match command {
        Command::Run(args) => run::run(*args, began),
        Command::Pull(args) => pull::run(&args),
        Command::List(args) => list::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Chats(args) => chats::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Bytes that models may take: of the GPUs, else of the machine.
fn free_memory() -> Option<u64> {
    llama::free_device_memory().or_else(models::available)
}

/// Why a model's file is not in memory now.
fn not_loaded(file: &Path, error: &EngineError) -> Error {
    match error {
        EngineError::Aborted => Error::interrupted(),
        error => Error::model(format!("{} cannot be loaded: {error}", file.display()))
            .hint("`qchat show MODEL` says what it holds and needs, --log FILE keeps what llama.cpp says"),
    }
}
