//! The commands of the REPL: names, help, parsing.

/// A line that begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub enum Slash<'a> {
    Help,
    /// Show the system prompt, or set it.
    System(Option<&'a str>),
    Clear,
    Retry,
    /// The next of several answers, or the one of this number.
    Other(Option<&'a str>),
    Undo,
    /// A message from the editor: the last one, or a new one.
    Edit(Option<&'a str>),
    /// A file before the next message, or with this one.
    File(Option<&'a str>),
    Copy,
    /// What the model thought before its last answer.
    Thoughts,
    /// A setting and its value.
    Set(Option<(&'a str, &'a str)>),
    Show,
    Stats,
    Model(Option<&'a str>),
    /// Name the chat, or say how it is named.
    Save(Option<&'a str>),
    /// Go on with another chat, or list them.
    Load(Option<&'a str>),
    /// Write the talk to a file.
    Export(Option<&'a str>),
    /// Show who drafts, or choose.
    Draft(Option<&'a str>),
    Quit,
    Unknown(&'a str),
}

/// Name, arguments, what it does.
pub const COMMANDS: [(&str, &str, &str); 19] = [
    ("/help", "", "this list"),
    ("/system", "[TEXT]", "show or set the system prompt (\"\" for none)"),
    ("/clear", "", "forget the talk, keep the system prompt"),
    ("/retry", "", "answer the last message again, with another seed"),
    ("/other", "[N]", "after /retry: show another one of the answers, and go on with it"),
    ("/undo", "", "take the last message and its answer back"),
    ("/edit", "[new]", "change the last message in $EDITOR and ask again, or write a new one"),
    ("/file", "PATH [QUESTION]", "put a file before the question, or before the next message"),
    ("/copy", "", "put the last answer into the clipboard"),
    ("/thoughts", "", "what the model thought before its last answer"),
    ("/set", "[NAME VALUE]", "change a setting; /show lists them"),
    ("/show", "", "the model and the settings"),
    ("/stats", "", "what the last answer cost"),
    ("/model", "[NAME]", "show the model, or go on with another one"),
    ("/draft", "[auto|off|MODEL]", "show or choose the draft model"),
    ("/save", "[NAME]", "name this chat (it is kept as it goes)"),
    ("/load", "[NAME]", "go on with another chat, or list them"),
    ("/export", "[FILE]", "write the talk to a file: .md, or .json"),
    ("/quit", "", "leave (Ctrl-D does too)"),
];

/// Parses a line, if it is a command. A path like `/etc/hosts is...` is not one.
pub fn parse(line: &str) -> Option<Slash<'_>> {
    let line = line.trim();
    // A pasted block is a message, whatever it begins with.
    if line.contains('\n') {
        return None;
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let word = name.strip_prefix('/')?;
    if word.is_empty() || !word.chars().all(|c| c.is_ascii_alphabetic() || c == '?') {
        return None;
    }
    let rest = rest.trim();
    let argument = (!rest.is_empty()).then_some(rest);
    Some(match word {
        "help" | "?" => Slash::Help,
        "system" => Slash::System(argument),
        "clear" => Slash::Clear,
        "retry" => Slash::Retry,
        "other" => Slash::Other(argument),
        "thoughts" => Slash::Thoughts,
        "undo" => Slash::Undo,
        "edit" => Slash::Edit(argument),
        "file" => Slash::File(argument),
        "copy" => Slash::Copy,
        "set" => Slash::Set(
            argument.map(|text| text.split_once(char::is_whitespace).map_or((text, ""), |(n, v)| (n, v.trim()))),
        ),
        "show" => Slash::Show,
        "stats" => Slash::Stats,
        "model" => Slash::Model(argument),
        "draft" => Slash::Draft(argument),
        "save" => Slash::Save(argument),
        "load" => Slash::Load(argument),
        "export" => Slash::Export(argument),
        "quit" | "exit" | "bye" => Slash::Quit,
        _ => Slash::Unknown(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_paths_and_text() {
        assert_eq!(parse("/set temperature 0.5"), Some(Slash::Set(Some(("temperature", "0.5")))));
        assert_eq!(parse("  /help "), Some(Slash::Help));
        assert_eq!(parse("/system"), Some(Slash::System(None)));
        assert_eq!(parse("/frob x"), Some(Slash::Unknown("/frob")));
        assert_eq!(parse("/etc/hosts is what?"), None);
        assert_eq!(parse("/"), None);
        assert_eq!(parse("what is /help"), None);
        assert_eq!(parse("/clear\nthe table"), None);
    }
}
