//! E-mail addresses (RFC 5322 §3.4): a mailbox with an optional display name.
//!
//! Go's `net/mail` also accepts comments, and display names that mix quoted words with others. No
//! certificate should need those, so they are rejected.

/// Returns true for one address: `local@domain`, or `name <local@domain>`.
pub(crate) fn is_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let Some(bracketed) = text.strip_suffix('>') else { return is_mailbox(text) };
    let Some((name, mailbox)) = bracketed.rsplit_once('<') else { return false };
    is_phrase(name.trim_matches([' ', '\t'])) && is_mailbox(mailbox)
}

fn is_mailbox(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let domain = domain.trim_start_matches([' ', '\t']);
    let local = is_dotted(local) || (is_quoted(local) && local.len() > 2);
    local && (is_dotted(domain) || is_literal(domain))
}

/// Accepts atoms separated by single dots.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(is_atom)
}

fn is_atom(text: &str) -> bool {
    let is_atext = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_atext)
}

/// Accepts visible characters and blanks between quotes; quotes and backslashes must be escaped by
/// a backslash.
fn is_quoted(text: &str) -> bool {
    let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let Some(inside) = inside.filter(|_| text.len() >= 2) else { return false };
    let mut bytes = inside.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'"' => return false,
            b'\\' => bytes.next().unwrap_or_default(),
            byte => byte,
        };
        if !(byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')) {
            return false;
        }
    }
    true
}

fn is_literal(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inside.is_some_and(|inside| inside.parse::<std::net::IpAddr>().is_ok())
}

/// Accepts the words before a bracketed mailbox, in which dots may be anywhere; may be empty.
fn is_phrase(text: &str) -> bool {
    let is_word = |word: &str| word.is_empty() || is_atom(&word.replace('.', "x"));
    is_quoted(text) || text.split([' ', '\t']).all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_addresses_from_other_text() {
        for good in [
            "a@b",
            "a.b+c@example.com",
            "\"a b\"@c",
            "Jo Doe <jo@example.com>",
            "\"Doe, Jo\" <jo@x>",
            "<jo@x>",
            "a@[192.0.2.1]",
            "a@[::1]",
            "J. Doe <jo@x>",
            "a@ b",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "@b",
            "a@",
            "a..b@c",
            ".a@b",
            "a@b.",
            "a b@c",
            "a@b, c@d",
            "<a@b",
            "a@b>",
            "\"a\"b\"@c",
            "\"@c",
            "a@[x]",
            "a@[IPv6:::1]",
            "a@b@c",
            "\"\"@b",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
