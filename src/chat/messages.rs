//! Conversations as `OpenAI`'s API writes them, and requests of its batch files.

use serde_json::{Map, Value};

use super::conversation::{Conversation, Message, Role};

/// A prompt with what it asks for itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub conversation: Conversation,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<usize>,
    pub min_p: Option<f32>,
    pub repeat_penalty: Option<f32>,
    pub seed: Option<u64>,
    pub max_tokens: Option<usize>,
    pub stops: Vec<String>,
    pub logprobs: Option<usize>,
    /// What the answer is kept to, whatever others are.
    pub shape: Option<AskedShape>,
}

/// The `response_format` of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum AskedShape {
    Text,
    /// A JSON Schema.
    Json(Value),
}

impl Asked {
    /// A text.
    pub fn text(text: &str) -> Self {
        let mut conversation = Conversation::default();
        conversation.push(Message::new(Role::User, text));
        Self { conversation, ..Self::default() }
    }
}

/// As `OpenAI`'s API has it.
const MOST_LOGPROBS: usize = 20;

/// Fields that say nothing that matters here.
const WITHOUT_EFFECT: [&str; 8] =
    ["model", "user", "metadata", "store", "stream", "stream_options", "service_tier", "parallel_tool_calls"];

/// A conversation from an array of messages, or an object that has one.
///
/// # Errors
/// What is wrong with it, in words.
pub fn conversation(value: &Value) -> Result<Conversation, String> {
    let list = value.get("messages").unwrap_or(value);
    let list =
        list.as_array().ok_or("an array of messages is needed, like [{\"role\": \"user\", \"content\": \"...\"}]")?;
    let mut talk = Conversation::default();
    for (number, message) in list.iter().enumerate() {
        let number = number + 1;
        let role = message["role"].as_str().ok_or_else(|| format!("message {number} has no role"))?;
        let text = content(&message["content"]).map_err(|what| format!("message {number} {what}"))?;
        match role {
            "system" | "developer" if number == 1 => talk.system = Some(text),
            "system" | "developer" => return Err(format!("message {number}: only the first one can be the system's")),
            "user" => talk.push(Message::new(Role::User, text)),
            "assistant" => {
                let reasoning = message["reasoning_content"].as_str().map(str::to_owned);
                talk.push(Message { role: Role::Assistant, content: text, reasoning });
            }
            other => return Err(format!("message {number} is from '{other}': system, user or assistant is needed")),
        }
    }
    match talk.messages().last() {
        Some(last) if last.role == Role::User && last.content.trim().is_empty() => {
            Err("the last message is empty".into())
        }
        Some(last) if last.role == Role::User => Ok(talk),
        Some(_) => Err("the last message must be the user's (--prefill begins an answer)".into()),
        None => Err("there is no message".into()),
    }
}

/// Text, or an array of parts that are.
fn content(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let text = |part: &Value| {
                let text = (part["type"] == "text").then(|| part["text"].as_str()).flatten();
                text.map(str::to_owned).ok_or_else(|| "has a part that is not text".to_owned())
            };
            parts.iter().map(text).collect::<Result<_, _>>()?
        }
        _ => return Err("has no content".into()),
    };
    if text.contains('\0') { Err("has a NUL character".into()) } else { Ok(text) }
}

/// A line of a file of requests.
///
/// # Errors
/// When it is no object.
pub fn object(line: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("this is no JSON: {error}"))?;
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err("an object is needed, like {\"prompt\": \"...\"}".into()),
    }
}

/// What the answer to a request is handed back with.
pub fn id(request: &Map<String, Value>) -> Option<String> {
    let id = ["custom_id", "id"].iter().find_map(|name| request.get(*name).filter(|id| !id.is_null()));
    id.map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned))
}

