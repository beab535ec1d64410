use super::*;

#[test]
fn json_is_told_from_nearly_json() {
    let wants = [Check::Json { keys: vec!["name".to_owned(), "age".to_owned()] }];
    let bad = [
        "{\"name\": \"Ann\", \"age\": 3,}",
        "{'name': 'Ann', 'age': 3}",
        "```json\n{\"name\": \"Ann\" \"age\": 3}\n```",
        "{\"name\": \"Ann\"}",
        "Here you are: {\"name\": \"Ann\", \"age\": 3}",
        "```json\n{\"name\": \"Ann\", \"age\": 3}\n```\nor\n```json\n{}\n```",
        "[{\"name\": \"Ann\", \"age\": 3}, {\"name\": \"Bo\"}]",
        "[]",
        "{\"name\": \"Ann\", \"age\": 3",
    ];
    let good = [
        "{\"name\": \"Ann\", \"age\": 3}",
        " \r\n{\r\n\"name\": \"Ann\",\r\n\"age\": 3}\r\n",
        "```json\n{\"name\": \"Ann\", \"age\": null}\n```",
        "Here you are:\n\n```\n{\"name\": \"Ann\", \"age\": 3}\n```\nAnything else?",
        "[{\"age\": 3, \"name\": \"👩‍👩‍👧\"}]",
        "{\"name\": \"O\\\"Neil \\u00e9\", \"age\": 3.5e0, \"more\": {}}",
    ];
    tells_apart("json", &wants, &bad, &good);
    assert!(says("", "[1, 2]", &[Check::Json { keys: vec![] }]).is_empty());
    assert!(examine("", "```json\n{\"name\": \"An", false, &wants).is_empty());
    assert_eq!(examine("", "{\"name\": An", false, &wants).len(), 1);
}

#[test]
fn tables_have_a_header_rule_and_even_rows() {
    let bad = [
        "| a | b |\n|---|---|\n| 1 |",
        "| a | b |\n| 1 | 2 |\n| 3 | 4 |",
        "| a | b |\n|---|\n| 1 | 2 |",
        "| a | b |\n|---|---|\n| 1 | 2 | 3 |\n",
        "a, b\n1, 2",
        "| 城市 | 人口 |\n|---|---|\n| 北京 | 2189万 | 大 |",
        "| a | b |\r\n|---|---|\r\n| 1 \\| 2 |\r\n",
    ];
    let good = [
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "Here:\n\n| a | b |\n|:--|--:|\n| 1 | |\n| `x` | 👩‍👩‍👧 |\n\nDone.",
        "a | b\n--- | ---\n1 | 2",
        "| a | b |\r\n| :---: | --- |\r\n| 1 \\| 2 | 3 |\r\n",
        "| 城市 | 人口 |\n|------|------|\n| 北京 | 2189万 |",
        "```\n| a |\n|---|\n| 1 |\n```",
        "Use a | b to pipe.\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |",
        "| a |\n|---|\n| 1 |\n\n| c | d |\n|---|---|\n| 1 | 2 |",
    ];
    tells_apart("table", &[Check::Table {}], &bad, &good);
    for cut in ["| a | b |\n|---|---|\n| 1 ", "| a | b |\n|--", "| a ", "Here is"] {
        assert!(examine("", cut, false, &[Check::Table {}]).is_empty(), "{cut}");
    }
    assert_eq!(examine("", "| a | b |\n|---|---|\n| 1 |\n| 2 |", false, &[Check::Table {}]).len(), 1);
}
