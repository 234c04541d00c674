//! PKCS#10 certificate requests (RFC 2986), encoded as Go encodes them.

use crate::authority::add_signature;
use crate::der_syntax::encode_tlv;
use crate::issuance::alt_names;
use crate::{AltNames, CertificateRequest, Error, IssuedSubject, PrivateKey, pem};

const LABEL: &str = "CERTIFICATE REQUEST";
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Tag of the request's attributes: `[0]`, constructed.
const ATTRIBUTES: u8 = 0xa0;
/// OID of the `extensionRequest` attribute: `1.2.840.113549.1.9.14`.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// OID of the `subjectAltName` extension: `2.5.29.17`.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Builds a PEM certificate request with these names. The key signs it as proof of possession.
pub fn build_csr(key: &PrivateKey, subject: &IssuedSubject, names: &AltNames) -> Result<String, Error> {
    if subject.is_empty() && names.is_empty() {
        let reason = "neither a subject nor an alternative name is given";
        return Err(Error::InvalidName { what: "request", reason });
    }
    Ok(pem::encode(LABEL, &encode_csr(key, subject, names)?).to_string())
}

/// Builds a DER certificate request with an empty subject, which serves only as proof of possession
/// of the key.
pub fn build_stub_csr(key: &PrivateKey) -> Result<Vec<u8>, Error> {
    encode_csr(key, &IssuedSubject::new("", &[]), &AltNames::default())
}

fn encode_csr(key: &PrivateKey, subject: &IssuedSubject, names: &AltNames) -> Result<Vec<u8>, Error> {
    let names = alt_names::canonical(names)?;
    let body = [
        // Version 1 is encoded as 0.
        encode_tlv(INTEGER, &[0]),
        subject.as_der().to_vec(),
        key.public_key().as_der().to_vec(),
        encode_tlv(ATTRIBUTES, &encode_attributes(&names)),
    ];
    let contents = encode_tlv(SEQUENCE, &body.concat());
    let der = add_signature(&contents, key.signature_scheme(), &key.sign(&contents)?)?;
    verify_csr(&der, &names)?;
    Ok(der)
}

/// Encodes the requested extensions as attributes.
fn encode_attributes(names: &AltNames) -> Vec<u8> {
    if names.is_empty() {
        return Vec::new();
    }
    let extension = [
        encode_tlv(OBJECT_IDENTIFIER, SUBJECT_ALT_NAME),
        encode_tlv(OCTET_STRING, &alt_names::to_der(names)),
    ];
    let extensions = encode_tlv(SEQUENCE, &encode_tlv(SEQUENCE, &extension.concat()));
    let attribute = [encode_tlv(OBJECT_IDENTIFIER, EXTENSION_REQUEST), encode_tlv(SET, &extensions)];
    encode_tlv(SEQUENCE, &attribute.concat())
}

/// Checks that a parser reads the same names from the encoded request.
fn verify_csr(der: &[u8], names: &AltNames) -> Result<(), Error> {
    let request = CertificateRequest::from_der(der)
        .map_err(|error| Error::Malformed { what: "request", reason: error.to_string() })?;
    if request.alt_names() != names {
        let reason = "they would be read as others";
        return Err(Error::InvalidName { what: "alternative names", reason });
    }
    request.verify_signature().map_err(Error::Unproven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyType;

    fn names() -> AltNames {
        AltNames {
            dns_names: vec!["a.example".into(), "*.b.example".into()],
            email_addresses: vec!["jane@example.com".into()],
            ip_addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            uris: vec!["spiffe://example.com/ns/default/sa/web".into()],
        }
    }

    #[test]
    fn reads_back_with_every_key_type() {
        let subject = IssuedSubject::new("jane", &["dev", "ops"]);
        for kind in
            [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::EcdsaP521, KeyType::Rsa3072, KeyType::Ed25519]
        {
            let key = PrivateKey::generate_type(kind).unwrap();
            let text = build_csr(&key, &subject, &names()).unwrap();
            let read = CertificateRequest::from_pem(text.as_bytes()).unwrap();
            assert_eq!(read.verify_signature(), Ok(()), "{kind:?}");
            assert_eq!(read.subject().common_name(), "jane");
            assert_eq!(read.subject().organizations(), ["dev", "ops"]);
            assert_eq!(read.alt_names(), &names());
            assert_eq!(read.public_key().as_der(), key.public_key().as_der());
            assert_eq!(read.extensions().len(), 1);
        }
    }

    #[test]
    fn omits_extensions_without_alt_names() {
        let key = PrivateKey::generate().unwrap();
        let text = build_csr(&key, &IssuedSubject::new("a", &[]), &AltNames::default());
        let read = CertificateRequest::from_pem(text.unwrap().as_bytes()).unwrap();
        assert!(read.extensions().is_empty() && read.alt_names().is_empty());
    }

    #[test]
    fn stub_has_no_subject_and_proves_possession() {
        for kind in
            [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::EcdsaP521, KeyType::Rsa3072, KeyType::Ed25519]
        {
            let key = PrivateKey::generate_type(kind).unwrap();
            let read = CertificateRequest::from_der(&build_stub_csr(&key).unwrap()).unwrap();
            assert_eq!(read.verify_signature(), Ok(()), "{kind:?}");
            assert_eq!(read.subject().common_name(), "");
            assert!(read.alt_names().is_empty() && read.extensions().is_empty());
            assert_eq!(read.public_key().as_der(), key.public_key().as_der());
        }
    }

    #[test]
    fn rejects_names_that_cannot_be_parsed() {
        let key = PrivateKey::generate().unwrap();
        let (nobody, jane) = (IssuedSubject::new("", &[]), IssuedSubject::new("jane", &[]));
        let none = AltNames::default();
        assert!(build_csr(&key, &nobody, &none).is_err());
        assert!(build_csr(&key, &nobody, &names()).is_ok());
        for bad in [
            AltNames { dns_names: vec!["bücher.example".into()], ..none.clone() },
            AltNames { email_addresses: vec!["jané@example.com".into()], ..none.clone() },
            AltNames { uris: vec!["http://[::1".into()], ..none.clone() },
        ] {
            assert!(build_csr(&key, &jane, &bad).is_err(), "{bad:?}");
        }
    }
}
