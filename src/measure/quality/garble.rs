//! Bytes that did not become the characters they should: replacement characters, mojibake, tokens in the open.

use super::quoted;

/// UTF-8 read as Latin-1 or Windows-1252, GBK read as UTF-8 and back, fill bytes of a debugger.
const MOJIBAKE: [&str; 10] = ["â€", "ï¿½", "ï»¿", "ðŸ", "Ã¤", "Ã©", "Ã¼", "å¥½", "锟斤拷", "烫烫烫"];
/// Pieces of prompts and vocabularies that a reader should never see.
const TOKENS: [&str; 11] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[/INST]",
    "<unk>",
    "</s>",
    "<0x",
];

pub(super) fn check(prompt: &str, answer: &str) -> Vec<String> {
    let mut says = Vec::new();
    let odd: Vec<char> = answer.chars().filter(|c| is_odd(*c) && !prompt.contains(*c)).collect();
    if let Some(first) = odd.first() {
        says.push(format!("characters that no text has: {}, the first is U+{:04X}", odd.len(), u32::from(*first)));
    }
    let read_as_latin1 = answer.char_indices().find(|(i, _)| is_latin1_pair(&answer[*i..])).map(|(i, _)| &answer[i..]);
    let known = MOJIBAKE.iter().filter(|sign| !prompt.contains(*sign)).find_map(|sign| answer.find(sign));
    if let Some(text) = known.map(|at| &answer[at..]).or(read_as_latin1.filter(|_| !prompt.contains(['Ã', 'Â']))) {
        says.push(format!("bytes read in the wrong encoding: {}", quoted(text)));
    }
    let leaked = TOKENS.iter().find(|token| is_leaked(token, answer) && !prompt.contains(*token));
    says.extend(leaked.map(|token| format!("the token {token:?}")));
    let chars: Vec<char> = answer.chars().collect();
    let is_space = |c: &[char]| {
        c[0].is_alphanumeric() && matches!(c[1], 'Ġ' | '▁') && c[2].is_alphanumeric() && !prompt.contains(c[1])
    };
    says.extend(chars.windows(3).find(|c| is_space(c)).map(|c| format!("a vocabulary's sign for a space: {:?}", c[1])));
    says
}

/// Replacement, control and private characters, and code points that are none.
fn is_odd(c: char) -> bool {
    let control = c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    control || matches!(c, '\u{fffd}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{fff8}' | '\u{ffff}' | '\u{f0000}'..)
}

/// A two-byte character of UTF-8 read as two of Latin-1: `Ã` or `Â` and a sign that hardly follows it in a word.
fn is_latin1_pair(text: &str) -> bool {
    let mut chars = text.chars();
    matches!(chars.next(), Some('Ã' | 'Â')) && matches!(chars.next(), Some('\u{80}'..='\u{9f}' | '\u{a1}'..='\u{bf}'))
}

/// `<0x` leaks as a whole byte token (`<0xE4>`), and `</s>` also ends what HTML strikes through.
fn is_leaked(token: &str, answer: &str) -> bool {
    let is_byte = |rest: &str| rest.get(2..3) == Some(">") && rest.chars().take(2).all(|c| c.is_ascii_hexdigit());
    match token {
        "<0x" => answer.split(token).skip(1).any(is_byte),
        "</s>" => answer.contains(token) && !answer.contains("<s>"),
        _ => answer.contains(token),
    }
}
