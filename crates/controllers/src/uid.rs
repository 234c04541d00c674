//! Compact UIDs: nearly all are UUIDs, and there is one for every object in the owner graph.

use std::fmt;
use std::sync::Arc;

/// UID of an object; displays exactly as it was parsed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum ObjectUid {
    /// A UUID in canonical form.
    Uuid([u8; 16]),
    /// Any text that is not a UUID in canonical form.
    Other(Arc<str>),
}

impl From<&str> for ObjectUid {
    fn from(text: &str) -> ObjectUid {
        parse_uuid(text).map_or_else(|| ObjectUid::Other(text.into()), ObjectUid::Uuid)
    }
}

/// Parses `8-4-4-4-12` lower-case hexadecimal digits.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut digits = [0u8; 32];
    let mut count = 0;
    for (i, byte) in text.iter().enumerate() {
        match (i, byte) {
            (8 | 13 | 18 | 23, b'-') => {}
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => {
                digits[count] = byte - b'0';
                count += 1;
            }
            (_, b'a'..=b'f') => {
                digits[count] = byte - b'a' + 10;
                count += 1;
            }
            _ => return None,
        }
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(bytes)
}

impl fmt::Display for ObjectUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectUid::Other(text) => f.write_str(text),
            ObjectUid::Uuid(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for ObjectUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_reads_back_as_it_was_written() {
        let table = [
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", true),
            ("6BA7B810-9dad-11d1-80b4-00c04fd430c8", false),
            ("6ba7b8109dad11d180b400c04fd430c8", false),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430cg", false),
            ("6ba7b8100-dad-11d1-80b4-00c04fd430c8", false),
            ("ü", false),
            ("", false),
        ];
        for (text, small) in table {
            let uid = ObjectUid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(matches!(uid, ObjectUid::Uuid(_)), small, "{text}");
        }
    }
}
