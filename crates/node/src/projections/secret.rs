//! Passwords, which are never displayed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_pki::limits::MAX_PASSWORD_CHARACTERS;
use windlass_pki::{KeystoreError, KeystorePassword};
use zeroize::Zeroizing;

use windlass_runtime::durable::FileSystem;

/// A secret string that is never displayed, and wiped when the last copy is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<Zeroizing<String>>);

/// A password and where it comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Passphrase {
    /// The password is in the projections file.
    Given(SecretText),
    /// The password is in a separate file.
    File {
        /// The password file, as named in the projections file.
        path: PathBuf,
        /// The password read from the file, or why it cannot be used.
        found: Result<SecretText, String>,
    },
}

impl SecretText {
    /// Wraps a secret, which is then omitted from debug output.
    pub fn new(text: String) -> Self {
        Self(Arc::new(Zeroizing::new(text)))
    }

    /// Converts the secret to a keystore password.
    pub fn password(&self) -> Result<KeystorePassword, KeystoreError> {
        KeystorePassword::new(&self.0)
    }
}

impl Passphrase {
    /// Reads a password file. A trailing newline is not part of the password.
    pub fn read(path: &Path, files: &FileSystem) -> Self {
        Self::File { path: path.to_owned(), found: read_secret(path, files) }
    }

    /// Returns the password, or why there is none.
    pub fn password(&self) -> Result<KeystorePassword, String> {
        let (secret, place) = match self {
            Self::Given(secret) => (secret, String::new()),
            Self::File { path, found } => {
                (found.as_ref().map_err(Clone::clone)?, format!("{}: ", path.display()))
            }
        };
        secret.password().map_err(|error| format!("{place}{error}"))
    }

    /// Returns the path of the password file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Given(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }
}

fn read_secret(path: &Path, files: &FileSystem) -> Result<SecretText, String> {
    // A UTF-8 character has at most four bytes.
    let limit = 4 * MAX_PASSWORD_CHARACTERS + 3;
    let bytes = files.read(path, limit).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("{}: file not found", path.display()))?;
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
