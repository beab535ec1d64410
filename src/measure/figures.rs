//! What the rows say of each arm, and of each arm beside the first.

use super::arm::Arm;
use super::distinct;
use super::report::{ArmReport, DraftReport, KindReport, RatioReport, Row};
use super::stats::{Quantity, Ratio, Summary};

/// A figure of a row.
type Figure = fn(&Row) -> Option<f64>;

/// What is compared pair by pair.
const COMPARED: [(&str, Quantity, Figure); 4] = [
    ("decode", Quantity::Rate, Row::decode),
    ("prefill", Quantity::Rate, Row::prefill),
    ("ttft", Quantity::Time, |row| Some(row.ttft_ms)),
    ("total", Quantity::Time, |row| Some(row.total_ms())),
];

/// The report of each arm, in their order.
pub fn of_arms(arms: &[Arm], rows: &[Row]) -> Vec<ArmReport> {
    let first = arms.first().map_or("", |arm| arm.setting.name.as_str());
    arms.iter().map(|arm| of_arm(arm, rows, first)).collect()
}

fn of_arm(arm: &Arm, rows: &[Row], first: &str) -> ArmReport {
    let name = arm.setting.name.as_str();
    let own: Vec<&Row> = rows.iter().filter(|row| row.arm == name).collect();
    let gaps: Vec<f64> = own.iter().flat_map(|row| row.itl_ms.iter().copied()).collect();
    let a_token = |row: &&Row| Some(row.joules? / (row.prompt_tokens - row.cached_tokens + row.tokens).max(1) as f64);
    let joules: Vec<f64> = own.iter().filter_map(a_token).collect();
    let compared = COMPARED.iter().filter(|_| name != first);
    ArmReport {
        name: name.to_owned(),
        model: arm.model.name.clone(),
        ttft_ms: summary(&own, |row| Some(row.ttft_ms)),
        itl_ms: Summary::of(&gaps),
        prefill: summary(&own, Row::prefill),
        decode: summary(&own, Row::decode),
        joules: Summary::of(&joules),
        memory_bytes: arm.memory,
        by_kind: kinds(rows).into_iter().map(|kind| of_kind(rows, kind, name, first)).collect(),
        ratios: compared.filter_map(|compared| beside(rows, name, first, compared)).collect(),
        speculation: together(&own),
        agreement: None,
        quality: None,
        likelihood: None,
    }
}

/// The kinds of the prompts, in the order of their first rows.
fn kinds(rows: &[Row]) -> Vec<&str> {
    distinct(rows.iter().map(|row| row.kind.as_str()))
}

fn of_kind(rows: &[Row], kind: &str, arm: &str, first: &str) -> KindReport {
    let own: Vec<&Row> = rows.iter().filter(|row| row.arm == arm && row.kind == kind).collect();
    let of_kind = |row: &Row| row.kind == kind;
    KindReport {
        kind: kind.to_owned(),
        decode: summary(&own, Row::decode),
        ttft_ms: summary(&own, |row| Some(row.ttft_ms)),
        ratio: if arm == first { None } else { Ratio::of(&pairs(rows, arm, first, Row::decode, of_kind)) },
    }
}

fn summary(rows: &[&Row], figure: Figure) -> Option<Summary> {
    Summary::of(&rows.iter().filter_map(|row| figure(row)).collect::<Vec<_>>())
}

/// A figure of two arms wherever both answered the same prompt in the same run.
fn pairs(rows: &[Row], arm: &str, first: &str, figure: Figure, which: impl Fn(&Row) -> bool) -> Vec<(f64, f64)> {
    let own = rows.iter().filter(|row| row.arm == arm && which(row));
    own.filter_map(|row| Some((figure(row)?, figure(counterpart(rows, row, first)?)?))).collect()
}

/// The answer of another arm to the same prompt in the same run.
pub(super) fn counterpart<'a>(rows: &'a [Row], row: &Row, arm: &str) -> Option<&'a Row> {
    rows.iter().find(|other| other.arm == arm && other.prompt == row.prompt && other.run == row.run)
}

