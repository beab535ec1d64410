//! Many answers in one load: several to one prompt, or one to each line of stdin.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Loaded, Loader, Purpose};
use super::{once, report, shape};
use crate::chat::{self, Asked, Conversation};
use crate::cli::{DrafterKind, Lines, OutputFormat, Visibility};
use crate::engine::{Grammar, Token};
use crate::error::{Error, Kind, Result};
use crate::generate::draft::{Adaptive, Costs, Ngram, Source, Speculator};
use crate::generate::{Answer, Finish, Next, Request, Requests, Share, TurnSettings, answer_many};
use crate::models::{DraftWish, Needs, Target};
use crate::settings::{Settings, Shape};
use crate::ui::input;
use crate::ui::output::{self, Reader, count, size};
use crate::ui::progress::Items;

/// Tokens of a turn where nothing was said, as far as memory allows.
const USUAL_SHARE: usize = 4096;
const LEAST_SHARE: usize = 512;
/// How often an idle wait looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Answers to one prompt, each with the next seed.
pub(super) struct Copies<'a> {
    loader: &'a Loader<'a>,
    costs: Costs,
    prompt: Vec<Token>,
    turn: TurnSettings,
    given: usize,
    answers: BTreeMap<usize, Answer>,
}

impl Copies<'_> {
    pub(super) fn answer(loader: &Loader, loaded: &Loaded, prompt: Vec<Token>, turn: TurnSettings) -> Result<ExitCode> {
        let settings = loader.settings;
        let most = loaded.speaker.session().max_context();
        if prompt.len() >= most {
            let message = format!("the prompt has {} tokens and the context holds {most}", prompt.len());
            return Err(Error::new(Kind::TooLong, message).hint("shorten it, or raise --ctx"));
        }
        let wanted = prompt.len() + turn.max_tokens.unwrap_or(USUAL_SHARE);
        let turns = settings.copies.min(settings.parallel);
        let share = Share { turns, tokens: wanted.min(most).next_multiple_of(256), threads: loaded.way.threads };
        let first_seed = turn.sampling.seed;
        let mut copies =
            Copies { loader, costs: loaded.drafting.costs(), prompt, turn, given: 0, answers: BTreeMap::new() };
        answer_many(loaded.speaker.session().model(), share, loader.interrupt, &mut copies)?;
        let answers = std::mem::take(&mut copies.answers);
        let whole = |answer: &&Answer| answer.is_complete;
        let bad = answers.values().find(|answer| !answer.is_complete).map(|answer| once::incomplete(answer, false));
        let said = match settings.output {
            OutputFormat::Text => {
                let texts = answers.values().filter(whole).map(|answer| format!("{}\n", answer.content.trim_end()));
                texts.collect::<Vec<_>>().join("---\n")
            }
            _ => answers.iter().fold(String::new(), |lines, (number, answer)| {
                let seed = first_seed.wrapping_add(*number as u64);
                let mut object = report::json(loaded, answer, seed, true, None);
                object["index"] = json!(number);
                lines + &format!("{}\n", output::json_line(&object))
            }),
        };
        output::print_clean(&loader.terminal, &said)?;
        match bad {
            _ if loader.interrupt.is_set() => Ok(ExitCode::from(Kind::Interrupted.exit_code())),
            Some(error) => Err(error),
            None => Ok(ExitCode::SUCCESS),
        }
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
        self.answers.extend(answer.ok().map(|answer| (number, answer)));
    }
}

/// Who drafts for one of many turns: n-grams, since a draft model would need a context for each.
fn speculator(settings: &Settings, costs: &Costs) -> Option<Speculator> {
    if settings.draft == DraftWish::Off || !settings.drafters.contains(&DrafterKind::Ngram) {
        return None;
    }
    let policy = Adaptive::new(vec![Source::Ngram], costs.clone(), settings.draft_max);
    Some(Speculator::new(vec![Box::new(Ngram::default())], Box::new(policy)))
}

/// One line of stdin, or why there is none.
type Line = std::io::Result<String>;

/// Lines of stdin, and what became of them.
struct Each<'a> {
    loader: &'a Loader<'a>,
    loaded: &'a Loaded,
    costs: Costs,
    /// What every answer is kept to that asks for nothing else.
    grammar: Option<Box<dyn Grammar>>,
    format: Lines,
    /// What stands before every line.
    documents: Vec<String>,
    lines: Receiver<Line>,
    read: usize,
    ended: bool,
    /// What an answer is handed back with, by the number of its line.
    ids: BTreeMap<usize, String>,
    /// The seeds of lines that bring one.
    seeds: BTreeMap<usize, u64>,
    /// Lines that are answered already.
    here: HashSet<String>,
    /// Objects that wait for those before them; none for a line that is left out.
    ready: BTreeMap<usize, Option<Value>>,
    next: usize,
    failed: usize,
    progress: Items,
    output: Result<Reader>,
}