/// A request: `{"prompt": ...}`, `{"messages": ...}`, or `{"custom_id": ..., "body": ...}`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn request(fields: &Map<String, Value>) -> Result<Asked, String> {
    let body = match fields.get("body") {
        Some(Value::Object(body)) => {
            if let Some(url) =
                fields.get("url").and_then(Value::as_str).filter(|url| !url.ends_with("/chat/completions"))
            {
                return Err(format!("'{url}' is not answered here: only chat completions are"));
            }
            body
        }
        Some(_) => return Err("the body is no object".into()),
        None => fields,
    };
    let mut asked = Asked::default();
    match (body.get("prompt"), body.get("messages")) {
        (Some(Value::String(text)), None) if text.trim().is_empty() => return Err("the prompt is empty".into()),
        (Some(Value::String(text)), None) if text.contains('\0') => return Err("the prompt has a NUL character".into()),
        (Some(Value::String(text)), None) => asked = Asked::text(text),
        (None, Some(messages)) => asked.conversation = conversation(messages)?,
        (Some(_), None) => return Err("the prompt is no text".into()),
        (Some(_), Some(_)) => return Err("prompt and messages are both there".into()),
        (None, None) => return Err("there is neither a prompt nor messages".into()),
    }
    for (name, value) in body {
        asked.set(name, value)?;
    }
    Ok(asked)
}

