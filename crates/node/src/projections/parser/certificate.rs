//! The section `certificate`: names in certificates.

use std::net::IpAddr;

use windlass_api::names;
use windlass_pki::AltNames;
use windlass_pki::limits::MAX_URI_BYTES;
use windlass_runtime::config::{ConfigField, ConfigResult};

/// The upper bound of X.509 for common names, in characters.
const MAX_COMMON_NAME: usize = 64;

/// Parses the common name and the alternative names.
pub fn parse(section: &ConfigField<'_>) -> ConfigResult<(Option<String>, AltNames)> {
    let fields = section.fields(&["commonName", "dnsNames", "ipAddresses", "uris"])?;
    let common_name = fields.optional("commonName", parse_common_name);
    let dns_names = fields.list("dnsNames", parse_dns_name);
    let ip_addresses = fields.list("ipAddresses", |field| {
        field.text()?.parse::<IpAddr>().map_err(|_| field.invalid("is not an IP address"))
    });
    let uris = fields.list("uris", parse_uri);
    let names =
        AltNames { dns_names: dns_names?, ip_addresses: ip_addresses?, uris: uris?, ..AltNames::default() };
    Ok((common_name?, names))
}

fn parse_common_name(field: &ConfigField<'_>) -> ConfigResult<String> {
    match field.text()? {
        name if name.chars().count() > MAX_COMMON_NAME => {
            Err(field.invalid(format!("has more than {MAX_COMMON_NAME} characters; shorten it")))
        }
        name => Ok(name.to_owned()),
    }
}

fn parse_dns_name(field: &ConfigField<'_>) -> ConfigResult<String> {
    let name = field.text()?;
    // A wildcard replaces only the first label.
    field.check_name(name.strip_prefix("*.").unwrap_or(name), names::dns1123_subdomain)?;
    Ok(name.to_owned())
}

fn parse_uri(field: &ConfigField<'_>) -> ConfigResult<String> {
    let uri = field.text()?;
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let has_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !has_scheme {
        Err(field.invalid("is not a URI with a scheme, such as spiffe://example.com/web"))
    } else if !uri.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err(field.invalid("contains other characters than visible ASCII; escape them"))
    } else if uri.len() > MAX_URI_BYTES {
        Err(field.invalid(format!("has more than {MAX_URI_BYTES} bytes; shorten it")))
    } else {
        Ok(uri.to_owned())
    }
}
