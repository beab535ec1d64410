//! `qchat bench`: models and settings side by side.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::cli::{BenchArgs, BenchFormat};
use crate::engine::llama::{self, LoadSettings, route_logs};
use crate::engine::{EngineError, KvType};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;
use crate::measure::machine::cores::Cores;
use crate::measure::workload::{self, Prompt};
use crate::measure::{
    Arm, Axis, Checks, Draft, Drafting, Machine, ModelReport, Plan, Report, Row, Setting, Shared, Style, Watch,
    check_text, html, likelihoods, load, of_arms, run as run_plan, tables, warm_up, with_first,
};
use crate::models::fetch::{Fetcher, Only};
use crate::models::{DraftWish, Registry, Resolver};
use crate::paths::Paths;
use crate::prefix::{Bounds, Store};
use crate::sample::Sampling;
use crate::settings::{kv_type, layout, physical_cores};
use crate::ui::output::{self, Reader, Terminal};
use crate::ui::progress::{Downloads, Waiting};

/// Kinds of prompts, and answers of each, where not given: something that repeats, something that does not, and talk.
const USUAL_KINDS: [&str; 3] = ["edit", "code", "chat"];
const USUAL_RUNS: usize = 4;
/// Tokens of a document that is cached or not, and answers about such ones.
const DOCUMENT: usize = 2000;
const DOCUMENT_TOKENS: usize = 16;
const LONG_RUNS: usize = 5;

pub(super) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let bench = Bench::new(args)?;
    let axis = args.compare.as_ref().map(|text| text.parse::<Axis>().map_err(Error::usage)).transpose()?;
    let own_prompts = args.prompts.as_ref().map(|path| workload::from_file(path)).transpose()?;
    let text = args.text.as_ref().map(std::fs::read_to_string).transpose();
    let text = text.map_err(|error| Error::usage(format!("the text for --text cannot be read: {error}")))?;
    if let Some(path) = &args.html {
        // Said now, not after ten minutes.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| cannot_write(path, &error))?;
    }
    let base = Setting {
        name: String::new(),
        drafting: Drafting::Off,
        threads: args.threads.map_or_else(physical_cores, |count| count as usize),
        layout: layout(args.kv.map(kv_type).unwrap_or_default(), args.flash_attention)?,
        repack: args.repack.unwrap_or(true),
        warm: false,
    };
    if let (Some(Axis::Kv(_)), false) = (&axis, base.layout.flash_attention) {
        return Err(Error::usage("quantised keys and values need flash attention").hint("leave --flash-attention out"));
    }
    if axis == Some(Axis::FlashAttention) && base.layout.kv != KvType::F16 {
        return Err(Error::usage("quantised keys and values need flash attention").hint("leave --kv out"));
    }

    let folder = tempfile::tempdir().map_err(Error::failed)?;
    let store = Arc::new(Store::new(folder.path().to_owned(), Bounds::default()));
    let (mut arms, models) = bench.arms(axis.as_ref(), &base, &store)?;
    let (prompts, tokens, runs) = bench.workload(axis.as_ref(), own_prompts, &arms[0])?;
    if axis == Some(Axis::Cache) && prompts.iter().all(|prompt| prompt.document.is_empty()) {
        return Err(Error::usage("documents are what is cached, and these prompts have none")
            .hint("give --prompts some with \"document\", or leave --prompts and --kinds out"));
    }
    let plan = Plan {
        prompts,
        runs: args.runs.map_or(runs, |runs| runs as usize),
        tokens,
        sampling: Sampling { temperature: args.temp, ..Sampling::greedy() },
    };
    let compares_models = args.models.len() > 1;
    let compares_answers = !args.no_quality && (compares_models || axis.as_ref().is_some_and(Axis::changes_answers));
    let checks = compares_answers.then(|| Checks::new(args.full));
    if let (Some(_), Some(text)) = (&checks, &text) {
        check_text(&arms, text)?;
    }
    for arm in &mut arms {
        let mut longest = arm.longest(&plan.prompts)? + plan.tokens;
        if let Some(checks) = &checks {
            longest = longest.max(arm.longest(checks.prompts())? + 600);
        }
        arm.hold(longest)?;
    }

    let mut report = Report {
        made: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        engine: llama::build().into(),
        machine: machine(base.threads),
        axis: axis.as_ref().map(Axis::name).or(compares_models.then_some("model")).map(str::to_owned),
        runs: plan.runs,
        tokens: plan.tokens,
        models,
        arms: Vec::new(),
        rows: Vec::new(),
        stopped: false,
    };
    bench.measure(&mut report, &mut arms, &plan, &store, checks.as_ref(), text.as_deref())?;
    bench.say(&report)?;
    let interrupted = bench.interrupt.is_set();
    Ok(if interrupted { ExitCode::from(Kind::Interrupted.exit_code()) } else { ExitCode::SUCCESS })
}

