//! What templates of the Hugging Face world call and minijinja does not have.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize as _;

/// Adds the functions and filters that `transformers` gives to chat templates.
pub(super) fn install(env: &mut Environment<'_>) {
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", |format: String| {
        jiff::fmt::strtime::format(&format, &jiff::Zoned::now())
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
}

/// Python's `json.dumps(value, ensure_ascii=False)`: a space after `:` and `,`, nothing escaped for HTML.
#[expect(clippy::needless_pass_by_value, reason = "the shape that minijinja calls filters with")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    let _: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    let invalid = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut bytes = Vec::new();
    if let Some(indent) = indent {
        let indent = " ".repeat(indent.min(16));
        let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        value.serialize(&mut serializer).map_err(invalid)?;
    } else {
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Python)).map_err(invalid)?;
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

struct Python;

impl serde_json::ser::Formatter for Python {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// `{% generation %}` marks what training looks at; for rendering it is nothing. Replaced by a block that always runs.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else {
            break;
        };
        let inner = &rest[start + 2..start + len];
        let replacement = match inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace()) {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..start + 2]);
        match replacement {
            Some(tag) => {
                out.push_str(if inner.starts_with('-') { "- " } else { " " });
                out.push_str(tag);
                out.push_str(if inner.ends_with('-') { " -" } else { " " });
            }
            None => out.push_str(inner),
        }
        out.push_str("%}");
        rest = &rest[start + len + 2..];
    }
    out.push_str(rest);
    out
}
