//! From token bytes to what a reader sees: characters, thoughts apart from content, stop strings.

use std::time::Duration;

use super::detokenize::Utf8;
use super::stop::{StopStrings, overlap};

/// What a piece of text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Content,
    Reasoning,
}

/// The reader went away (a closed pipe).
#[derive(Debug, PartialEq, Eq)]
pub struct SinkClosed;

/// Where an answer goes while it is made.
pub trait Sink {
    /// Called with non-empty text, as soon as it is certain.
    ///
    /// # Errors
    /// [`SinkClosed`] ends the answer quietly.
    fn write(&mut self, part: Part, text: &str) -> Result<(), SinkClosed>;

    /// Called when tokens were emitted, those of one round together.
    fn emitted(&mut self, _tokens: usize) {}

    /// Called before so many tokens of a prompt are read, with the time that took before where that is known.
    fn reads(&mut self, _tokens: usize, _time: Option<Duration>) {}

    /// Called while they are read: tokens so far.
    fn reading(&mut self, _read: usize) {}
}

/// How thoughts are told from content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Text is continued, without a template: all is content.
    Off,
    /// An answer that begins with `<think>` begins with thoughts.
    Watch,
    /// The prompt ended inside `<think>`.
    Opened,
}

pub(super) const OPEN: &str = "<think>";
pub(super) const CLOSE: &str = "</think>";

/// What the next token would belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Thoughts may begin.
    Start,
    Thoughts,
    /// White space is dropped.
    Between,
    Content,
}

enum Phase {
    /// Only white space so far, or a part of `<think>`.
    Beginning,
    Thinking,
    /// White space between thoughts and content is dropped.
    BetweenParts,
    Content,
}

/// The text side of one answer.
pub(super) struct TextStream {
    utf8: Utf8,
    phase: Phase,
    held: String,
    stops: StopStrings,
    trims_first_space: bool,
    pub(super) content: String,
    pub(super) reasoning: String,
}

impl TextStream {
    /// `begun` is content that is there already; where it is none, thoughts may come first.
    pub(super) fn new(reasoning: Reasoning, stops: &[String], trims_first_space: bool, begun: String) -> Self {
        let phase = match reasoning {
            _ if !begun.is_empty() => Phase::Content,
            Reasoning::Off => Phase::Content,
            Reasoning::Watch => Phase::Beginning,
            Reasoning::Opened => Phase::Thinking,
        };
        let stops = StopStrings::new(stops);
        let (content, reasoning) = (String::new(), String::new());
        Self { utf8: Utf8::default(), phase, held: begun, stops, trims_first_space, content, reasoning }
    }

