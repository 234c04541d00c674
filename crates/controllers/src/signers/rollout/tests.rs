use std::fs;
use std::path::Path;

use time::macros::datetime;
use windlass_pki::Validity;

use super::*;
use crate::publisher::anchors::AnchorRecord;

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(300);

/// Writes a CA that is valid for `hours`; returns its fingerprint.
fn write_ca(dir: &Path, name: &str, hours: i64) -> String {
    let validity = Validity::new(NOW - HOUR, NOW + time::Duration::hours(hours)).unwrap();
    let ca = windlass_testkit::ca_with_validity(name, validity);
    fs::write(dir.join("crt"), ca.certificate().to_pem()).unwrap();
    fs::write(dir.join("key"), ca.key().to_pem().unwrap().as_bytes()).unwrap();
    TrustAnchor::from_certificate(ca.certificate()).fingerprint()
}

struct RolloutFixture {
    dir: tempfile::TempDir,
    source: Arc<CaSource>,
    rollout: Arc<CaRollout>,
    old: String,
}

impl RolloutFixture {
    fn new(hours: i64) -> RolloutFixture {
        let dir = tempfile::tempdir().unwrap();
        let old = write_ca(dir.path(), "old", hours);
        let files = (dir.path().join("crt"), dir.path().join("key"));
        let source = CaSource::from_chain_files(files.0, files.1, Arc::new(|| NOW));
        let rollout = CaRollout::new("a.b/trial", source.clone(), HOUR);
        RolloutFixture { dir, source, rollout, old }
    }

    /// Replaces the CA and returns the fingerprint of the new one.
    fn replace(&self) -> String {
        let new = write_ca(self.dir.path(), "new", 99);
        self.source.reload();
        new
    }

    /// Returns the signing CA, or the reason why none signs.
    fn signing_ca(&self, now: OffsetDateTime) -> String {
        match self.rollout.select_ca(now) {
            Ok(ca) => ca.certificate().common_name().unwrap().to_owned(),
            Err(held) => held.reason.to_owned(),
        }
    }

    fn publish(&self, records: &[(&str, AnchorRecord)], now: OffsetDateTime) {
        let records = records.iter().map(|(name, record)| ((*name).to_owned(), record.clone()));
        self.rollout.set_publication(PublicationState::Known(records.collect()), now);
    }
}

fn held_record(until: OffsetDateTime) -> AnchorRecord {
    AnchorRecord { hold_until: Some(until), ..AnchorRecord::default() }
}

fn retained_record(until: OffsetDateTime) -> AnchorRecord {
    AnchorRecord { retain_until: Some(until), ..AnchorRecord::default() }
}

#[test]
fn a_signer_that_publishes_nothing_signs_at_once() {
    let trial = RolloutFixture::new(9);
    assert_eq!(trial.signing_ca(NOW), "old");
    trial.replace();
    assert_eq!(trial.signing_ca(NOW), "new");
}

#[test]
fn a_new_ca_waits_for_its_anchor_while_the_previous_one_signs() {
    let trial = RolloutFixture::new(99);
    trial.rollout.require_publication(TIMEOUT);
    assert_eq!(trial.signing_ca(NOW), "CaNotPublished");
    let mut changes = trial.rollout.changes();
    trial.publish(&[(&trial.old, AnchorRecord::default())], NOW);
    assert!(changes.has_changed().unwrap());
    assert_eq!(trial.signing_ca(NOW), "old");
    let new = trial.replace();
    assert_eq!(trial.signing_ca(NOW), "old", "its anchor is not published");
    let until = NOW + TIMEOUT;
    let retain = until + HOUR;
    trial.publish(&[(&new, held_record(until)), (&trial.old, retained_record(retain))], NOW);
    changes.mark_unchanged();
    assert_eq!(trial.signing_ca(NOW + MINUTE), "old", "nodes do not have it");
    assert_eq!(trial.rollout.signing_fingerprint(), Some(trial.old.clone()));
    trial.publish(&[(&new, AnchorRecord::default()), (&trial.old, retained_record(retain))], NOW + MINUTE);
    assert!(changes.has_changed().unwrap());
    assert_eq!(trial.signing_ca(NOW + MINUTE), "new");
    assert_eq!(trial.rollout.signing_fingerprint(), Some(new));
}

#[test]
fn a_ca_waits_no_longer_than_the_timeout() {
    let trial = RolloutFixture::new(99);
    trial.rollout.require_publication(TIMEOUT);
    assert_eq!(trial.signing_ca(NOW), "CaNotPublished");
    assert_eq!(trial.signing_ca(NOW + TIMEOUT - MINUTE), "CaNotPublished");
    assert_eq!(trial.signing_ca(NOW + TIMEOUT), "old", "whoever publishes cannot do it");
    let new = trial.replace();
    let (until, retain) = (NOW + 2 * TIMEOUT, NOW + 2 * TIMEOUT + HOUR);
    trial.publish(&[(&new, held_record(until)), (&trial.old, retained_record(retain))], NOW + TIMEOUT);
    assert_eq!(trial.signing_ca(until - MINUTE), "old");
    assert_eq!(trial.signing_ca(until), "new");
}

#[test]
fn certificates_of_an_old_ca_expire_before_its_anchor_is_removed() {
    let trial = RolloutFixture::new(2);
    trial.rollout.require_publication(TIMEOUT);
    trial.publish(&[(&trial.old, AnchorRecord::default())], NOW);
    let (new, late) = (trial.replace(), NOW + 9 * HOUR);
    let old = trial.old.as_str();
    let table = [
        (vec![(new.as_str(), held_record(late)), (old, retained_record(NOW + HOUR))], "old"),
        (
            vec![(new.as_str(), held_record(late)), (old, retained_record(NOW + HOUR - MINUTE))],
            "CaNotDelivered",
        ),
        // An operator removed the old anchor.
        (vec![(new.as_str(), held_record(late))], "CaNotDelivered"),
    ];
    for (records, signs) in table {
        trial.publish(&[(old, AnchorRecord::default()), (&new, held_record(late))], NOW);
        assert_eq!(trial.signing_ca(NOW), "old");
        trial.publish(&records, NOW);
        assert_eq!(trial.signing_ca(NOW), signs, "{records:?}");
    }
    // The old CA expires during its retention.
    trial.publish(&[(&new, held_record(late)), (old, retained_record(late))], NOW);
    assert_eq!(trial.signing_ca(NOW + HOUR + MINUTE), "old", "its own end is nearer");
    assert_eq!(trial.signing_ca(NOW + 2 * HOUR + MINUTE), "CaNotDelivered");
}

#[test]
fn a_full_bundle_is_waited_for_however_long() {
    let trial = RolloutFixture::new(99);
    trial.rollout.require_publication(TIMEOUT);
    let records = AnchorRecords::from([("another".to_owned(), AnchorRecord::default())]);
    trial.rollout.set_publication(PublicationState::Full(records), NOW);
    assert_eq!(trial.signing_ca(NOW + 9 * TIMEOUT), "TrustBundleFull");
}
