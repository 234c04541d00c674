//! The types of keys that Windlass names, generates and issues certificates for.
//!
//! Configuration, flags and API objects take their names and choices from here. To add a type:
//!
//! 1. in this file, add the variant with its names, properties and algorithm, and put it into the lists
//!    ([`KeyType::ALL`] and those of the places that accept it);
//! 2. in `key.rs`, generate keys of the type and sign with them;
//! 3. in `crates/api/schema/windlass.v1alpha1.schema`, add the name to the fields that accept it;
//! 4. for a new curve or algorithm, recognize it in `go_compat/key.rs` and verify its signatures in
//!    `go_compat/signature.rs`, and in `jws.rs` if service account tokens may be signed with it.
//!
//! No other file lists key types, apart from documentation.

use std::fmt;

use crate::{EllipticCurve, KeyAlgorithm};

/// An algorithm with its key size or curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits. Generating one takes a good part of a second.
    Rsa3072,
    /// RSA with a modulus of 4096 bits. Generating one takes a second or more.
    Rsa4096,
    /// ECDSA on the NIST curve P-256.
    EcdsaP256,
    /// ECDSA on the NIST curve P-384.
    EcdsaP384,
    /// ECDSA on the NIST curve P-521.
    EcdsaP521,
    /// Ed25519 (RFC 8032), which cannot sign JSON Web Signatures here.
    Ed25519,
}

impl KeyType {
    /// All types, in the order in which messages list them.
    pub const ALL: &'static [Self] = &[
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::Ed25519,
    ];

    /// The types that a pod's certificate can have: `keyType` of a `podCertificate` projection. The
    /// list is Kubernetes'.
    pub const POD_CERTIFICATE: &'static [Self] =
        &[Self::Rsa3072, Self::Rsa4096, Self::EcdsaP256, Self::EcdsaP384, Self::EcdsaP521, Self::Ed25519];

    /// The types that a generated CA can have, and that the command line generates. P-521 is not
    /// among them, since many TLS libraries do not verify it.
    pub const GENERATED: &'static [Self] =
        &[Self::EcdsaP256, Self::EcdsaP384, Self::Rsa3072, Self::Rsa4096, Self::Ed25519];

    /// The name in API objects and configuration files, for example `ECDSAP256`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA2048",
            Self::Rsa3072 => "RSA3072",
            Self::Rsa4096 => "RSA4096",
            Self::EcdsaP256 => "ECDSAP256",
            Self::EcdsaP384 => "ECDSAP384",
            Self::EcdsaP521 => "ECDSAP521",
            Self::Ed25519 => "ED25519",
        }
    }

    /// The name on the command line, for example `ecdsa-p256`.
    pub const fn flag_name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa3072 => "rsa-3072",
            Self::Rsa4096 => "rsa-4096",
            Self::EcdsaP256 => "ecdsa-p256",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::EcdsaP521 => "ecdsa-p521",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Parses [`Self::name`]; case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|each| each.name() == name)
    }

    /// Parses [`Self::flag_name`]; case matters.
    pub fn from_flag_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|each| each.flag_name() == name)
    }

    /// The type of keys with this algorithm; `None` if no type is as large, or has this curve or algorithm.
    pub(crate) const fn from_algorithm(algorithm: KeyAlgorithm) -> Option<Self> {
        match algorithm {
            KeyAlgorithm::Rsa { modulus_bits: 2048 } => Some(Self::Rsa2048),
            KeyAlgorithm::Rsa { modulus_bits: 3072 } => Some(Self::Rsa3072),
            KeyAlgorithm::Rsa { modulus_bits: 4096 } => Some(Self::Rsa4096),
            KeyAlgorithm::Ecdsa(EllipticCurve::P256) => Some(Self::EcdsaP256),
            KeyAlgorithm::Ecdsa(EllipticCurve::P384) => Some(Self::EcdsaP384),
            KeyAlgorithm::Ecdsa(EllipticCurve::P521) => Some(Self::EcdsaP521),
            KeyAlgorithm::Ed25519 => Some(Self::Ed25519),
            KeyAlgorithm::Rsa { .. }
            | KeyAlgorithm::Ecdsa(EllipticCurve::P224)
            | KeyAlgorithm::X25519
            | KeyAlgorithm::Dsa
            | KeyAlgorithm::Unknown => None,
        }
    }

    /// The names of some types, for messages that list them.
    pub fn names(types: &[Self]) -> Vec<&'static str> {
        types.iter().map(|each| each.name()).collect()
    }

    /// Whether the key can decipher as well, so that certificates may have the usage
    /// `key encipherment`.
    pub const fn can_encipher(self) -> bool {
        matches!(self, Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096)
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PrivateKey, SubjectKey};

    #[test]
    fn names_are_unique_and_read_back() {
        for each in KeyType::ALL {
            assert_eq!(KeyType::from_name(each.name()), Some(*each));
            assert_eq!(KeyType::from_flag_name(each.flag_name()), Some(*each));
        }
        assert_eq!(KeyType::from_name("ecdsap256"), None);
        for list in [KeyType::POD_CERTIFICATE, KeyType::GENERATED] {
            assert!(list.iter().all(|each| KeyType::ALL.contains(each)));
        }
    }

    #[test]
    fn generated_keys_are_recognized() {
        // RSA keys of 4096 bits take seconds to generate; those of 3072 stand for them.
        for each in KeyType::ALL.iter().filter(|each| **each != KeyType::Rsa4096) {
            let key = PrivateKey::generate_type(*each).unwrap();
            let public = SubjectKey::from_der(key.public_key().as_der()).unwrap();
            assert_eq!(public.key_type(), Some(*each));
            assert_eq!(
                public.pod_key_type().ok(),
                public.key_type().filter(|each| { KeyType::POD_CERTIFICATE.contains(each) })
            );
        }
    }
}
