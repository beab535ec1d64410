//! A draft never changes an answer, whoever drafts and however much: exact with the scripted engine, up to near-ties with
//! llama.cpp, and drawn from the target's distribution.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use qchat::engine::{Context, ContextSettings, EngineError, Model, Row, Token};
use qchat::generate::draft::{
    Adaptive, At, Class, Costs, Drafter, ModelDrafter, Ngram, Offer, Plan, Policy, Proposed, Source, Speculator, Step,
};
use qchat::generate::{Finish, Reasoning, TurnSettings};
use qchat::interrupt::Interrupt;
use qchat::sample::{Noise, Sampling};
use serde_json::json;

use super::draft_edges::{assert_distinct, watched_prefixes};
use super::engine::load;
use super::replay::Fixed;
use super::turns::{answer, scripted, session};
use crate::common::Sandbox;
use crate::common::tiny::Tiny;

/// The scripted engine's end of a turn.
pub const END: Token = Token(258);

/// Numbers that are the same on every run (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.roll() % count as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a drafter proposes that knows what the target will say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    Right,
    Wrong,
    /// Right for so many tokens, then wrong.
    RightThenWrong(usize),
    Letters,
    Ends,
    /// Ids that no vocabulary has.
    Beyond,
}

/// A drafter without a model; what it proposes may be meant to do harm.
pub struct Adversary {
    truth: Vec<Token>,
    trick: Trick,
    dice: Dice,
    source: Source,
}

impl Adversary {
    /// `truth` is the answer; behind its end the end of the turn is right.
    pub fn new(truth: &[Token], trick: Trick) -> Self {
        Self { truth: truth.to_vec(), trick, dice: Dice(9), source: Source::Ngram }
    }

    fn says(&mut self, at: &At, most: usize) -> Vec<Proposed> {
        let from = at.tokens.len() - at.prompt_len;
        let token = |i: usize| {
            let right = self.truth.get(from + i).copied().unwrap_or(END);
            let wrong = Token((right.0 + 1) % 256);
            match self.trick {
                Trick::Right => right,
                Trick::Wrong => wrong,
                Trick::RightThenWrong(count) => {
                    if i < count {
                        right
                    } else {
                        wrong
                    }
                }
                Trick::Letters => Token(i32::from(b'a') + self.dice.below(26) as i32),
                Trick::Ends => END,
                Trick::Beyond => self.dice.one_of(&[Token(259), Token(100_000), Token(i32::MAX), Token(-1)]),
            }
        };
        let tokens: Vec<Token> = (0..most).map(token).collect();
        tokens.into_iter().map(|token| Proposed { token, class: Class(self.dice.below(12) as u8) }).collect()
    }
}

impl Drafter for Adversary {
    fn source(&self) -> Source {
        self.source
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        Some(match self.source {
            Source::Ngram => Offer::Free(self.says(at, most)),
            Source::Model => Offer::Steps { most, unread: 1, load: Duration::ZERO },
        })
    }

    fn draft(
        &mut self,
        at: &At,
        most: usize,
        go_on: &mut dyn FnMut(&[Proposed]) -> bool,
        into: &mut Vec<Proposed>,
        steps: &mut Vec<Step>,
    ) -> Result<(), EngineError> {
        for proposed in self.says(at, most) {
            into.push(proposed);
            steps.push(Step { rows: 1, time: Duration::from_micros(1) });
            if !go_on(into) {
                break;
            }
        }
        Ok(())
    }
}

/// Decides by dice whatever a policy may decide.
pub struct Drunk(pub Dice);

impl Policy for Drunk {
    fn plan(&mut self, offers: &[Option<Offer>], most: usize) -> Option<Plan> {
        let able: Vec<usize> = (0..offers.len()).filter(|at| offers[*at].is_some()).collect();
        let drafts = !able.is_empty() && self.0.below(5) > 0;
        drafts.then(|| Plan { drafter: self.0.one_of(&able), most: 1 + self.0.below(most) })
    }

    fn go_on(&mut self, _: &[Proposed]) -> bool {
        self.0.below(4) > 0
    }

    fn keep(&mut self, proposed: &[Proposed]) -> usize {
        self.0.below(proposed.len() + 1)
    }
}

/// The scripted model of random logits; `off` as in its script.
pub fn random(seed: u64, spread: f32, off: f32) -> Arc<dyn Model> {
    scripted(json!({ "replies": [], "random": { "seed": seed, "spread": spread, "off": off } }))
}

