//! What was typed. Ranges are checked here; nothing is looked up, no file is opened.

mod answers;
mod measuring;

pub use answers::{AskArgs, EachArgs, Lines, ShapeArgs};
pub use measuring::{BenchArgs, BenchFormat, DoctorArgs};

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::engine::KvType;

/// The largest `--draft-max`.
pub const MOST_DRAFTED: usize = 16;

/// Chat with GGUF models: in a terminal, through a pipe, in a script.
#[derive(Debug, Parser)]
#[command(name = "qchat", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk (in a terminal), or answer once (with a prompt, or piped input)
    Run(Box<RunArgs>),
    /// Download models
    Pull(PullArgs),
    /// Models on this disk and models that can be pulled
    List(ListArgs),
    /// What a model's file is, and what is cached of its prompts
    Show(ShowArgs),
    /// Delete models that qchat fetched
    Rm(RmArgs),
    /// Chats that were kept: list, show, export, remove
    Chats(ChatsArgs),
    /// The prefix cache, what was read before: list, verify, prune, clear
    Cache(CacheArgs),
    /// This machine, this build, and what would make a model faster here
    Doctor(DoctorArgs),
    /// What models and settings do here, side by side: speed and quality, p50 and p95
    Bench(Box<BenchArgs>),
    /// Each setting in force, and where it came from
    Config(ConfigArgs),
    /// Completions for a shell, or the man page, on stdout
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A name from `qchat list`, a .gguf file, hf:owner/repo[:QUANT], or ollama:NAME[:TAG]
    #[arg(env = "QCHAT_MODEL", hide_env = true)]
    pub model: Option<String>,

    /// One question; without it, and without piped input, a talk begins
    pub prompt: Vec<String>,

    #[command(flatten)]
    pub sampling: SamplingArgs,

    /// System prompt, or @FILE to read it from
    #[arg(long, value_name = "TEXT|@FILE", env = "QCHAT_SYSTEM", hide_env = true)]
    pub system: Option<String>,

    /// Put a file before the prompt (repeatable)
    #[arg(short, long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// End the answer at this text (repeatable)
    #[arg(long, value_name = "TEXT", env = "QCHAT_STOP", hide_env = true, hide_short_help = true)]
    pub stop: Vec<String>,

    /// The most tokens of an answer
    #[arg(long, value_name = "N", env = "QCHAT_MAX_TOKENS", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,

    /// The most tokens of context; as many as the model was trained for where not given
    #[arg(long, value_name = "N", env = "QCHAT_CTX", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(16..=16_777_216), hide_short_help = true)]
    pub ctx: Option<u32>,

    /// CPU threads; one a physical core where not given
    #[arg(long, value_name = "N", env = "QCHAT_THREADS", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=512), hide_short_help = true)]
    pub threads: Option<u32>,

    /// Layers on the GPU; all that fit where not given
    #[arg(
        long,
        value_name = "N",
        env = "QCHAT_GPU_LAYERS",
        hide_env = true,
        allow_negative_numbers = true,
        hide_short_help = true
    )]
    pub gpu_layers: Option<u32>,

    /// The draft model: auto, off (no drafts of any kind), or a model
    #[arg(long, value_name = "auto|off|MODEL", env = "QCHAT_DRAFT", hide_env = true)]
    pub draft: Option<String>,

    /// The most tokens that are drafted at once
    #[arg(long, value_name = "N", env = "QCHAT_DRAFT_MAX", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MOST_DRAFTED as i64), hide_short_help = true)]
    pub draft_max: Option<u32>,

    /// Who may draft
    #[arg(
        long,
        value_enum,
        value_name = "ngram,model",
        value_delimiter = ',',
        env = "QCHAT_DRAFTERS",
        hide_env = true,
        hide_short_help = true
    )]
    pub drafters: Option<Vec<DrafterKind>>,

    /// Rearrange weights for this CPU when loading them: a longer load, faster drafts; in a talk where not given
    #[arg(long, value_name = "true|false", env = "QCHAT_REPACK", hide_env = true, hide_short_help = true)]
    pub repack: Option<bool>,

    /// The type of keys and values: smaller ones take less memory and are less exact
    #[arg(long, value_enum, env = "QCHAT_KV", hide_env = true, hide_short_help = true)]
    pub kv: Option<KvType>,

    /// The attention in one kernel; what doctor found best, else true where not given
    #[arg(long, value_name = "true|false", env = "QCHAT_FLASH_ATTENTION", hide_env = true, hide_short_help = true)]
    pub flash_attention: Option<bool>,

    #[command(flatten)]
    pub shape: ShapeArgs,

    #[command(flatten)]
    pub ask: AskArgs,

    #[command(flatten)]
    pub each: EachArgs,

    /// What stdout gets
    #[arg(long, value_enum, default_value_t = OutputFormat::Text, env = "QCHAT_OUTPUT", hide_env = true)]
    pub output: OutputFormat,

    /// Thoughts of a reasoning model: dimmed and then folded in a terminal, hidden in a pipe where not given
    #[arg(long, value_enum, env = "QCHAT_REASONING", hide_env = true, hide_short_help = true)]
    pub reasoning: Option<Visibility>,

    /// End thoughts after so many tokens; 0: no thoughts
    #[arg(
        long,
        value_name = "N",
        env = "QCHAT_REASONING_BUDGET",
        hide_env = true,
        allow_negative_numbers = true,
        hide_short_help = true
    )]
    pub reasoning_budget: Option<u32>,

    /// Tell the chat template something, like `enable_thinking=false` (repeatable; JSON, else text)
    #[arg(long = "template-var", value_name = "NAME=VALUE", env = "QCHAT_TEMPLATE_VAR", hide_env = true, value_parser = template_variable, hide_short_help = true)]
    pub template_variables: Vec<(String, serde_json::Value)>,

    /// Answers as the model writes them, without drawing their Markdown
    #[arg(long, env = "QCHAT_PLAIN", hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub plain: bool,

    /// The keys of the line editor; emacs where not given
    #[arg(long, value_enum, env = "QCHAT_EDITING", hide_env = true, hide_short_help = true)]
    pub editing: Option<Editing>,

    /// No chat template: the prompt is continued as it stands
    #[arg(long, hide_short_help = true)]
    pub raw: bool,

    /// Take up the chat that was used last
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["chat", "private"])]
    pub continues: bool,

    /// Take up a chat by its name, or begin it
    #[arg(long, value_name = "NAME", conflicts_with = "private")]
    pub chat: Option<String>,

    /// Take nothing from the prefix cache and put nothing into it
    #[arg(long, env = "QCHAT_NO_CACHE", hide_env = true, value_parser = clap::builder::FalseyValueParser::new(), hide_short_help = true)]
    pub no_cache: bool,

    /// Keep nothing of this talk: no chat, no prefix cache, no line history
    #[arg(long, env = "QCHAT_PRIVATE", hide_env = true, value_parser = clap::builder::FalseyValueParser::new(), hide_short_help = true)]
    pub private: bool,

    /// Do not read stdin
    #[arg(long, hide_short_help = true)]
    pub no_stdin: bool,

    /// Fetch a model that is not here without asking
    #[arg(short, long, hide_short_help = true)]
    pub yes: bool,

    /// Say after each answer what it cost
    #[arg(long, env = "QCHAT_STATS", hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub stats: bool,

    #[command(flatten)]
    pub ui: UiArgs,
}

