//! Progress of waiting: an animated line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};

use crate::commands::terminal::columns;

const FRAMES: [&str; 4] = ["|", "/", "-", "\\"];
/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";

/// Progress messages on standard error while the command waits.
pub struct WaitProgress {
    terminal: bool,
    said: String,
    frame: usize,
}

impl WaitProgress {
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), said: String::new(), frame: 0 }
    }

    /// Reports what the command waits for, unless it was reported last.
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

    /// Prints a line that is not overwritten later.
    pub fn print_note(&mut self, text: &str) {
        self.clear();
        eprintln!("windlass: {text}");
        self.draw();
    }

    /// Advances the animation on a terminal.
    pub fn tick(&mut self) {
        self.frame = self.frame.wrapping_add(1);
        self.draw();
    }

    fn draw(&self) {
        if self.terminal && !self.said.is_empty() {
            let frame = FRAMES.get(self.frame % FRAMES.len()).copied().unwrap_or_default();
            let mut stderr = std::io::stderr().lock();
            // A wrapped line could not be cleared.
            let room = columns(std::io::stderr()).saturating_sub(3);
            let said = self.said.chars().take(room).collect::<String>();
            // Progress is optional, so write errors are ignored.
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

impl Drop for WaitProgress {
    fn drop(&mut self) {
        self.clear();
    }
}
