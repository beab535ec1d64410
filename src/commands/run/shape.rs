//! From what an answer is to be kept to, to a grammar.

use crate::chat::schema;
use crate::engine::llama::schema_to_gbnf;
use crate::engine::{Grammar, GrammarError, Model};
use crate::error::{Error, Result};
use crate::settings::Shape;
use crate::ui::output::Terminal;

/// Compiles a shape for a model.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn grammar(shape: &Shape, model: &dyn Model, terminal: &Terminal) -> Result<Box<dyn Grammar>> {
    let (gbnf, name) = match shape {
        Shape::Json => (of_schema(&serde_json::json!({ "type": ["object", "array"] }))?, "--json"),
        Shape::Schema(value) => (checked(value, terminal)?, "the schema"),
        Shape::Grammar { source, name } => (source.clone(), name.as_str()),
        Shape::Choices(choices) => {
            let texts: Vec<String> = choices.iter().map(|text| literal(text)).collect();
            (format!("root ::= {}", texts.join(" | ")), "--choice")
        }
    };
    model.grammar(&gbnf).map_err(|error| wrong(name, &error))
}

/// A text as GBNF writes it.
fn literal(text: &str) -> String {
    let character = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\U{:08X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(character).collect::<String>())
}

/// The grammar of a schema that llama.cpp can keep; what it cannot is an error, what it would not is said.
fn checked(value: &serde_json::Value, terminal: &Terminal) -> Result<String> {
    for problem in schema::check(value) {
        let place =
            if problem.path.is_empty() { "the schema".to_owned() } else { format!("the schema at {}", problem.path) };
        match problem.finding {
            schema::Finding::Refused => {
                return Err(
                    Error::usage(format!("{place}: {}", problem.cause)).hint("simplify it, or write a --grammar")
                );
            }
            schema::Finding::Ignored => terminal.warn(&format!("{place} is not enforced: {}", problem.cause)),
        }
    }
    of_schema(value)
}

fn of_schema(value: &serde_json::Value) -> Result<String> {
    schema_to_gbnf(value).map_err(|error| wrong("the schema", &error))
}

fn wrong(name: &str, error: &GrammarError) -> Error {
    Error::usage(format!("{name}: {error}")).hint("mend it, or take a simpler one")
}
