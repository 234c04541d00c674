//! Validation of extra fields in the constrained modes.

use std::collections::BTreeMap;

use windlass_api::field::{FieldErrors, FieldPath, quote};
use windlass_api::names;

/// Characters of a URL path.
const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";

/// Returns the error of the first invalid entry.
pub(super) fn check(extra: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".into());
        }
        let broken = domain_prefixed_path(key);
        if !broken.is_empty() {
            let words = join_errors(&broken);
            return Err(format!("impersonating an invalid key in extra is not allowed: {words}"));
        }
        if *key != key.to_lowercase() {
            let key = quote(key);
            return Err(format!("impersonating a non-lowercase key in extra is not allowed: {key}"));
        }
        if values.iter().any(String::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".into());
        }
    }
    Ok(())
}

/// Validates a subdomain, a slash and a path (`acme.io/foo`).
fn domain_prefixed_path(key: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let at = FieldPath::new("extra").child("key");
    let (host, path) = match key.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => {
            let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid_str(&at, key, words);
            return errors;
        }
    };
    for words in names::dns1123_subdomain(host) {
        errors.invalid_str(&at, host, &words);
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !path.bytes().all(allowed) {
        errors.invalid_str(&at, path, &names::regex_error("Invalid path", PATH, &[]));
    }
    errors
}

/// Joins several errors in one line like Go's aggregates.
fn join_errors(errors: &FieldErrors) -> String {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_domain_and_are_lower_case() {
        let invalid = "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: ";
        for (key, value, want) in [
            ("acme.io/foo", "v", String::new()),
            ("acme.io/foo/bar", "v", String::new()),
            ("", "v", "impersonating the empty string key in extra is not allowed".into()),
            (
                "scopes",
                "v",
                format!("{invalid}\"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
            ),
            (
                "acme.io/a b",
                "v",
                format!(
                    "{invalid}\"a b\": Invalid path (regex used for validation is \
                     '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
                ),
            ),
            (
                "acme.io/Foo",
                "v",
                "impersonating a non-lowercase key in extra is not allowed: \"acme.io/Foo\"".into(),
            ),
            ("acme.io/foo", "", "impersonating the empty string value in extra is not allowed".into()),
        ] {
            let extra = BTreeMap::from([(key.to_owned(), vec![value.to_owned()])]);
            assert_eq!(check(&extra).err().unwrap_or_default(), want, "{key}");
        }
    }
}
