//! From what an answer is to be kept to, to a grammar.

use crate::engine::{Grammar, Model, Rules};
use crate::error::{Error, Result};
use crate::settings::Shape;
use crate::ui::output::Terminal;

/// Compiles a shape for a model. What of it is not enforced is said.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn grammar(shape: &Shape, model: &dyn Model, terminal: &Terminal) -> Result<Grammar> {
    let (rules, name) = match shape {
        Shape::Json => (Rules::Schema(serde_json::json!({ "type": ["object", "array"] })), "--json"),
        Shape::Schema(schema) => (Rules::Schema(schema.clone()), "the schema"),
        Shape::Grammar { source, name } => (Rules::Gbnf(source.clone()), name.as_str()),
        Shape::Choices(choices) => (Rules::Texts(choices.clone()), "--choice"),
    };
    let compiled = model.grammar(&rules);
    let (grammar, ignored) =
        compiled.map_err(|error| Error::usage(format!("{name}: {error}")).hint("mend it, or take a simpler one"))?;
    for what in ignored {
        terminal.warn(&format!("{name} is not enforced in full: {what}"));
    }
    Ok(grammar)
}
