//! Characters that look like markup and are none, hidden from the parser behind control characters: what comes in is
//! free of those, and each is one byte, so places in the source stay what they are.

const MARKUP: &[u8; 18] = b"\\*_`~<&|:[]$.!?,)\"";
const FIRST: u8 = 0x0e;

/// What stands for a byte of markup; any other byte stays.
pub(super) fn hide(byte: u8) -> u8 {
    MARKUP.iter().position(|markup| *markup == byte).map_or(byte, |index| FIRST + index as u8)
}

pub(super) fn restore(byte: u8) -> u8 {
    byte.checked_sub(FIRST).and_then(|index| MARKUP.get(usize::from(index))).copied().unwrap_or(byte)
}

pub(super) fn restored(text: &str) -> String {
    text.chars().map(restored_char).collect()
}

/// Punctuation that is hidden as a whole: in private use, and three bytes like these.
const WIDE: &str = "：；，。！？、）】」』》〉”’…（【「『《〈“‘～％";
const FIRST_WIDE: u32 = 0xec40;

/// What stands for a character of punctuation, of as many bytes; none where it cannot be hidden.
pub(super) fn hide_char(c: char) -> Option<char> {
    if c.is_ascii() {
        let hidden = char::from(hide(c as u8));
        return (hidden != c).then_some(hidden);
    }
    char::from_u32(FIRST_WIDE + WIDE.chars().position(|wide| wide == c)? as u32)
}

pub(super) fn restored_char(c: char) -> char {
    if c.is_ascii() {
        return char::from(restore(c as u8));
    }
    (c as u32).checked_sub(FIRST_WIDE).and_then(|index| WIDE.chars().nth(index as usize)).unwrap_or(c)
}
