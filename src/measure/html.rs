//! A report as one HTML page: tables, plots as SVG, and the figures once more as JSON.
//!
//! The page asks nothing of the network and runs no script; its policy forbids both, whatever a model's name holds. Places
//! in plots are shares of their width, so that a plot takes any width while its text and marks keep their size.

mod arms;
mod chart;
mod depth;
mod drafts;
mod head;
mod latency;
mod method;
mod quality;
mod ratios;
mod rows;
mod scale;
mod table;
mod text;
mod tradeoff;

use super::Report;
use arms::Arms;

const STYLE: &str = include_str!("html/page.css");

/// What the page may load: nothing. (Its icon is empty, or browsers ask the server for one.)
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The whole page. Every text of the report is escaped; a section that has nothing to show is left out.
pub fn page(report: &Report) -> String {
    let arms = Arms::of(report);
    let sections = [
        head::section(report, &arms),
        head::figures(report, &arms),
        ratios::section(report, &arms),
        latency::section(report, &arms),
        depth::section(report, &arms),
        drafts::section(report, &arms),
        tradeoff::section(report, &arms),
        quality::section(report, &arms),
        method::section(report, &arms),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{shapes}\n<main>\n{body}</main>\n</body>\n</html>\n",
        title = head::title(report),
        shapes = arms::SHAPES,
        body = sections.concat(),
    )
}

/// A section, or nothing where there is nothing in it.
fn section(name: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{name}</h2>\n{content}</section>\n")
}

#[cfg(test)]
mod tests;
