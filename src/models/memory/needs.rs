//! What a model takes, from its header alone.
//!
//! Estimates for llama.cpp as `engine::llama` sets it up: batches of 512 rows of which 64 have logits, flash attention,
//! an f16 KV in full size also for sliding windows. They may be too high, by less than a third for the models that were
//! measured, and should never be too low.

use crate::models::gguf::{Header, Value};
use crate::models::resolve::Resolved;

/// Bytes that a loaded model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The tensors: as much as the files.
    pub weights: u64,
    /// For a token of context: keys and values of all layers, 2 bytes a number.
    pub kv_per_token: u64,
    /// Whatever else there is, however long the context: buffers of an evaluation, logits, the vocabulary's tables.
    pub compute: u64,
}

/// Rows of an evaluation; rows with logits that the buffers are laid out for; rows with logits that a long draft has.
const ROWS: u64 = 512;
const LOGITS: u64 = 64;
const DRAFT: u64 = 17;
const F32: u64 = 4;
/// llama.cpp rounds a context up to it.
const CELLS: u64 = 256;
/// The attention masks of an evaluation, for a token of context: 512 rows of f16, once for the whole context and once for
/// sliding windows.
const MASKS_PER_TOKEN: u64 = 2 * ROWS * 2;
/// What llama.cpp keeps of a vocabulary for a token or a merge of two: strings and two hash tables (measured: 180).
const VOCABULARY_ENTRY: u64 = 200;
/// The program itself, threads, logs.
const PROGRAM: u64 = 8_000_000;
/// llama.cpp's own limit.
const MAX_LAYERS: u64 = 512;

impl Needs {
    /// Of a model on this disk; none for a script of the scripted engine.
    pub fn of(model: &Resolved) -> Option<Self> {
        model.header.as_ref().map(|header| Self::from_header(header, model.bytes))
    }

    fn from_header(header: &Header, weights: u64) -> Self {
        let shape = Shape::of(header);
        let compute = shape.buffer() + shape.logits() + shape.states + shape.scratch();
        let entries = shape.vocabulary + count(header, "tokenizer.ggml.merges");
        Self { weights, kv_per_token: kv_per_token(header), compute: compute + entries * VOCABULARY_ENTRY + PROGRAM }
    }

    /// The same with keys and values of so many bytes a number.
    #[must_use]
    pub fn with_kv(self, bytes: f64) -> Self {
        Self { kv_per_token: (self.kv_per_token as f64 / 2.0 * bytes).round() as u64, ..self }
    }

    /// Everything together, with a context of so many tokens.
    pub fn at(&self, n_ctx: usize) -> u64 {
        let cells = (n_ctx as u64).next_multiple_of(CELLS);
        let context = cells.saturating_mul(self.kv_per_token.saturating_add(MASKS_PER_TOKEN));
        self.weights.saturating_add(context).saturating_add(self.compute)
    }
}

/// The numbers that the buffers of an evaluation depend on; each cut to what no real model reaches, so that a damaged
/// header cannot make the products overflow.
struct Shape {
    vocabulary: u64,
    /// Numbers of a row between layers, or in the widest part of the attention.
    width: u64,
    /// Numbers of a row inside a feed-forward part, of all experts that a token goes through.
    feed_forward: u64,
    /// Bytes of the states of recurrent layers.
    states: u64,
}

impl Shape {
    fn of(header: &Header) -> Self {
        let own = |key: &str| header.own(key).unwrap_or(0).min(1 << 20);
        let widest = |key: &str| (0..layers(header)).filter_map(|layer| header.of_layer(key, layer)).max().unwrap_or(0);
        let heads = widest("attention.head_count").min(1 << 12) * head_lengths(header).0;
        let recurrent = own("ssm.inner_size");
        let dense = widest("feed_forward_length").min(1 << 20);
        // Each expert that a token goes through has its own rows, inside and behind it.
        let rows = header.own("expert_feed_forward_length").map_or(dense, |inside| inside.min(1 << 20));
        let experts = widest("expert_used_count").min(1 << 10) * (rows + own("embedding_length"));
        // For both sequences of a context: the last columns of the convolution, and the state.
        let columns = own("ssm.conv_kernel").min(64) * (recurrent + 2 * own("ssm.group_count") * own("ssm.state_size"));
        let state = recurrent.max(own("embedding_length")) * own("ssm.state_size").max(own("wkv.head_size"));
        Self {
            vocabulary: count(header, "tokenizer.ggml.tokens"),
            // Recurrent layers were not measured: four times their width is meant to be generous.
            width: own("embedding_length").max(heads).max(4 * recurrent),
            feed_forward: dense.max(experts + own("expert_shared_feed_forward_length")),
            states: 2 * F32 * (columns + state) * layers(header) as u64,
        }
    }

