//! An answer to each line of stdin, many at once.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cache::Shelf;
use super::load::{Loaded, Loader, Purpose};
use super::many::{USUAL_SHARE, share, speculator};
use super::{once, report, shape};
use crate::chat::{self, Asked, AskedShape, Message, Role};
use crate::cli::{Lines, Visibility};
use crate::engine::Grammar;
use crate::error::{Error, Kind, Result};
use crate::generate::draft::Costs;
use crate::generate::{Answer, Cached, Finish, Next, Request, Requests, TurnSettings, answer_many};
use crate::models::Target;
use crate::settings::Shape;
use crate::ui::input;
use crate::ui::output::{self, Reader, count};
use crate::ui::progress::Items;

/// Memory that is short never makes a share smaller than this.
const LEAST_SHARE: usize = 512;
/// How often an idle wait looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// Lines that are read ahead: behind the last of them it is known how many there are.
const AHEAD: usize = 1 << 16;
/// Bytes of them, at most.
const MOST_AHEAD: usize = 64 << 20;
/// There may be more lines.
const UNKNOWN: usize = usize::MAX;

/// One line of stdin, or why there is none.
type Line = Result<String>;

/// Lines of stdin, and what became of them.
struct Each<'a> {
    loader: &'a Loader<'a>,
    loaded: &'a Loaded,
    costs: Costs,
    /// What every answer is kept to that asks for nothing else.
    grammar: Option<Grammar>,
    /// The last schema that a line brought: often the next one brings it too.
    compiled: Option<(Value, Grammar)>,
    format: Lines,
    /// What stands before every line.
    documents: Vec<String>,
    lines: Receiver<Line>,
    /// How many lines there are, once that is known, and the bytes of those that were read ahead.
    all: Arc<AtomicUsize>,
    ahead: Arc<AtomicUsize>,
    began: Instant,
    read: usize,
    ended: bool,
    /// What an answer is handed back with, by the number of its line.
    ids: BTreeMap<usize, String>,
    /// The seeds of lines that bring one.
    seeds: BTreeMap<usize, u64>,
    /// Lines that are answered already.
    here: HashSet<String>,
    /// Lines that were read, where some may be answered already.
    seen: HashSet<String>,
    /// Objects that wait for those before them; none for a line that is left out.
    ready: BTreeMap<usize, Option<Value>>,
    next: usize,
    left_out: usize,
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
    let mut loaded = loader.load(target, 0, Purpose::Many, &settings.draft)?;
    let model = loaded.speaker.session().model();
    let grammar =
        settings.shape.as_ref().map(|own| shape::grammar(own, model.as_ref(), &loader.terminal)).transpose()?;
    let mut shelf = Shelf::of(loader, &mut loaded);
    let (all, ahead) = (Arc::new(AtomicUsize::new(UNKNOWN)), Arc::new(AtomicUsize::new(0)));
    let mut each = Each {
        loader,
        loaded: &loaded,
        costs: loaded.drafting.costs(),
        grammar,
        compiled: None,
        format,
        documents,
        lines: stdin_lines(Arc::clone(&all), Arc::clone(&ahead)),
        all,
        ahead,
        began: Instant::now(),
        read: 0,
        ended: false,
        ids: BTreeMap::new(),
        seeds: BTreeMap::new(),
        here,
        seen: HashSet::new(),
        ready: BTreeMap::new(),
        next: 0,
        left_out: 0,
        failed: 0,
        progress: Items::new(&loader.terminal),
        output: Ok(Reader::There),
    };
    let done = each.answer(shelf.cached.as_mut());
    let stopped = loader.interrupt.is_set();
    // What waited for a line that will not come any more is whole all the same.
    while let Some((_, object)) = each.ready.pop_first() {
        each.print(object);
    }
    each.progress.clear();
    shelf.close(loader);
    match each.output {
        Ok(Reader::Gone) => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error),
        Ok(Reader::There) if stopped => return Ok(ExitCode::from(Kind::Interrupted.exit_code())),
        Ok(Reader::There) => done?,
    }
    if each.failed > 0 {
        let message = format!("{} of {} have an error in place of an answer", each.failed, count(each.read, "line"));
        return Err(Error::failed(message).hint("--resume OUT tries those again"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads stdin on another thread, so that answers do not wait for a slow pipe. Says at the end how many lines there were.
fn stdin_lines(all: Arc<AtomicUsize>, ahead: Arc<AtomicUsize>) -> Receiver<Line> {
    let (sender, receiver) = mpsc::sync_channel(AHEAD);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        for number in 0.. {
            let mut bytes = Vec::new();
            let line = match stdin.read_until(b'\n', &mut bytes) {
                Ok(0) => {
                    all.store(number, Ordering::Relaxed);
                    return;
                }
                Ok(_) => text(bytes, number == 0),
                Err(error) => {
                    let _ = sender.send(Err(Error::failed(format!("stdin cannot be read: {error}"))));
                    return;
                }
            };
            ahead.fetch_add(line.as_ref().map_or(0, String::len), Ordering::Relaxed);
            if sender.send(line).is_err() {
                return;
            }
            while ahead.load(Ordering::Relaxed) > MOST_AHEAD {
                std::thread::sleep(LOOK);
            }
        }
    });
    receiver
}

/// A line without its end; the first one also without a byte order mark.
fn text(mut bytes: Vec<u8>, is_first: bool) -> Line {
    bytes.truncate(bytes.strip_suffix(b"\n").unwrap_or(&bytes).len());
    bytes.truncate(bytes.strip_suffix(b"\r").unwrap_or(&bytes).len());
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::usage(format!("the line is not UTF-8: byte {at} is not part of a character"))
    })?;
    if text.contains('\0') {
        return Err(Error::usage("the line has a NUL character"));
    }
    Ok(text.strip_prefix('\u{feff}').filter(|_| is_first).map_or_else(|| text.clone(), str::to_owned))
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
    let answers = objects.filter(|object| object.get("error").is_none());
    Ok(answers.filter_map(|own| Some(key(own["custom_id"].as_str(), own["index"].as_u64()?))).collect())
}

