//! What was said, in order.

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// One message. Thoughts are kept apart, so that a template can leave out earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
    #[serde(rename = "reasoning_content", default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), reasoning: None }
    }
}

/// A conversation with an optional system prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    pub system: Option<String>,
    messages: Vec<Message>,
    /// The answers to the last question in the order in which they were given, where there are several.
    answers: Vec<Message>,
    /// Which of them counts.
    chosen: usize,
}

impl Conversation {
    pub fn new(system: Option<String>) -> Self {
        Self { system, ..Self::default() }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub fn push(&mut self, message: Message) {
        match message.role {
            Role::Assistant if !self.answers.is_empty() => {
                self.chosen = self.answers.len();
                self.answers.push(message.clone());
            }
            _ => self.answers.clear(),
        }
        self.messages.push(message);
    }

    pub fn clear(&mut self) {
        self.messages.clear();
        self.answers.clear();
    }

    /// The answers to the last question that `retract_answer` made several, and which one counts.
    pub fn answers(&self) -> (&[Message], usize) {
        (&self.answers, self.chosen)
    }

    /// Lets another one of several answers count; false when there is none of this number (from 0).
    pub fn choose(&mut self, number: usize) -> bool {
        let Some((answer, last)) = self.answers.get(number).zip(self.messages.last_mut()) else { return false };
        if last.role != Role::Assistant {
            return false;
        }
        *last = answer.clone();
        self.chosen = number;
        true
    }

    /// Takes back the last exchange: the last user message and what follows it. Answers the user's text.
    pub fn undo(&mut self) -> Option<String> {
        let last = self.messages.iter().rposition(|message| message.role == Role::User)?;
        let content = self.messages[last].content.clone();
        self.messages.truncate(last);
        self.answers.clear();
        Some(content)
    }

    /// Takes back the last answer, so that another one can be given; both are kept then. False when there is nothing to
    /// answer.
    pub fn retract_answer(&mut self) -> bool {
        let Some(question) = self.messages.iter().rposition(|message| message.role == Role::User) else { return false };
        if self.answers.is_empty() {
            self.answers.extend(self.messages.get(question + 1).cloned());
        }
        self.messages.truncate(question + 1);
        true
    }

    /// Drops the oldest message.
    pub fn drop_first(&mut self) {
        if !self.messages.is_empty() {
            self.messages.remove(0);
        }
    }

    /// Drops the oldest exchange, up to the next user message, never the last one. Answers how many messages went.
    pub fn drop_oldest(&mut self) -> usize {
        let next = self.messages.iter().skip(1).position(|message| message.role == Role::User);
        let count = next.map_or(0, |at| at + 1);
        self.messages.drain(..count).count()
    }

    /// The messages as templates take them: the system prompt first, or folded into the first user message where the
    /// template has no system role; neighbours of one role joined, since a cancelled turn leaves two user messages in
    /// a row and many templates demand alternation.
    pub fn for_template(&self, has_system_role: bool) -> Vec<Message> {
        let mut messages: Vec<Message> = Vec::with_capacity(self.messages.len() + 1);
        if let (Some(system), true) = (&self.system, has_system_role) {
            messages.push(Message::new(Role::System, system.as_str()));
        }
        for message in &self.messages {
            match messages.last_mut() {
                Some(last) if last.role == message.role => {
                    last.content.push_str("\n\n");
                    last.content.push_str(&message.content);
                }
                _ => messages.push(message.clone()),
            }
        }
        if let (Some(system), false) = (&self.system, has_system_role)
            && !system.is_empty()
            && let Some(first) = messages.iter_mut().find(|message| message.role == Role::User)
        {
            first.content = format!("{system}\n\n{}", first.content);
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(turns: &[(Role, &str)]) -> Conversation {
        let mut talk = Conversation::new(Some("Be brief.".into()));
        turns.iter().for_each(|(role, text)| talk.push(Message::new(*role, *text)));
        talk
    }

    fn texts(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|message| message.content.as_str()).collect()
    }

    #[test]
    fn two_user_messages_in_a_row_become_one() {
        let talk = talk(&[(Role::User, "a"), (Role::User, "b"), (Role::Assistant, "c")]);
        assert_eq!(texts(&talk.for_template(true)), ["Be brief.", "a\n\nb", "c"]);
        assert_eq!(texts(&talk.for_template(false)), ["Be brief.\n\na\n\nb", "c"]);
    }

    #[test]
    fn undo_takes_back_a_whole_exchange() {
        let mut talk = talk(&[(Role::User, "a"), (Role::Assistant, "b"), (Role::User, "c"), (Role::Assistant, "d")]);
        assert_eq!(talk.undo().as_deref(), Some("c"));
        assert!(talk.retract_answer());
        assert_eq!(texts(talk.messages()), ["a"]);
        assert_eq!(talk.undo().as_deref(), Some("a"));
        assert_eq!(talk.undo(), None);
        assert!(!talk.retract_answer());
    }

    #[test]
    fn another_answer_keeps_the_first_one_to_choose_from() {
        let mut talk = talk(&[(Role::User, "a"), (Role::Assistant, "b")]);
        assert!(!talk.choose(0));
        for answer in ["c", "d"] {
            assert!(talk.retract_answer());
            assert!(!talk.choose(0), "there is no answer to be replaced");
            talk.push(Message::new(Role::Assistant, answer));
        }
        assert_eq!((texts(talk.answers().0), talk.answers().1), (vec!["b", "c", "d"], 2));
        assert!(talk.choose(0) && !talk.choose(3));
        assert_eq!((texts(talk.messages()), talk.answers().1), (vec!["a", "b"], 0));
        // One more is the fourth, whichever counted.
        assert!(talk.retract_answer());
        talk.push(Message::new(Role::Assistant, "e"));
        assert_eq!((texts(talk.answers().0), talk.answers().1), (vec!["b", "c", "d", "e"], 3));
        talk.push(Message::new(Role::User, "f"));
        assert!(talk.answers().0.is_empty());
    }

    #[test]
    fn the_oldest_exchange_goes_first_and_the_last_one_stays() {
        let mut talk = talk(&[(Role::User, "a"), (Role::Assistant, "b"), (Role::User, "c"), (Role::Assistant, "d")]);
        assert_eq!(talk.drop_oldest(), 2);
        assert_eq!(texts(talk.messages()), ["c", "d"]);
        assert_eq!(talk.drop_oldest(), 0);
    }
}
