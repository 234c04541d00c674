//! Limits that the tables set on values.

/// Bounds of a value; what they count depends on the field's shape: characters of a string,
/// elements of a list, entries of a map, or the number itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueLimits {
    /// The smallest size or number that is accepted.
    pub min: Option<usize>,
    /// The largest size that is accepted; integers have none.
    pub max: Option<usize>,
    /// The syntax that a string must have.
    pub format: Option<TextFormat>,
}

/// A syntax of strings that the tables can require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// A SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits.
    Sha256,
}

impl TextFormat {
    /// Parses the name that a table uses.
    pub(super) fn parse(name: &str) -> Option<Self> {
        (name == "sha256").then_some(TextFormat::Sha256)
    }

    /// The regular expression for other API servers.
    pub fn pattern(self) -> &'static str {
        match self {
            TextFormat::Sha256 => "^sha256:[0-9a-f]{64}$",
        }
    }

    /// The detail of the error for a text that does not match.
    pub fn message(self) -> &'static str {
        match self {
            TextFormat::Sha256 => "must be sha256: and 64 lower-case hexadecimal digits",
        }
    }

    /// Whether a text has this syntax.
    pub fn matches(self, text: &str) -> bool {
        match self {
            TextFormat::Sha256 => text.strip_prefix("sha256:").is_some_and(|digits| {
                let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                digits.len() == 64 && digits.bytes().all(is_digit)
            }),
        }
    }
}
