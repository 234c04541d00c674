//! Purpose and required content of a certificate.

use std::net::IpAddr;

use windlass_pki::{AltNames, ForeignCertificate, IssuedSubject};

/// Group of all nodes in Kubernetes.
const NODES: &str = "system:nodes";
/// Prefix of the user names of nodes.
const USER: &str = "system:node:";

/// What a certificate is for: client or serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificatePurpose {
    /// Authenticates the node to the API server.
    Client,
    /// Authenticates the node to its clients.
    Serving,
}

impl CertificatePurpose {
    /// Returns the prefix of its file names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Client => "kubelet-client",
            Self::Serving => "kubelet-server",
        }
    }

    /// Returns the Kubernetes signer that issues certificates of this purpose.
    pub const fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// Returns the key usages for keys that are not RSA; ours never are.
    pub const fn usages(self) -> [&'static str; 2] {
        match self {
            Self::Client => ["digital signature", "client auth"],
            Self::Serving => ["digital signature", "server auth"],
        }
    }
}

/// Required content of a certificate, which may have more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateTemplate {
    /// Required common name, `system:node:` and the node's name.
    pub common_name: String,
    /// Required organizations, which are the Kubernetes groups.
    pub organizations: Vec<String>,
    /// Required alternative names: DNS names and addresses.
    pub names: AltNames,
}

impl CertificateTemplate {
    /// Returns the template of a node's client certificate.
    pub fn client(node: &str) -> Self {
        Self {
            common_name: format!("{USER}{node}"),
            organizations: vec![NODES.to_owned()],
            names: AltNames::default(),
        }
    }

    /// Returns the template of a node's serving certificate; `None` without names. Duplicates and
    /// the order of names do not matter.
    pub fn serving(
        node: &str,
        dns_names: impl IntoIterator<Item = String>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Option<Self> {
        let mut dns_names = dns_names.into_iter().filter(|n| !n.is_empty()).collect::<Vec<_>>();
        dns_names.sort_unstable();
        dns_names.dedup();
        let addresses = addresses.into_iter().map(|address| address.to_canonical());
        let mut ip_addresses = addresses.collect::<Vec<_>>();
        // kubelet sorts addresses as text, and the order is part of the request.
        ip_addresses.sort_by_cached_key(IpAddr::to_string);
        ip_addresses.dedup();
        let names = AltNames { dns_names, ip_addresses, ..AltNames::default() };
        (!names.is_empty()).then(|| Self { names, ..Self::client(node) })
    }

    /// Returns what a certificate lacks; `None` if nothing. Displayed after "it lacks".
    pub fn lacking(&self, certificate: &ForeignCertificate) -> Option<String> {
        let (subject, names) = (certificate.subject(), certificate.alt_names());
        let mut lacking = Vec::new();
        if subject.common_name() != self.common_name {
            lacking.push(format!("the common name {}", self.common_name));
        }
        let held = subject.organizations();
        let organizations = self.organizations.iter().filter(|o| !held.contains(&o.as_str()));
        lacking.extend(organizations.map(|organization| format!("the organization {organization}")));
        let dns = self.names.dns_names.iter().filter(|name| !names.dns_names.contains(name));
        lacking.extend(dns.map(|name| format!("the name {name}")));
        let held = &names.ip_addresses;
        let addresses = self.names.ip_addresses.iter().filter(|address| !held.contains(address));
        lacking.extend(addresses.map(|address| format!("the address {address}")));
        (!lacking.is_empty()).then(|| lacking.join(", "))
    }

    pub(crate) fn subject(&self) -> IssuedSubject {
        let organizations = self.organizations.iter().map(String::as_str).collect::<Vec<_>>();
        IssuedSubject::new(&self.common_name, &organizations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CertificateFixture, START};
    use windlass_pki::PrivateKey;

    fn names(dns: &[&str], addresses: &[&str]) -> AltNames {
        AltNames {
            dns_names: dns.iter().map(|&name| name.to_owned()).collect(),
            ip_addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ..AltNames::default()
        }
    }

    #[test]
    fn a_certificate_may_have_more_but_not_less() {
        let key = PrivateKey::generate().unwrap();
        type Parts<'a> = (&'a str, &'a [&'a str], AltNames);
        let none = AltNames::default;
        let table: [(Parts<'_>, Parts<'_>, Option<&str>); 12] = [
            (("a", &["o"], none()), ("a", &["o"], none()), None),
            (("a", &[], none()), ("a", &["o"], none()), None),
            (("a", &["o", "p"], none()), ("a", &["p", "q", "o"], none()), None),
            (("a", &["o"], none()), ("b", &["o"], none()), Some("the common name a")),
            (("a", &["o"], none()), ("A", &["o"], none()), Some("the common name a")),
            (("a", &["o", "p"], none()), ("a", &["o"], none()), Some("the organization p")),
            (("a", &[], names(&["x"], &[])), ("a", &[], names(&["y", "x"], &[])), None),
            (("a", &[], names(&["x"], &[])), ("a", &[], names(&["X"], &[])), Some("the name x")),
            (("a", &[], names(&["x", "y"], &[])), ("a", &[], none()), Some("the name x, the name y")),
            (
                ("a", &[], names(&[], &["192.0.2.1", "2001:db8::1"])),
                ("a", &[], names(&["x"], &["2001:db8::1", "192.0.2.1"])),
                None,
            ),
            (
                ("a", &[], names(&[], &["192.0.2.1"])),
                ("a", &[], names(&[], &["192.0.2.2"])),
                Some("the address 192.0.2.1"),
            ),
            (
                ("a", &["o"], names(&["x"], &["192.0.2.1"])),
                ("b", &[], none()),
                Some("the common name a, the organization o, the name x, the address 192.0.2.1"),
            ),
        ];
        for ((cn, o, names), issued, expected) in table {
            let organizations = o.iter().map(|&o| o.to_owned()).collect();
            let template = CertificateTemplate { common_name: cn.into(), organizations, names };
            let (common_name, organizations, names) = issued;
            let signed =
                CertificateFixture { common_name, organizations, names, ..CertificateFixture::client(START) };
            let certificate = signed.certificate(key.public_key());
            assert_eq!(template.lacking(&certificate).as_deref(), expected, "{template:?}");
        }
    }

    #[test]
    fn serving_names_are_sorted_once_each_and_at_least_one() {
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let ips = |all: &[&str]| all.iter().map(|a| a.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(CertificateTemplate::serving("n1", own(&[""]), []), None);
        let template = CertificateTemplate::serving(
            "n1",
            own(&["n1.example", "n1", "n1"]),
            ips(&["9.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "fd00::1"]),
        );
        let template = template.unwrap();
        assert_eq!(template.common_name, "system:node:n1");
        assert_eq!(template.organizations, ["system:nodes"]);
        assert_eq!(template.names, names(&["n1", "n1.example"], &["10.0.0.1", "9.0.0.1", "fd00::1"]));
        assert!(CertificateTemplate::serving("n1", [], ips(&["10.0.0.1"])).is_some());
        assert!(CertificateTemplate::serving("n1", own(&["n1"]), []).is_some());
    }
}
