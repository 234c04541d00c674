//! Keystores: certificates and keys in the files that Java and .NET read.
//!
//! - [`TrustStore`]: a set of anchors, as PKCS#12 or as JKS, named and laid out as trust-manager
//!   does it.
//! - [`KeyStore`]: a private key and its chain, as PKCS#12.
//!
//! The same content, password and profile give the same bytes, so that an unchanged set is an
//! unchanged file. PKCS#12 wants salts and initialisation vectors; here they are computed from the
//! content and the password instead of being drawn ([`encryption`]). That is acceptable because of what
//! they are for:
//!
//! - A vector must not serve two contents under one key. Another content has another salt, and so
//!   another key: a key serves one content only.
//! - A salt keeps guesses at one password from being of use against another store. Stores share a
//!   salt only if they share content, profile and password: then there is nothing new to guess.
//! - A salt that depends on the password lets somebody who knows the content try passwords on the
//!   salt. It is computed with as many rounds as the encryption key, so that this is no faster than
//!   trying them on the store. The content of a key store includes the private key, which a guesser
//!   does not know.
//!
//! What is given away is whether two stores are the same, which is what we want to know.
//!
//! A password here is often no secret: that of a trust store is mostly `changeit`, and is there
//! because readers want one. It is treated as a secret all the same, since that of a key store may
//! be one.

mod alias;
mod encryption;
mod jks;
mod pkcs12;

use aws_lc_rs::digest::{SHA256, digest};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::limits::{MAX_ALIAS_CHARACTERS, MAX_PASSWORD_CHARACTERS};
use crate::{Error, ForeignCertificate, PrivateKey};

/// A keystore's password: 1 to 128 characters. It cannot be printed, and is wiped when dropped.
pub struct KeystorePassword(Zeroizing<String>);

/// How a PKCS#12 store is encrypted and authenticated, as trust-manager names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pkcs12Profile {
    /// Certificates by RC2 with 40 bits, keys by triple DES, SHA-1. Every reader knows it; it
    /// hides nothing from anybody who tries.
    LegacyRc2,
    /// Certificates and keys encrypted with triple DES, integrity by SHA-1.
    LegacyDes,
    /// AES-256, PBKDF2 and SHA-256: OpenSSL 1.1.1, Java 12 or Windows Server 2019 and newer.
    Modern2023,
}

/// What a PKCS#12 trust store is protected with.
#[derive(Clone, Copy)]
pub enum KeystoreProtection<'a> {
    /// Nothing: neither encrypted nor authenticated. Java takes such a store without a password.
    Open,
    /// Encrypted and authenticated with a password.
    Sealed {
        /// Password that readers need to open the store.
        password: &'a KeystorePassword,
        /// Algorithms for encryption and integrity protection.
        profile: Pkcs12Profile,
    },
}

/// Why a keystore could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeystoreError {
    /// The password is empty or too long.
    #[error("a keystore password must have between 1 and {MAX_PASSWORD_CHARACTERS} characters")]
    PasswordLength,
    /// The alias is empty or too long.
    #[error("a keystore alias must have between 1 and {MAX_ALIAS_CHARACTERS} characters")]
    AliasLength,
    /// There is no certificate for the key.
    #[error("a key store needs a certificate for its key")]
    NoCertificate,
    /// The private key does not belong to the first certificate of the chain.
    #[error("the private key does not belong to the first certificate")]
    KeyMismatch,
    /// More content than the format can hold.
    #[error("the content does not fit into a keystore")]
    TooLarge,
    /// The private key could not be encoded.
    #[error(transparent)]
    Key(#[from] Error),
    /// The cryptographic library refused an operation that should not fail.
    #[error("cryptographic operation failed: {0}")]
    Crypto(&'static str),
}

/// A set of certificates that are trusted. The order they came in and repetitions are forgotten.
#[derive(Debug, Clone)]
pub struct TrustStore {
    entries: Vec<TrustStoreEntry>,
}

#[derive(Debug, Clone)]
struct TrustStoreEntry {
    alias: String,
    der: Vec<u8>,
    not_before: OffsetDateTime,
}

/// A private key with its chain. Like the key, it cannot be printed.
pub struct KeyStore<'a> {
    alias: &'a str,
    key: &'a PrivateKey,
    chain: &'a [ForeignCertificate],
}

