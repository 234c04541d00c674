//! Lives that end and begin anew.

use super::*;
use crate::certificates::testing::Life;
use crate::testing::{Breaking, How};
use tokio::time::Instant;

fn pods(count: usize) -> Vec<SourceId> {
    (0..count).map(|number| id(&format!("web-{number}"), 0)).collect()
}

fn want_all(node: &Node, life: &Life, pods: &[SourceId]) {
    for pod in pods {
        let Owner::Pod { name, .. } = &pod.volume.owner else { panic!("{pod:?}") };
        let wanted = Wanted { state: node.state().join(name), ..node.wanted() };
        life.certificates.want(pod, wanted);
    }
}

async fn ready_all(life: &mut Life, pods: &[SourceId]) -> Vec<Credential> {
    let mut all = Vec::new();
    for pod in pods {
        all.push(life.ready(pod).await);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_is_good_is_served_at_once_and_not_asked_for() {
    let node = Node::new(DAY);
    let (pods, mut life) = (pods(20), node.start());
    want_all(&node, &life, &pods);
    let before = ready_all(&mut life, &pods).await;
    life.kill().await;
    let calls = node.server.created().len();
    // Before anybody runs, and without a server.
    node.server.fault("discover", 503);
    let life = node.start();
    want_all(&node, &life, &pods);
    for (pod, before) in pods.iter().zip(&before) {
        let now = life.has(pod).unwrap();
        assert_eq!((&now.key, &now.chain), (&before.key, &before.chain));
    }
    node.server.heal();
    tokio::time::sleep(Duration::from_secs(15 * 3600)).await;
    assert_eq!(node.server.created().len(), calls);
    assert_eq!(node.server.calls("account").len(), calls);
    assert_eq!(life.states(), [("fresh", 20)].into());
}

#[tokio::test(start_paused = true)]
async fn two_hundred_that_are_overdue_do_not_come_in_a_herd() {
    let node = Node::new(DAY);
    let (pods, mut life) = (pods(200), node.start());
    want_all(&node, &life, &pods);
    let before = ready_all(&mut life, &pods).await;
    assert!(node.server.most_at_once() <= 8, "{}", node.server.most_at_once());
    life.kill().await;
    // The node was off for most of a day.
    tokio::time::sleep(Duration::from_secs(20 * 3600)).await;
    let began = Instant::now();
    let mut life = node.start();
    want_all(&node, &life, &pods);
    assert!(pods.iter().all(|pod| life.has(pod).is_some()), "what there is is served meanwhile");
    for (pod, before) in pods.iter().zip(&before) {
        leaf(&life.after(pod, before).await);
    }
    assert_eq!(node.server.created().len(), 400);
    assert!(node.server.most_at_once() <= 8, "{}", node.server.most_at_once());
    let at = node.server.calls("create").split_off(200);
    let mut each = [0; 12];
    for at in at {
        each[usize::try_from((at - began).as_secs()).unwrap()] += 1;
    }
    assert!(each[..10].iter().all(|count| (10..35).contains(count)), "{each:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_is_gone_on_with() {
    let node = Node::new(Policy::Wait);
    let life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    node.server.until(|server| server.created().len() == 1).await;
    life.kill().await;
    // It is answered while nobody listens.
    node.server.decide(DAY);
    let mut life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    leaf(&life.ready(&id("web", 0)).await);
    assert_eq!(node.server.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_definition_is_asked_for_while_the_old_pair_is_served() {
    let node = Node::new(DAY);
    let mut life = node.start();
    life.certificates.want(&host_id("edge"), node.wanted_by_host());
    let first = life.ready(&host_id("edge")).await;
    let mut wanted = node.wanted_by_host();
    wanted.source.key_type = "ED25519".into();
    node.server.policy(Policy::Wait);
    // In the same life, and in another.
    life.certificates.want(&host_id("edge"), wanted.clone());
    assert_eq!(life.has(&host_id("edge")).unwrap().chain, first.chain);
    node.server.until(|server| server.created().len() == 2).await;
    life.kill().await;
    let mut life = node.start();
    life.certificates.want(&host_id("edge"), wanted.clone());
    assert_eq!(life.has(&host_id("edge")).unwrap().chain, first.chain);
    node.server.decide(DAY);
    let second = life.after(&host_id("edge"), &first).await;
    assert_ne!(second.key, first.key);
    assert_eq!(node.server.created().len(), 2);
    // Of another signer, the old one says nothing.
    wanted.source.signer = "example.com/other".into();
    life.certificates.want(&host_id("edge"), wanted);
    assert!(life.has(&host_id("edge")).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_is_asked_for_anew() {
    let node = Node::new(DAY);
    let mut life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    life.ready(&id("web", 0)).await;
    life.kill().await;
    std::fs::write(node.state().join("tls-0.pem"), "nonsense").unwrap();
    let mut life = node.start();
    life.certificates.want(&id("web", 0), node.wanted());
    leaf(&life.ready(&id("web", 0)).await);
    assert_eq!(node.server.created().len(), 2);
}

/// Lives that end at every operation on the disk: in the end there is a pair, and no life has asked
/// for what another had asked for.
#[tokio::test(start_paused = true)]
async fn whoever_is_killed_at_any_step_asks_once() {
    for operation in 0.. {
        let node = Node::new(DAY);
        let disk = Breaking::at(operation, How::Kill);
        let mut life = node.start_on(disk.files());
        life.certificates.want(&id("web", 0), node.wanted());
        let pod = id("web", 0);
        let ended = tokio::select! {
            () = disk.reached.notified() => false,
            _ = life.ready(&pod) => !disk.was_hit(),
        };
        life.kill().await;
        let asked = node.server.created().len();
        let mut life = node.start();
        life.certificates.want(&id("web", 0), node.wanted());
        let pair = life.ready(&id("web", 0)).await;
        leaf(&pair);
        assert_eq!(node.server.created().len(), 1, "{operation}: {asked} before");
        life.kill().await;
        let life = node.start();
        life.certificates.want(&id("web", 0), node.wanted());
        assert_eq!(life.has(&id("web", 0)).unwrap().chain, pair.chain);
        if ended {
            assert!(operation > 8, "{operation}");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_full_holds_up_asking_but_not_serving() {
    // The first write, before anybody is asked, and those after the answer.
    for operation in 1..16 {
        let node = Node::new(DAY);
        let disk = Breaking::at(operation, How::Fail(std::io::ErrorKind::StorageFull));
        let mut life = node.start_on(disk.files());
        life.certificates.want(&id("web", 0), node.wanted());
        tokio::time::sleep(Duration::from_secs(600)).await;
        let asked = node.server.created().len();
        assert_eq!(life.has(&id("web", 0)).is_some(), asked == 1, "{operation}");
        disk.repair();
        let pair = life.ready(&id("web", 0)).await;
        assert_eq!(node.server.created().len(), 1, "{operation}");
        // In a minute, it is on the disk.
        tokio::time::sleep(Duration::from_secs(61)).await;
        life.kill().await;
        let life = node.start();
        life.certificates.want(&id("web", 0), node.wanted());
        assert_eq!(life.has(&id("web", 0)).unwrap().chain, pair.chain, "{operation}");
    }
}
