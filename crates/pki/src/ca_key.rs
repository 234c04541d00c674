//! The private key of a CA: in memory, or in a device that signs on request.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::{Error, PrivateKey, PublicKey, SignatureScheme};

/// A private key that signs elsewhere, for example in a PKCS#11 token. The implementation is outside
/// of this crate, which loads no libraries and opens no connections.
pub trait ExternalKey: fmt::Debug + Send + Sync {
    /// Public key of the pair; it never changes during the life of the object.
    fn public_key(&self) -> &PublicKey;

    /// Scheme of all signatures, usually [`SignatureScheme::for_key`] of the public key.
    fn signature_scheme(&self) -> SignatureScheme;

    /// Signs a message, which the implementation hashes. May block for as long as the device takes.
    /// If the device cannot sign now, the error is [`Error::KeyUnavailable`], and callers retry.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error>;
}

/// The private key of a CA.
#[derive(Debug)]
pub enum CaKey {
    /// A key in the memory of this process, which can be encoded.
    Local(PrivateKey),
    /// A key that another device or process holds; signing may fail for a while, and may block.
    External(Arc<dyn ExternalKey>),
}

impl CaKey {
    /// Returns the public key, which may be shown to anyone.
    pub fn public_key(&self) -> &PublicKey {
        match self {
            Self::Local(key) => key.public_key(),
            Self::External(key) => key.public_key(),
        }
    }

    /// Returns the scheme of signatures by [`Self::sign`].
    pub fn signature_scheme(&self) -> SignatureScheme {
        match self {
            Self::Local(key) => key.signature_scheme(),
            Self::External(key) => key.signature_scheme(),
        }
    }

    /// Signs a message. Blocks while an external key signs. Signatures of an external key are
    /// verified, because its device may hold another key than its configuration says.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Local(key) => key.sign(message),
            Self::External(key) => {
                let signature = key.sign(message)?;
                if !self.verifies(message, &signature) {
                    let reason = "its signature does not match the public key of the CA";
                    return Err(Error::KeyUnavailable(reason.to_owned()));
                }
                Ok(signature)
            }
        }
    }

    /// Encodes a local key as PKCS#8 PEM; external keys cannot be encoded.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        match self {
            Self::Local(key) => key.to_pem(),
            Self::External(_) => Err(Error::UnsupportedKey("an external key cannot be exported")),
        }
    }

    /// Returns true if [`Self::sign`] with this key created the signature of this message.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.signature_scheme().verifies(self.public_key(), message, signature)
    }
}

impl From<PrivateKey> for CaKey {
    fn from(key: PrivateKey) -> Self {
        Self::Local(key)
    }
}

impl From<Arc<dyn ExternalKey>> for CaKey {
    fn from(key: Arc<dyn ExternalKey>) -> Self {
        Self::External(key)
    }
}

#[cfg(test)]
mod tests;
