//! Names and addresses for which no kubelet-serving certificate is approved automatically.
//!
//! A node writes the addresses of its own Node object, so what it claims there proves nothing. A
//! certificate for a name of the API server lets it impersonate the server to every client that
//! trusts the same CA, and names such as `localhost` mean another machine to every client.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use windlass_pki::AltNames;

/// First labels that are not host names: those of the API server's service, and those that `/etc/hosts` gives to the
/// loopback interface.
const RESERVED_LABELS: [&str; 6] =
    ["kubernetes", "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"];

/// Names and addresses of the API server, and those that are always reserved.
#[derive(Clone, Debug, Default)]
pub struct ReservedNames {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl ReservedNames {
    /// Reserves names and addresses of the API server, besides those that are always reserved.
    pub fn new<'a>(api_server: impl IntoIterator<Item = &'a str>) -> ReservedNames {
        let mut reserved = ReservedNames::default();
        for name in api_server {
            match parse_address(name) {
                Some(address) => drop(reserved.addresses.insert(address)),
                None => drop(reserved.names.insert(normalize_name(name))),
            }
        }
        reserved
    }

    /// Finds the first reserved name or address of a request.
    pub fn find_reserved(&self, asked: &AltNames) -> Option<String> {
        let name = asked.dns_names.iter().find(|name| self.has_name(name)).cloned();
        let reserved = |ip: &&IpAddr| self.has_address(ip.to_canonical());
        name.or_else(|| asked.ip_addresses.iter().find(reserved).map(IpAddr::to_string))
    }

    fn has_name(&self, name: &str) -> bool {
        // Some clients treat an address in a DNS name as an address.
        if let Some(address) = parse_address(name) {
            return self.has_address(address);
        }
        let name = normalize_name(name);
        let mut labels = name.split('.');
        let (first, last) = (labels.next().unwrap_or_default(), labels.next_back());
        name.contains('*')
            || RESERVED_LABELS.contains(&first)
            || last == Some("localhost")
            || self.names.contains(&name)
    }

    /// Whether a canonical address is not specific to one machine, or is that of the API server.
    fn has_address(&self, address: IpAddr) -> bool {
        let local = match address {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local() || is_v4_compatible_loopback(ip),
        };
        local
            || address.is_loopback()
            || address.is_unspecified()
            || address.is_multicast()
            || self.addresses.contains(&address)
    }
}

/// Recognizes `::127.0.0.1` and the like: deprecated, but some systems still route them as IPv4.
fn is_v4_compatible_loopback(ip: Ipv6Addr) -> bool {
    matches!(ip.octets(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, _, _, _])
}

/// Parses a name as an address, with or without brackets, in canonical form.
fn parse_address(name: &str) -> Option<IpAddr> {
    let name = name.trim_end_matches('.');
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Normalizes a DNS name: lower case, without the trailing dot.
fn normalize_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alt_names(name: &str) -> AltNames {
        match name.parse() {
            Ok(address) => AltNames { ip_addresses: vec![address], ..AltNames::default() },
            Err(_) => AltNames { dns_names: vec![name.to_owned()], ..AltNames::default() },
        }
    }

    #[test]
    fn names_of_the_api_server_and_of_every_machine_are_reserved() {
        let server = ["API.example.com.", "192.0.2.1", "[2001:db8::1]", "laptop"];
        let reserved = ReservedNames::new(server);
        for name in [
            "api.example.com",
            "Api.Example.Com",
            "laptop",
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "2001:db8::1",
            "2001:DB8:0::1",
            "*",
            "*.example.com",
            "n1*.example.com",
            "localhost",
            "LOCALHOST",
            "localhost.localdomain",
            "a.localhost",
            "ip6-localhost",
            "kubernetes",
            "kubernetes.default",
            "Kubernetes.Default.Svc",
            "kubernetes.default.svc.cluster.local",
            "kubernetes.default.svc.elsewhere",
            "127.0.0.1",
            "127.255.0.9",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let found = reserved.find_reserved(&alt_names(name));
            assert!(found.is_some(), "{name}");
            // Also found behind names that are not reserved.
            let mut many = alt_names(name);
            many.dns_names.insert(0, "n1.example.com".into());
            many.ip_addresses.insert(0, "198.51.100.7".parse().unwrap());
            assert_eq!(reserved.find_reserved(&many), found, "{name}");
        }
        for name in [
            "n1",
            "n1.example.com",
            "example.com",
            "kubernetes-worker-1",
            "worker.kubernetes.example",
            "my-localhost",
            "192.0.2.2",
            "2001:db8::2",
            "10.0.0.1",
            "fd00::1",
        ] {
            assert_eq!(reserved.find_reserved(&alt_names(name)), None, "{name}");
        }
    }

    /// Some clients compare DNS names with the address that they connect to.
    #[test]
    fn an_address_is_not_a_dns_name() {
        let reserved = ReservedNames::new(["192.0.2.1"]);
        let named = |name: &str| AltNames { dns_names: vec![name.into()], ..AltNames::default() };
        for name in ["192.0.2.1", "127.0.0.1", "::1", "127.0.0.1."] {
            assert_eq!(reserved.find_reserved(&named(name)), Some(name.to_owned()));
        }
        assert_eq!(reserved.find_reserved(&named("192.0.2.2")), None);
    }
}
