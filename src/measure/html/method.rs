//! How it was measured, and the raw rows.

use super::arms::Arms;
use super::table::{Column, folded, table};
use super::text::{self, figure};
use crate::measure::{Report, Row};

/// More rows than this are for programs.
const SHOWN: usize = 500;

pub(super) fn section(report: &Report, arms: &Arms) -> String {
    let several = arms.len() > 1;
    let quality = report.arms.iter().any(|arm| arm.quality.is_some());
    let method = [
        (
            several,
            "Interleaved: arms take turns prompt by prompt, so that what else the machine does meets all of them.",
        ),
        (true, "Figures are medians. The slow end is the 95th percentile from 20 samples on, the maximum below."),
        (
            several,
            "A ratio is the median of pairs that ran side by side, with the interval of the sign test at 95 % (from 5 pairs \
             on); over several kinds of prompts it is the geometric mean of their medians, with the interval of a bootstrap \
             within each kind (from 4 pairs of each on). With many arms, some interval misses by chance.",
        ),
        (
            several,
            "Answers may part where two tokens are all but equally likely (a near-tie): other shapes of the same sum \
             round differently. A small difference of logits there is no loss of quality.",
        ),
        (quality, "Findings are rough checks that lean to silence: compare their counts on the same prompts."),
    ];
    let method = method.iter().filter(|(applies, _)| *applies);
    let method: String = method.map(|(_, line)| ["<li>", line, "</li>\n"].concat()).collect();
    let content = format!("<ul>\n{method}</ul>\n{}", folded("Raw rows", &(rows(report) + &json(report))));
    super::section("How it was measured", &content)
}

fn rows(report: &Report) -> String {
    let columns = [
        Column::Words("Arm"),
        Column::Words("Prompt"),
        Column::Words("Kind"),
        Column::Figures("Run"),
        Column::Figures("Prompt tokens"),
        Column::Figures("Cached"),
        Column::Figures("Tokens"),
        Column::Figures("TTFT, ms"),
        Column::Figures("Prefill, ms"),
        Column::Figures("Decode, ms"),
        Column::Figures("Decode, t/s"),
        Column::Figures("Drafted, accepted"),
        Column::Figures("J"),
        Column::Words("End"),
        Column::Words("Answer"),
    ];
    let shown: Vec<_> = report.rows.iter().take(SHOWN).map(row).collect();
    let left = report.rows.len().saturating_sub(SHOWN);
    let note =
        if left == 0 { String::new() } else { format!("<p class=\"note\">{left} more rows are in the JSON.</p>\n") };
    table("Each answer, in the order measured", &columns, &shown) + &note
}

fn row(row: &Row) -> Vec<String> {
    let finish = serde_json::to_value(row.finish).ok();
    vec![
        text::name(&row.arm),
        text::name(&row.prompt),
        text::short(&row.kind),
        row.run.to_string(),
        row.prompt_tokens.to_string(),
        row.cached_tokens.to_string(),
        row.tokens.to_string(),
        figure(row.ttft_ms),
        figure(row.prefill_ms),
        figure(row.decode_ms),
        row.decode().map_or_else(String::new, figure),
        row.speculation.as_ref().map_or_else(String::new, |s| format!("{}, {}", s.proposed, s.accepted)),
        row.joules.map_or_else(String::new, figure),
        finish.as_ref().and_then(|finish| finish.as_str()).map_or_else(String::new, text::escape),
        text::short(&row.answer),
    ]
}

/// The whole report for programs.
fn json(report: &Report) -> String {
    let json = serde_json::to_string(report).unwrap_or_else(|_| "null".to_owned());
    format!(
        "<p class=\"note\">Programs find all of it, the times between tokens too, as JSON in the element \
         <code>#report</code> of this page.</p>\n<script type=\"application/json\" id=\"report\">{}</script>\n",
        text::escape_json(&json)
    )
}
