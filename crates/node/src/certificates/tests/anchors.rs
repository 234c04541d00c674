//! Certificates whose trust anchor is not published any more.

use windlass_pki::{Authority, Serial, Subject, SystemRandom, Validity};

use super::*;
use crate::testing::{AUTHORITY, START};

/// A CA with the same name as the one that signs here, and another key.
fn namesake() -> Authority {
    let validity = Validity::new(START - Span::DAY, START + Span::days(99)).unwrap();
    let subject = Subject::new(AUTHORITY.certificate().common_name().unwrap(), &[]).unwrap();
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    Authority::self_signed(&subject, validity, PrivateKey::generate().unwrap(), serial).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_anchor_is_renewed_at_once() {
    for host in [false, true] {
        let node = Node::new(DAY);
        let mut life = node.start();
        let (id, wanted) = match host {
            false => (id("web", 0), node.wanted()),
            true => (host_id("edge"), node.wanted_by_host()),
        };
        node.publish(&[&AUTHORITY]);
        life.certificates.want(&id, wanted);
        let first = life.ready(&id).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // Another beside it changes nothing, nor does a signer that publishes nothing.
        node.publish(&[&namesake(), &AUTHORITY]);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        node.publish(&[]);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.has(&id).unwrap().chain, first.chain);
        assert_eq!(node.server.created().len(), 1);
        // Its own is gone, and so it will be for the next: more and more rarely.
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
        // The anchors change for the better, and all is quiet.
        node.publish(&[&other, &AUTHORITY]);
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(node.server.created().len(), count, "a certificate was renewed for no reason");
    }
}

/// The CA was replaced while the agent did not run.
#[tokio::test(start_paused = true)]
async fn what_lost_its_anchor_before_a_restart_is_renewed_after_it() {
    let node = Node::new(DAY);
    let mut life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    let first = life.ready(&id("web", 0)).await;
    life.kill().await;
    let mut life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(life.has(&id("web", 0)).unwrap().chain, first.chain, "nobody knows the anchors yet");
    node.publish(&[&namesake()]);
    let lost = node.now();
    life.after(&id("web", 0), &first).await;
    assert!(node.now() - lost <= minutes(1) + Span::SECOND);
}

/// Many certificates that lose their anchor together are not renewed together.
#[tokio::test(start_paused = true)]
async fn renewals_are_spread() {
    let node = Node::new(DAY);
    let mut life = node.start();
    let ids: Vec<_> = (0..32).map(|index| id("web", index)).collect();
    node.publish(&[&AUTHORITY]);
    for (index, id) in ids.iter().enumerate() {
        let state = node.state().join(index.to_string());
        life.certificates.want(id, Wanted { state, ..node.wanted() });
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
