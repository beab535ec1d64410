//! A report as tables, for a terminal or as Markdown.

use std::fmt::Write as _;

use super::report::{ArmReport, RatioReport, Report};
use super::stats::{High, Summary};
use crate::words::{count, size};

/// How tables look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Text,
    Markdown,
}

struct Table {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The whole report but for its rows.
pub fn tables(report: &Report, style: Style) -> String {
    let mut text = head(report);
    let tables = [speed(report), beside(report), by_kind(report), drafts(report), quality(report), likelihood(report)];
    for table in tables.into_iter().flatten() {
        text.push('\n');
        table.write(style, &mut text);
    }
    for line in notes(report) {
        let _ = write!(text, "\n{line}\n");
    }
    text
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = String::new();
    for model in &report.models {
        let quant = model.quantisation.as_ref().map_or_else(String::new, |quant| format!("{quant}, "));
        let _ = writeln!(text, "{}: {quant}{}, loaded in {:.0} ms", model.name, size(model.bytes), model.load_ms);
    }
    let memory = machine.memory_bytes.map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
    let cpu = if machine.cpu.is_empty() { "unknown CPU" } else { &machine.cpu };
    let (cores, threads) = (count(machine.physical_cores, "core"), count(machine.threads, "thread"));
    let _ = writeln!(text, "{cpu}, {cores}{memory}; {threads}; qchat {}, {}", report.version, report.engine);
    if report.stopped {
        let _ = writeln!(text, "Stopped early: only what was measured until then.");
    }
    text
}

/// p50, and p95 or the maximum.
fn both(summary: Option<&Summary>, digits: usize) -> [String; 2] {
    summary.map_or([String::from("-"), String::from("-")], |own| {
        let high = match own.high {
            High::P95(value) => format!("{value:.digits$}"),
            High::Max(value) => format!("{value:.digits$} max"),
        };
        [format!("{:.digits$}", own.p50), high]
    })
}

fn speed(report: &Report) -> Option<Table> {
    let energy = report.arms.iter().any(|arm| arm.joules.is_some());
    let mut header: Vec<String> =
        ["", "TTFT ms", "p95", "ITL ms", "p95", "prefill t/s", "p95", "decode t/s", "p95", "GB"]
            .map(String::from)
            .into();
    if energy {
        header.extend(["J a token", "p95"].map(String::from));
    }
    let row = |arm: &ArmReport| {
        let mut row = vec![arm.name.clone()];
        row.extend(both(arm.ttft_ms.as_ref(), 0));
        row.extend(both(arm.itl_ms.as_ref(), 1));
        row.extend(both(arm.prefill.as_ref(), 1));
        row.extend(both(arm.decode.as_ref(), 2));
        row.push(arm.memory_bytes.map_or("-".into(), |bytes| format!("{:.2}", bytes as f64 / 1e9)));
        if energy {
            row.extend(both(arm.joules.as_ref(), 2));
        }
        row
    };
    let rows: Vec<_> = report.arms.iter().map(row).collect();
    let answers = report.rows.iter().filter(|row| report.arms.first().is_some_and(|arm| arm.name == row.arm)).count();
    let title = format!("Medians of {answers} answers of at most {} tokens each", report.tokens);
    (!report.rows.is_empty()).then_some(Table { title, header, rows })
}

fn beside(report: &Report) -> Option<Table> {
    let first = report.arms.first()?;
    let header = ["", "", "ratio", "95 % interval", ""].map(String::from).into();
    let row = |arm: &ArmReport, own: &RatioReport| {
        let interval = own.ratio.low.zip(own.ratio.high);
        let interval = interval.map_or("-".into(), |(low, high)| format!("{low:.3} to {high:.3}"));
        vec![arm.name.clone(), own.figure.to_owned(), format!("{:.3}", own.ratio.ratio), interval, own.says.to_owned()]
    };
    let rows: Vec<_> = report.arms.iter().flat_map(|arm| arm.ratios.iter().map(move |own| row(arm, own))).collect();
    let how = if first.by_kind.len() > 1 {
        "geometric means over the kinds of the medians of pairs"
    } else {
        "medians of pairs"
    };
    let title = format!("Beside {}: {how}", first.name);
    (!rows.is_empty()).then_some(Table { title, header, rows })
}

fn by_kind(report: &Report) -> Option<Table> {
    let kinds: Vec<&str> = report.arms.first()?.by_kind.iter().map(|kind| kind.kind.as_str()).collect();
    if kinds.len() < 2 {
        return None;
    }
    let header = std::iter::once(String::new()).chain(kinds.iter().map(|kind| (*kind).to_owned())).collect();
    let row = |arm: &ArmReport| {
        let cell = |kind: &super::report::KindReport| {
            let ratio = kind.ratio.as_ref().map_or_else(String::new, |ratio| format!(" ({:.2})", ratio.ratio));
            kind.decode.as_ref().map_or("-".into(), |decode| format!("{:.2}{ratio}", decode.p50))
        };
        std::iter::once(arm.name.clone()).chain(arm.by_kind.iter().map(cell)).collect()
    };
    let title = String::from("Decode t/s by kind of prompt (and beside the first)");
    Some(Table { title, header, rows: report.arms.iter().map(row).collect() })
}

fn drafts(report: &Report) -> Option<Table> {
    let header = [
        "",
        "accepted",
        "tokens a round",
        "by position",
        "rounds by length",
        "drafting ms",
        "judging ms",
        "choosing ms",
    ]
    .map(String::from)
    .into();
    let row = |arm: &ArmReport| {
        let own = arm.speculation.as_ref();
        let places = |own: &[(usize, usize)]| {
            let shares = own.iter().take(8).map(|(all, right)| format!("{:.2}", *right as f64 / (*all).max(1) as f64));
            shares.collect::<Vec<_>>().join(" ")
        };
        let lengths = |own: &[usize]| {
            let used = own.iter().enumerate().filter(|(_, count)| **count > 0);
            used.map(|(length, count)| format!("{count}x{length}")).collect::<Vec<_>>().join(" ")
        };
        let none = || String::from("-");
        vec![
            arm.name.clone(),
            own.filter(|own| own.proposed > 0)
                .map_or_else(none, |own| format!("{:.2}", own.accepted as f64 / own.proposed as f64)),
            own.and_then(|own| own.mean_accepted_length).map_or_else(none, |length| format!("{length:.2}")),
            own.map_or_else(none, |own| places(&own.by_position)),
            own.map_or_else(none, |own| lengths(&own.lengths)),
            own.map_or_else(none, |own| format!("{:.0}", own.draft_ms)),
            own.map_or_else(none, |own| format!("{:.0}", own.verify_ms)),
            own.map_or_else(none, |own| format!("{:.1}", own.policy_ms)),
        ]
    };
    let rows: Vec<_> = report.arms.iter().filter(|arm| arm.speculation.is_some()).map(row).collect();
    (!rows.is_empty()).then(|| Table { title: "Drafts".into(), header, rows })
}

fn quality(report: &Report) -> Option<Table> {
    let header = ["", "answers checked", "with findings", "what"].map(String::from).into();
    let row = |arm: &ArmReport| {
        let own = arm.quality.as_ref()?;
        let what = own.findings.iter().map(|own| format!("{}: {}", own.prompt, own.finding.says)).take(6);
        let more = own.findings.len().saturating_sub(6);
        let more = (more > 0).then(|| format!("and {more} more"));
        let what = what.chain(more).collect::<Vec<_>>().join("; ");
        Some(vec![arm.name.clone(), own.prompts.to_string(), own.with_findings.to_string(), what])
    };
    let rows: Vec<_> = report.arms.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { title: "Quality at temperature 0".into(), header, rows })
}