    /// llama.cpp's compute buffer without the masks: five rows between layers, and beside them the logits or three rows
    /// inside a feed-forward part, whichever is more. Found by comparing with what it reports for real models.
    fn buffer(&self) -> u64 {
        let inside = 3 * ROWS * self.feed_forward;
        F32 * (5 * ROWS * self.width + inside.max(LOGITS * self.vocabulary))
    }

    /// The logits as they are handed over.
    fn logits(&self) -> u64 {
        F32 * DRAFT * self.vocabulary
    }

    /// Rows quantised for a multiplication.
    fn scratch(&self) -> u64 {
        ROWS * self.feed_forward.max(self.width) * 5 / 4
    }
}

fn layers(header: &Header) -> usize {
    header.own("block_count").unwrap_or(0).min(MAX_LAYERS) as usize
}

fn count(header: &Header, array: &str) -> u64 {
    match header.get(array) {
        Some(Value::Array(array)) => array.count.min(1 << 24),
        _ => 0,
    }
}

/// Numbers of one key and one value of one head, the larger of those with and without a sliding window.
fn head_lengths(header: &Header) -> (u64, u64) {
    let heads = header.of_layer("attention.head_count", 0).unwrap_or(1).max(1);
    let default = header.own("embedding_length").unwrap_or(0) / heads;
    let length = |key: &str, windowed: &str| {
        let length = header.own(key).unwrap_or(default).max(header.own(windowed).unwrap_or(0));
        length.min(1 << 16)
    };
    (
        length("attention.key_length", "attention.key_length_swa"),
        length("attention.value_length", "attention.value_length_swa"),
    )
}

