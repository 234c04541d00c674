//! Grammars of names, with Kubernetes' error messages.
//!
//! A rule returns all violations; a valid name returns none and costs no allocation. The scanners
//! work on bytes: every grammar here is ASCII, so any other byte is outside the alphabet. Each
//! message contains the regular expression that upstream uses, because clients read it there; no
//! expression is evaluated here.

use crate::field::{FieldErrors, FieldPath};

/// Rule for the names of a kind. Takes the name and whether it is a `generateName` to which a
/// suffix will be added.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

/// Maximum bytes of a DNS label, of the name part of a label key, and of a label value.
pub const LABEL_MAX: usize = 63;
/// Maximum bytes of a DNS subdomain name.
pub const SUBDOMAIN_MAX: usize = 253;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";

/// Unit of length named in a message; the actual unit is always bytes.
///
/// Upstream moved the label grammar to newer code that says bytes, but not the grammars of the
/// other names.
type LengthUnit = &'static str;
const BYTES: LengthUnit = "bytes";
const CHARACTERS: LengthUnit = "characters";

const KEY_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_NAME_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character";

/// Rule for names that are RFC 1123 subdomains.
pub fn dns1123_subdomain_rule(name: &str, prefix: bool) -> Vec<String> {
    subdomain_1123(&masked(name, prefix), CHARACTERS)
}

/// Rule for names that are RFC 1123 labels.
pub fn dns1123_label_rule(name: &str, prefix: bool) -> Vec<String> {
    label_1123(&masked(name, prefix))
}

/// Rule for names that are RFC 1035 labels.
pub fn dns1035_label_rule(name: &str, prefix: bool) -> Vec<String> {
    label_1035(&masked(name, prefix))
}

/// Rule for names that must only fit into one URL path segment.
pub fn path_segment_rule(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| name.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Removes a prefix's trailing dash, because a suffix will follow it.
///
/// Upstream replaces the dash and the byte before it with an `a`, which makes `a.-` valid, and 64
/// bytes with a dash valid as a label; a lone dash stays.
fn masked(name: &str, prefix: bool) -> std::borrow::Cow<'_, [u8]> {
    let bytes = name.as_bytes();
    match bytes {
        [head @ .., _, b'-'] if prefix => {
            let mut masked = head.to_vec();
            masked.push(b'a');
            masked.into()
        }
        _ => bytes.into(),
    }
}

/// Returns the violations of the RFC 1123 label grammar.
pub fn dns1123_label(value: &str) -> Vec<String> {
    label_1123(value.as_bytes())
}

fn label_1123(value: &[u8]) -> Vec<String> {
    let mut errors = at_most(LABEL_MAX, value.len(), CHARACTERS);
    if !is_label_1123(value) {
        errors.push(if is_subdomain_1123(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                 '-', and must start and end with an alphanumeric character",
                LABEL_1123,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// Returns the violations of the RFC 1123 subdomain grammar.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_1123(value.as_bytes(), CHARACTERS)
}

fn subdomain_1123(value: &[u8], unit: LengthUnit) -> Vec<String> {
    let mut errors = at_most(SUBDOMAIN_MAX, value.len(), unit);
    if !is_subdomain_1123(value) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_1123,
            &["example.com"],
        ));
    }
    errors
}

