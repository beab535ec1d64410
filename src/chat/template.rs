//! From messages to one marked prompt, with the Jinja template that a model file brings or a name stands for.
//!
//! Rendering gives one string, so text of a special token inside a message must be told from the template's own: each such
//! occurrence gets a private-use character put inside it (the mark). Whoever tokenises splits the result at the special
//! tokens that are left, which are the template's, and takes the marks out.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::conversation::{Conversation, Message, Role};
use super::filters;
use crate::error::{Error, Result};
use minijinja::{Environment, context};
use serde_json::Value;

/// Instructions a template may take: far above any real one (tens a message), far below endless.
const FUEL: u64 = 20_000_000;

/// A rendered prompt. `mark` stands inside every special token's text that came from a message, and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub text: String,
    pub mark: char,
}

/// A chat template, ready to render.
pub struct Template {
    env: Environment<'static>,
    source: String,
    /// Texts that messages must not bring in as tokens.
    guarded: Vec<String>,
    bos: String,
    eos: String,
    has_system_role: OnceCell<bool>,
    /// What the template is told besides the messages, like `enable_thinking`.
    variables: BTreeMap<String, Value>,
}

/// The variables by which templates switch thoughts on and off (those of Qwen3 and of Granite).
pub const THINKING: [&str; 2] = ["enable_thinking", "thinking"];

/// Variables that qchat gives.
const OWN: [&str; 4] = ["messages", "add_generation_prompt", "bos_token", "eos_token"];

impl Template {
    /// Compiles `source`. `guarded` are the texts of the vocabulary's special tokens.
    ///
    /// # Errors
    /// When the source is not a Jinja template that can be compiled.
    pub fn new(source: &str, guarded: Vec<String>, bos: &str, eos: &str) -> Result<Self> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_fuel(Some(FUEL));
        filters::install(&mut env);
        env.add_template_owned("chat", filters::without_generation_tags(source)).map_err(|error| broken(&error))?;
        let guarded = guarded.into_iter().filter(|text| text.chars().nth(1).is_some()).collect();
        let (bos, eos) = (bos.to_owned(), eos.to_owned());
        Ok(Self {
            env,
            source: source.to_owned(),
            guarded,
            bos,
            eos,
            has_system_role: OnceCell::new(),
            variables: BTreeMap::new(),
        })
    }

    /// Tells the template something; null takes it back.
    ///
    /// # Errors
    /// When qchat itself says what it is.
    pub fn set_variable(&mut self, name: &str, value: Value) -> Result<()> {
        if OWN.contains(&name) {
            return Err(Error::usage(format!("the template variable {name} is made of the conversation"))
                .hint("take another name, like enable_thinking"));
        }
        match value {
            Value::Null => self.variables.remove(name),
            value => self.variables.insert(name.to_owned(), value),
        };
        self.has_system_role = OnceCell::new();
        Ok(())
    }

    pub fn variable(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// Renders a conversation up to where the assistant speaks next.
    ///
    /// # Errors
    /// When the template refuses the conversation, or runs without end.
    pub fn render(&self, conversation: &Conversation) -> Result<Marked> {
        self.render_messages(&conversation.for_template(self.has_system_role(conversation)))
    }

    fn render_messages(&self, messages: &[Message]) -> Result<Marked> {
        let mark = self.unused_mark(messages)?;
        let messages: Vec<Message> = messages.iter().map(|message| self.marked(message, mark)).collect();
        let mut said = self.variables.clone();
        said.values_mut().for_each(|value| self.mark_value(value, mark));
        let variables = context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => self.bos,
            eos_token => self.eos,
            ..minijinja::Value::from_serialize(&said)
        };
        let text = self.env.get_template("chat").and_then(|template| template.render(variables));
        Ok(Marked { text: text.map_err(|error| broken(&error))?, mark })
    }

    /// Whether a system message leaves a trace: a template without the role raises an exception or drops it.
    fn has_system_role(&self, conversation: &Conversation) -> bool {
        if conversation.system.is_none() {
            return true;
        }
        *self.has_system_role.get_or_init(|| {
            let probe = [Message::new(Role::System, "qchat-probe"), Message::new(Role::User, "hello")];
            self.render_messages(&probe).is_ok_and(|rendered| rendered.text.contains("qchat-probe"))
        })
    }

    fn marked(&self, message: &Message, mark: char) -> Message {
        Message {
            role: message.role,
            content: mark_specials(&message.content, &self.guarded, mark),
            reasoning: message.reasoning.as_ref().map(|text| mark_specials(text, &self.guarded, mark)),
        }
    }

    fn mark_value(&self, value: &mut Value, mark: char) {
        match value {
            Value::String(text) => *text = mark_specials(text, &self.guarded, mark),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mark_value(item, mark)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.mark_value(field, mark)),
            _ => {}
        }
    }

    /// A private-use character that stands nowhere in what will be rendered.
    fn unused_mark(&self, messages: &[Message]) -> Result<char> {
        let variables = serde_json::to_string(&self.variables).unwrap_or_default();
        let used = |c: char| {
            let in_message = |m: &Message| m.content.contains(c) || m.reasoning.as_ref().is_some_and(|r| r.contains(c));
            self.source.contains(c)
                || variables.contains(c)
                || messages.iter().any(in_message)
                || self.guarded.iter().any(|g| g.contains(c))
        };
        let free = ('\u{e000}'..='\u{f8ff}').find(|c| !used(*c));
        free.ok_or_else(|| {
            Error::failed("the messages use every private-use character, none is left to mark special tokens")
        })
    }
}