fn likelihood(report: &Report) -> Option<Table> {
    let header = ["", "tokens", "nats a token", "bits a byte", "KL to the first", "same likeliest token"]
        .map(String::from)
        .into();
    let row = |arm: &ArmReport| {
        let own = arm.likelihood.as_ref()?;
        let kl = own.kl.map_or("-".into(), |kl| format!("{kl:.5}"));
        let top = own.same_top.map_or("-".into(), |share| format!("{:.1} %", share * 100.0));
        let figures = [format!("{:.4}", own.nll), format!("{:.4}", own.bits_per_byte)];
        Some([arm.name.clone(), own.tokens.to_string()].into_iter().chain(figures).chain([kl, top]).collect())
    };
    let rows: Vec<_> = report.arms.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { title: "How likely a text is".into(), header, rows })
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let same = |arm: &ArmReport| {
        let own = arm.agreement.as_ref()?;
        let gap = own
            .largest_gap
            .map_or_else(String::new, |gap| format!(" (else the two tokens are at most {gap:.2} apart)"));
        Some(format!("{} {} of {}{gap}", arm.name, own.same, own.of))
    };
    let same: Vec<String> = report.arms.iter().filter_map(same).collect();
    if let (Some(first), false) = (report.arms.first(), same.is_empty()) {
        notes.push(format!("Answers that are those of {} to the last token: {}.", first.name, same.join(", ")));
    }
    if report.rows.is_empty() {
        notes.push("Nothing was measured.".into());
    }
    if report.arms.iter().any(|arm| arm.ttft_ms.as_ref().is_some_and(|own| matches!(own.high, High::Max(_)))) {
        notes.push("Below 20 samples p95 is the maximum, and says so.".into());
    }
    notes
}

/// Columns that a cell takes.
fn width(cell: &str) -> usize {
    cell.chars().count()
}

impl Table {
    fn write(&self, style: Style, text: &mut String) {
        let columns = self.header.len();
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&self.header[column]]);
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        let _ = writeln!(text, "{}\n", self.title);
        let mut line = |cells: &[String]| {
            let pad = |(cell, width): (&String, &usize)| {
                let fill = " ".repeat(width.saturating_sub(self::width(cell)));
                // A bar would end a cell.
                let cell = if style == Style::Markdown { cell.replace('|', "\\|") } else { cell.clone() };
                format!("{cell}{fill}")
            };
            let cells: Vec<String> = cells.iter().zip(&widths).map(pad).collect();
            match style {
                Style::Text => text.push_str(cells.join("  ").trim_end()),
                Style::Markdown => {
                    let _ = write!(text, "| {} |", cells.join(" | "));
                }
            }
            text.push('\n');
        };
        line(&self.header);
        if style == Style::Markdown {
            line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>());
        }
        self.rows.iter().for_each(|row| line(row));
    }
}
