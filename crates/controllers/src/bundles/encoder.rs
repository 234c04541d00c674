//! Encoding of the content of targets. The same certificates and passwords give the same bytes.

use std::collections::BTreeMap;

use windlass_api::trust_bundle::{AdditionalFormats, JKS_PASSWORD, Pkcs12Keystore, StorePassword};
use windlass_pki::{KeystoreError, KeystorePassword, KeystoreProtection, Pkcs12Profile, TrustStore};

use super::certificate_set::CertificateSet;

/// Certificates of a Bundle, encoded once and written to all of its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedBundle {
    /// All certificates as PEM, in a stable order.
    pub pem: String,
    /// Certificates that a ClusterTrustBundle may hold, as PEM.
    pub authorities: String,
    /// Additional formats by key.
    pub stores: BTreeMap<String, Vec<u8>>,
}

/// Reason for which a format could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The Java keystore could not be encoded.
    #[error("failed to encode JKS: {0}")]
    Jks(KeystoreError),
    /// The PKCS#12 store could not be encoded.
    #[error("failed to encode PKCS12: {0}")]
    Pkcs12(KeystoreError),
}

/// Encodes all formats. PKCS#12 with a password is slow, so call it once per Bundle, not per target.
pub fn encode(
    pool: &CertificateSet,
    formats: Option<&AdditionalFormats>,
) -> Result<EncodedBundle, EncodeError> {
    let mut content =
        EncodedBundle { pem: pool.pem(), authorities: pool.authorities_pem(), stores: BTreeMap::new() };
    let Some(formats) = formats else { return Ok(content) };
    let store = TrustStore::new(pool.certificates().map(|(_, certificate)| certificate));
    if let Some(jks) = &formats.jks {
        let password = jks.password.as_ref().map_or(JKS_PASSWORD, StorePassword::expose);
        let encoded = KeystorePassword::new(password).and_then(|password| store.to_jks(&password));
        content.stores.insert(jks.key.clone(), encoded.map_err(EncodeError::Jks)?);
    }
    if let Some(pkcs12) = &formats.pkcs12 {
        let encoded = self::encode_pkcs12(&store, pkcs12).map_err(EncodeError::Pkcs12)?;
        content.stores.insert(pkcs12.key.clone(), encoded);
    }
    Ok(content)
}

/// Without a password the store is not encrypted, whatever the profile is.
fn encode_pkcs12(store: &TrustStore, wanted: &Pkcs12Keystore) -> Result<Vec<u8>, KeystoreError> {
    let password = wanted.password.as_ref().map_or("", StorePassword::expose);
    if password.is_empty() {
        return store.to_pkcs12(&KeystoreProtection::Open);
    }
    let profile = wanted.profile.as_deref().and_then(Pkcs12Profile::from_name);
    let profile = profile.unwrap_or(Pkcs12Profile::LegacyRc2);
    store.to_pkcs12(&KeystoreProtection::Sealed { password: &KeystorePassword::new(password)?, profile })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bundles::certificate_set::CertificateFilter;
    use crate::bundles::fixtures::{self, ED25519, P256};

    fn content(parts: &[&str], formats: Value) -> Result<EncodedBundle, EncodeError> {
        let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
        pool.add(parts.concat().as_bytes()).unwrap();
        let formats: Option<AdditionalFormats> = serde_json::from_value(formats).unwrap();
        encode(&pool, formats.as_ref())
    }

    #[test]
    fn the_same_certificates_are_the_same_bytes() {
        for profile in ["LegacyRC2", "LegacyDES", "Modern2023"] {
            let pkcs12 = json!({"key": "p", "password": "secret", "profile": profile});
            let formats = json!({"jks": {"key": "j"}, "pkcs12": pkcs12});
            let one = content(&[P256, ED25519], formats.clone()).unwrap();
            let other = content(&[ED25519, P256, P256], formats).unwrap();
            assert_eq!(one, other, "{profile}");
            assert_eq!(one.stores.keys().collect::<Vec<_>>(), ["j", "p"]);
            assert_eq!(one.stores["j"][..4], [0xfe, 0xed, 0xfe, 0xed]);
        }
    }

    #[test]
    fn unset_fields_mean_the_same_as_in_trust_manager() {
        let unset = content(&[P256], json!({"pkcs12": {"key": "p", "password": "x"}})).unwrap();
        let pkcs12 = json!({"key": "p", "password": "x", "profile": "LegacyRC2"});
        assert_eq!(unset, content(&[P256], json!({"pkcs12": pkcs12})).unwrap());
        let open = json!({"pkcs12": {"key": "p", "password": "", "profile": "Modern2023"}});
        let plain = json!({"pkcs12": {"key": "p"}});
        assert_eq!(content(&[P256], open).unwrap(), content(&[P256], plain).unwrap());
        let given = json!({"jks": {"key": "j", "password": "changeit"}});
        let default = json!({"jks": {"key": "j"}});
        assert_eq!(content(&[P256], given).unwrap(), content(&[P256], default).unwrap());
        assert_eq!(content(&[P256], Value::Null).unwrap().pem, P256.trim_end());
    }

    #[test]
    fn formats_that_cannot_be_encoded_are_errors() {
        let long = json!({"jks": {"key": "j", "password": "x".repeat(129)}});
        assert_eq!(
            content(&[P256], long).unwrap_err().to_string(),
            "failed to encode JKS: a keystore password must have between 1 and 128 characters"
        );
    }
}
