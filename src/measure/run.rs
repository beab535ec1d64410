//! The runs: every prompt to every arm, interleaved, in another order each time.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::arm::{Arm, Sample};
use super::distinct;
use super::report::{DraftReport, Row};
use super::workload::Prompt;
use crate::error::Result;
use crate::generate::draft::Speculation;
use crate::interrupt::Interrupt;
use crate::prefix::Store;
use crate::sample::Sampling;

/// What is asked of every arm.
pub struct Plan {
    pub prompts: Vec<Prompt>,
    /// Answers of each kind of prompt: fresh prompts as long as there are any.
    pub runs: usize,
    /// The most tokens of an answer.
    pub tokens: usize,
    pub sampling: Sampling,
}

/// Tokens a second of prefill and of decode.
pub(super) type Rates = (f64, f64);

impl Plan {
    /// Which prompt is answered when, and how often it was before: the kinds in turn.
    fn order(&self) -> Vec<(usize, &Prompt)> {
        let kinds = distinct(self.prompts.iter().map(|prompt| prompt.kind.as_str()));
        let of = |kind: &str| self.prompts.iter().filter(|prompt| prompt.kind == kind).collect::<Vec<_>>();
        let by_kind: Vec<Vec<&Prompt>> = kinds.into_iter().map(of).collect();
        let turn = |run: usize| by_kind.iter().map(move |prompts| (run / prompts.len(), prompts[run % prompts.len()]));
        (0..self.runs).flat_map(turn).collect()
    }

    /// Answers in all.
    pub fn answers(&self, arms: usize) -> usize {
        self.order().len() * arms
    }

    fn budget(&self, prompt: &Prompt) -> usize {
        prompt.max_tokens.map_or(self.tokens, |own| own.min(self.tokens))
    }

    /// How long it takes arms of these rates.
    pub fn expected(&self, rates: &[Rates]) -> Duration {
        let of = |prompt: &Prompt| {
            // About four bytes a token.
            let read = prompt.message().len() as f64 / 4.0 + 20.0;
            let budget = self.budget(prompt) as f64;
            rates.iter().map(|(prefill, decode)| read / prefill + budget / decode).sum::<f64>()
        };
        Duration::from_secs_f64(self.order().iter().map(|(_, prompt)| of(prompt)).sum())
    }
}

/// Warms every arm up; nothing where Ctrl-C ends it.
///
/// # Errors
/// What an arm reports.
pub fn warm_up(arms: &mut [Arm], interrupt: &Interrupt) -> Result<Option<Vec<Rates>>> {
    let mut rates = Vec::with_capacity(arms.len());
    for arm in arms {
        let rate = arm.warm_up();
        if interrupt.is_set() {
            return Ok(None);
        }
        rates.push(rate?);
    }
    Ok(Some(rates))
}

/// Runs it. Who watches is told after each answer: how many of how many are done, and how long the rest is expected to
/// take. That, or Ctrl-C, may end it there: the rows so far are good.
///
/// # Errors
/// What an arm reports.
pub fn run(
    arms: &mut [Arm],
    plan: &Plan,
    store: &Store,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&Row, usize, usize, Duration) -> ControlFlow<()>,
) -> Result<Vec<Row>> {
    let order = plan.order();
    let of = order.len() * arms.len();
    let (mut rows, mut measured) = (Vec::with_capacity(of), Duration::ZERO);
    for (number, (run, prompt)) in order.into_iter().enumerate() {
        for place in 0..arms.len() {
            // Each arm comes first, second and so on as often as the others.
            let arm = &mut arms[(place + number) % arms.len()];
            let began = Instant::now();
            let sample = arm
                .prime(prompt, store)
                .and_then(|()| arm.answer(&prompt.message(), plan.budget(prompt), &plan.sampling));
            if interrupt.is_set() {
                return Ok(rows);
            }
            let row = row(arm, prompt, run, &sample?);
            measured += began.elapsed();
            rows.push(row);
            let left = measured.div_f64(rows.len() as f64).mul_f64((of - rows.len()) as f64);
            if watch(&rows[rows.len() - 1], rows.len(), of, left).is_break() {
                return Ok(rows);
            }
        }
    }
    Ok(rows)
}

fn row(arm: &Arm, prompt: &Prompt, run: usize, sample: &Sample) -> Row {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let answer = &sample.answer;
    Row {
        arm: arm.setting.name.clone(),
        prompt: prompt.id.clone(),
        kind: prompt.kind.clone(),
        run,
        prompt_tokens: answer.prompt_tokens,
        cached_tokens: answer.cached_tokens,
        tokens: answer.tokens.len(),
        ttft_ms: ms(sample.ttft),
        prefill_ms: ms(answer.timings.prefill),
        decode_ms: ms(answer.timings.decode),
        sampling_ms: ms(answer.timings.sampling),
        itl_ms: sample.appeared.windows(2).map(|pair| ms(pair[1] - pair[0])).collect(),
        joules: sample.joules,
        finish: answer.finish,
        speculation: answer.speculation.as_ref().map(drafts),
        answer: answer.content.clone(),
        ids: answer.tokens.clone(),
    }
}

fn drafts(own: &Speculation) -> DraftReport {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    DraftReport {
        proposed: own.proposed,
        accepted: own.accepted,
        rounds: own.rounds,
        plain_rounds: own.plain_rounds,
        mean_accepted_length: own.mean_accepted_length(),
        by_position: own.by_position.clone(),
        lengths: own.lengths.clone(),
        draft_ms: ms(own.draft),
        verify_ms: ms(own.verify),
        policy_ms: ms(own.policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_take_turns_and_prompts_are_fresh_while_there_are_any() {
        let prompt = |id: &str, kind: &str| Prompt { id: id.into(), kind: kind.into(), ..Prompt::default() };
        let prompts = vec![prompt("a1", "a"), prompt("a2", "a"), prompt("b1", "b")];
        let plan = Plan { prompts, runs: 3, tokens: 1, sampling: Sampling::greedy() };
        let order: Vec<_> = plan.order().into_iter().map(|(run, prompt)| (run, prompt.id.as_str())).collect();
        assert_eq!(order, [(0, "a1"), (0, "b1"), (0, "a2"), (1, "b1"), (1, "a1"), (2, "b1")]);
        assert_eq!(plan.answers(4), 24);
    }
}
