//! What the headers of a model's files say together.

use super::gguf::{Census, Header};
use super::inspect::AGAIN;
use super::resolve::Resolved;
use crate::error::{Error, Result};

/// A model, as its headers describe it.
#[derive(Clone, Debug)]
pub struct Facts {
    pub architecture: String,
    pub census: Census,
    /// Bytes of weights that decoding a token reads.
    pub read_per_token: u64,
    /// Tokens that it was trained for.
    pub context: Option<usize>,
    /// The kind of its chat template, in words.
    pub template: String,
    pub tokenizer: String,
}

impl Facts {
    /// Of all files; none for a script of the scripted engine.
    ///
    /// # Errors
    /// When a part of a split model is missing or damaged.
    pub fn of(model: &Resolved) -> Result<Option<Self>> {
        let Some(header) = &model.header else { return Ok(None) };
        let mut census = header.census.clone();
        for part in model.files().iter().skip(1) {
            let part_header = Header::read(part)
                .map_err(|error| Error::model(format!("{} is not usable: {error}", part.display())).hint(AGAIN))?;
            census.add(&part_header.census);
        }
        let read_per_token = census
            .read_per_token(header.own("expert_used_count").unwrap_or(0), header.own("expert_count").unwrap_or(0));
        let tokens = match header.get("tokenizer.ggml.tokens") {
            Some(super::gguf::Value::Array(array)) => format!(", {} tokens", array.count),
            _ => String::new(),
        };
        let text = |key: &str| header.text(key).unwrap_or("?").to_owned();
        Ok(Some(Self {
            architecture: header.architecture().unwrap_or("?").to_owned(),
            read_per_token,
            census,
            context: header.context(),
            template: header
                .chat_template()
                .map_or_else(|| "none".into(), |template| kind_of(template).map_or("its own", |(kind, _)| kind).into()),
            tokenizer: format!("{} ({}){tokens}", text("tokenizer.ggml.model"), text("tokenizer.ggml.pre")),
        }))
    }
}

/// The kind of a template by the tokens that it writes, and the named template of that kind where there is one.
pub(super) fn kind_of(template: &str) -> Option<(&'static str, Option<&'static str>)> {
    let kinds = [
        // Phi 4 writes ChatML's tokens too.
        ("<|im_sep|>", "Phi 4", Some("phi4")),
        ("<|im_start|>", "ChatML", Some("chatml")),
        ("<|start_header_id|>", "Llama 3", Some("llama3")),
        ("<start_of_turn>", "Gemma", Some("gemma")),
        ("[INST]", "Mistral", Some("mistral")),
        ("<|assistant|>", "Phi 3", Some("phi3")),
        ("<|channel|>", "Harmony", None),
    ];
    kinds.into_iter().find(|(mark, ..)| template.contains(mark)).map(|(_, kind, named)| (kind, named))
}
