//! Checks a JSON Schema before llama.cpp's converter makes a grammar of it: that answers every fault with the same error,
//! passes over what it does not know, and does not come back from some bounds. What is said here is true of the converter
//! (its order of looking at keywords, its limits, its faults), not of JSON Schema.

mod kind;
mod part;
mod pattern;
mod union;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use kind::{KEYWORDS, Kind, Object};

/// llama.cpp's: more repetitions are refused, or silently without end.
const MOST_REPEATED: u64 = 2000;
/// Schemas inside each other, by references too: the converter calls itself, and 1000 are too many for a thread of 2 MiB.
const DEEPEST: usize = 400;
/// Characters of a name that others are told from: each becomes a bracket within the last.
const LONGEST_NAME: usize = 190;
/// From here on the converter counts digits wrongly, and without end, where there is no bound on the other side.
const FARTHEST: i64 = 1_000_000_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// There would be no grammar, or one of something else.
    Refused,
    /// There would be a grammar, which does not hold to this.
    Ignored,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer; empty for the whole schema.
    pub path: String,
    pub finding: Finding,
    pub cause: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.path.is_empty() { "the schema" } else { &self.path };
        write!(f, "{place}: {}", self.cause)
    }
}

/// Everything that is wrong with a schema, in its order. Definitions that nothing refers to are not looked at.
pub fn check(schema: &Value) -> Vec<Problem> {
    let mut checker =
        Checker { root: schema, todo: Vec::new(), seen: HashSet::new(), rules: HashMap::new(), problems: Vec::new() };
    checker.todo.push(Node { path: String::new(), rule: String::new(), schema, depth: 0 });
    while let Some(node) = checker.todo.pop() {
        let rest = checker.todo.len();
        if checker.seen.insert(std::ptr::from_ref(node.schema)) {
            checker.node(&node);
        }
        // The next to be taken is the first that was found.
        checker.todo[rest..].reverse();
    }
    checker.problems
}

/// A schema, where it is, and what the converter calls it in the grammar.
struct Node<'s> {
    path: String,
    rule: String,
    schema: &'s Value,
    depth: usize,
}

impl<'s> Node<'s> {
    fn within(&self, keyword: &str, key: &str, rule: &str, schema: &'s Value) -> Self {
        let mut path = format!("{}/{keyword}", self.path);
        if !key.is_empty() || keyword == "properties" {
            path = path + "/" + &key.replace('~', "~0").replace('/', "~1");
        }
        let rule = if self.rule.is_empty() { rule.to_owned() } else { format!("{}-{rule}", self.rule) };
        Self { path, rule, schema, depth: self.depth + 1 }
    }

    /// What a `$ref` leads to.
    fn target(&self, reference: &str, schema: &'s Value) -> Self {
        let path = reference.trim_start_matches('#').to_owned();
        Self { rule: format!("ref{path}"), path, schema, depth: self.depth + 1 }
    }

    fn is_target(&self) -> bool {
        self.rule.strip_prefix("ref") == Some(&self.path)
    }

    /// The schemas of a list.
    fn list(&self, keyword: &str, list: &'s [Value], rule: &str) -> Vec<Self> {
        let numbered = list.iter().enumerate();
        numbered.map(|(i, item)| self.within(keyword, &i.to_string(), &format!("{rule}{i}"), item)).collect()
    }
}

struct Checker<'s> {
    root: &'s Value,
    todo: Vec<Node<'s>>,
    seen: HashSet<*const Value>,
    /// Which schema has a name in the grammar.
    rules: HashMap<String, *const Value>,
    problems: Vec<Problem>,
}

