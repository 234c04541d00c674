//! Input and output of the signing mechanisms. Messages are hashed here, because tokens are slow and may limit the size.

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use cryptoki::mechanism::Mechanism;
use windlass_pki::SignatureScheme;

/// `DigestInfo` of RFC 8017 §9.2 for SHA-256, up to the digest.
const SHA256_DIGEST_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];

/// How a token signs for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenMechanism {
    /// `CKM_RSA_PKCS` over a `DigestInfo`.
    RsaSha256,
    /// `CKM_ECDSA` over a hash, on P-256.
    EcdsaP256,
    /// `CKM_ECDSA` over a hash, on P-384.
    EcdsaP384,
}

impl TokenMechanism {
    /// Returns `None` for schemes that are not supported in tokens.
    pub(super) fn for_scheme(scheme: SignatureScheme) -> Option<Self> {
        match scheme {
            SignatureScheme::RsaPkcs1Sha256 => Some(Self::RsaSha256),
            SignatureScheme::EcdsaP256Sha256 => Some(Self::EcdsaP256),
            SignatureScheme::EcdsaP384Sha384 => Some(Self::EcdsaP384),
            SignatureScheme::EcdsaP521Sha512 | SignatureScheme::Ed25519 => None,
        }
    }

    pub(super) fn mechanism(self) -> Mechanism<'static> {
        match self {
            Self::RsaSha256 => Mechanism::RsaPkcs,
            Self::EcdsaP256 | Self::EcdsaP384 => Mechanism::Ecdsa,
        }
    }

    pub(super) fn input(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::RsaSha256 => [&SHA256_DIGEST_INFO, digest(&SHA256, message).as_ref()].concat(),
            Self::EcdsaP256 => digest(&SHA256, message).as_ref().to_vec(),
            Self::EcdsaP384 => digest(&SHA384, message).as_ref().to_vec(),
        }
    }

    /// Converts the output of the mechanism to the signature of a certificate. `None` means that it has an impossible
    /// length.
    pub(super) fn signature(self, output: Vec<u8>) -> Option<Vec<u8>> {
        let scalar_bytes = match self {
            Self::RsaSha256 => return Some(output),
            Self::EcdsaP256 => 32,
            Self::EcdsaP384 => 48,
        };
        let (r, s) = output.split_at_checked(scalar_bytes).filter(|(_, s)| s.len() == scalar_bytes)?;
        encode_sequence(&[encode_integer(r)?, encode_integer(s)?].concat())
    }
}

/// Encodes an unsigned big-endian number as a DER INTEGER.
fn encode_integer(number: &[u8]) -> Option<Vec<u8>> {
    let digits = number.iter().skip_while(|digit| **digit == 0).copied().collect::<Vec<_>>();
    let padding = match digits.first() {
        Some(first) if first & 0x80 == 0 => None,
        _ => Some(0),
    };
    let contents = padding.into_iter().chain(digits).collect::<Vec<_>>();
    encode_element(0x02, &contents)
}

fn encode_sequence(contents: &[u8]) -> Option<Vec<u8>> {
    encode_element(0x30, contents)
}

/// Encodes an element with a length of one octet, which is enough for signatures on both curves.
fn encode_element(tag: u8, contents: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(contents.len()).ok().filter(|length| *length < 0x80)?;
    Some([&[tag, length], contents].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_der() {
        let mut output = vec![0; 64];
        output[31] = 5;
        output[32] = 0x80;
        let signature = TokenMechanism::EcdsaP256.signature(output).unwrap();
        let mut expected = vec![0x30, 38, 2, 1, 5, 2, 33, 0, 0x80];
        expected.extend([0; 31]);
        assert_eq!(signature, expected);
        let longest = TokenMechanism::EcdsaP384.signature(vec![0xff; 96]).unwrap();
        assert_eq!(longest.len(), 104);
        assert_eq!(TokenMechanism::EcdsaP256.signature(vec![0; 64]).unwrap(), [0x30, 6, 2, 1, 0, 2, 1, 0]);
        for length in [0, 63, 65, 96] {
            assert_eq!(TokenMechanism::EcdsaP256.signature(vec![1; length]), None);
        }
    }
}
