//! `qchat config`: each setting in force, and where it came from.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::cli::{ConfigArgs, Editing, ListFormat, MOST_DRAFTED};
use crate::error::Result;
use crate::paths::{Paths, non_empty};
use crate::prefix::MAX_AGE;
use crate::settings::{CACHE_VARIABLES, Config, PARALLEL, SamplingLayers, physical_cores};
use crate::ui::output::{self, Terminal};

/// A setting: its name in config.toml, its variable, what config.toml says, what is built in.
type Row = (&'static str, &'static str, Option<String>, String);

pub(super) fn run(args: &ConfigArgs) -> Result<ExitCode> {
    let terminal = Terminal::new(&args.ui);
    let paths = Paths::from_env()?;
    let file = paths.config_file();
    let config = Config::load(&file)?;
    let mut lines = String::new();
    let mut values = Map::new();
    for (name, variable, configured, built_in) in rows(&config) {
        let from_environment = Some(variable).filter(|name| !name.is_empty()).and_then(non_empty);
        let (value, from) = match (from_environment, configured) {
            (Some(value), _) => (value, variable.to_owned()),
            (None, Some(value)) => (value, "config.toml".to_owned()),
            (None, None) => (built_in, "built in".to_owned()),
        };
        let shown: String = value.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
        lines.push_str(&row(name, &shown, &from));
        values.insert(name.to_owned(), json!({ "value": value, "from": from }));
    }
    let home = if non_empty("QCHAT_HOME").is_some() { "QCHAT_HOME" } else { "this system" };
    let there = if file.exists() { home } else { "not there yet" };
    for (name, path, from) in [
        ("config file", file.as_path(), there),
        ("models, chats", paths.data.as_path(), home),
        ("caches", paths.cache.as_path(), home),
    ] {
        lines.push_str(&row(name, &path.display().to_string(), from));
        values.insert(name.to_owned(), json!({ "value": path, "from": from }));
    }
    match args.output {
        ListFormat::Json => output::print_json(&Value::Object(values))?,
        ListFormat::Text => {
            output::print_clean(&terminal, &lines)?;
            terminal.status("A flag is above the environment; a chat's own settings and a model's entry are below it and above config.toml.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str, value: &str, from: &str) -> String {
    format!("{name:<24}{value:<28}{from}\n")
}

fn rows(config: &Config) -> Vec<Row> {
    fn say<T: ToString>(value: Option<&T>) -> Option<String> {
        value.map(ToString::to_string)
    }
    let own = &config.sampling;
    let usual = SamplingLayers::default().for_model(None);
    let editing = config.editing.map(|keys| if keys == Editing::Vi { "vi".into() } else { "emacs".into() });
    let template = (!config.template.is_empty()).then(|| json!(config.template).to_string());
    let kv = config.kv.map(|kv| kv.name().to_owned());
    vec![
        (
            "default_model",
            "QCHAT_MODEL",
            config.default_model.clone(),
            "the only one here, else the small default".into(),
        ),
        ("system", "QCHAT_SYSTEM", config.system.clone(), "none".into()),
        ("sampling.temperature", "QCHAT_TEMP", say(own.temperature.as_ref()), usual.temperature.to_string()),
        ("sampling.top_k", "QCHAT_TOP_K", say(own.top_k.as_ref()), usual.top_k.to_string()),
        ("sampling.top_p", "QCHAT_TOP_P", say(own.top_p.as_ref()), usual.top_p.to_string()),
        ("sampling.min_p", "QCHAT_MIN_P", say(own.min_p.as_ref()), usual.min_p.to_string()),
        (
            "sampling.repeat_penalty",
            "QCHAT_REPEAT_PENALTY",
            say(own.repeat_penalty.as_ref()),
            usual.repeat_penalty.to_string(),
        ),
        ("seed", "QCHAT_SEED", None, "another one each time".into()),
        ("max_tokens", "QCHAT_MAX_TOKENS", say(config.max_tokens.as_ref()), "no limit".into()),
        ("context", "QCHAT_CTX", say(config.context.as_ref()), "what the model was trained for".into()),
        ("threads", "QCHAT_THREADS", say(config.threads.as_ref()), format!("{}, or as tuned", physical_cores())),
        ("gpu_layers", "QCHAT_GPU_LAYERS", None, "all that fit".into()),
        ("draft", "QCHAT_DRAFT", config.draft.clone(), "auto".into()),
        ("draft_max", "QCHAT_DRAFT_MAX", say(config.draft_max.as_ref()), MOST_DRAFTED.to_string()),
        ("drafters", "QCHAT_DRAFTERS", None, "ngram,model".into()),
        ("repack", "QCHAT_REPACK", say(config.repack.as_ref()), "in a talk, or as tuned".into()),
        ("kv", "QCHAT_KV", kv, "f16".into()),
        ("flash_attention", "QCHAT_FLASH_ATTENTION", say(config.flash_attention.as_ref()), "true, or as tuned".into()),
        ("reasoning", "QCHAT_REASONING", None, "folded in a terminal, hidden in a pipe".into()),
        ("reasoning_budget", "QCHAT_REASONING_BUDGET", say(config.reasoning_budget.as_ref()), "no limit".into()),
        ("template", "QCHAT_TEMPLATE_VAR", template, "what the model's template decides".into()),
        ("plain", "QCHAT_PLAIN", say(config.plain.as_ref()), "false".into()),
        ("editing", "QCHAT_EDITING", editing, "emacs".into()),
        ("stop", "QCHAT_STOP", None, "none".into()),
        ("output", "QCHAT_OUTPUT", None, "text".into()),
        ("stats", "QCHAT_STATS", None, "false".into()),
        ("color", "QCHAT_COLOR", None, "auto".into()),
        ("private", "QCHAT_PRIVATE", None, "false".into()),
        ("parallel", "QCHAT_PARALLEL", None, PARALLEL.to_string()),
        ("no_cache", "QCHAT_NO_CACHE", None, "false".into()),
        ("cache.enabled", "", say(config.cache.enabled.as_ref()), "true".into()),
        ("cache.max_size", CACHE_VARIABLES[0], config.cache.max_size.clone(), "a part of what is free".into()),
        (
            "cache.max_age",
            CACHE_VARIABLES[1],
            config.cache.max_age.clone(),
            humantime::format_duration(MAX_AGE).to_string(),
        ),
    ]
}
