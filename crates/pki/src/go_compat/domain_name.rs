//! Domain names and mailboxes, as far as Go checks them when it parses a certificate.

/// Returns true if the characters and labels of a domain name are valid. A constraint may begin
/// with a dot.
pub(crate) fn is_valid(name: &[u8], constraint: bool) -> bool {
    if name.is_empty() {
        return true;
    }
    if name.last() == Some(&b'.') {
        return false;
    }
    let name = name.strip_prefix(b".").filter(|_| constraint).unwrap_or(name);
    name.split(|byte| *byte == b'.').all(|label| !label.is_empty()) && name.iter().all(u8::is_ascii_graphic)
}

/// Returns true if the text is a mailbox (RFC 2821 §4.1.2).
pub(crate) fn is_mailbox(text: &[u8]) -> bool {
    let rest = match text.strip_prefix(b"\"") {
        Some(quoted) => after_quotes(quoted),
        None => after_atom(text),
    };
    rest.and_then(|rest| rest.strip_prefix(b"@")).is_some_and(|domain| is_valid(domain, false))
}

/// Returns the text after a quoted string whose opening quote has been consumed.
fn after_quotes(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let (&byte, rest) = text.split_first()?;
        text = match byte {
            b'"' => return Some(rest),
            b'\\' => {
                let (escaped, rest) = rest.split_first()?;
                matches!(escaped, 1..=9 | 11 | 12 | 14..=127).then_some(rest)?
            }
            1..=8 | 11 | 12 | 14..=33 | 35..=127 => rest,
            _ => return None,
        };
    }
}

/// Returns the text after a dot-separated sequence of atoms. Go also accepts escaped characters
/// here.
fn after_atom(mut text: &[u8]) -> Option<&[u8]> {
    let mut local = Vec::new();
    while let Some((byte, rest)) = text.split_first() {
        let (byte, rest) = match byte {
            b'\\' => rest.split_first()?,
            b'.' => (byte, rest),
            letter if is_atom(*letter) => (byte, rest),
            _ => break,
        };
        local.push(*byte);
        text = rest;
    }
    let mut labels = local.split(|byte| *byte == b'.');
    labels.all(|label| !label.is_empty()).then_some(text)
}

fn is_atom(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_domains() {
        for (name, name_is, constraint_is) in [
            ("", true, true),
            ("example.com", true, true),
            (".example.com", false, true),
            ("example.com.", false, false),
            ("a..b", false, false),
            ("a b", false, false),
            (".", false, false),
            ("*.x", true, true),
            ("..a", false, false),
        ] {
            assert_eq!(is_valid(name.as_bytes(), false), name_is, "{name}");
            assert_eq!(is_valid(name.as_bytes(), true), constraint_is, "{name}");
        }
    }

    #[test]
    fn knows_mailboxes() {
        for good in ["a@b", "a.b+c@d.e", "\"a b\"@c", "\"a\\\"b\"@c", "a\\ b@c", "a@"] {
            assert!(is_mailbox(good.as_bytes()), "{good}");
        }
        for bad in ["", "@b", "a", ".a@b", "a.@b", "a..b@c", "\"a@b", "a b@c", "a@b..c", "a@b.", "a\\..b@c"] {
            assert!(!is_mailbox(bad.as_bytes()), "{bad}");
        }
    }
}
