//! Certificate authorities and leaf issuance.

mod intermediate;

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetString, UintRef};
use der::{Decode, Encode};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages};

use crate::certificate::{
    AUTHORITY_KEY_IDENTIFIER, BASIC_CONSTRAINTS, EXTENDED_KEY_USAGE, KEY_USAGE, SUBJECT_ALT_NAME,
    SUBJECT_KEY_IDENTIFIER,
};
use crate::der_syntax::{SignedFields, TbsFields};
use crate::limits::MAX_ALT_NAMES;
use crate::{
    AltName, CaKey, Certificate, Error, KeyPurpose, PrivateKey, PublicKey, Serial, SignatureScheme, Subject,
    Validity, pem,
};

pub use intermediate::IntermediateTemplate;

/// A certificate authority: a CA certificate and its private key.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate: Certificate,
    key: CaKey,
}

impl CertificateAuthority {
    /// Creates a self-signed root CA.
    pub fn self_signed(
        subject: &Subject,
        validity: Validity,
        key: impl Into<CaKey>,
        serial: Serial,
    ) -> Result<Self, Error> {
        let key = key.into();
        let certificate = CertificateContents {
            serial,
            issuer: subject.as_der(),
            subject: subject.as_der(),
            validity,
            public_key: key.public_key(),
            extensions: authority_extensions(key.public_key(), None)?,
        }
        .sign(&key)?;
        Self::new(Certificate::from_der(&certificate)?, key)
    }

    /// Creates an intermediate CA issued by this CA, with no other limits than those of this CA. See
    /// [`Self::issue_intermediate`].
    pub fn intermediate(
        &self,
        subject: &Subject,
        validity: Validity,
        key: impl Into<CaKey>,
        serial: Serial,
    ) -> Result<Self, Error> {
        let template = IntermediateTemplate {
            subject,
            validity,
            serial,
            max_path_length: None,
            crl_distribution_points: &[],
        };
        self.issue_intermediate(&template, key)
    }

    /// Parses a CA from the PEM of its certificate and key: exactly one of each. Ignores blocks of
    /// other kinds, because both are often kept in one file.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        match pem::certificates_in_mixed_pem(certificate)?.as_slice() {
            [der] => Self::new(Certificate::from_der(der)?, PrivateKey::from_mixed_pem(key)?),
            _ => Err(pem::PemError::Several("certificate").into()),
        }
    }

    /// Parses a CA and its issuer chain, in which each certificate is issued by the next. The chain
    /// is sent along with issued certificates.
    pub fn from_chain_pem(certificates: &[u8], key: &[u8]) -> Result<(Self, Vec<Certificate>), Error> {
        Self::from_chain(certificates, |_| Ok(PrivateKey::from_mixed_pem(key)?.into()))
    }

    /// As [`Self::from_chain_pem`], for a key that `key` finds by the public key of the CA certificate.
    pub fn from_chain(
        certificates: &[u8],
        key: impl FnOnce(&PublicKey) -> Result<CaKey, Error>,
    ) -> Result<(Self, Vec<Certificate>), Error> {
        let certificates = pem::certificates_in_mixed_pem(certificates)?;
        let mut chain = Vec::with_capacity(certificates.len());
        for der in &certificates {
            chain.push(Certificate::from_der(der)?);
        }
        for (certificate, issuer) in chain.iter().zip(chain.iter().skip(1)) {
            issuer.check_authority()?;
            if !certificate.is_issued_by(issuer) {
                return Err(Error::BrokenChain);
            }
        }
        let mut chain = chain.into_iter();
        let first = chain.next().ok_or(pem::PemError::Missing("certificate"))?;
        let key = key(first.public_key())?;
        Ok((Self::new(first, key)?, chain.collect()))
    }

    /// Combines a CA certificate with its key. Fails if the certificate is not a CA or the key does
    /// not match.
    pub fn new(certificate: Certificate, key: impl Into<CaKey>) -> Result<Self, Error> {
        let key = key.into();
        if certificate.public_key() != key.public_key() {
            return Err(Error::KeyMismatch);
        }
        certificate.check_authority()?;
        Ok(Self { certificate, key })
    }

    /// Returns true if this CA issued the certificate: the issuer name matches and the signature
    /// verifies.
    pub fn has_issued(&self, certificate: &Certificate) -> bool {
        certificate.has_issuer_name_of(&self.certificate) && is_signed_by(certificate.der(), &self.key)
    }

    /// Certificate of the CA, which relying parties trust.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Private key of the CA, which matches its certificate. It may be in a device, where it cannot be
    /// encoded.
    pub fn key(&self) -> &CaKey {
        &self.key
    }
}

