//! Whether an arm's answers are those of the first arm, and how near the tie was where they part.

use super::arm::Arm;
use super::figures::counterpart;
use super::report::{Agreement, Row};
use crate::error::Result;
use crate::interrupt::Interrupt;

/// Partings of an arm that are looked into; each costs a prompt.
const LOOKED_INTO: usize = 6;

/// Of arm `at` with the first one: they must have one vocabulary. The logits are those of the first arm's model.
///
/// # Errors
/// Engine failures.
pub fn with_first(
    arms: &[Arm],
    at: usize,
    rows: &[Row],
    prompt: impl Fn(&str) -> Option<String>,
    interrupt: &Interrupt,
) -> Result<Agreement> {
    let (first, own) = (&arms[0], &arms[at]);
    let answers = rows.iter().filter(|row| row.arm == own.setting.name);
    let mut found = Agreement { same: 0, of: 0, largest_gap: None, looked_into: 0 };
    for row in answers {
        let Some(base) = counterpart(rows, row, &first.setting.name) else { continue };
        found.of += 1;
        if base.ids == row.ids {
            found.same += 1;
            continue;
        }
        let shared = base.ids.iter().zip(&row.ids).take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (base.ids.get(shared), row.ids.get(shared)) else { continue };
        if found.looked_into >= LOOKED_INTO || interrupt.is_set() {
            continue;
        }
        let Some(text) = prompt(&row.prompt) else { continue };
        let mut tokens = first.tokens(&text)?.0;
        tokens.extend(&base.ids[..shared]);
        let logits = first.logits_behind(&tokens)?;
        let gap = f64::from((logits[a.index()] - logits[b.index()]).abs());
        found.looked_into += 1;
        found.largest_gap = Some(found.largest_gap.map_or(gap, |largest: f64| largest.max(gap)));
    }
    Ok(found)
}
