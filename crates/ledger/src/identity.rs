//! Identities in records: serial numbers, authorities, UIDs and hashes, each with its text form.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};

use crate::limits::{MAX_AUTHORITY_BYTES, MAX_SERIAL_BYTES};

/// Text that is not the hexadecimal form of an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what}: {reason}")]
pub struct IdentityError {
    /// Kind of the identity, for the message.
    what: &'static str,
    reason: &'static str,
}

/// Serial number of a certificate: 1 to 20 big-endian bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SerialNumber {
    bytes: [u8; MAX_SERIAL_BYTES],
    length: u8,
}

impl SerialNumber {
    /// Creates a serial number from its bytes. Leading zero bytes are dropped, as DER has one for the sign.
    pub fn from_bytes(bytes: &[u8]) -> Result<SerialNumber, IdentityError> {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let significant = bytes.get(zeros..).unwrap_or_default();
        let error = |reason| IdentityError { what: "serial number", reason };
        if significant.is_empty() {
            return Err(error("it is zero"));
        }
        let mut padded = [0; MAX_SERIAL_BYTES];
        let target = padded.get_mut(..significant.len()).ok_or(error("it has more than 20 bytes"))?;
        target.copy_from_slice(significant);
        let length = u8::try_from(significant.len()).map_err(|_| error("it has more than 20 bytes"))?;
        Ok(SerialNumber { bytes: padded, length })
    }

    /// Returns the significant bytes, most significant first.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Display for SerialNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.as_bytes(), formatter)
    }
}

impl fmt::Debug for SerialNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SerialNumber({self})")
    }
}

impl FromStr for SerialNumber {
    type Err = IdentityError;

    /// Parses hexadecimal digits, with or without colons between bytes.
    fn from_str(text: &str) -> Result<SerialNumber, IdentityError> {
        let digits: String = text.chars().filter(|letter| *letter != ':').collect();
        let even = if digits.len().is_multiple_of(2) { digits } else { format!("0{digits}") };
        SerialNumber::from_bytes(&parse_hex("serial number", &even)?)
    }
}

/// Identity of a CA key: the subject key identifier of its certificate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorityId(Box<[u8]>);

impl AuthorityId {
    /// Creates an id from the subject key identifier.
    pub fn from_bytes(bytes: &[u8]) -> Result<AuthorityId, IdentityError> {
        if bytes.is_empty() || bytes.len() > MAX_AUTHORITY_BYTES {
            let reason = "it must have between 1 and 64 bytes";
            return Err(IdentityError { what: "authority id", reason });
        }
        Ok(AuthorityId(bytes.into()))
    }

    /// Returns the subject key identifier.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for AuthorityId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, formatter)
    }
}

impl fmt::Debug for AuthorityId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AuthorityId({self})")
    }
}

impl FromStr for AuthorityId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<AuthorityId, IdentityError> {
        AuthorityId::from_bytes(&parse_hex("authority id", text)?)
    }
}

/// UID of an object. Kubernetes generates UUIDs, which are stored in 16 bytes; any other text is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectUid {
    /// A UUID in lower case with four hyphens.
    Uuid([u8; 16]),
    /// Any other text; empty if the UID is unknown.
    Text(String),
}

/// Positions of the hyphens of a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl From<&str> for ObjectUid {
    fn from(text: &str) -> ObjectUid {
        parse_uuid(text).map_or_else(|| ObjectUid::Text(text.to_owned()), ObjectUid::Uuid)
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let is_lower = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
    let is_uuid = text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, letter)| if HYPHENS.contains(&at) { letter == b'-' } else { is_lower(letter) });
    if !is_uuid {
        return None;
    }
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    parse_hex("UID", &digits).ok()?.try_into().ok()
}

impl fmt::Display for ObjectUid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectUid::Text(text) => formatter.write_str(text),
            ObjectUid::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                write!(formatter, "{hyphen}{byte:02x}")
            }),
        }
    }
}

/// A SHA-256 hash of a public key, written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Hashes the DER of a SubjectPublicKeyInfo.
    pub fn from_spki(der: &[u8]) -> KeyHash {
        KeyHash(sha256(der))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("sha256:")?;
        write_hex(&self.0, formatter)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyHash({self})")
    }
}

/// Hash of a segment, which its successor contains; written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentHash(pub [u8; 32]);

impl SegmentHash {
    /// Predecessor of the first segment of a chain.
    pub const NONE: SegmentHash = SegmentHash([0; 32]);
}

impl fmt::Display for SegmentHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("sha256:")?;
        write_hex(&self.0, formatter)
    }
}

impl fmt::Debug for SegmentHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SegmentHash({self})")
    }
}

impl FromStr for SegmentHash {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<SegmentHash, IdentityError> {
        let error = |reason| IdentityError { what: "segment hash", reason };
        let digits = text.strip_prefix("sha256:").ok_or(error("it must begin with \"sha256:\""))?;
        let bytes = parse_hex("segment hash", digits)?;
        bytes.try_into().map(SegmentHash).map_err(|_| error("it must have 64 hexadecimal digits"))
    }
}

pub(crate) fn sha256(data: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, data).as_ref());
    hash
}

fn write_hex(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    // Long lists consist of serial numbers, and formatting byte by byte takes ten times as long.
    let digit = |number: u8| DIGITS.get(usize::from(number)).copied().unwrap_or_default();
    bytes.iter().try_for_each(|byte| {
        formatter.write_char(digit(byte >> 4))?;
        formatter.write_char(digit(byte & 0xf))
    })
}

fn parse_hex(what: &'static str, text: &str) -> Result<Vec<u8>, IdentityError> {
    let error = IdentityError { what, reason: "it must consist of pairs of hexadecimal digits" };
    if !text.len().is_multiple_of(2) {
        return Err(error);
    }
    let digit = |letter: u8| char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect::<Option<_>>().ok_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_have_one_form() {
        let table = [
            ("0a", Ok("0a")),
            ("a", Ok("0a")),
            ("00:0A:ff", Ok("0aff")),
            ("0000", Err("invalid serial number: it is zero")),
            ("", Err("invalid serial number: it is zero")),
            ("0x1", Err("invalid serial number: it must consist of pairs of hexadecimal digits")),
            (&"ff".repeat(21), Err("invalid serial number: it has more than 20 bytes")),
        ];
        for (text, expected) in table {
            let parsed = text.parse::<SerialNumber>();
            let parsed = parsed.map(|serial| serial.to_string()).map_err(|error| error.to_string());
            assert_eq!(parsed, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn uids_keep_their_text() {
        for (text, is_uuid) in [
            ("0f8fad5b-d9cb-469f-a165-70867728950e", true),
            ("0F8FAD5B-d9cb-469f-a165-70867728950e", false),
            ("0f8fad5bd9cb469fa16570867728950e", false),
            ("n1", false),
            ("", false),
            ("é2345678-0123-0123-0123-01234567890", false),
        ] {
            let uid = ObjectUid::from(text);
            assert_eq!(matches!(uid, ObjectUid::Uuid(_)), is_uuid, "{text}");
            assert_eq!(uid.to_string(), text);
        }
    }

    #[test]
    fn hashes_and_authorities_survive_their_text() {
        let hash = SegmentHash(sha256(b"a"));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!("sha256:00".parse::<SegmentHash>().is_err() && "00".parse::<SegmentHash>().is_err());
        let id: AuthorityId = "00ff".parse().unwrap();
        assert_eq!((id.as_bytes(), id.to_string().as_str()), ([0, 0xff].as_slice(), "00ff"));
        assert!("".parse::<AuthorityId>().is_err());
    }
}
