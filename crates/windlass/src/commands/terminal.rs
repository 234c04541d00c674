//! The terminal of the user: its width, and questions.

use std::io::{BufRead as _, IsTerminal as _};
use std::os::fd::AsFd;

use anyhow::{Result, bail};

/// Width if the output is no terminal or does not say.
const DEFAULT_COLUMNS: usize = 80;

/// Returns the width of a terminal in columns.
pub fn columns(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    columns.unwrap_or(DEFAULT_COLUMNS)
}

/// Asks for confirmation on the terminal, unless `yes` is set.
pub fn confirm(question: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("confirmation needs a terminal; add --yes");
    }
    eprint!("{question}? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => bail!("not confirmed"),
    }
}