fn label_1035(value: &[u8]) -> Vec<String> {
    let mut errors = at_most(LABEL_MAX, value.len(), CHARACTERS);
    if !(is_label_1123(value) && value[0].is_ascii_lowercase()) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Returns the violations of the qualified name grammar: label keys, annotation keys (in lower
/// case), finalizers and condition types.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut parts = value.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(""), Some(name), None) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        (Some(prefix), Some(name), None) => {
            let broken = subdomain_1123(prefix.as_bytes(), BYTES);
            errors.extend(broken.iter().map(|e| format!("prefix part {e}")));
            name
        }
        _ => {
            let name = regex_error(KEY_NAME_WORDS, KEY_NAME, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {name} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors.extend(at_most(LABEL_MAX, name.len(), BYTES).iter().map(|e| format!("name part {e}")));
    if !is_key_name(name.as_bytes()) {
        let words = regex_error(KEY_NAME_WORDS, KEY_NAME, &["MyName", "my.name", "123-abc"]);
        errors.push(format!("name part {words}"));
    }
    errors
}

/// Checks that `key` is a qualified name with a prefix (`acme.io/foo`).
pub fn domain_prefixed_key(path: &FieldPath, key: &str, errors: &mut FieldErrors) {
    if key.is_empty() {
        return errors.required(path, "");
    }
    let broken = qualified_name(key);
    errors.invalid_each(path, key, &broken);
    if broken.is_empty() && !key.contains('/') {
        errors.invalid_str(path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
}

/// Returns the violations of the label value grammar.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = at_most(LABEL_MAX, value.len(), BYTES);
    if !value.is_empty() && !is_key_name(value.as_bytes()) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Returns the violations of the grammar for ConfigMap and Secret keys.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = at_most(SUBDOMAIN_MAX, value.len(), CHARACTERS);
    if value.is_empty() || !value.bytes().all(is_key_byte) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    // A key becomes a file name in a volume.
    match value {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// Returns the violations of the port name grammar.
pub fn port_name(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let mut errors = at_most(15, bytes.len(), CHARACTERS);
    let mut say = |broken: bool, words: &str| {
        if broken {
            errors.push(words.to_owned());
        }
    };
    say(
        bytes.is_empty() || !bytes.iter().all(|b| is_lower_alnum(*b) || *b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    say(!bytes.iter().any(u8::is_ascii_lowercase), "must contain at least one letter (a-z)");
    say(value.contains("--"), "must not contain consecutive hyphens");
    say(value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen");
    errors
}

/// Returns the violations of the environment variable name grammar.
pub fn env_var_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// Returns the violations of the C identifier grammar.
pub fn c_identifier(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let good = bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if good {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string \
         of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// Returns an error if `value` is not an IP address.
pub fn ip_address(value: &str) -> Vec<String> {
    if value.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

/// Returns an error if the value is outside `low..=high`.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// Formats the error for a value that does not match `regex`, with valid examples.
pub fn regex_error(words: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{regex}')");
    }
    // Two spaces before every "or" but none before the comma: as upstream joins them.
    let shown: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{regex}')", shown.join(" or "))
}

fn at_most(max: usize, len: usize, unit: LengthUnit) -> Vec<String> {
    if len > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn is_label_1123(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return false };
    is_lower_alnum(*first) && is_lower_alnum(*last) && value.iter().all(|b| is_lower_alnum(*b) || *b == b'-')
}

fn is_subdomain_1123(value: &[u8]) -> bool {
    value.split(|b| *b == b'.').all(is_label_1123)
}

fn is_key_name(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return false };
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && value.iter().all(|b| is_key_byte(*b))
}

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_key_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

    #[test]
    fn invalid_dns_names_are_reported() {
        let long_label = "a".repeat(64);
        let long_name = "a".repeat(254);
        let cases: &[(NameRule, &str, &[&str])] = &[
            (dns1123_label_rule, "a-0", &[]),
            (dns1123_label_rule, "0", &[]),
            (dns1123_label_rule, "", &[LABEL]),
            (dns1123_label_rule, "NS_a", &[LABEL]),
            (dns1123_label_rule, "a-", &[LABEL]),
            (dns1123_label_rule, "é", &[LABEL]),
            (dns1123_label_rule, "a\n", &[LABEL]),
            (dns1123_label_rule, "a.b", &["must not contain dots"]),
            (dns1123_label_rule, &long_label, &["must be no more than 63 characters"]),
            (dns1123_subdomain_rule, "a.b-c.0", &[]),
            (dns1123_subdomain_rule, "a..b", &[SUBDOMAIN]),
            (dns1123_subdomain_rule, "a.-b", &[SUBDOMAIN]),
            (dns1123_subdomain_rule, "", &[SUBDOMAIN]),
            (dns1123_subdomain_rule, &long_name, &["must be no more than 253 characters"]),
            (path_segment_rule, "A:b c", &[]),
            (path_segment_rule, ".", &["may not be '.'"]),
            (path_segment_rule, "..", &["may not be '..'"]),
            (path_segment_rule, "a/b%c", &["may not contain '/'", "may not contain '%'"]),
        ];
        for (rule, name, want) in cases {
            assert_eq!(rule(name, false), *want, "{name}");
        }
        assert!(label_1035(b"a0").is_empty());
        assert!(label_1035(b"0a")[0].starts_with("a DNS-1035 label must consist of"));
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        for good in ["a-", "abc-", "a.-", "a--", "A-"] {
            assert!(dns1123_subdomain_rule(good, true).is_empty(), "{good}");
        }
        for bad in ["-", "-ab-", "AB-", "a."] {
            assert_eq!(dns1123_subdomain_rule(bad, true), [SUBDOMAIN], "{bad}");
        }
        assert!(dns1123_label_rule(&format!("{}-", "a".repeat(63)), true).is_empty());
        assert!(path_segment_rule("..", true).is_empty());
    }

    #[test]
    fn invalid_qualified_names_report_the_part() {
        let prefix = format!("prefix part {SUBDOMAIN}");
        let long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a".repeat(254));
        let cases: &[(&str, &[&str])] = &[
            ("a", &[]),
            ("A.b_c-0", &[]),
            ("example.com/a", &[]),
            ("", &["name part must be non-empty", NAME_PART]),
            ("a/", &["name part must be non-empty", NAME_PART]),
            ("/a", &["prefix part must be non-empty"]),
            ("A/a", &[&prefix]),
            ("-a", &[NAME_PART]),
            (&long, &["name part must be no more than 63 bytes"]),
            (&long_prefix, &["prefix part must be no more than 253 bytes"]),
            (
                "a/b/c",
                &[
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                ],
            ),
        ];
        for (name, want) in cases {
            assert_eq!(qualified_name(name), *want, "{name}");
        }
        let mut errors = FieldErrors::new();
        domain_prefixed_key(&FieldPath::new("spec").child("unverifiedUserAnnotations"), "a", &mut errors);
        domain_prefixed_key(&FieldPath::new("x"), "a.b/c", &mut errors);
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "spec.unverifiedUserAnnotations: Invalid value: \"a\": must be a domain-prefixed key (such as \"acme.io/foo\")"
            ]
        );
    }

    #[test]
    fn invalid_keys_and_values_are_reported() {
        assert!(label_value("").is_empty());
        assert!(label_value("a_b.C-1").is_empty());
        let broken = label_value(&format!("{}-", "a".repeat(63)));
        assert_eq!((broken.len(), &*broken[0]), (2, "must be no more than 63 bytes"));
        let cases: &[(&str, &[&str])] = &[
            ("a.b", &[]),
            ("_", &[]),
            ("", &[CONFIG_KEY]),
            ("a b", &[CONFIG_KEY]),
            (".", &["must not be '.'"]),
            ("..", &["must not be '..'"]),
            ("..a", &["must not start with '..'"]),
            ("../a", &[CONFIG_KEY, "must not start with '..'"]),
        ];
        for (name, want) in cases {
            assert_eq!(config_map_key(name), *want, "{name}");
        }
    }

    #[test]
    fn invalid_pod_names_are_reported() {
        let only = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        let letter = "must contain at least one letter (a-z)";
        let cases: &[(&str, &[&str])] = &[
            ("http-8080", &[]),
            ("", &[only, letter]),
            ("80", &[letter]),
            ("a--b", &["must not contain consecutive hyphens"]),
            ("a-", &["must not begin or end with a hyphen"]),
            ("Abcdefghijklmnop", &["must be no more than 15 characters", only]),
        ];
        for (name, want) in cases {
            assert_eq!(port_name(name), *want, "{name}");
        }
        assert!(env_var_name("a b:1").is_empty());
        assert_eq!(env_var_name("").len(), 1);
        assert_eq!(env_var_name("a=b").len(), 1);
        assert!(c_identifier("_a1").is_empty());
        assert_eq!(c_identifier("1a").len(), 1);
        assert!(ip_address("::1").is_empty());
        assert_eq!(ip_address("1.2.3").len(), 1);
        assert_eq!(in_range(0, 1, 65535), ["must be between 1 and 65535, inclusive"]);
    }
}
