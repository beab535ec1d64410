//! Speed beside quality, a point an arm: what a smaller model gains, and what it loses.

use super::arms::{Arm, Arms};
use super::chart::{Axis, Chart, point};
use super::scale::Scale;
use super::text::{self, figure};
use crate::measure::Report;

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let diverges =
        report.arms.iter().skip(1).any(|arm| arm.likelihood.as_ref().is_some_and(|likelihood| likelihood.kl.is_some()));
    let findings = plot(arms, "Answers with findings", "% of answers", |arm| {
        let quality = arm.report.quality.as_ref().filter(|quality| quality.prompts > 0)?;
        Some(quality.with_findings as f64 / quality.prompts as f64 * 100.0)
    });
    let likely = if diverges {
        // The first arm is what the others diverge from.
        plot(arms, "Divergence from the first arm", "KL divergence, nats", |arm| {
            arm.report.likelihood.as_ref()?.kl.or((arm.index == 0).then_some(0.0))
        })
    } else {
        plot(arms, "Likelihood of a text", "bits a byte", |arm| Some(arm.report.likelihood.as_ref()?.bits_per_byte))
    };
    if findings.is_empty() && likely.is_empty() {
        return String::new();
    }
    let note = "<p class=\"note\">Right is faster, down is better.</p>\n";
    let legend = arms.legend(|arm| arm.report.quality.is_some() || arm.report.likelihood.is_some());
    let plots = format!("<div class=\"charts\">\n{findings}{likely}</div>\n");
    super::section("Speed beside quality", &(note.to_owned() + &legend + &plots))
}

fn plot(arms: &Arms, title: &str, name: &str, quality: impl Fn(Arm) -> Option<f64>) -> String {
    let points = arms.iter().filter_map(|arm| Some((arm, (arm.report.decode.as_ref()?.p50, quality(arm)?))));
    let points: Vec<(Arm, (f64, f64))> = points.filter(|(_, at)| at.0.is_finite() && at.1.is_finite()).collect();
    let x = Scale::from_zero(points.iter().map(|(_, at)| at.0));
    let y = Scale::from_zero(points.iter().map(|(_, at)| at.1));
    let (Some(x), Some(y), 2..) = (x, y, points.len()) else { return String::new() };
    let says = |arm: &Arm, at: &(f64, f64)| {
        format!("{}: {} t/s, {} {name}", text::short(&arm.report.name), figure(at.0), figure(at.1))
    };
    let marks = points.iter().map(|(arm, at)| point(*arm, (&x, &y), *at, "", &says(arm, at)));
    let chart = Chart {
        title,
        about: &points.iter().map(|(arm, at)| says(arm, at) + ". ").collect::<String>(),
        x: Axis { scale: &x, name: "decode, tokens a second" },
        y: Axis { scale: &y, name },
        marks: marks.collect(),
        height: 240,
    };
    chart.html()
}