/// Recurrent layers are counted like others: too much, never too little.
fn kv_per_token(header: &Header) -> u64 {
    let (key, value) = head_lengths(header);
    // Multi-head latent attention keeps one compressed vector, of which the value is a part.
    let is_latent = header.own("attention.key_length_mla").is_some();
    let numbers = if is_latent { key } else { key + value };
    let heads = |layer| {
        let heads = header.of_layer("attention.head_count_kv", layer);
        heads.or_else(|| header.of_layer("attention.head_count", layer)).unwrap_or(0).min(1 << 16)
    };
    (0..layers(header)).map(|layer| heads(layer) * numbers * 2).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A header with these numbers of its architecture and so many tokens and merges.
    fn header(tokens: u64, merges: u64, own: &[(&str, Value)]) -> Header {
        let array = |count| Value::Array(crate::models::gguf::Array { kind: 8, count, at: 0 });
        let mut values = vec![
            ("general.architecture".to_owned(), Value::Text("x".into())),
            ("tokenizer.ggml.tokens".into(), array(tokens)),
            ("tokenizer.ggml.merges".into(), array(merges)),
        ];
        values.extend(own.iter().map(|(key, value)| (format!("x.{key}"), value.clone())));
        Header::of_values(values)
    }

    /// Layers, width, feed-forward, heads, KV heads.
    fn plain(tokens: u64, merges: u64, sizes: [u64; 5], more: &[(&str, Value)]) -> Header {
        let keys = [
            "block_count",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.head_count_kv",
        ];
        let mut own: Vec<_> = keys.into_iter().zip(sizes.map(Value::Unsigned)).collect();
        own.extend(more.iter().cloned());
        header(tokens, merges, &own)
    }

    struct Measured {
        name: &'static str,
        header: Header,
        weights: u64,
        /// "KV buffer size" at 2,048 tokens.
        kv: u64,
        /// "compute buffer size" at 2,048 tokens, in thousandths of a MiB.
        compute: u64,
        /// The resident memory of `qchat run` at its highest, with a prompt of 1,800 tokens.
        resident: u64,
    }

    /// What llama.cpp reported, and Linux.
    fn measured() -> [Measured; 4] {
        let heads_of_256 =
            [("attention.key_length", Value::Unsigned(256)), ("attention.value_length", Value::Unsigned(256))];
        [
            Measured {
                name: "smollm2-135m",
                header: plain(49152, 48900, [30, 576, 1536, 9, 3], &[]),
                weights: 98_362_432,
                kv: 45,
                compute: 19_643,
                resident: 183,
            },
            Measured {
                name: "gemma3-270m",
                header: plain(262_144, 0, [18, 640, 2048, 4, 1], &heads_of_256),
                weights: 253_113_024,
                kv: 36,
                compute: 74_278,
                resident: 351,
            },
            Measured {
                name: "qwen2.5-coder-0.5b",
                header: plain(151_936, 151_387, [24, 896, 4864, 14, 2], &[]),
                weights: 491_400_064,
                kv: 24,
                compute: 47_862,
                resident: 586,
            },
            Measured {
                name: "qwen2.5-coder-1.5b",
                header: plain(151_936, 151_387, [28, 1536, 8960, 12, 2], &[]),
                weights: 1_117_320_768,
                kv: 56,
                compute: 69_518,
                resident: 1246,
            },
        ]
    }

    #[test]
    fn the_kv_is_what_llama_cpp_reports() {
        let qwen = plain(151_936, 0, [28, 1536, 8960, 12, 2], &[]);
        assert_eq!(kv_per_token(&qwen), 28 * 2 * (128 + 128) * 2);
        assert_eq!(kv_per_token(&qwen), 28 * 1024);
        for Measured { name, header, kv, .. } in measured() {
            assert_eq!(kv_per_token(&header) * 2048, kv * MIB, "{name}");
        }
    }

    #[test]
    fn the_compute_buffer_is_near_what_llama_cpp_reports() {
        for Measured { name, header, compute, .. } in measured() {
            let ours = (Shape::of(&header).buffer() + 2048 * MASKS_PER_TOKEN) as f64 / MIB as f64;
            let theirs = compute as f64 / 1000.0;
            assert!(ours >= theirs - 0.1 && ours <= theirs * 1.3, "{name}: {ours:.2} MiB, reported {theirs:.2} MiB");
        }
    }

    #[test]
    fn the_whole_is_near_what_linux_reports() {
        for Measured { name, header, weights, resident, .. } in measured() {
            let ours = Needs::from_header(&header, weights).at(2048) / MIB;
            assert!(
                ours >= resident && ours as f64 <= resident as f64 * 1.3,
                "{name}: {ours}, measured {resident} MiB"
            );
        }
    }

    #[test]
    fn layers_that_differ_are_summed_one_by_one() {
        let heads = Value::Integers(vec![0, 4, 0, 8]);
        let own = [
            ("block_count", Value::Unsigned(4)),
            ("embedding_length", Value::Unsigned(512)),
            ("attention.head_count", Value::Unsigned(8)),
        ];
        let with = |more: &[(&str, Value)]| kv_per_token(&header(256, 0, &[&own[..], more].concat()));
        assert_eq!(with(&[("attention.head_count_kv", heads)]), (4 + 8) * (64 + 64) * 2);
        // Without its own number a layer has as many KV heads as heads.
        assert_eq!(with(&[]), 4 * 8 * (64 + 64) * 2);
        let latent = [
            ("attention.head_count_kv", Value::Unsigned(1)),
            ("attention.key_length", Value::Unsigned(576)),
            ("attention.value_length", Value::Unsigned(512)),
            ("attention.key_length_mla", Value::Unsigned(192)),
        ];
        assert_eq!(with(&latent), 4 * 576 * 2);
        let windows = [("attention.key_length_swa", Value::Unsigned(256))];
        assert_eq!(with(&windows), 4 * 8 * (256 + 64) * 2);
    }

    #[test]
    fn no_number_of_a_header_overflows() {
        for value in [Value::Unsigned(u64::MAX), Value::Signed(-1), Value::Integers(vec![i64::MAX; 1024])] {
            let keys = [
                "block_count",
                "embedding_length",
                "feed_forward_length",
                "attention.head_count",
                "attention.head_count_kv",
                "attention.key_length",
                "attention.value_length",
                "expert_used_count",
                "expert_feed_forward_length",
                "ssm.inner_size",
                "ssm.conv_kernel",
                "ssm.group_count",
                "ssm.state_size",
                "wkv.head_size",
            ];
            let own: Vec<_> = keys.into_iter().map(|key| (key, value.clone())).collect();
            let needs = Needs::from_header(&header(u64::MAX, u64::MAX, &own), u64::MAX);
            assert!(needs.kv_per_token < 1 << 60 && needs.compute < 1 << 62, "{needs:?}");
            assert_eq!(needs.at(usize::MAX >> 9), u64::MAX);
        }
    }
}