/// Puts `mark` behind the first character of every occurrence of a guarded text, overlapping ones too.
fn mark_specials(text: &str, guarded: &[String], mark: char) -> String {
    let first_chars: std::collections::BTreeSet<char> = guarded.iter().filter_map(|text| text.chars().next()).collect();
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        out.push(c);
        if first_chars.contains(&c) && guarded.iter().any(|special| text[at..].starts_with(special.as_str())) {
            out.push(mark);
        }
    }
    out
}

fn broken(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let what = match error.kind() {
        minijinja::ErrorKind::OutOfFuel => "it does not end".to_owned(),
        _ => error.detail().map_or_else(|| error.to_string(), str::to_owned),
    };
    Error::model(format!("the model's chat template cannot be used{line}: {what}"))
        .hint("name another one in models.toml (template = \"chatml\"), or use --raw")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> Template {
        let guarded = ["<|im_start|>", "<|im_end|>", "x"].map(str::to_owned).to_vec();
        Template::new(source, guarded, "<s>", "</s>").unwrap()
    }

    fn user(text: &str) -> Conversation {
        let mut talk = Conversation::default();
        talk.push(Message::new(Role::User, text));
        talk
    }

    #[test]
    fn special_text_in_a_message_is_marked() {
        let echo = template("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>");
        let prompt = echo.render(&user("a<|im_end|>b<|im_<|im_end|>end|>")).unwrap();
        assert_eq!(prompt.text, "<s>a<\u{e000}|im_end|>b<|im_<\u{e000}|im_end|>end|><|im_end|>");
        // A message that uses the first mark itself gets another one.
        let prompt = echo.render(&user("\u{e000}<|im_end|>")).unwrap();
        assert_eq!((prompt.mark, prompt.text.as_str()), ('\u{e001}', "<s>\u{e000}<\u{e001}|im_end|><|im_end|>"));
    }

    #[test]
    fn variables_are_told_and_cannot_become_tokens() {
        let source = "{{ enable_thinking is defined and enable_thinking is false }} {{ tone }} {{ list[0].a if list }}";
        let mut echo = template(source);
        assert_eq!(echo.render(&user("")).unwrap().text, "False  ");
        echo.set_variable("enable_thinking", false.into()).unwrap();
        echo.set_variable("tone", "a<|im_end|>".into()).unwrap();
        echo.set_variable("list", serde_json::json!([{ "a": "<|im_end|>" }])).unwrap();
        assert_eq!(echo.render(&user("")).unwrap().text, "True a<\u{e000}|im_end|> <\u{e000}|im_end|>");
        assert!(echo.set_variable("messages", Value::Null).is_err());
    }

    #[test]
    fn a_template_that_never_ends_is_an_error() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        let error = template(loops).render(&user("hi")).unwrap_err();
        assert!(error.to_string().contains("it does not end"), "{error}");
    }

    #[test]
    fn a_broken_template_is_an_error_of_one_line() {
        let error = Template::new("{% if %}", vec![], "", "").err().unwrap();
        assert!(error.to_string().starts_with("the model's chat template cannot be used (line 1)"), "{error}");
        let error = template("{{ raise_exception('roles must alternate') }}").render(&user("hi")).unwrap_err();
        assert!(error.to_string().contains("roles must alternate"), "{error}");
    }

    #[test]
    fn a_missing_system_role_is_noticed() {
        let mut talk = user("hi");
        talk.system = Some("Be brief.".into());
        let all = template("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
        assert_eq!(all.render(&talk).unwrap().text, "[system]Be brief.[user]hi");
        let raises = template(
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}",
        );
        assert_eq!(raises.render(&talk).unwrap().text, "Be brief.\n\nhi");
        let drops = template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
        assert_eq!(drops.render(&talk).unwrap().text, "Be brief.\n\nhi");
    }

    #[test]
    fn what_templates_call_is_there() {
        let source = "{% generation %}{{ {'a': [1, 'ü<'], 'b': none} | tojson }}{% endgeneration %}\
            {%- set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% break %}{% endfor %}{{ ns.n }}\
            {{ ' x '.strip() }}{{ 'a-b'.split('-')[-1] }}{{ 'Ab'.startswith('A') }}{{ messages[::-1][0].content[:2] }}\
            {{ strftime_now('%Y') | length }}{{ missing is defined }}";
        let prompt = template(source).render(&user("hello")).unwrap();
        assert_eq!(prompt.text, "{\"a\": [1, \"ü<\"], \"b\": null}1xbTruehe4False");
    }
}
