//! The grammars of names.

/// What is wrong with `name` as an RFC 1123 subdomain; `prefix` allows a trailing dash or dot.
pub fn dns1123_subdomain_rule(name: &str, prefix: bool) -> Vec<String> {
    let _ = (name, prefix);
    Vec::new()
}
