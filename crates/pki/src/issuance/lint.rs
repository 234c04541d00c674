//! Lints that run before a certificate is signed.
//!
//! A failed lint is an error, and nothing is signed. Whatever Kubernetes issues is issued here too,
//! with a [`LintWarning`] where it is questionable, except for these:
//!
//! | not issued | why |
//! |---|---|
//! | RSA below 1024 bits | Kubernetes does not verify such a request either; 829 bits have been
//! factored |
//! | RSA above 8192 bits | one verification costs as much as hundreds of usual ones |
//! | ECDSA on P-224 | forbidden in TLS 1.3 and unknown to rustls and to browsers; its requests
//! cannot be verified here |
//! | DSA and unknown algorithms | Kubernetes cannot verify such a request either |

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::BasicConstraints;

use super::CertificateTemplate;
use crate::certificate::{
    AUTHORITY_KEY_IDENTIFIER, BASIC_CONSTRAINTS, CRL_DISTRIBUTION_POINTS, EXTENDED_KEY_USAGE, KEY_USAGE,
    SUBJECT_ALT_NAME,
};
use crate::der_syntax::TbsFields;
use crate::limits::{MAX_DNS_NAME_BYTES, MAX_RSA_BITS, MIN_CERTIFIED_RSA_BITS, MIN_RSA_BITS};
use crate::{
    AltNames, CertificateAuthority, EllipticCurve, Error, KeyAlgorithm, KeyUsageSet, SubjectKey, Validity,
};

/// A check before or after signing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IssuanceLint {
    /// The key's algorithm and size are secure.
    KeyStrength,
    /// The certificate can be parsed.
    Readable,
    /// `notAfter` is later than `notBefore`.
    ValidityOrder,
    /// The certificate expires no later than its CA.
    ValidityEnd,
    /// The serial number is positive, long enough to be random, and not too long.
    SerialNumber,
    /// The issuer equals the CA's subject, byte for byte.
    Issuer,
    /// The signature algorithm matches the CA's key.
    SignatureAlgorithm,
    /// The basic constraints say that it is not a CA.
    NotAnAuthority,
    /// Only the expected extensions are present, each once and in order.
    Extensions,
    /// The subject alternative names are critical exactly if the subject is empty.
    AltNameCriticality,
    /// The issued certificate matches the template.
    SameContents,
    /// The signature verifies with the CA's key.
    Signature,
}

/// Questionable property of a certificate that Kubernetes would issue too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LintWarning {
    /// The certificate has neither a subject nor an alternative name.
    #[error("the certificate has neither a subject nor an alternative name")]
    NoSubjectOrNames,
    /// Not a valid DNS name, so that no client will look it up.
    #[error("{0:?} is not a valid DNS name")]
    DnsName(String),
    /// A name has control characters. Programs that end text at NUL see another name.
    #[error("a name contains control characters")]
    ControlCharacters,
    /// A leaf has a key usage reserved for CAs.
    #[error("its key usage allows certificate signing, but it is not a CA")]
    SignsCertificates,
    /// A short RSA key: forbidden by NIST SP 800-131A since 2013, and rejected by Go's TLS since
    /// 1.24.
    #[error("an RSA key of {0} bits is too short")]
    ShortKey(usize),
    /// The validity starts before that of the CA; verifiers reject the certificate until then.
    #[error("it becomes valid before its issuer")]
    BeginsEarly,
}

impl IssuanceLint {
    /// Returns the stable name of the lint in kebab case, as shown in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyStrength => "key-strength",
            Self::Readable => "readable",
            Self::ValidityOrder => "validity-order",
            Self::ValidityEnd => "validity-end",
            Self::SerialNumber => "serial-number",
            Self::Issuer => "issuer",
            Self::SignatureAlgorithm => "signature-algorithm",
            Self::NotAnAuthority => "not-an-authority",
            Self::Extensions => "extensions",
            Self::AltNameCriticality => "alt-name-criticality",
            Self::SameContents => "same-contents",
            Self::Signature => "signature",
        }
    }

    pub(super) fn fails(self, reason: &'static str) -> Error {
        Error::Lint { lint: self, reason }
    }
}

/// The parsed contents of a certificate about to be signed.
struct CertificateDraft<'a> {
    fields: TbsFields<'a>,
    extensions: &'a [Extension],
    validity: Result<Validity, Error>,
    authority: &'a CertificateAuthority,
}

