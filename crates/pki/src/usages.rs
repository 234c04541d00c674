//! Key usages of certificates, with the names that requests use.

use std::collections::BTreeSet;

use der::asn1::ObjectIdentifier;

use crate::der_syntax::encode_tlv;

/// Key usages and extended key usages of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateUsages {
    /// Key usages (RFC 5280 §4.2.1.3) of the certificate.
    pub key: KeyUsageSet,
    /// Extended key usages, encoded in this order.
    pub extended: BTreeSet<ExtendedUsage>,
}

/// A set of key usages (RFC 5280 §4.2.1.3). An empty set is not encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyUsageSet(u16);

/// An extended key usage (RFC 5280 §4.2.1.12), in Go's encoding order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtendedUsage {
    /// Any extended key usage (`anyExtendedKeyUsage`).
    Any,
    /// TLS server authentication (`server auth` in Kubernetes).
    ServerAuth,
    /// TLS client authentication (`client auth` in Kubernetes).
    ClientAuth,
    /// Signing of executable code (`code signing` in Kubernetes).
    CodeSigning,
    /// Signing and encryption of e-mail (`email protection` or `s/mime` in Kubernetes).
    EmailProtection,
    /// IPsec between end systems (`ipsec end system` in Kubernetes).
    IpsecEndSystem,
    /// IPsec in tunnel mode (`ipsec tunnel` in Kubernetes).
    IpsecTunnel,
    /// IPsec for a user (`ipsec user` in Kubernetes).
    IpsecUser,
    /// Trusted time stamping (`timestamping` in Kubernetes).
    TimeStamping,
    /// Signing of OCSP responses (`ocsp signing` in Kubernetes).
    OcspSigning,
    /// Microsoft's server-gated cryptography for export browsers (`microsoft sgc` in Kubernetes).
    MicrosoftServerGatedCrypto,
    /// Netscape's server-gated cryptography (`netscape sgc` in Kubernetes).
    NetscapeServerGatedCrypto,
}

/// Names of unknown usages, in the given order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized usage values: [{}]", quoted(.0))]
pub struct UnknownUsages(pub Vec<String>);

impl CertificateUsages {
    /// Parses usages by name. The same usage may occur more than once.
    pub fn from_names<Text: AsRef<str>>(names: &[Text]) -> Result<Self, UnknownUsages> {
        let mut usages = Self::default();
        let mut unknown = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            if let Some(key) = KeyUsageSet::from_name(name) {
                usages.key = usages.key.with(key);
            } else if let Some(extended) = ExtendedUsage::from_name(name) {
                usages.extended.insert(extended);
            } else {
                unknown.push(name.to_owned());
            }
        }
        if unknown.is_empty() { Ok(usages) } else { Err(UnknownUsages(unknown)) }
    }

    /// Returns the names of all usages: key usages first, each kind in the order of its encoding.
    pub fn names(&self) -> Vec<&'static str> {
        let key = KEY_USAGE_NAMES
            .iter()
            .filter(|name| KeyUsageSet::from_name(name).is_some_and(|usage| self.key.contains(usage)));
        key.copied().chain(self.extended.iter().map(|usage| usage.name())).collect()
    }
}

/// Names of all key usages, in the order of their bits.
const KEY_USAGE_NAMES: [&str; 9] = [
    "digital signature",
    "content commitment",
    "key encipherment",
    "data encipherment",
    "key agreement",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
];

