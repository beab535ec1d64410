//! What a comparison asks.

use super::Bench;
use crate::error::{Error, Result};
use crate::measure::workload::{self, Prompt};
use crate::measure::{Arm, Axis};

/// Kinds of prompts, and answers of each, where not given: something that repeats, something that does not, and talk.
const USUAL_KINDS: [&str; 3] = ["edit", "code", "chat"];
const USUAL_RUNS: usize = 4;
/// Tokens of a document that is cached or not, and answers about such ones.
const DOCUMENT: usize = 2000;
const DOCUMENT_TOKENS: usize = 16;
const LONG_RUNS: usize = 5;

impl Bench<'_> {
    /// The prompts, the most tokens of an answer, and how often each kind is answered.
    pub(super) fn workload(
        &self,
        axis: Option<&Axis>,
        own: Option<Vec<Prompt>>,
        arm: &Arm,
    ) -> Result<(Vec<Prompt>, usize, usize)> {
        let args = self.args;
        let tokens = args.tokens as usize;
        if let Some(mut own) = own {
            own.iter_mut().for_each(|prompt| prompt.max_tokens = prompt.max_tokens.or(Some(tokens)));
            let most = own.iter().filter_map(|prompt| prompt.max_tokens).max().unwrap_or(tokens);
            // Each of them once.
            let of_kind = |kind: &str| own.iter().filter(|prompt| prompt.kind == kind).count();
            let runs = own.iter().map(|prompt| of_kind(&prompt.kind)).max().unwrap_or(1);
            return Ok((own, most, runs));
        }
        let mut grid = args.grid.clone();
        grid.extend(args.depth.iter().map(|depth| (*depth as usize, tokens)));
        if grid.is_empty() && args.kinds.is_empty() && axis == Some(&Axis::Cache) {
            grid.push((DOCUMENT, DOCUMENT_TOKENS));
        }
        if !grid.is_empty() {
            let runs = args.runs.map_or(LONG_RUNS, |runs| runs as usize);
            let mut prompts = Vec::new();
            for (read, answer) in &grid {
                let kind = format!("{read}x{answer}");
                for number in 0..runs.min(8) {
                    prompts.push(Prompt { max_tokens: Some(*answer), ..of_length(arm, *read, number, &kind)? });
                }
            }
            return Ok((prompts, grid.iter().map(|(_, answer)| *answer).max().unwrap_or(tokens), runs));
        }
        let mut prompts = workload::kinds();
        let known: Vec<String> = prompts.iter().map(|prompt| prompt.kind.clone()).collect();
        if let Some(unknown) = args.kinds.iter().find(|kind| !known.contains(kind)) {
            let mut known = known;
            known.dedup();
            return Err(Error::usage(format!("there are no prompts of kind '{unknown}'"))
                .hint(format!("--kinds takes {}", known.join(", "))));
        }
        if !args.kinds.is_empty() {
            prompts.retain(|prompt| args.kinds.contains(&prompt.kind));
        } else if !args.full {
            prompts.retain(|prompt| USUAL_KINDS.contains(&prompt.kind.as_str()));
        }
        Ok((prompts, tokens, USUAL_RUNS))
    }
}

/// A prompt with a document, of about so many tokens in all.
fn of_length(arm: &Arm, tokens: usize, number: usize, kind: &str) -> Result<Prompt> {
    const SAMPLE: usize = 400;
    let prompt = |words: usize| workload::long(words, number, kind.to_owned());
    let length = |words: usize| arm.longest(&[prompt(words)]);
    let (least, sample) = (length(1)?, length(SAMPLE)?);
    if least > tokens {
        return Err(Error::usage(format!("{kind}: with {} a prompt has at least {least} tokens", arm.model.name))
            .hint("ask for longer ones with --grid or --depth"));
    }
    let a_word = (sample - least) as f64 / (SAMPLE - 1) as f64;
    let mut words = 1.0;
    // The second time from near it: words are not all as long.
    for _ in 0..2 {
        words += (tokens as f64 - length(words as usize)? as f64) / a_word;
        words = words.round().max(1.0);
    }
    Ok(prompt(words as usize))
}
