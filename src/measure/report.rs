//! What a benchmark found: the raw rows, and what they say of each arm and between arms.

use serde::Serialize;

use super::quality::Finding;
use super::stats::{Ratio, Summary, Verdict};
use crate::generate::Finish;

/// Everything that was measured. The rows are raw; all else follows from them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When it was made, as RFC 3339 has it.
    pub made: String,
    /// Of qchat and of llama.cpp.
    pub version: String,
    pub engine: String,
    pub machine: Machine,
    /// What was compared: `draft`, `threads`, `model` and so on; nothing where there is one arm.
    pub axis: Option<String>,
    /// Answers of each prompt and arm; the most tokens of one.
    pub runs: usize,
    pub tokens: usize,
    pub models: Vec<ModelReport>,
    /// The first one is what the others are compared with.
    pub arms: Vec<ArmReport>,
    pub rows: Vec<Row>,
    /// Stopped before everything was measured.
    pub stopped: bool,
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub physical_cores: usize,
    pub threads: usize,
    pub memory_bytes: Option<u64>,
    /// llama.cpp's devices and the CPU features that it was compiled for.
    pub build: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    pub name: String,
    pub quantisation: Option<String>,
    pub bytes: u64,
    pub load_ms: f64,
    /// Who drafts for it.
    pub draft: Option<String>,
}

/// One thing that was compared.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    pub name: String,
    pub model: String,
    /// Milliseconds from the question to the first token, the model being loaded.
    pub ttft_ms: Option<Summary>,
    /// Milliseconds between moments at which tokens appeared; those of one round appear together.
    pub itl_ms: Option<Summary>,
    /// Tokens a second.
    pub prefill: Option<Summary>,
    pub decode: Option<Summary>,
    /// Joules a token (prompt and answer), where the machine has a counter.
    pub joules: Option<Summary>,
    /// Bytes that its models, its context and an answer added to this process at most.
    pub memory_bytes: Option<u64>,
    pub by_kind: Vec<KindReport>,
    /// Beside the first arm; empty for the first arm.
    pub ratios: Vec<RatioReport>,
    pub speculation: Option<DraftReport>,
    pub agreement: Option<Agreement>,
    pub quality: Option<QualityReport>,
    pub likelihood: Option<Likelihood>,
}

/// The answers of one kind of prompt.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    pub kind: String,
    pub decode: Option<Summary>,
    pub ttft_ms: Option<Summary>,
    /// Decode rate beside the first arm's.
    pub ratio: Option<Ratio>,
}

/// A figure beside that of the first arm, pair by pair.
#[derive(Clone, Debug, Serialize)]
pub struct RatioReport {
    /// `decode`, `prefill`, `ttft`, `total`.
    pub figure: &'static str,
    #[serde(flatten)]
    pub ratio: Ratio,
    pub verdict: Verdict,
    /// The verdict in words, `no difference shown` where the interval spans 1.
    pub says: &'static str,
}

/// What drafts did, all answers together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DraftReport {
    pub proposed: usize,
    pub accepted: usize,
    pub rounds: usize,
    pub plain_rounds: usize,
    /// Tokens gained a round with a draft, bonus included.
    pub mean_accepted_length: Option<f64>,
    /// For each place in a draft: proposed, accepted.
    pub by_position: Vec<(usize, usize)>,
    /// Rounds by draft length, from 0.
    pub lengths: Vec<usize>,
    /// Milliseconds that went into drafting, judging and choosing.
    pub draft_ms: f64,
    pub verify_ms: f64,
    pub policy_ms: f64,
}

/// Answers that are those of the first arm, token by token.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    pub same: usize,
    pub of: usize,
    /// The largest difference between the logits of both tokens where answers part: small is a near-tie. Of the first few.
    pub largest_gap: Option<f64>,
    pub looked_into: usize,
}

/// What was wrong with answers to the quality prompts at temperature 0.
#[derive(Clone, Debug, Serialize)]
pub struct QualityReport {
    pub prompts: usize,
    /// Answers with at least one finding.
    pub with_findings: usize,
    pub findings: Vec<PromptFinding>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PromptFinding {
    pub prompt: String,
    pub kind: String,
    #[serde(flatten)]
    pub finding: Finding,
}

/// How likely a model finds a text.
#[derive(Clone, Debug, Serialize)]
pub struct Likelihood {
    pub tokens: usize,
    /// Mean negative log-likelihood of a token, in nats.
    pub nll: f64,
    /// The same of a byte, in bits: comparable between vocabularies.
    pub bits_per_byte: f64,
    /// Mean Kullback-Leibler divergence of the first arm's distribution to this one's, in nats; where vocabularies agree.
    pub kl: Option<f64>,
    /// Positions at which both find the same token likeliest, as a share.
    pub same_top: Option<f64>,
}

/// One answer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub arm: String,
    pub prompt: String,
    pub kind: String,
    pub run: usize,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub tokens: usize,
    pub ttft_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
    /// The part of both that went into choosing tokens.
    pub sampling_ms: f64,
    /// Between moments at which tokens appeared.
    pub itl_ms: Vec<f64>,
    pub joules: Option<f64>,
    pub finish: Finish,
    pub speculation: Option<DraftReport>,
    pub answer: String,
    /// Its tokens.
    #[serde(skip)]
    pub ids: Vec<crate::engine::Token>,
}

impl Row {
    /// Tokens a second, of those behind the first one.
    pub fn decode(&self) -> Option<f64> {
        (self.tokens > 1 && self.decode_ms > 0.0).then(|| (self.tokens - 1) as f64 / self.decode_ms * 1e3)
    }

    /// Tokens a second, of a prompt that was read whole.
    pub fn prefill(&self) -> Option<f64> {
        (self.cached_tokens == 0 && self.prefill_ms > 0.0).then(|| self.prompt_tokens as f64 / self.prefill_ms * 1e3)
    }

    /// Until the last token.
    pub fn total_ms(&self) -> f64 {
        self.ttft_ms + self.decode_ms
    }
}
