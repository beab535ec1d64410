//! What happens in a chat, one JSON object a line, and what a chat is after it.

use serde::{Deserialize, Serialize};

use super::conversation::{Conversation, Message};

/// The version of the format that is written.
pub(super) const VERSION: u32 = 1;

/// One line of a chat's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Begin {
        version: u32,
        created: String,
        model: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
    },
    Message {
        #[serde(flatten)]
        message: Message,
        /// What was decoded, prompt and answer, where a model answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decoded: Option<Decoded>,
    },
    /// The last exchange was taken back.
    Undo,
    /// The last answer was taken back, for another one.
    Retract,
    /// Of the answers to the last question this one counts (from 0).
    Choose {
        answer: usize,
    },
    Clear,
    /// So many of the oldest messages went, since the context was full.
    Drop {
        messages: usize,
    },
    System {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// The file is that of a model without an entry, which its name does not find again.
    Model {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// A setting, as `/set` takes it.
    Set {
        name: String,
        value: String,
    },
    /// The last blocks in the prefix cache: state key, parent, block.
    Prefix {
        ends: Vec<[String; 3]>,
    },
}

/// Token ids, as a change of those before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decoded {
    /// A digest of the vocabulary that the ids belong to.
    pub vocabulary: String,
    /// So many ids stay of those before.
    pub keep: usize,
    pub then: Vec<i32>,
}

impl Decoded {
    /// What makes `after` of `before`.
    pub fn change(vocabulary: String, before: &[i32], after: &[i32]) -> Self {
        let keep = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        Self { vocabulary, keep, then: after[keep..].to_vec() }
    }
}

/// A chat after its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    pub created: String,
    pub model: String,
    /// The model's file, where it has no entry.
    pub file: Option<String>,
    pub conversation: Conversation,
    /// Settings, the last value of each.
    pub settings: Vec<(String, String)>,
    /// The ids that were last decoded, and the vocabulary that they belong to.
    pub vocabulary: String,
    pub decoded: Vec<i32>,
    /// Every block that was the last one of a prefix.
    pub ends: Vec<[String; 3]>,
}

impl Past {
    /// Takes in what happened next.
    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { created, model, file, system, .. } => {
                (self.created, self.model, self.file) = (created, model, file);
                self.conversation.system = system;
            }
            Event::Message { message, decoded } => {
                self.conversation.push(message);
                if let Some(decoded) = decoded {
                    if self.vocabulary != decoded.vocabulary {
                        self.decoded.clear();
                        self.vocabulary = decoded.vocabulary;
                    }
                    self.decoded.truncate(decoded.keep);
                    self.decoded.extend(decoded.then);
                }
            }
            Event::Undo => {
                self.conversation.undo();
            }
            Event::Retract => {
                self.conversation.retract_answer();
            }
            Event::Choose { answer } => {
                self.conversation.choose(answer);
            }
            Event::Clear => self.conversation.clear(),
            Event::Drop { messages } => {
                for _ in 0..messages {
                    self.conversation.drop_first();
                }
            }
            Event::System { text } => self.conversation.system = text,
            Event::Model { name, file } => (self.model, self.file) = (name, file),
            Event::Set { name, value } => {
                self.settings.retain(|(own, _)| *own != name);
                self.settings.push((name, value));
            }
            Event::Prefix { ends } => {
                for end in ends {
                    self.ends.retain(|own| *own != end);
                    self.ends.push(end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conversation::Role;
    use super::*;

    fn said(role: Role, text: &str, decoded: Option<Decoded>) -> Event {
        Event::Message { message: Message::new(role, text), decoded }
    }

    #[test]
    fn events_are_lines_that_make_a_chat_again() {
        let decoded = |before: &[i32], after: &[i32]| Some(Decoded::change("v".into(), before, after));
        let events = vec![
            Event::Begin {
                version: VERSION,
                created: "now".into(),
                model: "m".into(),
                file: None,
                system: Some("Be brief.".into()),
            },
            Event::Set { name: "temperature".into(), value: "0".into() },
            said(Role::User, "a\nb \u{1F600}", None),
            said(Role::Assistant, "c", decoded(&[], &[1, 2, 3])),
            said(Role::User, "d", None),
            said(Role::Assistant, "e", decoded(&[1, 2, 3], &[1, 2, 9, 10])),
            Event::Retract,
            said(Role::Assistant, "g", decoded(&[1, 2, 9, 10], &[1, 2, 9, 12])),
            Event::Retract,
            said(Role::Assistant, "f", decoded(&[1, 2, 9, 12], &[1, 2, 9, 11])),
            Event::Choose { answer: 1 },
            Event::Choose { answer: 2 },
            Event::Set { name: "temperature".into(), value: "1".into() },
        ];
        let mut past = Past::default();
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            let again: Event = serde_json::from_str(&line).unwrap();
            assert_eq!(again, event);
            past.happen(again);
        }
        let texts: Vec<_> = past.conversation.messages().iter().map(|own| own.content.as_str()).collect();
        assert_eq!(texts, ["a\nb \u{1F600}", "c", "d", "f"]);
        assert_eq!(past.decoded, [1, 2, 9, 11]);
        assert_eq!(past.settings, [("temperature".to_owned(), "1".to_owned())]);
        assert_eq!(past.conversation.answers().0.len(), 3);
        past.happen(Event::Undo);
        past.happen(Event::Drop { messages: 1 });
        assert_eq!(past.conversation.messages().len(), 1);
    }
}
