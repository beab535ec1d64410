//! Decisions: flag, environment (clap reads it), the model's entry, config.toml, built in; the first that speaks wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::chat::THINKING;
use crate::cli::{
    DrafterKind, Editing, Lines, MOST_DRAFTED, OutputFormat, RunArgs, SamplingArgs, ShapeArgs, Visibility, age, size,
};
use crate::engine::{KvLayout, KvType};
use crate::error::{Error, Result};
use crate::models::{DraftWish, Entry, SamplingDefaults};
use crate::paths::{self, Paths};
use crate::prefix::{Bounds, MAX_AGE};
use crate::sample::Sampling;

/// What to do about a mistake in config.toml.
const MEND: &str = "mend that line, then check with `qchat config`";

/// What config.toml may say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub default_model: Option<String>,
    pub system: Option<String>,
    pub threads: Option<usize>,
    pub context: Option<usize>,
    pub max_tokens: Option<usize>,
    /// As `--draft`.
    pub draft: Option<String>,
    pub draft_max: Option<usize>,
    pub repack: Option<bool>,
    /// As `--kv`.
    pub kv: Option<KvType>,
    pub flash_attention: Option<bool>,
    /// Tokens of thoughts.
    pub reasoning_budget: Option<usize>,
    /// As `--plain`.
    pub plain: Option<bool>,
    /// As `--editing`.
    pub editing: Option<Editing>,
    /// As `--template-var`, by name.
    #[serde(default)]
    pub template: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub cache: CacheConfig,
    #[serde(default)]
    pub sampling: SamplingDefaults,
}

/// The prefix cache in config.toml.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// As `--no-cache`, where false.
    pub enabled: Option<bool>,
    /// Like `"4GiB"`.
    pub max_size: Option<String>,
    /// Like `"30d"`.
    pub max_age: Option<String>,
}

/// What the bounds are called in the environment.
pub const CACHE_VARIABLES: [&str; 2] = ["QCHAT_CACHE_MAX_SIZE", "QCHAT_CACHE_MAX_AGE"];

impl CacheConfig {
    /// The bounds of the prefix cache: of the environment, else these.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn bounds(&self) -> Result<Bounds, String> {
        let typed = |variable: &'static str| {
            std::env::var(variable).ok().filter(|value| !value.is_empty()).map(|value| (variable, value))
        };
        let [size, age] = self.own();
        let [size_variable, age_variable] = CACHE_VARIABLES;
        Self::parsed([typed(size_variable).or(size), typed(age_variable).or(age)])
    }

    /// What config.toml says, with its names.
    fn own(&self) -> [Option<(&'static str, String)>; 2] {
        let named = |name, value: &Option<String>| value.clone().map(|value| (name, value));
        [named("cache.max_size", &self.max_size), named("cache.max_age", &self.max_age)]
    }

    fn parsed([max_size, max_age]: [Option<(&str, String)>; 2]) -> Result<Bounds, String> {
        let read_size = |(name, value): (&str, String)| size(&value).map_err(|error| format!("{name}: {error}"));
        let read_age = |(name, value): (&str, String)| age(&value).map_err(|error| format!("{name}: {error}"));
        Ok(Bounds { max_size: max_size.map(read_size).transpose()?, max_age: max_age.map_or(Ok(MAX_AGE), read_age)? })
    }
}

impl Config {
    /// Reads the file; one that is not there says nothing.
    ///
    /// # Errors
    /// When it cannot be read or has a mistake: file, line and key are named.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if paths::is_missing(&error) => {
                return Ok(Self::default());
            }
            Err(error) => {
                return Err(Error::usage(format!("{} cannot be read: {error}", path.display()))
                    .hint("mend or delete it, then check with `qchat config`"));
            }
        };
        let config: Self = toml::from_str(&text)
            .map_err(|error| Error::in_toml(&path.display().to_string(), &text, &error).hint(MEND))?;
        match config.problem() {
            Some(problem) => Err(Error::usage(format!("{}: {problem}", path.display())).hint(MEND)),
            None => Ok(config),
        }
    }
}

