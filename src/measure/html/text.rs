//! Text and figures as HTML may hold them.

use std::fmt::Write as _;

use crate::measure::stats::Summary;
pub(super) use crate::words::{count, size};

/// Text as HTML, in elements and in attributes. What cannot be seen, or turns the direction of what follows, is shown as
/// a picture of itself or as a replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' | '\r' => out.push(' '),
            '\0'..='\x1f' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER)),
            c if unseen(c) => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

fn unseen(c: char) -> bool {
    let noncharacter = u32::from(c) & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}');
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || noncharacter
}

/// JSON that no `</script>` inside can end, and that is still the same JSON.
pub(super) fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // All of these stand inside strings only.
        if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') || (unseen(c) && c != '\n') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A name whose direction does not turn what stands beside it.
pub(super) fn name(text: &str) -> String {
    format!("<bdi>{}</bdi>", short(text))
}

/// Escaped, and cut where it is longer than a table can bear.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => escape(&text[..end]) + "…",
        None => escape(text),
    }
}

/// Three digits; a dash for what is no number.
pub(super) fn figure(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "–".to_owned(),
        a if a >= 1e7 => format!("{x:.2e}"),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.9995 => format!("{x:.2}"),
        a if a >= 0.0995 => format!("{x:.3}"),
        a if a >= 0.001 => format!("{x:.4}"),
        0.0 => "0".to_owned(),
        _ => format!("{x:.2e}"),
    }
}

/// The median, or nothing.
pub(super) fn p50(summary: Option<&Summary>) -> String {
    summary.map_or_else(String::new, |summary| figure(summary.p50))
}

pub(super) fn percent(part: usize, of: usize) -> Option<String> {
    (of > 0).then(|| format!("{:.0} %", part as f64 / of as f64 * 100.0))
}
