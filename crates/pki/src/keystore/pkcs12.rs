//! PKCS#12 structures (RFC 7292).

use aws_lc_rs::digest::{SHA256, digest};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::encrypted_data::EncryptedData;
use cms::enveloped_data::EncryptedContentInfo;
use der::asn1::{Any, ObjectIdentifier, OctetString, SetOfVec};
use der::{Encode, Tag};
use pkcs12::CertBag;
use pkcs12::pbe_params::EncryptedPrivateKeyInfo;
use pkcs12::pfx::{Pfx, Version};
use pkcs12::safe_bag::SafeBag;
use x509_cert::attr::Attribute;
use zeroize::Zeroizing;

use super::encryption::{ContentEncryptor, EncryptedPart};
use super::{KeystoreError, KeystorePassword, KeystoreProtection, Pkcs12Profile, TrustStoreEntry};

const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const ENCRYPTED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.6");
const SHROUDED_KEY_BAG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.10.1.2");
const CERTIFICATE_BAG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.10.1.3");
const X509_CERTIFICATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.22.1");
const FRIENDLY_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.20");
const LOCAL_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.21");
/// Java treats a certificate as an anchor only with this attribute.
const TRUSTED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.113894.746875.1.1");
const ANY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

pub(super) fn trust_store(
    entries: &[TrustStoreEntry],
    protection: &KeystoreProtection<'_>,
) -> Result<Vec<u8>, KeystoreError> {
    let bags = entries.iter().map(|entry| {
        let trusted = attribute(TRUSTED_KEY_USAGE, ANY_USAGE.to_der())?;
        certificate_bag(&entry.der, vec![friendly_name(&entry.alias)?, trusted])
    });
    let bags = bags.collect::<Result<Vec<_>, _>>()?.to_der().map_err(too_large)?;
    match protection {
        KeystoreProtection::Open => encode_store(vec![plain_content(bags)?], None),
        KeystoreProtection::Sealed { password, profile } => {
            let sealer = ContentEncryptor::new(password, *profile, &[&bags]);
            encode_store(vec![encrypted_content(&sealer, bags)?], Some(&sealer))
        }
    }
}

pub(super) fn key_store(
    alias: &str,
    key: Zeroizing<Vec<u8>>,
    chain: &[&[u8]],
    password: &KeystorePassword,
    profile: Pkcs12Profile,
) -> Result<Vec<u8>, KeystoreError> {
    // Links the key to its certificate. Any octets do.
    let leaf = digest(&SHA256, chain.first().ok_or(KeystoreError::NoCertificate)?);
    let id = OctetString::new(leaf.as_ref()).and_then(|id| id.to_der());
    let named = vec![friendly_name(alias)?, attribute(LOCAL_KEY_ID, id)?];
    let bags = chain.iter().enumerate().map(|(index, certificate)| {
        certificate_bag(certificate, if index == 0 { named.clone() } else { Vec::new() })
    });
    let bags = bags.collect::<Result<Vec<_>, _>>()?.to_der().map_err(too_large)?;
    let sealer = ContentEncryptor::new(password, profile, &[&bags, &key]);
    let (encryption_algorithm, encrypted) = sealer.encrypt(EncryptedPart::Key, key)?;
    let encrypted_data = OctetString::new(encrypted).map_err(too_large)?;
    let shrouded = EncryptedPrivateKeyInfo { encryption_algorithm, encrypted_data };
    let key_bag = safe_bag(SHROUDED_KEY_BAG, shrouded.to_der(), named)?;
    let keys = vec![key_bag].to_der().map_err(too_large)?;
    encode_store(vec![encrypted_content(&sealer, bags)?, plain_content(keys)?], Some(&sealer))
}

fn certificate_bag(der: &[u8], attributes: Vec<Attribute>) -> Result<SafeBag, KeystoreError> {
    let cert_value = OctetString::new(der).map_err(too_large)?;
    safe_bag(CERTIFICATE_BAG, CertBag { cert_id: X509_CERTIFICATE, cert_value }.to_der(), attributes)
}

fn safe_bag(
    bag_id: ObjectIdentifier,
    value: der::Result<Vec<u8>>,
    attributes: Vec<Attribute>,
) -> Result<SafeBag, KeystoreError> {
    let bag_value = value.map_err(too_large)?;
    let attributes = SetOfVec::try_from(attributes).map_err(too_large)?;
    let bag_attributes = (!attributes.is_empty()).then_some(attributes);
    Ok(SafeBag { bag_id, bag_value, bag_attributes })
}

/// A BMPString cannot hold characters beyond the first 65536. Java and OpenSSL read it as UTF-16,
/// so UTF-16 is written.
fn friendly_name(alias: &str) -> Result<Attribute, KeystoreError> {
    let units = alias.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    attribute(FRIENDLY_NAME, Any::new(Tag::BmpString, units).and_then(|name| name.to_der()))
}

fn attribute(oid: ObjectIdentifier, value: der::Result<Vec<u8>>) -> Result<Attribute, KeystoreError> {
    let values = SetOfVec::try_from(vec![parse_any(value)?]).map_err(too_large)?;
    Ok(Attribute { oid, values })
}

/// Wraps content that is not encrypted, or whose parts are.
fn plain_content(contents: Vec<u8>) -> Result<ContentInfo, KeystoreError> {
    let content = parse_any(OctetString::new(contents).and_then(|contents| contents.to_der()))?;
    Ok(ContentInfo { content_type: DATA, content })
}

fn encrypted_content(sealer: &ContentEncryptor<'_>, contents: Vec<u8>) -> Result<ContentInfo, KeystoreError> {
    let (content_enc_alg, encrypted) =
        sealer.encrypt(EncryptedPart::Certificates, Zeroizing::new(contents))?;
    let encrypted_content = Some(OctetString::new(encrypted).map_err(too_large)?);
    let enc_content_info = EncryptedContentInfo { content_type: DATA, content_enc_alg, encrypted_content };
    let data = EncryptedData { version: CmsVersion::V0, enc_content_info, unprotected_attrs: None };
    Ok(ContentInfo { content_type: ENCRYPTED_DATA, content: parse_any(data.to_der())? })
}

fn encode_store(
    parts: Vec<ContentInfo>,
    sealer: Option<&ContentEncryptor<'_>>,
) -> Result<Vec<u8>, KeystoreError> {
    let parts = parts.to_der().map_err(too_large)?;
    let mac_data = sealer.map(|sealer| sealer.authenticate(&parts)).transpose()?;
    Pfx { version: Version::V3, auth_safe: plain_content(parts)?, mac_data }.to_der().map_err(too_large)
}

pub(super) fn parse_any(der: der::Result<Vec<u8>>) -> Result<Any, KeystoreError> {
    der.and_then(|der| der::Decode::from_der(&der)).map_err(too_large)
}

/// Encoding our own structures fails only beyond DER's 256 MiB.
pub(super) fn too_large(_: der::Error) -> KeystoreError {
    KeystoreError::TooLarge
}
