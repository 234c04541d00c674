//! What is to become of a signer's trust bundle: no I/O, so that everything can be tried in a table.
//!
//! An anchor stays until the last certificate that can have been issued under it has expired. So for
//! each anchor the bundle records the longest lifetime that was granted under it, and, when another
//! takes its place, until when it is retained. Nothing is removed only because there is a new CA.

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
    /// A certificate as an anchor.
    pub fn from_certificate(certificate: &Certificate) -> TrustAnchor {
        TrustAnchor { der: certificate.der().to_vec() }
    }

    /// The anchors in the text of a bundle, each once.
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

    fn to_pem(&self) -> String {
        pem::encode_certificates([self.der.as_slice()])
    }

    /// Its SHA-256, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        encode_hex(&fingerprint(&self.der))
    }

    /// When it expires, if that can be read.
    fn not_after(&self) -> Option<OffsetDateTime> {
        ForeignCertificate::from_der(&self.der).ok().map(|certificate| certificate.not_after())
    }
}

/// The digest of a bundle's anchors as nodes report it.
pub fn digest(anchors: &[TrustAnchor]) -> String {
    let fingerprints: Vec<_> = anchors.iter().map(|anchor| fingerprint(&anchor.der)).collect();
    format!("sha256:{}", encode_hex(&certificate_set_digest(&fingerprints)))
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A bundle that is there.
#[derive(Clone, Debug)]
pub struct ExistingBundle {
    /// Whether the object has our managed-by label.
    pub ours: bool,
    /// Whether it has the labels it should have.
    pub labelled: bool,
    /// The `trustBundle` field: PEM certificates, not yet parsed.
    pub text: String,
    /// The anchor that was current when it was written.
    pub current: Option<String>,
    /// What is recorded about its anchors.
    pub records: Option<AnchorRecords>,
    /// Since when the anchors beside the current one are retired, as versions that kept no records
    /// wrote it.
    pub retired: Option<OffsetDateTime>,
}

/// What the decision depends on beside the bundle.
#[derive(Clone, Debug)]
pub struct AnchorPolicy {
    /// Current time, against which holds and retention are checked.
    pub now: OffsetDateTime,
    /// How long an anchor stays after the last certificate issued under it has expired.
    pub overlap: Duration,
    /// How long a new CA waits at most until nodes have its anchor.
    pub timeout: Duration,
    /// The longest lifetime that the signer grants.
    pub max_duration: Duration,
    /// The fingerprint of the anchor whose CA signs now, which need not be the newest.
    pub signing: Option<String>,
    /// Whether all nodes that report have the bundle as it is.
    pub delivered: bool,
}

/// What should be in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleContents {
    /// That of the newest CA first; never none.
    pub anchors: Vec<TrustAnchor>,
    /// What is recorded about each.
    pub records: AnchorRecords,
}

impl BundleContents {
    /// All anchors as PEM, the newest first.
    pub fn to_pem(&self) -> String {
        self.anchors.iter().map(TrustAnchor::to_pem).collect()
    }

    /// Fingerprint of the anchor of the newest CA.
    pub fn current_fingerprint(&self) -> String {
        self.anchors.first().map(TrustAnchor::fingerprint).unwrap_or_default()
    }
}

/// What the publisher does with a signer's bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorAction {
    /// The bundle belongs to another manager; do not write it.
    LeaveAlone,
    /// Nothing, until so long from now.
    Keep {
        /// Delay until the bundle is reconciled again; `None` if nothing is scheduled.
        again: Option<Duration>,
    },
    /// Write these contents to the bundle.
    Write {
        /// What should be in it.
        contents: BundleContents,
        /// Delay until the bundle is reconciled again; `None` if nothing is scheduled.
        again: Option<Duration>,
    },
    /// The new anchor cannot be added without removing one that is still needed.
    Full {
        /// How many anchors there would be.
        anchors: usize,
        /// When the first of them is not needed any more.
        again: Option<Duration>,
    },
}

/// What to do about the bundle of a signer with this anchor.
pub fn decide(
    found: Option<&ExistingBundle>,
    current: TrustAnchor,
    policy: &AnchorPolicy,
) -> AnchorAction {
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

/// Until when the newest CA waits, if it does. A time later than the timeout allows was written
/// when that was longer, or by a clock that was wrong.
fn hold_deadline(record: &AnchorRecord, policy: &AnchorPolicy) -> Option<OffsetDateTime> {
    let latest = round_up(policy.now + policy.timeout);
    let until = record.hold_until.filter(|_| !policy.delivered)?.min(latest);
    (until > policy.now && !policy.timeout.is_zero()).then_some(until)
}

fn next_change(contents: &BundleContents, now: OffsetDateTime) -> Option<Duration> {
    let times =
        contents.records.values().flat_map(|record| [record.hold_until, record.retain_until]);
    let next = times.flatten().filter(|time| *time > now).min()?;
    Some(Duration::try_from(next - now).unwrap_or_default())
}

impl ExistingBundle {
    /// The anchors that belong in it, with what is recorded about them. What somebody else added
    /// has no record; a bundle without any records was written by an earlier version, or somebody
    /// removed its annotations, and then all of it counts.
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

    /// What is recorded about an anchor that is in the bundle.
    fn record(&self, name: &str) -> Option<AnchorRecord> {
        let recorded = self.records.as_ref().and_then(|records| records.get(name));
        let was_current = self.current.as_deref() == Some(name);
        recorded.cloned().or_else(|| was_current.then(AnchorRecord::default))
    }

    /// Until when an anchor stays that is not that of the newest CA.
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
        // Its CA may go on signing until the new one does, which is when the timeout has passed.
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
