//! Proving that one has a key, as pods' requests for certificates did before they held a request.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P521_SHA256_ASN1_SIGNING, EcdsaKeyPair, RSA_PSS_SHA256};

use super::{EcdsaCurve, PrivateKey, SigningKeyPair};
use crate::Error;

impl PrivateKey {
    /// Signs a message as [`SubjectKey::verify_possession`](crate::SubjectKey::verify_possession)
    /// wants it. There is no such signature by a P-384 key: it would be over SHA-256, and the library
    /// has none.
    pub fn prove_possession(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match &self.pair {
            SigningKeyPair::Ecdsa(EcdsaCurve::P256, _) | SigningKeyPair::Ed25519(_) => {
                self.sign(message)
            }
            SigningKeyPair::Ecdsa(EcdsaCurve::P384, _) => {
                Err(Error::UnsupportedKey("P-384 cannot sign over SHA-256"))
            }
            SigningKeyPair::Ecdsa(EcdsaCurve::P521, _) => {
                let der = self.to_pkcs8()?;
                let pair =
                    EcdsaKeyPair::from_private_key_der(&ECDSA_P521_SHA256_ASN1_SIGNING, &der);
                let pair = pair.map_err(|_| Error::Crypto("reading a key"))?;
                let proof = pair.sign(&SystemRandom::new(), message);
                Ok(proof.map_err(|_| Error::Crypto("signing"))?.as_ref().to_vec())
            }
            SigningKeyPair::Rsa(pair) => {
                let mut proof = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PSS_SHA256, &SystemRandom::new(), message, &mut proof)
                    .map_err(|_| Error::Crypto("signing"))?;
                Ok(proof)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyKind, SubjectKey};

    #[test]
    fn a_proof_is_taken_for_one() {
        for kind in [KeyKind::P256, KeyKind::P521, KeyKind::Rsa3072, KeyKind::Ed25519] {
            let key = PrivateKey::generate_kind(kind).unwrap();
            let proof = key.prove_possession(b"a pod's uid").unwrap();
            let public = SubjectKey::from_der(key.public_key().as_der()).unwrap();
            assert_eq!(public.verify_possession(b"a pod's uid", &proof), Ok(()), "{kind:?}");
            assert!(public.verify_possession(b"another's", &proof).is_err(), "{kind:?}");
        }
        let key = PrivateKey::generate_kind(KeyKind::P384).unwrap();
        assert!(key.prove_possession(b"a pod's uid").is_err());
    }
}
