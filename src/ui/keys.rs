//! Keys that the line editor leaves to us: Enter behind a backslash, and long pastes, which are shown folded.

use std::sync::{Arc, Mutex};

use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, InputMode, KeyCode, KeyEvent, Modifiers, RepeatCount,
};

use super::output::{count, thousands};

/// A paste longer than this is folded.
const MOST_LINES: usize = 20;
const MOST_CHARACTERS: usize = 2000;

/// Sees every key before the line editor does.
#[derive(Clone, Default)]
pub(super) struct Keys(Arc<Mutex<Typed>>);

/// What the text of the line does not say.
#[derive(Default)]
pub(super) struct Typed {
    /// Where Enter followed a backslash, which then began a new line; a pasted text may hold backslashes of its own.
    pub(super) continued: Vec<usize>,
    /// The paste that is coming in.
    pasting: Option<String>,
    /// Pastes that are folded: what stands for them, and their texts.
    folded: Vec<(String, String)>,
}

impl Keys {
    /// What belongs to the line that was just read.
    pub(super) fn take(&self) -> Typed {
        self.0.lock().map(|mut typed| std::mem::take(&mut *typed)).unwrap_or_default()
    }
}

impl ConditionalEventHandler for Keys {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let key = event.get(0)?;
        let mut typed = self.0.lock().ok()?;
        if let Some(text) = &mut typed.pasting {
            match (key.0, key.1) {
                (KeyCode::BracketedPasteEnd, _) => {
                    let text = typed.pasting.take()?;
                    return Some(Cmd::Insert(1, typed.fold(&text)));
                }
                (KeyCode::Char(c), Modifiers::NONE | Modifiers::SHIFT) => text.push(c),
                (KeyCode::Enter, _) => text.push('\r'),
                (KeyCode::Char('J'), Modifiers::CTRL) => text.push('\n'),
                (KeyCode::Tab, _) => text.push('\t'),
                _ => {}
            }
            return Some(Cmd::Noop);
        }
        match *key {
            // vi's commands take numbers, so a paste is not seen whole there; the line editor has its own way.
            KeyEvent(KeyCode::BracketedPasteStart, _) if context.input_mode() != InputMode::Command => {
                typed.pasting = Some(String::new());
                Some(Cmd::Noop)
            }
            KeyEvent(KeyCode::Enter, Modifiers::NONE) => {
                let line = context.line();
                let place = line.strip_suffix('\\').filter(|_| context.pos() == line.len())?.len();
                typed.continued.push(place);
                Some(Cmd::Newline)
            }
            _ => None,
        }
    }
}

impl Typed {
    /// What is put into the line for a paste: itself, or what stands for it.
    fn fold(&mut self, text: &str) -> String {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (lines, characters) = (text.lines().count(), text.chars().count());
        if lines <= MOST_LINES && characters <= MOST_CHARACTERS {
            return text;
        }
        let number = self.folded.len() + 1;
        let size = format!("{}, {} characters", count(lines, "line"), thousands(characters));
        let shown = format!("[paste {number}: {size}]");
        self.folded.push((shown.clone(), text));
        shown
    }

    /// The line with the pastes that were folded in it; one whose words were edited stays as it is.
    pub(super) fn unfolded(&self, line: &str) -> String {
        let Some((at, (shown, text))) =
            self.folded.iter().filter_map(|paste| Some((line.find(&paste.0)?, paste))).min_by_key(|(at, _)| *at)
        else {
            return line.to_owned();
        };
        // What a paste holds is not looked through again.
        format!("{}{text}{}", &line[..at], self.unfolded(&line[at + shown.len()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pastes_fold_and_unfold() {
        let mut typed = Typed::default();
        assert_eq!(typed.fold("a\r\nb\rc"), "a\nb\nc");
        let long = "word ".repeat(20_000);
        assert_eq!(typed.fold(&long), "[paste 1: 1 line, 100,000 characters]");
        let lines = "[paste 1: 1 line, 100,000 characters]\n".repeat(21);
        let shown = typed.fold(&lines);
        assert_eq!(shown, "[paste 2: 21 lines, 798 characters]");
        assert_eq!(typed.unfolded(&format!("a {shown} b")), format!("a {lines} b"));
        let both = format!("[paste 1: 1 line, 100,000 characters]{shown}");
        assert_eq!(typed.unfolded(&both), format!("{long}{lines}"));
        assert_eq!(typed.unfolded("[paste 3: none]"), "[paste 3: none]");
    }
}
