//! The layers of tiny models with a recurrent state: lfm2, whose short convolutions llama.cpp can roll back, and mamba,
//! whose state it cannot. See `tiny` for the rest of the file.

use super::tiny::{EMBED, FEED_FORWARD, Fill, Part, Tiny, feed_forward};

/// lfm2's heads, which must be as wide together as the residual stream.
const HEAD_DIM: usize = 32;
const HEADS: usize = EMBED / HEAD_DIM;
const KV_HEADS: usize = 1;
/// Tokens under a convolution of lfm2, the last one included.
const SHORT: usize = 3;

/// mamba's: llama.cpp knows only an inner size of twice the stream.
const INNER: usize = 2 * EMBED;
const STATE: usize = 8;
const TIME_STEP: usize = 4;
const KERNEL: usize = 4;

/// A hybrid: a convolution, an attention, a convolution.
pub fn lfm2() -> Tiny {
    Tiny { architecture: "lfm2".into(), layers: 3, ..Tiny::default() }
}

/// Nothing but a recurrent state.
pub fn mamba() -> Tiny {
    Tiny { architecture: "mamba".into(), layers: 2, ..Tiny::default() }
}

/// KV heads of a layer; none makes it a convolution.
pub(super) fn lfm2_kv_heads(layer: usize) -> usize {
    if layer % 3 == 1 { KV_HEADS } else { 0 }
}

pub(super) fn lfm2_numbers() -> Vec<(&'static str, usize)> {
    vec![
        ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("rope.dimension_count", HEAD_DIM),
        ("shortconv.l_cache", SHORT),
    ]
}

pub(super) fn lfm2_layer(layer: usize) -> Vec<Part> {
    let own = if lfm2_kv_heads(layer) == 0 {
        vec![
            ("shortconv.in_proj.weight", vec![EMBED, 3 * EMBED], Fill::Random(1.0)),
            ("shortconv.conv.weight", vec![SHORT, EMBED], Fill::Random(1.0)),
            // Heavy in the residual stream, like the attention: a state that is wrong by one token must show.
            ("shortconv.out_proj.weight", vec![EMBED, EMBED], Fill::Random(2.0)),
        ]
    } else {
        vec![
            ("attn_q.weight", vec![EMBED, HEADS * HEAD_DIM], Fill::Random(1.0)),
            ("attn_k.weight", vec![EMBED, KV_HEADS * HEAD_DIM], Fill::Random(1.0)),
            ("attn_v.weight", vec![EMBED, KV_HEADS * HEAD_DIM], Fill::Random(1.0)),
            // Queries are normalised, so this is what makes attention sharp.
            ("attn_q_norm.weight", vec![HEAD_DIM], Fill::All(3.0)),
            ("attn_k_norm.weight", vec![HEAD_DIM], Fill::All(1.0)),
            ("attn_output.weight", vec![HEADS * HEAD_DIM, EMBED], Fill::Random(2.0)),
        ]
    };
    let norm = ("attn_norm.weight", vec![EMBED], Fill::All(1.0));
    [vec![norm], own, feed_forward()].concat()
}

pub(super) fn mamba_numbers() -> Vec<(&'static str, usize)> {
    vec![
        ("ssm.conv_kernel", KERNEL),
        ("ssm.inner_size", INNER),
        ("ssm.state_size", STATE),
        ("ssm.time_step_rank", TIME_STEP),
    ]
}

pub(super) fn mamba_layer() -> Vec<Part> {
    vec![
        ("attn_norm.weight", vec![EMBED], Fill::All(1.0)),
        ("ssm_in.weight", vec![EMBED, 2 * INNER], Fill::Random(1.0)),
        ("ssm_conv1d.weight", vec![KERNEL, INNER], Fill::Random(1.0)),
        ("ssm_conv1d.bias", vec![INNER], Fill::All(0.0)),
        ("ssm_x.weight", vec![INNER, TIME_STEP + 2 * STATE], Fill::Random(1.0)),
        ("ssm_dt.weight", vec![TIME_STEP, INNER], Fill::Random(1.0)),
        // Time steps of about 0.13: with the slowest decay below, some thirty tokens are remembered.
        ("ssm_dt.bias", vec![INNER], Fill::All(-2.0)),
        ("ssm_a", vec![STATE, INNER], Fill::Each(|index| -0.25 * (1 + index % STATE) as f32)),
        ("ssm_d", vec![INNER], Fill::All(1.0)),
        ("ssm_out.weight", vec![INNER, EMBED], Fill::Random(2.0)),
    ]
}
