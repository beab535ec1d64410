//! The account of drafts, against numbers worked out by hand, and that no token is evaluated twice.

use std::sync::{Arc, Mutex};

use qchat::engine::Token;
use qchat::generate::draft::{
    At, Class, Drafter, DrafterStats, MOST_DRAFTED, Ngram, Offer, Plan, Policy, Proposed, Source, Speculation,
    Speculator,
};
use qchat::sample::Sampling;
use serde_json::json;

use super::draft_edges::{assert_distinct, watched_prefixes};
use super::drafts::{Adversary, Dice, Drunk, Trick, always, drafts_with, random, turn};
use super::replay::Fixed;
use super::turns::{answer, ask, scripted, session, settings};

/// Proposes what is written for an answer of that many tokens, and nothing at others.
struct Written(&'static [(usize, &'static str)]);

impl Drafter for Written {
    fn source(&self) -> Source {
        Source::Ngram
    }

    fn offer(&mut self, at: &At, most: usize) -> Option<Offer> {
        let said = at.tokens.len() - at.prompt_len;
        let (_, text) = self.0.iter().find(|(emitted, _)| *emitted == said)?;
        let token = |byte: u8| Proposed { token: Token(i32::from(byte)), class: Class(0) };
        Some(Offer::Free(text.bytes().take(most).map(token).collect()))
    }
}

fn account(reply: &str, written: &'static [(usize, &'static str)]) -> Speculation {
    let mut session = session(scripted(json!({ "replies": [reply] })), None, 256);
    session.speculate(Some(always(Box::new(Written(written)), MOST_DRAFTED)));
    let mut talk = Vec::new();
    ask(&mut talk, "go");
    let said = answer(&mut session, &talk, settings(0.0, None));
    assert_eq!(said.content, reply);
    said.speculation.unwrap()
}

