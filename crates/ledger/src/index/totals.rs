//! Numbers of certificates per signer and authority.

use std::collections::BTreeMap;

use super::{CertificateIndex, CertificateState, CertificateView};
use crate::identity::AuthorityId;

/// Numbers of certificates that one CA key has signed for one signer. Abandoned records do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityTotals {
    /// Name of the signer that the totals are for.
    pub signer: String,
    /// CA key that the totals are for.
    pub authority: AuthorityId,
    /// Certificates in the ledger, including those that were expired when they left the index.
    pub issued: u64,
    /// Certificates that have not expired, revoked and superseded ones included.
    pub unexpired: u64,
    /// Certificates that have neither expired nor been superseded or revoked.
    pub outstanding: u64,
    /// Certificates that are revoked and have not expired.
    pub revoked: u64,
    /// Outstanding certificates in the last tenth of their lifetime. Those of pods do not count: a pod may have been
    /// deleted long ago, which the ledger does not know, and its node reports whether it renews.
    pub expiring: u64,
    /// First expiry among the outstanding certificates, in seconds since 1970; `None` if there are none.
    pub earliest_expiry: Option<i64>,
    /// Last expiry among the unexpired certificates, in seconds since 1970; `None` if there are none.
    pub latest_expiry: Option<i64>,
}

impl CertificateIndex {
    /// Counts certificates per signer and authority at `now`, by name of the signer.
    pub fn totals(&self, now: i64) -> Vec<AuthorityTotals> {
        let mut totals: BTreeMap<u32, AuthorityTotals> = BTreeMap::new();
        for (issuer, expired) in &self.expired {
            if let Some(totals) = self.totals_of(&mut totals, *issuer) {
                totals.issued += expired;
            }
        }
        for certificate in self.certificates() {
            if certificate.state() == CertificateState::Abandoned {
                continue;
            }
            let Some(totals) = self.totals_of(&mut totals, certificate.issuer()) else { continue };
            totals.issued += 1;
            let expiry = certificate.not_after();
            if expiry < now {
                continue;
            }
            totals.unexpired += 1;
            totals.latest_expiry = totals.latest_expiry.max(Some(expiry));
            totals.revoked += u64::from(certificate.state() == CertificateState::Revoked);
            if certificate.is_outstanding(now) {
                totals.outstanding += 1;
                totals.expiring += u64::from(is_expiring(&certificate, now));
                totals.earliest_expiry =
                    Some(totals.earliest_expiry.map_or(expiry, |first| first.min(expiry)));
            }
        }
        let mut totals: Vec<AuthorityTotals> = totals.into_values().collect();
        totals.sort_by(|a, b| (&a.signer, &a.authority).cmp(&(&b.signer, &b.authority)));
        totals
    }

    fn totals_of<'a>(
        &self,
        totals: &'a mut BTreeMap<u32, AuthorityTotals>,
        issuer: u32,
    ) -> Option<&'a mut AuthorityTotals> {
        let (signer, authority) = self.issuer(issuer);
        let authority = AuthorityId::from_bytes(authority).ok()?;
        Some(totals.entry(issuer).or_insert_with(|| AuthorityTotals {
            signer: signer.to_owned(),
            authority,
            issued: 0,
            unexpired: 0,
            outstanding: 0,
            revoked: 0,
            expiring: 0,
            earliest_expiry: None,
            latest_expiry: None,
        }))
    }
}

/// Whether nobody has renewed an unexpired certificate although nine tenths of its lifetime have passed.
fn is_expiring(certificate: &CertificateView<'_>, now: i64) -> bool {
    let lifetime = certificate.not_after() - certificate.not_before();
    certificate.holder().pod.is_empty() && certificate.not_after() - now < lifetime / 10
}
