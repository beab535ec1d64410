//! A chat for other programs and for people.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::conversation::Role;
use super::events::Past;

/// A chat as Markdown: a heading a message.
pub fn markdown(name: &str, past: &Past) -> String {
    let mut out = format!("# {name}\n\n{}, {}\n", past.model, past.created);
    if let Some(system) = &past.conversation.system {
        let _ = write!(out, "\n## System\n\n{}\n", system.trim_end());
    }
    for message in past.conversation.messages() {
        let who = match message.role {
            Role::System => "System",
            Role::User => "User",
            Role::Assistant => "Assistant",
        };
        let _ = write!(out, "\n## {who}\n");
        if let Some(reasoning) = &message.reasoning {
            let quoted: Vec<String> =
                reasoning.trim().lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
            let _ = write!(out, "\n{}\n", quoted.join("\n"));
        }
        let _ = write!(out, "\n{}\n", message.content.trim_end());
    }
    out
}

/// A chat as one object, its messages as other programs take them.
pub fn json(name: &str, past: &Past) -> Value {
    let system = past.conversation.system.as_ref().map(|text| json!({ "role": "system", "content": text }));
    let messages = past.conversation.messages().iter().map(|message| json!(message));
    json!({
        "name": name,
        "model": past.model,
        "created": past.created,
        "messages": system.into_iter().chain(messages).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::conversation::{Conversation, Message};
    use super::*;

    #[test]
    fn both_forms_have_everything_that_was_said() {
        let mut conversation = Conversation::new(Some("Be brief.".into()));
        conversation.push(Message::new(Role::User, "# hi\n世界"));
        conversation.push(Message {
            role: Role::Assistant,
            content: "hello".into(),
            reasoning: Some("so\n\nthus".into()),
        });
        let past = Past { created: "then".into(), model: "m".into(), conversation, ..Past::default() };
        let expected = "# x\n\nm, then\n\n## System\n\nBe brief.\n\n## User\n\n# hi\n世界\n\n## Assistant\n\n> so\n>\n> thus\n\nhello\n";
        assert_eq!(markdown("x", &past), expected);
        let object = json("x", &past);
        assert_eq!(object["messages"][0]["role"], "system");
        assert_eq!(object["messages"][2]["reasoning_content"], "so\n\nthus");
        assert_eq!(object["messages"].as_array().map(Vec::len), Some(3));
    }
}
