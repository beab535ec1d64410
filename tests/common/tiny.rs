//! A tiny GGUF model that the tests write themselves: half a megabyte, and no download.
//!
//! Token `i` below 256 is byte `i`, special `k` is token `256 + k`, and nothing is merged: a
//! text's tokens are its bytes, and a multi-byte character is split over several. The weights
//! are random, so what the model says means nothing, but the same seed says the same thing.

use std::{collections::HashSet, fs, io, path::Path};

use super::{recurrent, sliding};

pub(super) const EMBED: usize = 64;
const MOST_KV_HEADS: usize = 2;
/// Set apart from the stream's width by heads: a quantised KV cache needs heads of whole blocks of 32.
const HEAD_DIM: usize = 32;
pub(super) const FEED_FORWARD: usize = 128;
const ALIGNMENT: usize = 32; // GGUF's, where no key says otherwise
const BYTES: usize = 256; // the tokens before the specials

pub const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' \
    + message['content'] + '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// How llama.cpp treats a special token; the numbers are GGUF's token types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Control = 3,     // found in a text when special tokens are parsed
    UserDefined = 4, // always found
}

/// A model to write. llama.cpp ends a reply at `eos` and at each special whose name it knows
/// as an end (`<|im_end|>`, `<|endoftext|>`, `</s>`, ...), and makes those `Control` whatever
/// is said here.
#[derive(Clone, Debug)]
pub struct Tiny {
    pub seed: u64,
    pub name: String,
    /// Also the prefix of the keys. llama.cpp refuses one that it does not know. All but lfm2 and mamba (see
    /// `recurrent`) have llama's layers; gemma3 has more norms (see `sliding`).
    pub architecture: String,
    pub context: u32,
    pub template: Option<String>,
    /// Their texts must differ, and be none of the bytes' letters.
    pub specials: Vec<(String, Kind)>,
    /// Tokens after the specials that stand for nothing, as Qwen's files have them.
    pub padding: usize,
    /// Another text for a token.
    pub renamed: Option<(usize, &'static str)>,
    /// A layer has 0.2 MB.
    pub layers: usize,
    /// Queries' heads in llama's layers.
    pub heads: usize,
    /// Tokens of gemma3's sliding window.
    pub window: usize,
    /// Indices into `specials`. With None the key is left out, and llama.cpp takes token 11.
    pub bos: Option<usize>,
    pub eos: Option<usize>,
    pub add_bos: bool,
    /// The standard deviation of the logits: near 0 all tokens are about as likely.
    pub spread: f32,
    /// The tokens that the model says; the others' logits are 0, far below the greatest. With
    /// `|id| (32..127).contains(&id)` it writes printable ASCII, and never ends.
    pub says: fn(usize) -> bool,
}

impl Default for Tiny {
    fn default() -> Self {
        let control = |text: &str| (text.to_string(), Kind::Control);
        Self {
            seed: 1,
            name: "Tiny".to_string(),
            architecture: "llama".to_string(),
            context: 32768,
            template: Some(CHATML.to_string()),
            specials: Vec::from(["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(control)),
            padding: 0,
            renamed: None,
            layers: 2,
            heads: 4,
            window: 0,
            bos: Some(0),
            eos: Some(2),
            add_bos: false,
            spread: 4.0,
            says: |_| true,
        }
    }
}

impl Tiny {
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.bytes())
    }

    /// The token of a special; panics where there is none.
    pub fn special(&self, text: &str) -> i32 {
        let index = self.specials.iter().position(|(own, _)| own == text);
        (BYTES + index.expect("a special of this model")) as i32
    }

    fn vocabulary(&self) -> usize {
        BYTES + self.specials.len() + self.padding
    }

