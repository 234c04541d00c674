//! Tests of restarts.

use super::*;
use crate::testing::{DiskFailure, FailingDisk};
use crate::volume_certificates::testing::RunningCertificates;
use tokio::time::Instant;

fn pods(count: usize) -> Vec<SourceId> {
    (0..count).map(|number| id(&format!("web-{number}"), 0)).collect()
}

fn ensure_all(node: &IssuanceTestNode, life: &RunningCertificates, pods: &[SourceId]) {
    for pod in pods {
        let VolumeOwner::Pod { name, .. } = &pod.volume.owner else { panic!("{pod:?}") };
        let wanted = CertificateSpec { state: node.state().join(name), ..node.pod_spec() };
        life.certificates.ensure(pod, wanted);
    }
}

async fn ready_all(life: &mut RunningCertificates, pods: &[SourceId]) -> Vec<CredentialBundle> {
    let mut all = Vec::new();
    for pod in pods {
        all.push(life.ready(pod).await);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn valid_certificate_is_served_without_request() {
    let node = IssuanceTestNode::new(DAY);
    let (pods, mut life) = (pods(20), node.start());
    ensure_all(&node, &life, &pods);
    let before = ready_all(&mut life, &pods).await;
    life.kill().await;
    let calls = node.server.created().len();
    // Before `run`, and without a server.
    node.server.always("discover", InjectedFault::Status(503));
    let life = node.start();
    ensure_all(&node, &life, &pods);
    for (pod, before) in pods.iter().zip(&before) {
        let now = life.credential(pod).unwrap();
        assert_eq!((&now.key, &now.chain), (&before.key, &before.chain));
    }
    node.server.heal();
    tokio::time::sleep(Duration::from_secs(15 * 3600)).await;
    assert_eq!(node.server.created().len(), calls);
    assert_eq!(node.server.calls("account"), calls);
    assert_eq!(life.states(), [("fresh", 20)].into());
}

#[tokio::test(start_paused = true)]
async fn two_hundred_that_are_overdue_do_not_come_in_a_herd() {
    let node = IssuanceTestNode::new(DAY);
    let (pods, mut life) = (pods(200), node.start());
    ensure_all(&node, &life, &pods);
    let before = ready_all(&mut life, &pods).await;
    assert!(node.server.most_at_once() <= 8, "{}", node.server.most_at_once());
    life.kill().await;
    // The node was off for most of a day.
    tokio::time::sleep(Duration::from_secs(20 * 3600)).await;
    let began = Instant::now();
    let mut life = node.start();
    ensure_all(&node, &life, &pods);
    assert!(pods.iter().all(|pod| life.credential(pod).is_some()), "what there is is served meanwhile");
    for (pod, before) in pods.iter().zip(&before) {
        leaf(&life.after(pod, before).await);
    }
    assert_eq!(node.server.created().len(), 400);
    assert!(node.server.most_at_once() <= 8, "{}", node.server.most_at_once());
    let at = node.server.call_times("create").split_off(200);
    let mut each = [0; 12];
    for at in at {
        each[usize::try_from((at - began).as_secs()).unwrap()] += 1;
    }
    assert!(each[..10].iter().all(|count| (10..35).contains(count)), "{each:?}");
}

#[tokio::test(start_paused = true)]
async fn pending_request_is_resumed() {
    let node = IssuanceTestNode::new(SigningPolicy::Wait);
    let life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    node.server.until(|server| server.created().len() == 1).await;
    life.kill().await;
    // The request is decided while no process runs.
    node.server.decide(DAY);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    leaf(&life.ready(&id("web", 0)).await);
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_is_requested_while_the_old_pair_is_served() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    life.certificates.ensure(&host_id("edge"), node.host_spec());
    let first = life.ready(&host_id("edge")).await;
    let mut wanted = node.host_spec();
    wanted.source.key_type = "ED25519".into();
    node.server.policy(SigningPolicy::Wait);
    // In the same process, and in another.
    life.certificates.ensure(&host_id("edge"), wanted.clone());
    assert_eq!(life.credential(&host_id("edge")).unwrap().chain, first.chain);
    node.server.until(|server| server.created().len() == 2).await;
    life.kill().await;
    let mut life = node.start();
    life.certificates.ensure(&host_id("edge"), wanted.clone());
    assert_eq!(life.credential(&host_id("edge")).unwrap().chain, first.chain);
    node.server.decide(DAY);
    let second = life.after(&host_id("edge"), &first).await;
    assert_ne!(second.key, first.key);
    assert_eq!(node.server.created().len(), 2);
    // For another signer, the old certificate is not used.
    wanted.source.signer = "example.com/other".into();
    life.certificates.ensure(&host_id("edge"), wanted);
    assert!(life.credential(&host_id("edge")).is_none());
}

#[tokio::test(start_paused = true)]
async fn damaged_state_triggers_new_request() {
    let node = IssuanceTestNode::new(DAY);
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    life.ready(&id("web", 0)).await;
    life.kill().await;
    std::fs::write(node.state().join("tls-0.pem"), "nonsense").unwrap();
    let mut life = node.start();
    life.certificates.ensure(&id("web", 0), node.pod_spec());
    leaf(&life.ready(&id("web", 0)).await);
    assert_eq!(node.server.created().len(), 2);
}

/// Processes killed at every disk operation: in the end there is a pair, and no request is made
/// twice.
#[tokio::test(start_paused = true)]
async fn a_kill_at_any_step_causes_one_request_only() {
    for operation in 0.. {
        let node = IssuanceTestNode::new(DAY);
        let disk = FailingDisk::fail_at(operation, DiskFailure::Kill);
        let mut life = node.start_on(disk.files());
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        let pod = id("web", 0);
        let ended = tokio::select! {
            () = disk.reached.notified() => false,
            _ = life.ready(&pod) => !disk.was_hit(),
        };
        life.kill().await;
        let asked = node.server.created().len();
        let mut life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        let pair = life.ready(&id("web", 0)).await;
        leaf(&pair);
        assert_eq!(node.server.created().len(), 1, "{operation}: {asked} before");
        life.kill().await;
        let life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        assert_eq!(life.credential(&id("web", 0)).unwrap().chain, pair.chain);
        if ended {
            assert!(operation > 8, "{operation}");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_requests_but_not_serving() {
    // The first write, before the request, and those after the response.
    for operation in 1..16 {
        let node = IssuanceTestNode::new(DAY);
        let disk = FailingDisk::fail_at(operation, DiskFailure::Fail(std::io::ErrorKind::StorageFull));
        let mut life = node.start_on(disk.files());
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = node.server.created().len();
        assert_eq!(life.credential(&id("web", 0)).is_some(), asked == 1, "{operation}");
        disk.repair();
        let pair = life.ready(&id("web", 0)).await;
        assert_eq!(node.server.created().len(), 1, "{operation}");
        // It is saved within a minute.
        tokio::time::sleep(Duration::from_secs(61)).await;
        life.kill().await;
        let life = node.start();
        life.certificates.ensure(&id("web", 0), node.pod_spec());
        assert_eq!(life.credential(&id("web", 0)).unwrap().chain, pair.chain, "{operation}");
    }
}
