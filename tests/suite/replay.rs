//! The policy of drafts against recorded answers, on machines with other costs: no model, no clock.
//!
//! tests/data/traces.jsonl has answers of qwen2.5-coder-1.5b (greedy) with what the 0.5B would have proposed at every
//! position and its confidence; scripts/bench/speculation records them. Costs are tables, in steps of the target.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use qchat::engine::{EngineError, Token};
use qchat::generate::draft::{
    Adaptive, At, Calibration, Costs, Drafter, Gaps, Judged, MOST_DRAFTED, MOST_ROWS, ModelDrafter, Ngram, Offer, Plan,
    Policy, Proposed, Source, Speculator, Step,
};
use qchat::sample::Sampling;

#[derive(serde::Deserialize)]
pub struct Trace {
    pub kind: String,
    pub prompt: Vec<Token>,
    pub answer: Vec<Token>,
    /// For each position of the answer: what the draft proposes behind it, with its confidence in thousandths.
    pub chains: Vec<Vec<(Token, u32)>>,
}

pub fn traces() -> Vec<Rc<Trace>> {
    let text = include_str!("../data/traces.jsonl");
    text.lines().map(|line| Rc::new(serde_json::from_str(line).unwrap())).collect()
}

/// How far chains were recorded.
pub const CHAIN: usize = 8;

/// Costs in milliseconds; a step of the target is 100.
#[derive(Clone)]
pub struct Machine {
    pub name: &'static str,
    /// The target's cost by rows, from 1; what lies between is interpolated.
    pub rows: &'static [(usize, f64)],
    pub draft: f64,
    /// The draft's cost of reading a token of a long text.
    pub read: f64,
}

/// Measured (shared/design/speculation.md and the README): the real pair with repacked weights and without, the 7B-like pair;
/// then what a GPU with eight rows for the price of one and a laptop without spare arithmetic would do.
pub const MACHINES: [Machine; 5] = [
    Machine {
        name: "real pair",
        rows: &[
            (1, 1.0),
            (2, 1.41),
            (3, 1.78),
            (4, 1.73),
            (5, 2.05),
            (6, 2.6),
            (8, 2.85),
            (12, 3.6),
            (16, 3.8),
            (17, 4.3),
        ],
        draft: 0.58,
        read: 0.06,
    },
    Machine {
        name: "not repacked",
        rows: &[(1, 1.0), (2, 1.43), (3, 1.82), (4, 2.26), (5, 2.61), (6, 2.98), (8, 3.5), (12, 3.9), (17, 3.8)],
        draft: 0.50,
        read: 0.06,
    },
    Machine {
        name: "7B-like",
        rows: &[(1, 1.0), (2, 1.41), (3, 1.96), (4, 1.63), (5, 2.08), (6, 2.36), (8, 3.0), (12, 3.6), (17, 4.2)],
        draft: 0.14,
        read: 0.023,
    },
    Machine { name: "GPU", rows: &[(1, 1.0), (8, 1.1), (9, 1.5), (17, 1.7)], draft: 0.25, read: 0.002 },
    Machine { name: "laptop", rows: &[(1, 1.0), (2, 1.9), (17, 12.0)], draft: 0.3, read: 0.2 },
];

impl Machine {
    pub fn verify(&self, rows: usize) -> f64 {
        let at = self.rows.iter().position(|(count, _)| *count >= rows).unwrap();
        let (above, high) = self.rows[at];
        if above == rows {
            return high;
        }
        let (below, low) = self.rows[at - 1];
        low + (high - low) * (rows - below) as f64 / (above - below) as f64
    }

    pub fn draft(&self, rows: usize) -> f64 {
        if rows <= MOST_ROWS { self.draft * self.verify(rows) } else { self.draft + self.read * rows as f64 }
    }

    pub fn calibrated(&self) -> Costs {
        let kept = Calibration {
            step_ms: 100.0,
            rows: (1..=MOST_ROWS).map(|rows| (self.verify(rows), 4.0)).collect(),
            draft: Some(self.draft),
            read: Some(self.read),
        };
        Costs::from_calibration(&kept, self.draft)
    }
}

pub fn ms(steps: f64) -> Duration {
    Duration::from_secs_f64(steps / 10.0)
}

/// A draft model that proposes what was recorded.
pub struct Recorded {
    /// The one that is played now.
    trace: Rc<RefCell<Rc<Trace>>>,
    machine: Machine,
    /// The tokens that its KV holds.
    held: Vec<Token>,
}

impl Recorded {
    pub fn new(trace: &Rc<RefCell<Rc<Trace>>>, machine: &Machine) -> Self {
        Self { trace: Rc::clone(trace), machine: machine.clone(), held: Vec::new() }
    }

    /// Tokens to read; what is passed over counts as held.
    fn unread(&mut self, at: &At) -> usize {
        let shared = self.held.iter().zip(&at.tokens[..at.tokens.len() - 1]).take_while(|(a, b)| a == b).count();
        self.held.truncate(shared);
        at.tokens.len() - shared - Gaps::next(at, shared).map_or(0, |gap| gap.len())
    }
}

