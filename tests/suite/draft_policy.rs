//! What the policy decides on machines whose costs are written by hand: no clock, no model.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use qchat::engine::Token;
use qchat::generate::draft::{
    Adaptive, Costs, Drafter, MOST_DRAFTED, MOST_ROWS, Ngram, Offer, Plan, Policy, Proposed, Round, Source, Speculator,
    Step,
};
use qchat::sample::Sampling;

use super::drafts::Dice;
use super::replay::{CHAIN, MACHINES, Machine, Recorded, Trace, ms, replay, traces};

/// A policy that a test looks at, and that a clock may deceive.
struct Watched {
    policy: Adaptive,
    rounds: Rc<RefCell<Vec<Seen>>>,
    /// What is measured is so much too long or too short at most; every sixtieth time ten times as long.
    noise: f64,
    dice: Dice,
}

/// A round: tokens emitted before it, tokens drafted and emitted in it, its cost in steps.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: usize,
    drafted: usize,
    emitted: usize,
    cost: f64,
}

impl Watched {
    fn measured(&mut self, time: Duration) -> Duration {
        if self.noise == 0.0 {
            return time;
        }
        let hiccup = if self.dice.below(60) == 0 { 10.0 } else { 1.0 };
        time.mul_f64(hiccup * (1.0 + self.noise * (2.0 * self.dice.share() - 1.0)))
    }
}

impl Policy for Watched {
    fn begin(&mut self, budget: usize) {
        self.policy.begin(budget);
    }

    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        self.policy.plan(offers, most)
    }

    fn go_on(&mut self, proposed: &[Proposed]) -> bool {
        self.policy.go_on(proposed)
    }

    fn keep(&mut self, proposed: &[Proposed]) -> usize {
        self.policy.keep(proposed)
    }

    fn learn(&mut self, round: &Round) {
        let drafting: Duration = round.steps.iter().map(|step| step.time).sum();
        let at = self.rounds.borrow().last().map_or(0, |last| last.at + last.emitted);
        let cost = (round.verify + drafting).as_secs_f64() * 10.0;
        self.rounds.borrow_mut().push(Seen { at, drafted: round.proposed.len(), emitted: round.emitted, cost });
        let measured = |step: &Step| Step { rows: step.rows, time: self.measured(step.time) };
        let steps: Vec<Step> = round.steps.iter().map(measured).collect();
        let verify = self.measured(round.verify);
        self.policy.learn(&Round { steps: &steps, verify, ..*round });
    }

    fn costs(&self) -> Option<&Costs> {
        self.policy.costs()
    }
}

/// A text in which a draft knows each token with the chance of its place; what it thinks of its chance says nothing.
fn text(prompt: usize, len: usize, chance: impl Fn(usize) -> f64) -> Trace {
    told(prompt, len, |at| (chance(at), 0.85))
}

/// The same with the draft's confidence at each place.
fn told(prompt: usize, len: usize, chance: impl Fn(usize) -> (f64, f64)) -> Trace {
    let mut dice = Dice(4);
    let tokens = |count: usize, dice: &mut Dice| (0..count).map(|_| Token(dice.below(1 << 30) as i32)).collect();
    let (prompt, answer): (Vec<Token>, Vec<Token>) = (tokens(prompt, &mut dice), tokens(len, &mut dice));
    let mut drafted = |at: usize| {
        let (chance, confidence) = chance(at);
        let token = if dice.share() < chance { answer[at] } else { Token(-1) };
        (token, (confidence * 1000.0) as u32)
    };
    let draft: Vec<(Token, u32)> = (0..len).map(&mut drafted).collect();
    let chains = (0..len).map(|i| draft[i + 1..len.min(i + 1 + CHAIN)].to_vec()).collect();
    Trace { kind: "made up".into(), prompt, answer, chains }
}

struct Play {
    speculator: Speculator,
    rounds: Vec<Seen>,
    /// Steps in all.
    cost: f64,
}

