//! What stands for comments, texts and brackets in the languages that models write.

/// What a language calls comments and texts.
pub(super) struct Syntax {
    pub(super) line_comment: &'static str,
    pub(super) block_comments: bool,
    /// Quotation marks of texts that may span lines; the longer first.
    pub(super) spanning: &'static [&'static str],
    /// Quotation marks of texts that end with their line.
    pub(super) short: &'static [char],
    pub(super) brackets: &'static str,
}

const ALL: &str = "()[]{}";

/// The name of a language whatever its tag: `py`, `{.python}` and `python3` are Python.
pub(super) fn language(tag: &str) -> String {
    let name: String = tag
        .trim_start_matches(['{', '.'])
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || "+#".contains(*c))
        .collect();
    match name.to_ascii_lowercase().as_str() {
        "py" | "python3" | "python2" => "python".to_owned(),
        "rs" => "rust".to_owned(),
        "js" | "jsx" | "node" => "javascript".to_owned(),
        "ts" | "tsx" => "typescript".to_owned(),
        "bash" | "shell" | "zsh" | "console" => "sh".to_owned(),
        "c++" | "cc" | "cxx" | "hpp" => "cpp".to_owned(),
        "golang" => "go".to_owned(),
        other => other.to_owned(),
    }
}

/// None for what is no code, or has no brackets to match.
pub(super) fn syntax(language: &str) -> Option<Syntax> {
    let c = Syntax { line_comment: "//", block_comments: true, spanning: &["\"\"\""], short: &['"'], brackets: ALL };
    Some(match language {
        "text" | "txt" | "plaintext" | "output" | "markdown" | "md" | "html" | "xml" | "diff" | "mermaid" | "latex" => {
            return None;
        }
        "python" => {
            Syntax { line_comment: "#", block_comments: false, spanning: &["\"\"\"", "'''"], short: &['"', '\''], ..c }
        }
        "ruby" | "perl" | "r" | "yaml" | "yml" | "toml" | "elixir" | "nim" | "makefile" | "dockerfile" => {
            Syntax { line_comment: "#", block_comments: false, short: &['"', '\''], ..c }
        }
        // The arms of `case` close brackets that they never opened.
        "sh" => {
            Syntax { line_comment: "#", block_comments: false, spanning: &["\"", "'"], short: &[], brackets: "[]{}" }
        }
        "javascript" | "typescript" => Syntax { spanning: &["`"], short: &['"', '\''], ..c },
        "go" => Syntax { spanning: &["`"], ..c },
        "rust" => Syntax { spanning: &["\""], short: &[], ..c },
        "sql" => Syntax { line_comment: "--", spanning: &["'"], ..c },
        "lua" | "haskell" => Syntax { line_comment: "--", block_comments: false, ..c },
        _ => c,
    })
}