impl Drafter for Recorded {
    fn source(&self) -> Source {
        Source::Model
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        Some(Offer::Steps { most, unread: self.unread(at), load: Duration::ZERO })
    }

    fn draft(
        &mut self,
        at: &At,
        most: usize,
        go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        into: &mut Vec<Proposed>,
        steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        let position = at.tokens.len() - at.prompt_len - 1;
        let mut unread = self.unread(at);
        self.held = at.tokens.to_vec();
        let trace = Rc::clone(&self.trace.borrow());
        let chain = &trace.chains[position];
        // Recording stopped two tokens behind a wrong one: what would have followed is as wrong.
        let padded = chain.iter().chain(chain.last().into_iter().cycle());
        for (token, confidence) in padded.take(most.min(CHAIN)) {
            steps.push(Step { rows: unread, time: ms(self.machine.draft(unread)) });
            into.push(Proposed { token: *token, class: ModelDrafter::class(*confidence as f32 / 1000.0) });
            if !go_on(into) {
                break;
            }
            self.held.push(*token);
            unread = 1;
        }
        Ok(())
    }
}

/// Steps that a speculator takes for one answer.
pub fn replay(speculator: &mut Speculator, trace: &Trace, machine: &Machine, begins: bool) -> f64 {
    if begins {
        speculator.begin(&Sampling::greedy(), 4096, trace.answer.len());
    }
    let mut steps = 0.0;
    let mut done = 1;
    while done < trace.answer.len() {
        let tokens: Vec<Token> = trace.prompt.iter().chain(&trace.answer[..done]).copied().collect();
        let before = speculator.speculation().draft.as_secs_f64();
        let at = At { tokens: &tokens, prompt_len: trace.prompt.len() };
        let draft: Vec<Token> =
            speculator.propose(&at, trace.answer.len() - done - 1).iter().map(|own| own.token).collect();
        let accepted = draft.iter().zip(&trace.answer[done..]).take_while(|(a, b)| a == b).count();
        let rows = draft.len() + 1;
        let cost = machine.verify(rows);
        speculator.judged(Judged { accepted, emitted: accepted + 1 }, rows, ms(cost));
        steps += cost + (speculator.speculation().draft.as_secs_f64() - before) * 10.0;
        done += accepted + 1;
    }
    steps
}

/// As the fixed settings of scripts/bench/speculation: the first drafter with an offer, always so many tokens.
pub struct Fixed(pub Vec<usize>);

impl Policy for Fixed {
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        let drafter = offers.iter().position(Option::is_some)?;
        Some(Plan { drafter, most: self.0[drafter].min(most) })
    }
}

const FIXED: [&str; 13] = [
    "off", "model1", "model2", "model3", "model4", "model5", "model6", "model7", "model8", "ngram3", "ngram7",
    "ngram15", "both",
];

fn speculator(setting: &str, trace: &Rc<RefCell<Rc<Trace>>>, machine: &Machine) -> Speculator {
    let model = || -> Box<dyn Drafter> { Box::new(Recorded::new(trace, machine)) };
    let ngram = || -> Box<dyn Drafter> { Box::new(Ngram::default()) };
    let length = setting.trim_start_matches(char::is_alphabetic).parse().unwrap_or(0);
    match setting.trim_end_matches(char::is_numeric) {
        "model" => Speculator::new(vec![model()], Box::new(Fixed(vec![length]))),
        "ngram" => Speculator::new(vec![ngram()], Box::new(Fixed(vec![length]))),
        "both" => Speculator::new(vec![ngram(), model()], Box::new(Fixed(vec![7, 3]))),
        "off" => Speculator::new(Vec::new(), Box::new(Fixed(Vec::new()))),
        // Nothing was measured on this machine yet.
        "new" => Speculator::new(vec![ngram(), model()], Box::new(adaptive(Costs::expected(machine.draft)))),
        _ => Speculator::new(vec![ngram(), model()], Box::new(adaptive(machine.calibrated()))),
    }
}

fn adaptive(costs: Costs) -> Adaptive {
    Adaptive::new(vec![Source::Ngram, Source::Model], costs, MOST_DRAFTED)
}

fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// What a setting gains over plain decoding in answers that follow each other, each the beginning of a new one where
/// `begins`, else one text that changes its kind.
fn gain(setting: &str, answers: &[Rc<Trace>], machine: &Machine, begins: bool) -> f64 {
    let plain: usize = answers.iter().map(|trace| trace.answer.len() - 1).sum();
    let playing = Rc::new(RefCell::new(Rc::clone(&answers[0])));
    let mut speculator = speculator(setting, &playing, machine);
    speculator.begin(&Sampling::greedy(), 4096, plain + answers.len());
    let play = |trace: &Rc<Trace>| {
        playing.replace(Rc::clone(trace));
        replay(&mut speculator, trace, machine, begins)
    };
    plain as f64 / answers.iter().map(play).sum::<f64>()
}

/// Gains of one trace: of `policy` and of each fixed setting.
fn gains(policy: &str, trace: &Rc<Trace>, machine: &Machine) -> (f64, Vec<f64>) {
    let gain = |setting: &str| gain(setting, std::slice::from_ref(trace), machine, true);
    (gain(policy), FIXED.iter().map(|setting| gain(setting)).collect())
}

