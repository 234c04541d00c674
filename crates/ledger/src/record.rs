//! What the ledger knows of a certificate, and the entries that follow its record.

use std::net::IpAddr;

use crate::identity::{AuthorityId, KeyHash, ObjectUid, SegmentHash, SerialNumber};
use crate::limits::{MAX_NAME_BYTES, MAX_NAMES, MAX_STRING_BYTES};

/// A certificate that is about to be signed. All times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuanceRecord {
    /// Name of the signer, as in `spec.signerName` of requests.
    pub signer: String,
    /// CA key that signs, by its subject key identifier.
    pub authority: AuthorityId,
    /// Serial number, unique for the authority.
    pub serial: SerialNumber,
    /// First second of the validity.
    pub not_before: i64,
    /// Last second of the validity, inclusive.
    pub not_after: i64,
    /// Subject as text, such as `CN=system:node:n1,O=system:nodes`; empty if the certificate has none.
    pub subject: String,
    /// DNS names of the certificate.
    pub dns_names: Vec<String>,
    /// IP addresses of the certificate.
    pub ip_addresses: Vec<IpAddr>,
    /// E-mail addresses of the certificate.
    pub email_addresses: Vec<String>,
    /// URIs of the certificate, such as a SPIFFE ID.
    pub uris: Vec<String>,
    /// Number of alternative names that are in the certificate but exceed the size of a record.
    pub omitted_names: u32,
    /// Usages, named as in `spec.usages` of requests.
    pub usages: Vec<String>,
    /// Hash of the certified public key.
    pub key_hash: KeyHash,
    /// User that created the request.
    pub requester: String,
    /// Who or what approved the request, as far as the request tells; `None` if it needs no approval.
    pub approver: Option<String>,
    /// Request that the certificate answers.
    pub request: RequestReference,
    /// Node that holds the certificate or runs the pod that does; `None` if unknown.
    pub node: Option<String>,
    /// Pod that holds the certificate; its namespace is that of the request. `None` if no pod does.
    pub pod: Option<PodReference>,
    /// When the record was written.
    pub recorded: i64,
}

/// Kind of the object that requested a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A CertificateSigningRequest, which has no namespace.
    #[default]
    CertificateSigningRequest,
    /// A PodCertificateRequest in the namespace of its pod.
    PodCertificateRequest,
}

/// Object that requested a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReference {
    /// Kind of the request object.
    pub kind: RequestKind,
    /// Namespace; empty for CertificateSigningRequests.
    pub namespace: String,
    /// Name of the request, which may be reused after its deletion.
    pub name: String,
    /// UID of the request, which is never reused.
    pub uid: ObjectUid,
}

/// Pod that holds a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReference {
    /// Name of the pod, which may be reused after its deletion.
    pub name: String,
    /// UID of the pod, which is never reused.
    pub uid: ObjectUid,
    /// Service account that the pod runs as.
    pub service_account: String,
}

/// Place of an entry in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPosition {
    /// Sequence number of the segment, from 1.
    pub sequence: u64,
    /// Index of the entry in the segment, from 0.
    pub index: u32,
}

/// Reason of a revocation (RFC 5280 §5.3.1); the numbers are those of CRLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevocationReason {
    /// The revoking user gave no reason.
    Unspecified = 0,
    /// The private key of the certificate is known to others.
    KeyCompromise = 1,
    /// The private key of the CA is known to others.
    CaCompromise = 2,
    /// Names in the certificate are no longer right.
    AffiliationChanged = 3,
    /// Another certificate replaces this one.
    Superseded = 4,
    /// The holder needs the certificate no longer.
    CessationOfOperation = 5,
    /// Revoked for now: the only reason that can be withdrawn.
    CertificateHold = 6,
    /// A certificate on hold is valid again.
    RemoveFromCrl = 8,
    /// A right that the certificate grants was withdrawn.
    PrivilegeWithdrawn = 9,
    /// The private key of an attribute authority is known to others.
    AaCompromise = 10,
}

impl RevocationReason {
    const ALL: [(RevocationReason, &'static str); 10] = [
        (RevocationReason::Unspecified, "unspecified"),
        (RevocationReason::KeyCompromise, "keyCompromise"),
        (RevocationReason::CaCompromise, "cACompromise"),
        (RevocationReason::AffiliationChanged, "affiliationChanged"),
        (RevocationReason::Superseded, "superseded"),
        (RevocationReason::CessationOfOperation, "cessationOfOperation"),
        (RevocationReason::CertificateHold, "certificateHold"),
        (RevocationReason::RemoveFromCrl, "removeFromCRL"),
        (RevocationReason::PrivilegeWithdrawn, "privilegeWithdrawn"),
        (RevocationReason::AaCompromise, "aACompromise"),
    ];

    /// Returns the name in RFC 5280, as in `spec.reason` of a CertificateRevocation.
    pub fn name(self) -> &'static str {
        let found = RevocationReason::ALL.iter().find(|(reason, _)| *reason == self);
        found.map_or("unspecified", |(_, name)| name)
    }

