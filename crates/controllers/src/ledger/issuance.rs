//! Certificates between the decision to issue them and the signature, and signing of what is recorded.

use windlass_ledger::{
    AuthorityId, IssuanceRecord, KeyHash, ObjectUid, RequestKind, RequestReference, SerialNumber,
};
use windlass_pki::{
    AltNames, Certificate, CertificateTemplate, CertificateUsages, DistributionPoint, Error,
    IssuedCertificate, IssuedSubject, Serial, SubjectKey, Validity, issue_certificate, lint_certificate,
};

use super::RecordedIssuance;
use crate::ca::SigningCa;

/// Returns the id of a CA: its subject key identifier, or that which Windlass would give to its key.
pub fn authority_id(certificate: &Certificate) -> Result<AuthorityId, Error> {
    let id = certificate.key_identifier().and_then(|bytes| AuthorityId::from_bytes(bytes).ok());
    match id {
        Some(id) => Ok(id),
        None => AuthorityId::from_bytes(&certificate.public_key().identifier()?)
            .map_err(|_| Error::Crypto("computing the id of the CA")),
    }
}

/// A certificate that a signer has decided to issue, with all that is signed, and its record.
#[derive(Debug)]
pub struct PreparedCertificate {
    subject: IssuedSubject,
    alt_names: AltNames,
    usages: CertificateUsages,
    validity: Validity,
    public_key: SubjectKey,
    serial: Serial,
    crl_distribution_points: Vec<DistributionPoint>,
    /// Lower limit of the size of its DER, in bytes.
    pub min_size: usize,
    /// What is recorded before the certificate is signed.
    pub record: IssuanceRecord,
}

/// Serial numbers are unique, so the records tell certificates apart.
impl PartialEq for PreparedCertificate {
    fn eq(&self, other: &PreparedCertificate) -> bool {
        self.record == other.record
    }
}

impl Eq for PreparedCertificate {}

impl PreparedCertificate {
    /// Prepares a certificate that `ca` will sign. The caller adds requester, request and holder to the record. Fails if
    /// the certificate cannot be signed, so that only what can be is recorded.
    pub fn new(
        signer: &str,
        ca: &SigningCa,
        template: CertificateTemplate<'_>,
        now: time::OffsetDateTime,
    ) -> Result<PreparedCertificate, Error> {
        let min_size = lint_certificate(ca.authority(), &template)?;
        let record = describe_template(signer, ca, &template, now)?;
        let CertificateTemplate {
            subject,
            alt_names,
            usages,
            validity,
            public_key,
            serial,
            crl_distribution_points,
        } = template;
        Ok(PreparedCertificate {
            subject,
            alt_names,
            usages,
            validity,
            public_key: public_key.clone(),
            serial,
            crl_distribution_points,
            min_size,
            record,
        })
    }

    /// Signs the certificate. Requires the proof that it is recorded.
    pub fn sign(&self, ca: &SigningCa, recorded: &RecordedIssuance) -> Result<IssuedCertificate, Error> {
        if recorded.serial != self.record.serial {
            return Err(Error::Crypto("matching the certificate with its record"));
        }
        let template = CertificateTemplate {
            subject: self.subject.clone(),
            alt_names: self.alt_names.clone(),
            usages: self.usages.clone(),
            validity: self.validity,
            public_key: &self.public_key,
            serial: self.serial,
            crl_distribution_points: self.crl_distribution_points.clone(),
        };
        issue_certificate(ca.authority(), &template)
    }
}

fn describe_template(
    signer: &str,
    ca: &SigningCa,
    template: &CertificateTemplate<'_>,
    now: time::OffsetDateTime,
) -> Result<IssuanceRecord, Error> {
    let names = &template.alt_names;
    let serial = SerialNumber::from_bytes(template.serial.as_bytes());
    Ok(IssuanceRecord {
        signer: signer.to_owned(),
        authority: authority_id(ca.certificate())?,
        serial: serial.map_err(|_| Error::Crypto("drawing a serial number"))?,
        not_before: template.validity.not_before().unix_timestamp(),
        not_after: template.validity.not_after().unix_timestamp(),
        subject: String::new(),
        dns_names: names.dns_names.clone(),
        ip_addresses: names.ip_addresses.clone(),
        email_addresses: names.email_addresses.clone(),
        uris: names.uris.clone(),
        omitted_names: 0,
        usages: template.usages.names().into_iter().map(str::to_owned).collect(),
        key_hash: KeyHash::from_spki(&template.public_key.to_canonical_der()?),
        requester: String::new(),
        approver: None,
        request: RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: String::new(),
            uid: ObjectUid::Text(String::new()),
        },
        node: None,
        pod: None,
        recorded: now.unix_timestamp(),
    })
}
