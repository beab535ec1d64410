//! Many answers in one context: who drafts for them, what each may use of it; and several answers to one prompt.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;

use super::cache::Shelf;
use super::load::{Loaded, Loader};
use super::{once, report};
use crate::cli::{DrafterKind, OutputFormat, Visibility};
use crate::commands::free_memory;
use crate::engine::Token;
use crate::error::{Error, Kind, Result};
use crate::generate::draft::{Adaptive, Costs, Ngram, Source, Speculator};
use crate::generate::{Answer, Finish, Next, Request, Requests, Share, TurnSettings, answer_many};
use crate::models::{self, DraftWish, Needs};
use crate::settings::Settings;
use crate::ui::output::{self, count, size};

/// Tokens of a turn where nothing was said, as far as memory allows.
pub(super) const USUAL_SHARE: usize = 4096;

/// Answers to one prompt, each with the next seed.
pub(super) struct Copies<'a> {
    loader: &'a Loader<'a>,
    costs: Costs,
    prompt: Vec<Token>,
    turn: TurnSettings,
    given: usize,
    answers: BTreeMap<usize, Answer>,
    failure: Option<Error>,
}

impl Copies<'_> {
    pub(super) fn answer(
        loader: &Loader,
        loaded: &mut Loaded,
        prompt: Vec<Token>,
        turn: TurnSettings,
    ) -> Result<ExitCode> {
        let settings = loader.settings;
        let wanted = prompt.len() + turn.max_tokens.unwrap_or(USUAL_SHARE);
        let tokens = wanted.min(loaded.speaker.session().max_context());
        let share = share(loader, loaded, settings.copies.min(settings.parallel), tokens, tokens);
        let costs = loaded.drafting.costs();
        let mut copies = Copies { loader, costs, prompt, turn, given: 0, answers: BTreeMap::new(), failure: None };
        let mut shelf = Shelf::of(loader, loaded);
        let model = loaded.speaker.session().model();
        let done = answer_many(model, share, loader.interrupt, shelf.cached.as_mut(), &mut copies);
        shelf.close(loader);
        copies.show(loaded)?;
        match (done, copies.failure) {
            _ if loader.interrupt.is_set() => Ok(ExitCode::from(Kind::Interrupted.exit_code())),
            (Err(error), _) | (Ok(()), Some(error)) => Err(error),
            (Ok(()), None) => Ok(ExitCode::SUCCESS),
        }
    }

    fn show(&mut self, loaded: &Loaded) -> Result<()> {
        let Self { loader, answers, turn, .. } = self;
        let settings = loader.settings;
        let mut texts = Vec::new();
        for (number, answer) in answers {
            if settings.output != OutputFormat::Text {
                let seed = turn.sampling.seed.wrapping_add(*number as u64);
                let shows = settings.reasoning != Some(Visibility::Hide);
                let mut object = report::json(loaded, answer, seed, shows, None);
                object["index"] = json!(number);
                output::print_json(&object)?;
            }
            if settings.stats {
                loader.terminal.status(&report::line(answer, loader.began));
            }
            let asked = turn.max_tokens.is_some_and(|most| answer.tokens.len() >= most);
            if !answer.is_complete {
                self.failure = Some(once::incomplete(answer, settings.output == OutputFormat::Text));
            } else if answer.finish == Finish::Length && !asked {
                let number = *number + 1;
                loader.terminal.reply(&format!("qchat: answer {number} was cut at the end of its context (see --ctx)"));
            }
            texts.extend(answer.is_complete.then(|| format!("{}\n", answer.content.trim_end())));
        }
        let text = if settings.output == OutputFormat::Text { texts.join("---\n") } else { String::new() };
        output::print_clean(&loader.terminal, &text)
    }
}

impl Requests for Copies<'_> {
    fn next(&mut self, _: bool) -> Next {
        if self.given == self.loader.settings.copies {
            return Next::End;
        }
        let mut settings = self.turn.clone();
        settings.sampling.seed = settings.sampling.seed.wrapping_add(self.given as u64);
        self.given += 1;
        let speculator = speculator(self.loader.settings, &self.costs);
        Next::Request(self.given - 1, Box::new(Request { prompt: self.prompt.clone(), settings, speculator }))
    }

    fn done(&mut self, number: usize, answer: Result<Answer>) {
        match answer {
            Ok(answer) => self.answers.extend([(number, answer)]),
            Err(error) => self.failure = Some(error),
        }
    }
}

/// Who drafts for one of many turns: n-grams, since a draft model would need a context for each.
pub(super) fn speculator(settings: &Settings, costs: &Costs) -> Option<Speculator> {
    if settings.draft == DraftWish::Off || !settings.drafters.contains(&DrafterKind::Ngram) {
        return None;
    }
    let policy = Adaptive::new(vec![Source::Ngram], costs.clone(), settings.draft_max);
    Some(Speculator::new(vec![Box::new(Ngram::default())], Box::new(policy)))
}

/// How many of `turns` share a context, with `tokens` each: fewer tokens (not below `least`), then fewer turns, where memory
/// is short. A model whose positions differ in long contexts gets no context in which they would.
pub(super) fn share(loader: &Loader, loaded: &Loaded, turns: usize, tokens: usize, least: usize) -> Share {
    let model = loaded.speaker.session().model();
    let needs = Needs::of(&loaded.resolved).map(|needs| needs.with_kv(loader.settings.kv.bytes()));
    // Weights that were rearranged are taken already; others lie in the page cache, which counts as free.
    let taken = needs.filter(|_| loaded.way.load.repack).map_or(0, |needs| needs.weights);
    let free = free_memory();
    let fits = |turns: usize, tokens: usize| match (needs, free) {
        (Some(needs), Some(free)) => needs.at(turns * tokens) - taken + models::reserve(free) <= free,
        _ => true,
    };
    let mut share = Share { turns, tokens, threads: loaded.way.threads };
    while share.tokens / 2 >= least && !fits(share.turns, share.tokens) {
        share.tokens /= 2;
    }
    let alone = model.state_format(share.tokens);
    while share.turns > 1
        && (model.state_format(share.turns * share.tokens) != alone || !fits(share.turns, share.tokens))
    {
        share.turns -= 1;
    }
    let memory =
        needs.map_or_else(String::new, |needs| format!(", {} of memory", size(needs.at(share.turns * share.tokens))));
    let line = format!("{} share a context, {} tokens each{memory}", count(share.turns, "turn"), share.tokens);
    if share.turns < turns {
        loader.terminal.warn(&format!("{line}: for {turns} it would be too long (a smaller --ctx makes room)"));
    } else {
        loader.terminal.detail(&line);
    }
    share
}
