//! Parsing CRLs. Each entry is visited once, and nothing is allocated per entry but its position.

use der::asn1::{AnyRef, UintRef};
use der::{Decode, Encode, Reader, Sequence, SliceReader, Tag, Tagged};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;
use x509_cert::spki::AlgorithmIdentifierRef;
use x509_cert::time::Time;

use super::{
    CertificateRevocationList, EntryFields, EntryIndex, RevocationReason, RevokedCertificate, WHAT,
    numeric_order,
};
use crate::certificate::{AUTHORITY_KEY_IDENTIFIER, CRL_NUMBER, CRL_REASON};
use crate::der_syntax::{RawSequence, SignedFields, elements};
use crate::limits::{MAX_CRL_ENTRIES, MAX_EXTENSIONS};
use crate::validity::from_time;
use crate::{Error, PublicKey, SignatureScheme, subject};

/// `TBSCertList` of RFC 5280 §5.1. Lists stay raw bytes: their elements are read one by one.
#[derive(Sequence)]
struct ListFields<'a> {
    version: Option<Version>,
    algorithm: AlgorithmIdentifierRef<'a>,
    issuer: AnyRef<'a>,
    this_update: Time,
    next_update: Option<Time>,
    revoked: Option<RawSequence<'a>>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    extensions: Option<RawSequence<'a>>,
}

pub(super) fn parse(der: Vec<u8>) -> Result<CertificateRevocationList, Error> {
    let malformed = Error::malformed(WHAT);
    let signed = SignedFields::from_der(&der).map_err(&malformed)?;
    let fields = signed.tbs.decode_as::<ListFields<'_>>().map_err(&malformed)?;
    if fields.version != Some(Version::V2) {
        return Err(malformed_list("not version 2"));
    }
    if fields.algorithm != signed.algorithm {
        return Err(malformed_list("the signed and the outer signature algorithm differ"));
    }
    subject::parse_name(fields.issuer)?;
    // RFC 5280 §5.1.2.5 requires it, and without it a list would be good forever.
    let next_update = fields.next_update.ok_or_else(|| malformed_list("no next update"))?;
    let entries = index_entries(&der, fields.revoked.map_or(&[][..], |list| list.0))?;
    let ListExtensions { number, authority_key } = read_extensions(fields.extensions)?;
    Ok(CertificateRevocationList {
        issuer: fields.issuer.to_der().map_err(&malformed)?,
        this_update: from_time(fields.this_update)?,
        next_update: from_time(next_update)?,
        number,
        authority_key,
        entries,
        der,
    })
}

/// Validates all entries, which are a part of `der`, and orders them by serial number.
fn index_entries(der: &[u8], list: &[u8]) -> Result<EntryIndex, Error> {
    let malformed = Error::malformed(WHAT);
    let base = list.as_ptr().addr().saturating_sub(der.as_ptr().addr());
    let mut reader = SliceReader::new(list).map_err(&malformed)?;
    let mut entries: Vec<((usize, &[u8]), u32)> = Vec::new();
    while !reader.is_finished() {
        if entries.len() == MAX_CRL_ENTRIES {
            return Err(Error::TooLarge { what: "revoked certificates", limit: MAX_CRL_ENTRIES });
        }
        let start = usize::try_from(reader.position()).ok().and_then(|start| base.checked_add(start));
        let start = start.and_then(|start| u32::try_from(start).ok());
        let entry = EntryFields::decode(&mut reader).map_err(&malformed)?;
        decode_entry(&entry)?;
        let position = start.ok_or_else(|| malformed_list("it is too long"))?;
        entries.push((numeric_order(entry.serial.as_bytes()), position));
    }
    entries.sort_unstable();
    // Verifiers that disagree on which of two entries counts can be attacked.
    if entries.iter().zip(entries.iter().skip(1)).any(|(entry, next)| entry.0 == next.0) {
        return Err(malformed_list("a serial number occurs twice"));
    }
    Ok(EntryIndex(entries.into_iter().map(|(_, position)| position).collect()))
}

pub(super) fn decode_entry(fields: &EntryFields<'_>) -> Result<RevokedCertificate, Error> {
    let mut reason = RevocationReason::Unspecified;
    for_each_extension(fields.extensions, |extension| {
        if extension.extn_id != CRL_REASON {
            return Ok(false);
        }
        let value = extension.extn_value.as_bytes();
        let code = AnyRef::from_der(value).ok().filter(|value| value.tag() == Tag::Enumerated);
        let known = match code.map(|code| code.value()) {
            Some([code]) => RevocationReason::from_code(*code),
            _ => None,
        };
        reason = known.ok_or_else(|| malformed_list("unknown reason code"))?;
        Ok(true)
    })?;
    Ok(RevokedCertificate {
        serial: fields.serial.as_bytes().to_vec(),
        revoked_at: from_time(fields.revoked_at)?,
        reason,
    })
}

/// The extensions of a list that this crate evaluates.
#[derive(Default)]
struct ListExtensions {
    number: Option<Vec<u8>>,
    authority_key: Option<Vec<u8>>,
}

fn read_extensions(list: Option<RawSequence<'_>>) -> Result<ListExtensions, Error> {
    let mut found = ListExtensions::default();
    for_each_extension(list, |extension| {
        let value = extension.extn_value.as_bytes();
        match extension.extn_id {
            CRL_NUMBER => {
                let digits = UintRef::from_der(value).map_err(Error::malformed("CRL number"))?;
                found.number = Some(digits.as_bytes().to_vec());
            }
            AUTHORITY_KEY_IDENTIFIER => {
                let identifier = AuthorityKeyIdentifier::from_der(value);
                let identifier = identifier.map_err(Error::malformed("authority key identifier"))?;
                found.authority_key = identifier.key_identifier.map(|key| key.as_bytes().to_vec());
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(found)
}

/// Calls `read` for each extension, which returns false for one that it does not know. RFC 5280 §5.2:
/// a list with an unknown critical extension must not be used.
fn for_each_extension(
    list: Option<RawSequence<'_>>,
    mut read: impl FnMut(&Extension) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut seen = Vec::new();
    for element in elements(list.map_or(&[][..], |list| list.0), WHAT) {
        if seen.len() == MAX_EXTENSIONS {
            return Err(Error::TooLarge { what: "extensions", limit: MAX_EXTENSIONS });
        }
        let extension = element?.decode_as::<Extension>().map_err(Error::malformed(WHAT))?;
        if seen.contains(&extension.extn_id) {
            return Err(malformed_list("an extension occurs twice"));
        }
        seen.push(extension.extn_id);
        if !read(&extension)? && extension.critical {
            return Err(malformed_list("unknown critical extension"));
        }
    }
    Ok(())
}

/// Returns true if the scheme and the key verify the signature of a list.
pub(super) fn is_signed_by(der: &[u8], scheme: SignatureScheme, key: &PublicKey) -> Result<bool, Error> {
    let malformed = Error::malformed(WHAT);
    let signed = SignedFields::from_der(der).map_err(&malformed)?;
    let message = signed.tbs.to_der().map_err(&malformed)?;
    Ok(signed.algorithm == scheme.identifier()
        && scheme.verifies(key, &message, signed.signature.raw_bytes()))
}

fn malformed_list(reason: &str) -> Error {
    Error::Malformed { what: WHAT, reason: reason.to_owned() }
}
