//! What a push costs: `cargo test --release --features scripted --lib -- a_push_costs --nocapture`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::super::Markdown;

/// A long answer of everything.
fn answer() -> String {
    let mut text = String::from("# A long answer\n\n");
    let sentence = "The **quick** brown fox `jumps` over the lazy dog, and *then* it does so again. ";
    for _ in 0..2 {
        text += &sentence.repeat(60);
        text += "\n\n";
    }
    for item in 0..60 {
        let _ = write!(text, "{item}. **Point {item}**: {sentence}\n   - sub one {sentence}\n   - sub two\n");
    }
    text += "\n| Name | Value | Description |\n|:---|---:|---|\n";
    for row in 0..60 {
        let _ = writeln!(text, "| name {row} | {row} | {sentence} |");
    }
    text += "\n```python\n";
    for line in 0..400 {
        let _ = writeln!(text, "def f{line}(a, b=\"x\"):  # comment");
    }
    text += "```\n\nThe end.\n";
    text
}

#[test]
fn a_push_costs_a_hundredth_of_a_step() {
    // 100 us at 100 tokens a second; three times that for a machine that does other things too.
    measure("an answer", &answer(), 300.0);
    let code = "   def f(a, b=\"x\"):  # comment\n".repeat(400);
    measure("code in an item", &format!("1. x\n\n   ```python\n{code}   ```\n"), 600.0);
}

#[expect(clippy::print_stderr, reason = "what was measured")]
fn measure(name: &str, text: &str, most_us: f64) {
    let chars: Vec<char> = text.chars().collect();
    let tokens: Vec<String> = chars.chunks(4).map(|token| token.iter().collect()).collect();
    for (columns, rows) in [(40, 24), (80, 24), (200, 60)] {
        let mut markdown = Markdown::unhurried(columns, rows, true);
        let (mut total, mut most, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
        for token in &tokens {
            let start = Instant::now();
            bytes += markdown.push(token).len();
            total += start.elapsed();
            most = most.max(start.elapsed());
        }
        let each = total.as_secs_f64() * 1e6 / tokens.len() as f64;
        eprintln!(
            "{name} at {columns}x{rows}: {each:.1} us a push, at most {most:?}, {bytes} bytes for {}",
            text.len()
        );
        assert!(each < most_us, "{name} at {columns}x{rows}: {each:.1} us");
    }
}
