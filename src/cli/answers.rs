//! What answers are to be: kept to a shape, begun, several of them, or many prompts at once.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The most turns that share a context.
const MOST_PARALLEL: u32 = 64;

/// One of these at most.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub struct ShapeArgs {
    /// The answer is JSON: an object or an array
    #[arg(long)]
    pub json: bool,

    /// The answer is JSON of this JSON Schema: a file, or the schema itself
    #[arg(long, value_name = "FILE|JSON")]
    pub schema: Option<String>,

    /// The answer follows this grammar (GBNF)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub grammar: Option<PathBuf>,

    /// The answer is one of these texts (repeatable)
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub choice: Vec<String>,
}

#[derive(Args, Clone, Debug, Default)]
pub struct AskArgs {
    /// Begin the answer with this text, and go on from there
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub prefill: Option<String>,

    /// So many answers, each with another seed
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PARALLEL)), conflicts_with = "each", hide_short_help = true)]
    pub n: Option<u32>,

    /// A conversation to answer: an array of `OpenAI` messages, - for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["prompt", "files", "each"], hide_short_help = true)]
    pub messages: Option<PathBuf>,

    /// Only show what the model would read: the text, then its token ids
    #[arg(long, conflicts_with = "each", hide_short_help = true)]
    pub print_prompt: bool,

    /// Log probabilities of the tokens and of the N likeliest at each place, in JSON
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=20), hide_short_help = true)]
    pub logprobs: Option<u32>,
}

#[derive(Args, Clone, Debug, Default)]
pub struct EachArgs {
    /// Answer every line of stdin: a prompt each, or JSON objects; one JSON object a line comes out
    #[arg(long, value_enum)]
    pub each: Option<Lines>,

    /// So many turns at once; 8 where not given
    #[arg(long, value_name = "N", env = "QCHAT_PARALLEL", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PARALLEL)), hide_short_help = true)]
    pub parallel: Option<u32>,

    /// Leave out what this file has answers to already
    #[arg(long, value_name = "OUT", requires = "each", hide_short_help = true)]
    pub resume: Option<PathBuf>,
}

/// What a line of stdin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// A prompt
    Lines,
    /// An object: {"prompt": ...}, {"messages": ...}, or an `OpenAI` batch request
    Jsonl,
}
