//! An answer that is kept to a grammar: the tiny model says anything, the scripted engine what it is told.

use std::sync::Arc;

use qchat::engine::{Grammar, Model, Rules, Token};
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

/// The value of a JSON text; none where a number of it is JSON but too large for a double.
fn json_of(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) if error.to_string().starts_with("number out of range") => {
            serde_json::from_str::<serde::de::IgnoredAny>(text).unwrap();
            None
        }
        Err(error) => panic!("{error}: {text:?}"),
    }
}

fn grammar(model: &Arc<dyn Model>, gbnf: &str) -> Grammar {
    model.grammar(&Rules::Gbnf(gbnf.into())).unwrap().0
}

/// The grammar of a schema, all of which is enforced.
fn of(model: &Arc<dyn Model>, schema: &Value) -> Grammar {
    let (grammar, ignored) = model.grammar(&Rules::Schema(schema.clone())).unwrap();
    assert_eq!(ignored, [""; 0]);
    grammar
}

fn kept(grammar: Grammar, temperature: f32, seed: u64, max_tokens: usize) -> TurnSettings {
    let sampling = Sampling { temperature, seed, ..Sampling::greedy() };
    TurnSettings { sampling, grammar: Some(grammar), ..settings(0.0, Some(max_tokens)) }
}

fn said(model: &Arc<dyn Model>, settings: TurnSettings) -> Answer {
    answer(&mut session(Arc::clone(model), None, 1024), &text("Who?"), settings)
}

