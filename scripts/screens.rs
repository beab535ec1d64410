//! The README's pictures of the terminal, from real runs: a shell in a pseudo-terminal, what somebody types there, and the
//! cells of its screen as SVG. `scripts/screens` builds and runs this.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use vt100::{Cell, Color, Parser, Screen};

const MODEL: &str = "qwen2.5-coder-1.5b";
const QUESTION: &str = "Python: count the words in a file. Short code and two notes with headings.";

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const QCHAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/release/qchat");
const COLS: u16 = 80;
/// More than any picture needs: nothing may scroll away.
const ROWS: u16 = 100;

const SHELL: &str = "$";
const TALK: &str = ">>>";

fn main() -> Result<()> {
    let found = Command::new(QCHAT).args(["show", MODEL]).output().context(QCHAT)?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr).trim_end());

    let mut terminal = Terminal::new()?;
    terminal.line("qchat", SHELL)?;
    terminal.save("first-run")?;

    let mut terminal = Terminal::new()?;
    // The likeliest tokens, one row a step, nothing from a cache: the same words each time on the same machine and build.
    terminal.line(&format!("qchat run {MODEL} --temp 0 --seed 1 --draft off --private"), TALK)?;
    terminal.line(QUESTION, TALK)?;
    terminal.line("/stats", TALK)?;
    terminal.save("talk")
}

struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    output: Box<dyn Read + Send>,
    parser: Parser,
}

impl Terminal {
    /// A shell at its first prompt, which finds the qchat that was built here.
    fn new() -> Result<Self> {
        let size = PtySize { rows: ROWS, cols: COLS, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size)?;
        let mut shell = CommandBuilder::new("/bin/sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{ROOT}/target/release:{path}"));
        shell.env("PS1", format!("{SHELL} "));
        shell.env("TERM", "xterm-256color");
        for name in ["ENV", "NO_COLOR"] {
            shell.env_remove(name);
        }
        let child = pair.slave.spawn_command(shell)?;
        let (input, output) = (pair.master.take_writer()?, pair.master.try_clone_reader()?);
        let mut terminal = Self { child, input, output, parser: Parser::new(ROWS, COLS, 0) };
        terminal.read_until(|last| last == SHELL)?;
        Ok(terminal)
    }

    /// Types a line, once the terminal shows it presses Enter, and waits for the prompt behind what is answered.
    fn line(&mut self, text: &str, prompt: &str) -> Result<()> {
        self.input.write_all(text.as_bytes())?;
        self.read_until(|last| last.ends_with(text))?;
        self.input.write_all(b"\r")?;
        self.read_until(|last| last == SHELL || last == TALK)?;
        ensure!(last_row(self.parser.screen()) == prompt, "after {text:?}:\n{}", self.parser.screen().contents());
        Ok(())
    }

    /// Reads what the terminal is told until its last row that says something is right.
    fn read_until(&mut self, right: impl Fn(&str) -> bool) -> Result<()> {
        let mut buffer = [0; 4096];
        while !right(&last_row(self.parser.screen())) {
            let count = self.output.read(&mut buffer)?;
            ensure!(count > 0, "the shell has ended:\n{}", self.parser.screen().contents());
            self.parser.process(&buffer[..count]);
        }
        Ok(())
    }

    fn save(&self, name: &str) -> Result<()> {
        let path = Path::new(ROOT).join(format!("scripts/pictures/{name}.svg"));
        std::fs::write(&path, picture(self.parser.screen())).with_context(|| path.display().to_string())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_row(screen: &Screen) -> String {
    screen.contents().trim_end().rsplit('\n').next().unwrap_or_default().to_owned()
}

/// A cell in pixels, half of a wide one: 15 pixels of a font whose letters are 0.6 em wide.
const CELL: (u16, u16) = (9, 20);
const BASELINE: u16 = 15;
const MARGIN: u16 = 18;
const FONTS: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const BACKGROUND: &str = "#161b22";
const TEXT: &str = "#d5dce3";
/// Black, red, green, yellow, blue, magenta, cyan, white; then the same bright.
const PALETTE: [[&str; 8]; 2] = [
    ["#5c6672", "#ff7b72", "#4cc261", "#d9a334", "#6cb0ff", "#c297ff", "#45cbd4", "#b6c0ca"],
    ["#7d8894", "#ffa198", "#6bdc82", "#ecc258", "#8fc7ff", "#d9b5ff", "#6bdfe6", "#ffffff"],
];

/// Cells of one row that look the same, from one column to before another.
struct Run {
    from: u16,
    end: u16,
    look: String,
    wide: bool,
    text: String,
}

fn runs(screen: &Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let cells = (0..COLS).filter_map(|col| Some((col, screen.cell(row, col)?)));
    for (from, cell) in cells.filter(|(_, cell)| cell.has_contents() && (cell.underline() || cell.contents() != " ")) {
        let (look, wide, text) = (look(cell), cell.is_wide(), cell.contents());
        let end = from + 1 + u16::from(wide);
        // A blank between two words belongs to them; of several SVG would show one.
        let reach = u16::from(!wide && !cell.underline());
        match runs.last_mut() {
            Some(run) if run.look == look && run.wide == wide && from <= run.end + reach => {
                run.text.push_str(if from > run.end { " " } else { "" });
                run.text.push_str(text);
                run.end = end;
            }
            _ => runs.push(Run { from, end, look, wide, text: text.to_owned() }),
        }
    }
    runs
}

/// As attributes of SVG. qchat sets no backgrounds and no colours beyond the sixteen.
fn look(cell: &Cell) -> String {
    let mut look = match cell.fgcolor() {
        Color::Idx(index @ ..16) => format!(r#" fill="{}""#, PALETTE[usize::from(index / 8)][usize::from(index % 8)]),
        _ => String::new(),
    };
    for (is_set, attribute) in [
        (cell.bold(), r#" font-weight="bold""#),
        (cell.dim(), r#" opacity=".62""#),
        (cell.italic(), r#" font-style="italic""#),
        (cell.underline(), r#" text-decoration="underline""#),
    ] {
        look.push_str(if is_set { attribute } else { "" });
    }
    look
}

/// The rows down to the cursor. Every run says how long it is, so that columns stand below each other in any font.
fn picture(screen: &Screen) -> String {
    let ((last, cursor), (wide, high)) = (screen.cursor_position(), CELL);
    let (width, height) = (2 * MARGIN + COLS * wide, 2 * MARGIN + (last + 1) * high);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" "#
    );
    let _ = writeln!(out, r#"fill="{TEXT}" font-family="{FONTS}" font-size="15">"#);
    let _ = writeln!(out, r#"<rect width="{width}" height="{height}" rx="10" fill="{BACKGROUND}"/>"#);
    for row in 0..=last {
        for Run { from, end, look, text, .. } in runs(screen, row) {
            let (x, y, length) = (MARGIN + from * wide, MARGIN + row * high + BASELINE, (end - from) * wide);
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let place = format!(r#"x="{x}" y="{y}" textLength="{length}" lengthAdjust="spacingAndGlyphs""#);
            let _ = writeln!(out, "<text {place}{look}>{text}</text>");
        }
    }
    let (x, y) = (MARGIN + cursor * wide, MARGIN + last * high);
    let _ = writeln!(out, r#"<rect x="{x}" y="{y}" width="{wide}" height="{high}" opacity=".8"/>"#);
    out + "</svg>\n"
}
