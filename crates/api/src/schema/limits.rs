//! Limits that the tables set on values.

use crate::duration;
use crate::field::{FieldErrors, FieldPath};
use crate::names;
use crate::signer_name::SignerName;

/// Bounds of a value; what they count depends on the field's shape: characters of a string or of
/// base64 text, elements of a list, entries of a map, or the number itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueLimits {
    /// The smallest size or number that is accepted.
    pub min: Option<usize>,
    /// The largest size or number that is accepted.
    pub max: Option<usize>,
    /// The syntax that a string must have.
    pub format: Option<TextFormat>,
}

/// A syntax of strings that the tables can require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// A SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits.
    Sha256,
    /// Whole bytes as lower-case hexadecimal digits.
    Hex,
    /// A positive number as whole bytes of lower-case hexadecimal digits, without leading zero bytes.
    Serial,
    /// A duration in Go's notation, with units.
    Duration,
    /// The name of a signer: domain and path.
    SignerName,
    /// An RFC 1123 subdomain, such as the name of an object.
    Subdomain,
    /// An RFC 1123 label, such as the name of a namespace.
    Label,
    /// Namespace and name of a service account, with a slash between them.
    ServiceAccount,
    /// A SPIFFE trust domain.
    TrustDomain,
    /// An `http` or `https` URL of printable ASCII characters.
    Url,
    /// A PKCS#11 URI of printable ASCII characters.
    Pkcs11,
    /// The Kubernetes name of a usage that certificates other than those of CAs can have.
    Usage,
    /// Text that is not a pattern.
    Literal,
}

/// Usages of Kubernetes apart from those of CAs, in alphabetical order.
const USAGES: [&str; 21] = [
    "any",
    "client auth",
    "code signing",
    "content commitment",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

impl TextFormat {
    /// Parses the name that a table uses.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "sha256" => TextFormat::Sha256,
            "hex" => TextFormat::Hex,
            "serial" => TextFormat::Serial,
            "duration" => TextFormat::Duration,
            "signername" => TextFormat::SignerName,
            "subdomain" => TextFormat::Subdomain,
            "label" => TextFormat::Label,
            "serviceaccount" => TextFormat::ServiceAccount,
            "trustdomain" => TextFormat::TrustDomain,
            "url" => TextFormat::Url,
            "pkcs11" => TextFormat::Pkcs11,
            "usage" => TextFormat::Usage,
            "literal" => TextFormat::Literal,
            _ => return None,
        })
    }

    /// The regular expression for other API servers.
    pub fn pattern(self) -> &'static str {
        match self {
            TextFormat::Sha256 => "^sha256:[0-9a-f]{64}$",
            TextFormat::Hex => "^([0-9a-f]{2})+$",
            TextFormat::Serial => "^(0[1-9a-f]|[1-9a-f][0-9a-f])([0-9a-f]{2})*$",
            TextFormat::Duration => r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$",
            TextFormat::SignerName => {
                r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
            }
            TextFormat::Subdomain => r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            TextFormat::Label => "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            TextFormat::ServiceAccount => {
                r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
            }
            TextFormat::TrustDomain => "^[-a-z0-9._]+$",
            TextFormat::Url => "^https?://[!-~]+$",
            TextFormat::Pkcs11 => "^pkcs11:[!-~]+$",
            TextFormat::Usage => {
                "^(any|client auth|code signing|content commitment|data encipherment|decipher only|digital signature|email protection|encipher only|ipsec end system|ipsec tunnel|ipsec user|key agreement|key encipherment|microsoft sgc|netscape sgc|ocsp signing|s/mime|server auth|signing|timestamping)$"
            }
            TextFormat::Literal => "^[^*]+$",
        }
    }

    /// The detail of the error for a text that does not match.
    pub fn message(self) -> &'static str {
        match self {
            TextFormat::Sha256 => "must be sha256: and 64 lower-case hexadecimal digits",
            TextFormat::Hex => "must be bytes as lower-case hexadecimal digits",
            TextFormat::Serial => {
                "must be a positive number as lower-case hexadecimal digits, two for each byte, without leading zero bytes"
            }
            TextFormat::Duration => "must be a duration such as 24h, 1h30m or 90s",
            TextFormat::SignerName => {
                "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            }
            TextFormat::Subdomain => "must be a lowercase RFC 1123 subdomain",
            TextFormat::Label => "must be a lowercase RFC 1123 label",
            TextFormat::ServiceAccount => "must be a service account of the form namespace/name",
            TextFormat::TrustDomain => {
                "must be a trust domain of lower-case letters, digits, '.', '-' and '_'"
            }
            TextFormat::Url => "must be an http or https URL without spaces",
            TextFormat::Pkcs11 => "must be a PKCS#11 URI such as pkcs11:token=ca;object=key",
            TextFormat::Usage => "must be a usage such as \"server auth\"; those of CAs are reserved",
            TextFormat::Literal => "must be a full name, not a pattern",
        }
    }

    /// Whether a text has this syntax.
    pub fn matches(self, text: &str) -> bool {
        match self {
            TextFormat::Sha256 => {
                text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && is_hex(digits))
            }
            TextFormat::Hex => is_hex(text),
            TextFormat::Serial => is_hex(text) && !text.starts_with("00"),
            TextFormat::Duration => is_duration(text),
            TextFormat::SignerName => {
                SignerName::parse(&FieldPath::default(), text, &mut FieldErrors::new()).is_some()
            }
            TextFormat::Subdomain => names::dns1123_subdomain(text).is_empty(),
            TextFormat::Label => names::dns1123_label(text).is_empty(),
            TextFormat::ServiceAccount => text.split_once('/').is_some_and(|(namespace, name)| {
                names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty()
            }),
            TextFormat::TrustDomain => {
                let is_permitted =
                    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
                !text.is_empty() && text.bytes().all(is_permitted)
            }
            TextFormat::Url => is_after(&["https://", "http://"], text),
            TextFormat::Pkcs11 => is_after(&["pkcs11:"], text),
            TextFormat::Usage => USAGES.contains(&text),
            TextFormat::Literal => !text.is_empty() && !text.contains('*'),
        }
    }
}

