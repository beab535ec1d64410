//! A plot of rows on one axis: names and figures as HTML beside each, so that they wrap where the window is narrow.

use super::chart::share;
use super::scale::Scale;
use super::table::without_tags;

pub(super) struct Rows<'a> {
    scale: &'a Scale,
    class: &'static str,
    done: Vec<String>,
    /// Where a line is drawn through all rows.
    at: Option<f64>,
}

pub(super) struct Row<'a> {
    /// As HTML.
    pub(super) label: &'a str,
    pub(super) says: &'a str,
    /// For those who cannot see it.
    pub(super) alt: &'a str,
    pub(super) height: u32,
    pub(super) marks: &'a str,
}

impl<'a> Rows<'a> {
    /// `class` is what the style sheet knows: `wide` for rows that take the page's width, `bare` without figures.
    pub(super) fn new(scale: &'a Scale, class: &'static str, through: Option<f64>) -> Self {
        Self { scale, class, done: Vec::new(), at: through.and_then(|x| scale.at(x)) }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let grid = self.scale.ticks.iter().map(|tick| upright("grid", tick.at)).collect::<String>();
        let line = self.at.map_or_else(String::new, |at| upright("through", at));
        self.done.push(format!(
            "<li><div class=\"label\">{label}</div><div class=\"says\">{says}</div><div class=\"strip\">\
             <svg width=\"100%\" height=\"{height}\" role=\"img\"><title>{alt}</title>{grid}{line}\n{marks}</svg></div></li>\n",
            label = row.label,
            says = row.says,
            alt = without_tags(row.alt),
            height = row.height,
            marks = row.marks,
        ));
    }

    /// The figure: `axis` (as HTML, its unit named) says what is measured.
    pub(super) fn html(&self, title: &str, axis: &str) -> String {
        let labels = self
            .scale
            .ticks
            .iter()
            .map(|tick| format!("<text class=\"tick\" x=\"{}\" y=\"15\">{}</text>", share(tick.at), tick.label));
        format!(
            "<figure class=\"rows {class}\">\n<figcaption>{title}</figcaption>\n<ul>\n{rows}\
             <li class=\"axis\"><div class=\"label\"></div><div class=\"says\"></div><div class=\"strip\">\
             <svg width=\"100%\" height=\"20\" aria-hidden=\"true\">{labels}</svg>\
             <p class=\"axis x\">{axis}</p></div></li>\n</ul>\n</figure>\n",
            class = self.class,
            rows = self.done.concat(),
            labels = labels.collect::<String>(),
        )
    }
}

fn upright(class: &str, at: f64) -> String {
    let x = share(at);
    format!("<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"100%\"/>")
}

/// A level bar of a row from one number to another, cut where the axis ends.
pub(super) fn bar(scale: &Scale, class: &str, ends: (f64, f64), y: f64) -> String {
    let (Some(from), Some(to)) = (scale.at(ends.0), scale.at(ends.1)) else { return String::new() };
    format!("<line class=\"{class}\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>", share(from), share(to))
}
