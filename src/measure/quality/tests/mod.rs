use super::*;

mod chinese;
mod code;
mod format;
mod lists;
mod repetition;
mod script;

/// What `examine` has to say, for messages.
fn says(prompt: &str, answer: &str, wants: &[Check]) -> Vec<Finding> {
    examine(prompt, answer, true, wants)
}

/// Each of `bad` has a finding of this check, each of `good` none at all.
fn tells_apart(check: &str, wants: &[Check], bad: &[&str], good: &[&str]) {
    assert!(bad.len() >= 6 && good.len() >= 6);
    let prompt = if check == "script" { "" } else { "In Chinese or English" };
    for answer in bad {
        let found = says(prompt, answer, wants);
        assert!(found.iter().any(|finding| finding.check == check), "missed: {answer:?}: {found:?}");
    }
    for answer in good {
        let found = says(prompt, answer, wants);
        assert!(found.is_empty(), "blamed: {answer:?}: {found:?}");
    }
}

fn every_check() -> Vec<Check> {
    let lines = r#"
        {"check": "json"}
        {"check": "json", "keys": ["name", "age"]}
        {"check": "table"}
        {"check": "code", "language": "python"}
        {"check": "code", "language": "rust"}
        {"check": "code"}
        {"check": "chinese", "form": "traditional"}
        {"check": "chinese"}
        {"check": "items", "count": 5}
        {"check": "lines", "count": 4}
        {"check": "word", "among": ["yes", "no"]}
        {"check": "has", "texts": ["x"]}
        {"check": "prose", "words": 30}
        {"check": "prose"}"#;
    lines.trim().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn checks_have_names_in_files() {
    let checks = every_check();
    assert_eq!(checks[1], Check::Json { keys: vec!["name".to_owned(), "age".to_owned()] });
    assert_eq!(checks[6], Check::Chinese { form: Some(Form::Traditional) });
    for check in &checks {
        let written = serde_json::to_string(check).unwrap();
        assert_eq!(&serde_json::from_str::<Check>(&written).unwrap(), check);
    }
    for wrong in [r#"{"check": "jsn"}"#, r#"{"check": "items"}"#, r#"{"check": "table", "rows": 3}"#, "{}"] {
        assert!(serde_json::from_str::<Check>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_empty_answer_is_one_finding() {
    assert_eq!(says("", " \r\n", &every_check()).len(), 1);
    assert!(examine("", "", false, &[]).is_empty());
}

#[test]
fn no_text_is_too_odd() {
    const PIECES: [&str; 40] = [
        "```",
        "```python\n",
        "~~~",
        "\n",
        "\r\n",
        "\t",
        "    ",
        "|",
        "|---|",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "'",
        "\"",
        "\"\"\"",
        "\\",
        "/*",
        "*/",
        "//",
        "#",
        "def f():\n",
        "1. ",
        "- ",
        "、",
        "一",
        "們",
        "们",
        "の",
        "é",
        "Ã",
        "👩‍👩‍👧",
        "\u{301}",
        "\u{fffd}",
        "\u{0}",
        "𝒙",
        "İ",
        "<0x",
    ];
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let checks = every_check();
    for round in 0..1500 {
        let mut text = String::new();
        for _ in 0..next(60) {
            match next(3) {
                0 => text.extend(char::from_u32(next(0x11_0000) as u32)),
                1 => text.push(char::from(next(128) as u8)),
                _ => text.push_str(PIECES[next(PIECES.len())]),
            }
        }
        let _ = examine(&text, &text, round % 2 == 0, &checks);
        let _ = examine("", &text, round % 2 == 0, &checks);
    }
}
