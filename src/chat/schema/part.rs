//! What each kind of schema is made of, and the converter's limits for it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::kind::{self, Object};
use super::{Checker, FARTHEST, Finding, LONGEST_NAME, MOST_REPEATED, Node, pattern};

impl<'s> Checker<'s> {
    /// A name that the grammar has already for something else would stand for that.
    pub(super) fn name(&mut self, node: &Node<'s>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let words: Vec<_> = node.rule.split(|c| !plain(c)).filter(|word| !word.is_empty()).collect();
        let schema = std::ptr::from_ref(node.schema);
        if *self.rules.entry(words.join("-")).or_insert(schema) != schema && node.is_target() {
            self.refuse(node, "the grammar would take something else of that name for it; rename it");
        }
    }

    /// What a reference leads to, in the converter's reading: without escapes.
    pub(super) fn target(&self, reference: &str) -> Option<&'s Value> {
        reference.strip_prefix("#/")?.split('/').try_fold(self.root, |at, key| match at {
            Value::Array(list) => list.get(key.parse::<usize>().ok()?),
            _ => at.get(key),
        })
    }

    pub(super) fn reference(&mut self, node: &Node<'s>, reference: &Value) {
        let Some(reference) = reference.as_str() else { return self.refuse(node, "`$ref` is to be text") };
        if !reference.starts_with("#/") {
            let cause = match reference {
                "#" => "`$ref` to the whole schema is not possible; move it into `$defs` and refer to it there".into(),
                _ => format!("`$ref` to `{reference}` is not possible, only to paths in this schema: `#/...`"),
            };
            return self.refuse(node, cause);
        }
        match self.target(reference) {
            None if reference.contains(['~', '%']) => {
                self.refuse(node, format!("`$ref` to `{reference}`: names with `~` and `%` are not found"));
            }
            None => self.refuse(node, format!("`$ref` to `{reference}`, which is not there")),
            Some(target) if leads(target, node.schema, |schema| self.beginnings(schema)) => {
                self.refuse(node, "`$ref` leads to itself");
            }
            Some(target) => self.todo.push(node.target(reference, target)),
        }
    }

    /// What a schema may be as a whole.
    fn beginnings(&self, schema: &'s Value) -> Vec<&'s Value> {
        if let Some(reference) = schema.get("$ref") {
            return reference.as_str().and_then(|reference| self.target(reference)).into_iter().collect();
        }
        let either = schema.get("oneOf").or_else(|| schema.get("anyOf"));
        either.and_then(Value::as_array).into_iter().flatten().collect()
    }

    pub(super) fn object(&mut self, node: &Node<'s>, schema: &'s Object) -> Vec<&'static str> {
        let properties = match schema.get("properties") {
            Some(Value::Object(properties)) => Some(properties),
            Some(_) => {
                self.refuse(node, "`properties` is to be an object");
                None
            }
            None => None,
        };
        for (name, property) in properties.into_iter().flatten() {
            self.todo.push(node.within("properties", name, name, property));
        }
        let more = schema.get("additionalProperties");
        match more {
            Some(Value::Object(_)) => {
                self.todo.extend(more.map(|more| node.within("additionalProperties", "", "additional-value", more)));
            }
            Some(Value::Bool(_)) | None => {}
            Some(_) => self.refuse(node, "`additionalProperties` is to be `true`, `false` or a schema"),
        }
        let open = more.map_or(properties.is_none(), |more| *more != false);
        if let Some(properties) = properties {
            self.names(node, properties, &kind::required(schema), open);
        }
        for name in kind::required(schema).iter().filter(|name| properties.is_none_or(|all| !all.contains_key(**name)))
        {
            let cause = format!("`required` is not enforced for `{name}`, which is not among the `properties`");
            self.report(&node.path, Finding::Ignored, cause);
        }
        let mut held = vec!["properties", "additionalProperties"];
        held.extend((!open).then_some("unevaluatedProperties"));
        held.extend(schema.get("required").is_some_and(Value::is_array).then_some("required"));
        held
    }

    /// Where there may be other properties, the grammar tells their names from these, character by character.
    fn names(&mut self, node: &Node, properties: &Map<String, Value>, required: &[&str], open: bool) {
        let mut beginnings = HashSet::new();
        for name in properties.keys() {
            if name.is_empty() && node.rule.is_empty() {
                self.refuse(node, "a property without a name is not possible here");
            }
            if name == "*" && (open || !required.contains(&"*")) {
                self.refuse(node, "a property named `*` would stand for any others");
            }
            if open && name.contains(|c: char| c < ' ' || "\"\\]^".contains(c)) {
                let cause = format!(
                    "the property {name:?} is not possible beside others: no quotes, `\\`, `]`, `^` and control characters"
                );
                self.refuse(node, cause);
            }
            if open && name.chars().count() > LONGEST_NAME {
                let cause = format!("a property of more than {LONGEST_NAME} characters is not possible beside others");
                self.refuse(node, cause);
            } else if open {
                beginnings.extend(name.char_indices().map(|(at, c)| &name[..at + c.len_utf8()]));
            }
        }
        // Two rules for each beginning, and one for a whole name.
        if open && 2 * beginnings.len() + 3 > MOST_REPEATED as usize + properties.len() {
            self.refuse(
                node,
                "too many properties to tell other ones from them; `\"additionalProperties\": false` helps",
            );
        }
    }

    pub(super) fn array(&mut self, node: &Node<'s>, schema: &'s Object) -> Vec<&'static str> {
        let keyword = if schema.contains_key("items") { "items" } else { "prefixItems" };
        match schema.get(keyword) {
            Some(Value::Array(items)) => {
                self.todo.extend(node.list(keyword, items, "tuple-"));
                let mut held = vec![keyword, "unevaluatedItems"];
                let count = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
                let len = items.len() as u64;
                held.extend((count("minItems").unwrap_or(0) <= len).then_some("minItems"));
                held.extend((count("maxItems").unwrap_or(len) >= len).then_some("maxItems"));
                return held;
            }
            Some(items) => self.todo.push(node.within(keyword, "", "item", items)),
            None => {}
        }
        let most = self.repeated(node, schema, ["minItems", "maxItems"], MOST_REPEATED + 1);
        let least = schema.get("minItems").is_none_or(|least| *least == 0);
        if least && most.is_some_and(|most| (MOST_REPEATED - 1..=MOST_REPEATED + 1).contains(&most)) {
            self.refuse(node, format!("`maxItems` may be {} at most where there may be none", MOST_REPEATED - 2));
        }
        vec![keyword, "minItems", "maxItems"]
    }

    pub(super) fn format(&mut self, node: &Node, schema: &Object) {
        if schema.get("format").is_some_and(|format| !format.is_string()) {
            self.refuse(node, "`format` is to be text");
        }
    }

    pub(super) fn string(&mut self, node: &Node<'s>, schema: &'s Object) -> Vec<&'static str> {
        self.format(node, schema);
        self.repeated(node, schema, ["minLength", "maxLength"], MOST_REPEATED);
        match schema.get("pattern") {
            Some(Value::String(source)) if !source.is_empty() => {
                if let Err((finding, cause)) = pattern::check(source) {
                    self.report(&node.path, finding, format!("`pattern` {cause}"));
                }
                return vec!["pattern"];
            }
            Some(Value::String(_)) | None => {}
            Some(_) => self.refuse(node, "`pattern` is to be text"),
        }
        if kind::has_format(schema) { vec!["format"] } else { vec!["minLength", "maxLength"] }
    }

    /// Bounds of a repetition. Gives the upper one.
    fn repeated(&mut self, node: &Node, schema: &Object, [least, most]: [&str; 2], limit: u64) -> Option<u64> {
        for keyword in [least, most] {
            let count = schema.get(keyword).map(|count| count.as_u64().filter(|count| i32::try_from(*count).is_ok()));
            match count {
                Some(None) => self.refuse(node, format!("`{keyword}` is to be a whole number from 0 to {}", i32::MAX)),
                Some(Some(count)) if count > limit && keyword == least => {
                    self.refuse(node, format!("`{keyword}` may be {limit} at most"));
                }
                Some(Some(count)) if count > limit => {
                    let cause = format!("`{keyword}` is not enforced above {limit}");
                    self.report(&node.path, Finding::Ignored, cause);
                }
                _ => {}
            }
        }
        let count = |keyword| schema.get(keyword).and_then(Value::as_u64);
        if count(most).is_some_and(|most| count(least).is_some_and(|least| least > most)) {
            self.refuse(node, format!("`{least}` is more than `{most}`"));
        }
        count(most)
    }

    pub(super) fn integer(&mut self, node: &Node<'s>, schema: &'s Object) -> Vec<&'static str> {
        let (low_word, low) = self.bound(node, schema, ["minimum", "exclusiveMinimum"], 1);
        let (high_word, high) = self.bound(node, schema, ["maximum", "exclusiveMaximum"], -1);
        match (low, high) {
            (Some(low), Some(high)) if low > high => self.refuse(node, "no whole number is within these bounds"),
            (Some(low), None) if low > FARTHEST => {
                self.refuse(node, format!("`{low_word}` may be {FARTHEST} at most where there is no `maximum`"));
            }
            (None, Some(high)) if high < -FARTHEST => {
                self.refuse(node, format!("`{high_word}` may be -{FARTHEST} at least where there is no `minimum`"));
            }
            _ => {}
        }
        vec![low_word, high_word]
    }

    /// The keyword that counts, and the first or last number that it lets through; none for what has no bound.
    fn bound(
        &mut self,
        node: &Node,
        schema: &Object,
        words: [&'static str; 2],
        inwards: i64,
    ) -> (&'static str, Option<i64>) {
        let keyword = if schema.contains_key(words[0]) { words[0] } else { words[1] };
        let Some(value) = schema.get(keyword) else { return (keyword, None) };
        let exclusive = keyword == words[1];
        let whole = value.as_i64().or_else(|| {
            let bound = value.as_f64().filter(|bound| bound.abs() < 9e18)?;
            Some(if (inwards > 0) == exclusive { bound.floor() } else { bound.ceil() } as i64)
        });
        let end = if inwards > 0 { i64::MIN } else { i64::MAX };
        if whole == Some(end) && !exclusive {
            return (keyword, None);
        }
        // The ends of 64 bits stand for no bound, also with the other sign.
        let whole = whole.and_then(|whole| if exclusive { whole.checked_add(inwards) } else { Some(whole) });
        let whole = whole.filter(|whole| whole.unsigned_abs() < i64::MAX as u64);
        if whole.is_none() {
            self.refuse(node, format!("`{keyword}` is to be a number of 64 bits"));
        }
        (keyword, whole)
    }
}

/// Whether steps lead from a schema to another one, or are none.
pub(super) fn leads<'s>(from: &'s Value, to: &'s Value, step: impl Fn(&'s Value) -> Vec<&'s Value>) -> bool {
    let mut seen = HashSet::new();
    let mut todo = vec![from];
    while let Some(schema) = todo.pop() {
        if std::ptr::eq(schema, to) {
            return true;
        }
        if seen.insert(std::ptr::from_ref(schema)) {
            todo.extend(step(schema));
        }
    }
    false
}