/// The answer of `text` on a machine, with the draft and n-grams, and what the policy believes of costs before.
fn play(text: Trace, machine: &Machine, costs: Costs, noise: f64) -> Play {
    let rounds = Rc::default();
    let policy = Adaptive::new(vec![Source::Ngram, Source::Model], costs, MOST_DRAFTED);
    let watched = Watched { policy, rounds: Rc::clone(&rounds), noise, dice: Dice(8) };
    let playing = Rc::new(RefCell::new(Rc::new(text)));
    let drafters: Vec<Box<dyn Drafter>> = vec![Box::new(Ngram::default()), Box::new(Recorded::new(&playing, machine))];
    let mut speculator = Speculator::new(drafters, Box::new(watched));
    let text = Rc::clone(&playing.borrow());
    let cost = replay(&mut speculator, &text, machine, true);
    let rounds = rounds.take();
    Play { speculator, rounds, cost }
}

fn known(text: Trace, machine: &Machine) -> Play {
    play(text, machine, machine.calibrated(), 0.0)
}

const SHARP: Machine = Machine {
    name: "groups of four rows",
    rows: &[(1, 1.0), (2, 1.5), (3, 2.1), (4, 1.6), (5, 2.7), (6, 3.2), (8, 3.9), (17, 8.0)],
    draft: 0.1,
    read: 0.01,
};

#[test]
fn where_rows_cost_more_than_steps_nothing_is_drafted() {
    // V(2) = 2.5: two tokens at most for two and a half steps, and no better further on.
    let machine = Machine { name: "no gain", rows: &[(1, 1.0), (2, 2.5), (17, 21.25)], draft: 0.01, read: 0.001 };
    let certain = known(text(50, 400, |_| 1.0), &machine);
    // N-grams that are always right, too.
    let repeated: Vec<Token> = (0..400).map(|i| Token(i % 7)).collect();
    let chains = vec![Vec::new(); 400];
    let ngrams = known(Trace { kind: "again".into(), prompt: repeated.clone(), answer: repeated, chains }, &machine);
    for play in [certain, ngrams] {
        let own = play.speculator.speculation();
        assert_eq!((own.rounds, own.plain_rounds), (0, 399), "{:?}", own.lengths);
    }
    // A length that does not pay is passed over for longer ones that do.
    let machine =
        Machine { name: "dear pairs", rows: &[(1, 1.0), (2, 2.5), (3, 2.5), (17, 3.0)], draft: 0.05, ..SHARP };
    let own = known(text(50, 400, |_| 0.95), &machine).speculator.speculation();
    assert!(own.rounds > 50 && own.lengths[1] == 0, "{:?}", own.lengths);
}

#[test]
fn the_length_follows_the_steps_of_the_cost_table() {
    // Four rows are cheaper than three, and five are much dearer.
    let own = known(text(50, 600, |_| 0.85), &SHARP).speculator.speculation();
    assert!(own.lengths[3] * 10 > own.rounds * 8, "{:?}", own.lengths);
    assert_eq!((own.lengths[2], own.lengths[4]), (0, 0), "{:?}", own.lengths);
    // The same text where eight rows cost little more than one, and nine do.
    let gpu = Machine { draft: 0.05, ..MACHINES[3].clone() };
    let own = known(text(50, 600, |_| 0.85), &gpu).speculator.speculation();
    assert!(own.lengths[7] * 10 > own.rounds * 7, "{:?}", own.lengths);
}

/// After how many plain tokens of an answer of at most `budget` a draft begins that has `unread` tokens to read, for `read`
/// steps each, and takes `load` milliseconds (a hundredth of a step each) to load.
fn begins_after(read: f64, unread: usize, load: u64, budget: usize) -> Option<usize> {
    let machine = Machine { draft: 0.05, read, ..MACHINES[2].clone() };
    let mut policy = Adaptive::new(vec![Source::Model], machine.calibrated(), MOST_DRAFTED);
    policy.begin(budget);
    let offer = [Some(Offer::Steps { most: MOST_DRAFTED, unread, load: Duration::from_millis(load) })];
    (0..budget).find(|_| {
        let begins = policy.plan(&offer, MOST_DRAFTED).is_some();
        let plain =
            Round { drafter: None, proposed: &[], accepted: 0, emitted: 1, steps: &[], rows: 1, verify: ms(1.0) };
        policy.learn(&plain);
        begins
    })
}

