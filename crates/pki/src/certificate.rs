//! Parsed certificates.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use der::asn1::{AnyRef, ObjectIdentifier, OctetString};
use der::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};

use crate::der_syntax::{SignedFields, TbsFields};
use crate::limits::{MAX_CERTIFICATE_BYTES, MAX_EXTENSIONS, MAX_KEY_IDENTIFIER_BYTES, MAX_PURPOSES};
use crate::{
    AltName, Error, ForeignCertificate, KeyPurpose, PublicKey, SubjectKey, Validity, alt_name, pem, subject,
};

/// A parsed certificate. Its signature has not been verified; that requires a chain.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    serial: Vec<u8>,
    common_name: Option<String>,
    organizations: Vec<String>,
    user_ids: Vec<String>,
    validity: Validity,
    public_key: PublicKey,
    version: Version,
    extensions: ParsedExtensions,
    authority_key: Vec<u8>,
}

/// The signature of a certificate, with everything needed to verify it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSignature {
    /// The signed `TBSCertificate`, byte for byte.
    pub message: Vec<u8>,
    /// The contents of the `AlgorithmIdentifier`, without the tag and length of its SEQUENCE.
    pub algorithm: Vec<u8>,
    /// The contents of the signature BIT STRING.
    pub signature: Vec<u8>,
}

/// The extensions that this crate evaluates.
#[derive(Clone, Default)]
struct ParsedExtensions {
    is_authority: bool,
    max_path_length: Option<u8>,
    key_usage: Option<KeyUsage>,
    purposes: Option<Vec<KeyPurpose>>,
    alt_names: Vec<AltName>,
    key_identifier: Option<Vec<u8>>,
}

pub(crate) const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
pub(crate) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
pub(crate) const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
pub(crate) const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
pub(crate) const CRL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.20");
pub(crate) const CRL_REASON: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.21");
pub(crate) const CRL_DISTRIBUTION_POINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.31");
pub(crate) const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
pub(crate) const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");

const WHAT: &str = "certificate";

