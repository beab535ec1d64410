//! A model that holds a conversation: template, prompt, answer.

use std::sync::Arc;

use super::prompt::Encoder;
use super::session::{Limits, Session};
use super::stats::Answer;
use super::text::{CLOSE, Reasoning, Sink};
use super::turn::{ThoughtLimit, TurnSettings};
use crate::chat::{Conversation, THINKING, Template, named};
use crate::engine::{Model, Save, Token, Vocab};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Where the chat template came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateFrom {
    /// Named by the registry entry.
    Name,
    /// The model file's own.
    File,
    /// The file has none; ChatML's tokens are in its vocabulary.
    Fallback,
}

/// Room for an answer below which old messages are dropped.
const LEAST_ROOM: usize = 256;

/// A prompt that leaves room for an answer.
pub struct Fitted {
    pub prompt: Vec<Token>,
    pub reasoning: Reasoning,
    /// How many of the oldest messages had to go.
    pub dropped: usize,
}

/// A session with a template.
pub struct Speaker {
    session: Session,
    /// None for a base model: it only continues text.
    template: Option<(Template, TemplateFrom, String)>,
}

impl Speaker {
    /// Chooses the template: `name`, else the file's own, else ChatML where the vocabulary has it.
    ///
    /// # Errors
    /// When the template cannot be compiled.
    pub fn new(model: Arc<dyn Model>, name: Option<&str>, limits: Limits, interrupt: Interrupt) -> Result<Self> {
        let chatml = |vocab: &dyn Vocab| vocab.specials().iter().any(|special| special.text == "<|im_start|>");
        let source = match (name.and_then(named), model.chat_template()) {
            (Some(named), _) => Some((named.to_owned(), TemplateFrom::Name)),
            (None, Some(own)) => Some((own, TemplateFrom::File)),
            (None, None) if chatml(model.vocab()) => {
                Some((named("chatml").unwrap_or_default().to_owned(), TemplateFrom::Fallback))
            }
            (None, None) => None,
        };
        let template = match source {
            Some((source, from)) => {
                let vocab = model.vocab();
                let encoder = Encoder::new(vocab, Some(&source));
                let (bos, eos) = (encoder.text_of(vocab.bos()), encoder.text_of(vocab.eos()));
                Some((Template::new(&source, encoder.guarded_texts(), bos, eos)?, from, source))
            }
            None => None,
        };
        Ok(Self { session: Session::new(model, limits, interrupt), template })
    }

    /// A speaker that only continues text, whatever template its file has.
    pub fn without_template(model: Arc<dyn Model>, limits: Limits, interrupt: Interrupt) -> Self {
        Self { session: Session::new(model, limits, interrupt), template: None }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The most tokens that prompt and answer may have from now on; none is what the model was trained for.
    pub fn limit_context(&mut self, tokens: Option<usize>) {
        self.session.limit_context(tokens);
    }

    pub fn template_from(&self) -> Option<TemplateFrom> {
        self.template.as_ref().map(|(_, from, _)| *from)
    }

    /// The prompt of a conversation, and whether it ends inside thoughts.
    ///
    /// # Errors
    /// When the template refuses the conversation, or there is none.
    pub fn prompt(&self, conversation: &Conversation) -> Result<(Vec<Token>, Reasoning)> {
        let Some((template, ..)) = &self.template else {
            return Err(Error::usage("a conversation needs a chat template, and there is none")
                .hint("without one, a text is continued"));
        };
        let prompt = template.render(conversation)?;
        let opened = prompt.text.trim_end().ends_with("<think>");
        let tokens = self.encoder().encode(&prompt);
        Ok((tokens, if opened { Reasoning::Opened } else { Reasoning::Watch }))
    }

    /// Sets a variable of the template, or takes it back (null).
    ///
    /// # Errors
    /// When the variable is qchat's own.
    pub fn set_variable(&mut self, name: &str, value: serde_json::Value) -> Result<()> {
        match &mut self.template {
            Some((template, ..)) => template.set_variable(name, value),
            None => Ok(()),
        }
    }

    /// Whether the template has such a variable.
    pub fn looks_at(&self, name: &str) -> bool {
        let source = self.template.as_ref().map_or("", |(_, _, source)| source);
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut found = source.match_indices(name).map(|(at, _)| (&source[..at], &source[at + name.len()..]));
        found.any(|(before, after)| !before.ends_with(is_name) && !after.starts_with(is_name))
    }

    /// Whether the template is told to let the model think, in words.
    pub fn thinking(&self) -> &'static str {
        let told = |name| self.template.as_ref().and_then(|(template, ..)| template.variable(name)?.as_bool());
        match THINKING.into_iter().filter(|name| self.looks_at(name)).map(told).next() {
            None => "as the model does (its template has no switch)",
            Some(None) => "as the template has it",
            Some(Some(true)) => "on",
            Some(Some(false)) => "off",
        }
    }