/// What a line is known by in another run.
fn key(id: Option<&str>, number: u64) -> String {
    id.map_or_else(|| format!("line {number}"), |id| format!("id {id}"))
}

impl Each<'_> {
    /// Answers all lines, in shares as large as memory allows.
    fn answer(&mut self, mut cached: Option<&mut Cached>) -> Result<()> {
        let (settings, session) = (self.loader.settings, self.loaded.speaker.session());
        let asked = settings.n_ctx.map(|tokens| tokens.min(session.model().trained_context()));
        let mut tokens = asked.unwrap_or_else(|| USUAL_SHARE.min(session.model().trained_context()));
        loop {
            let least = asked.unwrap_or(LEAST_SHARE);
            let share = share(self.loader, self.loaded, settings.parallel, tokens, least);
            match answer_many(session.model(), share, self.loader.interrupt, cached.as_deref_mut(), self) {
                Err(error) if self.read == 0 && asked.is_none() && share.tokens / 2 >= least => {
                    self.loader.terminal.detail(&error.to_string());
                    tokens = share.tokens / 2;
                }
                done => return done,
            }
        }
    }

    /// The request of a line; none for one that is answered already.
    fn request(&mut self, number: usize, line: &str) -> Result<Option<Request>> {
        let asked = match self.format {
            Lines::Lines if line.trim().is_empty() => return Err(Error::usage("the line is empty")),
            Lines::Lines => Asked::text(line),
            Lines::Jsonl => {
                let object = chat::object(line).map_err(Error::usage)?;
                self.ids.extend(chat::id(&object).map(|id| (number, id)));
                chat::request(&object).map_err(Error::usage)?
            }
        };
        let (loader, speaker) = (self.loader, &self.loaded.speaker);
        let settings = loader.settings;
        if settings.resume.is_some() {
            let key = key(self.ids.get(&number).map(String::as_str), number as u64);
            if !self.seen.insert(key.clone()) {
                return Err(Error::usage("an earlier line has the same id, so --resume cannot tell them apart"));
            }
            if self.here.contains(&key) {
                return Ok(None);
            }
        }
        let mut talk = asked.conversation;
        if !self.documents.is_empty() || settings.prompt.is_some() {
            let line = talk.undo().unwrap_or_default();
            let text = match settings.prompt.as_deref() {
                Some(prompt) if prompt.contains("{}") => prompt.replace("{}", &line),
                Some(prompt) => input::join([line, prompt.to_owned()]),
                None => line,
            };
            talk.push(Message::new(Role::User, input::join(self.documents.iter().cloned().chain([text]))));
        }
        if speaker.template_from().is_some() {
            talk.system = talk.system.take().or_else(|| self.loaded.system(settings));
        }
        let (mut prompt, reasoning) = speaker.read(&talk)?;
        let grammar = match asked.shape {
            Some(AskedShape::Text) => None,
            Some(AskedShape::Json(schema)) => Some(self.compile(schema)?),
            None => self.grammar.clone(),
        };
        let mut turn = self.loaded.turn(settings, reasoning, grammar);
        speaker.begin_answer(&mut prompt, reasoning, &turn.prefill);
        let sampling = &mut turn.sampling;
        sampling.temperature = asked.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = asked.top_p.unwrap_or(sampling.top_p);
        sampling.top_k = asked.top_k.unwrap_or(sampling.top_k);
        sampling.min_p = asked.min_p.unwrap_or(sampling.min_p);
        sampling.repeat_penalty = asked.repeat_penalty.unwrap_or(sampling.repeat_penalty);
        sampling.seed = asked.seed.unwrap_or(sampling.seed);
        self.seeds.extend(asked.seed.map(|seed| (number, seed)));
        let settings = TurnSettings {
            stops: if asked.stops.is_empty() { turn.stops } else { asked.stops },
            max_tokens: asked.max_tokens.or(turn.max_tokens),
            logprobs: asked.logprobs.or(turn.logprobs),
            ..turn
        };
        let speculator = speculator(loader.settings, &self.costs);
        Ok(Some(Request { prompt, settings, speculator }))
    }

    /// The grammar of a schema that a line brings.
    fn compile(&mut self, schema: Value) -> Result<Grammar> {
        if let Some((_, grammar)) = self.compiled.as_ref().filter(|(own, _)| *own == schema) {
            return Ok(grammar.clone());
        }
        let model = self.loaded.speaker.session().model();
        let grammar = shape::grammar(&Shape::Schema(schema.clone()), model.as_ref(), &self.loader.terminal)?;
        self.compiled = Some((schema, grammar.clone()));
        Ok(grammar)
    }

    /// The next line; none where there is none now, or no more.
    fn line(&mut self, waits: bool) -> Option<Line> {
        let mut silent = self.read == 0;
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
                Ok(line) => {
                    self.ahead.fetch_sub(line.as_ref().map_or(0, String::len), Ordering::Relaxed);
                    return Some(line);
                }
                Err(RecvTimeoutError::Timeout) if waits => {
                    if silent && self.began.elapsed() > input::SILENCE {
                        silent = false;
                        self.loader.terminal.status("qchat: waiting for lines on stdin (Ctrl-D ends them)");
                    }
                }
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
        let all = Some(self.all.load(Ordering::Relaxed)).filter(|all| *all != UNKNOWN);
        self.progress.at(self.next + self.ready.len(), self.left_out, all, self.failed);
    }

    fn print(&mut self, object: Option<Value>) {
        let Some(object) = object else { return };
        if matches!(self.output, Ok(Reader::There)) {
            self.output = output::print_to(&output::json_line(&object));
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
            match line.and_then(|line| self.request(number, &line)) {
                Ok(Some(request)) => return Next::Request(number, Box::new(request)),
                Ok(None) => {
                    self.ids.remove(&number);
                    self.left_out += 1;
                    self.finish(number, None);
                }
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