#[test]
fn every_proposal_is_counted_where_it_stood() {
    // a comes from the prompt; (bc)X gives bcd; nothing gives e; (fghi) gives fghij; Z and the end give nothing.
    let own = account("abcdefghij", &[(1, "bcX"), (5, "fghi"), (10, "Z")]);
    assert_eq!((own.rounds, own.plain_rounds, own.proposed, own.accepted), (3, 1, 8, 6));
    assert_eq!((own.emitted, own.emitted_drafting), (9, 8));
    assert_eq!(own.by_position, [(3, 2), (2, 2), (2, 1), (1, 1)]);
    assert_eq!(own.lengths, [1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        own.by_drafter,
        [(Source::Ngram, DrafterStats { offers: own.by_drafter[0].1.offers, rounds: 3, proposed: 8, accepted: 6 })]
    );
    assert_eq!(own.main_drafter(), Some(Source::Ngram));
    assert!((own.mean_accepted_length().unwrap() - 8.0 / 3.0).abs() < 1e-12);
    assert_eq!(own.switched_off, 0);
    // Nothing was proposed by anybody.
    let none = account("abc", &[]);
    assert_eq!((none.rounds, none.plain_rounds, none.emitted), (0, 3, 2));
    assert_eq!((none.mean_accepted_length(), none.main_drafter(), none.estimated_gain()), (None, None, None));
}

#[test]
fn an_end_of_turn_that_was_drafted_is_accepted_and_not_emitted() {
    let own = account("abcd", &[(1, "bcd\u{0}")]);
    assert_eq!((own.proposed, own.accepted, own.emitted), (4, 3, 3));
    let mut session = session(scripted(json!({ "replies": ["abcd"] })), None, 256);
    let truth: Vec<Token> = "abcd".bytes().map(|byte| Token(i32::from(byte))).collect();
    session.speculate(Some(always(Box::new(Adversary::new(&truth, Trick::Right)), 4)));
    let mut talk = Vec::new();
    ask(&mut talk, "go");
    let own = answer(&mut session, &talk, settings(0.0, None)).speculation.unwrap();
    assert_eq!((own.rounds, own.proposed, own.accepted, own.emitted), (1, 4, 4, 3));
}

#[test]
fn drafting_is_switched_off_after_eight_rounds_without_a_draft() {
    let reply = "0123456789".repeat(6);
    assert_eq!(account(&reply, &[]).switched_off, 0, "it never drafted");
    assert_eq!(account(&reply, &[(1, "1"), (40, "0")]).switched_off, 2);
    assert_eq!(account(&reply, &[(1, "1"), (9, "9"), (52, "2")]).switched_off, 1, "seven rounds are not enough");
}

#[test]
fn a_cut_that_fails_is_no_round_of_drafts() {
    // What is read again comes out of no draft, and no drafter is judged by it.
    let reply = "abcdefghij";
    let model = scripted(json!({ "replies": [reply], "trim_fails_at": 2 }));
    let mut session = session(model, None, 256);
    let written = Written(&[(1, "bcX"), (4, "eX"), (7, "hi")]);
    session.speculate(Some(always(Box::new(written), MOST_DRAFTED)));
    let mut talk = Vec::new();
    ask(&mut talk, "go");
    let said = answer(&mut session, &talk, settings(0.0, None));
    let own = said.speculation.unwrap();
    assert_eq!(said.content, reply);
    // abcd, (e)X gives ef and a cut that fails: g comes out of reading again, then (hi) gives hij, then the end.
    assert_eq!((own.rounds, own.proposed, own.accepted), (3, 7, 5), "{own:?}");
    assert_eq!((own.plain_rounds, own.emitted, own.emitted_drafting), (2, 9, 8), "{own:?}");
}

#[test]
fn no_token_is_evaluated_twice() {
    // Neither by the target nor by the draft, whatever is proposed, kept and accepted, from one answer to the next.
    for case in 0..60 {
        let mut dice = Dice(case);
        let (target_rows, draft_rows) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let target = watched_prefixes(random(case, 4.0, 0.0), &target_rows);
        let draft = watched_prefixes(random(case, 4.0, dice.one_of(&[0.0, 1.0, 8.0])), &draft_rows);
        let drafters = vec![drafts_with(&draft), Box::new(Ngram::default()) as Box<dyn Drafter>];
        let policy: Box<dyn Policy> =
            if case % 2 == 0 { Box::new(Drunk(Dice(case))) } else { Box::new(Fixed(vec![1 + dice.below(16); 2])) };
        let mut session = session(target, None, 256);
        session.speculate(Some(Speculator::new(drafters, policy)));
        let mut talk = Vec::new();
        let mut rejected = 0;
        for answers in 1..=3 {
            // Two letters at least: the last token of a prompt is always evaluated, also where it is held.
            talk.extend((0..2 + dice.below(20)).map(|_| Token(i32::from(b'a') + dice.below(26) as i32)));
            let sampling = Sampling { temperature: dice.one_of(&[0.0, 1.0]), seed: case, ..Sampling::greedy() };
            let said = answer(&mut session, &talk, turn(sampling, 1 + dice.below(60)));
            let own = said.speculation.unwrap();
            rejected += own.proposed - own.accepted;
            talk.extend(said.tokens);
            // All but the last token, and what was rejected.
            assert_eq!(target_rows.lock().unwrap().len(), talk.len() - 1 + rejected, "case {case}, answer {answers}");
        }
        assert_distinct(&target_rows);
        // What a policy has drafted and then does not let the target judge is another matter.
        if case % 2 == 1 {
            assert_distinct(&draft_rows);
        }
    }
}

/// Drafts so many tokens and lets the target judge one.
struct Keeps(usize);

impl Policy for Keeps {
    fn plan(&mut self, _: &[Option<Offer>], most: usize) -> Option<Plan> {
        Some(Plan { drafter: 0, most: self.0.min(most) })
    }

    fn keep(&mut self, proposed: &[Proposed]) -> usize {
        proposed.len().min(1)
    }
}

#[test]
fn what_was_drafted_and_not_judged_is_not_evaluated_again() {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let draft = watched_prefixes(random(3, 4.0, 0.0), &rows);
    let mut session = session(random(3, 4.0, 0.0), None, 256);
    session.speculate(Some(Speculator::new(vec![drafts_with(&draft)], Box::new(Keeps(3)))));
    let prompt: Vec<Token> = "abcdef".bytes().map(|byte| Token(i32::from(byte))).collect();
    answer(&mut session, &prompt, turn(Sampling::greedy(), 20));
    assert_distinct(&rows);
}
