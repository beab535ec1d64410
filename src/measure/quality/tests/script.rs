use super::*;

#[test]
fn scripts_need_a_reason() {
    let bad = [
        "The capital of France is Париж, a large city.",
        "You should 使用 a loop here.",
        "The p\u{430}yment was made.",
        "It is a very สวย place.",
        "Then the κατάσταση changed.",
        "The answer is 서울 and more.",
        "```python\n# 打印结果\nprint(1)\n```",
        "It was مرحبا all along.",
    ];
    let good = [
        "Naïve café, Žižek, Đặng, smørrebrød.",
        "The angle θ is π/2, so Δx = σ₁ and λ ≈ 5 μm; ℝ ⊂ ℂ, 𝒙 ∈ 𝔽, x² ≤ √2.",
        "Emoji 👩‍👩‍👧‍👦 🇫🇷 ❤️ ✅ → ① ™ ℃ № ½ ¯\\_(ツ)_/¯",
        "Tokyo (東京) was called “江戸” before.",
        "Russian: Привет means hello.",
        "Use `s = \"привет\"` to test it.",
        "│ box │ drawing │\n└─────┘ ▁▂▃▅▇ ⠋ ⌘",
        "/ˈnɔːθ ˈwɪnd/ is IPA, ʻokina and rock 'n' roll too.",
        "ＦＵＬＬ　ｗｉｄｔｈ",
    ];
    tells_apart("script", &[], &bad, &good);
}

#[test]
fn the_prompt_gives_reasons() {
    let silent = |prompt: &str, answer: &str| says(prompt, answer, &[]).is_empty();
    assert!(silent("Translate to Russian: hello", "Привет"));
    assert!(silent("把“谢谢”翻译成日语", "ありがとう"));
    assert!(silent("What does привет mean?", "Привет means hello."));
    assert!(silent("How do you write it in Korean?", "서울"));
    assert!(!silent("你好吗？", "我很好，спасибо。"));
    assert!(!silent("Translate to Russian: hello", "Привет 你好"));
    assert!(says("Answer please", "好的", &[Check::Chinese { form: None }]).is_empty());
}

#[test]
fn one_finding_a_script() {
    let found = says("", "Привет and пока and 你好 and 再见", &[]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn garbled_bytes_are_told_from_accents() {
    let bad = [
        "It is nice \u{fffd}\u{fffd} here.",
        "donâ€™t",
        "cafÃ© and naÃ¯ve",
        "20Â°C",
        "ðŸ˜€ smile",
        "你好锟斤拷",
        "HelloĠworld",
        "Hello▁world",
        "Bye.<|im_end|>",
        "The byte <0xE4> leaked.",
        "A\u{0}B",
        "\u{1b}[31mred",
        "ä½ å¥½",
    ];
    let good = [
        "São Paulo, SÃO PAULO, Âge, château",
        "Ġorġ lives in Malta",
        "▁▂▃▄▅ is a chart.",
        "Windows\r\nlines\r\n\tand tabs",
        "👩‍👩‍👧‍👦 ❤️‍🔥 e\u{301}",
        "20 °C, £5, ½, «non»",
        "In hex 0xE4, and 1 < 0x10 > 2.",
        "Use <b>bold</b> and a<|b.",
    ];
    tells_apart("garble", &[], &bad, &good);
    assert!(says("What is <|im_end|>?", "<|im_end|> ends a message.", &[]).is_empty());
}
