use super::*;

#[test]
fn simplified_is_told_from_traditional() {
    let bad = [
        "我們應該學習開車，這樣會更方便。",
        "這個問題很難，讓我們一起來討論。",
        "I can answer in English only.",
        "今日はとても良い天気ですね。",
        "12345",
        "机器学习是人工智能的一个分支，它讓電腦從數據中學習。",
        "The answer is 北京 because it is the capital.",
    ];
    let good = [
        "我们应该学习开车，这样会更方便。",
        "这个问题很难，让我们一起来讨论。",
        "皇后住在后宫里，只有干净的面条。",
        "用 Python 写一个函数：\n```python\ndef add(first, second):\n    return first + second\n```\n这个函数把两个数相加。",
        "好的 👍\r\n一二三四五",
        "苹果公司（Apple）发布了 iPhone 手机，很受欢迎。",
        "“臺”字是“台”的繁体，这里说说它的来历。",
    ];
    tells_apart("chinese", &[Check::Chinese { form: Some(Form::Simplified) }], &bad, &good);
}

#[test]
fn traditional_is_told_from_simplified() {
    let bad = [
        "我们应该学习开车，这样会更方便。",
        "这个问题很难，让我们一起来讨论。",
        "臺北是臺灣的首都，这里有很多好吃的东西和风景。",
        "Taipei is a city.",
        "台湾的夜市很热闹。",
        "人工智慧正在改变我们的生活，从医疗到教育。",
    ];
    let good = [
        "我們應該學習開車，這樣會更方便。",
        "台灣的夜市很熱鬧，有許多小吃。",
        "皇后住在后宮裡，只有乾淨的麵條。",
        "香港嘅茶餐廳好出名，我哋成日去飲奶茶。",
        "春眠不覺曉，處處聞啼鳥。\r\n夜來風雨聲，花落知多少。",
        "為什麼電腦（computer）這麼快？因為它每秒能算數十億次。",
    ];
    tells_apart("chinese", &[Check::Chinese { form: Some(Form::Traditional) }], &bad, &good);
}

#[test]
fn the_forms_do_not_overlap() {
    let mut seen = std::collections::HashSet::new();
    for group in super::super::forms::GROUPS.split_whitespace() {
        assert!(group.chars().count() >= 2, "{group}");
        assert!(group.chars().all(|c| super::super::script::script(c) == Some("Han") && seen.insert(c)), "{group}");
    }
    assert!(seen.len() > 800);
}