    /// The file: header, keys, the tensors' descriptions, then their data from an aligned place.
    pub fn bytes(&self) -> Vec<u8> {
        let keys = self.metadata();
        let tensors = self.tensors();
        let mut file = header_claiming(tensors.len() as u64, keys.len() as u64);
        file.extend(keys.concat());
        let mut data = Vec::new();
        for (name, shape, values) in &tensors {
            file.extend(string(name));
            file.extend((shape.len() as u32).to_le_bytes());
            file.extend(shape.iter().flat_map(|n| (*n as u64).to_le_bytes()));
            file.extend(0_u32.to_le_bytes()); // F32
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(data);
        file
    }

    fn metadata(&self) -> Vec<Vec<u8>> {
        let mut keys = vec![
            string_key("general.architecture", &self.architecture),
            string_key("general.name", &self.name),
            string_key("tokenizer.ggml.model", "gpt2"),
            string_key("tokenizer.ggml.pre", "gpt-2"),
            key("tokenizer.ggml.add_bos_token", 7, &[u8::from(self.add_bos)]),
            array_key("tokenizer.ggml.merges", 8, &[]), // must be there, may be empty
        ];
        let template = self.template.iter();
        keys.extend(template.map(|template| string_key("tokenizer.chat_template", template)));
        let own = |name: &str| format!("{}.{name}", self.architecture);
        let common =
            [("context_length", self.context as usize), ("embedding_length", EMBED), ("block_count", self.layers)];
        let window = if self.architecture == "gemma3" { sliding::gemma3_numbers(self.window) } else { Vec::new() };
        for (name, value) in common.into_iter().chain(self.numbers()).chain(window) {
            keys.push(key(&own(name), 4, &(value as u32).to_le_bytes()));
        }
        if self.architecture == "lfm2" {
            let heads = (0..self.layers).map(|layer| (recurrent::lfm2_kv_heads(layer) as u32).to_le_bytes().to_vec());
            keys.push(array_key(&own("attention.head_count_kv"), 4, &heads.collect::<Vec<_>>()));
        }
        let epsilon = own("attention.layer_norm_rms_epsilon");
        keys.push(key(&epsilon, 6, &1e-5_f32.to_le_bytes()));
        for (name, index) in [("bos", self.bos), ("eos", self.eos)] {
            let name = format!("tokenizer.ggml.{name}_token_id");
            let id = index.map(|index| (BYTES + index) as u32);
            keys.extend(id.map(|id| key(&name, 4, &id.to_le_bytes())));
        }

        let mut texts: Vec<_> = (0..=255).map(|byte| string(&letter(byte))).collect();
        texts.extend(self.specials.iter().map(|(text, _)| string(text)));
        texts.extend((texts.len()..self.vocabulary()).map(|id| string(&format!("[PAD{id}]"))));
        self.renamed.iter().for_each(|(id, text)| texts[*id] = string(text));
        // llama.cpp aborts on a vocabulary that names a token twice.
        assert_eq!(HashSet::<_>::from_iter(&texts).len(), texts.len());
        keys.push(array_key("tokenizer.ggml.tokens", 8, &texts));
        let number = |kind: i32| kind.to_le_bytes().to_vec();
        let mut kinds = vec![number(1); BYTES]; // normal tokens
        kinds.extend(self.specials.iter().map(|(_, kind)| number(*kind as i32)));
        kinds.resize(self.vocabulary(), number(5)); // unused
        keys.push(array_key("tokenizer.ggml.token_type", 5, &kinds));
        keys
    }

    /// The sizes that its architecture asks for.
    fn numbers(&self) -> Vec<(&'static str, usize)> {
        match self.architecture.as_str() {
            "lfm2" => recurrent::lfm2_numbers(),
            "mamba" => recurrent::mamba_numbers(),
            _ => vec![
                ("feed_forward_length", FEED_FORWARD),
                ("attention.head_count", self.heads),
                ("attention.head_count_kv", self.heads.min(MOST_KV_HEADS)),
                ("attention.key_length", HEAD_DIM),
                ("attention.value_length", HEAD_DIM),
                ("rope.dimension_count", HEAD_DIM),
            ],
        }
    }

    /// Their names, shapes and values.
    fn tensors(&self) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let vocabulary = self.vocabulary();
        let tensor = |name: &str, shape: Vec<usize>, fill: Fill| {
            let count = shape.iter().product();
            let values = match fill {
                Fill::Random(gain) => {
                    let scale = gain / (shape[0] as f32).sqrt();
                    normals(self.seed, name, count).map(|number| scale * number).collect()
                }
                Fill::All(value) => vec![value; count],
                Fill::Each(value) => (0..count).map(value).collect(),
            };
            (name.to_string(), shape, values)
        };
        let unscaled = (EMBED as f32).sqrt(); // looked up, not multiplied
        let mut tensors = vec![tensor("token_embd.weight", vec![EMBED, vocabulary], Fill::Random(unscaled))];
        for layer in 0..self.layers {
            let parts = match self.architecture.as_str() {
                "lfm2" => recurrent::lfm2_layer(layer),
                "mamba" => recurrent::mamba_layer(),
                "gemma3" => [llama_layer(self.heads), sliding::gemma3_norms(EMBED, HEAD_DIM)].concat(),
                _ => llama_layer(self.heads),
            };
            tensors.extend(parts.into_iter().map(|(name, shape, fill)| {
                let name = format!("blk.{layer}.{name}");
                tensor(&name, shape, fill)
            }));
        }
        let last_norm = if self.architecture == "lfm2" { "token_embd_norm.weight" } else { "output_norm.weight" };
        tensors.push(tensor(last_norm, vec![EMBED], Fill::All(1.0)));
        let mut output = tensor("output.weight", vec![EMBED, vocabulary], Fill::Random(self.spread));
        let rows = output.2.chunks_mut(EMBED).zip(0..);
        let said = |id: usize| id < vocabulary - self.padding && (self.says)(id);
        rows.filter(|(_, id)| !said(*id)).for_each(|(row, _)| row.fill(0.0));
        tensors.push(output);
        tensors
    }
}

/// What a tensor is filled with.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    /// Random numbers: a matrix with outputs of about N(0, gain) for inputs of N(0, 1).
    Random(f32),
    All(f32),
    /// By the index.
    Each(fn(usize) -> f32),
}

