//! Decode rate by depth: what a longer prompt costs each token.

use super::arms::Arms;
use super::chart::{Axis, Chart, Form, path, point};
use super::scale::Scale;
use super::text::{self, figure};
use crate::measure::Report;
use crate::measure::stats::quantile;

/// Shallower than this, depth is not what makes the difference.
const APART: usize = 256;
/// Depths that differ by less are one.
const NEAR: f64 = 1.1;

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let depths = report.rows.iter().filter(|row| row.decode().is_some()).map(|row| row.prompt_tokens);
    let (least, most) = (depths.clone().min().unwrap_or(0), depths.max().unwrap_or(0));
    if most < least.saturating_mul(2) || most - least < APART {
        return String::new();
    }
    let points = |name: &str| -> Vec<(f64, f64)> {
        let rows = report.rows.iter().filter(|row| row.arm == name);
        rows.filter_map(|row| Some((row.prompt_tokens as f64, row.decode()?))).collect()
    };
    let all: Vec<(f64, f64)> = report.arms.iter().flat_map(|arm| points(&arm.name)).collect();
    let depths = || all.iter().map(|point| point.0);
    let x = if most > least.saturating_mul(8) { Scale::log(depths()) } else { Scale::from_zero(depths()) };
    let (Some(x), Some(y)) = (x, Scale::from_zero(all.iter().map(|point| point.1))) else { return String::new() };
    let mut marks = String::new();
    for arm in arms.iter() {
        let points = points(&arm.report.name);
        for at in &points {
            let tip = format!("{}: {} t/s after {} tokens", text::short(&arm.report.name), figure(at.1), at.0);
            marks += &point(arm, (&x, &y), *at, "faint", &tip);
        }
        marks += &path(arm, (&x, &y), &medians(points), Form::Line);
    }
    let chart = Chart {
        title: "Decode rate by depth",
        about: "A point for each answer, a line through each arm's medians.",
        x: Axis { scale: &x, name: "tokens of the prompt" },
        y: Axis { scale: &y, name: "tokens a second" },
        marks,
        height: 280,
    };
    let note = "<p class=\"note\">A point is an answer, the line goes through the medians of each depth. Where prompts \
                of different kinds differ in length, this shows the kinds too.</p>\n";
    super::section("By depth", &(note.to_owned() + &arms.legend(|_| true) + &chart.html()))
}

/// The median of each depth.
fn medians(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut medians = Vec::new();
    let mut rest = &points[..];
    while let Some((first, _)) = rest.first() {
        let (near, further) = rest.split_at(rest.partition_point(|point| point.0 <= first * NEAR));
        let mut rates: Vec<f64> = near.iter().map(|point| point.1).collect();
        rates.sort_by(f64::total_cmp);
        medians.extend(Some(near[near.len() / 2].0).zip(quantile(&rates, 0.5)));
        rest = further;
    }
    medians
}
