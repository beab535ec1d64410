//! A plot with two axes. Its box is the area of the data; what stands on the axes hangs over its edges into the margin.

use super::arms::Arm;
use super::scale::Scale;

pub(super) struct Axis<'a> {
    pub(super) scale: &'a Scale,
    /// As HTML, its unit named.
    pub(super) name: &'a str,
}

pub(super) struct Chart<'a> {
    /// As HTML.
    pub(super) title: &'a str,
    /// For those who cannot see it: what is drawn.
    pub(super) about: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) marks: String,
    pub(super) height: u32,
}

impl Chart<'_> {
    pub(super) fn html(&self) -> String {
        let columns = self.x.scale.ticks.iter().map(|tick| column(tick.at, &tick.label));
        let lines = self.y.scale.ticks.iter().map(|tick| {
            let y = share(1.0 - tick.at);
            format!(
                "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text class=\"tick end\" x=\"-8\" y=\"{y}\" dy=\"4\">{}</text>",
                tick.label
            )
        });
        format!(
            "<figure class=\"chart\">\n<figcaption>{title}</figcaption>\n<p class=\"axis\">↑ {y}</p>\n<div class=\"plot\">\
             <svg width=\"100%\" height=\"{height}\" role=\"img\"><title>{alt}</title><desc>{about}</desc>\n{grid}\n\
             <rect class=\"frame\" width=\"100%\" height=\"100%\"/>\n{marks}</svg></div>\n\
             <p class=\"axis x\">{x} →</p>\n</figure>\n",
            title = self.title,
            alt = super::table::without_tags(self.title),
            about = self.about,
            height = self.height,
            grid = columns.chain(lines).collect::<String>(),
            marks = self.marks,
            x = self.x.name,
            y = self.y.name,
        )
    }
}

/// A line of the grid, its label below.
pub(super) fn column(at: f64, label: &str) -> String {
    let x = share(at);
    format!(
        "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"100%\"/>\
         <text class=\"tick\" x=\"{x}\" y=\"100%\" dy=\"17\">{label}</text>"
    )
}

/// An arm's mark at a point; nothing for a point that is off the axes.
pub(super) fn point(arm: Arm, scales: (&Scale, &Scale), at: (f64, f64), class: &str, tip: &str) -> String {
    let (Some(x), Some(y)) = (scales.0.at(at.0), scales.1.at(at.1)) else { return String::new() };
    arm.mark(&share(x), &share(1.0 - y), class, tip) + "\n"
}

/// An arm's line through points, or its steps up to them.
pub(super) fn path(arm: Arm, scales: (&Scale, &Scale), points: &[(f64, f64)], form: Form) -> String {
    let places = points.iter().filter_map(|(x, y)| {
        let (x, y) = (scales.0.at(*x)?, scales.1.at(*y)?);
        Some((format!("{:.1}", x * 1000.0), format!("{:.1}", (1.0 - y) * 1000.0)))
    });
    let moves = places.enumerate().map(|(i, (x, y))| match form {
        _ if i == 0 => format!("M{x} {y}"),
        Form::Line => format!("L{x} {y}"),
        Form::Steps => format!("H{x}V{y}"),
    });
    let path = moves.collect::<Vec<_>>().concat();
    // Stretched to its box, its strokes are not.
    format!(
        "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100%\">\
         <path class=\"line {}\" vector-effect=\"non-scaling-stroke\" stroke-dasharray=\"{}\" d=\"{path}\"/></svg>\n",
        arm.colour(),
        arm.dash(),
    )
}

#[derive(Clone, Copy)]
pub(super) enum Form {
    Line,
    Steps,
}

/// A part of the width or height.
pub(super) fn share(part: f64) -> String {
    format!("{:.2}%", part * 100.0)
}
