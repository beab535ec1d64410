//! How arms are told apart: a colour, a shape and a dash each. There are 8, 7 and 5 of them, so that arms that share one
//! differ in the others.

use super::super::{ArmReport, Report};
use super::text;

/// The shapes, drawn once; marks point here.
pub(super) const SHAPES: &str = "<svg width=\"0\" height=\"0\" class=\"shapes\" aria-hidden=\"true\"><defs>\
    <path id=\"m0\" d=\"M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z\"/>\
    <path id=\"m1\" d=\"M-4 -4h8v8h-8z\"/>\
    <path id=\"m2\" d=\"M0 -5.4l5.2 9h-10.4z\"/>\
    <path id=\"m3\" d=\"M0 -5.8l5.8 5.8l-5.8 5.8l-5.8 -5.8z\"/>\
    <path id=\"m4\" d=\"M0 5.4l5.2 -9h-10.4z\"/>\
    <path id=\"m5\" d=\"M-1.7 -5.4h3.4v3.7h3.7v3.4h-3.7v3.7h-3.4v-3.7h-3.7v-3.4h3.7z\"/>\
    <path id=\"m6\" transform=\"rotate(45)\" d=\"M-1.7 -5.8h3.4v4.1h4.1v3.4h-4.1v4.1h-3.4v-4.1h-4.1v-3.4h4.1z\"/>\
    </defs></svg>";

const COLOURS: usize = 8;
const SHAPE_COUNT: usize = 7;
const DASHES: [&str; 5] = ["none", "7 3", "2 3", "9 3 2 3", "14 4"];

/// The arms of a report in their order.
pub(super) struct Arms<'a> {
    arms: Vec<Arm<'a>>,
    axis: Option<&'a str>,
}

#[derive(Clone, Copy)]
pub(super) struct Arm<'a> {
    pub(super) index: usize,
    pub(super) report: &'a ArmReport,
}

impl<'a> Arms<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let arms = report.arms.iter().enumerate().map(|(index, report)| Arm { index, report });
        Self { arms: arms.collect(), axis: report.axis.as_deref() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Arm<'a>> {
        self.arms.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.arms.len()
    }

    /// The one that the others are compared with, as HTML. A bare number is named by what it is a number of.
    pub(super) fn first(&self) -> String {
        let Some(arm) = self.arms.first() else { return String::new() };
        let name = text::name(&arm.report.name);
        match self.axis {
            Some(axis) if arm.report.name.parse::<f64>().is_ok() => format!("{} {name}", text::short(axis)),
            _ => name,
        }
    }

    /// Which mark is whose; nothing where there is one arm only.
    pub(super) fn legend(&self, among: impl Fn(Arm) -> bool) -> String {
        if self.len() < 2 {
            return String::new();
        }
        let items = self.iter().filter(|arm| among(*arm)).map(|arm| format!("<li>{}</li>\n", arm.label()));
        format!("<ul class=\"legend\">\n{}</ul>\n", items.collect::<String>())
    }
}

impl Arm<'_> {
    /// Its mark and its name.
    pub(super) fn label(self) -> String {
        let mark = self.mark("50%", "50%", "", "");
        let name = text::name(&self.report.name);
        format!("<span class=\"arm\"><svg width=\"14\" height=\"14\" aria-hidden=\"true\">{mark}</svg> {name}</span>")
    }

    /// Its mark in a plot. The tip is shown where a pointer rests.
    pub(super) fn mark(self, x: &str, y: &str, class: &str, tip: &str) -> String {
        let (colour, shape) = (self.colour(), self.index % SHAPE_COUNT);
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{tip}</title>") };
        format!("<use href=\"#m{shape}\" class=\"mark {colour} {class}\" x=\"{x}\" y=\"{y}\">{tip}</use>")
    }

    /// The class of its colour.
    pub(super) fn colour(self) -> String {
        format!("a{}", self.index % COLOURS)
    }

    pub(super) fn dash(self) -> &'static str {
        DASHES[self.index % DASHES.len()]
    }
}