/// A drafter with this model, loaded when it is first wanted.
pub fn drafts_with(model: &Arc<dyn Model>) -> Box<dyn Drafter> {
    let model = Arc::clone(model);
    let load = move || Ok(Arc::clone(&model));
    Box::new(ModelDrafter::new(Box::new(load), Duration::ZERO, 1, Interrupt::default()))
}

/// One drafter, and the same number of tokens whenever it can.
pub fn always(drafter: Box<dyn Drafter>, length: usize) -> Speculator {
    Speculator::new(vec![drafter], Box::new(Fixed(vec![length])))
}

pub fn turn(sampling: Sampling, max_tokens: usize) -> TurnSettings {
    TurnSettings {
        sampling,
        stops: Vec::new(),
        max_tokens: Some(max_tokens),
        reasoning: Reasoning::Off,
        ..TurnSettings::default()
    }
}

fn any_sampling(dice: &mut Dice) -> Sampling {
    Sampling {
        temperature: dice.one_of(&[0.0, 0.7, 1.5]),
        top_k: dice.one_of(&[0, 0, 3, 8, 40]),
        top_p: dice.one_of(&[1.0, 1.0, 0.9, 0.5]),
        min_p: dice.one_of(&[0.0, 0.0, 0.05, 0.3]),
        repeat_penalty: dice.one_of(&[1.0, 1.0, 1.2, 0.8]),
        seed: dice.roll(),
    }
}

/// Random letters. Every second prompt goes on with what the model would say to them, and ends as they do, so that a
/// greedy answer repeats it.
fn any_prompt(dice: &mut Dice, target: &Arc<dyn Model>) -> Vec<Token> {
    let letters = 4 + dice.below(40);
    let mut prompt: Vec<Token> = (0..letters).map(|_| Token(i32::from(b'a') + dice.below(26) as i32)).collect();
    if dice.below(2) == 0 {
        let end = prompt[letters - 3..].to_vec();
        let mut reader = session(Arc::clone(target), None, 256);
        prompt.extend(answer(&mut reader, &prompt, turn(Sampling::greedy(), 40)).tokens);
        prompt.extend(end);
    }
    prompt
}

/// The casts that play: names of [`drafter`], in the order in which a fixed policy asks them.
const CASTS: [&[&str]; 13] = [
    &["n-gram"],
    &["same"],
    &["good"],
    &["bad"],
    &["right"],
    &["wrong"],
    &["right then wrong"],
    &["letters"],
    &["ends"],
    &["beyond"],
    &["n-gram", "good"],
    &["bad", "n-gram"],
    &["beyond", "n-gram", "same"],
];

/// A drafter for `random(seed, spread, 0.0)`, which will answer `truth`.
fn drafter(name: &str, seed: u64, spread: f32, truth: &[Token], dice: &mut Dice) -> Box<dyn Drafter> {
    let trick = match name {
        "n-gram" => return Box::new(Ngram::default()),
        "same" => return drafts_with(&random(seed, spread, 0.0)),
        "good" => return drafts_with(&random(seed, spread, 0.3 * spread)),
        "bad" => return drafts_with(&random(seed + 1, spread, 0.0)),
        "right" => Trick::Right,
        "wrong" => Trick::Wrong,
        "right then wrong" => Trick::RightThenWrong(dice.below(6)),
        "letters" => Trick::Letters,
        "ends" => Trick::Ends,
        _ => Trick::Beyond,
    };
    let source = dice.one_of(&[Source::Ngram, Source::Model]);
    Box::new(Adversary { source, dice: Dice(dice.roll()), ..Adversary::new(truth, trick) })
}

fn any_policy(drafters: &[Box<dyn Drafter>], length: usize, dice: &mut Dice) -> (&'static str, Box<dyn Policy>) {
    let sources = drafters.iter().map(|drafter| drafter.source()).collect();
    match dice.below(3) {
        0 => ("fixed", Box::new(Fixed(vec![length; drafters.len()]))),
        1 => ("adaptive", Box::new(Adaptive::new(sources, Costs::expected(0.1), length))),
        _ => ("drunk", Box::new(Drunk(Dice(dice.roll())))),
    }
}

