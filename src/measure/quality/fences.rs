//! Prose and fenced code told apart, as `CommonMark` has it, at any indentation (fences stand in lists too).

/// A stretch of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Without the lines of the fence.
    pub(super) text: &'a str,
    /// Where it starts in the answer.
    pub(super) start: usize,
    /// None is prose.
    pub(super) fence: Option<Fence<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fence<'a> {
    /// What follows the opening fence: the language as the model wrote it.
    pub(super) tag: &'a str,
    pub(super) closed: bool,
}

pub(super) fn parts(answer: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut open: Option<(&str, &str)> = None;
    for line in answer.split_inclusive('\n') {
        let next = at + line.len();
        match (open, marker(line)) {
            (None, Some((mark, tag))) if !(mark.starts_with('`') && tag.contains('`')) => {
                parts.push(Part { text: &answer[start..at], start, fence: None });
                (open, start) = (Some((mark, tag)), next);
            }
            (Some((mark, tag)), Some((end, ""))) if end.starts_with(mark) => {
                parts.push(Part { text: &answer[start..at], start, fence: Some(Fence { tag, closed: true }) });
                (open, start) = (None, next);
            }
            _ => {}
        }
        at = next;
    }
    let fence = open.map(|(_, tag)| Fence { tag, closed: false });
    parts.push(Part { text: &answer[start..], start, fence });
    parts
}

/// The fence of a line and what follows it.
fn marker(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let first = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let rest = line.trim_start_matches(first);
    let length = line.len() - rest.len();
    (length >= 3).then(|| (&line[..length], rest.trim()))
}

/// The answer without its fenced code.
pub(super) fn prose(answer: &str) -> String {
    parts(answer).iter().filter(|part| part.fence.is_none()).map(|part| part.text).collect()
}
