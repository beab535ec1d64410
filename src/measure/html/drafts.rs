//! What drafts did: accepted by place, how long they were.

use super::arms::{Arm, Arms};
use super::chart::{Axis, Chart, Form, path, point, share};
use super::scale::Scale;
use super::table::{Column, table};
use super::text::{self, figure};
use crate::measure::{DraftReport, Report};

/// A share of fewer than these is drawn hollow.
const FEW: usize = 20;

pub(super) fn section(_: &Report, arms: &Arms) -> String {
    let drafts = |arm: Arm<'_>| arm.report.speculation.as_ref().is_some_and(|s| s.proposed > 0);
    let with: Vec<(Arm, &DraftReport)> = arms
        .iter()
        .filter(|arm| drafts(*arm))
        .filter_map(|arm| Some((arm, arm.report.speculation.as_ref()?)))
        .collect();
    let content = by_place(&with);
    let legend = if content.is_empty() { String::new() } else { arms.legend(drafts) };
    super::section("Drafts", &(counts(&with) + &legend + &content + &lengths(&with)))
}

fn counts(with: &[(Arm, &DraftReport)]) -> String {
    let columns = [
        Column::Words("Arm"),
        Column::Figures("Proposed"),
        Column::Figures("Accepted"),
        Column::Figures("Share"),
        Column::Figures("Rounds with a draft"),
        Column::Figures("Plain rounds"),
        Column::Figures("Tokens gained a round"),
    ];
    let rows = with.iter().map(|(arm, drafts)| {
        vec![
            arm.label(),
            drafts.proposed.to_string(),
            drafts.accepted.to_string(),
            text::percent(drafts.accepted, drafts.proposed).unwrap_or_default(),
            drafts.rounds.to_string(),
            drafts.plain_rounds.to_string(),
            drafts.mean_accepted_length.map_or_else(String::new, figure),
        ]
    });
    table("Drafts, all answers together", &columns, &rows.collect::<Vec<_>>())
}

fn by_place(with: &[(Arm, &DraftReport)]) -> String {
    let longest = with.iter().map(|(_, drafts)| drafts.by_position.len()).max().unwrap_or(0);
    let (1.., Some(y)) = (longest, Scale::from_zero([100.0])) else { return String::new() };
    let x = Scale::counts(1, longest);
    let mut marks = String::new();
    for (arm, drafts) in with {
        let places = drafts.by_position.iter().enumerate().filter(|(_, (proposed, _))| *proposed > 0);
        let shares = places.map(|(at, (proposed, accepted))| {
            ((at + 1) as f64, *accepted as f64 / *proposed as f64 * 100.0, *proposed, *accepted)
        });
        let shares: Vec<_> = shares.collect();
        let line: Vec<(f64, f64)> = shares.iter().map(|(x, y, ..)| (*x, *y)).collect();
        marks += &path(*arm, (&x, &y), &line, Form::Line);
        for (place, share, proposed, accepted) in shares {
            let tip = format!("{}, place {place}: {accepted} of {proposed}", text::short(&arm.report.name));
            let class = if proposed < FEW { "hollow" } else { "" };
            marks += &point(*arm, (&x, &y), (place, share), class, &tip);
        }
    }
    let chart = Chart {
        title: "Accepted by place in the draft",
        about: "For each place in a draft, the share of tokens proposed there that were accepted, a line an arm.",
        x: Axis { scale: &x, name: "place in the draft" },
        y: Axis { scale: &y, name: "% accepted of those proposed there (hollow: fewer than 20)" },
        marks,
        height: 240,
    };
    chart.html()
}

/// A small plot for each arm, on the same axes.
fn lengths(with: &[(Arm, &DraftReport)]) -> String {
    let shares = |drafts: &DraftReport| -> Vec<f64> {
        let rounds: usize = drafts.lengths.iter().sum();
        let used = drafts.lengths.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        drafts.lengths[..used].iter().map(|count| *count as f64 / rounds as f64 * 100.0).collect()
    };
    let all: Vec<(Arm, Vec<f64>)> =
        with.iter().map(|(arm, d)| (*arm, shares(d))).filter(|(_, s)| !s.is_empty()).collect();
    let longest = all.iter().map(|(_, shares)| shares.len()).max();
    let y = Scale::from_zero(all.iter().flat_map(|(_, shares)| shares.iter().copied()));
    let (Some(longest), Some(y)) = (longest, y) else { return String::new() };
    let x = Scale::counts(0, longest - 1);
    let charts = all.iter().map(|(arm, shares)| {
        let chart = Chart {
            title: &arm.label(),
            about: "The share of rounds with a draft of each length, from 0.",
            x: Axis { scale: &x, name: "tokens drafted in a round" },
            y: Axis { scale: &y, name: "% of rounds" },
            marks: bars(*arm, shares, &x, &y),
            height: 130,
        };
        chart.html()
    });
    format!("<h3>Lengths of drafts</h3>\n<div class=\"charts small\">\n{}</div>\n", charts.collect::<String>())
}

fn bars(arm: Arm, shares: &[f64], x: &Scale, y: &Scale) -> String {
    let bars = shares.iter().enumerate().filter_map(|(length, of)| {
        let (from, to, top) = (x.at(length as f64 - 0.4)?, x.at(length as f64 + 0.4)?, y.at(*of)?);
        Some(format!(
            "<rect class=\"bar {}\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"{}\"><title>{length}: {} %</title></rect>\n",
            arm.colour(),
            share(from),
            share(to - from),
            share(1.0 - top),
            share(top),
            figure(*of),
        ))
    });
    bars.collect()
}
