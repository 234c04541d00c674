//! PKCS#11 URIs (RFC 7512) that name a private key.
//!
//! Only attributes that select a token or a key are accepted. The module and the PIN come from the operator's flags:
//! whoever may write a URI must not choose which library this process loads or which file it reads.

use std::fmt;
use std::str::FromStr;

use crate::limits::MAX_TOKEN_URI_BYTES;

/// A parsed PKCS#11 URI. It has a token label, serial number or slot, and an object label or id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenUri {
    pub(super) token: Option<String>,
    pub(super) manufacturer: Option<String>,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) slot_id: Option<u64>,
    pub(super) object: Option<String>,
    pub(super) id: Option<Vec<u8>>,
}

/// Error of parsing a PKCS#11 URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenUriError {
    /// The URI is longer than any that tokens need.
    #[error("PKCS#11 URI exceeds {MAX_TOKEN_URI_BYTES} bytes")]
    TooLong,
    /// The scheme is not `pkcs11:`, which is compared without regard to case.
    #[error("PKCS#11 URI does not start with pkcs11:")]
    Scheme,
    /// A part between semicolons has no `=`, or its name or value has characters that must be percent-encoded.
    #[error("PKCS#11 URI: malformed attribute {0:?}")]
    Malformed(String),
    /// The query part, which can name a library or a PIN, is never accepted.
    #[error("PKCS#11 URI: {0:?} is not allowed; module and PIN are set by flags of the controllers")]
    Query(String),
    /// The attribute is none of those that select a private key.
    #[error("PKCS#11 URI: unsupported attribute {0:?}")]
    Unsupported(String),
    /// The attribute occurs more than once.
    #[error("PKCS#11 URI: attribute {0:?} occurs twice")]
    Duplicate(String),
    /// The URI does not name what is needed to find one key.
    #[error("PKCS#11 URI lacks {0}")]
    Missing(&'static str),
}

impl FromStr for TokenUri {
    type Err = TokenUriError;

    fn from_str(text: &str) -> Result<Self, TokenUriError> {
        if text.len() > MAX_TOKEN_URI_BYTES {
            return Err(TokenUriError::TooLong);
        }
        let (scheme, rest) = text.split_once(':').ok_or(TokenUriError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("pkcs11") {
            return Err(TokenUriError::Scheme);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if let Some(attribute) = query.split('&').find(|attribute| !attribute.is_empty()) {
            // The value may be a PIN.
            let name = attribute.split('=').next().unwrap_or_default();
            return Err(TokenUriError::Query(name.to_owned()));
        }
        let mut uri = Self::default();
        let mut seen = Vec::new();
        for attribute in path.split(';') {
            let malformed = || TokenUriError::Malformed(attribute.to_owned());
            let (name, value) = attribute.split_once('=').ok_or_else(malformed)?;
            if seen.contains(&name) {
                return Err(TokenUriError::Duplicate(name.to_owned()));
            }
            seen.push(name);
            uri.set(name, &decode_value(value).ok_or_else(malformed)?).ok_or_else(malformed)??;
        }
        uri.check_complete()
    }
}

impl TokenUri {
    /// Sets one attribute. `None` means that its value is malformed.
    fn set(&mut self, name: &str, value: &[u8]) -> Option<Result<(), TokenUriError>> {
        let text = || std::str::from_utf8(value).ok().filter(|text| !text.is_empty()).map(str::to_owned);
        match name {
            "token" => self.token = Some(text()?),
            "manufacturer" => self.manufacturer = Some(text()?),
            "model" => self.model = Some(text()?),
            "serial" => self.serial = Some(text()?),
            "slot-id" => self.slot_id = Some(text()?.parse().ok()?),
            "object" => self.object = Some(text()?),
            "id" if value.is_empty() => return None,
            "id" => self.id = Some(value.to_vec()),
            "type" if value == b"private" => {}
            "type" => return None,
            _ => return Some(Err(TokenUriError::Unsupported(name.to_owned()))),
        }
        Some(Ok(()))
    }

    fn check_complete(self) -> Result<Self, TokenUriError> {
        if self.token.is_none() && self.serial.is_none() && self.slot_id.is_none() {
            return Err(TokenUriError::Missing("a token, serial or slot-id attribute"));
        }
        if self.object.is_none() && self.id.is_none() {
            return Err(TokenUriError::Missing("an object or id attribute"));
        }
        Ok(self)
    }
}

/// Decodes a value; `None` if it has a character that must be percent-encoded, or a bad escape.
fn decode_value(value: &str) -> Option<Vec<u8>> {
    let mut bytes = value.bytes();
    let mut decoded = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit =
                    || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit()? << 4 | digit()?
            }
            byte if is_plain(byte) => byte,
            _ => return None,
        });
    }
    Some(decoded)
}