#[test]
fn a_long_prompt_is_read_with_the_draft_only_where_that_pays() {
    // 2,000 tokens for the price of ten steps: not for 20 more tokens, but soon for 2,000.
    assert_eq!(begins_after(0.005, 2000, 0, 20), None);
    assert!(begins_after(0.005, 2000, 0, 2000).unwrap() < 48);
    assert!(begins_after(0.005, 20, 0, 20).unwrap() < 4, "a short one is read at once");
    // Loading counts as reading does.
    assert_eq!(begins_after(0.005, 20, 1000, 20), None);
    assert!(begins_after(0.005, 20, 1000, 2000).unwrap() < 48);
    // For the price of sixty steps only once the answer has shown that it is long.
    let late = begins_after(0.03, 2000, 0, 2000).unwrap();
    assert!((61..1000).contains(&late), "{late}");
}

#[test]
fn a_short_answer_to_a_long_prompt_loses_nothing() {
    for machine in &MACHINES {
        let play = known(text(2000, 20, |_| 0.9), machine);
        assert!(play.cost <= 19.0 * 1.03, "{}: {}", machine.name, play.cost);
    }
}

/// Shares of the tokens from `from` to `to` that came out of rounds with a draft, and their cost beside plain decoding.
fn between(play: &Play, from: usize, to: usize) -> (f64, f64) {
    let rounds = || play.rounds.iter().filter(|round| (from..to).contains(&round.at));
    let tokens = |rounds: &mut dyn Iterator<Item = &Seen>| rounds.map(|round| round.emitted).sum::<usize>() as f64;
    let all = tokens(&mut rounds());
    let drafted = tokens(&mut rounds().filter(|round| round.drafted > 0));
    (drafted / all, rounds().map(|round| round.cost).sum::<f64>() / all)
}

/// The same for n-grams: of thirty words, so that short matches are found everywhere and are wrong, but for a part that
/// repeats the prompt.
fn words(repeats: std::ops::Range<usize>, len: usize) -> Trace {
    let mut dice = Dice(6);
    let tokens = |count: usize, dice: &mut Dice| (0..count).map(|_| Token(dice.below(30) as i32)).collect();
    let (prompt, mut answer): (Vec<Token>, Vec<Token>) = (tokens(600, &mut dice), tokens(len, &mut dice));
    answer[repeats.clone()].copy_from_slice(&prompt[100..100 + repeats.len()]);
    Trace { kind: "made up".into(), prompt, answer, chains: vec![Vec::new(); len] }
}

#[test]
fn n_grams_draft_where_a_text_repeats_and_hardly_elsewhere() {
    for machine in &MACHINES[..4] {
        let play = known(words(200..500, 900), machine);
        let [before, within, after] = [(0, 200), (200, 500), (500, 900)].map(|(from, to)| between(&play, from, to));
        let what = format!("{}: {before:.2?} {within:.2?} {after:.2?}", machine.name);
        assert!(within.0 > 0.9 && within.1 < 0.3, "{what}");
        assert!(before.0 < 0.15 && before.1 < 1.04 && after.0 < 0.15 && after.1 < 1.06, "{what}");
    }
}

/// Unsure, and as often right as that says, but for a part in which the draft knows what comes.
fn knows_a_part(sure: std::ops::Range<usize>, otherwise: f64) -> impl Fn(usize) -> (f64, f64) {
    move |at| if sure.contains(&at) { (0.95, 0.97) } else { (otherwise, otherwise) }
}

#[test]
fn a_draft_begins_where_it_becomes_sure() {
    for machine in &MACHINES[2..4] {
        for otherwise in [0.1, 0.3, 0.5] {
            let play = known(told(50, 900, knows_a_part(200..500, otherwise)), machine);
            let within = between(&play, 200, 500);
            assert!(within.0 > 0.9 && within.1 < 0.6, "{}, {otherwise}: {within:.2?}", machine.name);
        }
    }
}

#[test]
fn a_draft_that_is_of_no_use_costs_next_to_nothing() {
    for machine in &MACHINES {
        for chance in [0.1, 0.3, 0.5] {
            // Whether it knows that it is wrong or not.
            let honest = known(told(50, 900, |_| (chance, chance)), machine).cost / 899.0;
            let misled = known(text(50, 900, |_| chance), machine).cost / 899.0;
            assert!(honest < 1.03 && misled < 1.03, "{}, {chance}: {honest:.3}, misled {misled:.3}", machine.name);
        }
    }
}