#[test]
fn no_draft_changes_an_answer() {
    let mut judged: HashMap<&str, (usize, usize)> = HashMap::new();
    for case in 0..520 {
        let mut dice = Dice(case as u64);
        let (seed, spread) = (dice.roll() % 1000, dice.one_of(&[1.0, 3.0, 8.0]));
        let target = random(seed, spread, 0.0);
        let prompt = any_prompt(&mut dice, &target);
        let settings = turn(any_sampling(&mut dice), 1 + dice.below(90));
        let plain = answer(&mut session(Arc::clone(&target), None, 256), &prompt, settings.clone());
        let cast = CASTS[case % CASTS.len()];
        let drafters: Vec<_> = cast.iter().map(|name| drafter(name, seed, spread, &plain.tokens, &mut dice)).collect();
        let (policy_name, policy) = any_policy(&drafters, 1 + case / CASTS.len() % 16, &mut dice);
        let what = format!("case {case}: {cast:?}, {policy_name}, {settings:?}");

        let mut session = session(target, None, 256);
        session.speculate(Some(Speculator::new(drafters, policy)));
        let drafted = answer(&mut session, &prompt, settings);
        assert_eq!(drafted.tokens, plain.tokens, "{what}");
        assert_eq!((drafted.finish, &drafted.content), (Finish::Length, &plain.content), "{what}");
        let text = [prompt, plain.tokens].concat();
        assert_eq!(session.held(), &text[..text.len() - 1], "{what}");
        let account = drafted.speculation.unwrap();
        assert_eq!((account.lost, account.blocked), (None, None), "{what}");
        let sum = judged.entry(if cast.len() == 1 { cast[0] } else { "several" }).or_default();
        *sum = (sum.0 + account.proposed, sum.1 + account.accepted);
    }
    // The drafters were what they are called.
    let share = |name: &str| judged[name].1 as f64 / judged[name].0.max(1) as f64;
    for (name, least, most) in [
        ("same", 1.0, 1.0),
        ("right", 1.0, 1.0),
        ("good", 0.25, 0.99),
        ("bad", 0.01, 0.4),
        ("n-gram", 0.05, 0.99),
        ("letters", 0.001, 0.1),
        ("right then wrong", 0.1, 0.9),
        ("wrong", 0.0, 0.0),
        ("ends", 0.0, 0.0),
        ("beyond", 0.0, 0.0),
    ] {
        assert!((least..=most).contains(&share(name)), "{name}: {}", share(name));
    }
}

#[test]
fn a_talk_with_drafts_is_the_same_talk() {
    // What a speculator and the caches carry from one answer to the next changes nothing, and is not read again.
    for case in 0..40 {
        let mut dice = Dice(1000 + case);
        let spread = dice.one_of(&[3.0, 8.0]);
        let target = random(case, spread, 0.0);
        let drafters = ["n-gram", "good"].map(|name| drafter(name, case, spread, &[], &mut dice)).into();
        let mut plain = session(Arc::clone(&target), None, 256);
        let mut drafting = session(target, None, 256);
        drafting.speculate(Some(Speculator::new(drafters, Box::new(Drunk(Dice(dice.roll()))))));
        let mut talk = Vec::new();
        for _ in 0..4 {
            talk.extend((0..=dice.below(30)).map(|_| Token(i32::from(b'a') + dice.below(26) as i32)));
            let settings = turn(any_sampling(&mut dice), 1 + dice.below(60));
            let expected = answer(&mut plain, &talk, settings.clone());
            let drafted = answer(&mut drafting, &talk, settings);
            assert_eq!(drafted.tokens, expected.tokens, "case {case}");
            assert_eq!(drafted.cached_tokens, expected.cached_tokens, "case {case}");
            assert_eq!(drafting.held(), plain.held(), "case {case}");
            talk.extend(expected.tokens);
            if dice.below(4) == 0 {
                // Another talk, of which a part may be held.
                talk.truncate(dice.below(talk.len()));
            }
        }
    }
}

/// Drafts for some rounds, then not for many.
struct Spells(usize);

impl Policy for Spells {
    fn plan(&mut self, _: &[Option<Offer>], most: usize) -> Option<Plan> {
        self.0 += 1;
        (self.0 % 200 < 8).then(|| Plan { drafter: 0, most: most.min(3) })
    }
}

