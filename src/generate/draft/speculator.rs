//! Lets drafters compete for each round of an answer, and keeps the account of it.

use std::time::{Duration, Instant};

use super::super::cached::End;
use super::{At, Costs, Drafter, DrafterStats, MOST_DRAFTED, Policy, Proposed, Round, Speculation, Step};
use crate::engine::EngineError;
use crate::sample::Sampling;

/// Rounds without a draft after which drafting counts as switched off.
const OFF_AFTER: usize = 8;

/// What the target said of a draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Proposals that it agreed with, from the first on.
    pub accepted: usize,
    /// Tokens emitted.
    pub emitted: usize,
}

/// Drafters and the policy that chooses between them.
pub struct Speculator {
    drafters: Vec<Option<Box<dyn Drafter>>>,
    policy: Box<dyn Policy>,
    proposed: Vec<Proposed>,
    by: Option<usize>,
    steps: Vec<Step>,
    plain_in_a_row: usize,
    stats: Speculation,
}

impl Speculator {
    pub fn new(drafters: Vec<Box<dyn Drafter>>, policy: Box<dyn Policy>) -> Self {
        Self {
            drafters: drafters.into_iter().map(Some).collect(),
            policy,
            proposed: Vec::new(),
            by: None,
            steps: Vec::new(),
            plain_in_a_row: 0,
            stats: Speculation::default(),
        }
    }

    /// A new answer begins: how the target samples, how large its context is, how many tokens it may emit.
    pub fn begin(&mut self, sampling: &Sampling, n_ctx: usize, budget: usize) {
        self.policy.begin(budget);
        self.plain_in_a_row = 0;
        self.stats = Speculation { lengths: vec![0; MOST_DRAFTED + 1], ..Speculation::default() };
        for drafter in self.drafters.iter_mut().flatten() {
            drafter.begin(sampling, n_ctx);
            self.stats.by_drafter.push((drafter.source(), DrafterStats::default()));
        }
    }

    /// Saves what drafters have read of the first `upto` tokens.
    pub fn save(&mut self, upto: usize) {
        self.drafters.iter_mut().flatten().for_each(|drafter| drafter.save(upto));
    }

    /// The last blocks of what drafters saved.
    pub fn take_ends(&mut self) -> Vec<End> {
        self.drafters.iter_mut().flatten().flat_map(|drafter| drafter.take_ends()).collect()
    }

    /// So many rows of other turns are evaluated together with those of this one.
    pub fn beside(&mut self, rows: usize) {
        self.policy.beside(rows);
    }

    /// A round in which there is nothing to draft for.
    pub fn pass(&mut self) {
        self.proposed.clear();
        self.steps.clear();
        self.by = None;
    }

    /// Cuts the proposal at the first token beyond the target's vocabulary.
    pub fn keep_below(&mut self, tokens: usize) -> &[Proposed] {
        let known = self.proposed.iter().take_while(|own| own.token.index() < tokens).count();
        self.proposed.truncate(known);
        &self.proposed
    }

    /// Cuts the proposal after so many tokens.
    pub fn keep_first(&mut self, tokens: usize) -> &[Proposed] {
        self.proposed.truncate(tokens);
        &self.proposed
    }

    /// Notes that no draft can be judged, and why.
    pub fn blocked(&mut self, why: &'static str) {
        self.stats.blocked = Some(why);
    }

