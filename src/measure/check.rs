//! Answers at temperature 0 that are looked at for what breaks first when a model is quantised too far.

use std::time::Duration;

use super::arm::Arm;
use super::quality::examine;
use super::report::{PromptFinding, QualityReport};
use super::run::Rates;
use super::workload::{Prompt, checked};
use crate::error::Result;
use crate::generate::Finish;
use crate::interrupt::Interrupt;
use crate::sample::Sampling;

/// Tokens of an answer, and prompts of a kind, where not all is asked for.
const SHORT: usize = 200;
const FEW: usize = 2;

/// What is asked, and how long answers may be.
pub struct Checks {
    prompts: Vec<Prompt>,
}

impl Checks {
    /// Those of somebody's own prompts that say what an answer must be; nothing where none does.
    pub fn of(prompts: &[Prompt]) -> Option<Self> {
        let prompts: Vec<Prompt> = prompts.iter().filter(|prompt| !prompt.checks.is_empty()).cloned().collect();
        (!prompts.is_empty()).then_some(Self { prompts })
    }

    /// All that are built in, or the first few of each kind with shorter answers.
    pub fn usual(full: bool) -> Self {
        let mut prompts = checked();
        if !full {
            let mut seen: Vec<String> = Vec::new();
            prompts.retain(|prompt| {
                seen.push(prompt.kind.clone());
                seen.iter().filter(|kind| **kind == prompt.kind).count() <= FEW
            });
            for prompt in &mut prompts {
                prompt.max_tokens = Some(prompt.max_tokens.map_or(SHORT, |own| own.min(SHORT)));
            }
        }
        Self { prompts }
    }

    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// The most tokens of an answer.
    pub fn tokens(&self) -> usize {
        self.prompts.iter().map(Self::budget).max().unwrap_or(0)
    }

    fn budget(prompt: &Prompt) -> usize {
        prompt.max_tokens.unwrap_or(SHORT)
    }

    /// How long it takes arms of these rates.
    pub fn expected(&self, rates: &[Rates]) -> Duration {
        let tokens: f64 = self.prompts.iter().map(|prompt| Self::budget(prompt) as f64).sum();
        Duration::from_secs_f64(rates.iter().map(|(_, decode)| tokens / decode).sum())
    }

    /// Asks an arm; nothing where Ctrl-C ends it. `each` is called after each answer.
    ///
    /// # Errors
    /// What the arm reports.
    pub fn ask(&self, arm: &mut Arm, interrupt: &Interrupt, mut each: impl FnMut()) -> Result<Option<QualityReport>> {
        let mut report = QualityReport { prompts: 0, with_findings: 0, findings: Vec::new() };
        for prompt in &self.prompts {
            let sample = arm.answer(&prompt.message(), Self::budget(prompt), &Sampling::greedy());
            if interrupt.is_set() {
                return Ok(None);
            }
            let answer = sample?.answer;
            let finished = answer.finish == Finish::Stop;
            let findings = examine(&prompt.message(), &answer.content, finished, &prompt.checks);
            report.prompts += 1;
            report.with_findings += usize::from(!findings.is_empty());
            let of_prompt = |finding| PromptFinding { prompt: prompt.id.clone(), kind: prompt.kind.clone(), finding };
            report.findings.extend(findings.into_iter().map(of_prompt));
            each();
        }
        Ok(Some(report))
    }
}