#[test]
#[allow(clippy::print_stdout, reason = "`-- --nocapture replay` shows the table")]
fn the_policy_is_near_the_best_choice_by_hindsight_and_never_below_plain() {
    let traces = traces();
    let mut kinds: Vec<&str> = traces.iter().map(|trace| trace.kind.as_str()).collect();
    kinds.dedup();
    for machine in &MACHINES {
        let all: Vec<_> = traces.iter().map(|trace| gains("policy", trace, machine)).collect();
        let regret = |(policy, fixed): &(f64, Vec<f64>)| policy / fixed.iter().copied().fold(0.0, f64::max);
        println!("{}", machine.name);
        for kind in &kinds {
            let own = || traces.iter().zip(&all).filter(|(trace, _)| trace.kind == *kind).map(|(_, gains)| gains);
            let policy = geometric_mean(own().map(|gains| gains.0));
            let best = geometric_mean(own().map(|gains| gains.1.iter().copied().fold(0.0, f64::max)));
            let fixed: Vec<String> =
                (0..FIXED.len()).map(|at| format!("{:.2}", geometric_mean(own().map(|gains| gains.1[at])))).collect();
            println!("  {kind:12} policy {policy:.3}  best {best:.3}  | {}", fixed.join(" "));
            assert!(policy > 0.97, "{}: {kind}: {policy}", machine.name);
        }
        let total = geometric_mean(all.iter().map(|gains| gains.0));
        let share = geometric_mean(all.iter().map(regret));
        let least = all.iter().map(|gains| gains.0).fold(f64::MAX, f64::min);
        println!("  gain {total:.3}, of the best by hindsight {share:.3}, least {least:.3}");
        assert!(share > 0.95, "{}: {share}", machine.name);
        assert!(least > 0.955, "{}: {least}", machine.name);
    }
}

/// Talks that go through all kinds, one answer of each.
fn mixed_talks() -> Vec<Vec<Rc<Trace>>> {
    let traces = traces();
    let mut kinds: Vec<&str> = traces.iter().map(|trace| trace.kind.as_str()).collect();
    kinds.dedup();
    let of_kind = |kind: &str, number: usize| traces.iter().filter(|trace| trace.kind == kind).nth(number).cloned();
    (0..3).map(|number| kinds.iter().filter_map(|kind| of_kind(kind, number)).collect()).collect()
}

#[test]
#[allow(clippy::print_stdout, reason = "`-- --nocapture replay` shows the table")]
fn the_policy_beats_every_fixed_setting_where_kinds_are_mixed_in_one_talk() {
    let talks = mixed_talks();
    assert!(talks.iter().all(|talk| talk.len() == 7));
    for machine in &MACHINES {
        for begins in [false, true] {
            let total = |setting: &str| geometric_mean(talks.iter().map(|talk| gain(setting, talk, machine, begins)));
            let (policy, fixed) = (total("policy"), FIXED.map(total));
            let best = (0..FIXED.len()).max_by(|a, b| fixed[*a].total_cmp(&fixed[*b])).unwrap();
            let ratio = policy / fixed[best];
            println!(
                "{} (begins: {begins}): policy {policy:.3}, best {} {:.3}, ratio {ratio:.3}",
                machine.name, FIXED[best], fixed[best]
            );
            if ["real pair", "7B-like", "GPU"].contains(&machine.name) {
                assert!(ratio > 1.0, "{}: {ratio}", machine.name);
            }
            assert!(ratio > 0.95 && policy > 0.97, "{}: {ratio}, {policy}", machine.name);
        }
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "`-- --nocapture replay` shows the table")]
fn on_a_new_machine_the_policy_learns_within_an_answer() {
    let traces = traces();
    let mut kinds: Vec<&str> = traces.iter().map(|trace| trace.kind.as_str()).collect();
    kinds.dedup();
    for machine in &MACHINES {
        let all: Vec<_> = traces.iter().map(|trace| gains("new", trace, machine)).collect();
        let share = geometric_mean(all.iter().map(|(own, fixed)| own / fixed.iter().copied().fold(0.0, f64::max)));
        let of_kind = |kind: &str| {
            let own = traces.iter().zip(&all).filter(|(trace, _)| trace.kind == kind);
            geometric_mean(own.map(|(_, gains)| gains.0))
        };
        let by_kind: Vec<f64> = kinds.iter().map(|kind| of_kind(kind)).collect();
        println!("{}: of the best by hindsight {share:.3}, by kind {by_kind:.3?}", machine.name);
        // Where drafts are cheaper than expected, they are not tried on the kinds that promise least; where they are much
        // dearer, the first ones are paid for.
        let (least_share, least) = match machine.name {
            "7B-like" => (0.85, 0.95),
            "GPU" => (0.8, 0.95),
            "laptop" => (0.95, 0.92),
            _ => (0.93, 0.95),
        };
        assert!(share >= least_share, "{}: {share}", machine.name);
        assert!(by_kind.iter().all(|gain| *gain >= least), "{}: {by_kind:.3?}", machine.name);
    }
}
