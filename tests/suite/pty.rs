//! A program in a pseudo-terminal, and the cells of its screen.

use std::io::{Read as _, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::common::Sandbox;

/// Longer than any step takes on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(10);

pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const UP: &str = "\x1b[A";

/// What the terminal has been told, as cells and as bytes.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

pub struct Pty {
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
    /// How many prompts there had been when a line or Ctrl-C was sent: the next prompt is a later one.
    answered: usize,
}

impl Pty {
    /// A command in a terminal of `rows` and `cols`, with the sandbox's environment and nothing else.
    pub fn command(sandbox: &Sandbox, (rows, cols): (u16, u16), argv: &[&str], env: &[(&str, &str)]) -> Self {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(argv[0]);
        command.args(&argv[1..]);
        command.cwd(sandbox.home.path());
        command.env_clear();
        for (name, value) in sandbox.environment() {
            command.env(name, value);
        }
        for (name, value) in env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        let mut output = pair.master.try_clone_reader().unwrap();
        let seen = Arc::new(Mutex::new(Seen { parser: vt100::Parser::new(rows, cols, 0), bytes: Vec::new() }));
        let told = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut seen = told.lock().unwrap();
                seen.parser.process(&buffer[..count]);
                seen.bytes.extend(&buffer[..count]);
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Self { master: pair.master, writer, child, seen, reader: Some(reader), answered: 0 }
    }

    /// `qchat run ARGS...` in 120 columns, at its first prompt.
    pub fn run(sandbox: &Sandbox, args: &[&str]) -> Self {
        let pty = Self::command(sandbox, (40, 120), &[&[env!("CARGO_BIN_EXE_qchat"), "run"], args].concat(), &[]);
        pty.at_prompt();
        pty
    }

    /// Types a line and waits for these rows behind it, and a prompt.
    pub fn says(&mut self, line: &str, rows: &[&str]) {
        self.line(line);
        let typed = format!(">>> {line}");
        self.ends_with(&[&[typed.as_str()], rows, &[">>>"]].concat());
    }

    /// `qchat run MODEL ARGS...` in 80 columns, at its first prompt.
    pub fn talk(sandbox: &Sandbox, model: &Path, args: &[&str]) -> Self {
        Self::talk_in(sandbox, (40, 80), model, args)
    }

    pub fn talk_in(sandbox: &Sandbox, size: (u16, u16), model: &Path, args: &[&str]) -> Self {
        let mut words = vec![env!("CARGO_BIN_EXE_qchat"), "run", model.to_str().unwrap()];
        words.extend(args);
        let pty = Self::command(sandbox, size, &words, &[]);
        pty.at_prompt();
        pty
    }

    pub fn send(&mut self, keys: &str) {
        if keys.contains(['\r', '\x03']) {
            self.answered = self.prompts();
        }
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Types a line.
    pub fn line(&mut self, text: &str) {
        self.send(&format!("{text}\r"));
    }

    /// SIGINT, as from `kill`.
    pub fn interrupt(&self) {
        Self::signal(self.pid(), "INT");
    }

    /// The program's process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Sends a signal by its name.
    pub fn signal(pid: u32, name: &str) {
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
        assert!(sent.unwrap().success(), "kill -{name} {pid}");
    }

    /// SIGKILL, as when the machine takes the memory back: nothing can be done about it.
    pub fn kill(mut self) {
        Self::signal(self.pid(), "KILL");
        let _ = self.child.wait();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        self.seen.lock().unwrap().parser.screen_mut().set_size(rows, cols);
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    /// The rows of the screen without what is blank at their ends, down to the last one that says something.
    pub fn rows(&self) -> Vec<String> {
        self.with_screen(|screen| screen.contents().lines().map(|row| row.trim_end().to_owned()).collect())
    }

    pub fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.seen.lock().unwrap().parser.screen())
    }

    /// Every byte so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap().bytes.clone()
    }

    /// Waits until the screen shows `text` somewhere.
    pub fn wait_for(&self, text: &str) {
        self.wait(&format!("{text:?}"), || self.rows().iter().any(|row| row.contains(text)));
    }

    /// How often the line editor has taken the terminal: what it switches on then tells a new prompt from an old one.
    fn prompts(&self) -> usize {
        self.seen.lock().unwrap().bytes.windows(8).filter(|bytes| bytes == b"\x1b[?2004h").count()
    }

    /// Waits until the last rows of the screen are these. An empty prompt there is one that came after what was sent.
    pub fn ends_with(&self, rows: &[&str]) {
        let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        self.wait(&format!("{rows:#?} at the end"), || {
            let is_new = rows.last().is_none_or(|row| row != ">>>") || self.prompts() > self.answered;
            is_new && self.rows().ends_with(&rows)
        });
    }

    /// Waits for an empty prompt on the last row.
    pub fn at_prompt(&self) {
        self.ends_with(&[">>>"]);
    }

    /// Waits until the line editor has let go of the terminal, so that Ctrl-C is a signal.
    pub fn at_work(&self) {
        self.wait("the line editor to let go", || !self.with_screen(vt100::Screen::bracketed_paste));
    }

    /// The exit code; all that was said is on the screen then.
    pub fn wait_exit(&mut self) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.reader.take().map(JoinHandle::join);
                return status.exit_code();
            }
            assert!(Instant::now() < deadline, "no end; the screen:\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ctrl-D at an empty prompt, and the end without a complaint.
    pub fn leave(mut self) {
        self.at_prompt();
        self.send(CTRL_D);
        assert_eq!(self.wait_exit(), 0, "the screen:\n{}", self.rows().join("\n"));
    }

    pub fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "waited for {what}; the screen:\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
