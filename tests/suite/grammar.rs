//! An answer that is kept to a grammar: with llama.cpp on the tiny model, which says anything, and with the scripted engine.

use std::sync::Arc;

use qchat::engine::llama::schema_to_gbnf;
use qchat::engine::{Grammar, Model, Token};
use qchat::generate::draft::{Ngram, Speculator};
use qchat::generate::{Answer, Finish, Reasoning, TurnSettings};
use qchat::sample::Sampling;
use serde_json::{Value, json};

use super::drafts::{Adversary, END, Trick, always};
use super::engine::{load, text};
use super::replay::Fixed;
use super::turns::{answer, ask, scripted, session, settings};
use crate::common::Sandbox;
use crate::common::tiny::{Kind, Tiny};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 12 },
            "age": { "type": "integer", "minimum": 0, "maximum": 120 },
            "score": { "type": "number" },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 4 }, "maxItems": 3 },
            "kind": { "enum": ["person", "ding\u{e4}", null] },
            "on": { "type": "boolean" },
        },
        "required": ["name", "age", "score", "tags", "kind"],
    })
}

fn grammar(model: &Arc<dyn Model>, gbnf: &str) -> Box<dyn Grammar> {
    model.grammar(gbnf).unwrap()
}

fn kept(grammar: Box<dyn Grammar>, temperature: f32, seed: u64, max_tokens: usize) -> TurnSettings {
    let sampling = Sampling { temperature, seed, ..Sampling::greedy() };
    TurnSettings { sampling, grammar: Some(grammar), ..settings(0.0, Some(max_tokens)) }
}

fn said(model: &Arc<dyn Model>, settings: TurnSettings) -> Answer {
    answer(&mut session(Arc::clone(model), None, 1024), &text("Who?"), settings)
}

#[test]
fn whatever_the_model_says_is_json_of_the_schema() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let gbnf = schema_to_gbnf(&schema()).unwrap();
    let mut whole = 0;
    for seed in 0..150 {
        let temperature = [0.0, 0.7, 3.0][seed as usize % 3];
        let answer = said(&model, kept(grammar(&model, &gbnf), temperature, seed, 2000));
        assert_eq!(answer.finish, Finish::Stop, "{}", answer.content);
        let value: Value =
            serde_json::from_str(&answer.content).unwrap_or_else(|e| panic!("{e}: {:?}", answer.content));
        assert!(value["name"].as_str().unwrap().chars().count() <= 12, "{value}");
        assert!(value["age"].as_u64().unwrap() <= 120);
        assert!(["person", "ding\u{e4}"].map(Value::from).contains(&value["kind"]) || value["kind"].is_null());
        assert!(!answer.content.contains('\u{fffd}'), "{:?}", answer.content);
        whole += usize::from(value.get("on").is_some());
    }
    assert!(whole > 0, "the optional field comes too");
}

#[test]
fn any_json_that_ends_parses_and_one_that_is_cut_says_so() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let gbnf = schema_to_gbnf(&json!({ "type": "object" })).unwrap();
    let (mut ended, mut cut) = (0, 0);
    for seed in 0..60 {
        let answer = said(&model, kept(grammar(&model, &gbnf), 3.0, seed, 60));
        if answer.finish == Finish::Stop {
            serde_json::from_str::<Value>(&answer.content).unwrap();
            ended += 1;
        } else {
            assert_eq!(answer.finish, Finish::Length);
            cut += 1;
        }
    }
    assert!(ended > 3 && cut > 3, "{ended} ended, {cut} cut");
}