impl Config {
    /// The first value out of its range (those of the flags), in words.
    fn problem(&self) -> Option<String> {
        let counts = [
            ("max_tokens", self.max_tokens, 1, u32::MAX as usize),
            ("context", self.context, 16, 1 << 24),
            ("threads", self.threads, 1, 512),
            ("draft_max", self.draft_max, 1, MOST_DRAFTED),
        ];
        let wrong = |(name, value, low, high): (&str, Option<usize>, usize, usize)| {
            let wrong = value.is_some_and(|value| !(low..=high).contains(&value));
            wrong.then(|| format!("{name} must be from {low} to {high}"))
        };
        let cache = || CacheConfig::parsed(self.cache.own()).err();
        counts.into_iter().find_map(wrong).or_else(|| self.sampling.problem()).or_else(cache)
    }
}

/// Everything that `run` needs to know, except what only the model's entry can say.
#[derive(Clone, Debug)]
pub struct Settings {
    pub paths: Paths,
    /// As it was typed.
    pub model: Option<String>,
    /// From config.toml: below a chat's own.
    pub config_model: Option<String>,
    pub chat: WhichChat,
    /// The names of settings that were typed, or came from the environment: a chat's own are below them.
    pub typed: Vec<&'static str>,
    pub prompt: Option<String>,
    pub files: Vec<PathBuf>,
    pub reads_stdin: bool,
    /// A model that nobody named is fetched without asking.
    pub yes: bool,
    /// Typed or from the environment; text, `@FILE` already read.
    pub system: Option<String>,
    /// From config.toml: below the model's entry.
    pub config_system: Option<String>,
    pub stops: Vec<String>,
    pub max_tokens: Option<usize>,
    pub n_ctx: Option<usize>,
    /// What was typed or configured; else what doctor found best, else one a core.
    pub threads: Option<usize>,
    pub gpu_layers: Option<u32>,
    pub draft: DraftWish,
    /// The most tokens that are drafted at once.
    pub draft_max: usize,
    pub drafters: Vec<DrafterKind>,
    /// Whether weights are rearranged for the CPU when they are loaded; `None`: in a talk.
    pub repack: Option<bool>,
    pub kv: KvType,
    /// As with threads; on without tuning.
    pub flash_attention: Option<bool>,
    pub output: OutputFormat,
    pub reasoning: Option<Visibility>,
    /// The most tokens of thoughts.
    pub reasoning_budget: Option<usize>,
    /// What the chat template is told; what was typed comes last.
    pub template_variables: Vec<(String, serde_json::Value)>,
    /// Answers are not drawn as Markdown.
    pub plain: bool,
    pub editing: Editing,
    pub raw: bool,
    /// What the answer is kept to.
    pub shape: Option<Shape>,
    /// What the answer begins with.
    pub prefill: Option<String>,
    /// Answers to one prompt.
    pub copies: usize,
    /// A file with a conversation; `-` is stdin.
    pub messages: Option<PathBuf>,
    pub print_prompt: bool,
    /// Likeliest tokens whose probabilities are said.
    pub logprobs: Option<usize>,
    /// Many prompts, in lines.
    pub each: Option<Lines>,
    pub parallel: usize,
    pub resume: Option<PathBuf>,
    /// Nothing of a talk is kept.
    pub private: bool,
    /// The prefix cache; none where it is off.
    pub cache: Option<Bounds>,
    pub stats: bool,
    pub sampling: SamplingLayers,
}

/// Turns that share a context where nothing was said.
pub const PARALLEL: usize = 8;

/// What an answer is kept to.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// An object or an array.
    Json,
    Schema(serde_json::Value),
    /// GBNF, and where it came from.
    Grammar {
        source: String,
        name: String,
    },
    Choices(Vec<String>),
}

