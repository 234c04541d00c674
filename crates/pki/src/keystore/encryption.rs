//! Password-based encryption and authentication of PKCS#12 stores.
//!
//! Nothing here is random; the documentation of [`super`] explains why that is safe. HKDF derives
//! all salts and vectors from one seed, which is PBKDF2 of the password, salted with the content.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{AES_256, EncryptionContext, PaddedBlockEncryptingKey, UnboundCipherKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{hkdf, hmac, pbkdf2};
use cbc::Encryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherEncrypt, BlockModeEncrypt, KeyInit, KeyIvInit};
use der::Encode;
use der::asn1::{Any, ObjectIdentifier, OctetString};
use des::TdesEde3;
use pkcs12::kdf::{Pkcs12KeyType, derive_key};
use pkcs12::pbe_params::{Pbes2Params, Pbkdf2Params, Pkcs12PbeParams};
use pkcs12::{DigestInfo, MacData};
use rc2::Rc2;
use sha1::Sha1;
use sha2::Sha256;
use x509_cert::spki::AlgorithmIdentifierOwned;
use zeroize::Zeroizing;

use super::pkcs12::{parse_any, too_large};
use super::{KeystoreError, KeystorePassword, Pkcs12Profile};

const RC2_40: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.6");
const TRIPLE_DES: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.3");
const PBES2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.13");
const PBKDF2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.12");
const HMAC_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.2.9");
const AES_256_CBC: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.42");
const SHA1_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA256_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

#[derive(Clone, Copy)]
pub(super) enum EncryptedPart {
    Certificates,
    Key,
}

/// Encryption algorithm of one part.
enum EncryptionScheme {
    Rc2,
    TripleDes,
    Aes,
}

pub(super) struct ContentEncryptor<'a> {
    password: &'a KeystorePassword,
    /// Password as the PKCS#12 key derivation requires it, with terminator.
    characters: Zeroizing<Vec<u8>>,
    profile: Pkcs12Profile,
    seed: hkdf::Prk,
}