#[test]
fn names_of_an_open_object_are_json_too() {
    let model = load(&Sandbox::new(), &Tiny { spread: 0.5, ..Tiny::default() });
    let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"],
        "additionalProperties": { "type": "boolean" } });
    let gbnf = schema_to_gbnf(&schema).unwrap();
    let mut open = 0;
    for seed in 0..80 {
        let answer = said(&model, kept(grammar(&model, &gbnf), 3.0, seed, 400));
        if answer.finish == Finish::Stop {
            let value: Value =
                serde_json::from_str(&answer.content).unwrap_or_else(|e| panic!("{e}: {}", answer.content));
            open += usize::from(value.as_object().unwrap().len() > 1);
        }
    }
    assert!(open > 5, "{open}");
}

#[test]
fn drafts_change_nothing_under_a_grammar() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let gbnf = schema_to_gbnf(&schema()).unwrap();
    let mut parted = 0;
    for seed in 0..20 {
        let settings = || kept(grammar(&model, &gbnf), [0.0, 1.0][seed as usize % 2], seed, 400);
        let plain = said(&model, settings());
        let tricks = [Trick::Right, Trick::Wrong, Trick::RightThenWrong(3), Trick::Letters, Trick::Ends, Trick::Beyond];
        for trick in tricks {
            let mut session = session(Arc::clone(&model), None, 1024);
            session.speculate(Some(always(Box::new(Adversary::new(&plain.tokens, trick)), 4)));
            let drafted = answer(&mut session, &text("Who?"), settings());
            let value: Value = serde_json::from_str(&drafted.content).unwrap();
            assert!(value.is_object());
            if trick == Trick::Right {
                assert!(drafted.speculation.unwrap().accepted > 0);
            }
            // Near-ties may part (a batch adds in another order).
            let same = plain.tokens.iter().zip(&drafted.tokens).take_while(|(a, b)| a == b).count();
            parted += usize::from(same < plain.tokens.len().min(drafted.tokens.len()));
        }
        let mut session = session(Arc::clone(&model), None, 1024);
        session.speculate(Some(Speculator::new(vec![Box::new(Ngram::default())], Box::new(Fixed(vec![4])))));
        serde_json::from_str::<Value>(&answer(&mut session, &text("Who?"), settings()).content).unwrap();
    }
    assert!(parted <= 12, "{parted} of 120");
}

#[test]
fn a_token_that_does_not_fit_is_an_error_and_nothing_more() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let end = model.vocab().eos().unwrap();
    let token = |c: char| Token(i32::from(c as u8));
    let mut grammar = grammar(&model, "root ::= \"ab\" \"c\"? | \"\u{e4}\"");
    assert!(!grammar.allows(end) && !grammar.is_complete());
    assert!(grammar.fork().accept(end).is_err(), "llama.cpp would end the process");
    assert!(grammar.allows(token('a')) && !grammar.allows(token('b')) && !grammar.allows(Token(-1)));
    assert!(!grammar.allows(Token(99999)) && !grammar.allows(Token(257)), "no such token; a control token");
    // A character in two tokens.
    let mut half = grammar.fork();
    half.accept(Token(0xc3)).unwrap();
    assert!(half.allows(Token(0xa4)) && !half.allows(Token(0xa5)) && !half.allows(end));
    half.accept(Token(0xa4)).unwrap();
    assert!(half.is_over());
    grammar.accept(token('a')).unwrap();
    let mut other = grammar.fork();
    assert!(grammar.accept(token('x')).is_err());
    let mut logits = vec![0.0; model.vocab().len()];
    assert!(!grammar.allows(token('b')) && !grammar.mask(&mut logits) && !grammar.is_complete());
    assert!(grammar.fork().accept(token('b')).is_err());
    other.accept(token('b')).unwrap();
    assert!(other.is_complete() && !other.is_over() && other.allows(end));
    other.accept(end).unwrap();
    let mut logits = vec![0.0; model.vocab().len() + 7];
    assert!(other.mask(&mut logits));
    let left: Vec<usize> = (0..logits.len()).filter(|i| logits[*i] == 0.0).collect();
    assert_eq!(left, [usize::from(b'c'), 256, 258], "the rest of the text, and what ends an answer");
    other.accept(token('c')).unwrap();
    assert!(other.is_complete() && other.is_over());
}