    /// Finds the reason of this name.
    pub fn from_name(name: &str) -> Option<RevocationReason> {
        RevocationReason::ALL.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason)
    }

    /// Returns the number of the reason in CRLs.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Finds the reason of this number.
    pub fn from_number(number: u8) -> Option<RevocationReason> {
        RevocationReason::ALL.iter().map(|(reason, _)| *reason).find(|reason| reason.number() == number)
    }
}

/// A revocation, or its withdrawal if the reason is [`RevocationReason::RemoveFromCrl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationRecord {
    /// CA key that signed the certificate.
    pub authority: AuthorityId,
    /// Serial number of the certificate.
    pub serial: SerialNumber,
    /// Reason of the revocation, as CRLs state it.
    pub reason: RevocationReason,
    /// User that revoked the certificate.
    pub requester: String,
    /// When the certificate was revoked, in seconds since 1970.
    pub time: i64,
    /// When the certificate expires, in seconds since 1970: the entry is kept until then.
    pub not_after: i64,
}

/// An entry of the ledger. Positions refer to the chain that contains the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEntry {
    /// A certificate is about to be signed.
    Issuance(Box<IssuanceRecord>),
    /// The certificate of this record was written to its request.
    Issued(EntryPosition),
    /// The certificate of this record was not written to its request and never will be.
    Abandoned(EntryPosition),
    /// A certificate of any chain was revoked.
    Revoked(Box<RevocationRecord>),
    /// The segments up to this one are about to be deleted, because their certificates have expired.
    Pruned {
        /// Sequence number of the last segment that is deleted.
        through: u64,
        /// Hash of that segment, which the next one contains.
        hash: SegmentHash,
    },
}

impl LedgerEntry {
    /// Returns when the certificate of the entry expires; `None` if the entry has no certificate of its own.
    pub fn not_after(&self) -> Option<i64> {
        match self {
            LedgerEntry::Issuance(record) => Some(record.not_after),
            LedgerEntry::Revoked(record) => Some(record.not_after),
            LedgerEntry::Issued(_) | LedgerEntry::Abandoned(_) | LedgerEntry::Pruned { .. } => None,
        }
    }
}

impl IssuanceRecord {
    /// Returns the number of alternative names of all kinds, omitted ones included.
    pub fn name_count(&self) -> usize {
        let listed =
            self.dns_names.len() + self.ip_addresses.len() + self.email_addresses.len() + self.uris.len();
        listed.saturating_add(usize::try_from(self.omitted_names).unwrap_or(usize::MAX))
    }

    /// Truncates texts and omits alternative names until the record fits into a segment. Omitted names are counted.
    /// Issuance does not depend on the size of names, so the ledger must not either.
    pub(crate) fn limit_size(&mut self) {
        let texts = [&mut self.signer, &mut self.subject, &mut self.requester];
        let request = [&mut self.request.namespace, &mut self.request.name];
        let pod = self.pod.iter_mut().flat_map(|pod| [&mut pod.name, &mut pod.service_account]);
        let others = self.approver.iter_mut().chain(&mut self.node);
        texts.into_iter().chain(request).chain(pod).chain(others).for_each(truncate);
        let uids = self.pod.iter_mut().map(|pod| &mut pod.uid).chain([&mut self.request.uid]);
        for uid in uids {
            if let ObjectUid::Text(text) = uid {
                truncate(text);
            }
        }
        let mut usages = MAX_STRING_BYTES;
        self.usages.retain(|usage| fits(&mut usages, usage.len()));
        let (before, mut rest) = (self.name_count(), MAX_NAME_BYTES);
        for names in [&mut self.dns_names, &mut self.uris, &mut self.email_addresses] {
            names.retain(|name| name.len() <= MAX_STRING_BYTES && fits(&mut rest, name.len()));
            names.truncate(MAX_NAMES);
        }
        self.ip_addresses.retain(|_| fits(&mut rest, 16));
        self.ip_addresses.truncate(MAX_NAMES);
        let omitted = u32::try_from(before - self.name_count()).unwrap_or(u32::MAX);
        self.omitted_names = self.omitted_names.saturating_add(omitted);
    }
}

/// Takes `size` and a separator from what is left, if there is enough.
fn fits(rest: &mut usize, size: usize) -> bool {
    match rest.checked_sub(size + 1) {
        Some(less) => {
            *rest = less;
            true
        }
        None => false,
    }
}

pub(crate) fn truncate(text: &mut String) {
    if text.len() > MAX_STRING_BYTES {
        let end = (0..=MAX_STRING_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
    }
}
