//! Shell quoting, for commands that users copy.

use std::borrow::Cow;

/// Quotes a word for the shell if necessary.
pub fn word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        for (text, wanted) in [
            ("/var/lib/windlass", "/var/lib/windlass"),
            ("", "''"),
            ("my data", "'my data'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
            ("~/x", "'~/x'"),
        ] {
            assert_eq!(word(text), wanted);
        }
    }
}