impl Asked {
    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let bad = |what: &str| format!("{name}: {what} is needed, not {value}");
        let within = |low: f64, high: f64| {
            let number = value.as_f64().filter(|number| (low..=high).contains(number));
            number.map(|number| number as f32).ok_or_else(|| bad(&format!("a number from {low} to {high}")))
        };
        let whole = || value.as_u64().ok_or_else(|| bad("a whole number"));
        if value.is_null() {
            return Ok(());
        }
        match name {
            "prompt" | "messages" | "custom_id" | "id" | "method" | "url" => {}
            "system" => self.conversation.system = Some(value.as_str().ok_or_else(|| bad("a text"))?.to_owned()),
            "temperature" => self.temperature = Some(within(0.0, 10.0)?),
            "top_p" => self.top_p = Some(within(0.0, 1.0)?),
            "min_p" => self.min_p = Some(within(0.0, 1.0)?),
            "top_k" => self.top_k = Some(whole()? as usize),
            "seed" => self.seed = Some(whole()?),
            "repeat_penalty" => self.repeat_penalty = Some(within(0.1, 10.0)?),
            "max_tokens" | "max_completion_tokens" => {
                let most = whole().ok().filter(|most| *most > 0).ok_or_else(|| bad("a whole number from 1"))?;
                self.max_tokens = Some(most as usize);
            }
            "stop" => {
                let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| bad("a text, or several"));
                self.stops = match value {
                    Value::Array(texts) => texts.iter().map(text).collect::<Result<_, _>>()?,
                    one => vec![text(one)?],
                };
            }
            "response_format" => match value["type"].as_str() {
                Some("text") => self.shape = Some(AskedShape::Text),
                Some("json_object") => self.shape = Some(AskedShape::Json(serde_json::json!({ "type": "object" }))),
                Some("json_schema") => self.shape = Some(AskedShape::Json(value["json_schema"]["schema"].clone())),
                _ => return Err(bad("text, json_object or json_schema")),
            },
            "n" if value == 1 => {}
            "logprobs" if value == false => self.logprobs = None,
            "logprobs" if value == true => self.logprobs = self.logprobs.or(Some(0)),
            "top_logprobs" => {
                let most = whole().ok().filter(|most| *most <= MOST_LOGPROBS as u64);
                self.logprobs =
                    Some(most.ok_or_else(|| bad(&format!("a whole number up to {MOST_LOGPROBS}")))? as usize);
            }
            "frequency_penalty" | "presence_penalty" if value.as_f64() == Some(0.0) => {}
            name if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(format!("'{name}' is not known here")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conversations_are_read_as_they_are_written() {
        let talk = conversation(&json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "assistant", "content": "c", "reasoning_content": "so" },
            { "role": "user", "content": "d" },
        ]))
        .unwrap();
        let said: Vec<_> = talk.messages().iter().map(|own| (own.role, own.content.as_str())).collect();
        assert_eq!(talk.system.as_deref(), Some("Be brief."));
        assert_eq!(said, [(Role::User, "ab"), (Role::Assistant, "c"), (Role::User, "d")]);
        assert_eq!(talk.messages()[1].reasoning.as_deref(), Some("so"));
        for (value, problem) in [
            (json!("hi"), "an array of messages is needed"),
            (json!([]), "there is no message"),
            (json!([{ "content": "a" }]), "message 1 has no role"),
            (json!([{ "role": "tool", "content": "a" }]), "message 1 is from 'tool'"),
            (
                json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
                "message 1 has a part that is not text",
            ),
            (
                json!([{ "role": "user", "content": "a" }, { "role": "system", "content": "b" }]),
                "message 2: only the first",
            ),
            (json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]), "the last message"),
        ] {
            let said = conversation(&value).unwrap_err();
            assert!(said.starts_with(problem), "{said}");
        }
    }

    #[test]
    fn requests_bring_their_own_settings() {
        let request = |line: &str| object(line).and_then(|fields| request(&fields));
        assert_eq!(request("{\"prompt\": \"a\"}").unwrap(), Asked::text("a"));
        let batch = json!({
            "custom_id": "x-1", "method": "POST", "url": "/v1/chat/completions",
            "body": {
                "model": "gpt-4o", "messages": [{ "role": "user", "content": "hi" }], "temperature": 0, "top_p": 0.5,
                "seed": 7, "max_tokens": 5, "stop": ["a", "b"], "n": 1, "stream": false, "presence_penalty": 0,
                "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "object" } } },
            },
        });
        let asked = request(&batch.to_string()).unwrap();
        assert_eq!(id(&object(&batch.to_string()).unwrap()).as_deref(), Some("x-1"));
        assert_eq!(id(&object("{\"custom_id\": null, \"id\": 7}").unwrap()).as_deref(), Some("7"));
        assert_eq!((asked.temperature, asked.top_p), (Some(0.0), Some(0.5)));
        assert_eq!((asked.seed, asked.max_tokens, asked.stops.len()), (Some(7), Some(5), 2));
        assert_eq!(asked.shape, Some(AskedShape::Json(json!({ "type": "object" }))));
        assert_eq!(asked.conversation.messages().len(), 1);
        let logprobs = |fields: &str| request(&format!("{{\"prompt\": \"a\", {fields}}}")).unwrap().logprobs;
        assert_eq!(logprobs("\"logprobs\": true, \"top_logprobs\": 3"), Some(3));
        assert_eq!(logprobs("\"logprobs\": true"), Some(0));
        assert_eq!(logprobs("\"logprobs\": false"), None);
        for (line, problem) in [
            ("", "this is no JSON"),
            ("[1]", "an object is needed"),
            ("{}", "there is neither a prompt nor messages"),
            ("{\"prompt\": 1}", "the prompt is no text"),
            ("{\"prompt\": \" \"}", "the prompt is empty"),
            ("{\"prompt\": \"a\\u0000\"}", "the prompt has a NUL"),
            ("{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", "the last message is empty"),
            ("{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens: a whole number from 1 is needed, not 0"),
            ("{\"prompt\": \"a\", \"top_logprobs\": 21}", "top_logprobs: a whole number up to 20 is needed, not 21"),
            ("{\"prompt\": \"a\", \"messages\": []}", "prompt and messages are both there"),
            ("{\"prompt\": \"a\", \"temperature\": 11}", "temperature: a number from 0 to 10 is needed, not 11"),
            ("{\"prompt\": \"a\", \"tools\": []}", "'tools' is not known here"),
            ("{\"prompt\": \"a\", \"presence_penalty\": 1}", "'presence_penalty' is not known here"),
            ("{\"url\": \"/v1/embeddings\", \"body\": {}}", "'/v1/embeddings' is not answered here"),
        ] {
            let said = request(line).unwrap_err();
            assert!(said.starts_with(problem), "{line}: {said}");
        }
    }
}
