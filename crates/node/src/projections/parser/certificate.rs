//! For whom certificates are.

use std::net::IpAddr;

use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_pki::AltNames;
use windlass_pki::limits::MAX_URI_BYTES;

use super::fields::FieldReader;

/// The longest common name that X.509 knows.
const MAX_COMMON_NAME: usize = 64;

/// Reads `certificate`, if it is there.
pub fn read(fields: &mut FieldReader, errors: &mut FieldErrors) -> (Option<String>, AltNames) {
    let mut names = AltNames::default();
    let Some(mut section) = fields.section("certificate", errors) else { return (None, names) };
    let common_name = section.text("commonName", errors);
    if let Some(name) = &common_name {
        let at = section.child("commonName");
        if name.is_empty() {
            errors.required(&at, "");
        }
        if name.chars().count() > MAX_COMMON_NAME {
            let detail = format!("may not have more than {MAX_COMMON_NAME} characters");
            errors.invalid_str(&at, name, &detail);
        }
    }
    for (at, name) in section.texts("dnsNames", errors) {
        // A wildcard stands for the first label and nothing else.
        let checked = name.strip_prefix("*.").unwrap_or(&name);
        for words in names::dns1123_subdomain(checked) {
            errors.invalid_str(&at, &name, &words);
        }
        names.dns_names.push(name);
    }
    for (at, address) in section.texts("ipAddresses", errors) {
        match address.parse::<IpAddr>() {
            Ok(address) => names.ip_addresses.push(address),
            Err(_) => errors.invalid_str(&at, &address, "must be an IP address"),
        }
    }
    for (at, uri) in section.texts("uris", errors) {
        check_uri(&uri, &at, errors);
        names.uris.push(uri);
    }
    section.end(errors);
    (common_name, names)
}

fn check_uri(uri: &str, at: &FieldPath, errors: &mut FieldErrors) {
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let has_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !has_scheme {
        errors.invalid_str(at, uri, "must be a URI with a scheme");
    } else if !uri.bytes().all(|byte| byte.is_ascii_graphic()) {
        errors.invalid_str(at, uri, "must consist of visible ASCII characters");
    } else if uri.len() > MAX_URI_BYTES {
        errors.too_long(at, MAX_URI_BYTES);
    }
}
