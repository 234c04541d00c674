//! Keystores: certificates and keys in file formats of Java and .NET.
//!
//! - [`TrustStore`]: a set of anchors as PKCS#12 or JKS, with trust-manager's aliases and layout.
//! - [`KeyStore`]: a private key and its chain as PKCS#12.
//!
//! The same content, password and profile give the same bytes, so an unchanged set is an unchanged
//! file. PKCS#12 requires salts and initialization vectors; here they are derived from the content
//! and the password instead of being random ([`encryption`]). This is acceptable because of their
//! purpose:
//!
//! - A vector must not be reused for two contents under one key. Different content has a different
//!   salt and therefore a different key: each key encrypts one content only.
//! - A salt prevents reuse of guesses at one password against another store. Stores share a salt
//!   only if they share content, profile and password; then there is nothing new to guess.
//! - A salt that depends on the password lets an attacker who knows the content test passwords
//!   against the salt. It is derived with as many rounds as the encryption key, so this is no
//!   faster than testing them against the store. The content of a key store includes the private
//!   key, which an attacker does not know.
//!
//! The scheme reveals whether two stores are equal, which is intended.
//!
//! A password here is often not secret: that of a trust store is mostly `changeit`, because readers
//! require one. It is still treated as a secret, since that of a key store may be one.

mod alias;
mod encryption;
mod jks;
mod pkcs12;

use aws_lc_rs::digest::{SHA256, digest};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::limits::{MAX_ALIAS_CHARACTERS, MAX_PASSWORD_CHARACTERS};
use crate::{Error, ForeignCertificate, PrivateKey};

/// A keystore password of 1 to 128 characters. It cannot be printed, and is wiped when dropped.
pub struct KeystorePassword(Zeroizing<String>);

/// Encryption and authentication of a PKCS#12 store, with trust-manager's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pkcs12Profile {
    /// Certificates with 40-bit RC2, keys with triple DES, SHA-1. Every reader supports it, but it
    /// is trivial to break.
    LegacyRc2,
    /// Certificates and keys encrypted with triple DES, integrity by SHA-1.
    LegacyDes,
    /// AES-256, PBKDF2 and SHA-256: OpenSSL 1.1.1, Java 12 or Windows Server 2019 and newer.
    Modern2023,
}

/// Protection of a PKCS#12 trust store.
#[derive(Clone, Copy)]
pub enum KeystoreProtection<'a> {
    /// Neither encrypted nor authenticated. Java opens such a store without a password.
    Open,
    /// Encrypted and authenticated with a password.
    Sealed {
        /// Password that readers need to open the store.
        password: &'a KeystorePassword,
        /// Algorithms for encryption and integrity protection.
        profile: Pkcs12Profile,
    },
}

/// Error of creating a keystore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeystoreError {
    /// The password is empty or too long.
    #[error("a keystore password must have between 1 and {MAX_PASSWORD_CHARACTERS} characters")]
    PasswordLength,
    /// The alias is empty or too long.
    #[error("a keystore alias must have between 1 and {MAX_ALIAS_CHARACTERS} characters")]
    AliasLength,
    /// The chain has no certificate for the key.
    #[error("a key store needs a certificate for its key")]
    NoCertificate,
    /// The private key does not match the first certificate of the chain.
    #[error("the private key does not belong to the first certificate")]
    KeyMismatch,
    /// The content exceeds what the format can hold.
    #[error("the content does not fit into a keystore")]
    TooLarge,
    /// The private key could not be encoded.
    #[error(transparent)]
    Key(#[from] Error),
    /// The cryptographic library failed an operation that should not fail.
    #[error("cryptographic operation failed: {0}")]
    Crypto(&'static str),
}

/// A set of trusted certificates, without order and duplicates.
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

/// A private key with its chain. It cannot be printed.
pub struct KeyStore<'a> {
    alias: &'a str,
    key: &'a PrivateKey,
    chain: &'a [ForeignCertificate],
}

impl KeystorePassword {
    /// Accepts a password that is neither empty nor too long.
    pub fn new(text: &str) -> Result<Self, KeystoreError> {
        match text.chars().take(MAX_PASSWORD_CHARACTERS.saturating_add(1)).count() {
            1..=MAX_PASSWORD_CHARACTERS => Ok(Self(Zeroizing::new(text.to_owned()))),
            _ => Err(KeystoreError::PasswordLength),
        }
    }

    fn utf8(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the password as UTF-16, which JKS and the PKCS#12 key derivation require.
    fn utf16(&self) -> Zeroizing<Vec<u8>> {
        // Full capacity, so that growing leaves no copies behind.
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

    /// Returns the name in trust-manager's API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LegacyRc2 => "LegacyRC2",
            Self::LegacyDes => "LegacyDES",
            Self::Modern2023 => "Modern2023",
        }
    }

    /// Returns the profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

impl TrustStore {
    /// Creates a trust store from anchors; the set may be empty.
    pub fn new<'a>(anchors: impl IntoIterator<Item = &'a ForeignCertificate>) -> Self {
        let mut anchors =
            anchors.into_iter().map(|anchor| (digest(&SHA256, anchor.der()), anchor)).collect::<Vec<_>>();
        anchors.sort_unstable_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        anchors.dedup_by(|(one, _), (other, _)| one.as_ref() == other.as_ref());
        let names = anchors.iter().map(|(digest, anchor)| (digest.as_ref(), anchor.subject()));
        let aliases = alias::unique_aliases(names);
        let entries = aliases.into_iter().zip(&anchors).map(|(alias, (_, anchor))| TrustStoreEntry {
            alias,
            der: anchor.der().to_vec(),
            not_before: anchor.not_before(),
        });
        Self { entries: entries.collect() }
    }

    /// Returns the alias of each anchor, in the order of a PKCS#12 store. JKS and Java store them
    /// in lower case.
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
    /// Creates a key store from a key and its chain, leaf first. Does not check that the rest of
    /// the chain belongs together.
    pub fn new(
        alias: &'a str,
        key: &'a PrivateKey,
        chain: &'a [ForeignCertificate],
    ) -> Result<Self, KeystoreError> {
        if alias.is_empty() || alias.chars().nth(MAX_ALIAS_CHARACTERS).is_some() {
            return Err(KeystoreError::AliasLength);
        }
        let leaf = chain.first().ok_or(KeystoreError::NoCertificate)?;
        // The certificate may encode the same key differently.
        let certified = leaf.public_key().to_public_key();
        if certified.is_ok_and(|certified| certified == *key.public_key()) {
            Ok(Self { alias, key, chain })
        } else {
            Err(KeystoreError::KeyMismatch)
        }
    }

    /// Encodes the key store as PKCS#12. A password is required, because readers disagree about
    /// keys without one.
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