#[test]
fn control_tokens_and_broken_characters_are_no_text() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let mut grammar = grammar(&model, "root ::= [^\"]+");
    for byte in [0x80, 0xc0, 0xc1, 0xf5, 0xfe, 0xff, 0] {
        assert!(!grammar.allows(Token(byte)), "{byte:x}");
    }
    assert!(!grammar.allows(Token(257)), "<|im_start|> would be its name");
    let mut logits = vec![0.0; model.vocab().len()];
    assert!(grammar.mask(&mut logits));
    assert!(logits[257] < 0.0 && logits[0xfe] < 0.0 && logits[0x80] < 0.0 && logits[0xc3] == 0.0 && logits[97] == 0.0);
    grammar.accept(Token(0xe0)).unwrap();
    assert!(!grammar.allows(Token(0x80)), "overlong");
    let mut logits = vec![0.0; model.vocab().len()];
    assert!(grammar.mask(&mut logits));
    let left: Vec<usize> = (0..logits.len()).filter(|i| logits[*i] == 0.0).collect();
    assert_eq!(left, (0xa0..0xc0).collect::<Vec<_>>());
}

#[test]
fn thoughts_go_free_and_the_content_does_not() {
    let marks = ["<think>", "</think>"].map(|text| (text.to_owned(), Kind::UserDefined));
    let mut tiny = Tiny { spread: 0.3, ..Tiny::default() };
    tiny.specials.extend(marks);
    let model = load(&Sandbox::new(), &tiny);
    let gbnf = schema_to_gbnf(&schema()).unwrap();
    for (seed, reasoning) in (0..30).zip([Reasoning::Opened, Reasoning::Watch].into_iter().cycle()) {
        let settings = TurnSettings { reasoning, ..kept(grammar(&model, &gbnf), 3.0, seed, 4000) };
        let answer = said(&model, settings);
        assert_eq!(answer.finish, Finish::Stop);
        assert_eq!(answer.reasoning.is_empty(), reasoning == Reasoning::Watch, "{}", answer.reasoning);
        serde_json::from_str::<Value>(&answer.content).unwrap();
    }
}

#[test]
fn a_choice_ends_without_asking_the_model_again() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let answer = said(&model, kept(grammar(&model, "root ::= \"yes\" | \"no\" | \"none\""), 1.0, 3, 50));
    assert!(["yes", "no", "none"].contains(&answer.content.as_str()));
    assert_eq!(answer.finish, Finish::Stop);
    // The scripted engine wants to say something else.
    let model = scripted(json!({ "replies": ["maybe"] }));
    let mut talk = Vec::new();
    ask(&mut talk, "hello");
    let choice = grammar(&model, "root ::= \"yes\" | \"no\"");
    let answer = answer_of(&model, &talk, choice);
    assert!(["yes", "no"].contains(&answer.content.as_str()), "{}", answer.content);
    assert!(!answer.tokens.contains(&END));
}

fn answer_of(model: &Arc<dyn Model>, talk: &[Token], grammar: Box<dyn Grammar>) -> Answer {
    answer(&mut session(Arc::clone(model), None, 256), talk, kept(grammar, 0.0, 1, 50))
}

#[test]
fn what_is_wrong_with_a_grammar_has_a_place() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let wrong = |gbnf: &str| model.grammar(gbnf).unwrap_err().to_string();
    assert_eq!(wrong("root ::= \"a\"\nb ::= [x"), "line 2, column 7: this set of characters has no end");
    assert_eq!(wrong("root ::= \"a\" c"), "line 1, column 14: there is no rule `c`");
    assert_eq!(wrong("root ::= \"a\"*+"), "unsupported grammar, left recursion detected for nonterminal at index 0");
    for schema in [json!({ "type": "strnig" }), json!(true)] {
        assert!(schema_to_gbnf(&schema).is_err());
    }
}
