//! The policy: each round the drafter and the length with the most tokens a second, by measured costs and learned chances;
//! nobody where nothing beats a plain step.
//!
//! Everything is counted in plain steps of the target: a round that emits E tokens and costs T steps is worth E / T. While
//! a model drafts, one more token is drafted where what it may add is worth more than it costs at that rate (Dinkelbach's
//! rule for the best ratio). What drafting has lost so far is kept count of, and in debt the policy doubts more.

use std::time::Duration;

use super::acceptance::Record;
use super::{Costs, MOST_DRAFTED, MOST_ROWS, ModelDrafter, Ngram, Offer, Plan, Policy, Proposed, Round, Source};

/// Chances before anything is known of a text: n-gram drafts by match length, model drafts by the draft's confidence.
/// From the traces of tests/data/traces, all kinds of prompts alike.
const NGRAM_PRIORS: [f64; Ngram::CLASSES] = [0.15, 0.42, 0.45, 0.65, 0.8, 0.85, 0.85, 0.85, 0.86, 0.9, 0.95, 0.985];
const MODEL_PRIORS: [f64; ModelDrafter::CLASSES] = [0.3, 0.5, 0.7, 0.78, 0.88, 0.94, 0.97, 0.995];
const MODEL_MEAN: f64 = 0.83;
const NGRAM_MEAN: f64 = 0.6;

/// Standard deviations by which chances are doubted: always a little, since a draft that pays shows it soon, and more in debt.
const CAUTION: f64 = -0.6;
const DOUBT: f64 = -1.5;
/// Debt begins when more steps than this are lost, and more than this share of the tokens emitted.
const CREDIT: f64 = 1.0;
const CREDIT_SHARE: f64 = 0.01;
/// The share of the tokens emitted that may be lost by reading what a draft has missed, to try it again.
const READING_SHARE: f64 = 0.02;
/// A draft reads a long text once what it would have saved so far is this share of what the reading costs: an answer that
/// repeats its prompt shows within a few tokens that it can do without.
const SAVED_FIRST: f64 = 0.1;
/// How many times over a reading must be expected to pay: the draft may turn out worse than hoped.
const MARGIN: f64 = 1.5;
/// Tokens that a draft has not seen after a round that it drafted for: the pending one, and its own last after a full
/// acceptance.
const USUALLY_UNREAD: usize = 2;
/// An answer is expected to go on for as long as it has been going on, and at least this many tokens.
const LEAST_EXPECTED: f64 = 48.0;

/// Chooses by measured costs and learned chances.
#[derive(Clone, Debug)]
pub struct Adaptive {
    sources: Vec<Source>,
    costs: Costs,
    cap: usize,
    /// Rows of other turns in each evaluation.
    beside: usize,
    ngram: Record,
    model: Record,
    /// Tokens that this answer may still emit, and has.
    left: usize,
    emitted: f64,
    /// Steps won by drafting so far (lost: negative).
    balance: f64,
    /// The rate and the length of the round in progress.
    rate: f64,
    most: usize,
    by: Source,
    /// Steps that a draft which has not read the text yet would have saved, and would save with each token of this round.
    missed: f64,
    missing: f64,
    /// Whether a draft has read the text of this answer.
    has_read: bool,
    /// The cost of the round beyond the usual: loading and reading, an investment that is not held against a draft.
    invested: f64,
}

impl Adaptive {
    /// For drafters of these kinds, in their order; at most `cap` tokens are drafted at once.
    pub fn new(sources: Vec<Source>, costs: Costs, cap: usize) -> Self {
        Self {
            sources,
            costs,
            cap: cap.min(MOST_DRAFTED),
            beside: 0,
            ngram: Record::new(&NGRAM_PRIORS, NGRAM_MEAN),
            model: Record::new(&MODEL_PRIORS, MODEL_MEAN),
            left: usize::MAX,
            emitted: 0.0,
            balance: 0.0,
            rate: 1.0,
            most: 0,
            by: Source::Ngram,
            has_read: false,
            missed: 0.0,
            missing: 0.0,
            invested: 0.0,
        }
    }

    fn record(&self, source: Source) -> &Record {
        match source {
            Source::Ngram => &self.ngram,
            Source::Model => &self.model,
        }
    }

    fn in_debt(&self) -> bool {
        self.balance < -(CREDIT + CREDIT_SHARE * self.emitted)
    }

    fn leaning(&self) -> f64 {
        if self.in_debt() { DOUBT } else { CAUTION }
    }

    /// Tokens a step, of all turns together, beside what they make without a draft: where this one emits so many from so
    /// many rows.
    fn rate_of(&self, tokens: f64, rows: usize) -> f64 {
        let others = self.beside as f64;
        let plain = (others + 1.0) / self.costs.verify(self.beside + 1);
        (others + tokens) / self.costs.verify(self.beside + rows) / plain
    }

    /// The best rate of a draft that costs nothing, and its length.
    fn free(&self, source: Source, proposed: &[Proposed], most: usize) -> (f64, usize) {
        let (record, leaning) = (self.record(source), self.leaning());
        let (mut tokens, mut reached) = (1.0, 1.0);
        let mut best = (1.0, 0);
        for (i, token) in proposed.iter().take(most).enumerate() {
            reached *= record.chance(token.class, leaning);
            tokens += reached;
            let rate = self.rate_of(tokens, i + 2);
            if rate > best.0 {
                best = (rate, i + 1);
            }
        }
        best
    }