fn shape(args: ShapeArgs) -> Result<Option<Shape>> {
    if args.json {
        return Ok(Some(Shape::Json));
    }
    if let Some(words) = args.schema {
        // A schema is an object; what does not begin like one is a file.
        let (text, name) = if words.trim_start().starts_with('{') {
            (words, "--schema".to_owned())
        } else {
            (read(Path::new(&words), "schema")?, words)
        };
        let schema = serde_json::from_str(&text).map_err(|error| {
            Error::usage(format!("{name} is no JSON: {error}")).hint("write it like {\"type\": \"object\", ...}")
        })?;
        return Ok(Some(Shape::Schema(schema)));
    }
    if let Some(path) = args.grammar {
        return Ok(Some(Shape::Grammar { source: read(&path, "grammar")?, name: path.display().to_string() }));
    }
    Ok((!args.choice.is_empty()).then_some(Shape::Choices(args.choice)))
}

fn read(path: &Path, what: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::usage(format!("the {what} {} cannot be read: {error}", path.display()))
            .hint(format!("--{what} takes a file"))
    })
}

/// The chat that a talk is kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichChat {
    New,
    Latest,
    Named(String),
}

/// What was typed of the settings that a chat may have too, by their names in `/set`.
fn typed(args: &RunArgs) -> Vec<&'static str> {
    let own = &args.sampling;
    let given = [
        ("temperature", own.temp.is_some()),
        ("top_k", own.top_k.is_some()),
        ("top_p", own.top_p.is_some()),
        ("min_p", own.min_p.is_some()),
        ("repeat_penalty", own.repeat_penalty.is_some()),
        ("seed", own.seed.is_some()),
        ("max_tokens", args.max_tokens.is_some()),
        ("context", args.ctx.is_some()),
        ("stop", !args.stop.is_empty()),
        ("reasoning", args.reasoning.is_some()),
        ("reasoning_budget", args.reasoning_budget.is_some()),
        ("thinking", args.template_variables.iter().any(|(name, _)| THINKING.contains(&name.as_str()))),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

/// Sampling values by who said them; a REPL's `/set` writes to `typed`.
#[derive(Clone, Debug, Default)]
pub struct SamplingLayers {
    pub typed: SamplingDefaults,
    pub config: SamplingDefaults,
    pub seed: u64,
}

impl Settings {
    /// Makes decisions of what was typed, the environment and config.toml.
    ///
    /// # Errors
    /// When a file that is named cannot be read.
    pub fn new(args: RunArgs, paths: Paths) -> Result<Self> {
        let config = Config::load(&paths.config_file())?;
        let cached = !args.no_cache && !args.private && config.cache.enabled.unwrap_or(true);
        let bounds = config.cache.bounds().map_err(Error::usage)?;
        let typed = typed(&args);
        let kv = args.kv.or(config.kv).unwrap_or_default();
        let flash_attention = args.flash_attention.or(config.flash_attention);
        layout(kv, flash_attention)?;
        let prompt = args.prompt.join(" ");
        let system = args.system.map(|text| text_or_file(&text)).transpose()?;
        Ok(Self {
            paths,
            model: args.model,
            config_model: config.default_model,
            chat: match args.chat {
                Some(name) => WhichChat::Named(name),
                None if args.continues => WhichChat::Latest,
                None => WhichChat::New,
            },
            typed,
            prompt: (!args.prompt.is_empty()).then_some(prompt),
            files: args.files,
            reads_stdin: !args.no_stdin,
            yes: args.yes,
            system,
            config_system: config.system,
            stops: args.stop.into_iter().filter(|stop| !stop.is_empty()).collect(),
            max_tokens: args.max_tokens.map(|n| n as usize).or(config.max_tokens),
            n_ctx: args.ctx.map(|n| n as usize).or(config.context),
            threads: args.threads.map(|n| n as usize).or(config.threads),
            gpu_layers: args.gpu_layers,
            draft: args.draft.or(config.draft).map_or(DraftWish::Auto, |wish| DraftWish::from_word(&wish)),
            draft_max: args.draft_max.map(|n| n as usize).or(config.draft_max).unwrap_or(MOST_DRAFTED),
            drafters: args.drafters.unwrap_or_else(|| vec![DrafterKind::Ngram, DrafterKind::Model]),
            repack: args.repack.or(config.repack),
            kv,
            flash_attention,
            output: args.output,
            reasoning: args.reasoning,
            reasoning_budget: args.reasoning_budget.map(|n| n as usize).or(config.reasoning_budget),
            template_variables: config.template.into_iter().chain(args.template_variables).collect(),
            plain: args.plain || config.plain.unwrap_or(false),
            editing: args.editing.or(config.editing).unwrap_or_default(),
            raw: args.raw,
            shape: shape(args.shape)?,
            prefill: args.ask.prefill.filter(|text| !text.is_empty()),
            copies: args.ask.n.map_or(1, |n| n as usize),
            messages: args.ask.messages,
            print_prompt: args.ask.print_prompt,
            logprobs: args.ask.logprobs.map(|n| n as usize),
            each: args.each.each,
            parallel: args.each.parallel.map_or(PARALLEL, |n| n as usize),
            resume: args.each.resume,
            private: args.private,
            cache: cached.then_some(bounds),
            stats: args.stats,
            sampling: SamplingLayers::new(&args.sampling, config.sampling),
        })
    }
}

/// How contexts are laid out; flash attention is on where nothing was said.
///
/// # Errors
/// When both cannot go together.
pub fn layout(kv: KvType, flash_attention: Option<bool>) -> Result<KvLayout> {
    let layout = KvLayout { kv, flash_attention: flash_attention.unwrap_or(true) };
    if layout.kv != KvType::F16 && !layout.flash_attention {
        let message = format!("--kv {} needs flash attention", layout.kv.name());
        return Err(Error::usage(message).hint("take --flash-attention true, or --kv f16"));
    }
    Ok(layout)
}

impl SamplingLayers {
    fn new(args: &SamplingArgs, config: SamplingDefaults) -> Self {
        let typed = SamplingDefaults {
            temperature: args.temp,
            top_k: args.top_k.map(|k| k as usize),
            top_p: args.top_p,
            min_p: args.min_p,
            repeat_penalty: args.repeat_penalty,
        };
        Self { typed, config, seed: args.seed.unwrap_or_else(random_seed) }
    }

    /// The sampling for a model.
    pub fn for_model(&self, entry: Option<&Entry>) -> Sampling {
        let none = SamplingDefaults::default();
        let maker = entry.map_or(&none, |entry| &entry.sampling);
        let layers = [&self.typed, maker, &self.config];
        macro_rules! first {
            ($field:ident, $built_in:expr) => {
                layers.iter().find_map(|layer| layer.$field).unwrap_or($built_in)
            };
        }
        Sampling {
            temperature: first!(temperature, 0.7),
            top_k: first!(top_k, 40),
            top_p: first!(top_p, 0.95),
            min_p: first!(min_p, 0.05),
            repeat_penalty: first!(repeat_penalty, 1.0),
            seed: self.seed,
        }
    }
}

fn text_or_file(text: &str) -> Result<String> {
    let Some(path) = text.strip_prefix('@') else {
        return Ok(text.to_owned());
    };
    let text = std::fs::read_to_string(path);
    text.map(|text| text.trim_end().to_owned()).map_err(|error| {
        Error::usage(format!("the system prompt {path} cannot be read: {error}"))
            .hint("--system takes the text itself, or @FILE to read it from")
    })
}

/// Hyper-threads share the units that matrix products keep busy, so one thread a core.
pub fn physical_cores() -> usize {
    num_cpus::get_physical().min(num_cpus::get()).max(1)
}

/// Different each time; printed with `-v` and in JSON, so that an answer can be had again.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // A seed that people can type.
    std::hash::RandomState::new().build_hasher().finish() & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_speaks_wins() {
        let mut layers =
            SamplingLayers { typed: SamplingDefaults::default(), config: SamplingDefaults::default(), seed: 1 };
        assert!((layers.for_model(None).temperature - 0.7).abs() < 1e-6);
        layers.config.temperature = Some(0.1);
        assert!((layers.for_model(None).temperature - 0.1).abs() < 1e-6);
        let entry =
            Entry { sampling: SamplingDefaults { temperature: Some(0.2), ..Default::default() }, ..Entry::default() };
        assert!((layers.for_model(Some(&entry)).temperature - 0.2).abs() < 1e-6);
        layers.typed.temperature = Some(0.3);
        assert!((layers.for_model(Some(&entry)).temperature - 0.3).abs() < 1e-6);
    }
}
