//! Certificates of tainted authorities.

use super::*;
use crate::testing::AUTHORITY;
use crate::volume::tainted_authority::renewal_of;

/// Returns when a certificate is to be renewed.
fn renewal(node: &IssuanceTestNode, pair: &CredentialBundle) -> time::OffsetDateTime {
    renewal_of(&leaf(pair), &node.bundles.borrow().taints(SIGNER)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_at_their_moment_of_the_window() {
    for host in [false, true] {
        let node = IssuanceTestNode::new(DAY);
        let mut life = node.start();
        let (id, wanted) = node.source_of(host);
        node.publish(&[&AUTHORITY]);
        life.certificates.ensure(&id, wanted.clone());
        let first = life.ready(&id).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        node.taint(Span::HOUR);
        let (tainted, due) = (node.now(), renewal(&node, &first));
        assert!((tainted..tainted + Span::HOUR).contains(&due));
        // A restart does not change the moment.
        tokio::time::sleep(Duration::try_from((due - tainted) / 2).unwrap()).await;
        life.kill().await;
        let mut life = node.start();
        life.certificates.ensure(&id, wanted);
        assert_eq!(life.ready(&id).await.chain, first.chain);
        let second = life.after(&id, &first).await;
        assert!((due..due + Span::seconds(2)).contains(&node.now()), "{due} {}", node.now());
        assert_ne!(second.key, first.key);
        assert_eq!(node.server.created().len(), 2);
        // The signer has issued another one of the same authority, and goes on: renewals back off.
        let third = life.after(&id, &second).await;
        assert!(node.now() - due >= Span::seconds(30), "{}", node.now() - due);
        life.after(&id, &third).await;
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        let count = node.server.created().len();
        assert!((5..=12).contains(&count), "{count} requests");
        // The taint is withdrawn, and renewals stop.
        node.publish(&[&AUTHORITY]);
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(node.server.created().len(), count);
    }
}

/// The authority was tainted while the agent did not run, and the window has passed.
#[tokio::test(start_paused = true)]
async fn a_late_agent_renews_at_once() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    let first = life.ready(&id("web", 0)).await;
    life.kill().await;
    node.taint(minutes(10));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    let started = node.now();
    life.after(&id("web", 0), &first).await;
    assert!(node.now() - started <= Span::seconds(15), "{}", node.now() - started);
}

#[tokio::test(start_paused = true)]
async fn renewals_are_spread_over_the_window() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    let ids: Vec<_> = (0..32).map(|index| id("web", index)).collect();
    node.publish(&[&AUTHORITY]);
    for (index, id) in ids.iter().enumerate() {
        let state = node.state().join(index.to_string());
        life.certificates.ensure(id, CertificateSpec { state, ..node.pod_spec() });
    }
    let mut firsts = Vec::new();
    for id in &ids {
        firsts.push(life.ready(id).await);
    }
    node.taint(minutes(10));
    let half = node.now() + minutes(5);
    let early = firsts.iter().filter(|first| renewal(&node, first) < half).count();
    tokio::time::sleep(Duration::from_secs(5 * 60)).await;
    let renewed = |life: &super::super::testing::RunningCertificates| {
        let pairs = ids.iter().zip(&firsts);
        pairs.filter(|(id, first)| life.credential(id).unwrap().chain != first.chain).count()
    };
    let soon = renewed(&life);
    assert!(soon.abs_diff(early) <= 1 && (4..=28).contains(&soon), "{soon} of {early}");
    tokio::time::sleep(Duration::from_secs(5 * 60 + 2)).await;
    assert_eq!(renewed(&life), 32);
}
