//! Progress of an export or import: a bar on a terminal, periodic lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use windlass_store::{MigrationEvent, MigrationStep};

/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[2K";
/// Intervals at which the bar is drawn and at which a line is written.
const BAR: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(5);
/// Width of the bar in characters.
const WIDTH: u64 = 24;

/// Progress output on standard error during a migration.
pub struct MigrationProgress {
    quiet: bool,
    terminal: bool,
    /// Current step, its start time and the amount that was already done then.
    step: Option<(MigrationStep, Instant, u64)>,
    said: Instant,
    drawn: bool,
}

impl MigrationProgress {
    pub fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { quiet, terminal, step: None, said: Instant::now(), drawn: false }
    }

    /// Shows an event, unless the last output is too recent.
    pub fn update(&mut self, news: MigrationEvent) {
        if self.quiet {
            return;
        }
        match news {
            MigrationEvent::Note(note) => {
                self.clear();
                eprintln!("windlass: {note}");
            }
            MigrationEvent::Progress { step, done, total } => self.progress(step, done, total),
        }
    }

    /// Clears the progress bar from the terminal.
    pub fn end(&mut self) {
        self.clear();
    }

    fn progress(&mut self, step: MigrationStep, done: u64, total: u64) {
        let now = Instant::now();
        let (begun, before) = match self.step {
            Some((current, begun, before)) if current == step => (begun, before),
            _ => {
                self.step = Some((step, now, done));
                (now, done)
            }
        };
        let pause = if self.terminal { BAR } else { LINE };
        if now.duration_since(self.said) < pause {
            return;
        }
        self.said = now;
        let state = StepProgress { step, done, total, since: now.duration_since(begun), before };
        if self.terminal {
            eprint!("{CLEAR}{} {}", state.render_bar(), state.text());
            let _ = std::io::stderr().flush();
            self.drawn = true;
        } else {
            eprintln!("windlass: {}", state.text());
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            eprint!("{CLEAR}");
            let _ = std::io::stderr().flush();
        }
    }
}

struct StepProgress {
    step: MigrationStep,
    done: u64,
    total: u64,
    since: Duration,
    before: u64,
}

impl StepProgress {
    fn render_bar(&self) -> String {
        let full = (self.done * WIDTH).checked_div(self.total).unwrap_or(WIDTH).min(WIDTH);
        let part = |sign: &str, length: u64| sign.repeat(usize::try_from(length).unwrap_or(0));
        format!("[{}{}]", part("#", full), part(".", WIDTH - full))
    }

    fn text(&self) -> String {
        let (doing, unit, per) = match self.step {
            MigrationStep::Exporting => ("exporting", "objects", 1),
            MigrationStep::CheckingFile => ("verifying the file", "MiB", 1 << 20),
            MigrationStep::Importing => ("importing", "objects", 1),
            MigrationStep::CheckingStore => ("verifying the store", "objects", 1),
        };
        let (done, total) = (self.done / per, self.total / per);
        let percent = (self.done * 100).checked_div(self.total).unwrap_or(100);
        let mut text = format!("{doing}: {done} of {total} {unit} ({percent} %)");
        let fresh = (self.done - self.before.min(self.done)) as f64;
        let rate = fresh / self.since.as_secs_f64();
        if self.since >= Duration::from_secs(1) && rate > 0.0 {
            let left = (self.total - self.done.min(self.total)) as f64 / rate;
            text += &format!(", {:.0} {unit}/s, {left:.0} s left", rate / per as f64);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_progress_and_remaining_time() {
        let state = |step, done, total, seconds| {
            let since = Duration::from_secs(seconds);
            StepProgress { step, done, total, since, before: 1_000 }
        };
        for (state, bar, text) in [
            (
                state(MigrationStep::Importing, 3_000, 9_000, 2),
                "[########................]",
                "importing: 3000 of 9000 objects (33 %), 1000 objects/s, 6 s left",
            ),
            (
                state(MigrationStep::CheckingFile, 1_000, 4 << 20, 0),
                "[........................]",
                "verifying the file: 0 of 4 MiB (0 %)",
            ),
            (
                state(MigrationStep::Exporting, 0, 0, 9),
                "[########################]",
                "exporting: 0 of 0 objects (100 %)",
            ),
            (
                state(MigrationStep::CheckingStore, 9_000, 9_000, 8),
                "[########################]",
                "verifying the store: 9000 of 9000 objects (100 %), 1000 objects/s, 0 s left",
            ),
        ] {
            assert_eq!((state.render_bar().as_str(), state.text().as_str()), (bar, text));
        }
    }
}