/// Whether printable ASCII characters without spaces follow one of the prefixes.
fn is_after(prefixes: &[&str], text: &str) -> bool {
    let rest = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic()))
}

fn is_hex(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    !text.is_empty() && text.len().is_multiple_of(2) && text.bytes().all(is_digit)
}

/// Stricter than [`duration::parse`] in what CEL does not accept: each point is between digits, and units are ASCII.
fn is_duration(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |index: Option<usize>| index.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut points = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'.');
    text != "0"
        && text.is_ascii()
        && points.all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
        && duration::parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_their_pattern_says() {
        let table: &[(TextFormat, &[&str], &[&str])] = &[
            (TextFormat::Hex, &["00", "0fa1"], &["", "0", "0F", "0g", "0x"]),
            (TextFormat::Serial, &["01", "0a00", "ff"], &["", "1", "00", "0001", "0A", "-1"]),
            (
                TextFormat::Duration,
                &["24h", "1.5h", "1m30s", "10ms"],
                &["", "0", "24", "1.h", ".5h", "1d", "-1h", "7\u{b5}s", "9999999999h"],
            ),
            (
                TextFormat::SignerName,
                &["a.b/c", "a.b/c.d"],
                &["", "a/b", "a.b", "a.b/c/d", "A.b/c", "a.b/c_"],
            ),
            (TextFormat::Subdomain, &["a", "a.b-c"], &["", "A", "a_b", "-a"]),
            (TextFormat::Label, &["a", "a-b"], &["", "a.b"]),
            (TextFormat::ServiceAccount, &["a/b", "a/b.c"], &["", "a", "/a", "a/", "a.b/c", "a/b/c"]),
            (TextFormat::TrustDomain, &["example.com", "a_b"], &["", "Example", "a/b"]),
            (TextFormat::Url, &["http://a/b", "https://a"], &["", "http://", "ftp://a", "http://a b"]),
            (TextFormat::Pkcs11, &["pkcs11:token=a"], &["", "pkcs11:", "token=a", "pkcs11:a b"]),
            (TextFormat::Usage, &["server auth", "any", "s/mime"], &["", "server", "cert sign", "crl sign"]),
            (TextFormat::Literal, &["a", "system:nodes"], &["", "*", "a*"]),
        ];
        for (format, good, bad) in table {
            for text in *good {
                assert!(format.matches(text), "{format:?} {text}");
            }
            for text in *bad {
                assert!(!format.matches(text), "{format:?} {text}");
            }
        }
        assert_eq!(TextFormat::Usage.pattern(), format!("^({})$", USAGES.join("|")));
    }
}
