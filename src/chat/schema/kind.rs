//! What the converter takes a schema for: the first keyword that it finds, in an order of its own.

use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// Formats that are enforced.
const FORMATS: [&str; 9] = ["date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5"];

/// What restricts a value of some type; of any, where it is empty.
pub(super) const KEYWORDS: [(&str, &[&str]); 6] = [
    ("", &["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum"]),
    (
        "object",
        &["properties", "required", "additionalProperties", "patternProperties", "propertyNames", "dependencies"],
    ),
    ("object", &["minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties"]),
    ("array", &["items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems", "unevaluatedItems"]),
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
];

/// `Either` and `Values` with the keyword that makes them so.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Ref,
    Either(&'static str),
    AllOf,
    Values(&'static str),
    Object,
    Array,
    String,
    Integer,
    /// A number, a boolean or null: no keyword but the type counts.
    Plain,
    Any,
}

impl Kind {
    /// For one of the types that a schema names; `None` where there is no such type.
    pub(super) fn of(schema: &Object, named: Option<&str>) -> Option<Self> {
        let has = |keyword| schema.contains_key(keyword);
        let object = has("properties") || schema.get("additionalProperties").is_some_and(|more| *more != true);
        let string = has("pattern") || has("minLength") || has("maxLength") || has_format(schema);
        Some(match named {
            _ if has("$ref") => Self::Ref,
            _ if has("oneOf") => Self::Either("oneOf"),
            _ if has("anyOf") => Self::Either("anyOf"),
            _ if has("const") => Self::Values("const"),
            _ if has("enum") => Self::Values("enum"),
            None | Some("object") if has("allOf") && !object => Self::AllOf,
            Some("string") if has("allOf") => Self::AllOf,
            None if object => Self::Object,
            None if has("items") || has("prefixItems") => Self::Array,
            None if string => Self::String,
            None => Self::Any,
            Some("object") => Self::Object,
            Some("array") => Self::Array,
            Some("string") => Self::String,
            Some("integer") => Self::Integer,
            Some("number" | "boolean" | "null") => Self::Plain,
            Some(_) => return None,
        })
    }

    /// The type of its values, where it has one whether it is named or not.
    pub(super) fn implied(self) -> Option<&'static str> {
        match self {
            Self::Object => Some("object"),
            Self::Array => Some("array"),
            Self::String => Some("string"),
            _ => None,
        }
    }
}

/// Whether there is a format that is enforced.
pub(super) fn has_format(schema: &Object) -> bool {
    schema.get("format").and_then(Value::as_str).is_some_and(|format| FORMATS.contains(&format))
}

/// The types that a schema names: one `None` where it names none, `None` instead of them where they are no types.
pub(super) fn types(schema: &Object) -> Option<Vec<Option<&str>>> {
    match schema.get("type") {
        None => Some(vec![None]),
        Some(Value::Array(types)) if !types.is_empty() => types.iter().map(|named| named.as_str().map(Some)).collect(),
        Some(named) => named.as_str().map(|named| vec![Some(named)]),
    }
}

/// The values that a schema lists, if it does.
pub(super) fn values(schema: &Object) -> Option<&[Value]> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(std::slice::from_ref(value)),
        (None, Some(Value::Array(values))) => Some(values),
        _ => None,
    }
}

/// The properties that a schema requires.
pub(super) fn required(schema: &Object) -> Vec<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a keyword says nothing, as it stands.
pub(super) fn idle(keyword: &str, value: &Value) -> bool {
    match (keyword, value) {
        ("const" | "enum" | "not" | "if" | "allOf" | "anyOf" | "oneOf", _) => false,
        ("uniqueItems" | "exclusiveMinimum" | "exclusiveMaximum", Value::Bool(on)) => !on,
        ("minItems" | "minLength" | "minProperties", value) => value.as_u64() == Some(0),
        (_, Value::Bool(on)) => *on,
        (_, Value::Array(list)) => list.is_empty(),
        (_, Value::Object(object)) => object.is_empty(),
        (_, value) => value == "",
    }
}

/// The type of a value; every number is a `number`.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
