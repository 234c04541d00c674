//! Trust stores in Java's JKS format.
//!
//! The implementation is the only specification: magic and version, the number of entries, the
//! entries, and a SHA-1 over the password, a phrase and all of that. Nothing is encrypted. Lengths
//! are big-endian, text is Java's modified UTF-8.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use super::{KeystoreError, KeystorePassword, TrustStoreEntry};

const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
/// Certificate type that trust-manager writes. Java itself writes `X.509`, and accepts either.
const CERTIFICATE_TYPE: &str = "X509";
/// Phrase that Java includes in the integrity hash.
const PHRASE: &[u8] = b"Mighty Aphrodite";

/// Encodes the entries ordered by alias, which Java looks up in lower case.
pub(super) fn trust_store(
    entries: &[TrustStoreEntry],
    password: &KeystorePassword,
) -> Result<Vec<u8>, KeystoreError> {
    let mut named = entries.iter().map(|entry| (entry.alias.to_lowercase(), entry)).collect::<Vec<_>>();
    named.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut store = Vec::new();
    store.extend_from_slice(&MAGIC.to_be_bytes());
    store.extend_from_slice(&VERSION.to_be_bytes());
    push_length(&mut store, named.len())?;
    for (alias, entry) in named {
        store.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        push_text(&mut store, &alias)?;
        // The timestamp of an entry must not depend on when the store is written.
        store.extend_from_slice(&milliseconds(entry).to_be_bytes());
        push_text(&mut store, CERTIFICATE_TYPE)?;
        push_length(&mut store, entry.der.len())?;
        store.extend_from_slice(&entry.der);
    }
    let mut integrity = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for part in [password.utf16().as_slice(), PHRASE, &store] {
        integrity.update(part);
    }
    store.extend_from_slice(integrity.finish().as_ref());
    Ok(store)
}

fn milliseconds(entry: &TrustStoreEntry) -> i64 {
    entry.not_before.unix_timestamp().saturating_mul(1000)
}

fn push_length(store: &mut Vec<u8>, length: usize) -> Result<(), KeystoreError> {
    // Java's lengths are signed.
    let length = i32::try_from(length).map_err(|_| KeystoreError::TooLarge)?;
    store.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Appends modified UTF-8: each UTF-16 unit separately, and zero as two bytes.
fn push_text(store: &mut Vec<u8>, text: &str) -> Result<(), KeystoreError> {
    let mut encoded = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        let [first, second, third] = [unit >> 12, unit >> 6 & 0x3F, unit & 0x3F].map(low_byte);
        match unit {
            0x01..=0x7F => encoded.push(low_byte(unit)),
            0x00 | 0x80..=0x7FF => encoded.extend([0xC0 | second, 0x80 | third]),
            0x800.. => encoded.extend([0xE0 | first, 0x80 | second, 0x80 | third]),
        }
    }
    let length = u16::try_from(encoded.len()).map_err(|_| KeystoreError::TooLarge)?;
    store.extend_from_slice(&length.to_be_bytes());
    store.extend_from_slice(&encoded);
    Ok(())
}

const fn low_byte(unit: u16) -> u8 {
    let [_, low] = unit.to_be_bytes();
    low
}