impl Certificate {
    /// Parses one certificate; trailing data is an error.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        if der.len() > MAX_CERTIFICATE_BYTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_CERTIFICATE_BYTES });
        }
        let malformed = Error::malformed(WHAT);
        let signed = SignedFields::from_der(der).map_err(&malformed)?;
        let fields = signed.tbs.decode_as::<TbsFields<'_>>().map_err(&malformed)?;
        if fields.algorithm != signed.algorithm {
            return Err(malformed_certificate("the signed and the outer signature algorithm differ"));
        }
        let identity = subject::parse_name(fields.subject)?;
        subject::parse_name(fields.issuer)?;
        let extensions = match &fields.extensions {
            Some(_) if fields.version != Version::V3 => {
                return Err(malformed_certificate("extensions in a certificate older than version 3"));
            }
            Some(extensions) => ParsedExtensions::read(extensions)?,
            None => ParsedExtensions::default(),
        };
        let public_key = PublicKey::from_der(&fields.public_key.to_der().map_err(&malformed)?)?;
        let authority_key = match &extensions.key_identifier {
            Some(identifier) if (1..=MAX_KEY_IDENTIFIER_BYTES).contains(&identifier.len()) => {
                identifier.clone()
            }
            Some(_) | None => public_key.identifier()?,
        };
        Ok(Self {
            subject: fields.subject.to_der().map_err(&malformed)?,
            issuer: fields.issuer.to_der().map_err(&malformed)?,
            serial: fields.serial.as_bytes().to_vec(),
            common_name: identity.common_name,
            organizations: identity.organizations,
            user_ids: identity.user_ids,
            validity: Validity::decoded(&fields.validity)?,
            public_key,
            version: fields.version,
            extensions,
            authority_key,
            der: CertificateDer::from(der.to_vec()),
        })
    }

    /// Parses exactly one certificate from PEM.
    pub fn from_pem(text: &[u8]) -> Result<Self, Error> {
        match pem::certificates(text)?.as_slice() {
            [der] => Self::from_der(der),
            _ => Err(pem::PemError::Several("certificate").into()),
        }
    }

    /// Returns the DER encoding, exactly the bytes that were parsed.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Encodes the certificate as one `CERTIFICATE` PEM block.
    pub fn to_pem(&self) -> String {
        pem::encode_certificates([self.der.as_ref()])
    }

    /// Returns the subject's common name, which is the user name of a client. The last one counts
    /// if there are several.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns the subject's organizations in order, which are the groups of a client.
    pub fn organizations(&self) -> &[String] {
        &self.organizations
    }

    /// Returns the subject's user IDs (1.3.6.1.4.1.57683.2); a valid certificate has at most one.
    pub fn user_ids(&self) -> &[String] {
        &self.user_ids
    }

    /// Validity period of the certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns the extended key usages. `None` means that the extension is absent, which allows
    /// every purpose.
    pub fn purposes(&self) -> Option<&[KeyPurpose]> {
        self.extensions.purposes.as_deref()
    }

    /// Returns true if the extended key usages permit `purpose`, by the rules of Go and webpki.
    pub fn allows(&self, purpose: &KeyPurpose) -> bool {
        self.purposes().is_none_or(|all| all.contains(purpose) || all.contains(&KeyPurpose::Any))
    }

    /// Returns the DNS names, IP addresses and URIs.
    pub fn alt_names(&self) -> &[AltName] {
        &self.extensions.alt_names
    }

    /// Serial number, big-endian without leading zeros.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// Returns the SHA-256 digest of the DER encoding.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, &self.der).as_ref());
        fingerprint
    }

    /// Returns the certified public key (SubjectPublicKeyInfo).
    pub fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// Returns true for version 3. Older versions have no extensions.
    pub fn is_version_3(&self) -> bool {
        self.version == Version::V3
    }

    /// Returns the signature and the bytes that it covers.
    pub fn signature(&self) -> Result<CertificateSignature, Error> {
        let malformed = Error::malformed(WHAT);
        let signed = SignedFields::from_der(&self.der).map_err(&malformed)?;
        let algorithm = signed.algorithm.to_der().map_err(&malformed)?;
        let algorithm = AnyRef::from_der(&algorithm).map_err(&malformed)?;
        let signature = signed.signature.as_bytes();
        Ok(CertificateSignature {
            message: signed.tbs.to_der().map_err(&malformed)?,
            algorithm: algorithm.value().to_vec(),
            signature: signature
                .ok_or_else(|| malformed_certificate("the signature has unused bits"))?
                .to_vec(),
        })
    }

    /// Returns true if the issuer name equals the subject of `authority`. Does not verify the
    /// signature.
    pub fn has_issuer_name_of(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }

    /// Returns true if the issuer name matches `issuer` and the signature verifies.
    pub(crate) fn is_issued_by(&self, issuer: &Self) -> bool {
        let key = SubjectKey::from_der(issuer.public_key.as_der());
        self.has_issuer_name_of(issuer)
            && ForeignCertificate::from_der(&self.der)
                .is_ok_and(|this| key.is_ok_and(|key| this.is_signed_by(&key)))
    }

    /// Returns true if the certificate is self-signed.
    pub fn is_self_signed(&self) -> bool {
        self.is_issued_by(self)
    }

    /// Checks that the certificate may sign certificates, and says why if not.
    pub fn check_authority(&self) -> Result<(), Error> {
        if !self.extensions.is_authority {
            return Err(Error::NotAuthority("its basic constraints do not allow it"));
        }
        match self.extensions.key_usage {
            Some(usage) if !usage.key_cert_sign() => {
                Err(Error::NotAuthority("its key usage does not include certificate signing"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the certificate may sign CRLs, and says why if not.
    pub fn check_crl_signer(&self) -> Result<(), Error> {
        if !self.extensions.is_authority {
            return Err(Error::RevocationList("its issuer is not a CA"));
        }
        match self.extensions.key_usage {
            Some(usage) if !usage.crl_sign() => {
                Err(Error::RevocationList("the key usage of its issuer does not include CRL signing"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the path length constraint: how many intermediates may follow this CA in a chain.
    /// `None` means any number.
    pub fn max_path_length(&self) -> Option<u8> {
        self.extensions.max_path_length
    }

    /// Returns the id of the certified key as an authority: the subject key identifier in lower-case
    /// hexadecimal. Certificates without one, or with an unusable one, get the identifier that
    /// Windlass would have given to their key.
    pub fn authority_id(&self) -> String {
        self.authority_key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the bytes of [`Self::authority_id`].
    pub(crate) fn authority_key(&self) -> &[u8] {
        &self.authority_key
    }

    /// Returns the DER of the subject, byte for byte.
    pub(crate) fn subject_der(&self) -> &[u8] {
        &self.subject
    }

    /// Returns the serial number in lower-case hexadecimal, two digits for each byte.
    pub fn serial_hex(&self) -> String {
        let digits: String =
            self.serial.iter().skip_while(|byte| **byte == 0).map(|byte| format!("{byte:02x}")).collect();
        if digits.is_empty() { "00".to_owned() } else { digits }
    }

    /// Returns the subject key identifier, if present.
    pub fn key_identifier(&self) -> Option<&[u8]> {
        self.extensions.key_identifier.as_deref()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Certificate")
            .field("common_name", &self.common_name)
            .field("organizations", &self.organizations)
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl ParsedExtensions {
    fn read(extensions: &[Extension]) -> Result<Self, Error> {
        if extensions.len() > MAX_EXTENSIONS {
            return Err(Error::TooLarge { what: "extensions", limit: MAX_EXTENSIONS });
        }
        let mut found = Self::default();
        for (index, extension) in extensions.iter().enumerate() {
            let oid = extension.extn_id;
            // RFC 5280 §4.2. Verifiers that disagree on which duplicate counts can be attacked.
            if extensions.iter().take(index).any(|earlier| earlier.extn_id == oid) {
                return Err(malformed_certificate("an extension occurs twice"));
            }
            let value = extension.extn_value.as_bytes();
            match oid {
                BASIC_CONSTRAINTS => {
                    let constraints = BasicConstraints::from_der(value);
                    let constraints = constraints.map_err(Error::malformed("basic constraints"))?;
                    found.is_authority = constraints.ca;
                    found.max_path_length = constraints.path_len_constraint;
                }
                KEY_USAGE => {
                    let usage = KeyUsage::from_der(value);
                    found.key_usage = Some(usage.map_err(Error::malformed("key usage"))?);
                }
                EXTENDED_KEY_USAGE => found.purposes = Some(purposes(value)?),
                SUBJECT_ALT_NAME => found.alt_names = alt_name::parse_extension(value)?,
                SUBJECT_KEY_IDENTIFIER => {
                    let identifier = OctetString::from_der(value);
                    let identifier = identifier.map_err(Error::malformed("key identifier"))?;
                    found.key_identifier = Some(identifier.as_bytes().to_vec());
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

fn purposes(value: &[u8]) -> Result<Vec<KeyPurpose>, Error> {
    let malformed = Error::malformed("extended key usage");
    let oids = Vec::<ObjectIdentifier>::from_der(value).map_err(malformed)?;
    if oids.len() > MAX_PURPOSES {
        return Err(Error::TooLarge { what: "extended key usages", limit: MAX_PURPOSES });
    }
    Ok(oids.iter().map(KeyPurpose::from_oid).collect())
}

fn malformed_certificate(reason: &str) -> Error {
    Error::Malformed { what: WHAT, reason: reason.to_owned() }
}
