//! Values of flags that say how clients reach a server.

use std::net::IpAddr;

use windlass_pki::AltName;

use crate::datadir::is_host_name;

/// Where clients reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalUrl {
    /// `https://HOST[:PORT]` without a trailing slash, as written to kubeconfigs.
    pub url: String,
    /// What the serving certificate has to name.
    pub name: AltName,
}

/// Reads a name or an address for a certificate.
pub fn parse_alt_name(text: &str) -> Result<AltName, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(AltName::Ip(address));
    }
    let name = text.to_ascii_lowercase();
    let rest = name.strip_prefix("*.").unwrap_or(&name);
    // A last label of digits would be an address that was mistyped.
    let top = rest.rsplit('.').next().unwrap_or_default();
    if is_host_name(rest) && !top.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(AltName::Dns(name))
    } else {
        Err("must be a DNS name or an IP address")
    }
}

/// Reads where clients reach a server.
pub fn parse_external_url(text: &str) -> Result<ExternalUrl, &'static str> {
    const FORM: &str = "must be https://NAME or https://NAME:PORT";
    let text = text.trim_end_matches('/');
    let uri: http::Uri = text.parse().map_err(|_| FORM)?;
    let place = match uri.scheme_str() {
        Some("https") => uri.authority().ok_or(FORM)?,
        _ => return Err(FORM),
    };
    let host = place.host().trim_start_matches('[').trim_end_matches(']');
    let name = parse_alt_name(host).map_err(|_| FORM)?;
    // What stands before an @ would be a credential, and a wildcard is nowhere.
    let plain = !place.as_str().contains(['@', '*']);
    let port = place.as_str().ends_with(place.host()) || place.port_u16().is_some();
    let whole = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if plain && port && whole { Ok(ExternalUrl { url: format!("https://{place}"), name }) } else { Err(FORM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns_name(name: &str) -> Option<AltName> {
        Some(AltName::Dns(name.into()))
    }

    fn ip_address(address: &str) -> Option<AltName> {
        Some(AltName::Ip(address.parse().unwrap()))
    }

    #[test]
    fn a_certificate_names_hosts_and_addresses() {
        for (text, read) in [
            ("windlass.example", dns_name("windlass.example")),
            ("Balancer", dns_name("balancer")),
            ("*.windlass.example", dns_name("*.windlass.example")),
            ("192.0.2.7", ip_address("192.0.2.7")),
            ("2001:db8::7", ip_address("2001:db8::7")),
            ("192.0.2.700", None),
            ("192.0.2", None),
            ("a.*.example", None),
            ("-a", None),
            ("a b", None),
            ("a:6443", None),
            ("", None),
        ] {
            assert_eq!(parse_alt_name(text).ok(), read, "{text}");
        }
    }

    #[test]
    fn a_url_names_a_host_and_nothing_below_it() {
        for (text, read) in [
            ("https://windlass.example:6443", dns_name("windlass.example")),
            ("https://windlass.example", dns_name("windlass.example")),
            ("https://192.0.2.7:443/", ip_address("192.0.2.7")),
            ("https://[2001:db8::7]:6443", ip_address("2001:db8::7")),
            ("http://windlass.example:6443", None),
            ("windlass.example:6443", None),
            ("https://windlass.example/api", None),
            ("https://windlass.example:", None),
            ("https://windlass.example:99999", None),
            ("https://jane:secret@windlass.example", None),
            ("https://*.example", None),
            ("https://", None),
        ] {
            let found = parse_external_url(text).ok();
            if let Some(found) = &found {
                assert_eq!(found.url, text.trim_end_matches('/'));
            }
            assert_eq!(found.map(|found| found.name), read, "{text}");
        }
    }
}
