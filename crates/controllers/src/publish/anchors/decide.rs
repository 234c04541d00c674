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

use super::record::{Record, Records, round_up};
use crate::limits::MAX_ANCHORS;

/// A trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    der: Vec<u8>,
}

impl Anchor {
    /// A certificate as an anchor.
    pub fn of(certificate: &Certificate) -> Anchor {
        Anchor { der: certificate.der().to_vec() }
    }

    /// The anchors in the text of a bundle, each once.
    pub fn in_text(text: &str) -> Vec<Anchor> {
        let mut anchors = Vec::new();
        for der in pem::certificates(text.as_bytes()).unwrap_or_default() {
            let anchor = Anchor { der: der.to_vec() };
            if !anchors.contains(&anchor) {
                anchors.push(anchor);
            }
        }
        anchors
    }

    fn text(&self) -> String {
        pem::encode_certificates([self.der.as_slice()])
    }

    /// Its SHA-256, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        hex(&fingerprint(&self.der))
    }

    /// When it expires, if that can be read.
    fn not_after(&self) -> Option<OffsetDateTime> {
        ForeignCertificate::from_der(&self.der).ok().map(|certificate| certificate.not_after())
    }
}

/// The digest of a bundle's anchors as nodes report it.
pub fn digest(anchors: &[Anchor]) -> String {
    let fingerprints: Vec<_> = anchors.iter().map(|anchor| fingerprint(&anchor.der)).collect();
    format!("sha256:{}", hex(&certificate_set_digest(&fingerprints)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A bundle that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// Whether we made it.
    pub ours: bool,
    /// Whether it has the labels it should have.
    pub labelled: bool,
    /// What is in it.
    pub text: String,
    /// The anchor that was current when it was written.
    pub current: Option<String>,
    /// What is recorded about its anchors.
    pub records: Option<Records>,
    /// Since when the anchors beside the current one are retired, as versions that kept no records
    /// wrote it.
    pub retired: Option<OffsetDateTime>,
}

/// What the decision depends on beside the bundle.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What time it is.
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
pub struct Contents {
    /// That of the newest CA first; never none.
    pub anchors: Vec<Anchor>,
    /// What is recorded about each.
    pub records: Records,
}

impl Contents {
    /// As PEM.
    pub fn text(&self) -> String {
        self.anchors.iter().map(Anchor::text).collect()
    }

    /// Which one is current.
    pub fn current(&self) -> String {
        self.anchors.first().map(Anchor::fingerprint).unwrap_or_default()
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is somebody else's.
    LeaveAlone,
    /// Nothing, until so long from now.
    Keep {
        /// When to look again.
        again: Option<Duration>,
    },
    /// Write this.
    Write {
        /// What should be in it.
        contents: Contents,
        /// When to look again.
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
pub fn decide(found: Option<&Found>, current: Anchor, policy: &Policy) -> Action {
    let max_duration_seconds = policy.max_duration.as_secs();
    let Some(found) = found else {
        let record = Record { max_duration_seconds, ..Record::default() };
        let records = Records::from([(current.fingerprint(), record)]);
        return Action::Write {
            contents: Contents { anchors: vec![current], records },
            again: None,
        };
    };
    if !found.ours {
        return Action::LeaveAlone;
    }
    let name = current.fingerprint();
    let old: Vec<(Anchor, Record)> = found
        .known()
        .into_iter()
        .filter(|(anchor, _)| *anchor != current)
        .map(|(anchor, record)| found.retain(anchor, record, &name, policy))
        .filter(|(_, record)| record.retain_until.is_some_and(|until| until > policy.now))
        .collect();
    let record = found.record(&name).map_or_else(
        || Record {
            hold_until: (!old.is_empty()).then(|| round_up(policy.now + policy.timeout)),
            ..Record::default()
        },
        |record| Record { retain_until: None, ..record },
    );
    let record = Record {
        max_duration_seconds: record.max_duration_seconds.max(max_duration_seconds),
        hold_until: still_held(&record, policy),
        ..record
    };
    let contents = contents((current, record), old);
    let again = next_change(&contents, policy.now);
    if contents.anchors.len() > MAX_ANCHORS || contents.text().len() > MAX_TRUST_BUNDLE_BYTES {
        return Action::Full { anchors: contents.anchors.len(), again };
    }
    let right = found.labelled
        && found.retired.is_none()
        && found.current.as_ref() == Some(&name)
        && found.records.as_ref() == Some(&contents.records)
        && contents.text() == found.text;
    if right { Action::Keep { again } } else { Action::Write { contents, again } }
}

fn contents(current: (Anchor, Record), old: Vec<(Anchor, Record)>) -> Contents {
    let (mut anchors, mut records) = (Vec::new(), Records::new());
    for (anchor, record) in std::iter::once(current).chain(old) {
        records.insert(anchor.fingerprint(), record);
        anchors.push(anchor);
    }
    Contents { anchors, records }
}

/// Until when the newest CA waits, if it does. A time later than the timeout allows was written
/// when that was longer, or by a clock that was wrong.
fn still_held(record: &Record, policy: &Policy) -> Option<OffsetDateTime> {
    let latest = round_up(policy.now + policy.timeout);
    let until = record.hold_until.filter(|_| !policy.delivered)?.min(latest);
    (until > policy.now && !policy.timeout.is_zero()).then_some(until)
}

fn next_change(contents: &Contents, now: OffsetDateTime) -> Option<Duration> {
    let times =
        contents.records.values().flat_map(|record| [record.hold_until, record.retain_until]);
    let next = times.flatten().filter(|time| *time > now).min()?;
    Some(Duration::try_from(next - now).unwrap_or_default())
}

impl Found {
    /// The anchors that belong in it, with what is recorded about them. What somebody else added
    /// has no record; a bundle without any records was written by an earlier version, or somebody
    /// removed its annotations, and then all of it counts.
    fn known(&self) -> Vec<(Anchor, Record)> {
        let counts = self.retired.is_some() || self.current.is_none();
        let anchors = Anchor::in_text(&self.text).into_iter();
        let known = anchors.filter_map(|anchor| {
            let record = self.record(&anchor.fingerprint());
            let record = record.or_else(|| counts.then(Record::default))?;
            Some((anchor, record))
        });
        known.collect()
    }

    /// What is recorded about an anchor that is in the bundle.
    fn record(&self, name: &str) -> Option<Record> {
        let recorded = self.records.as_ref().and_then(|records| records.get(name));
        let was_current = self.current.as_deref() == Some(name);
        recorded.cloned().or_else(|| was_current.then(Record::default))
    }

    /// Until when an anchor stays that is not that of the newest CA.
    fn retain(
        &self,
        anchor: Anchor,
        record: Record,
        current: &str,
        policy: &Policy,
    ) -> (Anchor, Record) {
        let name = anchor.fingerprint();
        let replaced = self.current.as_deref() != Some(current);
        let signs = self.current.as_ref() == Some(&name) || policy.signing.as_ref() == Some(&name);
        // Its CA may go on signing until the new one does, which is when the timeout has passed.
        let last_signature = match self.retired {
            Some(since) if record.retain_until.is_none() && !signs => since.min(policy.now),
            Some(_) | None => policy.now + policy.timeout,
        };
        let granted = Duration::from_secs(record.max_duration_seconds).max(policy.max_duration);
        let expired = last_signature.saturating_add(long(granted));
        let expired = anchor.not_after().map_or(expired, |not_after| expired.min(not_after));
        let bound = round_up(expired.saturating_add(long(policy.overlap)));
        let retain_until = match record.retain_until {
            Some(until) if replaced && signs => until.max(bound),
            Some(until) => until,
            None => bound,
        };
        (anchor, Record { retain_until: Some(retain_until), ..record })
    }
}

fn long(duration: Duration) -> time::Duration {
    time::Duration::try_from(duration).unwrap_or(time::Duration::MAX)
}
