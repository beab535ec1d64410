//! What was compared, on what, and the figures of each arm.

use super::arms::{Arm, Arms};
use super::ratios;
use super::table::{Column, table};
use super::text::{self, figure};
use crate::measure::stats::{High, Summary};
use crate::measure::{Agreement, ArmReport, ModelReport, Report};

/// The page's title, escaped.
pub(super) fn title(report: &Report) -> String {
    match (&report.axis, &report.arms[..]) {
        (Some(axis), _) => format!("qchat bench: {} compared", text::short(axis)),
        (None, [arm]) => format!("qchat bench: {}", text::short(&arm.name)),
        _ => "qchat bench".to_owned(),
    }
}

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let lead = match arms.len() {
        0 => "<p>Nothing was measured.</p>\n".to_owned(),
        1 => String::new(),
        2..=6 => {
            let names: Vec<String> = arms.iter().skip(1).map(|arm| text::name(&arm.report.name)).collect();
            format!("<p>{}, compared with {}.</p>\n", names.join(", "), arms.first())
        }
        n => format!("<p>{} arms, compared with {}.</p>\n", n - 1, arms.first()),
    };
    let stopped = if report.stopped {
        "<p class=\"notice\" role=\"note\"><strong>Stopped early.</strong> What follows is what was measured until then; \
         arms and prompts may have fewer answers than asked for.</p>\n"
    } else {
        ""
    };
    format!("<header>\n<h1>{}</h1>\n{lead}{stopped}{}{}</header>\n", title(report), facts(report), models(report))
}

fn facts(report: &Report) -> String {
    let machine = &report.machine;
    let memory = machine.memory_bytes.map_or_else(String::new, |bytes| format!(", {} memory", text::size(bytes)));
    let hardware = format!(
        "{}, {}, {} used{memory}",
        text::short(&machine.cpu),
        text::count(machine.physical_cores, "core"),
        text::count(machine.threads, "thread"),
    );
    let asked = format!(
        "{} of each prompt and arm, at most {} each; {} measured",
        text::count(report.runs, "answer"),
        text::count(report.tokens, "token"),
        text::count(report.rows.len(), "answer"),
    );
    let model = match &report.models[..] {
        [model] => one_model(model),
        _ => String::new(),
    };
    let facts = [
        ("Model", model),
        ("Machine", hardware),
        ("Build", text::short(&machine.build)),
        ("Measured", text::short(&report.made)),
        ("Version", format!("qchat {}, llama.cpp {}", text::short(&report.version), text::short(&report.engine))),
        ("Runs", asked),
    ];
    let facts = facts
        .iter()
        .filter(|(_, fact)| !fact.is_empty())
        .map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{fact}</dd></div>\n"));
    format!("<dl>\n{}</dl>\n", facts.collect::<String>())
}

fn one_model(model: &ModelReport) -> String {
    let quantisation = model.quantisation.as_ref().map_or_else(String::new, |name| format!(", {}", text::short(name)));
    let size = text::size(model.bytes);
    format!("{}{quantisation}, {size}, loaded in {} ms", text::name(&model.name), figure(model.load_ms))
}

/// A table where there are several.
fn models(report: &Report) -> String {
    if report.models.len() < 2 {
        return String::new();
    }
    let columns = [
        Column::Words("Model"),
        Column::Words("Quantisation"),
        Column::Figures("Size"),
        Column::Figures("Loading, ms"),
    ];
    let rows = report.models.iter().map(|model| {
        let quantisation = model.quantisation.as_deref().map_or_else(String::new, text::short);
        vec![text::name(&model.name), quantisation, text::size(model.bytes), figure(model.load_ms)]
    });
    table("Models", &columns, &rows.collect::<Vec<_>>())
}

/// The main table.
pub(super) fn figures(report: &Report, arms: &Arms) -> String {
    let high = |of: fn(&ArmReport) -> Option<&Summary>| high_name(report.arms.iter().filter_map(of));
    let (ttft, itl) = (high(|arm| arm.ttft_ms.as_ref()), high(|arm| arm.itl_ms.as_ref()));
    let beside = format!("Decode beside {}", arms.first());
    let columns = [
        Column::Words("Arm"),
        Column::Words("Model"),
        Column::Figures("TTFT p50, ms"),
        Column::Figures(&format!("TTFT {ttft}, ms")),
        Column::Figures("ITL p50, ms"),
        Column::Figures(&format!("ITL {itl}, ms")),
        Column::Figures("Prefill, t/s"),
        Column::Figures("Decode, t/s"),
        Column::Words(&beside),
        Column::Figures("Drafts accepted"),
        Column::Figures("Same answers"),
        Column::Figures("Memory"),
        Column::Figures("J/token"),
    ];
    let rows: Vec<_> = arms.iter().map(|arm| row(report, arm, &ttft, &itl)).collect();
    let table = table("Each arm, all prompts together", &columns, &rows);
    if table.is_empty() {
        return String::new();
    }
    super::section("Figures", &(table + &notes(report)))
}

