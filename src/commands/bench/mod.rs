//! `qchat bench`: models and settings side by side.

mod arms;
mod asked;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::cli::{BenchArgs, BenchFormat};
use crate::engine::KvType;
use crate::engine::llama::{self, route_logs};
use crate::error::{Error, Kind, Result};
use crate::interrupt::Interrupt;
use crate::measure::machine::cores::Cores;
use crate::measure::workload::{self, Prompt};
use crate::measure::{
    Arm, Axis, Checks, Drafting, Machine, Plan, Report, Row, Setting, Style, check_text, html, likelihoods, of_arms,
    run as run_plan, tables, warm_up, with_first,
};
use crate::models::Resolver;
use crate::paths::Paths;
use crate::prefix::{Bounds, Store};
use crate::sample::Sampling;
use crate::settings::{layout, physical_cores};
use crate::ui::output::{self, Reader, Terminal};
use crate::ui::progress::Waiting;

pub(super) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let bench = Bench::new(args)?;
    let axis = |text: &String| {
        text.parse::<Axis>().map_err(|what| Error::usage(what).hint("`qchat bench --help` says what --compare takes"))
    };
    let axis = args.compare.as_ref().map(axis).transpose()?;
    let own_prompts = args.prompts.as_ref().map(|path| workload::from_file(path)).transpose()?;
    let read = |path: &PathBuf| {
        let unreadable = |error| {
            Error::usage(format!("{} cannot be read: {error}", path.display())).hint("--text takes a text file")
        };
        std::fs::read_to_string(path).map_err(unreadable)
    };
    let text = args.text.as_ref().map(read).transpose()?;
    if let Some(path) = &args.html {
        // Said now, not after ten minutes.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| cannot_write(path, &error))?;
    }
    let base = Setting {
        name: String::new(),
        drafting: Drafting::Off,
        threads: args.threads.map_or_else(physical_cores, |count| count as usize),
        layout: layout(args.kv.unwrap_or_default(), args.flash_attention)?,
        repack: args.repack.unwrap_or(true),
        warm: false,
    };
    if let (Some(Axis::Kv(_)), false) = (&axis, base.layout.flash_attention) {
        return Err(Error::usage("quantised keys and values need flash attention").hint("leave --flash-attention out"));
    }
    if axis == Some(Axis::FlashAttention) && base.layout.kv != KvType::F16 {
        return Err(Error::usage("quantised keys and values need flash attention").hint("leave --kv out"));
    }

    let folder = tempfile::tempdir().map_err(|error| Error::failed(error).hint("TMPDIR names another folder"))?;
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
    let own_checks = Checks::of(&plan.prompts).filter(|_| !args.no_quality);
    let checks = own_checks.or_else(|| compares_answers.then(|| Checks::usual(args.full)));
    let text = text.or_else(|| compares_answers.then(|| workload::SAMPLE.to_owned()));
    if let Some(text) = &text {
        check_text(&arms, text)?;
    }
    for arm in &mut arms {
        let mut longest = arm.longest(&plan.prompts)? + plan.tokens;
        if let Some(checks) = &checks {
            longest = longest.max(arm.longest(checks.prompts())? + checks.tokens());
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
    resolver: Resolver,
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs) -> Result<Self> {
        let terminal = Terminal::new(&args.ui);
        let interrupt = Interrupt::on_ctrl_c()?;
        route_logs(super::run::log_target(&args.ui)?);
        Ok(Self { args, terminal, interrupt, resolver: Resolver::new(Paths::from_env()?)? })
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
            output::print_json(&head)?;
        }
        let mut waiting = None;
        report.rows = run_plan(arms, plan, store, &self.interrupt, &mut |row, done, of, left| {
            self.measured(&mut waiting, row, (done, of), left)
        })?;
        drop(waiting);
        report.arms = of_arms(arms, &report.rows);
        report.stopped = report.rows.len() < plan.answers(arms.len());
        if !report.stopped {
            let compared = self.compare_answers(report, arms, plan, checks, text);
            report.stopped = self.interrupt.is_set();
            // What Ctrl-C ends may call that a failure; the rows are good all the same.
            if let (Err(error), false) = (compared, report.stopped) {
                self.terminal.warn(&format!("answers could not be compared: {error}"));
            }
        }
        Ok(())
    }

    /// Rows as they come, and a line with what is left.
    fn measured(
        &self,
        waiting: &mut Option<Waiting>,
        row: &Row,
        (done, of): (usize, usize),
        left: Duration,
    ) -> ControlFlow<()> {
        let left = if done < of { format!(", {} left", rough(left)) } else { String::new() };
        let message = format!("{done} of {of}{left}");
        if self.terminal.draws_progress() {
            let waiting = waiting.get_or_insert_with(|| Waiting::new(&self.terminal, "measuring"));
            waiting.say(&message);
            waiting.at(done as f32 / of as f32);
        } else if done.is_multiple_of(10) || done == of {
            self.terminal.status(&message);
        }
        if self.args.output == BenchFormat::Jsonl {
            // Nobody waits for the rest; what else went wrong is said when the report cannot be written either.
            let printed = output::print_to(&output::json_line(&json!(row)));
            if !matches!(printed, Ok(Reader::There)) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
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
        }
        if let Some(text) = text
            && let Some(all) = likelihoods(arms, text, &self.interrupt)?
        {
            report.arms.iter_mut().zip(all).for_each(|(arm, own)| arm.likelihood = Some(own));
        }
        Ok(())
    }

    fn say(&self, report: &Report) -> Result<()> {
        if let Some(path) = &self.args.html {
            std::fs::write(path, html::page(report)).map_err(|error| cannot_write(path, &error))?;
        }
        match self.args.output {
            BenchFormat::Text => output::print_clean(&self.terminal, &tables(report, Style::Text)),
            BenchFormat::Markdown => output::print_clean(&self.terminal, &tables(report, Style::Markdown)),
            BenchFormat::Json => output::print_json(&json!(report)),
            BenchFormat::Jsonl => {
                let mut object = json!(report);
                object["rows"] = json!([]);
                object["report"] = json!("summary");
                output::print_json(&object)
            }
        }
    }
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
        .hint("--html takes a file in a folder that is there")
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
