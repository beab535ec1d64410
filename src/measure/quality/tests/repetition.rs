use super::*;

#[test]
fn loops_are_told_from_layout() {
    let numbered: Vec<_> = (1..40).map(|i| format!("{i}. The cat sat on the mat and looked out.")).collect();
    let numbered = numbered.join("\n");
    let in_code = format!("```c\n{}```", "    printf(\"hello\\n\");\n".repeat(20));
    let bad = [
        "The answer is that the answer is that the answer is that the answer is that the answer is that",
        "I like tea.\nI like tea.\nI like tea.\nI like tea.\nI like tea.\n",
        "天气很好，我们去公园。天气很好，我们去公园。天气很好，我们去公园。",
        "Well!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
        "So 😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀",
        "A\r\nYes, I can do it.\r\n\r\nYes, I can do it.\r\n\r\nYes, I can do it.\r\n\r\n",
        &numbered,
        &in_code,
        &format!("0.{}", "0".repeat(500)),
    ];
    let rule = "=".repeat(120);
    let report = format!("Report\n{rule}\n\nAll is well.\n\n{}\n", "-".repeat(90));
    let cells =
        "| a | b | c | d | e | f | g |\n|---|---|---|---|---|---|---|\n| yes | yes | yes | yes | yes | yes | yes |";
    let zeros = "```python\nboard = [\n    [0, 0, 0, 0, 0, 0],\n    [0, 0, 0, 0, 0, 0],\n    [0, 0, 0, 0, 0, 0],\n    [0, 0, 0, 0, 0, 0],\n]\n```";
    let layers = "```python\nnn.Linear(64, 64),\nnn.ReLU(),\nnn.Linear(64, 64),\nnn.ReLU(),\nnn.Linear(64, 64),\nnn.ReLU(),\n```";
    let similar = "```rust\nassert_eq!(double(1), 2);\nassert_eq!(double(2), 4);\nassert_eq!(double(3), 6);\nassert_eq!(double(4), 8);\n```";
    let steps = "1. Fill the kettle.\n2. Boil the water.\n3. Warm the pot.\n4. Add the tea.\n5. Pour the water.\n6. Wait.\n7. Pour the tea.\n";
    let html = "```html\n<tr><td></td><td></td><td></td><td></td><td></td><td></td></tr>\n```";
    let blanks = "Name: ____________________________________________________\nDate: ____________________";
    let good = [
        &report,
        cells,
        zeros,
        layers,
        similar,
        steps,
        html,
        blanks,
        "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream.",
        "哈哈哈哈哈哈，太好笑了！",
        "👩‍👩‍👧‍👦 👩‍👩‍👧‍👦 👩‍👩‍👧‍👦 a family, three times",
        "+--------+--------+--------+--------+--------+\n|        |        |        |        |        |\n+--------+--------+--------+--------+--------+",
        "* * *\n\n* * *\n\n* * *\n",
    ];
    tells_apart("repetition", &[], &bad, &good);
}

#[test]
fn what_the_prompt_repeats_may_be_repeated() {
    let line = "Spam, spam, spam, spam, eggs. ".repeat(4);
    assert!(says(&format!("Copy: {line}"), &line, &[]).is_empty());
    assert_eq!(says("Write a menu.", &line, &[]).len(), 1);
}

#[test]
fn the_unit_is_the_shortest() {
    let text = "one two three four. ".repeat(5);
    assert_eq!(find_loop(&text), Some(Loop { unit: "one two three four. ", times: 5 }));
}

#[test]
fn shares_of_repeated_grams() {
    assert_eq!(repeated_share("one two three"), None);
    assert_eq!(repeated_share("one two three four"), Some(0.0));
    // 9 grams of a period of 3 words: 3 distinct.
    assert_eq!(repeated_share(&"a b c ".repeat(4)), Some(1.0 - 3.0 / 9.0));
    assert_eq!(repeated_share("1. a b 2. a b 3. a b"), Some(1.0 - 2.0 / 3.0));
    assert_eq!(repeated_share("我爱你我爱你"), Some(0.0));
    assert_eq!(repeated_share("我爱你我爱你我"), Some(0.25));
}
