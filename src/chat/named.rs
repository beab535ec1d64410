//! Templates by name: for a registry entry's `template = "..."`, and for files that bring none.

/// All names, for messages.
pub const NAMES: &str = "chatml, gemma, llama3, mistral, phi3, phi4, qwen3";

/// The source of a named template.
pub fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "chatml" => include_str!("templates/chatml.jinja"),
        "gemma" => include_str!("templates/gemma.jinja"),
        "llama3" => include_str!("templates/llama3.jinja"),
        "mistral" => include_str!("templates/mistral.jinja"),
        "phi3" => include_str!("templates/phi3.jinja"),
        "phi4" => include_str!("templates/phi4.jinja"),
        "qwen3" => include_str!("templates/qwen3.jinja"),
        _ => return None,
    })
}