    /// Adds the bytes of a token. `Ok(true)`: a stop string was completed.
    pub(super) fn push(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<bool, SinkClosed> {
        let mut text = String::new();
        self.utf8.push(bytes, &mut text);
        if text.is_empty() {
            return Ok(false);
        }
        if std::mem::take(&mut self.trims_first_space) && text.starts_with(' ') {
            text.remove(0);
        }
        self.held.push_str(&text);
        self.advance(sink)
    }

    pub(super) fn place(&self) -> Place {
        match self.phase {
            Phase::Thinking => Place::Thoughts,
            Phase::Beginning if self.held.is_empty() && self.utf8.is_whole() => Place::Start,
            Phase::BetweenParts if self.utf8.is_whole() => Place::Between,
            Phase::Beginning | Phase::BetweenParts | Phase::Content => Place::Content,
        }
    }

    /// The end of the answer: everything held back is shown.
    pub(super) fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), SinkClosed> {
        let mut text = String::new();
        self.utf8.finish(&mut text);
        self.held.push_str(&text);
        self.advance(sink)?;
        let held = std::mem::take(&mut self.held);
        match self.phase {
            Phase::Thinking => self.show(Part::Reasoning, &held, sink)?,
            Phase::Beginning | Phase::Content => {
                self.phase = Phase::Content;
                self.held = held;
                self.advance(sink)?;
            }
            Phase::BetweenParts => {}
        }
        let mut rest = String::new();
        self.stops.finish(&mut rest);
        self.show(Part::Content, &rest, sink)
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> Result<bool, SinkClosed> {
        loop {
            match self.phase {
                Phase::Beginning => {
                    let begun = self.held.trim_start();
                    if let Some(thoughts) = begun.strip_prefix(OPEN) {
                        self.held = thoughts.to_owned();
                        self.phase = Phase::Thinking;
                    } else if begun.is_empty() || OPEN.starts_with(begun) {
                        return Ok(false);
                    } else {
                        self.phase = Phase::Content;
                    }
                }
                Phase::Thinking => {
                    let Some(end) = self.held.find(CLOSE) else {
                        let sure = self.held.len() - overlap(&self.held, CLOSE);
                        let thoughts: String = self.held.drain(..sure).collect();
                        self.show(Part::Reasoning, &thoughts, sink)?;
                        return Ok(false);
                    };
                    let thoughts: String = self.held.drain(..end).collect();
                    self.held.drain(..CLOSE.len());
                    self.show(Part::Reasoning, &thoughts, sink)?;
                    self.phase = Phase::BetweenParts;
                }
                Phase::BetweenParts => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return Ok(false);
                    }
                    self.phase = Phase::Content;
                }
                Phase::Content => {
                    let text = std::mem::take(&mut self.held);
                    let mut shown = String::new();
                    let stopped = self.stops.push(&text, &mut shown);
                    self.show(Part::Content, &shown, sink)?;
                    return Ok(stopped);
                }
            }
        }
    }

    fn show(&mut self, part: Part, text: &str, sink: &mut dyn Sink) -> Result<(), SinkClosed> {
        if text.is_empty() {
            return Ok(());
        }
        match part {
            Part::Content => self.content.push_str(text),
            Part::Reasoning => self.reasoning.push_str(text),
        }
        sink.write(part, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(String, String);

    impl Sink for Seen {
        fn write(&mut self, part: Part, text: &str) -> Result<(), SinkClosed> {
            match part {
                Part::Content => self.0.push_str(text),
                Part::Reasoning => self.1.push_str(text),
            }
            Ok(())
        }
    }

    fn split(reasoning: Reasoning, stops: &[&str], pieces: &[&str]) -> (String, String) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut stream = TextStream::new(reasoning, &stops, false, String::new());
        let mut seen = Seen::default();
        let stopped = pieces.iter().any(|piece| stream.push(piece.as_bytes(), &mut seen).unwrap());
        if !stopped {
            stream.finish(&mut seen).unwrap();
        }
        assert_eq!((&seen.0, &seen.1), (&stream.content, &stream.reasoning));
        (seen.0, seen.1)
    }

    #[test]
    fn thoughts_are_told_from_content_however_they_are_cut() {
        let text = "\n<think>\nhm </thin?\n</think>\n\nFour.";
        for cut in 0..=text.len() {
            let (content, reasoning) = split(Reasoning::Watch, &[], &[&text[..cut], &text[cut..]]);
            assert_eq!((content.as_str(), reasoning.as_str()), ("Four.", "\nhm </thin?\n"));
        }
        let (content, reasoning) = split(Reasoning::Opened, &[], &["so", "</think>", "Four."]);
        assert_eq!((content.as_str(), reasoning.as_str()), ("Four.", "so"));
    }

    #[test]
    fn text_without_thoughts_is_all_content() {
        assert_eq!(split(Reasoning::Watch, &[], &[" ", "<thin", "gs> a"]).0, " <things> a");
        assert_eq!(split(Reasoning::Off, &[], &["<think>a</think>b"]).0, "<think>a</think>b");
        assert_eq!(split(Reasoning::Watch, &[], &["<thi"]).0, "<thi");
        assert_eq!(split(Reasoning::Watch, &[], &["<think>cut"]).1, "cut");
    }

    #[test]
    fn stop_strings_look_at_content_only() {
        let (content, reasoning) = split(Reasoning::Watch, &["END"], &["<think>END</think>", "a E", "ND b"]);
        assert_eq!((content.as_str(), reasoning.as_str()), ("a ", "END"));
    }
}