    /// What the target should judge behind the pending token, at most `most` tokens.
    pub fn propose(&mut self, at: &At, most: usize) -> &[Proposed] {
        let began = Instant::now();
        self.pass();
        let most = most.min(MOST_DRAFTED);
        if most > 0 {
            let offers: Vec<_> = self.drafters.iter_mut().map(|drafter| drafter.as_mut()?.offer(at, most)).collect();
            for (drafter, _) in self.drafters.iter().zip(&offers).filter(|(_, offer)| offer.is_some()) {
                let source = drafter.as_ref().map(|drafter| drafter.source());
                if let Some((_, own)) = self.stats.by_drafter.iter_mut().find(|(by, _)| Some(*by) == source) {
                    own.offers += 1;
                }
            }
            if let Some(plan) = self.policy.plan(&offers, most) {
                self.by = Some(plan.drafter);
                match offers.into_iter().nth(plan.drafter).flatten() {
                    Some(super::Offer::Free(mut proposed)) => {
                        proposed.truncate(plan.most);
                        self.proposed = proposed;
                    }
                    Some(super::Offer::Steps { .. }) => self.draft(plan.drafter, at, plan.most),
                    None => self.by = None,
                }
            }
        }
        let drafting: Duration = self.steps.iter().map(|step| step.time).sum();
        self.stats.policy += began.elapsed().saturating_sub(drafting);
        &self.proposed
    }

    fn draft(&mut self, drafter: usize, at: &At, most: usize) {
        let Some(own) = self.drafters[drafter].as_mut() else { return };
        let policy = &mut self.policy;
        let mut go_on = |proposed: &[Proposed]| proposed.len() < most && policy.go_on(proposed);
        let drafted = own.draft(at, most, &mut go_on, &mut self.proposed, &mut self.steps);
        match drafted {
            Ok(()) => {
                let keep = self.policy.keep(&self.proposed);
                self.proposed.truncate(keep);
            }
            Err(error) => {
                self.proposed.clear();
                if error != EngineError::Aborted {
                    // The answer goes on without it.
                    self.stats.lost = Some(error.to_string());
                    self.drafters[drafter] = None;
                }
            }
        }
    }

    /// Takes in what the target said of the last proposal (of nothing, in a plain round) and how long `rows` rows took it.
    pub fn judged(&mut self, judged: Judged, rows: usize, verify: Duration) {
        let drafted = &self.proposed;
        let stats = &mut self.stats;
        stats.emitted += judged.emitted;
        stats.verify += verify;
        for step in &self.steps {
            stats.draft += step.time;
            if step.rows == 0 || step.rows > super::MOST_ROWS {
                stats.draft_read += step.time;
            }
        }
        if let Some(count) = stats.lengths.get_mut(drafted.len()) {
            *count += 1;
        }
        if drafted.is_empty() {
            stats.plain_rounds += 1;
            self.plain_in_a_row += 1;
            if self.plain_in_a_row == OFF_AFTER && stats.rounds > 0 {
                stats.switched_off += 1;
            }
        } else {
            self.plain_in_a_row = 0;
            stats.rounds += 1;
            stats.proposed += drafted.len();
            stats.accepted += judged.accepted;
            stats.emitted_drafting += judged.emitted;
            stats.by_position.resize(stats.by_position.len().max(drafted.len()), (0, 0));
            for (position, (proposed, accepted)) in stats.by_position.iter_mut().take(drafted.len()).enumerate() {
                *proposed += 1;
                *accepted += usize::from(position < judged.accepted);
            }
            let source = self.by.and_then(|by| Some(self.drafters[by].as_ref()?.source()));
            if let Some((_, own)) = stats.by_drafter.iter_mut().find(|(by, _)| Some(*by) == source) {
                own.rounds += 1;
                own.proposed += drafted.len();
                own.accepted += judged.accepted;
            }
        }
        self.policy.learn(&Round {
            drafter: self.by,
            proposed: drafted,
            accepted: judged.accepted,
            emitted: judged.emitted,
            steps: &self.steps,
            rows,
            verify,
        });
        self.steps.clear();
    }

    /// The account of the answer so far.
    pub fn speculation(&self) -> Speculation {
        let costs = self.policy.costs();
        let step_ms = costs.map_or(0.0, Costs::unit_ms);
        Speculation { step_ms, costs: costs.map(Costs::calibration), ..self.stats.clone() }
    }

    /// What the policy knows about costs.
    pub fn costs(&self) -> Option<&Costs> {
        self.policy.costs()
    }

    /// Hands measured costs to the policy.
    pub fn calibrate(&mut self, costs: Costs) {
        self.policy.calibrate(costs);
    }
}
