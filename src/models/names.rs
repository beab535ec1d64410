//! Comparing model names: case and separators do not count.

/// `Qwen2.5_Coder 7B` and `qwen2.5-coder-7b` are one name.
pub(super) fn normal(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ' | '.')).flat_map(char::to_lowercase).collect()
}

/// The names nearest to `name`, best first, at most three; none that is no likeness at all.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = normal(name);
    let mut scored: Vec<(f64, &str)> = known
        .map(|candidate| {
            let other = normal(candidate);
            let contained = if !wanted.is_empty() && other.contains(&wanted) { 0.3 } else { 0.0 };
            (strsim::jaro_winkler(&wanted, &other) + contained, candidate)
        })
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_separators_do_not_count() {
        assert_eq!(normal("Qwen2.5_Coder 7B"), normal("qwen2.5-coder-7b"));
        assert_ne!(normal("qwen-7b"), normal("qwen-72b"));
    }

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        let known = ["qwen-7b", "llama-8b", "smollm2-135m"];
        assert_eq!(nearest("smolm2-135m", known.into_iter()), ["smollm2-135m"]);
        assert_eq!(nearest("qwen7", known.into_iter()).first(), Some(&"qwen-7b"));
        assert!(nearest("zzz", known.into_iter()).is_empty());
    }
}