/// `pk11-pchar` of RFC 7512 §2.3 without escapes.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:[]@!$'()*+,=&".contains(&byte)
}

impl fmt::Display for TokenUri {
    /// Writes the URI in a normal form, for logs and errors.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot_id.map(|slot| slot.to_string());
        let attributes = [
            ("token", self.token.as_deref().map(str::as_bytes)),
            ("manufacturer", self.manufacturer.as_deref().map(str::as_bytes)),
            ("model", self.model.as_deref().map(str::as_bytes)),
            ("serial", self.serial.as_deref().map(str::as_bytes)),
            ("slot-id", slot.as_deref().map(str::as_bytes)),
            ("object", self.object.as_deref().map(str::as_bytes)),
            ("id", self.id.as_deref()),
        ];
        let mut separator = "pkcs11:";
        for (name, value) in attributes {
            let Some(value) = value else { continue };
            write!(formatter, "{separator}{name}=")?;
            for byte in value {
                if is_plain(*byte) && name != "id" {
                    write!(formatter, "{}", char::from(*byte))?;
                } else {
                    write!(formatter, "%{byte:02X}")?;
                }
            }
            separator = ";";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenUri, TokenUriError> {
        text.parse()
    }

    #[test]
    fn reads_attributes_and_escapes() {
        let uri = parse("pkcs11:token=My%20token;serial=0a1b;object=ca;id=%01%ff;type=private").unwrap();
        let expected = TokenUri {
            token: Some("My token".into()),
            serial: Some("0a1b".into()),
            object: Some("ca".into()),
            id: Some(vec![1, 0xff]),
            ..TokenUri::default()
        };
        assert_eq!(uri, expected);
        assert_eq!(uri.to_string(), "pkcs11:token=My%20token;serial=0a1b;object=ca;id=%01%FF");
        assert_eq!(parse(&uri.to_string()).unwrap(), uri);
        let by_slot = parse("PKCS11:slot-id=7;manufacturer=a&b;model=m%c3%a9;id=raw").unwrap();
        assert_eq!((by_slot.slot_id, by_slot.model.as_deref()), (Some(7), Some("mé")));
        assert_eq!(by_slot.id.as_deref(), Some(b"raw".as_slice()));
        // A query without attributes says nothing.
        parse("pkcs11:token=a;object=b?").unwrap();
    }

    #[test]
    fn refuses_what_does_not_name_one_key() {
        let long = format!("pkcs11:token=a;object={}", "b".repeat(MAX_TOKEN_URI_BYTES));
        let table = [
            ("", "does not start"),
            ("token=a;object=b", "does not start"),
            ("file:token=a;object=b", "does not start"),
            ("pkcs11:", "malformed"),
            ("pkcs11:token=a;object=b;", "malformed"),
            ("pkcs11:token;object=b", "malformed"),
            ("pkcs11:token=;object=b", "malformed"),
            ("pkcs11:token=a b;object=b", "malformed"),
            ("pkcs11:token=a/b;object=b", "malformed"),
            ("pkcs11:token=%4;object=b", "malformed"),
            ("pkcs11:token=%zz;object=b", "malformed"),
            ("pkcs11:token=%ff;object=b", "malformed"),
            ("pkcs11:token=é;object=b", "malformed"),
            ("pkcs11:slot-id=-1;object=b", "malformed"),
            ("pkcs11:slot-id=99999999999999999999;object=b", "malformed"),
            ("pkcs11:token=a;id=", "malformed"),
            ("pkcs11:token=a;object=b;type=cert", "malformed"),
            ("pkcs11:token=a;token=a;object=b", "occurs twice"),
            ("pkcs11:token=a;object=b;x-vendor=c", "unsupported"),
            ("pkcs11:token=a;object=b;library-manufacturer=c", "unsupported"),
            ("pkcs11:object=b", "lacks a token"),
            ("pkcs11:token=a", "lacks an object"),
            (&long, "exceeds"),
        ];
        for (text, why) in table {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn names_neither_a_library_nor_a_pin() {
        for name in ["module-path", "module-name", "pin-source", "pin-value", "x-other"] {
            let error = parse(&format!("pkcs11:token=a;object=b?{name}=secret")).unwrap_err();
            assert_eq!(error, TokenUriError::Query(name.to_owned()));
            assert!(!error.to_string().contains("secret"));
            // Not in the path either, where they do not belong.
            let error = parse(&format!("pkcs11:token=a;object=b;{name}=secret")).unwrap_err();
            assert_eq!(error, TokenUriError::Unsupported(name.to_owned()));
        }
    }
}
