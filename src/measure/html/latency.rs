//! How times spread: their shares up to each time where few arms have many of them, else a row for each arm.

use super::arms::{Arm, Arms};
use super::chart::{Axis, Chart, Form, path, point, share};
use super::rows::{Row, Rows, bar};
use super::scale::Scale;
use super::text::{self, figure};
use crate::measure::stats::quantile;
use crate::measure::{self, Report};

/// Below this a curve or a box would show more than there is.
const MANY: usize = 20;
/// More curves than these cannot be told apart.
const CURVES: usize = 6;
/// Points of a curve at most.
const POINTS: usize = 200;

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let first = plot(report, arms, "Time to the first token", |row| vec![row.ttft_ms]);
    let between = plot(report, arms, "Time between tokens", |row| row.itl_ms.clone());
    if first.is_empty() && between.is_empty() {
        return String::new();
    }
    let plots = [first, between];
    let [curves, rows] =
        ["chart", "rows"].map(|form| plots.iter().any(|plot| plot.contains(&format!("class=\"{form}"))));
    let mut note = "<p class=\"note\">All prompts together.".to_owned();
    if curves {
        note += " Curves: the share of times up to each one, the mark at the median.";
    }
    if rows {
        note += " Rows: each time as a dot and a line at the median where there are fewer than 20; else the median, the \
                 middle half as a bar and from 5 to 95 % as a line.";
    }
    // Rows are named, curves are not.
    let legend = if curves { arms.legend(|_| true) } else { String::new() };
    let plots = plots.concat();
    super::section("How times spread", &format!("{note}</p>\n{legend}<div class=\"charts\">\n{plots}</div>\n"))
}

fn plot(report: &Report, arms: &Arms, title: &str, times: fn(&measure::Row) -> Vec<f64>) -> String {
    let of = |arm: Arm| {
        let rows = report.rows.iter().filter(|row| row.arm == arm.report.name);
        let mut times: Vec<f64> = rows.flat_map(times).filter(|ms| ms.is_finite() && *ms > 0.0).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let samples: Vec<(Arm, Vec<f64>)> = arms.iter().map(|arm| (arm, of(arm))).filter(|(_, s)| !s.is_empty()).collect();
    // A single slow moment among hundreds is a figure of the table; the axis is for the rest.
    let ends = samples.iter().flat_map(|(_, s)| [shown(s, 0.0), shown(s, 1.0)].into_iter().flatten());
    let Some(scale) = Scale::log(ends.collect::<Vec<_>>()) else { return String::new() };
    if samples.len() <= CURVES && samples.iter().all(|(_, times)| times.len() >= MANY) {
        curves(title, &samples, &scale)
    } else {
        strips(title, &samples, &scale)
    }
}

/// The end of the times that is drawn: the last one of few, the last but a half percent of many.
fn shown(sorted: &[f64], end: f64) -> Option<f64> {
    let cut = if sorted.len() < POINTS { 0.0 } else { 0.005 };
    quantile(sorted, end.clamp(cut, 1.0 - cut))
}

fn curves(title: &str, samples: &[(Arm, Vec<f64>)], scale: &Scale) -> String {
    let Some(shares) = Scale::from_zero([100.0]) else { return String::new() };
    let scales = (scale, &shares);
    let mut marks = String::new();
    for (arm, times) in samples {
        let last = times.len().min(POINTS);
        let steps = (0..=last).filter_map(|i| {
            let q = i as f64 / last as f64;
            let at = quantile(times, q)?.clamp(shown(times, 0.0)?, shown(times, 1.0)?);
            Some((at, q * 100.0))
        });
        marks += &path(*arm, scales, &steps.collect::<Vec<_>>(), Form::Steps);
    }
    for (arm, times) in samples {
        let Some(median) = quantile(times, 0.5) else { continue };
        let tip = format!("{}: median {} ms of {}", text::short(&arm.report.name), figure(median), times.len());
        marks += &point(*arm, scales, (median, 50.0), "", &tip);
    }
    let about = samples.iter().map(|(arm, times)| format!("{}: {}. ", text::short(&arm.report.name), spread(times)));
    let chart = Chart {
        title,
        about: &about.collect::<String>(),
        x: Axis { scale, name: "ms (log)" },
        y: Axis { scale: &shares, name: "% of times up to it" },
        marks,
        height: 240,
    };
    chart.html()
}

fn strips(title: &str, samples: &[(Arm, Vec<f64>)], scale: &Scale) -> String {
    let mut rows = Rows::new(scale, "", None);
    for (arm, times) in samples {
        let marks = if times.len() < MANY { dots(*arm, times, scale) } else { spans(*arm, times, scale) };
        let says = spread(times);
        rows.add(&Row { label: &arm.label(), says: &says, alt: &says, height: 30, marks: &marks });
    }
    rows.html(title, "ms (log)")
}

/// Each time, and the median.
fn dots(arm: Arm, times: &[f64], scale: &Scale) -> String {
    let colour = arm.colour();
    let dots = times.iter().enumerate().filter_map(|(i, ms)| {
        // Dots at one time do not hide each other.
        let (x, y) = (share(scale.at(*ms)?), 10 + i % 3 * 5);
        Some(format!("<circle class=\"dot {colour}\" cx=\"{x}\" cy=\"{y}\" r=\"3.5\"/>"))
    });
    let median = quantile(times, 0.5).and_then(|median| scale.at(median)).map(|at| {
        let x = share(at);
        format!("<line class=\"median {colour}\" x1=\"{x}\" x2=\"{x}\" y1=\"3\" y2=\"27\"/>")
    });
    dots.chain(median).collect::<Vec<_>>().concat()
}

/// The median, the middle half, and from 5 to 95 %.
fn spans(arm: Arm, times: &[f64], scale: &Scale) -> String {
    let span = |class: &str, from: f64, to: f64| {
        let ends = quantile(times, from).zip(quantile(times, to));
        ends.map_or_else(String::new, |ends| bar(scale, &format!("{class} {}", arm.colour()), ends, 15.0))
    };
    let median = quantile(times, 0.5).and_then(|median| scale.at(median));
    let median = median.map_or_else(String::new, |at| arm.mark(&share(at), "15", "", ""));
    span("interval", 0.05, 0.95) + &span("box", 0.25, 0.75) + &median
}

fn spread(times: &[f64]) -> String {
    let q = |q: f64| figure(quantile(times, q).unwrap_or(f64::NAN));
    let (high, name) = if times.len() < MANY { (q(1.0), "max") } else { (q(0.95), "p95") };
    format!("p50 {}, {name} {high} ms, n {}", q(0.5), times.len())
}