struct Bench<'a> {
    args: &'a BenchArgs,
    terminal: Terminal,
    interrupt: Interrupt,
    paths: Paths,
    registry: Registry,
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs) -> Result<Self> {
        let terminal = Terminal::new(&args.ui);
        let interrupt = Interrupt::on_ctrl_c()?;
        route_logs(super::run::log_target(&args.ui)?);
        let paths = Paths::from_env()?;
        let registry = Registry::load(&paths.user_registry())?;
        Ok(Self { args, terminal, interrupt, paths, registry })
    }

    /// Loads every model that is compared, and makes an arm of each with each setting.
    fn arms(&self, axis: Option<&Axis>, base: &Setting, store: &Arc<Store>) -> Result<(Vec<Arm>, Vec<ModelReport>)> {
        let (mut arms, mut reports) = (Vec::new(), Vec::new());
        for name in &self.args.models {
            let mut loaded: Vec<(bool, Shared)> = Vec::new();
            let (first, report) = self.shared(name, base.repack, axis)?;
            let has_draft = first.draft.is_some();
            loaded.push((base.repack, first));
            reports.push(report);
            let settings = match axis {
                Some(axis) => axis.settings(base, has_draft, num_cpus::get(), self.args.full),
                None => vec![Setting { name: loaded[0].1.name.clone(), ..base.clone() }],
            };
            for mut setting in settings {
                if setting.drafting.wants_model() && !has_draft {
                    return Err(Error::usage(format!("{name} has no draft model here for {}", setting.name))
                        .hint("name one with --draft, or `qchat pull` its draft"));
                }
                if self.args.models.len() > 1 && axis.is_some() {
                    setting.name = format!("{} {}", loaded[0].1.name, setting.name);
                }
                if arms.iter().any(|arm: &Arm| arm.setting.name == setting.name) {
                    setting.name = format!("{} ({})", setting.name, arms.len() + 1);
                }
                if !loaded.iter().any(|(repack, _)| *repack == setting.repack) {
                    loaded.push((setting.repack, self.shared(name, setting.repack, axis)?.0));
                }
                let shared = loaded.iter().find(|(repack, _)| *repack == setting.repack).map(|(_, shared)| shared);
                if let Some(shared) = shared {
                    arms.push(Arm::new(shared, setting, store, &self.interrupt)?);
                }
            }
        }
        Ok((arms, reports))
    }

    /// A model in memory, with its draft where drafts are compared.
    fn shared(&self, name: &str, repack: bool, axis: Option<&Axis>) -> Result<(Shared, ModelReport)> {
        let resolver = Resolver { registry: &self.registry, paths: &self.paths };
        let mut progress = Downloads::new(self.terminal);
        let mut fetcher = Fetcher { progress: &mut progress, interrupt: &self.interrupt, only: Only::Any };
        let model = resolver.resolve(&resolver.target(name)?, &mut fetcher)?;
        let settings = LoadSettings { gpu_layers: self.args.gpu_layers, repack };
        let waiting = Waiting::new(&self.terminal, &format!("loading {}", model.name));
        let open = |file: &std::path::Path| {
            let loaded = load(file, &settings, &mut |done| {
                waiting.at(done);
                !self.interrupt.is_set()
            });
            loaded.map_err(|error| match error {
                EngineError::Aborted => Error::interrupted(),
                error => Error::model(format!("{} cannot be loaded: {error}", file.display())),
            })
        };
        let loaded = open(&model.file)?;
        let own_template = loaded.model.chat_template().is_some();
        let template = model.entry.as_ref().and_then(|entry| {
            entry.template.clone().or_else(|| entry.fallback_template.clone().filter(|_| !own_template))
        });
        let wish = DraftWish::from_word(&self.args.draft);
        let draft = match axis {
            Some(Axis::Draft(_)) => resolver.draft_for(&model, &wish)?,
            _ => None,
        };
        let draft = draft.map(|draft| -> Result<Draft> {
            let own = open(&draft.file)?;
            let size = draft.bytes as f64 / (model.bytes as f64).max(1.0);
            Ok(Draft { name: draft.name, model: own.model, size, memory: own.memory })
        });
        let draft = draft.transpose()?;
        let system = model.entry.as_ref().and_then(|entry| entry.system.clone());
        let report = ModelReport {
            name: model.name.clone(),
            quantisation: model.quant.clone(),
            bytes: model.bytes,
            load_ms: loaded.load_ms,
            draft: draft.as_ref().map(|draft| draft.name.clone()),
        };
        let memory = loaded.memory;
        Ok((Shared { name: model.name, model: loaded.model, template, system, memory, draft }, report))
    }

    /// The prompts, the most tokens of an answer, and how often each kind is answered.
    fn workload(
        &self,
        axis: Option<&Axis>,
        own: Option<Vec<Prompt>>,
        arm: &Arm,
    ) -> Result<(Vec<Prompt>, usize, usize)> {
        let args = self.args;
        let tokens = args.tokens as usize;
        if let Some(mut own) = own {
            own.iter_mut().for_each(|prompt| prompt.max_tokens = prompt.max_tokens.or(Some(tokens)));
            let most = own.iter().filter_map(|prompt| prompt.max_tokens).max().unwrap_or(tokens);
            // Each of them once.
            let of_kind = |kind: &str| own.iter().filter(|prompt| prompt.kind == kind).count();
            let runs = own.iter().map(|prompt| of_kind(&prompt.kind)).max().unwrap_or(1);
            return Ok((own, most, runs));
        }
        let mut grid = args.grid.clone();
        grid.extend(args.depth.iter().map(|depth| (*depth as usize, tokens)));
        if grid.is_empty() && args.kinds.is_empty() && axis == Some(&Axis::Cache) {
            grid.push((DOCUMENT, DOCUMENT_TOKENS));
        }
        if !grid.is_empty() {
            let runs = args.runs.map_or(LONG_RUNS, |runs| runs as usize);
            let mut prompts = Vec::new();
            for (read, answer) in &grid {
                let kind = format!("{read}x{answer}");
                for number in 0..runs.min(8) {
                    prompts.push(Prompt { max_tokens: Some(*answer), ..of_length(arm, *read, number, &kind)? });
                }
            }
            return Ok((prompts, grid.iter().map(|(_, answer)| *answer).max().unwrap_or(tokens), runs));
        }
        let mut prompts = workload::kinds();
        let known: Vec<String> = prompts.iter().map(|prompt| prompt.kind.clone()).collect();
        if let Some(unknown) = args.kinds.iter().find(|kind| !known.contains(kind)) {
            let mut known = known;
            known.dedup();
            return Err(Error::usage(format!("there are no prompts of kind '{unknown}'"))
                .hint(format!("there are {}", known.join(", "))));
        }
        if !args.kinds.is_empty() {
            prompts.retain(|prompt| args.kinds.contains(&prompt.kind));
        } else if !args.full {
            prompts.retain(|prompt| USUAL_KINDS.contains(&prompt.kind.as_str()));
        }
        Ok((prompts, tokens, USUAL_RUNS))
    }

    fn measure(
        &self,
        report: &mut Report,
        arms: &mut [Arm],
        plan: &Plan,
        store: &Store,
        checks: Option<&Checks>,
        text: Option<&str>,
    ) -> Result<()> {
        let mut watch = Progress { bench: self, waiting: None };
        let Some(rates) = warm_up(arms, &self.interrupt)? else {
            report.stopped = true;
            return Ok(());
        };
        let expected = plan.expected(&rates) + checks.map_or(Duration::ZERO, |checks| checks.expected(&rates));
        self.terminal.status(&format!(
            "{} of {}{}, about {}",
            output::count(plan.answers(arms.len()), "answer"),
            output::count(arms.len(), "setting"),
            checks
                .map_or_else(String::new, |checks| format!(", and {} checked answers of each", checks.prompts().len())),
            rough(expected),
        ));
        if self.args.output == BenchFormat::Jsonl {
            let head =
                json!({ "report": "head", "axis": report.axis, "machine": report.machine, "models": report.models });
            output::print(&format!("{}\n", output::json_line(&head)))?;
        }
        report.rows = run_plan(arms, plan, store, &self.interrupt, &mut watch)?;
        drop(watch);
        report.arms = of_arms(arms, &report.rows);
        report.stopped = report.rows.len() < plan.answers(arms.len());
        if !report.stopped {
            let compared = self.compare_answers(report, arms, plan, checks, text);
            report.stopped = self.interrupt.is_set();
            // What Ctrl-C ends may call that a failure; the rows are good all the same.
            if !report.stopped {
                compared?;
            }
        }
        Ok(())
    }

    /// What is to be known of answers beside how fast they came.
    fn compare_answers(
        &self,
        report: &mut Report,
        arms: &mut [Arm],
        plan: &Plan,
        checks: Option<&Checks>,
        text: Option<&str>,
    ) -> Result<()> {
        if self.args.models.len() == 1 {
            let message = |id: &str| plan.prompts.iter().find(|prompt| prompt.id == id).map(Prompt::message);
            for at in 1..arms.len() {
                let waiting = Waiting::new(&self.terminal, "comparing answers");
                waiting.at(at as f32 / arms.len() as f32);
                report.arms[at].agreement = Some(with_first(arms, at, &report.rows, message, &self.interrupt)?);
            }
        }
        if let Some(checks) = checks {
            let waiting = Waiting::new(&self.terminal, "checking answers");
            let all = (checks.prompts().len() * arms.len()) as f32;
            let mut done = 0.0;
            for (arm, own) in arms.iter_mut().zip(&mut report.arms) {
                own.quality = checks.ask(arm, &self.interrupt, || {
                    done += 1.0;
                    waiting.at(done / all);
                })?;
            }
            if let Some(all) = likelihoods(arms, text.unwrap_or(workload::SAMPLE), &self.interrupt)? {
                report.arms.iter_mut().zip(all).for_each(|(arm, own)| arm.likelihood = Some(own));
            }
        }
        Ok(())
    }

    fn say(&self, report: &Report) -> Result<()> {
        if let Some(path) = &self.args.html {
            std::fs::write(path, html::page(report)).map_err(|error| cannot_write(path, &error))?;
        }
        match self.args.output {
            BenchFormat::Text => output::print_clean(&self.terminal, &tables(report, Style::Text))?,
            BenchFormat::Markdown => output::print_clean(&self.terminal, &tables(report, Style::Markdown))?,
            BenchFormat::Json => output::print(&format!("{}\n", output::json_line(&json!(report))))?,
            BenchFormat::Jsonl => {
                let mut object = json!(report);
                object["rows"] = json!([]);
                object["report"] = json!("summary");
                output::print(&format!("{}\n", output::json_line(&object)))?;
            }
        }
        Ok(())
    }
}

