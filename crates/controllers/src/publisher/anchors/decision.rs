//! Decision on the trust bundle of a signer: a pure function, tested with tables of cases.
//!
//! An anchor stays until the last certificate that can have been issued under it has expired. So the bundle records,
//! for each anchor, the longest lifetime that was granted under it and, once it is replaced, until when it is retained.
//! No anchor is removed just because there is a new CA.

#[cfg(test)]
mod tests;

use std::time::Duration;

use time::OffsetDateTime;
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;
use windlass_pki::{Certificate, ForeignCertificate, certificate_set_digest, fingerprint, pem};

use super::record::{AnchorRecord, AnchorRecords, round_up};
use crate::limits::MAX_ANCHORS;

/// A trust anchor: the DER encoding of one CA certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAnchor {
    der: Vec<u8>,
}

impl TrustAnchor {
    /// Creates the anchor of a certificate.
    pub fn from_certificate(certificate: &Certificate) -> TrustAnchor {
        TrustAnchor { der: certificate.der().to_vec() }
    }

    /// Parses the anchors of a bundle, without duplicates.
    pub fn parse_pem(text: &str) -> Vec<TrustAnchor> {
        let mut anchors = Vec::new();
        for der in pem::certificates(text.as_bytes()).unwrap_or_default() {
            let anchor = TrustAnchor { der: der.to_vec() };
            if !anchors.contains(&anchor) {
                anchors.push(anchor);
            }
        }
        anchors
    }

    /// Encodes the anchor as PEM.
    pub fn to_pem(&self) -> String {
        pem::encode_certificates([self.der.as_slice()])
    }

    /// Returns the SHA-256 of the anchor, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        encode_hex(&fingerprint(&self.der))
    }

    /// Parses the certificate of the anchor; `None` if it cannot be parsed.
    pub fn certificate(&self) -> Option<Certificate> {
        Certificate::from_der(&self.der).ok()
    }

    /// Returns when the anchor expires; `None` if it cannot be parsed.
    fn not_after(&self) -> Option<OffsetDateTime> {
        ForeignCertificate::from_der(&self.der).ok().map(|certificate| certificate.not_after())
    }
}

/// Computes the digest of a bundle's anchors as nodes report it.
pub fn digest(anchors: &[TrustAnchor]) -> String {
    let fingerprints: Vec<_> = anchors.iter().map(|anchor| fingerprint(&anchor.der)).collect();
    format!("sha256:{}", encode_hex(&certificate_set_digest(&fingerprints)))
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A bundle as it exists on the server.
#[derive(Clone, Debug)]
pub struct ExistingBundle {
    /// Whether the object has our managed-by label.
    pub ours: bool,
    /// Whether the object has the configured labels.
    pub labelled: bool,
    /// The `trustBundle` field: PEM certificates, not yet parsed.
    pub text: String,
    /// Fingerprint of the anchor that was current when the bundle was written.
    pub current: Option<String>,
    /// Records about its anchors; `None` if there are none.
    pub records: Option<AnchorRecords>,
    /// Time since which the anchors besides the current one are retired, written by versions without records.
    pub retired: Option<OffsetDateTime>,
}

/// Inputs of the decision besides the bundle.
#[derive(Clone, Debug)]
pub struct AnchorPolicy {
    /// Current time, against which holds and retention are checked.
    pub now: OffsetDateTime,
    /// Time for which an anchor stays after the last certificate issued under it has expired.
    pub overlap: Duration,
    /// Longest time for which a new CA waits until nodes have its anchor.
    pub timeout: Duration,
    /// Longest lifetime that the signer grants.
    pub max_duration: Duration,
    /// Fingerprint of the anchor whose CA signs now, which need not be the newest.
    pub signing: Option<String>,
    /// Whether all nodes that report have the current bundle.
    pub delivered: bool,
}

/// Desired content of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleContents {
    /// Anchors, that of the newest CA first; never empty.
    pub anchors: Vec<TrustAnchor>,
    /// Records about each anchor.
    pub records: AnchorRecords,
}

impl BundleContents {
    /// Encodes all anchors as PEM, the newest first.
    pub fn to_pem(&self) -> String {
        self.anchors.iter().map(TrustAnchor::to_pem).collect()
    }

    /// Returns the fingerprint of the anchor of the newest CA.
    pub fn current_fingerprint(&self) -> String {
        self.anchors.first().map(TrustAnchor::fingerprint).unwrap_or_default()
    }
}

/// What the publisher does with a signer's bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorAction {
    /// The bundle belongs to another manager; do not write it.
    LeaveAlone,
    /// The bundle is up to date.
    Keep {
        /// Delay until the bundle is reconciled again; `None` if nothing is scheduled.
        again: Option<Duration>,
    },
    /// Write these contents to the bundle.
    Write {
        /// Content to write.
        contents: BundleContents,
        /// Delay until the bundle is reconciled again; `None` if nothing is scheduled.
        again: Option<Duration>,
    },
    /// The new anchor cannot be added without removing one that is still needed.
    Full {
        /// Number of anchors including the new one.
        anchors: usize,
        /// Delay until the first of them is not needed any more.
        again: Option<Duration>,
    },
}