fn beside(rows: &[Row], arm: &str, first: &str, compared: &(&'static str, Quantity, Figure)) -> Option<RatioReport> {
    let (figure, quantity, of) = *compared;
    let of_kind = |kind: &str| pairs(rows, arm, first, of, |row| row.kind == kind);
    let ratio = Ratio::over_kinds(&kinds(rows).into_iter().map(of_kind).collect::<Vec<_>>())?;
    let verdict = ratio.verdict();
    Some(RatioReport { figure, ratio, verdict, says: verdict.of(quantity) })
}

/// The drafts of all answers; nothing where nobody could draft.
fn together(rows: &[&Row]) -> Option<DraftReport> {
    let all: Vec<&DraftReport> = rows.iter().filter_map(|row| row.speculation.as_ref()).collect();
    let mut sum = DraftReport::default();
    for own in &all {
        sum.proposed += own.proposed;
        sum.accepted += own.accepted;
        sum.rounds += own.rounds;
        sum.plain_rounds += own.plain_rounds;
        sum.draft_ms += own.draft_ms;
        sum.verify_ms += own.verify_ms;
        sum.policy_ms += own.policy_ms;
        sum.by_position.resize(sum.by_position.len().max(own.by_position.len()), (0, 0));
        for (all, own) in sum.by_position.iter_mut().zip(&own.by_position) {
            *all = (all.0 + own.0, all.1 + own.1);
        }
        sum.lengths.resize(sum.lengths.len().max(own.lengths.len()), 0);
        sum.lengths.iter_mut().zip(&own.lengths).for_each(|(all, own)| *all += own);
    }
    let gained: f64 = all.iter().filter_map(|own| Some(own.mean_accepted_length? * own.rounds as f64)).sum();
    sum.mean_accepted_length = (sum.rounds > 0).then(|| gained / sum.rounds as f64);
    (!all.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Finish;

    fn row(arm: &str, prompt: &str, run: usize, decode_ms: f64) -> Row {
        Row {
            arm: arm.into(),
            prompt: prompt.into(),
            kind: prompt[..1].into(),
            run,
            prompt_tokens: 10,
            cached_tokens: 0,
            tokens: 11,
            ttft_ms: 100.0,
            prefill_ms: 50.0,
            decode_ms,
            sampling_ms: 0.0,
            itl_ms: vec![decode_ms / 10.0; 10],
            joules: None,
            finish: Finish::Length,
            speculation: None,
            answer: String::new(),
            ids: Vec::new(),
        }
    }

    #[test]
    fn pairs_are_of_the_same_prompt_and_run() {
        let rows = [
            row("a", "x1", 0, 100.0),
            row("b", "x1", 0, 50.0),
            row("a", "y1", 0, 200.0),
            row("b", "y1", 1, 50.0),
            row("b", "y1", 0, 400.0),
        ];
        assert_eq!(pairs(&rows, "b", "a", Row::decode, |_| true), [(200.0, 100.0), (25.0, 50.0)]);
        let kind = of_kind(&rows, "y", "b", "a");
        assert_eq!(kind.ratio.map(|ratio| (ratio.ratio, ratio.pairs)), Some((0.5, 1)));
        assert_eq!(kind.decode.map(|decode| decode.n), Some(2));
        assert!(of_kind(&rows, "x", "a", "a").ratio.is_none());
    }

    #[test]
    fn what_drafts_did_is_added_up() {
        let own = |rounds, length, by: &[(usize, usize)]| {
            let report = DraftReport {
                proposed: 4,
                accepted: 2,
                rounds,
                mean_accepted_length: length,
                by_position: by.to_vec(),
                lengths: vec![1, 2],
                ..DraftReport::default()
            };
            Row { speculation: Some(report), ..row("a", "x", 0, 1.0) }
        };
        let rows = [own(3, Some(2.0), &[(3, 2), (1, 0)]), own(1, Some(4.0), &[(1, 1)]), own(0, None, &[])];
        let sum = together(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((sum.rounds, sum.proposed, sum.by_position.as_slice()), (4, 12, [(4, 3), (1, 0)].as_slice()));
        assert_eq!((sum.mean_accepted_length, sum.lengths.as_slice()), (Some(2.5), [3, 6].as_slice()));
        assert!(together(&[]).is_none());
    }
}