pub(super) fn each(loader: &Loader, target: &Target, format: Lines) -> Result<ExitCode> {
    let settings = loader.settings;
    if input::stdin_is_terminal() || !settings.reads_stdin {
        return Err(
            Error::usage("--each reads lines from stdin").hint("pipe them in: `qchat run MODEL --each lines < FILE`")
        );
    }
    let documents = settings.files.iter().map(|path| input::read_file(path)).collect::<Result<Vec<_>>>()?;
    let here = settings.resume.as_deref().map(answered_in).transpose()?.unwrap_or_default();
    let loaded = loader.load(target, 0, Purpose::Many, &settings.draft)?;
    let model = loaded.speaker.session().model();
    let grammar =
        settings.shape.as_ref().map(|own| shape::grammar(own, model.as_ref(), &loader.terminal)).transpose()?;
    let mut each = Each {
        loader,
        loaded: &loaded,
        costs: loaded.drafting.costs(),
        grammar,
        format,
        documents,
        lines: stdin_lines(),
        read: 0,
        ended: false,
        ids: BTreeMap::new(),
        seeds: BTreeMap::new(),
        here,
        ready: BTreeMap::new(),
        next: 0,
        failed: 0,
        progress: Items::new(&loader.terminal),
        output: Ok(Reader::There),
    };
    each.answer()?;
    let stopped = loader.interrupt.is_set();
    // What waited for a line that will not come any more is whole all the same.
    while let Some((_, object)) = each.ready.pop_first() {
        each.print(object);
    }
    each.progress.clear();
    match each.output {
        Ok(Reader::Gone) => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error),
        Ok(Reader::There) if stopped => return Ok(ExitCode::from(Kind::Interrupted.exit_code())),
        Ok(Reader::There) => {}
    }
    if each.failed > 0 {
        let message = format!("{} of {} have an error in place of an answer", each.failed, count(each.read, "line"));
        return Err(Error::failed(message).hint("--resume OUT tries those again"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads stdin on another thread, so that answers do not wait for a slow pipe.
fn stdin_lines() -> Receiver<Line> {
    let (sender, receiver) = mpsc::sync_channel(1024);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let failed = line.is_err();
            if sender.send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// The ids, or numbers, of lines that have an answer in the output of an earlier run.
fn answered_in(path: &Path) -> Result<HashSet<String>> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        Error::usage(format!("{name} cannot be read: {error}")).hint("--resume takes what an earlier run wrote")
    };
    let mut text = Vec::new();
    std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(cannot)?;
    // A run that was killed may have left a part of a line; what comes next must not stand behind it.
    if text.last().is_some_and(|last| *last != b'\n') && output::stdout_is(path) {
        output::print("\n")?;
    }
    let objects = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(objects.filter(|object| object.get("error").is_none()).filter_map(|object| key(&object)).collect())
}

fn key(object: &Value) -> Option<String> {
    let id = object["custom_id"].as_str().map(|id| format!("id {id}"));
    id.or_else(|| Some(format!("line {}", object["index"].as_u64()?)))
}

impl Each<'_> {
    /// Answers all lines, in shares as large as memory allows.
    fn answer(&mut self) -> Result<()> {
        let (settings, session) = (self.loader.settings, self.loaded.speaker.session());
        let most = session.model().trained_context();
        let mut tokens = settings.n_ctx.unwrap_or(USUAL_SHARE).min(most);
        loop {
            let share = Share { turns: settings.parallel, tokens, threads: self.loaded.way.threads };
            let needs = Needs::of(&self.loaded.resolved).map(|needs| needs.with_kv(settings.kv.bytes()));
            let memory =
                needs.map_or_else(String::new, |needs| format!(", {} of memory", size(needs.at(share.turns * tokens))));
            self.loader
                .terminal
                .detail(&format!("{} share a context, {tokens} tokens each{memory}", count(share.turns, "turn")));
            match answer_many(session.model(), share, self.loader.interrupt, self) {
                Err(error) if self.read == 0 && settings.n_ctx.is_none() && tokens / 2 >= LEAST_SHARE => {
                    self.loader.terminal.detail(&error.to_string());
                    tokens /= 2;
                }
                done => return done,
            }
        }
    }

    /// The request of a line; none for one that is answered already.
    fn request(&mut self, number: usize, line: &str) -> Result<Option<Request>> {
        let asked = match self.format {
            Lines::Lines if line.trim().is_empty() => return Err(Error::usage("the line is empty")),
            Lines::Lines => Asked::text(line.trim_end_matches('\r')),
            Lines::Jsonl => chat::request(line).map_err(Error::usage)?,
        };
        self.ids.extend(asked.id.clone().map(|id| (number, id)));
        self.seeds.extend(asked.seed.map(|seed| (number, seed)));
        let name = asked.id.as_ref().map_or_else(|| format!("line {number}"), |id| format!("id {id}"));
        if self.here.contains(&name) {
            return Ok(None);
        }
        let (loader, speaker) = (self.loader, &self.loaded.speaker);
        let settings = loader.settings;
        let mut talk = asked.conversation;
        if asked.is_text {
            let line = talk.undo().unwrap_or_default();
            let text = match settings.prompt.as_deref() {
                Some(prompt) if prompt.contains("{}") => prompt.replace("{}", &line),
                Some(prompt) => input::join([line, prompt.to_owned()]),
                None => line,
            };
            talk = Conversation::new(talk.system);
            talk.push(chat::Message::new(chat::Role::User, input::join(self.documents.iter().cloned().chain([text]))));
        }
        talk.system = talk.system.take().or_else(|| self.loaded.system(settings));
        let (mut prompt, reasoning) = if settings.raw || speaker.template_from().is_none() {
            let text = talk.messages().last().map_or("", |message| &message.content);
            (speaker.plain_prompt(text), crate::generate::Reasoning::Off)
        } else {
            speaker.prompt(&talk)?
        };
        let model = speaker.session().model();
        let prefill = settings.prefill.clone().unwrap_or_default();
        prompt.extend(model.vocab().tokenize(&prefill));
        let grammar = match asked.schema {
            Some(schema) => Some(shape::grammar(&Shape::Schema(schema), model.as_ref(), &loader.terminal)?),
            None => self.grammar.clone(),
        };
        let mut sampling = settings.sampling.for_model(self.loaded.entry.as_ref());
        sampling.temperature = asked.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = asked.top_p.unwrap_or(sampling.top_p);
        sampling.top_k = asked.top_k.unwrap_or(sampling.top_k);
        sampling.min_p = asked.min_p.unwrap_or(sampling.min_p);
        sampling.seed = asked.seed.unwrap_or(sampling.seed);
        let turn = TurnSettings {
            sampling,
            stops: if asked.stops.is_empty() { settings.stops.clone() } else { asked.stops },
            max_tokens: asked.max_tokens.or(settings.max_tokens),
            reasoning,
            thoughts: settings.reasoning_budget.map(|tokens| speaker.thought_limit(tokens)),
            grammar,
            prefill,
            logprobs: settings.logprobs,
            boundaries: Vec::new(),
        };
        Ok(Some(Request { prompt, settings: turn, speculator: speculator(settings, &self.costs) }))
    }

    /// The next line; none where there is none now, or no more.
    fn line(&mut self, waits: bool) -> Option<Line> {
        loop {
            if self.loader.interrupt.is_set() {
                self.ended = true;
                return None;
            }
            let line = if waits {
                self.lines.recv_timeout(LOOK)
            } else {
                self.lines.try_recv().map_err(|error| match error {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
            };
            match line {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) if waits => {}
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }

    fn finish(&mut self, number: usize, object: Option<Value>) {
        self.ready.insert(number, object);
        while let Some(object) = self.ready.remove(&self.next) {
            self.next += 1;
            self.print(object);
        }
        self.progress.at(self.next + self.ready.len(), self.ended.then_some(self.read), self.failed);
    }

    fn print(&mut self, object: Option<Value>) {
        let Some(object) = object else { return };
        if matches!(self.output, Ok(Reader::There)) {
            self.output = output::print_to(&format!("{}\n", output::json_line(&object)));
        }
        if !matches!(self.output, Ok(Reader::There)) {
            // Nobody reads: nothing more is worth answering.
            self.loader.interrupt.set();
        }
    }

    fn fail(&mut self, number: usize, error: &Error, partial: Option<&str>) {
        self.failed += 1;
        let mut said = json!({ "code": error.kind().exit_code(), "message": error.to_string() });
        if let Some(partial) = partial {
            said["partial"] = json!(partial);
        }
        let object = self.named(number, json!({ "error": said }));
        self.finish(number, Some(object));
    }

    /// The object with what it belongs to in front.
    fn named(&mut self, number: usize, object: Value) -> Value {
        let mut whole = serde_json::Map::from_iter([("index".to_owned(), json!(number))]);
        if let Some(id) = self.ids.remove(&number) {
            whole.insert("custom_id".to_owned(), json!(id));
        }
        if let Value::Object(fields) = object {
            whole.extend(fields);
        }
        Value::Object(whole)
    }
}

impl Requests for Each<'_> {
    fn next(&mut self, waits: bool) -> Next {
        loop {
            let Some(line) = self.line(waits) else {
                return if self.ended { Next::End } else { Next::Later };
            };
            let number = self.read;
            self.read += 1;
            let line = line.map_err(|error| Error::usage(format!("the line is not text: {error}")));
            match line.and_then(|line| self.request(number, &line)) {
                Ok(Some(request)) => return Next::Request(number, Box::new(request)),
                Ok(None) => self.finish(number, None),
                Err(error) => self.fail(number, &error, None),
            }
        }
    }

    fn done(&mut self, number: usize, answer: Result<Answer>) {
        match answer {
            Err(error) => self.fail(number, &error, None),
            Ok(answer) if answer.finish == Finish::Interrupted => {}
            Ok(answer) if !answer.is_complete => {
                self.fail(number, &once::incomplete(&answer, false), Some(&answer.content));
            }
            Ok(answer) => {
                let thoughts = self.loader.settings.reasoning != Some(Visibility::Hide);
                let seed = self.seeds.remove(&number).unwrap_or(self.loader.settings.sampling.seed);
                let object = report::json(self.loaded, &answer, seed, thoughts, None);
                let object = self.named(number, object);
                self.finish(number, Some(object));
            }
        }
    }
}
