//! Code that could not run: fences, brackets and Python's indentation.

use super::fences::{Fence, Part, parts};
use super::quoted;
use super::scan::{Line, scan};
use super::syntax::{language, syntax};

/// How code begins that stands in no fence.
const BEGINNINGS: [&str; 20] = [
    "def ",
    "class ",
    "import ",
    "from ",
    "fn ",
    "pub ",
    "use ",
    "let ",
    "const ",
    "function ",
    "#include",
    "#!/",
    "package ",
    "public ",
    "int ",
    "async ",
    "@",
    "SELECT ",
    "CREATE ",
    "print(",
];

pub(super) fn check(answer: &str, finished: bool, wanted: &str) -> Vec<String> {
    let wanted = language(wanted);
    let parts = parts(answer);
    let mut blocks: Vec<Part> = parts.iter().filter(|part| part.fence.is_some()).copied().collect();
    if blocks.is_empty() && BEGINNINGS.iter().any(|beginning| answer.trim_start().starts_with(beginning)) {
        blocks.push(Part { text: before_prose(answer), start: 0, fence: Some(Fence { tag: "", closed: true }) });
    }
    let fits = |tag: &str| wanted.is_empty() || tag.is_empty() || language(tag) == wanted;
    if finished && !blocks.iter().any(|block| block.fence.is_some_and(|fence| fits(fence.tag))) {
        return vec![format!("no {wanted} code").replace("  ", " ")];
    }
    let mut says = Vec::new();
    for (block, fence) in blocks.iter().filter_map(|block| Some((block, block.fence?))) {
        if finished && !fence.closed {
            says.push("a code block that never ends".to_owned());
        }
        let name = if fence.tag.is_empty() { wanted.clone() } else { language(fence.tag) };
        examine_block(block.text, finished || fence.closed, &name, &mut says);
    }
    says
}

fn examine_block(code: &str, finished: bool, language: &str, says: &mut Vec<String>) {
    let Some(syntax) = syntax(language) else { return };
    let scan = scan(code, &syntax);
    if let Some((number, bracket)) = scan.stray.first() {
        says.push(format!("{bracket:?} in line {number} closes nothing: {}", line(code, *number)));
    } else if let Some((number, open)) = scan.open.first().filter(|_| finished) {
        says.push(format!("{open:?} of line {number} is never closed: {}", line(code, *number)));
    }
    // A session of the interpreter has prompts where code has indentation.
    if language == "python" && !code.contains(">>> ") {
        says.extend(indentation(&scan.lines).map(|(number, why)| format!("{why}: {}", line(code, number))));
    }
}

/// Code without a fence ends where a paragraph begins like a sentence.
fn before_prose(answer: &str) -> &str {
    let (mut at, mut after_blank) = (0, false);
    for line in answer.split_inclusive('\n') {
        if after_blank && is_sentence(line) {
            return &answer[..at];
        }
        after_blank = line.trim().is_empty();
        at += line.len();
    }
    answer
}

fn is_sentence(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().is_some_and(|word| word.chars().skip(1).all(|c| c.is_lowercase() || "',".contains(c)));
    let second =
        words.next().is_some_and(|word| word.trim_end_matches([':', ',', '.']).chars().all(char::is_alphabetic));
    line.starts_with(char::is_uppercase) && first && second
}

fn line(code: &str, number: usize) -> String {
    quoted(code.lines().nth(number.saturating_sub(1)).unwrap_or_default().trim_end())
}

/// What Python's tokenizer and grammar ask of line starts (reference, 2.1.8), as far as one sees without a parser.
fn indentation(lines: &[Line]) -> Option<(usize, &'static str)> {
    let mut levels: Vec<&str> = vec![lines.first()?.indent];
    let mut after_colon = false;
    for line in lines {
        let level = levels.last().copied().unwrap_or_default();
        let why = if line.indent == level {
            after_colon.then_some("a block without indentation")
        } else if line.indent.len() > level.len() && line.indent.starts_with(level) {
            levels.push(line.indent);
            (!after_colon).then_some("indented without a reason")
        } else if let Some(at) = levels.iter().position(|known| *known == line.indent) {
            levels.truncate(at + 1);
            after_colon.then_some("a block without indentation")
        } else if line.indent.contains('\t') != level.contains('\t') {
            Some("tabs and spaces mixed")
        } else {
            Some("back to no level that was open")
        };
        if let Some(why) = why {
            return Some((line.number, why));
        }
        after_colon = line.last == ':';
    }
    let mixed = lines.iter().find(|line| line.indent.contains(' ') && line.indent.contains('\t'));
    mixed.map(|line| (line.number, "tabs and spaces mixed"))
}
