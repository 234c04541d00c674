//! Passwords, which are never shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_pki::limits::MAX_PASSWORD_CHARACTERS;
use windlass_pki::{KeystoreError, KeystorePassword};
use zeroize::Zeroizing;

use windlass_runtime::durable::FileSystem;

/// A text that is not shown, and wiped when the last copy goes.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<Zeroizing<String>>);

/// Where a password comes from, and what it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Passphrase {
    /// It stands in the file of projections.
    Given(SecretText),
    /// It stands in a file of its own.
    File {
        /// The password file, as named in the projections file.
        path: PathBuf,
        /// What was found there, or why nothing was.
        found: Result<SecretText, String>,
    },
}

impl SecretText {
    /// Wraps a secret, which is then omitted from debug output.
    pub fn new(text: String) -> Self {
        Self(Arc::new(Zeroizing::new(text)))
    }

    /// As a password of a store.
    pub fn password(&self) -> Result<KeystorePassword, KeystoreError> {
        KeystorePassword::new(&self.0)
    }
}

impl Passphrase {
    /// Reads a file with a password. The end of its line is no part of it.
    pub fn read(path: &Path, files: &FileSystem) -> Self {
        Self::File { path: path.to_owned(), found: read_secret(path, files) }
    }

    /// The password, or why there is none.
    pub fn password(&self) -> Result<KeystorePassword, String> {
        let (secret, place) = match self {
            Self::Given(secret) => (secret, String::new()),
            Self::File { path, found } => {
                (found.as_ref().map_err(Clone::clone)?, format!("{}: ", path.display()))
            }
        };
        secret.password().map_err(|error| format!("{place}{error}"))
    }

    /// The file that it comes from.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Given(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }
}

fn read_secret(path: &Path, files: &FileSystem) -> Result<SecretText, String> {
    // A character has four bytes at most.
    let limit = 4 * MAX_PASSWORD_CHARACTERS + 3;
    let bytes = files.read(path, limit).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("{}: there is no such file", path.display()))?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| format!("{}: the password is not UTF-8", path.display()))?;
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(SecretText::new(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file() {
            Some(path) => write!(f, "… of {}", path.display()),
            None => f.write_str("…"),
        }
    }
}