impl<'s> Checker<'s> {
    fn report(&mut self, path: &str, finding: Finding, cause: impl Into<String>) {
        let problem = Problem { path: path.to_owned(), finding, cause: cause.into() };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn refuse(&mut self, node: &Node, cause: impl Into<String>) {
        self.report(&node.path, Finding::Refused, cause);
    }

    fn node(&mut self, node: &Node<'s>) {
        let Some(schema) = node.schema.as_object() else {
            let cause = match node.schema {
                Value::Bool(_) => "`true` and `false` are not possible as a schema here",
                _ => "a schema is an object",
            };
            return self.refuse(node, cause);
        };
        if node.depth > DEEPEST {
            return self.refuse(node, format!("more than {DEEPEST} schemas inside each other"));
        }
        let Some(types) = kind::types(schema) else {
            return self.refuse(node, "`type` is to be a name or a list of names");
        };
        for (i, named) in types.iter().copied().enumerate() {
            if types[..i].contains(&named) {
                self.refuse(node, "`type` names one twice");
                continue;
            }
            let Some(kind) = Kind::of(schema, named) else {
                self.refuse(node, format!("there is no type `{}`", named.unwrap_or_default()));
                continue;
            };
            let (held, beside) = self.kind(node, schema, kind);
            let bare = matches!(kind, Kind::Array | Kind::String | Kind::Integer)
                && !held.iter().any(|key| schema.contains_key(*key));
            if node.is_target() || !(bare || matches!(kind, Kind::Ref | Kind::Plain)) {
                self.name(node);
            }
            let about = named.or(kind.implied()).map(|named| if named == "integer" { "number" } else { named });
            self.leave(node, schema, about, &held, &beside);
        }
        if let Some(values) = kind::values(schema) {
            let same = |value, named| named == kind::type_of(value) || named == "integer" && value.is_number();
            let fits = |value| types.iter().any(|named| named.is_none_or(|named| same(value, named)));
            if let Some(odd) = values.iter().find(|value| !fits(value)) {
                self.report(
                    &node.path,
                    Finding::Ignored,
                    format!("`type` is not enforced: {odd} is taken all the same"),
                );
            }
        }
    }

    /// Reports what restricts values of this type, or of any, and is not among what is enforced.
    fn leave(&mut self, node: &Node, schema: &Object, about: Option<&str>, held: &[&str], beside: &str) {
        for (of, keywords) in KEYWORDS {
            for keyword in keywords.iter().filter(|_| of.is_empty() || about.is_none_or(|about| about == of)) {
                let said = schema.get(*keyword).filter(|value| !kind::idle(keyword, value) && !held.contains(keyword));
                if let Some(value) = said {
                    let which = if *keyword == "format" { format!(" {value}") } else { String::new() };
                    self.report(&node.path, Finding::Ignored, format!("`{keyword}`{which} is not enforced{beside}"));
                }
            }
        }
    }

    /// Looks at what makes a schema of this kind. Gives the keywords that are enforced, and why others are not.
    fn kind(&mut self, node: &Node<'s>, schema: &'s Object, kind: Kind) -> (Vec<&'static str>, String) {
        let beside = |keyword: &'static str| (vec![keyword], format!(" beside `{keyword}`"));
        let held = match kind {
            Kind::Ref => {
                self.reference(node, &schema["$ref"]);
                return beside("$ref");
            }
            Kind::Either(keyword) => {
                self.either(node, schema, keyword);
                return beside(keyword);
            }
            Kind::AllOf => {
                self.all_of(node, schema);
                return (vec!["allOf", "required", "unevaluatedProperties"], " beside `allOf`".into());
            }
            Kind::Values(keyword) => {
                if keyword == "enum" && schema["enum"].as_array().is_none_or(Vec::is_empty) {
                    self.refuse(node, "`enum` is to be a list, and not empty");
                }
                return beside(keyword);
            }
            Kind::Any => {
                self.format(node, schema);
                return (Vec::new(), " where there is no `type`".into());
            }
            Kind::Object => self.object(node, schema),
            Kind::Array => self.array(node, schema),
            Kind::String => self.string(node, schema),
            Kind::Integer => self.integer(node, schema),
            Kind::Plain => Vec::new(),
        };
        (held, String::new())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Finding, check};

    /// The problems as a user would read them, `-` before what is refused and `~` before what is ignored.
    fn said(schema: &Value) -> Vec<String> {
        let sign = |finding| if finding == Finding::Refused { '-' } else { '~' };
        check(schema).iter().map(|problem| format!("{} {problem}", sign(problem.finding))).collect()
    }

    /// Each schema with the beginning of every problem, and a word of its cause.
    fn agree<const N: usize>(cases: [(Value, Vec<(&str, &str)>); N]) {
        for (schema, expected) in cases {
            let said = said(&schema);
            assert_eq!(said.len(), expected.len(), "{schema}: {said:#?}");
            for (said, (place, word)) in said.iter().zip(expected) {
                let agrees = said.starts_with(&format!("{place}: ")) && said.contains(word);
                assert!(agrees, "{schema}: {said}, not {place} {word}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        agree([
            (json!(true), vec![("- the schema", "`true`")]),
            (json!({"type": "array", "items": false}), vec![("- /items", "`false`")]),
            (json!({"type": "strng"}), vec![("- the schema", "`strng`")]),
            (json!({"type": []}), vec![("- the schema", "`type`")]),
            (json!({"enum": []}), vec![("- the schema", "not empty")]),
            (json!({"anyOf": []}), vec![("- the schema", "not empty")]),
            (json!({"type": "string", "enum": ["a", 1]}), vec![("~ the schema", "1 is taken")]),
            (json!({"properties": {"a/b": {"type": "any"}}}), vec![("- /properties/a~1b", "`any`")]),
            // References.
            (json!({"$ref": "#"}), vec![("- the schema", "$defs")]),
            (json!({"$ref": "https://example.org/a"}), vec![("- the schema", "only to paths")]),
            (json!({"$ref": "#/$defs/a"}), vec![("- the schema", "not there")]),
            (json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}}), vec![("- the schema", "`~`")]),
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
                vec![("- /$defs/a/anyOf/0", "itself")],
            ),
            (
                json!({"$ref": "#/$defs/a", "minLength": 2, "title": "t", "$defs": {"a": {"type": "string"}}}),
                vec![("~ the schema", "`minLength` is not enforced beside `$ref`")],
            ),
            (
                json!({"properties": {"o": {"$ref": "#/$defs/o"}, "s": {"$ref": "#/$defs/o_s"}},
                    "$defs": {"o": {"properties": {"s": {"enum": [1]}}}, "o_s": {"enum": [2]}}}),
                vec![("- /$defs/o_s", "rename")],
            ),
        ]);
    }

    #[test]
    fn what_unions_lose_is_said() {
        agree([
            (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), vec![("~ the schema", "`anyOf`")]),
            (json!({"oneOf": [{"type": "integer"}, {"type": "string"}, {"const": null}]}), vec![]),
            (
                json!({"oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]}, {"properties": {"k": {"const": 2}}, "required": ["k"]}]}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}),
                vec![
                    ("~ the schema", "`type`"),
                    ("~ the schema", "`properties` is not enforced beside `anyOf`"),
                    ("~ /anyOf/0", "`required`"),
                ],
            ),
            (json!({"allOf": [{"type": "string"}]}), vec![("- /allOf/0", "parts"), ("- the schema", "makes no")]),
            (
                json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"a": {}}}]}),
                vec![("- /allOf/1", "`a`")],
            ),
            (json!({"allOf": [{"properties": {"a": {}}}]}), vec![("~ the schema", "`required`")]),
            (json!({"allOf": [{"enum": [1, 2]}, {"enum": [2]}]}), vec![]),
            (json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}), vec![("~ the schema", "`allOf`")]),
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"allOf": [{"$ref": "#/$defs/a"}]}}}}}),
                vec![("- /$defs/a/properties/b", "within itself")],
            ),
        ]);
    }

    #[test]
    fn what_objects_lose_is_said() {
        agree([
            (json!({"properties": {"a]": {}}, "additionalProperties": true}), vec![("- the schema", "\"a]\"")]),
            (json!({"properties": {"a\\": {}}, "additionalProperties": {}}), vec![("- the schema", "control")]),
            (json!({"properties": {"a]\\": {}}}), vec![]),
            (json!({"properties": {"*": {}}}), vec![("- the schema", "`*`")]),
            (json!({"properties": {"a": {}}, "required": ["a", "b"]}), vec![("~ the schema", "`b`")]),
            (
                json!({"type": "object", "patternProperties": {"^a": {}}, "propertyNames": {"maxLength": 2}, "minProperties": 1, "maxProperties": 2, "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": false}),
                [
                    "`patternProperties`",
                    "`propertyNames`",
                    "`minProperties`",
                    "`maxProperties`",
                    "`dependentRequired`",
                    "`unevaluatedProperties`",
                ]
                .map(|keyword| ("~ the schema", keyword))
                .to_vec(),
            ),
            (json!({"properties": {"a": {}}, "unevaluatedProperties": false, "minProperties": 0}), vec![]),
        ]);
    }

    #[test]
    fn bounds_that_the_converter_cannot_take_are_said() {
        agree([
            (json!({"type": "array", "minItems": 3, "maxItems": 2}), vec![("- the schema", "more than")]),
            (json!({"type": "array", "minItems": 3000}), vec![("- the schema", "2001")]),
            (json!({"type": "array", "maxItems": 2000}), vec![("- the schema", "1998")]),
            (json!({"type": "array", "maxItems": 3000}), vec![("~ the schema", "2001")]),
            (json!({"type": "array", "minItems": 1.0}), vec![("- the schema", "whole")]),
            (json!({"type": "array", "uniqueItems": true, "contains": {}}), vec![("~ the schema", "`uniqueItems`")]),
            (json!({"items": {}, "prefixItems": [{}]}), vec![("~ the schema", "`prefixItems`")]),
            // Text.
            (json!({"type": "string", "maxLength": 3000}), vec![("~ the schema", "2000")]),
            (json!({"type": "string", "format": "email"}), vec![("~ the schema", "\"email\"")]),
            (json!({"type": "string", "format": "date-time", "minLength": 2}), vec![("~ the schema", "`minLength`")]),
            (json!({"type": "string", "pattern": "a"}), vec![("~ the schema", "`^`")]),
            (json!({"type": "string", "pattern": "^(a$"}), vec![("- the schema", "not closed")]),
            // Numbers.
            (
                json!({"type": "number", "minimum": 1, "maximum": 2}),
                vec![("~ the schema", "`minimum`"), ("~ the schema", "`maximum`")],
            ),
            (json!({"minimum": 1}), vec![("~ the schema", "no `type`")]),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2}),
                vec![("~ the schema", "`multipleOf`")],
            ),
            (json!({"type": "integer", "exclusiveMinimum": 1, "maximum": 1}), vec![("- the schema", "within these")]),
            (json!({"type": "integer", "minimum": 9_007_199_254_740_991_i64}), vec![("- the schema", "at most")]),
            (json!({"type": "integer", "maximum": 9_007_199_254_740_991_i64}), vec![]),
            (json!({"type": "integer", "minimum": 1e30}), vec![("- the schema", "64 bits")]),
            (json!({"type": "string", "minimum": 1, "minItems": 1}), vec![]),
            // Anything.
            (json!({"not": {}, "if": {}, "then": {}}), vec![("~ the schema", "`not`"), ("~ the schema", "`if`")]),
            (
                json!({"title": "t", "default": 1, "examples": [], "deprecated": true, "$comment": "c", "$id": "i"}),
                vec![],
            ),
        ]);
    }

    #[test]
    fn a_schema_of_everyday_has_no_problem() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Invoice",
            "type": "object",
            "properties": {
                "id": {"type": "string", "format": "uuid", "description": "given by the shop"},
                "number": {"type": "string", "pattern": "^INV-[0-9]{4,8}(-[A-Z])?$"},
                "date": {"type": "string", "format": "date"},
                "currency": {"enum": ["EUR", "USD"], "default": "EUR"},
                "paid": {"type": "boolean"},
                "note": {"type": ["string", "null"], "maxLength": 200},
                "total": {"type": "number"},
                "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 8, "uniqueItems": false},
                "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
                "by": {"oneOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]}
            },
            "required": ["id", "number", "lines"],
            "additionalProperties": false,
            "$defs": {
                "line": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
                    "required": ["text", "count"]
                },
                "person": {"type": "object", "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/person"}}},
                "unused": false
            }
        });
        assert_eq!(said(&schema), [""; 0]);
    }

    #[test]
    fn schemas_within_themselves_come_to_an_end() {
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}});
        assert_eq!(said(&tree), [""; 0]);
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(matches!(&said(&circle)[..], [one] if one.contains("itself")));
    }

    #[test]
    fn depth_counts_through_references() {
        let mut schema = json!({"$ref": "#/$defs/0", "$defs": {"900": {}}});
        for i in 0..900 {
            schema["$defs"][i.to_string()] = json!({"items": {"$ref": format!("#/$defs/{}", i + 1)}});
        }
        let said = said(&schema);
        assert!(said.len() == 1 && said[0].contains("inside each other"), "{said:?}");
    }

    #[test]
    fn names_that_others_are_told_from_are_counted() {
        let names = |many| (0..many).map(|i| (format!("{i:03}-of-a-long-name"), json!({}))).collect::<Value>();
        assert_eq!(said(&json!({"properties": names(200)})), [""; 0]);
        assert_eq!(said(&json!({"properties": names(40), "additionalProperties": true})), [""; 0]);
        assert!(said(&json!({"properties": names(200), "additionalProperties": true}))[0].contains("too many"));
    }
}