/// A prompt with a document, of about so many tokens in all.
fn of_length(arm: &Arm, tokens: usize, number: usize, kind: &str) -> Result<Prompt> {
    const SAMPLE: usize = 400;
    let prompt = |words: usize| workload::long(words, number, kind.to_owned());
    let length = |words: usize| arm.longest(&[prompt(words)]);
    let (least, sample) = (length(1)?, length(SAMPLE)?);
    if least > tokens {
        return Err(Error::usage(format!("{kind}: with {} a prompt has at least {least} tokens", arm.model.name))
            .hint("ask for longer ones"));
    }
    let a_word = (sample - least) as f64 / (SAMPLE - 1) as f64;
    let mut words = 1.0;
    // The second time from near it: words are not all as long.
    for _ in 0..2 {
        words += (tokens as f64 - length(words as usize)? as f64) / a_word;
        words = words.round().max(1.0);
    }
    Ok(prompt(words as usize))
}

/// A time for people.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        0..90 => format!("{} s", time.as_secs().max(1)),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

fn cannot_write(path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::usage(format!("{} cannot be written: {error}", path.display()))
}

fn machine(threads: usize) -> Machine {
    let cores = Cores::here();
    Machine {
        cpu: cores.model.unwrap_or_default(),
        physical_cores: cores.physical,
        threads,
        memory_bytes: cores.memory,
        build: llama::machine(),
    }
}

/// Rows as they come, and a line with what is left.
struct Progress<'a> {
    bench: &'a Bench<'a>,
    waiting: Option<Waiting>,
}

impl Watch for Progress<'_> {
    fn row(&mut self, row: &Row, done: usize, of: usize, left: Duration) -> ControlFlow<()> {
        let terminal = &self.bench.terminal;
        let left = if done < of { format!(", {} left", rough(left)) } else { String::new() };
        let message = format!("{done} of {of}{left}");
        if terminal.draws_progress() {
            let waiting = self.waiting.get_or_insert_with(|| Waiting::new(terminal, "measuring"));
            waiting.say(&message);
            waiting.at(done as f32 / of as f32);
        } else if done.is_multiple_of(10) || done == of {
            terminal.status(&message);
        }
        if self.bench.args.output == BenchFormat::Jsonl {
            // Nobody waits for the rest; what else went wrong is said when the report cannot be written either.
            let printed = output::print_to(&format!("{}\n", output::json_line(&json!(row))));
            if !matches!(printed, Ok(Reader::There)) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}