impl<'a> ContentEncryptor<'a> {
    /// Takes all content that will be encrypted.
    pub(super) fn new(password: &'a KeystorePassword, profile: Pkcs12Profile, contents: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"windlass keystore 1\0");
        context.update(profile.name().as_bytes());
        for content in contents {
            // Prefixed with its length, so that bytes cannot move between contents.
            context.update(&content.len().to_be_bytes());
            context.update(content);
        }
        let mut seed = Zeroizing::new([0; 32]);
        let content = context.finish();
        let rounds = profile.iterations();
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            content.as_ref(),
            password.utf8(),
            seed.as_mut_slice(),
        );
        let seed = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, seed.as_slice());
        let units = password.utf16();
        let mut characters = Zeroizing::new(Vec::with_capacity(units.len().saturating_add(2)));
        characters.extend_from_slice(&units);
        characters.extend_from_slice(&[0, 0]);
        Self { password, characters, profile, seed }
    }

    /// Encrypts a part, and returns the algorithm used.
    pub(super) fn encrypt(
        &self,
        part: EncryptedPart,
        plain: Zeroizing<Vec<u8>>,
    ) -> Result<(AlgorithmIdentifierOwned, Vec<u8>), KeystoreError> {
        let (salt_use, vector_use) = match part {
            EncryptedPart::Certificates => ("certificates salt", "certificates vector"),
            EncryptedPart::Key => ("key salt", "key vector"),
        };
        match self.profile.scheme(part) {
            EncryptionScheme::Rc2 => {
                self.encrypt_legacy::<Rc2>(RC2_40, 5, self.derive_bytes(salt_use)?, &plain)
            }
            EncryptionScheme::TripleDes => {
                self.encrypt_legacy::<TdesEde3>(TRIPLE_DES, 24, self.derive_bytes(salt_use)?, &plain)
            }
            EncryptionScheme::Aes => {
                self.encrypt_modern(self.derive_bytes(salt_use)?, self.derive_bytes(vector_use)?, plain)
            }
        }
    }

    /// Encrypts by RFC 7292 appendix C: key and vector are derived from password and salt.
    fn encrypt_legacy<C: BlockCipherEncrypt + KeyInit>(
        &self,
        oid: ObjectIdentifier,
        key_bytes: usize,
        salt: [u8; OLD_SALT_BYTES],
        plain: &[u8],
    ) -> Result<(AlgorithmIdentifierOwned, Vec<u8>), KeystoreError> {
        let iterations = self.profile.iterations_as_integer();
        let derive = |kind, length| {
            let derived = derive_key::<Sha1>(&self.characters, &salt, kind, iterations, length);
            Zeroizing::new(derived)
        };
        let key = derive(Pkcs12KeyType::EncryptionKey, key_bytes);
        let vector = derive(Pkcs12KeyType::Iv, C::block_size());
        let cipher = Encryptor::<C>::new_from_slices(&key, &vector);
        let cipher = cipher.map_err(|_| KeystoreError::Crypto("encrypting a keystore"))?;
        let salt = OctetString::new(salt).map_err(too_large)?;
        let parameters = parse_any(Pkcs12PbeParams { salt, iterations }.to_der())?;
        Ok((algorithm(oid, parameters), cipher.encrypt_padded_vec::<Pkcs7>(plain)))
    }

    /// Encrypts with PBES2 (RFC 8018) and AES-256.
    fn encrypt_modern(
        &self,
        salt: [u8; 16],
        vector: [u8; 16],
        mut plain: Zeroizing<Vec<u8>>,
    ) -> Result<(AlgorithmIdentifierOwned, Vec<u8>), KeystoreError> {
        let failed = |_| KeystoreError::Crypto("encrypting a keystore");
        let rounds = self.profile.iterations();
        let mut key = Zeroizing::new([0; 32]);
        let password = self.password.utf8();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password, key.as_mut_slice());
        // Capacity for the padding, so that growing leaves no copy of a key behind.
        let mut buffer = Zeroizing::new(Vec::with_capacity(plain.len().saturating_add(16)));
        buffer.append(&mut plain);
        let key = UnboundCipherKey::new(&AES_256, key.as_slice()).map_err(failed)?;
        let context = EncryptionContext::Iv128(FixedLength::from(&vector));
        PaddedBlockEncryptingKey::cbc_pkcs7(key)
            .and_then(|key| key.less_safe_encrypt(&mut *buffer, context))
            .map_err(failed)?;
        let kdf = Pbkdf2Params {
            salt: OctetString::new(salt).map_err(too_large)?,
            iteration_count: rounds.get(),
            key_length: None,
            prf: algorithm(HMAC_SHA256, Any::null()),
        };
        let vector = OctetString::new(vector).and_then(|vector| vector.to_der());
        let parameters = Pbes2Params {
            kdf: algorithm(PBKDF2, parse_any(kdf.to_der())?),
            encryption: algorithm(AES_256_CBC, parse_any(vector)?),
        };
        Ok((algorithm(PBES2, parse_any(parameters.to_der())?), std::mem::take(&mut *buffer)))
    }

    /// Computes the MAC by which a reader verifies the password and the integrity.
    pub(super) fn authenticate(&self, contents: &[u8]) -> Result<MacData, KeystoreError> {
        let iterations = self.profile.iterations_as_integer();
        let mac = Pkcs12KeyType::Mac;
        let (oid, kind, salt, key) = match self.profile {
            Pkcs12Profile::LegacyRc2 | Pkcs12Profile::LegacyDes => {
                let salt = self.derive_bytes::<OLD_SALT_BYTES>("mac salt")?.to_vec();
                let key = derive_key::<Sha1>(&self.characters, &salt, mac, iterations, 20);
                (SHA1_DIGEST, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt, key)
            }
            Pkcs12Profile::Modern2023 => {
                let salt = self.derive_bytes::<16>("mac salt")?.to_vec();
                let key = derive_key::<Sha256>(&self.characters, &salt, mac, iterations, 32);
                (SHA256_DIGEST, hmac::HMAC_SHA256, salt, key)
            }
        };
        let key = hmac::Key::new(kind, &Zeroizing::new(key));
        let digest = OctetString::new(hmac::sign(&key, contents).as_ref()).map_err(too_large)?;
        Ok(MacData {
            mac: DigestInfo { algorithm: algorithm(oid, Any::null()), digest },
            mac_salt: OctetString::new(salt).map_err(too_large)?,
            iterations,
        })
    }

    fn derive_bytes<const LENGTH: usize>(&self, usage: &str) -> Result<[u8; LENGTH], KeystoreError> {
        let mut octets = [0; LENGTH];
        self.seed
            .expand(&[usage.as_bytes()], OutputLength(LENGTH))
            .and_then(|derived| derived.fill(&mut octets))
            .map_err(|_| KeystoreError::Crypto("deriving a salt"))?;
        Ok(octets)
    }
}

/// Salt length of the legacy profiles in OpenSSL and Go.
const OLD_SALT_BYTES: usize = 8;

/// Number of octets to derive with HKDF.
struct OutputLength(usize);

impl hkdf::KeyType for OutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

impl Pkcs12Profile {
    const fn scheme(self, part: EncryptedPart) -> EncryptionScheme {
        match (self, part) {
            (Self::LegacyRc2, EncryptedPart::Certificates) => EncryptionScheme::Rc2,
            (Self::LegacyRc2, EncryptedPart::Key) | (Self::LegacyDes, _) => EncryptionScheme::TripleDes,
            (Self::Modern2023, _) => EncryptionScheme::Aes,
        }
    }

    /// Returns the iterations of every key derivation from a password. The legacy profiles use
    /// OpenSSL's count; trust-manager's MAC uses a single iteration, which makes guessing cheap and
    /// benefits no reader. The modern profile uses Java's count.
    const fn iterations(self) -> NonZeroU32 {
        let rounds = match self {
            Self::LegacyRc2 | Self::LegacyDes => NonZeroU32::new(2048),
            Self::Modern2023 => NonZeroU32::new(10_000),
        };
        match rounds {
            Some(rounds) => rounds,
            None => NonZeroU32::MIN,
        }
    }

    const fn iterations_as_integer(self) -> i32 {
        self.iterations().get().cast_signed()
    }
}

fn algorithm(oid: ObjectIdentifier, parameters: Any) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid, parameters: Some(parameters) }
}