/// A tensor of a layer: its name there, its shape (ggml puts the inputs' dimension first) and its values.
pub(super) type Part = (&'static str, Vec<usize>, Fill);

fn llama_layer(heads: usize) -> Vec<Part> {
    let kv_heads = heads.min(MOST_KV_HEADS);
    // Sharp attention, heavy in the residual stream: at gains of 1, a long context averages
    // out and the next token hangs on the last one alone.
    let own = vec![
        ("attn_norm.weight", vec![EMBED], Fill::All(1.0)),
        ("attn_q.weight", vec![EMBED, heads * HEAD_DIM], Fill::Random(3.0)),
        ("attn_k.weight", vec![EMBED, kv_heads * HEAD_DIM], Fill::Random(1.0)),
        ("attn_v.weight", vec![EMBED, kv_heads * HEAD_DIM], Fill::Random(1.0)),
        ("attn_output.weight", vec![heads * HEAD_DIM, EMBED], Fill::Random(2.0)),
    ];
    [own, feed_forward()].concat()
}

pub(super) fn feed_forward() -> Vec<Part> {
    vec![
        ("ffn_norm.weight", vec![EMBED], Fill::All(1.0)),
        ("ffn_gate.weight", vec![EMBED, FEED_FORWARD], Fill::Random(1.0)),
        ("ffn_up.weight", vec![EMBED, FEED_FORWARD], Fill::Random(1.0)),
        ("ffn_down.weight", vec![FEED_FORWARD, EMBED], Fill::Random(1.0)),
    ]
}

/// A GGUF header that claims so many tensors and keys, with nothing behind it.
pub fn header_claiming(tensors: u64, kvs: u64) -> Vec<u8> {
    let counts = [tensors, kvs].map(u64::to_le_bytes).concat();
    [b"GGUF", &3_u32.to_le_bytes()[..], &counts].concat()
}

/// A piece of metadata: the key, its type's number, its value.
pub fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&string(name), &kind.to_le_bytes()[..], value].concat()
}

pub fn string_key(name: &str, value: &str) -> Vec<u8> {
    key(name, 8, &string(value))
}

pub fn array_key(name: &str, kind: u32, items: &[Vec<u8>]) -> Vec<u8> {
    let (kind, length) = (kind.to_le_bytes(), (items.len() as u64).to_le_bytes());
    key(name, 9, &[&kind[..], &length, &items.concat()].concat())
}

/// GGUF's string: the length, then the bytes.
pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// GPT-2's letter for a byte: itself where it is visible in Latin-1, else the next of those
/// from U+0100 on.
fn letter(byte: u8) -> String {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let earlier = (0..byte).filter(|byte| !visible(byte)).count();
    let stand_in = char::from_u32(0x100 + earlier as u32).expect("a letter");
    let letter = if visible(&byte) { byte.into() } else { stand_in };
    letter.to_string()
}

/// `count` numbers of about N(0, 1), from splitmix64. Each tensor is a stream of its own, so
/// that adding a special leaves the other weights as they are.
fn normals(seed: u64, stream: &str, count: usize) -> impl Iterator<Item = f32> {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let start = stream.bytes().fold(seed ^ 0xCBF2_9CE4_8422_2325, mix); // FNV-1a
    (1..=count as u64).map(move |i| {
        let mut z = start.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The sum of four uniform numbers: near enough, and without the logarithms and cosines
        // that differ from one platform to another.
        let sum: u64 = (0..4).map(|i| (z >> (16 * i)) & 0xFFFF).sum();
        (sum as f32 - 2.0 * 65535.0) / (65536.0 / 3.0_f32.sqrt())
    })
}
