//! Colours code line by line. The theme is written in the terminal's own colours.

use std::sync::LazyLock;

use syntect::easy::HighlightLines;
use syntect::highlighting::{FontStyle, Theme};
use syntect::parsing::SyntaxSet;
use two_face::theme::EmbeddedThemeName;

use super::style::Style;

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);
static THEME: LazyLock<Theme> = LazyLock::new(|| two_face::theme::extra().get(EmbeddedThemeName::Ansi).clone());

/// How many bytes of a line look how.
pub(super) type Span = (usize, Style);

/// A line that goes on and on is data; colouring it would take longer than reading it.
const LONGEST_LINE: usize = 2000;

/// The state at the end of the lines so far; none for a language that is not known.
pub(super) struct Highlighter(Option<HighlightLines<'static>>);

impl Highlighter {
    /// For what stands behind the fence.
    pub(super) fn new(info: &str) -> Self {
        let token = info.split([' ', ',', '{', '}', ':']).find(|word| !word.is_empty()).unwrap_or_default();
        let token = match token.trim_start_matches('.') {
            "" | "text" | "txt" | "plain" | "plaintext" => return Self(None),
            "jsx" => "js",
            "csharp" => "cs",
            "golang" => "go",
            "console" | "shell" | "shell-session" | "zsh" => "sh",
            token => token,
        };
        Self(SYNTAXES.find_syntax_by_token(token).map(|syntax| HighlightLines::new(syntax, &THEME)))
    }

    /// Colours the next line, given with its end.
    pub(super) fn line(&mut self, line: &str) -> Vec<Span> {
        let plain = || vec![(line.len(), Style::PLAIN)];
        let Some(lines) = self.0.as_mut().filter(|_| line.len() <= LONGEST_LINE) else {
            return plain();
        };
        let spans = lines.highlight_line(line, &SYNTAXES);
        spans.map_or_else(|_| plain(), |spans| spans.iter().map(|(style, text)| (text.len(), of(*style))).collect())
    }
}

impl std::fmt::Debug for Highlighter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Highlighter").field(&self.0.is_some()).finish()
    }
}

/// The theme says in the alpha channel what a colour is: 0 is one of the sixteen, by its index in red; 1 is the
/// terminal's own.
fn of(style: syntect::highlighting::Style) -> Style {
    let colour = style.foreground;
    let mut look = if colour.a == 0 && colour.r < 16 { Style::coloured(colour.r) } else { Style::PLAIN };
    let fonts =
        [(FontStyle::BOLD, Style::BOLD), (FontStyle::ITALIC, Style::ITALIC), (FontStyle::UNDERLINE, Style::UNDERLINED)];
    for (font, attribute) in fonts {
        if style.font_style.contains(font) {
            look = look.with(attribute);
        }
    }
    look
}
