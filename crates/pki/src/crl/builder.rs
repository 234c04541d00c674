//! Building and signing CRLs.

use der::asn1::{AnyRef, UintRef};
use der::{Decode, Encode, Sequence};
use time::OffsetDateTime;
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::spki::AlgorithmIdentifierRef;
use x509_cert::time::Time;

use super::{CertificateRevocationList, EntryFields, RevocationReason, RevokedCertificate, numeric_order};
use crate::authority::{authority_key_identifier, encode_extension, extension, sign_der};
use crate::certificate::{CRL_NUMBER, CRL_REASON};
use crate::der_syntax::{RawSequence, encode_tlv};
use crate::limits::{MAX_CRL_ENTRIES, MAX_SERIAL_BYTES};
use crate::validity::to_time;
use crate::{CertificateAuthority, Error};

const ENUMERATED: u8 = 0x0a;

/// Contents of a CRL to be signed.
#[derive(Debug, Clone, Copy)]
pub struct CrlTemplate<'a> {
    /// CRL number, which must be larger than those of all earlier lists of the CA.
    pub number: u64,
    /// Time of issuance; fractions of a second are dropped.
    pub this_update: OffsetDateTime,
    /// Time after which verifiers regard the list as stale; must be later than `this_update`.
    pub next_update: OffsetDateTime,
    /// Revoked certificates in any order; a serial number may occur once.
    pub revoked: &'a [RevokedCertificate],
}

/// `TBSCertList` of RFC 5280 §5.1, with all fields that a conforming CA writes.
#[derive(Sequence)]
struct DraftFields<'a> {
    version: Version,
    algorithm: AlgorithmIdentifierRef<'a>,
    issuer: AnyRef<'a>,
    this_update: Time,
    next_update: Time,
    revoked: Option<RawSequence<'a>>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    extensions: Vec<Extension>,
}

impl CertificateAuthority {
    /// Signs a CRL, then parses and verifies it. Fails if the certificate of the CA does not allow
    /// CRL signing.
    pub fn sign_crl(&self, template: &CrlTemplate<'_>) -> Result<CertificateRevocationList, Error> {
        self.certificate().check_crl_signer()?;
        if template.this_update.unix_timestamp() >= template.next_update.unix_timestamp() {
            return Err(Error::RevocationList("its next update is not later than this update"));
        }
        let revoked = encode_entries(template.revoked)?;
        let draft = DraftFields {
            // RFC 5280 §5.1.2.1: version 2, which has the same value as in certificates.
            version: Version::V2,
            algorithm: self.key().signature_scheme().identifier(),
            issuer: AnyRef::from_der(self.certificate().subject_der()).map_err(Error::encoding)?,
            this_update: to_time(template.this_update)?,
            next_update: to_time(template.next_update)?,
            // RFC 5280 §5.1.2.6: absent if nothing is revoked.
            revoked: Some(RawSequence(&revoked)).filter(|list| !list.0.is_empty()),
            extensions: vec![
                authority_key_identifier(self.certificate().authority_key())?,
                extension(CRL_NUMBER, false, &template.number)?,
            ],
        };
        let der = sign_der(&draft.to_der().map_err(Error::encoding)?, self.key())?;
        let list = CertificateRevocationList::from_der(&der)?;
        list.verify(self.certificate())?;
        if list.len() != template.revoked.len() || list.number() != Some(template.number) {
            return Err(Error::RevocationList("it differs from its template"));
        }
        Ok(list)
    }
}

/// Encodes the entries in order of serial number, so that equal sets have equal bytes.
fn encode_entries(revoked: &[RevokedCertificate]) -> Result<Vec<u8>, Error> {
    if revoked.len() > MAX_CRL_ENTRIES {
        return Err(Error::TooLarge { what: "revoked certificates", limit: MAX_CRL_ENTRIES });
    }
    let mut sorted = revoked.iter().collect::<Vec<_>>();
    sorted.sort_unstable_by_key(|entry| numeric_order(&entry.serial));
    let mut encoded = Vec::new();
    for entry in sorted {
        let (octets, serial) = numeric_order(&entry.serial);
        if octets == 0 || octets > MAX_SERIAL_BYTES {
            return Err(Error::RevocationList("a serial number is zero or longer than 20 octets"));
        }
        let extensions = encode_reason(entry.reason)?;
        let fields = EntryFields {
            serial: UintRef::new(serial).map_err(Error::encoding)?,
            revoked_at: to_time(entry.revoked_at)?,
            extensions: Some(RawSequence(&extensions)).filter(|list| !list.0.is_empty()),
        };
        fields.encode_to_vec(&mut encoded).map_err(Error::encoding)?;
    }
    Ok(encoded)
}

/// RFC 5280 §5.3.1: the reason code should be absent instead of unspecified.
fn encode_reason(reason: RevocationReason) -> Result<Vec<u8>, Error> {
    if reason == RevocationReason::Unspecified {
        return Ok(Vec::new());
    }
    let value = encode_tlv(ENUMERATED, &[reason.code()]);
    encode_extension(CRL_REASON, false, value)?.to_der().map_err(Error::encoding)
}
