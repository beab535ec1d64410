//! One answer, then the end.

use std::process::ExitCode;

use super::cache::When;
use super::load::{Loader, Purpose};
use super::report;
use crate::chat::{Conversation, Message, Role};
use crate::cli::{OutputFormat, Visibility};
use crate::error::{Kind, Result};
use crate::generate::{Finish, Reasoning, TurnSettings};
use crate::models::Target;
use crate::ui::answer::{AnswerSink, Form};
use crate::ui::output;

pub(super) fn run(loader: &Loader, target: &Target, prompt: String) -> Result<ExitCode> {
    let settings = loader.settings;
    let mut loaded = loader.load(target, 0, Purpose::Once { bytes: prompt.len() }, &settings.draft)?;
    let base_model = loaded.speaker.template_from().is_none();
    let (tokens, reasoning, boundaries) = if settings.raw || base_model {
        (loaded.speaker.plain_prompt(&prompt), Reasoning::Off, Vec::new())
    } else {
        let talk = |said: String| {
            let mut talk = Conversation::new(loaded.system(settings));
            talk.push(Message::new(Role::User, said));
            talk
        };
        // Another question about the same document, or another one without any.
        let document =
            settings.prompt.as_deref().and_then(|question| prompt.strip_suffix(question)).unwrap_or_default();
        let other = talk(format!("{document}\u{1}"));
        let (tokens, reasoning) = loaded.speaker.prompt(&talk(prompt))?;
        let boundaries = loaded.speaker.boundaries(&tokens, || other);
        (tokens, reasoning, boundaries)
    };
    let sampling = settings.sampling.for_model(loaded.entry.as_ref());
    loader.terminal.detail(&format!("{} prompt tokens, seed {}", tokens.len(), sampling.seed));

    // JSON keeps thoughts apart, so there they do no harm.
    let form = Form {
        format: settings.output,
        reasoning: loader.visibility(),
        markdown: !settings.plain && reasoning != Reasoning::Off,
    };
    let shows = form.reasoning != Visibility::Hide;
    let mut sink = AnswerSink::new(&loader.terminal, form);
    let turn = TurnSettings {
        sampling: sampling.clone(),
        stops: settings.stops.clone(),
        max_tokens: settings.max_tokens,
        reasoning,
        thoughts: settings.reasoning_budget.map(|tokens| loaded.speaker.thought_limit(tokens)),
        boundaries,
        grammar: None,
    };
    let answer = loaded.speaker.answer(tokens, turn, &mut sink);
    sink.finish()?;
    let answer = answer?;
    if let Some(plan) = &answer.restored.plan {
        loader.terminal.detail(&plan.to_string());
    }
    if answer.finish == Finish::Length && answer.content.is_empty() && !answer.reasoning.is_empty() && !shows {
        loader
            .terminal
            .reply(&format!("qchat: all {} tokens went into thoughts; raise --max-tokens", answer.tokens.len()));
    }
    if answer.finish != Finish::ReaderGone && settings.output != OutputFormat::Text {
        let with_reasoning = shows || settings.reasoning.is_none();
        let object = report::json(&loaded, &answer, sampling.seed, with_reasoning, loader.began);
        output::print(&format!("{}\n", output::json_line(&object)))?;
    }
    if settings.stats {
        loader.terminal.status(&report::line(&answer, loader.began));
    }
    if let Some(lost) = answer.speculation.as_ref().and_then(|own| own.lost.as_ref()) {
        loader.terminal.warn(&format!("the draft model failed, the answer went on without it: {lost}"));
    }
    // A Ctrl-C that ended the answer was heard; another one ends the saving with the process.
    loader.interrupt.take();
    loader.save(&mut loaded, &answer, When::AtOnce);
    if answer.finish != Finish::Interrupted && answer.finish != Finish::ReaderGone {
        loaded.measure(&answer);
    }
    match answer.finish {
        Finish::Interrupted => Ok(ExitCode::from(Kind::Interrupted.exit_code())),
        Finish::Length if settings.max_tokens.is_none_or(|most| answer.tokens.len() < most) => {
            loader.terminal.reply("qchat: the answer was cut at the end of the context");
            Ok(ExitCode::SUCCESS)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
