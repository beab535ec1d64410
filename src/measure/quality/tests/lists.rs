use super::*;

#[test]
fn items_are_counted_at_the_top() {
    let bad = [
        "1. a\n2. b",
        "- a\n- b\n- c\n- d",
        "a, b, c",
        "1. a\n   - x\n   - y\n",
        "一、苹果\n二、香蕉",
        "- a\n  - b\n  - c",
        "3.5 is a number\n2.5 is another\n1.5 too",
    ];
    let good = [
        "1. a\n2. b\n3. c",
        "Sure:\r\n\r\n- a\r\n- b\r\n- c\r\n\r\nEnjoy!",
        "**1. One**\n- x\n- y\n\n**2. Two**\n- z\n\n**3. Three**",
        "1. a\n   1. x\n   2. y\n2. b\n3. c",
        "1、苹果\n2、香蕉\n3、葡萄",
        "• 🍎 apple\n• 🍌 banana\n• 👩‍🌾 farmer",
        "* a\n---\n* b\n- - -\n* c",
        "### 1. A\ntext\n### 2. B\ntext\n### 3. C",
        "1) a\n2) b\n3) c\n```\n4) not an item\n```",
    ];
    tells_apart("items", &[Check::Items { count: 3 }], &bad, &good);
    assert!(examine("", "1. a\n2. b", false, &[Check::Items { count: 3 }]).is_empty());
    assert_eq!(examine("", "1. a\n2. b\n3. c\n4. d", false, &[Check::Items { count: 3 }]).len(), 1);
}

#[test]
fn lines_are_counted() {
    let bad = ["a", "a\nb", "a b c", "a\nb\nc\nd", "\n\na\n", "一\n\n二\r\n"];
    let good = ["a\nb\nc", "a\r\nb\r\nc\r\n", "\na\n\nb\n\nc\n", "春\n夏\n秋", "a\n b\n  c", "🙂\n🙃\n👩‍🌾"];
    tells_apart("lines", &[Check::Lines { count: 3 }], &bad, &good);
}

#[test]
fn a_word_is_one_of_the_choices() {
    let wants = [Check::Word { among: ["positive", "negative", "正面"].map(str::to_owned).to_vec() }];
    let bad = ["It is positive.", "posi", "neutral", "positive negative", "正", "😀", "Positive: it is good"];
    let good = ["positive", "Negative", "**Positive**", "\"negative\".", " positive\r\n", "正面。", "`POSITIVE`"];
    tells_apart("word", &wants, &bad, &good);
}

#[test]
fn prose_is_mostly_letters() {
    let bad = [")(*&^%$ #@!", "1 2 3 4 5 6", "{}[];;== x", "😀 😃 😄", "---", "| | |", "。。。，，"];
    let good = [
        "It rained all day, and then it stopped.",
        "下雨了，我们回家吧。",
        "Ça va? Très bien!",
        "Nice 👩‍👩‍👧 day",
        "E = mc² is about energy and mass.",
        "One.\r\n\r\nTwo - (three)!",
    ];
    tells_apart("prose", &[Check::Prose { words: 0 }], &bad, &good);
    let eight = [Check::Prose { words: 8 }];
    assert_eq!(says("", good[0], &eight).len(), 0);
    assert_eq!(says("", "It rained all day.", &eight).len(), 1);
    assert_eq!(examine("", "It rained all", false, &eight).len(), 0);
    assert_eq!(says("中文", "下雨了，我们回家吧。", &eight).len(), 0);
}

#[test]
fn texts_are_there_letter_by_letter() {
    let wants = [Check::Has { texts: ["Łódź", "👩‍👩‍👧", "龘"].map(str::to_owned).to_vec() }];
    let bad = ["Łódź", "Lódź 👩‍👩‍👧 龘", "Łódź 👩👩👧 龘", "łódź 👩‍👩‍👧 龘", "Ło\u{301}dź 👩‍👩‍👧 龘", "Łódź 👩‍👩‍👧 龍"];
    let good =
        ["Łódź 👩‍👩‍👧 龘", "龘👩‍👩‍👧Łódź", "Łódź\r\n👩‍👩‍👧\r\n龘", "“Łódź”, “👩‍👩‍👧”, “龘”", "xŁódźx 👩‍👩‍👧 龘龘", "- Łódź\n- 👩‍👩‍👧\n- 龘"];
    tells_apart("has", &wants, &bad, &good);
}