fn row(report: &Report, arm: Arm, ttft: &str, itl: &str) -> Vec<String> {
    let ArmReport { model, speculation, agreement, .. } = arm.report;
    let several = report.models.len() > 1;
    let beside = arm.report.ratios.iter().find(|ratio| ratio.figure == "decode").map(ratios::cell);
    vec![
        arm.label(),
        if several { text::short(model) } else { String::new() },
        text::p50(arm.report.ttft_ms.as_ref()),
        high(arm.report.ttft_ms.as_ref(), ttft),
        text::p50(arm.report.itl_ms.as_ref()),
        high(arm.report.itl_ms.as_ref(), itl),
        text::p50(arm.report.prefill.as_ref()),
        arm.report.decode.as_ref().map_or_else(String::new, |rate| format!("<strong>{}</strong>", figure(rate.p50))),
        beside.unwrap_or_default(),
        speculation.as_ref().and_then(|s| text::percent(s.accepted, s.proposed)).unwrap_or_default(),
        agreement.as_ref().map_or_else(String::new, same),
        arm.report.memory_bytes.map_or_else(String::new, text::size),
        text::p50(arm.report.joules.as_ref()),
    ]
}

/// What a column of high ends is called.
fn high_name<'a>(summaries: impl Iterator<Item = &'a Summary>) -> String {
    let (mut p95, mut max) = (false, false);
    for summary in summaries {
        p95 |= matches!(summary.high, High::P95(_));
        max |= matches!(summary.high, High::Max(_));
    }
    match (p95, max) {
        (true, true) => "p95 or max".to_owned(),
        (false, true) => "max".to_owned(),
        _ => "p95".to_owned(),
    }
}

/// The high end, named where its column holds both kinds.
fn high(summary: Option<&Summary>, column: &str) -> String {
    let Some(summary) = summary else { return String::new() };
    let (name, high) = match summary.high {
        High::P95(high) => ("p95", high),
        High::Max(high) => ("max", high),
    };
    if name == column { figure(high) } else { format!("{name} {}", figure(high)) }
}

fn notes(report: &Report) -> String {
    let mut notes = vec![
        "TTFT: from the question to the first token, the model being loaded. ITL: between moments at \
         which tokens appear; those of one draft appear together."
            .to_owned(),
    ];
    if report.arms.iter().filter(|arm| arm.memory_bytes.is_some()).count() > 1 {
        notes.push("Memory that arms share counts for the first of them.".to_owned());
    }
    if report.arms.iter().any(|arm| arm.agreement.as_ref().is_some_and(|agreement| agreement.largest_gap.is_some())) {
        let gap =
            "Gap: the largest difference between the logits of both tokens where answers part; small is a near-tie.";
        notes.push(gap.to_owned());
    }
    for arm in &report.arms {
        notes.extend(dropped(arm));
    }
    format!("<p class=\"note\">{}</p>\n", notes.join("<br>\n"))
}

/// Equal answers, and how near both tokens were where the others part.
fn same(agreement: &Agreement) -> String {
    let gap = agreement.largest_gap.map_or_else(String::new, |gap| format!("<br>gap {}", figure(gap)));
    format!("{} of {}{gap}", agreement.same, agreement.of)
}

/// Samples that count for nothing are not passed over in silence.
fn dropped(arm: &ArmReport) -> Option<String> {
    let figures = [
        ("TTFT", &arm.ttft_ms),
        ("ITL", &arm.itl_ms),
        ("prefill", &arm.prefill),
        ("decode", &arm.decode),
        ("energy", &arm.joules),
    ];
    let parts = figures.iter().filter_map(|(name, summary)| {
        let summary = summary.as_ref().filter(|summary| summary.dropped > 0)?;
        Some(format!("{name} {} of {}", summary.dropped, summary.dropped + summary.n))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty())
        .then(|| format!("{}: samples that were no numbers: {}.", text::name(&arm.name), parts.join(", ")))
}
