//! One answer, or several to one prompt, then the end.

use std::process::ExitCode;

use super::cache::When;
use super::load::{Loaded, Loader, Purpose};
use super::many::Copies;
use super::{report, shape};
use crate::chat::{Conversation, Message, Role};
use crate::cli::{OutputFormat, Visibility};
use crate::engine::Token;
use crate::error::{Error, Kind, Result};
use crate::generate::{Answer, Finish, Reasoning, TurnSettings};
use crate::models::Target;
use crate::ui::answer::{AnswerSink, Form};
use crate::ui::output;

/// What is asked.
pub(super) enum Prompt {
    Text(String),
    Talk(Conversation),
}

impl Prompt {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Talk(talk) => talk.messages().iter().map(|message| message.content.len()).sum(),
        }
    }
}

pub(super) fn run(loader: &Loader, target: &Target, prompt: Prompt) -> Result<ExitCode> {
    let settings = loader.settings;
    if settings.logprobs.is_some() && settings.output == OutputFormat::Text {
        return Err(Error::usage("--logprobs go into JSON").hint("add --output json"));
    }
    let purpose = if settings.copies > 1 { Purpose::Many } else { Purpose::Once { bytes: prompt.bytes() } };
    let mut loaded = loader.load(target, 0, purpose, &settings.draft)?;
    let (tokens, turn) = turn(loader, &loaded, prompt)?;
    if settings.print_prompt {
        return print_prompt(loader, &loaded, &tokens);
    }
    loader.terminal.detail(&format!("{} prompt tokens, seed {}", tokens.len(), turn.sampling.seed));
    if settings.copies > 1 {
        return Copies::answer(loader, &mut loaded, tokens, turn);
    }
    answer(loader, &mut loaded, tokens, turn)
}

/// The prompt's tokens, and what its answer is made with.
fn turn(loader: &Loader, loaded: &Loaded, prompt: Prompt) -> Result<(Vec<Token>, TurnSettings)> {
    let (settings, speaker) = (loader.settings, &loaded.speaker);
    let system = || loaded.system(settings).filter(|_| speaker.template_from().is_some());
    let talk = |text: String| {
        let mut talk = Conversation::new(system());
        talk.push(Message::new(Role::User, text));
        talk
    };
    let (talk, other) = match prompt {
        Prompt::Text(text) => {
            // Another question about the same document, or another one without any.
            let question = settings.prompt.as_deref();
            let document = question.and_then(|question| text.strip_suffix(question)).unwrap_or_default();
            let other = talk(format!("{document}\u{1}"));
            (talk(text), Some(other))
        }
        Prompt::Talk(mut talk) => {
            talk.system = talk.system.or_else(system);
            (talk, None)
        }
    };
    let (mut tokens, reasoning) = speaker.read(&talk)?;
    let boundaries = other.map_or_else(Vec::new, |other| speaker.boundaries(&tokens, &other));
    let model = speaker.session().model();
    let grammar =
        settings.shape.as_ref().map(|own| shape::grammar(own, model.as_ref(), &loader.terminal)).transpose()?;
    let turn = TurnSettings { boundaries, ..loaded.turn(settings, reasoning, grammar) };
    speaker.begin_answer(&mut tokens, reasoning, &turn.prefill);
    Ok((tokens, turn))
}

fn answer(loader: &Loader, loaded: &mut Loaded, tokens: Vec<Token>, turn: TurnSettings) -> Result<ExitCode> {
    let settings = loader.settings;
    let is_kept = turn.grammar.is_some();
    let seed = turn.sampling.seed;
    // JSON keeps thoughts apart, so there they do no harm.
    let form = Form {
        format: settings.output,
        reasoning: loader.visibility(),
        markdown: !settings.plain && !is_kept && turn.reasoning != Reasoning::Off,
        // A script must not take the beginning of an answer for one.
        whole: is_kept && !loader.terminal.stdout,
    };
    let shows = form.reasoning != Visibility::Hide;
    let mut sink = AnswerSink::new(&loader.terminal, form);
    let answer = loaded.speaker.answer(tokens, turn, &mut sink);
    let is_whole = answer.as_ref().is_ok_and(|answer| answer.is_complete);
    sink.finish(is_whole)?;
    let answer = answer?;
    if let Some(plan) = &answer.restored.plan {
        loader.terminal.detail(&plan.to_string());
    }
    if answer.finish == Finish::Length && answer.content.is_empty() && !answer.reasoning.is_empty() && !shows {
        let tokens = answer.tokens.len();
        loader.terminal.reply(&format!("qchat: all {tokens} tokens went into thoughts; raise --max-tokens"));
    }
    if answer.finish != Finish::ReaderGone && settings.output != OutputFormat::Text {
        let with_reasoning = shows || settings.reasoning.is_none();
        let object = report::json(loaded, &answer, seed, with_reasoning, Some(loader.began));
        output::print_json(&object)?;
    }
    if settings.stats {
        loader.terminal.status(&report::line(&answer, loader.began));
    }
    if let Some(lost) = answer.speculation.as_ref().and_then(|own| own.lost.as_ref()) {
        loader.terminal.warn(&format!("the draft model failed, the answer went on without it: {lost}"));
    }
    // A Ctrl-C that ended the answer was heard; another one ends the saving with the process.
    loader.interrupt.take();
    loader.save(loaded, &answer, When::AtOnce);
    if answer.finish != Finish::Interrupted && answer.finish != Finish::ReaderGone {
        loaded.measure(&answer);
    }
    match answer.finish {
        Finish::Interrupted => Ok(ExitCode::from(Kind::Interrupted.exit_code())),
        Finish::ReaderGone => Ok(ExitCode::SUCCESS),
        _ if !answer.is_complete => Err(incomplete(&answer, form.whole && settings.output == OutputFormat::Text)),
        Finish::Length if settings.max_tokens.is_none_or(|most| answer.tokens.len() < most) => {
            loader.terminal.reply("qchat: the answer was cut at the end of the context");
            Ok(ExitCode::SUCCESS)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What an answer that does not satisfy its grammar is.
pub(super) fn incomplete(answer: &Answer, says_it: bool) -> Error {
    let tokens = output::count(answer.tokens.len(), "token");
    let why = match answer.finish {
        Finish::Stuck => format!("no token of the model fits the grammar after {tokens}"),
        Finish::Length => format!("the answer was cut after {tokens}, before it was whole"),
        _ => format!("the answer ended after {tokens}, before it was whole"),
    };
    let hint = if answer.finish == Finish::Length {
        "raise --max-tokens, or ask for less"
    } else {
        "look at --prefill, --stop and the grammar"
    };
    let said = if says_it { format!(": {}", answer.content) } else { String::new() };
    Error::failed(format!("{why}{said}")).hint(hint)
}

/// What the model would read.
fn print_prompt(loader: &Loader, loaded: &Loaded, tokens: &[Token]) -> Result<ExitCode> {
    let vocab = loaded.speaker.session().model().vocab();
    let mut bytes = Vec::new();
    for token in tokens {
        match vocab.specials().iter().find(|special| special.token == *token) {
            Some(special) => bytes.extend(special.text.bytes()),
            None => vocab.piece(*token, &mut bytes),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let ids: Vec<i32> = tokens.iter().map(|token| token.0).collect();
    let said = match loader.settings.output {
        OutputFormat::Text => format!("{text}\n{ids:?}\n"),
        _ => output::json_line(&serde_json::json!({ "prompt": text, "tokens": ids })),
    };
    // A file, or the model's template, may bring what a terminal would obey.
    output::print_clean(&loader.terminal, &said)?;
    Ok(ExitCode::SUCCESS)
}
