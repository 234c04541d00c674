//! Saying what is being waited for: a line that moves on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};

const FRAMES: [&str; 4] = ["|", "/", "-", "\\"];
/// To the beginning of the line, and away with what is on it.
const CLEAR: &str = "\r\x1b[2K";

/// What is said on standard error while something is waited for.
pub struct WaitProgress {
    terminal: bool,
    said: String,
    frame: usize,
}

impl WaitProgress {
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), said: String::new(), frame: 0 }
    }

    /// Says what is waited for now, once.
    pub fn report(&mut self, text: &str) {
        if self.said == text {
            return;
        }
        self.said = text.to_owned();
        if self.terminal {
            self.draw();
        } else {
            eprintln!("windlass: {text}");
        }
    }

    /// Says something that is to stay.
    pub fn print_note(&mut self, text: &str) {
        self.clear();
        eprintln!("windlass: {text}");
        self.draw();
    }

    /// Shows that there is still somebody waiting.
    pub fn tick(&mut self) {
        self.frame = self.frame.wrapping_add(1);
        self.draw();
    }

    fn draw(&self) {
        if self.terminal && !self.said.is_empty() {
            let frame = FRAMES.get(self.frame % FRAMES.len()).copied().unwrap_or_default();
            let mut stderr = std::io::stderr().lock();
            // A line that wraps could not be taken back.
            let room = columns().saturating_sub(3);
            let said = self.said.chars().take(room).collect::<String>();
            // Who cannot see it has lost nothing.
            let _ = write!(stderr, "{CLEAR}{frame} {said}");
            let _ = stderr.flush();
        }
    }

    fn clear(&self) {
        if self.terminal && !self.said.is_empty() {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "{CLEAR}");
            let _ = stderr.flush();
        }
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

impl Drop for WaitProgress {
    fn drop(&mut self) {
        self.clear();
    }
}
