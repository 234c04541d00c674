//! Public keys that verify JSON Web Signatures, and their JWK parameters (RFC 7518).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Sequence};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use crate::key::{JwsAlgorithm, RSA_ENCRYPTION};
use crate::limits::{MAX_RSA_BITS, MIN_RSA_BITS};
use crate::{Error, PublicKey};

/// A public key that verifies JSON Web Signatures with the one algorithm that fits it. A signature
/// cannot choose another.
pub struct JwsKey {
    algorithm: JwsAlgorithm,
    parsed: ParsedPublicKey,
    parameters: JwkParameters,
}

/// The JWK parameters of a public key, big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwkParameters {
    /// A point on a curve; both coordinates have the curve's full length.
    Ec {
        /// Curve name, the JWK member `crv`.
        curve: &'static str,
        /// X coordinate, the JWK member `x`.
        x: Vec<u8>,
        /// Y coordinate, the JWK member `y`.
        y: Vec<u8>,
    },
    /// A modulus and an exponent, without leading zeros.
    Rsa {
        /// RSA modulus, the JWK member `n`.
        n: Vec<u8>,
        /// RSA public exponent, the JWK member `e`.
        e: Vec<u8>,
    },
}

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

impl JwsKey {
    /// Accepts a key that can sign tokens: RSA of 2048 to 8192 bits, or a NIST curve.
    pub fn new(key: &PublicKey) -> Result<Self, Error> {
        let info = SubjectPublicKeyInfoRef::from_der(key.as_der()).map_err(Error::malformed("public key"))?;
        let bytes = info.subject_public_key.raw_bytes();
        let (algorithm, parameters) = match info.algorithm.oid {
            RSA_ENCRYPTION => (JwsAlgorithm::Rs256, rsa_parameters(bytes)?),
            EC_PUBLIC_KEY => {
                let curve = info.algorithm.parameters_oid().map_err(|_| UNSUPPORTED)?;
                let (algorithm, curve, length) = match curve {
                    P256 => (JwsAlgorithm::Es256, "P-256", 32),
                    P384 => (JwsAlgorithm::Es384, "P-384", 48),
                    P521 => (JwsAlgorithm::Es512, "P-521", 66),
                    _ => return Err(UNSUPPORTED),
                };
                (algorithm, point(bytes, curve, length)?)
            }
            _ => return Err(UNSUPPORTED),
        };
        let parsed = ParsedPublicKey::new(verification(algorithm), key.as_der()).map_err(|_| UNSUPPORTED)?;
        Ok(Self { algorithm, parsed, parameters })
    }

    /// Returns the algorithm that signatures must use.
    pub fn algorithm(&self) -> JwsAlgorithm {
        self.algorithm
    }

    /// Returns true if the signature of the message is valid.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }

    /// Returns the public JWK parameters.
    pub fn parameters(&self) -> &JwkParameters {
        &self.parameters
    }
}

const UNSUPPORTED: Error = Error::UnsupportedKey("tokens must be signed with RSA, P-256, P-384 or P-521");

fn verification(algorithm: JwsAlgorithm) -> &'static dyn VerificationAlgorithm {
    match algorithm {
        JwsAlgorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
        JwsAlgorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
        JwsAlgorithm::Es512 => &ECDSA_P521_SHA512_FIXED,
        JwsAlgorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
    }
}

/// Parses an uncompressed point: a 4, then both coordinates.
fn point(bytes: &[u8], curve: &'static str, length: usize) -> Result<JwkParameters, Error> {
    match bytes.split_first() {
        Some((4, rest)) if rest.len() == length.saturating_mul(2) => {
            let (x, y) = rest.split_at(length);
            Ok(JwkParameters::Ec { curve, x: x.to_vec(), y: y.to_vec() })
        }
        _ => Err(UNSUPPORTED),
    }
}

/// `RSAPublicKey`, RFC 8017 appendix A.1.1.
#[derive(Sequence)]
struct RsaPublicKey<'a> {
    n: UintRef<'a>,
    e: UintRef<'a>,
}

fn rsa_parameters(bytes: &[u8]) -> Result<JwkParameters, Error> {
    let key = RsaPublicKey::from_der(bytes).map_err(Error::malformed("public key"))?;
    let (n, e) = (key.n.as_bytes().to_vec(), key.e.as_bytes().to_vec());
    if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&n.len().saturating_mul(8)) {
        return Err(Error::UnsupportedKey("RSA keys must have between 2048 and 8192 bits"));
    }
    Ok(JwkParameters::Rsa { n, e })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::PrivateKey;

    #[test]
    fn verifies_only_signatures_of_its_private_key() {
        let (own, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let key = JwsKey::new(own.public_key()).unwrap();
        assert_eq!(key.algorithm(), JwsAlgorithm::Es256);
        let good = own.sign_jws(b"message").unwrap();
        assert!(key.verifies(b"message", &good));
        assert!(!key.verifies(b"massage", &good));
        assert!(!key.verifies(b"message", &other.sign_jws(b"message").unwrap()));
        // The DER form of the same signature is not a valid JSON Web Signature.
        assert!(!key.verifies(b"message", &own.sign(b"message").unwrap()));
        let (_, short) = good.split_last().unwrap();
        for bad in [short, &[good.as_slice(), &[0]].concat(), &[0; 64], &[]] {
            assert!(!key.verifies(b"message", bad));
        }
    }

    #[test]
    fn shows_its_numbers_in_full_length() {
        let own = PrivateKey::generate().unwrap();
        let key = JwsKey::new(own.public_key()).unwrap();
        let JwkParameters::Ec { curve, x, y } = key.parameters() else { panic!("not a curve") };
        assert_eq!((*curve, x.len(), y.len()), ("P-256", 32, 32));
        assert!(own.public_key().as_der().ends_with(&[x.as_slice(), y].concat()));
        let rsa = Command::new("openssl").args(["genrsa", "2048"]).output().unwrap().stdout;
        let key = JwsKey::new(&PublicKey::list_from_pem(&rsa).unwrap().remove(0)).unwrap();
        let JwkParameters::Rsa { n, e } = key.parameters() else { panic!("not RSA") };
        assert_eq!((n.len(), e.as_slice()), (256, &[1, 0, 1][..]));
        assert!(n.first().is_some_and(|first| *first != 0));
    }

    #[test]
    fn reads_every_form_in_which_keys_are_kept() {
        let own = PrivateKey::generate().unwrap();
        let public = own.public_key().to_pem();
        let private = own.to_pem().unwrap().to_string();
        let both = format!("{public}{private}");
        for (text, count) in [(&public, 1), (&private, 1), (&both, 2)] {
            let keys = PublicKey::list_from_pem(text.as_bytes()).unwrap();
            assert_eq!(keys.len(), count);
            assert!(keys.iter().all(|key| key == own.public_key()));
        }
        assert!(PublicKey::list_from_pem(b"no key").is_err());
    }
}