#[test]
fn a_draft_that_was_switched_off_reads_only_the_end_of_what_it_missed() {
    let target = random(3, 8.0, 0.0);
    for (seed, right) in [(3, true), (4, false)] {
        let seen = Arc::default();
        let draft = drafts_with(&watched_prefixes(random(seed, 8.0, 0.0), &seen));
        let mut plain = session(Arc::clone(&target), None, 256);
        let mut drafting = session(Arc::clone(&target), None, 256);
        drafting.speculate(Some(Speculator::new(vec![draft], Box::new(Spells(150)))));
        let mut talk: Vec<Token> = "Count to a thousand.".bytes().map(|byte| Token(i32::from(byte))).collect();
        for _ in 0..3 {
            let expected = answer(&mut plain, &talk, turn(Sampling::greedy(), 900));
            let drafted = answer(&mut drafting, &talk, turn(Sampling::greedy(), 900));
            assert_eq!((&drafted.tokens, drafting.held()), (&expected.tokens, plain.held()));
            let own = drafted.speculation.unwrap();
            assert!(own.lost.is_none() && own.rounds > 20, "{own:?}");
            talk.extend(expected.tokens);
            talk.extend([Token(257), Token(65), Token(258)]);
            let read = seen.lock().unwrap().len();
            // Some 60 tokens for each of four or so spells of an answer; a prompt is read whole.
            assert!(read < talk.len() + 400, "{read} of {}, {right}", talk.len());
            assert_distinct(&seen);
        }
    }
}