    /// The best rate of a draft by steps behind `unread` tokens that are read with its first step.
    fn stepped(&self, source: Source, unread: usize, most: usize) -> f64 {
        let chance = self.record(source).chance_of_any(self.leaning());
        let (mut tokens, mut reached, mut drafting) = (1.0, 1.0, self.costs.draft(unread));
        let mut best = 0.0f64;
        for length in 1..=most {
            reached *= chance;
            tokens += reached;
            best = best.max(tokens / (drafting + self.costs.verify(length + 1)));
            drafting += self.costs.draft(1);
        }
        best
    }

    /// Tokens that the answer is expected to go on for.
    fn expected(&self) -> f64 {
        self.emitted.max(LEAST_EXPECTED).min(self.left as f64)
    }

    fn reached(&self, proposed: &[Proposed]) -> f64 {
        let record = self.record(self.by);
        proposed.iter().map(|token| record.chance(token.class, 0.0)).product()
    }
}

impl Policy for Adaptive {
    fn begin(&mut self, budget: usize) {
        self.left = budget;
        self.emitted = 0.0;
        self.balance = 0.0;
        self.missed = 0.0;
        self.has_read = false;
        self.ngram.new_text();
        self.model.new_text();
    }

    fn beside(&mut self, rows: usize) {
        self.beside = rows;
    }

    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        self.rate = 1.0;
        self.invested = 0.0;
        self.missing = 0.0;
        if self.costs.unit_ms() <= 0.0 {
            // The first round of all is plain: it says what a step costs.
            return None;
        }
        // Costs of more rows than these are not known.
        let most = most.min(self.cap).min(MOST_ROWS.saturating_sub(self.beside + 1));
        let mut plan = None;
        for (drafter, offer) in offers.iter().enumerate() {
            if let Some(Offer::Free(proposed)) = offer {
                let (rate, length) = self.free(self.sources[drafter], proposed, most);
                if rate > self.rate {
                    self.rate = rate;
                    plan = Some(Plan { drafter, most: length });
                }
            }
        }
        for (drafter, offer) in offers.iter().enumerate() {
            let Some(Offer::Steps { most: offered, unread, load }) = offer else { continue };
            let most = most.min(*offered);
            // A round reads what the last one emitted; more than that is read once.
            let short = (*unread).min(USUALLY_UNREAD);
            let rate = self.stepped(self.sources[drafter], short, most);
            let investment = self.costs.steps(*load) + self.costs.draft(*unread) - self.costs.draft(short);
            let saved = 1.0 / self.rate - 1.0 / rate;
            // Trying again costs most by reading what was missed.
            let may_read = self.balance - investment > -(CREDIT + READING_SHARE * self.emitted) || !self.has_read;
            let pays = MARGIN * investment < saved * self.expected() && self.missed >= SAVED_FIRST * investment;
            if saved > 0.0 && pays && may_read {
                self.rate = rate;
                self.invested = investment;
                plan = Some(Plan { drafter, most });
            } else {
                self.missing = saved.max(0.0);
            }
        }
        if let Some(plan) = plan {
            self.by = self.sources[plan.drafter];
            self.most = plan.most;
        }
        plan
    }

    fn go_on(&mut self, proposed: &[Proposed]) -> bool {
        let drafted = proposed.len();
        let mut reached = self.reached(proposed);
        let chance = self.record(self.by).chance_of_any(0.0);
        let (mut gain, mut cost) = (0.0, 0.0);
        (drafted + 1..=self.most).any(|length| {
            reached *= chance;
            gain += reached;
            cost += self.costs.draft(1);
            gain > self.rate * (cost + self.costs.verify(length + 1) - self.costs.verify(drafted + 1))
        })
    }

    fn keep(&mut self, proposed: &[Proposed]) -> usize {
        let mut best = (-self.rate * self.costs.verify(1), 0);
        let mut gain = 0.0;
        for length in 1..=proposed.len() {
            gain += self.reached(&proposed[..length]);
            let worth = gain - self.rate * self.costs.verify(length + 1);
            if worth > best.0 {
                best = (worth, length);
            }
        }
        if best.1 == 0 {
            match self.by {
                Source::Ngram => self.ngram.learn_unjudged(proposed),
                Source::Model => self.model.learn_unjudged(proposed),
            }
        }
        best.1
    }

    fn learn(&mut self, round: &Round) {
        self.costs.saw_draft(round.steps);
        self.costs.saw_target(round.rows, round.verify);
        self.costs.fade();
        self.ngram.fade();
        self.model.fade();
        self.left = self.left.saturating_sub(round.emitted);
        self.emitted += round.emitted as f64;
        self.missed += self.missing * round.emitted as f64;
        let Some(drafter) = round.drafter else { return };
        let drafted: Duration = round.steps.iter().map(|step| step.time).sum();
        let cost = self.costs.steps(drafted + round.verify);
        // The first reading of an answer is no loss of the drafts that follow; a later one is what trying again cost.
        let spared = if self.has_read { 0.0 } else { self.invested };
        self.has_read |= self.invested > 0.0;
        // What the other turns cost is not held against this one's draft.
        let plain = self.costs.verify(self.beside + 1);
        let token = plain / (self.beside + 1) as f64;
        if round.rows > 0 {
            self.balance += (round.emitted as f64 - 1.0) * token - (cost - spared - plain).max(0.0);
        }
        match self.sources[drafter] {
            Source::Ngram => self.ngram.learn(round.proposed, round.accepted),
            Source::Model => self.model.learn(round.proposed, round.accepted),
        }
    }

    fn costs(&self) -> Option<&Costs> {
        Some(&self.costs)
    }

    fn calibrate(&mut self, costs: Costs) {
        self.costs = costs;
    }
}
