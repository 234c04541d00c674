//! A certificate of the index with its texts.

use super::summary::SEPARATOR;
use super::{CertificateIndex, CertificateState, CompactRecord, NONE, RecordState, RevocationInfo, usize_of};
use crate::chain::LedgerChain;
use crate::identity::{AuthorityId, SerialNumber};
use crate::record::{EntryPosition, RevocationReason};

/// A certificate of an index.
#[derive(Clone, Copy, Debug)]
pub struct CertificateView<'a> {
    index: &'a CertificateIndex,
    record: &'a CompactRecord,
}

/// Who holds a certificate. What is unknown or does not apply is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateHolder<'a> {
    /// Node that holds the certificate, or on which the pod runs that does.
    pub node: &'a str,
    /// Namespace of the pod and its service account.
    pub namespace: &'a str,
    /// Name of the pod that holds the certificate.
    pub pod: &'a str,
    /// Service account of the pod.
    pub service_account: &'a str,
}

impl<'a> CertificateView<'a> {
    pub(super) fn new(index: &'a CertificateIndex, record: &'a CompactRecord) -> CertificateView<'a> {
        CertificateView { index, record }
    }

    pub(super) fn issuer(&self) -> u32 {
        self.record.issuer
    }

    /// Returns the name of the signer.
    pub fn signer(&self) -> &'a str {
        self.index.issuer(self.record.issuer).0
    }

    /// Returns the CA key that signed; `None` never happens for records of a segment.
    pub fn authority(&self) -> Option<AuthorityId> {
        AuthorityId::from_bytes(self.authority_bytes()).ok()
    }

    /// Returns the subject key identifier of the CA key that signed.
    pub fn authority_bytes(&self) -> &'a [u8] {
        self.index.issuer(self.record.issuer).1
    }

    /// Returns the serial number, which is unique for the authority.
    pub fn serial(&self) -> SerialNumber {
        self.record.serial
    }

    /// Returns when the record was written, in seconds since 1970.
    pub fn recorded(&self) -> i64 {
        self.record.recorded
    }

    /// Returns the first second of the validity, in seconds since 1970.
    pub fn not_before(&self) -> i64 {
        self.record.not_before
    }

    /// Returns the last second of the validity, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.record.not_after
    }

    /// Returns the subject as text; empty if the certificate has none.
    pub fn subject(&self) -> &'a str {
        self.index.strings.text(self.record.subject)
    }

    /// Lists the alternative names with their types, such as `DNS:web.default.svc` and `IP:10.0.0.1`.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.index
            .strings
            .text(self.record.names)
            .split(char::from(SEPARATOR))
            .filter(|name| !name.is_empty())
    }

    /// Whether this DNS name is in the certificate, compared without case.
    pub fn has_dns_name(&self, name: &str) -> bool {
        self.names().filter_map(|each| each.strip_prefix("DNS:")).any(|each| each.eq_ignore_ascii_case(name))
    }

    /// Returns who holds the certificate.
    pub fn holder(&self) -> CertificateHolder<'a> {
        let group = self.index.groups.get(usize_of(self.record.group));
        let (node, namespace, pod, service_account) = group.map_or((NONE, NONE, NONE, NONE), |group| {
            (group.node, group.namespace, group.pod, group.service_account)
        });
        let text = |number| self.index.strings.text(number);
        CertificateHolder {
            node: text(node),
            namespace: text(namespace),
            pod: text(pod),
            service_account: text(service_account),
        }
    }

    /// Returns chain and position of the record, to read all of it.
    pub fn position(&self) -> (LedgerChain, EntryPosition) {
        (self.record.chain, self.record.position)
    }

    /// Returns the state, without regard to expiry and supersession.
    pub fn state(&self) -> CertificateState {
        match self.record.state {
            RecordState::Abandoned => CertificateState::Abandoned,
            _ if self.revocation().is_some() => CertificateState::Revoked,
            RecordState::Issued => CertificateState::Issued,
            RecordState::Recorded => CertificateState::Recorded,
        }
    }

    /// Returns when and why the certificate was revoked; `None` if it is not.
    pub fn revocation(&self) -> Option<RevocationInfo> {
        if self.index.revocations.is_empty() {
            return None;
        }
        let found = self.index.revocations.get(&(self.authority()?, self.record.serial))?;
        Some(*found).filter(|found| found.reason != RevocationReason::RemoveFromCrl)
    }

    /// Returns the certificate that superseded this one: the newest that was issued later by the same signer to the same
    /// holder, with another key.
    pub fn superseded_by(&self) -> Option<CertificateView<'a>> {
        let group = self.index.groups.get(usize_of(self.record.group))?;
        let candidates = [group.newest, group.newest_other_key].into_iter();
        let newer = candidates
            .filter_map(|number| self.index.record(number))
            .find(|record| record.key != self.record.key && record.age_key() > self.record.age_key());
        newer.map(|record| CertificateView::new(self.index, record))
    }

    /// Whether the certificate may be in use: unexpired and neither superseded nor revoked nor abandoned.
    pub fn is_outstanding(&self, now: i64) -> bool {
        self.record.not_after >= now
            && matches!(self.state(), CertificateState::Recorded | CertificateState::Issued)
            && self.superseded_by().is_none()
    }
}
