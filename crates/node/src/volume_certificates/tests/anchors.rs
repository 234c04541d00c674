//! Certificates whose trust anchor is no longer published.

use windlass_pki::{CertificateAuthority, Validity};

use super::*;
use crate::testing::{AUTHORITY, START};

/// A CA with the name of the issuing one, and another key.
fn namesake() -> CertificateAuthority {
    let validity = Validity::new(START - Span::DAY, START + Span::days(99)).unwrap();
    windlass_testkit::ca_with_validity(AUTHORITY.certificate().common_name().unwrap(), validity)
}

#[tokio::test(start_paused = true)]
async fn orphaned_certificate_is_renewed_at_once() {
    for host in [false, true] {
        let node = IssuanceTestNode::new(DAY);
        let mut life = node.start();
        let (id, wanted) = node.source_of(host);
        node.publish(&[&AUTHORITY]);
        life.certificates.ensure(&id, wanted);
        let first = life.ready(&id).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // An additional anchor changes nothing, nor does a signer that publishes none.
        node.publish(&[&namesake(), &AUTHORITY]);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        node.publish(&[]);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.credential(&id).unwrap().chain, first.chain);
        assert_eq!(node.server.created().len(), 1);
        // Its anchor is withdrawn, also for its successors: renewals back off.
        let other = namesake();
        node.publish(&[&other]);
        let lost = node.now();
        let second = life.after(&id, &first).await;
        assert!(node.now() - lost <= minutes(1) + Span::SECOND, "{}", node.now() - lost);
        assert_ne!(second.key, first.key);
        let third = life.after(&id, &second).await;
        life.after(&id, &third).await;
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        let count = node.server.created().len();
        assert!((5..=12).contains(&count), "{count} requests");
        // The anchor is published again, and renewals stop.
        node.publish(&[&other, &AUTHORITY]);
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(node.server.created().len(), count, "a certificate was renewed for no reason");
    }
}

/// The CA was replaced while the agent did not run.
#[tokio::test(start_paused = true)]
async fn certificate_orphaned_before_restart_is_renewed() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    let first = life.ready(&id("web", 0)).await;
    life.kill().await;
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(life.credential(&id("web", 0)).unwrap().chain, first.chain, "the anchors are not known yet");
    node.publish(&[&namesake()]);
    let lost = node.now();
    life.after(&id("web", 0), &first).await;
    assert!(node.now() - lost <= minutes(1) + Span::SECOND);
}

/// Many certificates that lose their anchor together are not renewed together.
#[tokio::test(start_paused = true)]
async fn renewals_are_spread() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    let ids: Vec<_> = (0..32).map(|index| id("web", index)).collect();
    node.publish(&[&AUTHORITY]);
    for (index, id) in ids.iter().enumerate() {
        let state = node.state().join(index.to_string());
        life.certificates.ensure(id, CertificateSpec { state, ..node.pod_spec() });
    }
    for id in &ids {
        life.ready(id).await;
    }
    let before = node.server.created().len();
    node.publish(&[&namesake()]);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let soon = node.server.created().len() - before;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let all = node.server.created().len() - before;
    assert!(soon > 0 && soon <= 16 && all >= 32, "{soon} within 15s, {all} within 65s");
}
