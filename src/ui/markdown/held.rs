//! The end of a text that is not shown yet, because the next characters decide what it is.

/// How much of a text that goes on can be shown.
pub(super) fn shown(text: &str) -> usize {
    let text = text.trim_end_matches(['*', '_', '~', '`', '\\']);
    let line_start = text.rfind('\n').map_or(0, |newline| newline + 1);
    if is_open(&text[line_start..]) { line_start } else { text.len() }
}

/// Whether a line could still become a heading, an item, a rule, an underline, a task or a row of a table.
fn is_open(line: &str) -> bool {
    let mut line = line.trim_start_matches([' ', '\t', '>']);
    let mut in_item = false;
    while let Some(rest) = after_marker(line) {
        (line, in_item) = (rest.trim_start(), true);
    }
    let is_task = in_item && line.starts_with('[') && line.trim_end().len() <= 3;
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = line.len() - digits.len() <= 9 && matches!(digits, "" | "." | ")");
    is_task || is_number || line.bytes().all(|byte| b"#-+=|: \t".contains(&byte))
}

/// What follows the marker of an item.
pub(super) fn after_marker(line: &str) -> Option<&str> {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest =
        if digits.len() < line.len() { digits.strip_prefix(['.', ')']) } else { line.strip_prefix(['-', '*', '+']) }?;
    rest.starts_with([' ', '\t']).then_some(rest)
}

/// Whether a block is here to stay that begins with this text: no more text can make it part of the block before.
pub(super) fn is_settled(block: &str) -> bool {
    let words = block.trim_start_matches(|c: char| c.is_ascii_digit() || "-*+.) ".contains(c));
    block.contains('\n') || words.starts_with(char::is_alphabetic)
}
