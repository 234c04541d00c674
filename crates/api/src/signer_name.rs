//! Signer names: `example.com/path` identifies the signer of a certificate or trust bundle.

use std::fmt;

use crate::field::{FieldErrors, FieldPath, quote};
use crate::names::{self, SUBDOMAIN_MAX};

/// Maximum bytes of a signer name: a domain, a `/`, and a `namespace.name` path.
const MAX: usize = SUBDOMAIN_MAX + 1 + names::LABEL_MAX + 1 + SUBDOMAIN_MAX;

/// A validated signer name of the form `domain/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SignerName {
    text: String,
    slash: usize,
}

impl SignerName {
    /// Parses `text`, or appends every violation to `errors`.
    pub fn parse(path: &FieldPath, text: &str, errors: &mut FieldErrors) -> Option<Self> {
        if text.is_empty() {
            errors.required(path, "");
            return None;
        }
        let Some((domain, rest)) = text.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
            errors.invalid_str(
                path,
                text,
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            );
            return None;
        };
        let before = errors.len();
        check_domain(path, domain, errors);
        check_pieces(path, rest, names::dns1123_subdomain, errors);
        if text.len() > MAX {
            errors.too_long(path, MAX);
        }
        (errors.len() == before).then(|| SignerName { text: text.to_owned(), slash: domain.len() })
    }

    /// Returns the full name, `domain/path`, exactly as parsed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part before the slash.
    pub fn domain(&self) -> &str {
        &self.text[..self.slash]
    }

    /// Returns the part after the slash.
    pub fn path(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    /// Returns true for signers in Kubernetes' own domain.
    pub fn is_kubernetes(&self) -> bool {
        is_kubernetes(&self.text)
    }

    /// Returns the name that RBAC rules use for all signers of the domain: `example.com/*`.
    pub fn wildcard(&self) -> String {
        wildcard(&self.text)
    }

    /// Returns the name prefix of this signer's trust bundles: `example.com:path:`.
    pub fn bundle_prefix(&self) -> String {
        bundle_prefix(&self.text)
    }
}

impl fmt::Display for SignerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn check_domain(path: &FieldPath, domain: &str, errors: &mut FieldErrors) {
    if domain.len() > SUBDOMAIN_MAX {
        errors.too_long(path, SUBDOMAIN_MAX);
    }
    check_pieces(path, domain, names::dns1123_label, errors);
    if !domain.contains('.') {
        errors.invalid_str(path, domain, "should be a domain with at least two segments separated by dots");
    }
}

/// Validates the dot-separated parts of one half; reports only the first invalid one.
fn check_pieces(path: &FieldPath, half: &str, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    for piece in half.split('.') {
        let broken = rule(piece);
        for words in &broken {
            let words = format!("validating label {}: {words}", quote(piece));
            errors.invalid_str(path, half, &words);
        }
        if !broken.is_empty() {
            return;
        }
    }
}

/// Returns true if a signer name, valid or not, is in Kubernetes' own domain.
pub fn is_kubernetes(signer_name: &str) -> bool {
    let domain = domain(signer_name);
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Returns the name that RBAC rules use for all signers of the name's domain, valid or not.
pub fn wildcard(signer_name: &str) -> String {
    format!("{}/*", domain(signer_name))
}

fn domain(signer_name: &str) -> &str {
    signer_name.split_once('/').map_or(signer_name, |(domain, _)| domain)
}

pub(crate) fn bundle_prefix(signer_name: &str) -> String {
    format!("{}:", signer_name.replace('/', ":"))
}

/// Rule for trust bundle names, which depends on the signer (empty for none).
pub fn trust_bundle_name_rule(signer_name: &str, name: &str, prefix: bool) -> Vec<String> {
    if signer_name.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::dns1123_subdomain_rule(name, prefix);
    }
    let required = bundle_prefix(signer_name);
    match name.strip_prefix(&required) {
        Some(rest) => names::dns1123_subdomain_rule(rest, prefix),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer_name} must be named with prefix {required}"
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_name_is_split_into_its_parts() {
        let mut errors = FieldErrors::new();
        let name = SignerName::parse(&FieldPath::new("x"), "a.kubernetes.io/ns.b", &mut errors).unwrap();
        assert!(errors.is_empty());
        assert_eq!((name.domain(), name.path()), ("a.kubernetes.io", "ns.b"));
        assert_eq!(name.wildcard(), "a.kubernetes.io/*");
        assert_eq!(name.bundle_prefix(), "a.kubernetes.io:ns.b:");
        assert!(name.is_kubernetes());
        assert!(!is_kubernetes("akubernetes.io/b"));
        assert!(is_kubernetes("kubernetes.io"));
    }

    #[test]
    fn invalid_names_report_the_first_invalid_piece_of_each_half() {
        let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        let label = "a lowercase RFC 1123 label must consist";
        let subdomain = "a lowercase RFC 1123 subdomain must consist";
        let long = "a".repeat(64);
        let cases: &[(&str, &[&str])] = &[
            ("", &["x: Required value"]),
            ("nope", &[&format!("x: Invalid value: \"nope\": {form}")]),
            ("a.b/c/d", &[&format!("x: Invalid value: \"a.b/c/d\": {form}")]),
            (
                "A.B/c_.d_",
                &[
                    &format!("x: Invalid value: \"A.B\": validating label \"A\": {label}"),
                    &format!("x: Invalid value: \"c_.d_\": validating label \"c_\": {subdomain}"),
                ],
            ),
            (
                "a/b",
                &["x: Invalid value: \"a\": should be a domain with at least two segments separated by dots"],
            ),
            ("a.b/", &[&format!("x: Invalid value: \"\": validating label \"\": {subdomain}")]),
            (
                &format!("a.{long}/b"),
                &[&format!(
                    "x: Invalid value: \"a.{long}\": validating label \"{long}\": must be no more than 63 characters"
                )],
            ),
            (
                &format!("a.b/{}", [long.as_str(); 9].join(".")),
                &["x: Too long: may not be more than 571 bytes"],
            ),
            (&format!("{}/b", ["a"; 128].join(".")), &["x: Too long: may not be more than 253 bytes"]),
        ];
        for (text, want) in cases {
            let mut errors = FieldErrors::new();
            assert_eq!(SignerName::parse(&FieldPath::new("x"), text, &mut errors), None, "{text}");
            let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(words.len(), want.len(), "{text}: {words:?}");
            for (words, want) in words.iter().zip(*want) {
                assert!(words.starts_with(want), "{text}: {words}");
            }
        }
    }

    #[test]
    fn trust_bundles_are_named_after_their_signer() {
        let cases = [
            ("", "a.b", 0, ""),
            ("", "a:b", 1, "ClusterTrustBundle without signer name must not have \":\" in its name"),
            ("e.com/s", "e.com:s:a", 0, ""),
            ("e.com/s", "e.com:s:", 1, "a lowercase RFC 1123 subdomain"),
            (
                "e.com/s",
                "foo",
                1,
                "ClusterTrustBundle for signerName e.com/s must be named with prefix e.com:s:",
            ),
        ];
        for (signer, name, count, words) in cases {
            let broken = trust_bundle_name_rule(signer, name, false);
            assert_eq!(broken.len(), count, "{name}");
            assert!(broken.iter().all(|w| w.starts_with(words)), "{name}: {broken:?}");
        }
    }
}
