//! The user PIN of a token.

use std::fmt;
use std::path::Path;

use cryptoki::types::AuthPin;
use windlass_runtime::file_watch::read_limited;
use zeroize::Zeroizing;

use crate::limits::MAX_PIN_BYTES;

/// User PIN of a token. It has no printable form and is wiped when dropped.
#[derive(PartialEq, Eq)]
pub struct TokenPin(Zeroizing<String>);

impl TokenPin {
    /// Reads a PIN from a file, without the line end that editors add. The error names the file.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let invalid = |reason: &str| format!("{}: {reason}", path.display());
        let bytes = read_limited(path, MAX_PIN_BYTES).map_err(|error| invalid(&error.to_string()))?;
        if bytes.len() > MAX_PIN_BYTES {
            return Err(invalid("the PIN is too long"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| invalid("the PIN is not UTF-8"))?;
        let pin = text.strip_suffix('\n').unwrap_or(text);
        let pin = pin.strip_suffix('\r').unwrap_or(pin);
        if pin.is_empty() {
            return Err(invalid("the PIN is empty"));
        }
        Ok(Self(Zeroizing::new(pin.to_owned())))
    }

    /// Returns the PIN for the login, in a type that also wipes it.
    pub(super) fn to_auth_pin(&self) -> AuthPin {
        AuthPin::from(self.0.as_str())
    }
}

impl fmt::Debug for TokenPin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenPin(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pin");
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            TokenPin::from_file(&path).map(|pin| pin.0.to_string())
        };
        assert_eq!(read(b"1234\n").unwrap(), "1234");
        assert_eq!(read(b"1234\r\n").unwrap(), "1234");
        assert_eq!(read(b" 12 34").unwrap(), " 12 34");
        for bad in [&b""[..], b"\n", b"\xff", &[b'1'; MAX_PIN_BYTES + 1]] {
            let error = read(bad).unwrap_err();
            assert!(error.contains("pin"), "{error}");
        }
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(format!("{:?}", TokenPin::from_file(&path).unwrap()), "TokenPin(redacted)");
    }
}
