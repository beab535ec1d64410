//! The commands of the REPL: names, help, parsing.

/// The enum and the table of commands from one list: name, arguments, what it does.
macro_rules! commands {
    ($($command:ident, $name:literal, $arguments:literal, $what:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command { $($command),* }

        pub const COMMANDS: &[(&str, &str, &str, Command)] = &[$(($name, $arguments, $what, Command::$command)),*];
    };
}

commands! {
    Help, "/help", "", "this list";
    System, "/system", "[TEXT]", "show or set the system prompt (\"\" for none)";
    Clear, "/clear", "", "forget the talk, keep the system prompt";
    Retry, "/retry", "", "answer the last message again, with another seed";
    Other, "/other", "[N]", "after /retry: show another one of the answers, and go on with it";
    Undo, "/undo", "", "take the last message and its answer back";
    Edit, "/edit", "[new]", "change the last message in $EDITOR and ask again, or write a new one";
    File, "/file", "PATH [QUESTION]", "put a file before the question, or before the next message";
    Copy, "/copy", "", "put the last answer into the clipboard";
    Thoughts, "/thoughts", "", "what the model thought before its last answer";
    Set, "/set", "[NAME VALUE]", "change a setting; /show lists them";
    Show, "/show", "", "the model and the settings";
    Stats, "/stats", "", "what the last answer cost";
    Model, "/model", "[NAME]", "show the model, or go on with another one";
    Draft, "/draft", "[auto|off|MODEL]", "show or choose the draft model";
    Save, "/save", "[NAME]", "name this chat (it is kept as it goes)";
    Load, "/load", "[NAME]", "go on with another chat, or list them";
    Export, "/export", "[FILE]", "write the talk to a file: .md, or .json";
    Quit, "/quit", "", "leave (Ctrl-D does too)";
}

/// A line that begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub struct Slash<'a> {
    pub name: &'a str,
    /// None where nothing is called so.
    pub command: Option<Command>,
    pub argument: Option<&'a str>,
}

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
    let known = match name {
        "/?" => "/help",
        "/exit" | "/bye" => "/quit",
        name => name,
    };
    let command = COMMANDS.iter().find(|(name, ..)| *name == known).map(|(.., command)| *command);
    let argument = Some(rest.trim()).filter(|rest| !rest.is_empty());
    Some(Slash { name, command, argument })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_paths_and_text() {
        let read = |line| parse(line).map(|own| (own.command, own.argument));
        assert_eq!(read("/set temperature 0.5"), Some((Some(Command::Set), Some("temperature 0.5"))));
        assert_eq!(read("  /? "), Some((Some(Command::Help), None)));
        assert_eq!(read("/frob x"), Some((None, Some("x"))));
        assert_eq!(parse("/etc/hosts is what?"), None);
        assert_eq!(parse("/"), None);
        assert_eq!(parse("what is /help"), None);
        assert_eq!(parse("/clear\nthe table"), None);
    }
}
