//! The layers of a tiny model with a sliding window: gemma3's, of which every second one sees all positions.

use super::tiny::{Fill, Part, Tiny};

/// A layer with the window, then one without.
const PATTERN: usize = 2;

/// One whose window has so many tokens.
pub fn gemma3(window: usize) -> Tiny {
    Tiny { architecture: "gemma3".into(), window, ..Tiny::default() }
}

pub(super) fn gemma3_numbers(window: usize) -> Vec<(&'static str, usize)> {
    vec![("attention.sliding_window", window), ("attention.sliding_window_pattern", PATTERN)]
}

/// What a layer has besides llama's. What is looked up is scaled by 8 here, and what layers add is normalised: the weights
/// behind that keep attention heavy in the residual stream.
pub(super) fn gemma3_norms(embed: usize, head_dim: usize) -> Vec<Part> {
    vec![
        ("attn_q_norm.weight", vec![head_dim], Fill::All(2.0)),
        ("attn_k_norm.weight", vec![head_dim], Fill::All(1.0)),
        ("post_attention_norm.weight", vec![embed], Fill::All(8.0)),
        ("post_ffw_norm.weight", vec![embed], Fill::All(8.0)),
    ]
}
