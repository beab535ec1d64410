//! The command lines of `doctor` and `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ListFormat, UiArgs, between};
use crate::engine::KvType;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A model to look at
    pub model: Option<String>,

    /// Try threads, flash attention and rearranged weights with this model; `run` uses the best from then on
    #[arg(long, requires = "model")]
    pub tune: bool,

    /// The draft model: auto, off, or a model
    #[arg(long, value_name = "auto|off|MODEL", default_value = "auto")]
    pub draft: String,

    /// CPU threads; one a physical core where not given
    #[arg(long, value_name = "N", env = "QCHAT_THREADS", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub threads: Option<u32>,

    /// Layers on the GPU; all that fit where not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu_layers: Option<u32>,

    /// What stdout gets
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub output: ListFormat,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Models; several are compared with the first
    #[arg(required = true)]
    pub models: Vec<String>,

    /// What to compare: draft, cache, threads, flash-attention, kv or repack; draft=off,model3,policy names the values
    #[arg(long, value_name = "AXIS[=VALUES]")]
    pub compare: Option<String>,

    /// Prompts of your own: one a line, or JSON Lines (prompt, kind, document and more)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["grid", "depth"])]
    pub prompts: Option<PathBuf>,

    /// Which kinds of prompts: repetition, edit, code, extraction, summary, chat, translation; three of them where not given
    #[arg(long, value_name = "KINDS", value_delimiter = ',', conflicts_with_all = ["prompts", "grid", "depth"])]
    pub kinds: Vec<String>,

    /// Prompts and answers of so many tokens, like 128x64,2048x64
    #[arg(long, value_name = "PROMPTxANSWER", value_delimiter = ',', value_parser = grid)]
    pub grid: Vec<(usize, usize)>,

    /// Prompts of so many tokens: how speed falls with depth
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_delimiter = ',', conflicts_with = "grid", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub depth: Vec<u32>,

    /// Answers of each kind of prompt
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// The most tokens of an answer
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub tokens: u32,

    /// All kinds of prompts and all values instead of the usual few
    #[arg(long)]
    pub full: bool,

    /// A text to compare likelihoods on
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,

    /// Speed only: no answers are checked, no likelihoods compared
    #[arg(long)]
    pub no_quality: bool,

    /// The draft model: auto, off, or a model
    #[arg(long, value_name = "auto|off|MODEL", default_value = "auto")]
    pub draft: String,

    /// Randomness: 0 is always the likeliest token
    #[arg(long, value_name = "T", allow_negative_numbers = true, default_value_t = 0.0, value_parser = between::<0, 10>)]
    pub temp: f32,

    /// CPU threads; one a physical core where not given
    #[arg(long, value_name = "N", env = "QCHAT_THREADS", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub threads: Option<u32>,

    /// Layers on the GPU; all that fit where not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu_layers: Option<u32>,

    /// The type of keys and values
    #[arg(long, value_enum)]
    pub kv: Option<KvType>,

    /// The attention in one kernel
    #[arg(long, value_name = "true|false")]
    pub flash_attention: Option<bool>,

    /// Rearrange weights for this CPU, as in a talk
    #[arg(long, value_name = "true|false")]
    pub repack: Option<bool>,

    /// What stdout gets
    #[arg(long, value_enum, default_value_t = BenchFormat::Text)]
    pub output: BenchFormat,

    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub ui: UiArgs,
}

/// `128x64`
fn grid(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("'{text}' is not like 128x64");
    let (prompt, answer) = text.split_once('x').ok_or_else(wrong)?;
    let (prompt, answer) = (prompt.parse().map_err(|_| wrong())?, answer.parse().map_err(|_| wrong())?);
    if (1..=1_000_000).contains(&prompt) && (2..=100_000).contains(&answer) {
        Ok((prompt, answer))
    } else {
        Err(wrong())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// Tables
    Text,
    /// One object at the end
    Json,
    /// A row an answer as it comes, then the report
    Jsonl,
    /// Tables for a document
    Markdown,
}