/// A leaf certificate to be issued.
#[derive(Debug, Clone)]
pub struct LeafTemplate<'a> {
    /// Subject of the certificate; may be empty if there are alternative names.
    pub subject: Subject,
    /// Subject alternative names, in the order in which they are encoded.
    pub alt_names: Vec<AltName>,
    /// Extended key usages of the certificate.
    pub purposes: Vec<KeyPurpose>,
    /// Requested validity; clipped to the validity of the CA.
    pub validity: Validity,
    /// Public key to certify; the caller must have verified possession of its private key.
    pub public_key: &'a PublicKey,
    /// Serial number, which must be unique for each certificate of the CA.
    pub serial: Serial,
}

/// Issues a leaf certificate and returns its DER.
pub fn issue(authority: &CertificateAuthority, leaf: &LeafTemplate<'_>) -> Result<Vec<u8>, Error> {
    if leaf.alt_names.len() > MAX_ALT_NAMES {
        return Err(Error::TooLarge { what: "subject alternative names", limit: MAX_ALT_NAMES });
    }
    let anonymous = leaf.subject.is_empty();
    if anonymous && leaf.alt_names.is_empty() {
        let reason = "neither a subject nor an alternative name is given";
        return Err(Error::InvalidName { what: "certificate", reason });
    }
    let mut extensions = vec![
        extension(BASIC_CONSTRAINTS, true, &NOT_AN_AUTHORITY)?,
        extension(KEY_USAGE, true, &leaf_key_usage(leaf.public_key)?)?,
    ];
    if !leaf.purposes.is_empty() {
        let purposes = leaf.purposes.iter().map(KeyPurpose::oid).collect::<Result<_, _>>()?;
        extensions.push(extension(EXTENDED_KEY_USAGE, false, &ExtendedKeyUsage(purposes))?);
    }
    extensions.push(subject_key_identifier(&leaf.public_key.identifier()?)?);
    if let Some(identifier) = authority.certificate.key_identifier() {
        extensions.push(authority_key_identifier(identifier)?);
    }
    if !leaf.alt_names.is_empty() {
        let names = leaf.alt_names.iter().map(AltName::encoded).collect::<Result<Vec<_>, _>>()?;
        // RFC 5280 §4.2.1.6: critical if the subject is empty.
        extensions.push(extension(SUBJECT_ALT_NAME, anonymous, &names)?);
    }
    CertificateContents {
        serial: leaf.serial,
        issuer: authority.certificate.subject_der(),
        subject: leaf.subject.as_der(),
        validity: leaf.validity.clipped_to(&authority.certificate.validity())?,
        public_key: leaf.public_key,
        extensions,
    }
    .sign(&authority.key)
}

/// The fields of a TBSCertificate.
pub(crate) struct CertificateContents<'a> {
    pub serial: Serial,
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub validity: Validity,
    pub public_key: &'a PublicKey,
    pub extensions: Vec<Extension>,
}

impl CertificateContents<'_> {
    fn sign(self, key: &CaKey) -> Result<Vec<u8>, Error> {
        sign_der(&self.encode(key)?, key)
    }

    /// Encodes the TBSCertificate that `key` will sign.
    pub(crate) fn encode(self, key: &CaKey) -> Result<Vec<u8>, Error> {
        let contents = TbsFields {
            version: Version::V3,
            serial: UintRef::new(self.serial.as_bytes()).map_err(Error::encoding)?,
            algorithm: key.signature_scheme().identifier(),
            issuer: AnyRef::from_der(self.issuer).map_err(Error::encoding)?,
            validity: self.validity.encoded()?,
            subject: AnyRef::from_der(self.subject).map_err(Error::encoding)?,
            public_key: AnyRef::from_der(self.public_key.as_der()).map_err(Error::encoding)?,
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions),
        };
        contents.to_der().map_err(Error::encoding)
    }
}

