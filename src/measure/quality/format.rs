//! JSON and Markdown tables.

use serde_json::Value;

use super::fences::parts;
use super::quoted;

/// A JSON value alone or in one fence, with the keys that were asked.
pub(super) fn json(answer: &str, finished: bool, keys: &[String]) -> Option<String> {
    let parts = parts(answer);
    let mut fenced = parts.iter().filter(|part| part.fence.is_some());
    let text = match (fenced.next(), fenced.next()) {
        (None, _) => answer,
        (Some(part), None) => part.text,
        (Some(_), Some(_)) => return Some("more than one code block".to_owned()),
    };
    match serde_json::from_str(text.trim()) {
        Ok(value) => lacking(&value, keys),
        Err(error) if error.is_eof() && !finished => None,
        Err(error) => Some(format!("no JSON: {error}, in {}", quoted(text.trim()))),
    }
}

fn lacking(value: &Value, keys: &[String]) -> Option<String> {
    match value {
        _ if keys.is_empty() => None,
        Value::Array(values) if !values.is_empty() => values.iter().find_map(|value| lacking(value, keys)),
        Value::Object(object) => {
            keys.iter().find(|key| !object.contains_key(*key)).map(|key| format!("no key {key:?}"))
        }
        _ => Some(format!("no object with {}", keys.join(", "))),
    }
}

/// Every table has a row of dashes below its header, and as many cells in each row.
pub(super) fn table(answer: &str, finished: bool) -> Vec<String> {
    let lines: Vec<&str> = answer.lines().map(str::trim).collect();
    let mut says = Vec::new();
    let mut tables = 0;
    for (start, end) in stretches(&lines) {
        let rows: Vec<usize> = lines[start..end].iter().map(|line| cells(line)).collect();
        let cut = !finished && end == lines.len();
        if lines.get(start + 1).is_some_and(|line| start + 1 < end && is_separator(line)) {
            tables += 1;
            let whole = rows.len() - usize::from(cut);
            let odd = rows.iter().take(whole).position(|cells| *cells != rows[0]);
            says.extend(
                odd.map(|i| format!("{} cells below a header of {}: {}", rows[i], rows[0], quoted(lines[start + i]))),
            );
        } else if rows.len() > 1 && !(cut && rows.len() == 2) {
            tables += 1;
            says.push(format!("a table without a row of dashes: {}", quoted(lines[start])));
        } else if cut {
            tables += 1;
        }
    }
    if tables == 0 && finished {
        says.push("no table".to_owned());
    }
    says
}

/// Runs of lines that have a bar.
fn stretches(lines: &[&str]) -> Vec<(usize, usize)> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for (i, _) in lines.iter().enumerate().filter(|(_, line)| line.contains('|')) {
        match stretches.last_mut() {
            Some((_, end)) if *end == i => *end = i + 1,
            _ => stretches.push((i, i + 1)),
        }
    }
    stretches
}

/// Cells of a row: bars part them, the outer ones and escaped ones do not.
fn cells(line: &str) -> usize {
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut bars = 0;
    let mut escaped = false;
    for c in line.chars() {
        bars += usize::from(c == '|' && !escaped);
        escaped = c == '\\' && !escaped;
    }
    let closed = line.ends_with('|') && !line.ends_with("\\|");
    bars + usize::from(!closed)
}

fn is_separator(line: &str) -> bool {
    let is_rule = |cell: &str| {
        let cell = cell.trim();
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        !dashes.is_empty() && dashes.chars().all(|c| c == '-')
    };
    let inner = line.strip_prefix('|').unwrap_or(line);
    inner.strip_suffix('|').unwrap_or(inner).split('|').all(is_rule)
}
