//! What was wrong with answers, and how likely a text is to each arm.

use super::arms::Arms;
use super::table::{Column, table};
use super::text::{self, escape, figure};
use crate::measure::Report;

pub(super) fn section(_: &Report, arms: &Arms) -> String {
    super::section("Quality", &(checked(arms) + &findings(arms) + &likelihood(arms)))
}

fn checked(arms: &Arms) -> String {
    let columns = [
        Column::Words("Arm"),
        Column::Figures("Answers"),
        Column::Figures("With findings"),
        Column::Figures("Share"),
        Column::Figures("Findings"),
    ];
    let rows = arms.iter().filter_map(|arm| {
        let quality = arm.report.quality.as_ref()?;
        Some(vec![
            arm.label(),
            quality.prompts.to_string(),
            quality.with_findings.to_string(),
            text::percent(quality.with_findings, quality.prompts).unwrap_or_default(),
            quality.findings.len().to_string(),
        ])
    });
    table("Answers to the quality prompts, at temperature 0", &columns, &rows.collect::<Vec<_>>())
}

/// Prompt by prompt, so that arms stand side by side.
fn findings(arms: &Arms) -> String {
    let columns = [
        Column::Words("Prompt"),
        Column::Words("Kind"),
        Column::Words("Arm"),
        Column::Words("Check"),
        Column::Words("Finding"),
    ];
    let mut prompts: Vec<(&str, usize, Vec<String>)> = Vec::new();
    for arm in arms.iter() {
        for found in arm.report.quality.iter().flat_map(|quality| &quality.findings) {
            let row = vec![
                text::name(&found.prompt),
                text::short(&found.kind),
                arm.label(),
                escape(found.finding.check),
                text::short(&found.finding.says),
            ];
            prompts.push((&found.prompt, arm.index, row));
        }
    }
    prompts.sort_by_key(|(prompt, arm, _)| (*prompt, *arm));
    table("Findings", &columns, &prompts.into_iter().map(|(.., row)| row).collect::<Vec<_>>())
}

fn likelihood(arms: &Arms) -> String {
    let columns = [
        Column::Words("Arm"),
        Column::Figures("Tokens"),
        Column::Figures("NLL, nats a token"),
        Column::Figures("Bits a byte"),
        Column::Figures("KL from the first arm, nats"),
        Column::Figures("Same likeliest token"),
    ];
    let rows = arms.iter().filter_map(|arm| {
        let likelihood = arm.report.likelihood.as_ref()?;
        Some(vec![
            arm.label(),
            likelihood.tokens.to_string(),
            fine(likelihood.nll),
            fine(likelihood.bits_per_byte),
            likelihood.kl.map_or_else(String::new, figure),
            likelihood.same_top.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0)),
        ])
    });
    table("How likely a text is (bits a byte compare vocabularies)", &columns, &rows.collect::<Vec<_>>())
}

/// Likelihoods differ in late digits.
fn fine(x: f64) -> String {
    if x.abs() < 1e3 { format!("{x:.4}") } else { figure(x) }
}
