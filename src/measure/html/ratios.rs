//! Ratios beside the first arm with their intervals: forest plots around 1, and by kind of prompt.

use super::arms::{Arm, Arms};
use super::chart::share;
use super::rows::{Row, Rows, bar};
use super::scale::Scale;
use super::table::{Column, folded, table};
use super::text::{self, figure};
use crate::measure::stats::{Ratio, Verdict};
use crate::measure::{KindReport, RatioReport, Report, distinct};

const BETTER: &str = "right is faster →";
const HOLLOW: &str = "<p class=\"note\">Hollow marks had too few pairs for an interval.</p>\n";
const WORSE: &str = "← left is faster";
/// What a ratio of a figure is called, and where faster is. The first three are shown, the last is folded.
const FIGURES: [(&str, &str, &str); 4] = [
    ("decode", "Decode rate", BETTER),
    ("ttft", "Time to the first token", WORSE),
    ("total", "Time to the last token", WORSE),
    ("prefill", "Prefill rate", BETTER),
];

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let [shown @ .., prefill] = FIGURES.map(|(figure, title, side)| forest(arms, figure, title, side));
    let (shown, more) = (shown.concat(), folded("Prefill", &prefill));
    let name = format!("Beside {}", arms.first());
    let note = "<p class=\"note\">The mark is the ratio of pairs (medians; over several kinds the geometric mean of each kind's), the bar its 95 % interval. An interval \
                that spans 1 shows no difference; a hollow mark had too few pairs.</p>\n";
    let ratios = if shown.is_empty() && more.is_empty() { String::new() } else { note.to_owned() + &shown + &more };
    super::section(&name, &ratios) + &super::section("By kind of prompt", &by_kind(report, arms))
}

/// A ratio in a table: the figure, its interval, what it shows.
pub(super) fn cell(ratio: &RatioReport) -> String {
    let says = format!("<strong>{}</strong> {}", times(ratio.ratio.ratio), says(ratio));
    format!("<span class=\"line-by-line\">{}</span>", says.replacen(", ", "<br>", 1))
}

fn says(report: &RatioReport) -> String {
    let decided = matches!(report.verdict, Verdict::Higher | Verdict::Lower);
    let words = text::escape(report.says);
    let words = if decided { format!("<strong>{words}</strong>") } else { words };
    match interval(&report.ratio) {
        Some(interval) => format!("({interval}), {words}"),
        None => format!("({}), {words}", text::count(report.ratio.pairs, "pair")),
    }
}

fn interval(ratio: &Ratio) -> Option<String> {
    Some(format!("{} to {}", times(ratio.low?), times(ratio.high?)))
}

fn times(ratio: f64) -> String {
    if (0.1..10.0).contains(&ratio) { format!("{ratio:.2}") } else { figure(ratio) }
}

fn ends(ratio: &Ratio) -> [f64; 3] {
    [ratio.ratio, ratio.low.unwrap_or(ratio.ratio), ratio.high.unwrap_or(ratio.ratio)]
}

fn forest(arms: &Arms, figure: &str, title: &str, side: &str) -> String {
    let ratios: Vec<(Arm, &RatioReport)> = arms
        .iter()
        .filter_map(|arm| Some((arm, arm.report.ratios.iter().find(|ratio| ratio.figure == figure)?)))
        .collect();
    let numbers = ratios.iter().flat_map(|(_, report)| ends(&report.ratio));
    if ratios.is_empty() {
        return String::new();
    }
    let Some(scale) = Scale::log(numbers.chain([1.0])) else { return String::new() };
    let mut rows = Rows::new(&scale, "wide", Some(1.0));
    for (arm, report) in ratios {
        let says = format!("<strong>{}</strong> {}", times(report.ratio.ratio), says(report));
        let marks = whisker(&scale, arm, &report.ratio, 15.0, "");
        rows.add(&Row { label: &arm.label(), says: &says, alt: &says, height: 30, marks: &marks });
    }
    let axis = format!("ratio to {}, {side}", arms.first());
    rows.html(title, &axis)
}