/// Decides what to do with the bundle of a signer whose CA has this anchor.
pub fn decide(found: Option<&ExistingBundle>, current: TrustAnchor, policy: &AnchorPolicy) -> AnchorAction {
    let max_duration_seconds = policy.max_duration.as_secs();
    let Some(found) = found else {
        let record = AnchorRecord { max_duration_seconds, ..AnchorRecord::default() };
        let records = AnchorRecords::from([(current.fingerprint(), record)]);
        return AnchorAction::Write {
            contents: BundleContents { anchors: vec![current], records },
            again: None,
        };
    };
    if !found.ours {
        return AnchorAction::LeaveAlone;
    }
    let name = current.fingerprint();
    let old: Vec<(TrustAnchor, AnchorRecord)> = found
        .anchors_with_records()
        .into_iter()
        .filter(|(anchor, _)| *anchor != current)
        .map(|(anchor, record)| found.retain_old_anchors(anchor, record, &name, policy))
        .filter(|(_, record)| record.retain_until.is_some_and(|until| until > policy.now))
        .collect();
    let record = found.record(&name).map_or_else(
        || AnchorRecord {
            hold_until: (!old.is_empty()).then(|| round_up(policy.now + policy.timeout)),
            ..AnchorRecord::default()
        },
        |record| AnchorRecord { retain_until: None, ..record },
    );
    let record = AnchorRecord {
        max_duration_seconds: record.max_duration_seconds.max(max_duration_seconds),
        hold_until: hold_deadline(&record, policy),
        ..record
    };
    let contents = build_contents((current, record), old);
    let again = next_change(&contents, policy.now);
    if contents.anchors.len() > MAX_ANCHORS || contents.to_pem().len() > MAX_TRUST_BUNDLE_BYTES {
        return AnchorAction::Full { anchors: contents.anchors.len(), again };
    }
    let right = found.labelled
        && found.retired.is_none()
        && found.current.as_ref() == Some(&name)
        && found.records.as_ref() == Some(&contents.records)
        && contents.to_pem() == found.text;
    if right { AnchorAction::Keep { again } } else { AnchorAction::Write { contents, again } }
}

fn build_contents(
    current: (TrustAnchor, AnchorRecord),
    old: Vec<(TrustAnchor, AnchorRecord)>,
) -> BundleContents {
    let (mut anchors, mut records) = (Vec::new(), AnchorRecords::new());
    for (anchor, record) in std::iter::once(current).chain(old) {
        records.insert(anchor.fingerprint(), record);
        anchors.push(anchor);
    }
    BundleContents { anchors, records }
}

/// Returns until when the newest CA waits; `None` if it does not. A later time than the timeout allows was written when
/// the timeout was longer, or by a wrong clock.
fn hold_deadline(record: &AnchorRecord, policy: &AnchorPolicy) -> Option<OffsetDateTime> {
    let latest = round_up(policy.now + policy.timeout);
    let until = record.hold_until.filter(|_| !policy.delivered)?.min(latest);
    (until > policy.now && !policy.timeout.is_zero()).then_some(until)
}

fn next_change(contents: &BundleContents, now: OffsetDateTime) -> Option<Duration> {
    let times = contents.records.values().flat_map(|record| [record.hold_until, record.retain_until]);
    let next = times.flatten().filter(|time| *time > now).min()?;
    Some(Duration::try_from(next - now).unwrap_or_default())
}

impl ExistingBundle {
    /// Lists the anchors that belong into the bundle, with their records. Anchors that another manager added have no
    /// record. If there are no records at all, the bundle was written by an earlier version or its annotations were
    /// removed, and all anchors count.
    fn anchors_with_records(&self) -> Vec<(TrustAnchor, AnchorRecord)> {
        let counts = self.retired.is_some() || self.current.is_none();
        let anchors = TrustAnchor::parse_pem(&self.text).into_iter();
        let known = anchors.filter_map(|anchor| {
            let record = self.record(&anchor.fingerprint());
            let record = record.or_else(|| counts.then(AnchorRecord::default))?;
            Some((anchor, record))
        });
        known.collect()
    }

    /// Returns the record of an anchor in the bundle.
    fn record(&self, name: &str) -> Option<AnchorRecord> {
        let recorded = self.records.as_ref().and_then(|records| records.get(name));
        let was_current = self.current.as_deref() == Some(name);
        recorded.cloned().or_else(|| was_current.then(AnchorRecord::default))
    }

    /// Computes until when an anchor stays that is not that of the newest CA.
    fn retain_old_anchors(
        &self,
        anchor: TrustAnchor,
        record: AnchorRecord,
        current: &str,
        policy: &AnchorPolicy,
    ) -> (TrustAnchor, AnchorRecord) {
        let name = anchor.fingerprint();
        let replaced = self.current.as_deref() != Some(current);
        let signs = self.current.as_ref() == Some(&name) || policy.signing.as_ref() == Some(&name);
        // Its CA may continue to sign until the new one does, which is after the timeout at the latest.
        let last_signature = match self.retired {
            Some(since) if record.retain_until.is_none() && !signs => since.min(policy.now),
            Some(_) | None => policy.now + policy.timeout,
        };
        let granted = Duration::from_secs(record.max_duration_seconds).max(policy.max_duration);
        let expired = last_signature.saturating_add(to_signed_duration(granted));
        let expired = anchor.not_after().map_or(expired, |not_after| expired.min(not_after));
        let bound = round_up(expired.saturating_add(to_signed_duration(policy.overlap)));
        let retain_until = match record.retain_until {
            Some(until) if replaced && signs => until.max(bound),
            Some(until) => until,
            None => bound,
        };
        (anchor, AnchorRecord { retain_until: Some(retain_until), ..record })
    }
}

fn to_signed_duration(duration: Duration) -> time::Duration {
    time::Duration::try_from(duration).unwrap_or(time::Duration::MAX)
}