/// How far the target prefers one token over another behind `text`: in logits, with the noise of their position.
fn preference(model: &Arc<dyn Model>, text: &[Token], sampling: &Sampling, [a, b]: [Token; 2]) -> f32 {
    let settings = ContextSettings { n_ctx: 512, sequences: 1, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(model).context(&settings).unwrap();
    let logits = logits_behind(context.as_mut(), text);
    let noise = |token| match sampling.temperature {
        0.0 => 0.0,
        temperature => temperature * Noise::new(sampling.seed).gumbel(text.len(), token),
    };
    logits[a.index()] + noise(a) - logits[b.index()] - noise(b)
}

pub fn logits_behind(context: &mut dyn Context, text: &[Token]) -> Vec<f32> {
    context.trim(0, 0).unwrap();
    let row = |(pos, token): (usize, &Token)| Row { seq: 0, token: *token, pos, want_logits: pos + 1 == text.len() };
    let rows: Vec<Row> = text.iter().enumerate().map(row).collect();
    let mut last = 0;
    for rows in rows.chunks(context.capabilities().max_rows) {
        context.eval(rows).unwrap();
        last = rows.len() - 1;
    }
    context.logits(last).to_vec()
}

/// Tokens that are printable ASCII: answers never end by themselves.
pub fn printable(id: usize) -> bool {
    (32..127).contains(&id)
}

#[test]
fn on_llama_cpp_only_near_ties_can_differ() {
    let homes: [Sandbox; 4] = std::array::from_fn(|_| Sandbox::new());
    let tiny = |seed, layers| Tiny { seed, layers, says: printable, ..Tiny::default() };
    let target = load(&homes[0], &tiny(1, 2));
    // A file of its own with the same weights; one that shares most of them; one that shares none.
    let models = [load(&homes[1], &tiny(1, 2)), load(&homes[2], &tiny(1, 1)), load(&homes[3], &tiny(2, 1))];
    let prompt: Vec<Token> = "Once upon a time".bytes().map(|byte| Token(i32::from(byte))).collect();
    let (mut runs, mut equal, mut accepted) = (0, 0, 0);
    for (temperature, seed) in [(0.0, 1), (0.8, 2), (0.8, 3), (1.5, 4)] {
        let sampling = Sampling { temperature, seed, ..Sampling::greedy() };
        let settings = turn(sampling.clone(), 48);
        let plain = answer(&mut session(Arc::clone(&target), None, 256), &prompt, settings.clone()).tokens;
        for length in [1, 2, 3, 7, 16] {
            let mut drafters: Vec<_> = models.iter().map(drafts_with).collect();
            drafters.push(Box::new(Ngram::default()));
            drafters.push(Box::new(Adversary::new(&plain, Trick::RightThenWrong(length / 2))));
            for drafter in drafters {
                let mut session = session(Arc::clone(&target), None, 256);
                session.speculate(Some(always(drafter, length)));
                let drafted = answer(&mut session, &prompt, settings.clone());
                accepted += drafted.speculation.unwrap().accepted;
                runs += 1;
                let Some(at) = (0..48).find(|at| drafted.tokens[*at] != plain[*at]) else {
                    equal += 1;
                    continue;
                };
                let text = [&prompt, &plain[..at]].concat();
                let gap = preference(&target, &text, &sampling, [plain[at], drafted.tokens[at]]);
                assert!(gap.abs() < 0.02, "parted by {gap} at {at}: {sampling:?}, drafts of {length}");
            }
        }
    }
    assert!(equal * 10 >= runs * 8, "{equal} of {runs} equal to the end");
    assert!(accepted > 1000, "{accepted}");
}

/// The exact probabilities of the first three tokens of an answer, at temperature 1 of the `k` likeliest.
fn first_three(model: &Arc<dyn Model>, prompt: &[Token], k: usize) -> HashMap<Vec<Token>, f64> {
    let settings = ContextSettings { n_ctx: 256, sequences: 1, threads: 1, cancel: Arc::default() };
    let mut context = Arc::clone(model).context(&settings).unwrap();
    let mut all = HashMap::from([(Vec::new(), 1.0)]);
    for _ in 0..3 {
        let mut longer = HashMap::new();
        for (said, probability) in all {
            let logits = logits_behind(context.as_mut(), &[prompt, &said].concat());
            let mut likeliest: Vec<(Token, f64)> =
                logits.iter().enumerate().map(|(id, logit)| (Token::from_index(id), f64::from(*logit))).collect();
            likeliest.sort_by(|a, b| b.1.total_cmp(&a.1));
            likeliest.truncate(k);
            let mass: f64 = likeliest.iter().map(|(_, logit)| logit.exp()).sum();
            for (token, logit) in likeliest {
                longer.insert([&said[..], &[token]].concat(), probability * logit.exp() / mass);
            }
        }
        all = longer;
    }
    all
}

/// Pearson's chi-square over the outcomes that are expected five times or more, the rare ones together; and the degrees of
/// freedom.
fn chi_square(expected: &HashMap<Vec<Token>, f64>, seen: &HashMap<Vec<Token>, u32>, draws: u64) -> (f64, f64) {
    let (mut cells, mut chi, mut rare) = (0u32, 0.0, (0.0, 0.0));
    for (said, probability) in expected {
        let (e, o) = (probability * draws as f64, f64::from(*seen.get(said).unwrap_or(&0)));
        if e < 5.0 {
            rare = (rare.0 + e, rare.1 + o);
        } else {
            chi += (o - e).powi(2) / e;
            cells += 1;
        }
    }
    if rare.0 >= 5.0 {
        chi += (rare.1 - rare.0).powi(2) / rare.0;
        cells += 1;
    }
    (chi, f64::from(cells - 1))
}

#[test]
fn answers_with_drafts_come_from_the_targets_distribution() {
    // The second and third token are drafted together, and either may be rejected.
    const DRAWS: u64 = 20_000;
    let target = random(77, 1.5, 0.0);
    let prompt: Vec<Token> = "hello".bytes().map(|byte| Token(i32::from(byte))).collect();
    let expected = first_three(&target, &prompt, 8);
    assert!((expected.values().sum::<f64>() - 1.0).abs() < 1e-9);
    let adversary = |trick| -> Box<dyn Drafter> { Box::new(Adversary::new(&[], trick)) };
    let likeliest = expected.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
    for (name, drafter, least_accepted) in [
        ("good", drafts_with(&random(77, 1.5, 0.5)), 0.4),
        ("bad", drafts_with(&random(78, 1.5, 0.0)), 0.02),
        ("letters", adversary(Trick::Letters), 0.01),
        // Always the same tokens: what pulls hardest towards them.
        ("stubborn", Box::new(Adversary::new(likeliest, Trick::Right)), 0.02),
    ] {
        let mut session = session(Arc::clone(&target), None, 256);
        session.speculate(Some(always(drafter, 2)));
        let mut seen: HashMap<Vec<Token>, u32> = HashMap::new();
        let (mut proposed, mut accepted) = (0, 0);
        for seed in 0..DRAWS {
            let sampling = Sampling { temperature: 1.0, top_k: 8, seed, ..Sampling::greedy() };
            let said = answer(&mut session, &prompt, turn(sampling, 4));
            *seen.entry(said.tokens[..3].to_vec()).or_default() += 1;
            let account = said.speculation.unwrap();
            (proposed, accepted) = (proposed + account.proposed, accepted + account.accepted);
        }
        assert!(seen.keys().all(|said| expected.contains_key(said)), "{name}: a token that was cut");
        let share = f64::from(accepted as u32) / f64::from(proposed as u32);
        assert!(share > least_accepted && share < 0.95, "{name}: {share}");
        // Five standard deviations of a chi-square with n degrees of freedom, and room for small n.
        let (chi, n) = chi_square(&expected, &seen, DRAWS);
        assert!(n > 50.0 && chi < n + 5.0 * (2.0 * n).sqrt() + 5.0, "{name}: chi-square {chi} with {n} degrees");
    }
}