impl KeystorePassword {
    /// Takes a password, if it is neither empty nor too long.
    pub fn new(text: &str) -> Result<Self, KeystoreError> {
        match text.chars().take(MAX_PASSWORD_CHARACTERS.saturating_add(1)).count() {
            1..=MAX_PASSWORD_CHARACTERS => Ok(Self(Zeroizing::new(text.to_owned()))),
            _ => Err(KeystoreError::PasswordLength),
        }
    }

    fn utf8(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// As Java keeps characters: what JKS and the key derivation of PKCS#12 want.
    fn utf16(&self) -> Zeroizing<Vec<u8>> {
        // Room for all, so that growing leaves no copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.0.len().saturating_mul(2)));
        for unit in self.0.encode_utf16() {
            bytes.extend_from_slice(&unit.to_be_bytes());
        }
        bytes
    }
}

impl Pkcs12Profile {
    /// All profiles that trust-manager defines, oldest first.
    pub const ALL: [Self; 3] = [Self::LegacyRc2, Self::LegacyDes, Self::Modern2023];

    /// The name in trust-manager's API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LegacyRc2 => "LegacyRC2",
            Self::LegacyDes => "LegacyDES",
            Self::Modern2023 => "Modern2023",
        }
    }

    /// The profile of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

impl TrustStore {
    /// Takes a set of anchors; it may be empty.
    pub fn new<'a>(anchors: impl IntoIterator<Item = &'a ForeignCertificate>) -> Self {
        let mut anchors = anchors
            .into_iter()
            .map(|anchor| (digest(&SHA256, anchor.der()), anchor))
            .collect::<Vec<_>>();
        anchors.sort_unstable_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        anchors.dedup_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
        let names = anchors.iter().map(|(digest, anchor)| (digest.as_ref(), anchor.subject()));
        let aliases = alias::unique_aliases(names);
        let entries = aliases.into_iter().zip(&anchors).map(|(alias, (_, anchor))| {
            TrustStoreEntry { alias, der: anchor.der().to_vec(), not_before: anchor.not_before() }
        });
        Self { entries: entries.collect() }
    }

    /// The name of each anchor in the store, in the order of a PKCS#12 store. JKS and Java keep
    /// them in lower case.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.alias.as_str())
    }

    /// Encodes the trust store as PKCS#12, protected as requested.
    pub fn to_pkcs12(&self, protection: &KeystoreProtection<'_>) -> Result<Vec<u8>, KeystoreError> {
        pkcs12::trust_store(&self.entries, protection)
    }

    /// Encodes the trust store as JKS; the password only authenticates it.
    pub fn to_jks(&self, password: &KeystorePassword) -> Result<Vec<u8>, KeystoreError> {
        jks::trust_store(&self.entries, password)
    }
}

impl<'a> KeyStore<'a> {
    /// Takes a key and its chain, the certificate of the key first. Whether the rest of the chain
    /// belongs together is not looked at.
    pub fn new(
        alias: &'a str,
        key: &'a PrivateKey,
        chain: &'a [ForeignCertificate],
    ) -> Result<Self, KeystoreError> {
        if alias.is_empty() || alias.chars().nth(MAX_ALIAS_CHARACTERS).is_some() {
            return Err(KeystoreError::AliasLength);
        }
        let leaf = chain.first().ok_or(KeystoreError::NoCertificate)?;
        // Others may write the same key in another way.
        let certified = leaf.public_key().to_public_key();
        if certified.is_ok_and(|certified| certified == *key.public_key()) {
            Ok(Self { alias, key, chain })
        } else {
            Err(KeystoreError::KeyMismatch)
        }
    }

    /// Writes it as PKCS#12. Readers disagree about keys without a password, so there is no such
    /// store.
    pub fn to_pkcs12(
        &self,
        password: &KeystorePassword,
        profile: Pkcs12Profile,
    ) -> Result<Vec<u8>, KeystoreError> {
        let chain = self.chain.iter().map(ForeignCertificate::der).collect::<Vec<_>>();
        pkcs12::key_store(self.alias, self.key.to_pkcs8()?, &chain, password, profile)
    }
}

#[cfg(test)]
mod tests;
