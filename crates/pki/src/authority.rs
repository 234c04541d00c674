//! Certificate authorities and what they issue.

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetString, UintRef};
use der::{Decode, Encode};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
};

use crate::certificate::{
    AUTHORITY_KEY_IDENTIFIER, BASIC_CONSTRAINTS, EXTENDED_KEY_USAGE, KEY_USAGE, SUBJECT_ALT_NAME,
    SUBJECT_KEY_IDENTIFIER,
};
use crate::der_syntax::{SignedFields, TbsFields};
use crate::limits::MAX_ALT_NAMES;
use crate::{
    AltName, Certificate, Error, KeyPurpose, PrivateKey, PublicKey, Serial, Subject, Validity, pem,
};

/// A certificate authority: a certificate that may sign others, and its key.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate: Certificate,
    key: PrivateKey,
}

impl CertificateAuthority {
    /// Makes a new authority that nobody vouches for.
    pub fn self_signed(
        subject: &Subject,
        validity: Validity,
        key: PrivateKey,
        serial: Serial,
    ) -> Result<Self, Error> {
        let certificate = CertificateContents {
            serial,
            issuer: subject.as_der(),
            subject: subject.as_der(),
            validity,
            public_key: key.public_key(),
            extensions: authority_extensions(&key)?,
        }
        .sign(&key)?;
        Self::new(Certificate::from_der(&certificate)?, key)
    }

    /// Makes a new authority that this one vouches for.
    pub fn intermediate(
        &self,
        subject: &Subject,
        validity: Validity,
        key: PrivateKey,
        serial: Serial,
    ) -> Result<Self, Error> {
        let mut extensions = authority_extensions(&key)?;
        if let Some(identifier) = self.certificate.key_identifier() {
            extensions.push(authority_key_identifier(identifier)?);
        }
        let certificate = CertificateContents {
            serial,
            issuer: self.certificate.subject_der(),
            subject: subject.as_der(),
            validity: validity.clipped_to(&self.certificate.validity())?,
            public_key: key.public_key(),
            extensions,
        }
        .sign(&self.key)?;
        Self::new(Certificate::from_der(&certificate)?, key)
    }

    /// Reads an authority from the PEM of its certificate and of its key: exactly one of each.
    /// Blocks of other kinds may be there too, as people keep both in one file.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        match pem::certificates_in_mixed_pem(certificate)?.as_slice() {
            [der] => Self::new(Certificate::from_der(der)?, PrivateKey::from_mixed_pem(key)?),
            _ => Err(pem::PemError::Several("certificate").into()),
        }
    }

    /// Reads an authority and the certificates that vouch for it, each for the one before. These are
    /// sent along with what it issues.
    pub fn from_chain_pem(
        certificates: &[u8],
        key: &[u8],
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
        Ok((Self::new(first, PrivateKey::from_mixed_pem(key)?)?, chain.collect()))
    }

    /// Joins a certificate and its key, if it is an authority's and the key belongs to it.
    pub fn new(certificate: Certificate, key: PrivateKey) -> Result<Self, Error> {
        if certificate.public_key() != key.public_key() {
            return Err(Error::KeyMismatch);
        }
        certificate.check_authority()?;
        Ok(Self { certificate, key })
    }

    /// Whether it has issued this certificate: named as its issuer, and the signature is its own.
    pub fn has_issued(&self, certificate: &Certificate) -> bool {
        certificate.has_issuer_name_of(&self.certificate)
            && is_signed_by(certificate.der(), &self.key)
    }

    /// Its certificate: what others trust.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Private key of the CA, which matches its certificate.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }
}

/// A certificate to be issued that cannot itself issue.
#[derive(Debug, Clone)]
pub struct LeafTemplate<'a> {
    /// Subject of the certificate; may be empty if there are alternative names.
    pub subject: Subject,
    /// Which names it speaks for, in this order.
    pub alt_names: Vec<AltName>,
    /// What it may be used for.
    pub purposes: Vec<KeyPurpose>,
    /// When it is wanted for. What exceeds the authority's own validity is cut off.
    pub validity: Validity,
    /// Public key to certify; the caller must have verified possession of its private key.
    pub public_key: &'a PublicKey,
    /// Serial number, which must be unique for each certificate of the CA.
    pub serial: Serial,
}

/// Issues a certificate, as DER.
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
        extension(BASIC_CONSTRAINTS, true, &basic_constraints(false))?,
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
        // RFC 5280 §4.2.1.6: critical if there is nothing else to go by.
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

/// Everything in a certificate but the signature.
pub(crate) struct CertificateContents<'a> {
    pub serial: Serial,
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub validity: Validity,
    pub public_key: &'a PublicKey,
    pub extensions: Vec<Extension>,
}

impl CertificateContents<'_> {
    fn sign(self, key: &PrivateKey) -> Result<Vec<u8>, Error> {
        sign_der(&self.encode(key)?, key)
    }

    /// Encodes the TBSCertificate that `key` will sign.
    pub(crate) fn encode(self, key: &PrivateKey) -> Result<Vec<u8>, Error> {
        let contents = TbsFields {
            version: Version::V3,
            serial: UintRef::new(self.serial.as_bytes()).map_err(Error::encoding)?,
            algorithm: key.signature_algorithm(),
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

/// Signs the encoded contents of a certificate.
pub(crate) fn sign_der(contents: &[u8], key: &PrivateKey) -> Result<Vec<u8>, Error> {
    let signature = key.sign(contents)?;
    let signed = SignedFields {
        tbs: AnyRef::from_der(contents).map_err(Error::encoding)?,
        algorithm: key.signature_algorithm(),
        signature: BitStringRef::from_bytes(&signature).map_err(Error::encoding)?,
    };
    signed.to_der().map_err(Error::encoding)
}

/// Whether the signature of a certificate is this key's.
pub(crate) fn is_signed_by(der: &[u8], key: &PrivateKey) -> bool {
    SignedFields::from_der(der).is_ok_and(|signed| {
        signed.algorithm == key.signature_algorithm()
            && signed
                .tbs
                .to_der()
                .is_ok_and(|contents| key.verifies(&contents, signed.signature.raw_bytes()))
    })
}

/// What says that a certificate's key signs others.
fn authority_extensions(key: &PrivateKey) -> Result<Vec<Extension>, Error> {
    let usages = KeyUsages::KeyCertSign | KeyUsages::CRLSign | KeyUsages::DigitalSignature;
    Ok(vec![
        extension(BASIC_CONSTRAINTS, true, &basic_constraints(true))?,
        extension(KEY_USAGE, true, &KeyUsage(usages))?,
        subject_key_identifier(&key.public_key().identifier()?)?,
    ])
}

pub(crate) fn basic_constraints(ca: bool) -> BasicConstraints {
    BasicConstraints { ca, path_len_constraint: None }
}

/// Only RSA keys encipher, and only in TLS 1.2 with clients that know no better.
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

/// An extension whose value is already encoded.
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