type LintCheck = fn(&CertificateDraft<'_>) -> Result<(), &'static str>;

const CHECKS: [(IssuanceLint, LintCheck); 8] = [
    (IssuanceLint::ValidityOrder, validity_order),
    (IssuanceLint::ValidityEnd, validity_end),
    (IssuanceLint::SerialNumber, serial_number),
    (IssuanceLint::Issuer, issuer),
    (IssuanceLint::SignatureAlgorithm, signature_algorithm),
    (IssuanceLint::NotAnAuthority, not_an_authority),
    (IssuanceLint::Extensions, extensions),
    (IssuanceLint::AltNameCriticality, alt_name_criticality),
];

/// Checks that a key may be certified.
pub(super) fn check_key(key: &SubjectKey) -> Result<(), Error> {
    let reason = match key.algorithm() {
        KeyAlgorithm::Rsa { modulus_bits } if modulus_bits < MIN_CERTIFIED_RSA_BITS => {
            "RSA keys must have at least 1024 bits"
        }
        KeyAlgorithm::Rsa { modulus_bits } if modulus_bits > MAX_RSA_BITS => {
            "RSA keys must have at most 8192 bits"
        }
        KeyAlgorithm::Rsa { .. } => return Ok(()),
        _ if key.key_type().is_some() => return Ok(()),
        KeyAlgorithm::Ecdsa(EllipticCurve::P224) => "P-224 is too weak",
        KeyAlgorithm::X25519 => "X25519 cannot sign",
        KeyAlgorithm::Dsa => "DSA is not supported",
        _ => "unknown key algorithm",
    };
    Err(IssuanceLint::KeyStrength.fails(reason))
}

/// Lints the contents of a certificate before signing.
pub(super) fn check(body: &[u8], authority: &CertificateAuthority) -> Result<(), Error> {
    let unreadable = |_| IssuanceLint::Readable.fails("it cannot be read");
    let mut fields = TbsFields::from_der(body).map_err(unreadable)?;
    let extensions = fields.extensions.take().unwrap_or_default();
    let validity = Validity::decoded(&fields.validity);
    let draft = CertificateDraft { fields, extensions: &extensions, validity, authority };
    for (lint, check) in CHECKS {
        check(&draft).map_err(|reason| lint.fails(reason))?;
    }
    Ok(())
}

fn validity_order(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    draft.validity.as_ref().map(|_| ()).map_err(|_| "it ends before it begins")
}

/// Allows a start before that of the CA: certificates are backdated, so those of a new CA start
/// earlier; see [`LintWarning::BeginsEarly`].
fn validity_end(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    let end = draft.authority.certificate().validity().not_after();
    match &draft.validity {
        Ok(validity) if validity.not_after() <= end => Ok(()),
        Ok(_) | Err(_) => Err("it ends after its authority"),
    }
}

fn serial_number(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    // At least 64 bits plus sign; at most the limit of RFC 5280 §4.1.2.2.
    if (8..=20).contains(&draft.fields.serial.as_bytes().len()) {
        Ok(())
    } else {
        Err("it has less than 64 bits or more than 20 octets")
    }
}

fn issuer(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    let issuer = draft.fields.issuer.to_der().map_err(|_| "it cannot be encoded")?;
    if issuer == draft.authority.certificate().subject_der() {
        Ok(())
    } else {
        Err("it is not the authority's subject")
    }
}

fn signature_algorithm(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    if draft.fields.algorithm == draft.authority.key().signature_scheme().identifier() {
        Ok(())
    } else {
        Err("it is not that of the authority's key")
    }
}

fn not_an_authority(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    let constraints = draft.extensions.iter().find(|found| found.extn_id == BASIC_CONSTRAINTS);
    let constraints = constraints.filter(|found| found.critical).ok_or("it does not say so")?;
    match BasicConstraints::from_der(constraints.extn_value.as_bytes()) {
        Ok(BasicConstraints { ca: false, path_len_constraint: None }) => Ok(()),
        Ok(_) | Err(_) => Err("it says otherwise"),
    }
}

const ORDER: [ObjectIdentifier; 6] = [
    KEY_USAGE,
    EXTENDED_KEY_USAGE,
    BASIC_CONSTRAINTS,
    AUTHORITY_KEY_IDENTIFIER,
    SUBJECT_ALT_NAME,
    CRL_DISTRIBUTION_POINTS,
];

fn extensions(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    let mut allowed = ORDER.iter();
    for extension in draft.extensions {
        if !allowed.any(|allowed| *allowed == extension.extn_id) {
            return Err("one is unknown, out of order, or there twice");
        }
    }
    Ok(())
}

fn alt_name_criticality(draft: &CertificateDraft<'_>) -> Result<(), &'static str> {
    let nobody = draft.fields.subject.value().is_empty();
    let names = draft.extensions.iter().find(|found| found.extn_id == SUBJECT_ALT_NAME);
    if names.is_none_or(|names| names.critical == nobody) {
        Ok(())
    } else {
        Err("the alternative names are critical and there is a subject, or neither")
    }
}

/// Returns the warnings for a certificate that passed the lints.
pub(super) fn warnings(
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
    names: &AltNames,
) -> Vec<LintWarning> {
    let mut warnings = Vec::new();
    if wanted.subject.is_empty() && names.is_empty() {
        warnings.push(LintWarning::NoSubjectOrNames);
    }
    let strange = names.dns_names.iter().filter(|name| !is_dns_name(name));
    warnings.extend(strange.map(|name| LintWarning::DnsName(name.clone())));
    let mut texts = names.email_addresses.iter().chain(&names.uris);
    if wanted.subject.has_control_characters()
        || texts.any(|text| text.bytes().any(|byte| byte.is_ascii_control()))
    {
        warnings.push(LintWarning::ControlCharacters);
    }
    if let KeyAlgorithm::Rsa { modulus_bits } = wanted.public_key.algorithm()
        && modulus_bits < MIN_RSA_BITS
    {
        warnings.push(LintWarning::ShortKey(modulus_bits));
    }
    if wanted.usages.key.contains(KeyUsageSet::CERT_SIGN) {
        warnings.push(LintWarning::SignsCertificates);
    }
    if wanted.validity.not_before() < authority.certificate().validity().not_before() {
        warnings.push(LintWarning::BeginsEarly);
    }
    warnings
}

/// Returns true for a name by RFC 1123 §2.1, which may also contain underscores, as in practice,
/// and start with a wildcard.
fn is_dns_name(name: &str) -> bool {
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_DNS_NAME_BYTES && labels.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