#[test]
fn whatever_the_model_says_is_json_of_the_schema() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let schema = of(&model, &schema());
    let mut whole = 0;
    for seed in 0..150 {
        let temperature = [0.0, 0.7, 3.0][seed as usize % 3];
        let answer = said(&model, kept(schema.clone(), temperature, seed, 2000));
        assert_eq!(answer.finish, Finish::Stop, "{}", answer.content);
        let Some(value) = json_of(&answer.content) else { continue };
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
    let schema = of(&model, &json!({ "type": "object" }));
    let (mut ended, mut cut) = (0, 0);
    for seed in 0..60 {
        let answer = said(&model, kept(schema.clone(), 3.0, seed, 60));
        if answer.finish == Finish::Stop {
            json_of(&answer.content);
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
    let schema = of(&model, &schema);
    let mut open = 0;
    for seed in 0..80 {
        let answer = said(&model, kept(schema.clone(), 3.0, seed, 400));
        if answer.finish == Finish::Stop {
            let Some(value) = json_of(&answer.content) else { continue };
            open += usize::from(value.as_object().unwrap().len() > 1);
        }
    }
    assert!(open > 5, "{open}");
}

#[test]
fn drafts_change_nothing_under_a_grammar() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let schema = of(&model, &schema());
    let mut parted = 0;
    for seed in 0..20 {
        let settings = || kept(schema.clone(), [0.0, 1.0][seed as usize % 2], seed, 400);
        let plain = said(&model, settings());
        let tricks = [Trick::Right, Trick::Wrong, Trick::RightThenWrong(3), Trick::Letters, Trick::Ends, Trick::Beyond];
        for trick in tricks {
            let mut session = session(Arc::clone(&model), None, 1024);
            session.speculate(Some(always(Box::new(Adversary::new(&plain.tokens, trick)), 4)));
            let drafted = answer(&mut session, &text("Who?"), settings());
            assert!(json_of(&drafted.content).is_none_or(|value| value.is_object()));
            if trick == Trick::Right {
                assert!(drafted.speculation.unwrap().accepted > 0);
            }
            // Near-ties may part (a batch adds in another order).
            let same = plain.tokens.iter().zip(&drafted.tokens).take_while(|(a, b)| a == b).count();
            parted += usize::from(same < plain.tokens.len().min(drafted.tokens.len()));
        }
        let mut session = session(Arc::clone(&model), None, 1024);
        session.speculate(Some(Speculator::new(vec![Box::new(Ngram::default())], Box::new(Fixed(vec![4])))));
        json_of(&answer(&mut session, &text("Who?"), settings()).content);
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
    assert!(grammar.clone().accept(end).is_err(), "llama.cpp would end the process");
    assert!(grammar.allows(token('a')) && !grammar.allows(token('b')) && !grammar.allows(Token(-1)));
    assert!(!grammar.allows(Token(99999)) && !grammar.allows(Token(257)), "no such token; a control token");
    // A character in two tokens.
    let mut half = grammar.clone();
    half.accept(Token(0xc3)).unwrap();
    assert!(half.allows(Token(0xa4)) && !half.allows(Token(0xa5)) && !half.allows(end));
    half.accept(Token(0xa4)).unwrap();
    assert!(half.is_over());
    grammar.accept(token('a')).unwrap();
    let mut other = grammar.clone();
    assert!(grammar.accept(token('x')).is_err());
    let mut logits = vec![0.0; model.vocab().len()];
    assert!(!grammar.allows(token('b')) && !grammar.mask(&mut logits) && !grammar.is_complete());
    assert!(grammar.clone().accept(token('b')).is_err());
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
    let schema = of(&model, &schema());
    for (seed, reasoning) in (0..30).zip([Reasoning::Opened, Reasoning::Watch].into_iter().cycle()) {
        let settings = TurnSettings { reasoning, ..kept(schema.clone(), 3.0, seed, 4000) };
        let answer = said(&model, settings);
        assert_eq!(answer.finish, Finish::Stop);
        assert_eq!(answer.reasoning.is_empty(), reasoning == Reasoning::Watch, "{}", answer.reasoning);
        json_of(&answer.content);
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

fn answer_of(model: &Arc<dyn Model>, talk: &[Token], grammar: Grammar) -> Answer {
    answer(&mut session(Arc::clone(model), None, 256), talk, kept(grammar, 0.0, 1, 50))
}

#[test]
fn what_is_wrong_with_a_grammar_has_a_place() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let wrong = |gbnf: &str| model.grammar(&Rules::Gbnf(gbnf.into())).unwrap_err().to_string();
    assert_eq!(wrong("root ::= \"a\"\nb ::= [x"), "line 2, column 7: this set of characters has no end");
    assert_eq!(wrong("root ::= \"a\" c"), "line 1, column 14: there is no rule `c`");
    assert_eq!(
        wrong("root ::= root \"a\" | \"b\""),
        "line 1, column 10: this rule begins with itself (left recursion)"
    );
    for schema in [json!({ "type": "strnig" }), json!(false), json!(7), json!({ "$ref": "#/$defs/none" })] {
        assert!(model.grammar(&Rules::Schema(schema.clone())).is_err(), "{schema}");
    }
    let (_, ignored) = model.grammar(&Rules::Schema(json!({ "type": "array", "uniqueItems": true }))).unwrap();
    assert!(ignored.len() == 1 && ignored[0].contains("uniqueItems"), "{ignored:?}");
}

/// Schemas as people write them.
fn schemas() -> Vec<Value> {
    let person = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 6 }, "boss": { "$ref": "#/$defs/person" } },
        "required": ["name"],
        "additionalProperties": false,
    });
    vec![
        schema(),
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Invoice",
            "type": "object",
            "properties": {
                "number": { "type": "string", "pattern": "^INV-[0-9]{4,8}(-[A-Z])?$" },
                "date": { "type": "string", "format": "date" },
                "currency": { "enum": ["EUR", "USD"], "default": "EUR" },
                "note": { "type": ["string", "null"], "maxLength": 20 },
                "total": { "type": "number", "minimum": 0, "maximum": 1000 },
                "tags": { "type": "array", "items": { "type": "string", "minLength": 1, "maxLength": 3 }, "maxItems": 2 },
                "lines": { "type": "array", "minItems": 1, "maxItems": 3, "items": { "$ref": "#/$defs/line" } },
                "by": { "anyOf": [{ "$ref": "#/$defs/person" }, { "type": "null" }] },
            },
            "required": ["number", "lines", "total", "by"],
            "additionalProperties": false,
            "$defs": {
                "line": {
                    "type": "object",
                    "properties": { "text": { "type": "string", "maxLength": 5 }, "count": { "type": "integer", "minimum": 1, "maximum": 99 } },
                    "required": ["text", "count"],
                    "additionalProperties": false,
                },
                "person": person,
            },
        }),
        json!({ "type": "integer", "exclusiveMinimum": -7, "maximum": 42, "multipleOf": 7 }),
        json!({ "type": "array", "prefixItems": [{ "type": "boolean" }, { "const": "x" }], "items": false, "minItems": 2 }),
        json!({ "allOf": [
            { "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] },
            { "properties": { "b": { "type": "null" } }, "required": ["b"], "additionalProperties": { "type": "boolean" } },
        ] }),
    ]
}

#[test]
fn what_is_said_is_valid_by_another_implementation() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    for schema in schemas() {
        let grammar = of(&model, &schema);
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let mut ended = 0;
        for seed in 0..12 {
            let answer = said(&model, kept(grammar.clone(), [0.0, 1.0, 3.0][seed as usize % 3], seed, 800));
            // A person may have a boss who has one.
            if answer.finish == Finish::Stop {
                let Some(value) = json_of(&answer.content) else { continue };
                assert!(validator.is_valid(&value), "{value} is not {schema}");
                ended += 1;
            }
        }
        assert!(ended >= 6, "{ended} of {schema}");
    }
}