/// Every value is optional: what is not typed is decided elsewhere.
#[derive(Args, Clone, Debug, Default)]
pub struct SamplingArgs {
    /// Randomness: 0 is always the likeliest token
    #[arg(long, value_name = "T", env = "QCHAT_TEMP", hide_env = true, allow_negative_numbers = true, value_parser = between::<0, 10>)]
    pub temp: Option<f32>,

    /// Only the K likeliest tokens; 0 is all
    #[arg(long, value_name = "K", env = "QCHAT_TOP_K", hide_env = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=1_000_000), hide_short_help = true)]
    pub top_k: Option<u32>,

    /// The smallest set of tokens with this much probability
    #[arg(long, value_name = "P", env = "QCHAT_TOP_P", hide_env = true, allow_negative_numbers = true, value_parser = between::<0, 1>, hide_short_help = true)]
    pub top_p: Option<f32>,

    /// Only tokens with this share of the likeliest one's probability
    #[arg(long, value_name = "P", env = "QCHAT_MIN_P", hide_env = true, allow_negative_numbers = true, value_parser = between::<0, 1>, hide_short_help = true)]
    pub min_p: Option<f32>,

    /// Make recent tokens of the answer less likely; 1 is off
    #[arg(long, value_name = "R", env = "QCHAT_REPEAT_PENALTY", hide_env = true, allow_negative_numbers = true, value_parser = penalty, hide_short_help = true)]
    pub repeat_penalty: Option<f32>,

    /// The same seed gives the same text
    #[arg(long, value_name = "N", env = "QCHAT_SEED", hide_env = true, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

#[derive(Args, Clone, Debug)]
pub struct UiArgs {
    /// Colours
    #[arg(long, value_enum, default_value_t = Colour::Auto, env = "QCHAT_COLOR", hide_env = true, hide_short_help = true)]
    pub color: Colour,

    /// Only the answer and errors
    #[arg(short, long)]
    pub quiet: bool,