#[test]
fn a_draft_that_becomes_right_is_tried_again() {
    // Its confidence says nothing: that it is right only shows when it drafts.
    for machine in &MACHINES[2..4] {
        for otherwise in [0.1, 0.3, 0.5] {
            let play = known(text(50, 900, |at| knows_a_part(200..500, otherwise)(at).0), machine);
            let within = between(&play, 260, 500);
            assert!(within.0 > 0.5 && within.1 < 0.8, "{}, {otherwise}: {within:.2?}", machine.name);
        }
    }
}

#[test]
fn costs_that_are_not_known_are_learned_within_an_answer() {
    for machine in &MACHINES {
        for noise in [0.0, 0.1] {
            for trace in traces() {
                let trace = Trace {
                    kind: trace.kind.clone(),
                    prompt: trace.prompt.clone(),
                    answer: trace.answer.clone(),
                    chains: trace.chains.clone(),
                };
                let play = play(trace, machine, Costs::expected(0.3), noise);
                let own = play.speculator.speculation();
                let costs = play.speculator.costs().unwrap();
                let tolerance = if noise == 0.0 { 0.01 } else { 0.3 };
                let near = |seen: f64, real: f64| (seen / real - 1.0).abs() < tolerance;
                assert!(near(costs.unit_ms(), 100.0), "{}: {}", machine.name, costs.unit_ms());
                for rows in 2..=MOST_ROWS {
                    let often = own.lengths[rows - 1] >= if noise == 0.0 { 1 } else { 6 };
                    let (seen, real) = (costs.verify(rows), machine.verify(rows));
                    assert!(!often || near(seen, real), "{}: {rows} rows {seen}, really {real}", machine.name);
                }
                let steps = own.by_drafter[1].1.proposed;
                let (seen, real) = (costs.draft(1), machine.draft(1));
                assert!(
                    steps < 8 || (seen / real - 1.0).abs() < tolerance.max(0.05),
                    "{}: a draft step {seen}, really {real}",
                    machine.name
                );
            }
        }
    }
}

#[test]
fn a_noisy_clock_costs_little() {
    // Twenty per cent up or down, and a hiccup now and then.
    for machine in &MACHINES {
        let text = || text(50, 600, |at| if at % 200 < 120 { 0.9 } else { 0.4 });
        let (exact, noisy) = (known(text(), machine).cost, play(text(), machine, machine.calibrated(), 0.2).cost);
        assert!(noisy < exact * 1.06, "{}: {noisy}, with a good clock {exact}", machine.name);
        assert!(noisy < 599.0 * 1.02, "{}: {noisy}", machine.name);
    }
}

#[test]
fn a_calibration_that_was_wrong_is_found_out() {
    // Measured while something else ran: every length seemed to cost three times as much.
    let machine = &MACHINES[2];
    let mut kept = machine.calibrated().calibration();
    kept.rows.iter_mut().skip(1).for_each(|(cost, weight)| (*cost, *weight) = (*cost * 3.0, 1.0));
    let mut costs = Costs::from_calibration(&kept, machine.draft);
    let mut gain = 0.0;
    for _ in 0..20 {
        let play = play(text(50, 300, |_| 0.9), machine, costs, 0.0);
        costs = play.speculator.costs().unwrap().clone();
        gain = 299.0 / play.cost;
    }
    assert!(gain > 1.2, "after twenty answers {gain}");
}

#[test]
fn a_talk_of_many_answers_goes_on_with_what_was_learned() {
    // The first answer shows that the draft is of no use; the second does not try again for long.
    let machine = &MACHINES[0];
    let text = Rc::new(text(50, 300, |_| 0.1));
    let playing = Rc::new(RefCell::new(Rc::clone(&text)));
    let policy = Adaptive::new(vec![Source::Model], machine.calibrated(), MOST_DRAFTED);
    let mut speculator = Speculator::new(vec![Box::new(Recorded::new(&playing, machine))], Box::new(policy));
    speculator.begin(&Sampling::greedy(), 4096, 300);
    let costs: Vec<f64> = (0..4).map(|_| replay(&mut speculator, &text, machine, true) / 299.0).collect();
    assert!(costs[0] < 1.05 && costs[1..].iter().all(|cost| *cost < 1.03), "{costs:.3?}");
}
