//! The graph always matches the caches, whatever changes led there.

use super::super::graph::NodeGraph;
use super::*;

#[test]
fn references_of_several_pods_are_counted() {
    let mut graph = NodeGraph::default();
    let pod = |secret: &str| {
        json!({"spec": {"imagePullSecrets": [{"name": secret}, {"name": secret}],
            "volumes": [{"name": "v", "secret": {"secretName": secret}}]}})
    };
    let reached = |graph: &NodeGraph| {
        let at = |node| graph.reaches(DependencyKind::Secret, "ns", "s", node);
        (at("n1"), at("n2"))
    };
    graph.upsert_pod("ns", "a", "n1", &pod("s"));
    graph.upsert_pod("ns", "b", "n1", &pod("s"));
    graph.upsert_pod("ns", "c", "n2", &pod("s"));
    assert_eq!(reached(&graph), (true, true));
    graph.remove_pod("ns", "a");
    graph.remove_pod("ns", "a");
    assert_eq!(reached(&graph), (true, true));
    graph.upsert_pod("ns", "b", "n2", &pod("s"));
    assert_eq!(reached(&graph), (false, true));
    graph.upsert_pod("ns", "b", "n2", &pod("t"));
    graph.remove_pod("ns", "c");
    assert_eq!(reached(&graph), (false, false));
    graph.remove_pod("ns", "b");
    assert!(graph.is_empty(), "{graph:?}");
}

#[test]
fn nothing_is_left_of_what_went() {
    let mut graph = NodeGraph::default();
    let volume = json!({"spec": {"claimRef": {"namespace": "ns", "name": "claim"},
        "csi": {"nodePublishSecretRef": {"namespace": "v", "name": "s"}}}});
    graph.upsert_volume("pv", &volume);
    graph.upsert_volume("pv", &volume);
    graph.upsert_volume("pv2", &volume);
    let pod = json!({"metadata": {"name": "busy"}, "spec": busy_pod("node-1")});
    graph.upsert_pod("ns", "busy", "node-1", &pod);
    assert!(graph.reaches(DependencyKind::Secret, "v", "s", "node-1"));
    graph.remove_volume("pv");
    assert!(graph.reaches(DependencyKind::Secret, "v", "s", "node-1"));
    graph.upsert_volume("pv2", &json!({"spec": {}}));
    assert!(!graph.reaches(DependencyKind::Secret, "v", "s", "node-1"));
    graph.remove_pod("ns", "busy");
    assert!(graph.is_empty(), "{graph:?}");
}

/// Pods are added, changed, moved and removed in pseudo-random order; after every step the index
/// must agree with a walk over all pods.
#[test]
fn the_index_agrees_with_a_walk_over_all_pods() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut pods: [Option<(u64, u64)>; 6] = [None; 6];
    for _ in 0..600 {
        let (which, node, secret) = (random(6), random(4), random(3));
        let at = format!("/pods/ns/p{which}");
        if random(4) == 0 {
            world.delete(&at);
            pods[which as usize] = None;
        } else {
            let name = if node == 0 { String::new() } else { format!("node-{node}") };
            let secrets = [json!({"name": format!("s{secret}")})];
            world.put(&at, json!({"nodeName": name, "imagePullSecrets": secrets}));
            pods[which as usize] = Some((node, secret));
        }
        // Sometimes no query happens for a while.
        if random(3) == 0 {
            continue;
        }
        for (node, secret) in (1..4).flat_map(|n| (0..3).map(move |s| (n, s))) {
            let expected = pods.contains(&Some((node, secret)));
            let user = super::node(&format!("node-{node}"));
            let decision = world.decide_as(&user, "get", &format!("/secrets ns s{secret}"), "");
            assert_eq!(decision.is_allowed(), expected, "node-{node} s{secret}");
        }
    }
}

/// More changes than one batch applies, and more than the window keeps.
#[test]
fn a_stale_graph_is_rebuilt() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    assert!(world.is_allowed("/secrets ns s-pull"));
    for i in 0..2500 {
        world.put("/pods/ns/other", json!({"nodeName": "node-1", "priority": i}));
    }
    world.delete(POD);
    assert!(!world.is_allowed("/secrets ns s-pull"));
    world.put(POD, busy_pod("node-1"));
    assert!(world.is_allowed("/secrets ns s-pull"));
    world.delete(POD);
    world.put("/pods/ns/late", busy_pod("node-1"));
    // From here on, only changes after this revision are known.
    world.caches.finish_load(world.revision.get(), world.revision.get());
    assert!(world.is_allowed("/secrets ns s-pull") && world.is_allowed("/pods ns late"));
    world.delete("/pods/ns/late");
    assert!(!world.is_allowed("/secrets ns s-pull"));
}

#[tokio::test]
async fn the_graph_is_kept_warm_and_ends_with_the_authorizer() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.caches.start();
    let graph = Arc::downgrade(&world.authorizer.graph);
    for i in 0..50 {
        world.put(&format!("/pods/ns/p{i}"), busy_pod("node-1"));
        tokio::task::yield_now().await;
        assert!(world.is_allowed("/secrets ns s-pull"));
        world.delete(&format!("/pods/ns/p{i}"));
        assert!(!world.is_allowed("/secrets ns s-pull"));
    }
    let NodeAuthorizerFixture { authorizer, caches, .. } = world;
    drop(authorizer);
    caches.wake_watchers();
    // The task may still be using it.
    while graph.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}