/// Signs the encoded contents of a certificate or CRL.
pub(crate) fn sign_der(contents: &[u8], key: &CaKey) -> Result<Vec<u8>, Error> {
    add_signature(contents, key.signature_scheme(), &key.sign(contents)?)
}

/// Joins encoded contents with their signature.
pub(crate) fn add_signature(
    contents: &[u8],
    scheme: SignatureScheme,
    signature: &[u8],
) -> Result<Vec<u8>, Error> {
    let signed = SignedFields {
        tbs: AnyRef::from_der(contents).map_err(Error::encoding)?,
        algorithm: scheme.identifier(),
        signature: BitStringRef::from_bytes(signature).map_err(Error::encoding)?,
    };
    signed.to_der().map_err(Error::encoding)
}

/// Returns true if `key` signed the certificate.
pub(crate) fn is_signed_by(der: &[u8], key: &CaKey) -> bool {
    SignedFields::from_der(der).is_ok_and(|signed| {
        signed.algorithm == key.signature_scheme().identifier()
            && signed.tbs.to_der().is_ok_and(|contents| key.verifies(&contents, signed.signature.raw_bytes()))
    })
}

/// Returns the extensions of a CA certificate: basic constraints, key usage and subject key
/// identifier.
fn authority_extensions(key: &PublicKey, max_path_length: Option<u8>) -> Result<Vec<Extension>, Error> {
    let usages = KeyUsages::KeyCertSign | KeyUsages::CRLSign | KeyUsages::DigitalSignature;
    Ok(vec![
        extension(
            BASIC_CONSTRAINTS,
            true,
            &BasicConstraints { ca: true, path_len_constraint: max_path_length },
        )?,
        extension(KEY_USAGE, true, &KeyUsage(usages))?,
        subject_key_identifier(&key.identifier()?)?,
    ])
}

pub(crate) const NOT_AN_AUTHORITY: BasicConstraints =
    BasicConstraints { ca: false, path_len_constraint: None };

/// Only RSA keys get keyEncipherment, which only TLS 1.2 clients with RSA key exchange use.
fn leaf_key_usage(key: &PublicKey) -> Result<KeyUsage, Error> {
    Ok(KeyUsage(if key.is_rsa()? {
        KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment
    } else {
        KeyUsages::DigitalSignature.into()
    }))
}

fn subject_key_identifier(identifier: &[u8]) -> Result<Extension, Error> {
    let identifier = OctetString::new(identifier).map_err(Error::encoding)?;
    extension(SUBJECT_KEY_IDENTIFIER, false, &identifier)
}

pub(crate) fn authority_key_identifier(identifier: &[u8]) -> Result<Extension, Error> {
    let identifier = AuthorityKeyIdentifier {
        key_identifier: Some(OctetString::new(identifier).map_err(Error::encoding)?),
        ..AuthorityKeyIdentifier::default()
    };
    extension(AUTHORITY_KEY_IDENTIFIER, false, &identifier)
}

pub(crate) fn extension(
    oid: ObjectIdentifier,
    critical: bool,
    value: &impl Encode,
) -> Result<Extension, Error> {
    encode_extension(oid, critical, value.to_der().map_err(Error::encoding)?)
}

/// Builds an extension from an encoded value.
pub(crate) fn encode_extension(
    oid: ObjectIdentifier,
    critical: bool,
    value: Vec<u8>,
) -> Result<Extension, Error> {
    let extn_value = OctetString::new(value).map_err(Error::encoding)?;
    Ok(Extension { extn_id: oid, critical, extn_value })
}

#[cfg(test)]
mod tests;
