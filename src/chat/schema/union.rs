//! Schemas of several: the converter takes any one of them, or puts together what it can.

use serde_json::{Map, Value};

use super::kind::{self, Kind, Object};
use super::part::leads;
use super::{Checker, DEEPEST, Finding, Node};

impl<'s> Checker<'s> {
    pub(super) fn either(&mut self, node: &Node<'s>, schema: &'s Object, keyword: &str) {
        let Some(branches) = schema[keyword].as_array().filter(|branches| !branches.is_empty()) else {
            return self.refuse(node, format!("`{keyword}` is to be a list, and not empty"));
        };
        self.todo.extend(node.list(keyword, branches, if node.rule.is_empty() { "alternative-" } else { "" }));
        let any =
            |branch| matches!(self.settled(branch).map(|(_, object)| Kind::of(object, None)), Some(Some(Kind::Any)));
        if schema.contains_key("type") && branches.iter().any(|branch| branch.get("type").is_none() && any(branch)) {
            let cause = format!("`type` is not enforced beside `{keyword}`; give it in each branch");
            self.report(&node.path, Finding::Ignored, cause);
        }
        let overlap = |(i, one)| branches[..i].iter().any(|other| !self.apart(one, other));
        if keyword == "oneOf" && branches.iter().enumerate().any(overlap) {
            let cause = "`oneOf` is taken as `anyOf`: more than one branch may match";
            self.report(&node.path, Finding::Ignored, cause);
        }
    }

    /// What a schema is in the end, with the reference that led there.
    fn settled(&self, mut schema: &'s Value) -> Option<(Option<&'s str>, &'s Object)> {
        let mut way = None;
        for _ in 0..DEEPEST {
            match schema.get("$ref") {
                None => return Some((way, schema.as_object()?)),
                Some(reference) => {
                    way = reference.as_str();
                    schema = self.target(way?)?;
                }
            }
        }
        None
    }

    /// Whether nothing that is made for one of two schemas matches the other.
    fn apart(&self, one: &'s Value, other: &'s Value) -> bool {
        let (Some((_, one)), Some((_, other))) = (self.settled(one), self.settled(other)) else { return false };
        let (types, others) = (made(one), made(other));
        if !types.is_empty() && !others.is_empty() && !types.iter().any(|named| others.contains(named)) {
            return true;
        }
        if differ(Some(one), Some(other)) {
            return true;
        }
        let property = |object: &'s Object, name: &str| {
            object
                .get("properties")
                .and_then(|all| all.get(name))
                .and_then(|schema| self.settled(schema))
                .map(|(_, schema)| schema)
        };
        let closed = |object: &Object| {
            object.contains_key("properties") && object.get("additionalProperties").is_none_or(|more| *more == false)
        };
        let lacks = |object: &'s Object, needed: &[&str]| {
            closed(object) && needed.iter().any(|name| property(object, name).is_none())
        };
        let (needed, needed_by_other) = (kind::required(one), kind::required(other));
        needed.iter().any(|name| needed_by_other.contains(name) && differ(property(one, name), property(other, name)))
            || lacks(one, &needed_by_other) && lacks(other, &needed)
    }

    /// Schemas that the converter goes into for this one: it keeps what a `$ref` leads to apart, but not in `allOf`.
    fn inside(&self, schema: &'s Value) -> Vec<&'s Value> {
        let Some(object) = schema.as_object().filter(|object| !object.contains_key("$ref")) else { return Vec::new() };
        let mut inside = Vec::new();
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(all)) => inside.extend(all.values()),
                ("allOf", Value::Array(parts)) => {
                    let parts = parts.iter().filter_map(|part| self.settled(part)).map(|(_, part)| part);
                    inside.extend(parts.filter_map(|part| part.get("properties")?.as_object()).flat_map(Map::values));
                }
                ("items" | "prefixItems" | "oneOf" | "anyOf", Value::Array(list)) => inside.extend(list),
                ("items" | "prefixItems" | "additionalProperties", one) => inside.push(one),
                _ => {}
            }
        }
        inside
    }

    pub(super) fn all_of(&mut self, node: &Node<'s>, schema: &'s Object) {
        let Some(list) = schema["allOf"].as_array().filter(|list| !list.is_empty()) else {
            return self.refuse(node, "`allOf` is to be a list, and not empty");
        };
        let inside = self.inside(node.schema);
        if inside.into_iter().any(|within| leads(within, node.schema, |schema| self.inside(schema))) {
            return self.refuse(node, "`allOf` is within itself, without end; a `$ref` alone may be within itself");
        }
        let mut made: Vec<&str> = Vec::new();
        let mut needed = kind::required(schema);
        let mut enums: Vec<&[Value]> = Vec::new();
        for mut part in node.list("allOf", list, "") {
            let Some((way, object)) = self.settled(part.schema) else {
                self.todo.push(part);
                continue;
            };
            if let Some(way) = way {
                part.path = part.target(way, part.schema).path;
            }
            part.rule.clone_from(&node.rule);
            let types = kind::types(object).unwrap_or_default();
            match types[..] {
                [named] if Kind::of(object, named) == Some(Kind::Object) => {
                    needed.extend(kind::required(object));
                    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
                        if made.contains(&name.as_str()) {
                            self.refuse(&part, format!("the property `{name}` is in more than one part of an `allOf`"));
                        }
                        made.push(name);
                        self.todo.push(part.within("properties", name, name, property));
                    }
                    let held = ["properties", "required", "additionalProperties", "unevaluatedProperties"];
                    self.leave(&part, object, Some("object"), &held, " within `allOf`");
                }
                [named] if Kind::of(object, named) == Some(Kind::Values("enum")) => enums.extend(kind::values(object)),
                [None] if Kind::of(object, None) == Some(Kind::Any) => {
                    needed.extend(kind::required(object));
                    self.leave(&part, object, None, &["required"], " within `allOf`");
                }
                _ => self.refuse(&part, "only objects with `properties`, or `enum`s, can be parts of an `allOf`"),
            }
        }
        let shared = |value: &&Value| enums.iter().filter(|values| values.contains(value)).count() == list.len();
        if enums.first().is_some_and(|values| values.iter().find(shared).is_some()) {
            return;
        }
        if made.is_empty() || !enums.is_empty() {
            self.refuse(node, "`allOf` makes no properties, and its `enum`s have no value in common");
        } else if made.iter().any(|name| !needed.contains(name)) {
            self.report(&node.path, Finding::Ignored, "`allOf` makes all of its properties, also those not `required`");
        }
    }
}

/// The types of what is made for a schema; empty where that is not plain.
fn made(schema: &Object) -> Vec<&str> {
    if let Some(values) = kind::values(schema) {
        return values.iter().map(kind::type_of).collect();
    }
    let named = kind::types(schema).unwrap_or_default();
    match named[..] {
        [None] => Kind::of(schema, None).and_then(Kind::implied).into_iter().collect(),
        _ => named.into_iter().flatten().map(|named| if named == "integer" { "number" } else { named }).collect(),
    }
}

fn differ(one: Option<&Object>, other: Option<&Object>) -> bool {
    match (one.and_then(kind::values), other.and_then(kind::values)) {
        (Some(one), Some(other)) => !one.iter().any(|value| other.contains(value)),
        _ => false,
    }
}