#[test]
fn gbnf_means_what_llama_cpp_means() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let whole = |grammar: &Grammar, text: &str| {
        let mut grammar = grammar.clone();
        text.bytes().all(|byte| grammar.accept(Token(i32::from(byte))).is_ok()) && grammar.is_complete()
    };
    // What a grammar is of, and what not: by hand, from llama.cpp's grammars/README.md.
    for (source, texts, others) in [
        ("root ::= \"a\"", &["a"][..], &["", "aa", "b"][..]),
        ("root ::= [a-] | [^b-z] \"!\"", &["a", "-", "A!", "ä!"], &["b", "b!", "A"]),
        (
            "root ::= (\n \"a\" # one\n | b\n)+\n\nb ::= [^\\n\\x41-\\x5A] . {2,3}\n",
            &["a", "aa", "b12", "b\n\n\n", "a1234"],
            &["b1", "Axx", ""],
        ),
        ("root ::= (\"a\"*)*", &["", "a", "aaa"], &["b"]),
        ("root ::= \"\" | \"ab\"{2} | \"c\"{0,3}", &["", "abab", "c", "ccc"], &["ab", "ababab", "cccc"]),
        (
            "ws ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\nroot ::= ws \"x\" ws",
            &["x", " x ", "\n\n\t x"],
            &["  x", "\n\n\nx"],
        ),
        ("root ::= \"no\" | \"none\" | \"n\" \"on\"", &["no", "none", "non"], &["n", "nonee"]),
        ("root ::= [a-z]+ \"b\"", &["ab", "bb", "abab"], &["b", "a", "ba"]),
        ("root ::= \"(\" root \")\" | \"\" | root2\nroot2 ::= \"[\" root \"]\"", &["", "()", "([()])"], &["(", "([)]"]),
        ("root ::= \"\\u00e4\" \"\\U0001F600\"? [α-ω]", &["äα", "ä😀ω"], &["ä", "ä😀", "ä😁ω"]),
        ("root ::= s\ns ::= \"x\" s \"y\" | \"x\" s | \"x\"", &["x", "xx", "xxy", "xxxyy"], &["xy", "xyy", "y"]),
    ] {
        let grammar = grammar(&model, source);
        texts.iter().for_each(|text| assert!(whole(&grammar, text), "{source}: {text:?}"));
        others.iter().for_each(|text| assert!(!whole(&grammar, text), "{source}: {text:?}"));
    }
}

#[test]
fn a_grammar_that_doubles_with_each_bracket_comes_to_an_end() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let mut grammar = grammar(&model, "root ::= e\ne ::= \"(\" e \")\" | \"(\" e [-+] e \")\" | [0-9]+");
    let open = Token(i32::from(b'('));
    let deep = (0..200).take_while(|_| grammar.accept(open).is_ok()).count();
    assert!((10..40).contains(&deep), "{deep}");
    let mut logits = vec![0.0; model.vocab().len()];
    assert!(!grammar.mask(&mut logits));
}

#[test]
fn objects_have_what_is_listed_where_nothing_else_is_said() {
    let model = load(&Sandbox::new(), &Tiny { spread: 1.0, ..Tiny::default() });
    let listed = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] });
    for seed in 0..20 {
        let said = said(&model, kept(of(&model, &listed), 3.0, seed, 400));
        assert_eq!(json_of(&said.content).unwrap().as_object().unwrap().len(), 1, "{}", said.content);
    }
}

#[test]
fn objects_of_several_schemas_stay_open() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let branch = |name: &str| json!({ "properties": { name: { "type": "integer" } }, "required": [name] });
    let base = json!({ "kind": { "enum": ["a", "b"] } });
    for (schema, text) in [
        (
            json!({ "type": "object", "properties": base, "required": ["kind"], "anyOf": [branch("x"), branch("y")] }),
            "{\"kind\": \"a\", \"x\": 1}",
        ),
        (json!({ "type": "object", "properties": base, "required": ["kind", "z"] }), "{\"kind\": \"a\", \"z\": 1}"),
        (
            json!({ "allOf": [{ "type": "object", "properties": base, "required": ["kind"] }, branch("y")] }),
            "{\"kind\": \"b\", \"y\": 7}",
        ),
    ] {
        let mut grammar = of(&model, &schema);
        assert!(jsonschema::is_valid(&schema, &json_of(text).unwrap()));
        text.bytes().for_each(|byte| grammar.accept(Token(i32::from(byte))).unwrap());
        assert!(grammar.is_complete(), "{text}");
    }
}

#[test]
fn a_mask_is_what_is_allowed_token_by_token() {
    let model = load(&Sandbox::new(), &Tiny::default());
    let sources = ["root ::= ([a-zä-ü]+ \" \"?){2,4} \".\"", "root ::= \"(\" root \")\" root | [^()\"]*"];
    let own = sources.iter().map(|source| grammar(&model, source));
    for grammar in own.chain([of(&model, &schema())]) {
        for seed in 0..6 {
            let mut at = grammar.clone();
            for step in 0..40u64 {
                let mut logits = vec![0.0; model.vocab().len() + 3];
                let any = at.mask(&mut logits);
                let allowed: Vec<usize> =
                    (0..logits.len()).filter(|token| at.allows(Token::from_index(*token))).collect();
                let left: Vec<usize> = (0..logits.len()).filter(|token| logits[*token] == 0.0).collect();
                assert_eq!((any, left), (!allowed.is_empty(), allowed.clone()));
                let texts: Vec<usize> = allowed.into_iter().filter(|token| *token < 256).collect();
                let Some(next) = texts.get((seed * 7919 + step * 104_729) as usize % texts.len().max(1)) else { break };
                at.accept(Token::from_index(*next)).unwrap();
            }
        }
    }
}
