//! Formats patterns as they are in the file.

use std::fmt;

use super::{AddressBlock, NamePattern, to_bits};

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamePattern::Anything => f.write_str("*"),
            NamePattern::Exactly(name) | NamePattern::Domain(name) => f.write_str(name),
            NamePattern::Below(domain) => write!(f, "*.{domain}"),
            NamePattern::MailboxOf(domain) => write!(f, "*@{domain}"),
            NamePattern::Mailbox(mailbox, domain) => write!(f, "{mailbox}@{domain}"),
            NamePattern::Beginning(beginning) => write!(f, "{beginning}*"),
            NamePattern::Template(template) => f.write_str(template.text()),
        }
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, width) = to_bits(self.first);
        if self.bits == width {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}/{}", self.first, self.bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::signers::config::SignersConfig;

    #[test]
    fn patterns_look_as_they_were_written() {
        let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [{name: a.b/c, \
            ca: {selfSigned: {directory: d}}, requests: {usages: [any], maxDuration: 1h, \
            commonNames: ['*', '*.a.b', jane], dnsNames: ['*.a.b', a.b, '{node}.a.b'], \
            emailAddresses: ['*@a.b', jane@a.b], uris: ['spiffe://a/*', 'urn:x:y'], \
            ipAddresses: [10.0.0.0/8, 192.0.2.7, '2001:db8::/32', '::1', 0.0.0.0/0]}}]}";
        let SignersConfig { signers, .. } = SignersConfig::parse(Path::new("s"), text).unwrap();
        let profile = signers[0].requests.as_ref().unwrap();
        let names = [&profile.common_names, &profile.dns_names, &profile.email_addresses, &profile.uris];
        let names = names.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names.join(" "), "* *.a.b jane *.a.b a.b {node}.a.b *@a.b jane@a.b spiffe://a/* urn:x:y");
        let blocks = profile.ip_addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(blocks.join(" "), "10.0.0.0/8 192.0.2.7 2001:db8::/32 ::1 0.0.0.0/0");
    }
}