/// A ratio's interval and mark, in a row at `y`.
fn whisker(scale: &Scale, arm: Arm, ratio: &Ratio, y: f64, tip: &str) -> String {
    let Some(at) = scale.at(ratio.ratio) else { return String::new() };
    let class = format!("interval {}", arm.colour());
    let bar = ratio.low.zip(ratio.high).map_or_else(String::new, |ends| bar(scale, &class, ends, y));
    let hollow = if bar.is_empty() { "hollow" } else { "" };
    bar + &arm.mark(&share(at), &y.to_string(), hollow, tip) + "\n"
}

fn by_kind(report: &Report, arms: &Arms) -> String {
    let kinds = distinct(report.arms.iter().flat_map(|arm| &arm.by_kind).map(|kind| kind.kind.as_str()));
    if kinds.is_empty() {
        return String::new();
    }
    let plot = kinds_plot(arms, &kinds);
    let table = kinds_table(arms, &kinds);
    if plot.is_empty() {
        return table;
    }
    let hollow = if plot.contains("hollow") { HOLLOW } else { "" };
    hollow.to_owned() + &plot + &folded("As a table", &table)
}

fn of_kind<'a>(arm: Arm<'a>, kind: &str) -> Option<&'a KindReport> {
    arm.report.by_kind.iter().find(|report| report.kind == kind)
}

fn kinds_plot(arms: &Arms, kinds: &[&str]) -> String {
    const LANE: f64 = 14.0;
    let with: Vec<Arm> = arms.iter().filter(|arm| arm.report.by_kind.iter().any(|kind| kind.ratio.is_some())).collect();
    let all = with.iter().flat_map(|arm| &arm.report.by_kind).filter_map(|kind| kind.ratio.as_ref());
    let numbers: Vec<f64> = all.flat_map(ends).collect();
    if numbers.is_empty() {
        return String::new();
    }
    let Some(scale) = Scale::log(numbers.into_iter().chain([1.0])) else { return String::new() };
    let mut rows = Rows::new(&scale, "wide bare", Some(1.0));
    for kind in kinds {
        let mut marks = String::new();
        for (lane, arm) in with.iter().enumerate() {
            let Some(ratio) = of_kind(*arm, kind).and_then(|kind| kind.ratio.as_ref()) else { continue };
            let tip = format!("{}, {}: {}", text::short(&arm.report.name), text::short(kind), spoken(ratio));
            marks += &whisker(&scale, *arm, ratio, 5.0 + LANE * (lane as f64 + 0.5), &tip);
        }
        let height = (LANE * with.len() as f64 + 10.0) as u32;
        let label = text::name(kind);
        let alt = format!("decode rate beside the first arm, {label}");
        rows.add(&Row { label: &label, says: "", alt: &alt, height, marks: &marks });
    }
    let axis = format!("ratio to {}, {BETTER}", arms.first());
    arms.legend(|arm| with.iter().any(|other| other.index == arm.index)) + &rows.html("Decode rate", &axis)
}

fn spoken(ratio: &Ratio) -> String {
    let interval = interval(ratio).map_or_else(String::new, |interval| format!(" ({interval})"));
    times(ratio.ratio) + &interval
}

fn kinds_table(arms: &Arms, kinds: &[&str]) -> String {
    let columns = [
        Column::Words("Kind"),
        Column::Words("Arm"),
        Column::Figures("Answers"),
        Column::Figures("TTFT p50, ms"),
        Column::Figures("Decode, t/s"),
        Column::Figures("Decode ratio (interval)"),
    ];
    let mut rows = Vec::new();
    for kind in kinds {
        for arm in arms.iter() {
            let Some(report) = of_kind(arm, kind) else { continue };
            let answers = report.decode.as_ref().or(report.ttft_ms.as_ref());
            rows.push(vec![
                text::name(kind),
                if arms.len() > 1 { arm.label() } else { String::new() },
                answers.map_or_else(String::new, |summary| summary.n.to_string()),
                text::p50(report.ttft_ms.as_ref()),
                text::p50(report.decode.as_ref()),
                report.ratio.as_ref().map_or_else(String::new, spoken),
            ]);
        }
    }
    table("Each kind of prompt", &columns, &rows)
}
