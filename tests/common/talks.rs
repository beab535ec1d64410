//! Conversations with the ids that their prompts must have, as `scripts/reference_ids.py` writes them.

use qchat::chat::{Conversation, Message, Role};
use qchat::generate::Speaker;
use serde::Deserialize;

/// One conversation with the ids that its prompt must have.
#[derive(Deserialize)]
pub struct Talk {
    pub name: String,
    system: Option<String>,
    messages: Vec<Said>,
    pub ids: Vec<i32>,
    pub enable_thinking: Option<bool>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: String,
    reasoning_content: Option<String>,
}

impl Talk {
    fn conversation(&self) -> Conversation {
        let mut talk = Conversation::new(self.system.clone());
        for said in &self.messages {
            let role = if said.role == "user" { Role::User } else { Role::Assistant };
            talk.push(Message { role, content: said.content.clone(), reasoning: said.reasoning_content.clone() });
        }
        talk
    }

    /// The ids that `speaker` gives.
    pub fn ids_of(&self, speaker: &Speaker) -> Vec<i32> {
        speaker.prompt(&self.conversation()).unwrap().0.iter().map(|token| token.0).collect()
    }
}