impl KeyUsageSet {
    /// The empty set, without any key usage.
    pub const NONE: Self = Self(0);
    /// Signatures other than those of certificates and CRLs (`digitalSignature`).
    pub const DIGITAL_SIGNATURE: Self = Self(1);
    /// Signatures that ensure non-repudiation (`contentCommitment`).
    pub const CONTENT_COMMITMENT: Self = Self(1 << 1);
    /// Encryption of keys, as in RSA key transport (`keyEncipherment`).
    pub const KEY_ENCIPHERMENT: Self = Self(1 << 2);
    /// Direct encryption of user data (`dataEncipherment`).
    pub const DATA_ENCIPHERMENT: Self = Self(1 << 3);
    /// Key agreement, as in Diffie-Hellman (`keyAgreement`).
    pub const KEY_AGREEMENT: Self = Self(1 << 4);
    /// Signing of certificates (`keyCertSign`); reserved for CAs.
    pub const CERT_SIGN: Self = Self(1 << 5);
    /// Signing of certificate revocation lists (`cRLSign`).
    pub const CRL_SIGN: Self = Self(1 << 6);
    /// Key agreement for enciphering only (`encipherOnly`).
    pub const ENCIPHER_ONLY: Self = Self(1 << 7);
    /// Key agreement for deciphering only (`decipherOnly`).
    pub const DECIPHER_ONLY: Self = Self(1 << 8);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if no usage is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if all usages in `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "signing" | "digital signature" => Self::DIGITAL_SIGNATURE,
            "content commitment" => Self::CONTENT_COMMITMENT,
            "key encipherment" => Self::KEY_ENCIPHERMENT,
            "key agreement" => Self::KEY_AGREEMENT,
            "data encipherment" => Self::DATA_ENCIPHERMENT,
            "cert sign" => Self::CERT_SIGN,
            "crl sign" => Self::CRL_SIGN,
            "encipher only" => Self::ENCIPHER_ONLY,
            "decipher only" => Self::DECIPHER_ONLY,
            _ => return None,
        })
    }

    /// Encodes a BIT STRING whose first bit is the first usage, without trailing zeros.
    pub(crate) fn to_der(self) -> Vec<u8> {
        let [first, second] = self.0.reverse_bits().to_be_bytes();
        let bits = if second == 0 { vec![first] } else { vec![first, second] };
        let padding = bits.last().map_or(0, |last| last.trailing_zeros()).min(7);
        let padding = u8::try_from(padding).unwrap_or_default();
        encode_tlv(0x03, &[&[padding], bits.as_slice()].concat())
    }
}

impl ExtendedUsage {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "any" => Self::Any,
            "server auth" => Self::ServerAuth,
            "client auth" => Self::ClientAuth,
            "code signing" => Self::CodeSigning,
            "email protection" | "s/mime" => Self::EmailProtection,
            "ipsec end system" => Self::IpsecEndSystem,
            "ipsec tunnel" => Self::IpsecTunnel,
            "ipsec user" => Self::IpsecUser,
            "timestamping" => Self::TimeStamping,
            "ocsp signing" => Self::OcspSigning,
            "microsoft sgc" => Self::MicrosoftServerGatedCrypto,
            "netscape sgc" => Self::NetscapeServerGatedCrypto,
            _ => return None,
        })
    }

    /// Returns the name that Kubernetes gives to the usage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ServerAuth => "server auth",
            Self::ClientAuth => "client auth",
            Self::CodeSigning => "code signing",
            Self::EmailProtection => "email protection",
            Self::IpsecEndSystem => "ipsec end system",
            Self::IpsecTunnel => "ipsec tunnel",
            Self::IpsecUser => "ipsec user",
            Self::TimeStamping => "timestamping",
            Self::OcspSigning => "ocsp signing",
            Self::MicrosoftServerGatedCrypto => "microsoft sgc",
            Self::NetscapeServerGatedCrypto => "netscape sgc",
        }
    }

    pub(crate) const fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::Any => "2.5.29.37.0",
            Self::ServerAuth => "1.3.6.1.5.5.7.3.1",
            Self::ClientAuth => "1.3.6.1.5.5.7.3.2",
            Self::CodeSigning => "1.3.6.1.5.5.7.3.3",
            Self::EmailProtection => "1.3.6.1.5.5.7.3.4",
            Self::IpsecEndSystem => "1.3.6.1.5.5.7.3.5",
            Self::IpsecTunnel => "1.3.6.1.5.5.7.3.6",
            Self::IpsecUser => "1.3.6.1.5.5.7.3.7",
            Self::TimeStamping => "1.3.6.1.5.5.7.3.8",
            Self::OcspSigning => "1.3.6.1.5.5.7.3.9",
            Self::MicrosoftServerGatedCrypto => "1.3.6.1.4.1.311.10.3.3",
            Self::NetscapeServerGatedCrypto => "2.16.840.1.113730.4.1",
        })
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_every_name() {
        let key = [
            ("signing", "03020780"),
            ("digital signature", "03020780"),
            ("content commitment", "03020640"),
            ("key encipherment", "03020520"),
            ("data encipherment", "03020410"),
            ("key agreement", "03020308"),
            ("cert sign", "03020204"),
            ("crl sign", "03020102"),
            ("encipher only", "03020001"),
            ("decipher only", "0303070080"),
        ];
        for (name, der) in key {
            let usages = CertificateUsages::from_names(&[name]).unwrap();
            let hex = usages.key.to_der().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            assert_eq!(hex, der, "{name}");
            let canonical = if name == "signing" { "digital signature" } else { name };
            assert_eq!(usages.names(), [canonical]);
            assert!(usages.extended.is_empty(), "{name}");
        }
        let extended = [
            ("any", ExtendedUsage::Any),
            ("server auth", ExtendedUsage::ServerAuth),
            ("client auth", ExtendedUsage::ClientAuth),
            ("code signing", ExtendedUsage::CodeSigning),
            ("email protection", ExtendedUsage::EmailProtection),
            ("s/mime", ExtendedUsage::EmailProtection),
            ("ipsec end system", ExtendedUsage::IpsecEndSystem),
            ("ipsec tunnel", ExtendedUsage::IpsecTunnel),
            ("ipsec user", ExtendedUsage::IpsecUser),
            ("timestamping", ExtendedUsage::TimeStamping),
            ("ocsp signing", ExtendedUsage::OcspSigning),
            ("microsoft sgc", ExtendedUsage::MicrosoftServerGatedCrypto),
            ("netscape sgc", ExtendedUsage::NetscapeServerGatedCrypto),
        ];
        for (name, usage) in extended {
            let usages = CertificateUsages::from_names(&[name]).unwrap();
            assert_eq!(usages.extended, BTreeSet::from([usage]), "{name}");
            assert!(usages.key.is_empty(), "{name}");
            assert_eq!(usages.names(), [if name == "s/mime" { "email protection" } else { name }]);
        }
        let mut sorted = extended.map(|(_, usage)| usage).to_vec();
        sorted.dedup();
        assert!(sorted.is_sorted(), "not in Go's order");
    }

    #[test]
    fn forgets_order_and_repetition() {
        let names = ["client auth", "digital signature", "server auth", "signing", "client auth"];
        let usages = CertificateUsages::from_names(&names).unwrap();
        let extended = usages.extended.into_iter().collect::<Vec<_>>();
        assert_eq!(extended, [ExtendedUsage::ServerAuth, ExtendedUsage::ClientAuth]);
        assert_eq!(usages.key, KeyUsageSet::DIGITAL_SIGNATURE);
        assert_eq!(CertificateUsages::from_names::<&str>(&[]), Ok(CertificateUsages::default()));
    }

    #[test]
    fn lists_every_unknown_name() {
        let error = CertificateUsages::from_names(&["Client Auth", "client auth", "x\"y"]).unwrap_err();
        let text = r#"unrecognized usage values: ["Client Auth" "x\"y"]"#;
        assert_eq!(error.to_string(), text);
    }
}