    /// Thoughts of at most so many tokens.
    pub fn thought_limit(&self, tokens: usize) -> ThoughtLimit {
        // As the templates of Qwen3 and DeepSeek-R1 write thoughts that have ended.
        ThoughtLimit { tokens, end: self.encoder().encode_within(&format!("\n{CLOSE}\n\n")) }
    }

    /// Where `prompt` and the prompt of a conversation that begins the same way part, for models of which only whole states
    /// can be saved.
    pub fn boundaries(&self, prompt: &[Token], other: &Conversation) -> Vec<usize> {
        if self.session.model().save() != Save::Whole {
            return Vec::new();
        }
        let other = self.read(other).map(|(tokens, _)| tokens).unwrap_or_default();
        vec![prompt.iter().zip(&other).take_while(|(own, other)| own == other).count()]
    }

    /// The prompt of a talk, its oldest messages dropped where they leave no room for an answer: down to two thirds of the
    /// context at once, since everything behind the system prompt is read again then. A message that does not fit even
    /// alone costs the talk nothing: the conversation stays, and answering will say that it is too long.
    ///
    /// # Errors
    /// As [`Speaker::prompt`].
    pub fn fit(&self, conversation: &mut Conversation) -> Result<Fitted> {
        let max = self.session.max_context();
        let (mut prompt, mut reasoning) = self.prompt(conversation)?;
        let mut dropped = 0;
        if prompt.len() + LEAST_ROOM.min(max / 8) > max {
            let mut shorter = conversation.clone();
            while prompt.len() > max / 3 * 2 {
                let gone = shorter.drop_oldest();
                if gone == 0 {
                    break;
                }
                dropped += gone;
                (prompt, reasoning) = self.prompt(&shorter)?;
            }
            if prompt.len() < max {
                *conversation = shorter;
            } else {
                dropped = 0;
            }
        }
        Ok(Fitted { prompt, reasoning, dropped })
    }

    /// The prompt of plain text that is to be continued.
    pub fn plain_prompt(&self, text: &str) -> Vec<Token> {
        self.encoder().encode_plain(text)
    }

    /// The prompt of a conversation; without a template, of the text that is all of it.
    ///
    /// # Errors
    /// When there is more than a text and no template, or the template fails.
    pub fn read(&self, conversation: &Conversation) -> Result<(Vec<Token>, Reasoning)> {
        match (&self.template, conversation.messages()) {
            (None, [text]) if conversation.system.is_none() => Ok((self.plain_prompt(&text.content), Reasoning::Off)),
            _ => self.prompt(conversation),
        }
    }

    /// Puts the beginning of the answer behind a prompt. Thoughts that the template has opened end before it.
    pub fn begin_answer(&self, prompt: &mut Vec<Token>, reasoning: Reasoning, text: &str) {
        if text.is_empty() {
            return;
        }
        if reasoning == Reasoning::Opened {
            prompt.extend(self.thought_limit(0).end);
        }
        prompt.extend(self.encoder().encode_text(text));
    }

    fn encoder(&self) -> Encoder<'_> {
        let source = self.template.as_ref().map(|(_, _, source)| source.as_str());
        Encoder::new(self.session.model().vocab(), source)
    }

    /// Answers a prompt.
    ///
    /// # Errors
    /// As [`Session::answer`].
    pub fn answer(&mut self, prompt: Vec<Token>, settings: TurnSettings, sink: &mut dyn Sink) -> Result<Answer> {
        self.session.answer(prompt, settings, sink)
    }
}