    /// Say more on stderr; twice for llama.cpp's log
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Write llama.cpp's log to a file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub log: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PullArgs {
    /// Names from `qchat list`, or hf:owner/repo[:QUANT]
    #[arg(required = true)]
    pub models: Vec<String>,

    /// Use only this kind of source
    #[arg(long, value_enum)]
    pub source: Option<SourceKind>,

    /// Leave out the models that draft for these
    #[arg(long)]
    pub no_draft: bool,

    /// Only say what would be fetched, and how much
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub output: ListFormat,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A name from `qchat list`, a .gguf file, hf:owner/repo[:QUANT], or ollama:NAME[:TAG]
    pub model: String,

    /// What stdout gets
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub output: ListFormat,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// Names from `qchat list`, or hf:owner/repo[:QUANT]
    #[arg(required = true)]
    pub models: Vec<String>,

    /// Only say what would be deleted
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub output: ListFormat,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    pub shell: Shell,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
    /// The man page
    Man,
}

#[derive(Debug, Args)]
pub struct ChatsArgs {
    /// What to do; list where not given
    #[command(subcommand)]
    pub command: Option<ChatsCommand>,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Subcommand)]
pub enum ChatsCommand {
    /// All chats, the one that was used last first
    List {
        /// What stdout gets
        #[arg(long, value_enum, default_value_t = ListFormat::Text)]
        output: ListFormat,
    },
    /// What was said in a chat
    Show { name: String },
    /// A chat as Markdown or JSON, on stdout
    Export {
        name: String,
        #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
        format: ExportFormat,
    },
    /// Delete chats, and what only they have in the prefix cache
    Rm {
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct CacheArgs {
    /// What to do; list where not given
    #[command(subcommand)]
    pub command: Option<CacheCommand>,

    #[command(flatten)]
    pub ui: UiArgs,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// What there is of each model
    List {
        /// What stdout gets
        #[arg(long, value_enum, default_value_t = ListFormat::Text)]
        output: ListFormat,
    },
    /// Check the seal of every block; damaged ones are deleted
    Verify,
    /// Delete what was not used for longest
    Prune {
        /// Until no more than this is left, like 500MB or 4GiB
        #[arg(long, value_name = "SIZE", value_parser = size)]
        max_size: Option<u64>,
        /// What was not used for this long, like 12h or 30d
        #[arg(long, value_name = "AGE", value_parser = age)]
        max_age: Option<Duration>,
        /// Only this model's
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
    },
    /// Delete everything
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Markdown,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    Hf,
    Pip,
}

impl ValueEnum for KvType {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DrafterKind {
    /// What followed the same tokens before
    Ngram,
    /// A smaller model of the same family
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The answer as it comes
    Text,
    /// One object at the end
    Json,
    /// One object a chunk, then the object of `json`
    Jsonl,
}

/// What is shown of thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Visibility {
    /// All of them
    Show,
    /// Their end while they come, then one line
    Fold,
    Hide,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Editing {
    #[default]
    Emacs,
    Vi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    Auto,
    Always,
    Never,
}

/// A number in a range that ends at whole numbers.
fn between<const LOW: i16, const HIGH: i16>(text: &str) -> Result<f32, String> {
    in_range(text, f32::from(LOW), f32::from(HIGH))
}

/// `NAME=VALUE`: JSON where it is some, else text.
fn template_variable(text: &str) -> Result<(String, serde_json::Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok((name.trim().to_owned(), value))
        }
        _ => Err("NAME=VALUE is needed, like enable_thinking=false".into()),
    }
}

/// Bytes as people write them.
///
/// # Errors
/// A message with an example.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| format!("'{text}' is no size; write it like 500MB or 4GiB"))
}

/// A time as people write it.
///
/// # Errors
/// A message with an example.
pub fn age(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("'{text}' is no time; write it like 12h or 30d"))
}

fn penalty(text: &str) -> Result<f32, String> {
    in_range(text, 0.1, 10.0)
}

/// The number in `text`, when it lies in the range.
///
/// # Errors
/// A message that names the range.
pub fn in_range(text: &str, low: f32, high: f32) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("a number from {low} to {high} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_out_of_range_name_the_range() {
        for (flag, value, range) in [
            ("--temp", "11", "from 0 to 10"),
            ("--top-p", "1.5", "from 0 to 1"),
            ("--temp", "nan", "from 0 to 10"),
            ("--ctx", "1", "16..="),
            ("--repeat-penalty", "0", "from 0.1 to 10"),
        ] {
            let error = Cli::try_parse_from(["qchat", "run", "m", flag, value]).unwrap_err().to_string();
            assert!(error.contains(range), "{error}");
        }
    }
}
