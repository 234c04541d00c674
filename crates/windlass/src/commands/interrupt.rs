//! The error of a command that the user interrupted.

use std::fmt;

/// Ends the process with exit code 130, as a shell reports a program that SIGINT ended. States what is left behind.
#[derive(Debug)]
pub struct InterruptedError(pub String);

impl fmt::Display for InterruptedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl std::error::Error for InterruptedError {}
