//! Certificate revocation lists: X.509 v2 CRLs of RFC 5280 §5.
//!
//! [`CertificateAuthority::sign_crl`](crate::CertificateAuthority::sign_crl) builds one, and
//! [`CertificateRevocationList`] parses, verifies and searches them. Lists are complete and for one
//! issuer: delta, indirect and partitioned lists have critical extensions, which are rejected.

mod builder;
mod parser;
mod reason;

use std::fmt;

use der::asn1::UintRef;
use der::{Decode, Sequence, SliceReader};
use time::OffsetDateTime;
use x509_cert::time::Time;

use crate::der_syntax::RawSequence;
use crate::limits::{MAX_CRL_BYTES, MAX_CRL_PEM_BYTES};
use crate::{Certificate, Error, SignatureScheme, pem};

pub use builder::CrlTemplate;
pub use reason::RevocationReason;

const WHAT: &str = "certificate revocation list";

/// One revoked certificate of a CRL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedCertificate {
    /// Serial number, big-endian, at most 20 octets; leading zeros have no meaning.
    pub serial: Vec<u8>,
    /// Time of the revocation in whole seconds, as its requester reported it.
    pub revoked_at: OffsetDateTime,
    /// Reason of the revocation; lists without one are read as unspecified.
    pub reason: RevocationReason,
}

/// A parsed CRL. It keeps its DER and four bytes per entry. Its signature has not been verified,
/// unless [`Self::verify`] did.
#[derive(Clone)]
pub struct CertificateRevocationList {
    der: Vec<u8>,
    issuer: Vec<u8>,
    this_update: OffsetDateTime,
    next_update: OffsetDateTime,
    number: Option<Vec<u8>>,
    authority_key: Option<Vec<u8>>,
    entries: EntryIndex,
}

/// Positions of the entries in the DER of a list, ordered by serial number.
#[derive(Clone, Default)]
struct EntryIndex(Vec<u32>);

/// `revokedCertificates` entry of RFC 5280 §5.1.
#[derive(Sequence)]
struct EntryFields<'a> {
    serial: UintRef<'a>,
    revoked_at: Time,
    extensions: Option<RawSequence<'a>>,
}

impl CertificateRevocationList {
    /// Parses one CRL; trailing data is an error.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        if der.len() > MAX_CRL_BYTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_CRL_BYTES });
        }
        parser::parse(der.to_vec())
    }

    /// Parses exactly one `X509 CRL` block.
    pub fn from_pem(text: &[u8]) -> Result<Self, Error> {
        if text.len() > MAX_CRL_PEM_BYTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_CRL_PEM_BYTES });
        }
        Self::from_der(&pem::revocation_list(text)?.contents)
    }

    /// Returns the DER encoding, exactly the bytes that were signed or parsed.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Encodes the list as one `X509 CRL` PEM block.
    pub fn to_pem(&self) -> String {
        pem::encode(pem::X509_CRL, &self.der).to_string()
    }

    /// Returns `thisUpdate`, the time at which the list was issued.
    pub fn this_update(&self) -> OffsetDateTime {
        self.this_update
    }

    /// Returns `nextUpdate`, after which verifiers regard the list as stale.
    pub fn next_update(&self) -> OffsetDateTime {
        self.next_update
    }

    /// Returns the CRL number, which grows with every list of an issuer. `None` means that it is
    /// absent or has more than 64 bits.
    pub fn number(&self) -> Option<u64> {
        let digits = self.number.as_ref().filter(|digits| digits.len() <= 8)?;
        Some(digits.iter().fold(0, |sum, digit| sum << 8 | u64::from(*digit)))
    }

    /// Returns the number of revoked certificates.
    pub fn len(&self) -> usize {
        self.entries.0.len()
    }

    /// Returns true if no certificate is revoked.
    pub fn is_empty(&self) -> bool {
        self.entries.0.is_empty()
    }

    /// Looks up a serial number, which is big-endian as [`Certificate::serial`] returns it. `None`
    /// means that this list does not revoke it.
    pub fn find(&self, serial: &[u8]) -> Option<RevokedCertificate> {
        let wanted = numeric_order(serial);
        let found = self.entries.0.binary_search_by(|position| match self.entry(*position) {
            Some(entry) => numeric_order(entry.serial.as_bytes()).cmp(&wanted),
            None => std::cmp::Ordering::Less,
        });
        parser::decode_entry(&self.entry(*self.entries.0.get(found.ok()?)?)?).ok()
    }

    /// Iterates over the revoked certificates in order of serial number.
    pub fn entries(&self) -> impl Iterator<Item = RevokedCertificate> {
        self.entries.0.iter().filter_map(|position| parser::decode_entry(&self.entry(*position)?).ok())
    }

    /// Checks that `issuer` may sign CRLs and signed this one.
    pub fn verify(&self, issuer: &Certificate) -> Result<(), Error> {
        if self.issuer != issuer.subject_der() {
            return Err(Error::RevocationList("its issuer is another CA"));
        }
        if let (Some(signer), Some(key)) = (&self.authority_key, issuer.key_identifier())
            && signer != key
        {
            return Err(Error::RevocationList("its key identifier is that of another key"));
        }
        issuer.check_crl_signer()?;
        let scheme = SignatureScheme::for_key(issuer.public_key())?;
        if parser::is_signed_by(&self.der, scheme, issuer.public_key())? {
            Ok(())
        } else {
            Err(Error::RevocationList("its signature does not verify"))
        }
    }

    /// Decodes the entry at a position that the parser found.
    fn entry(&self, position: u32) -> Option<EntryFields<'_>> {
        let entry = self.der.get(usize::try_from(position).ok()?..)?;
        EntryFields::decode(&mut SliceReader::new(entry).ok()?).ok()
    }
}

impl fmt::Debug for CertificateRevocationList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CertificateRevocationList")
            .field("number", &self.number())
            .field("this_update", &self.this_update)
            .field("next_update", &self.next_update)
            .field("entries", &self.len())
            .finish_non_exhaustive()
    }
}

/// Returns a key that orders big-endian numbers by value.
fn numeric_order(number: &[u8]) -> (usize, &[u8]) {
    let zeros = number.iter().take_while(|digit| **digit == 0).count();
    let digits = number.get(zeros..).unwrap_or_default();
    (digits.len(), digits)
}

#[cfg(test)]
mod tests;
