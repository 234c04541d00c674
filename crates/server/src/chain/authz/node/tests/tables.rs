//! Table tests; `tables.txt` has one decision per line.

use super::*;

#[test]
fn a_node_may_read_objects_that_its_pods_reference() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let reached = [
        "/secrets ns s-pull",
        "/secrets ns s-init",
        "/secrets ns s-env",
        "/secrets ns s-from",
        "/secrets ns s-debug",
        "/secrets ns s-volume",
        "/secrets ns s-projected",
        "/secrets ns s-csi",
        "/secrets ns s-azure",
        "/secrets ns s-ceph",
        "/secrets ns s-cinder",
        "/secrets ns s-flex",
        "/secrets ns s-rbd",
        "/secrets ns s-scale",
        "/secrets ns s-iscsi",
        "/secrets ns s-storage",
        "/configmaps ns c-init",
        "/configmaps ns c-env",
        "/configmaps ns c-from",
        "/configmaps ns c-debug",
        "/configmaps ns c-volume",
        "/configmaps ns c-projected",
        "/serviceaccounts ns account",
        "/persistentvolumeclaims ns claim",
        "/persistentvolumeclaims ns busy-v14",
        "resource.k8s.io/resourceclaims ns device",
        "/pods ns busy",
    ];
    let all = |expected: bool, when: &str| {
        for at in reached {
            assert_eq!(world.is_allowed(at), expected, "{at} {when}");
        }
    };
    all(false, "before the pod is there");
    world.put(POD, busy_pod(""));
    all(false, "before the pod has a node");
    world.put(POD, busy_pod("node-2"));
    all(false, "while the pod is elsewhere");
    world.put(POD, busy_pod("node-1"));
    all(true, "while the pod is here");
    for at in reached {
        let decision = world.decide_as(&node("node-2"), "get", at, "");
        let why = "no relationship found between node 'node-2' and this object";
        assert_eq!(decision, Decision::NoOpinion(why.into()), "{at}");
        let elsewhere = at.replace(" ns ", " other ");
        assert!(!world.is_allowed(&elsewhere), "{elsewhere}");
    }
    world.delete(POD);
    all(false, "after the pod is gone");
}

#[test]
fn a_mirror_pod_leads_nowhere() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let annotations = json!({"kubernetes.io/config.mirror": "x"});
    let metadata = json!({"name": "busy", "annotations": annotations});
    world.write(POD, json!({"metadata": metadata, "spec": busy_pod("node-1")}));
    for at in [
        "/secrets ns s-pull",
        "/configmaps ns c-env",
        "/serviceaccounts ns account",
        "/persistentvolumeclaims ns claim",
        "resource.k8s.io/resourceclaims ns device",
    ] {
        assert!(!world.is_allowed(at), "{at}");
    }
    assert!(world.is_allowed("/pods ns busy"));
}

#[test]
fn finished_pods_still_lead_to_what_they_used() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    for phase in ["Succeeded", "Failed"] {
        let pod = json!({"metadata": {"name": "busy"}, "spec": busy_pod("node-1"),
            "status": {"phase": phase}});
        world.write(POD, pod);
        assert!(world.is_allowed("/secrets ns s-pull"), "{phase}");
    }
}

#[test]
fn claims_on_devices_may_be_named_by_the_status() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let mut pod = json!({"metadata": {"name": "busy"}, "spec": busy_pod("node-1")});
    world.write(POD, pod.clone());
    assert!(!world.is_allowed("resource.k8s.io/resourceclaims ns made-for-it"));
    pod["status"] = json!({
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made-for-it"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
    });
    world.write(POD, pod);
    assert!(world.is_allowed("resource.k8s.io/resourceclaims ns made-for-it"));
    assert!(world.is_allowed("resource.k8s.io/resourceclaims ns extended"));
}

#[test]
fn volumes_lead_on_to_secrets() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let bound = json!({"namespace": "ns", "name": "claim"});
    let secret = |name: &str| json!({"namespace": "vault", "name": name});
    world.put(
        "/persistentvolumes//pv",
        json!({"claimRef": bound, "csi": {
            "nodePublishSecretRef": secret("publish"), "nodeStageSecretRef": secret("stage"),
            "nodeExpandSecretRef": secret("expand"),
            "controllerPublishSecretRef": secret("control"),
            "controllerExpandSecretRef": secret("control-expand"),
        }}),
    );
    let rbd = json!({"claimRef": bound, "rbd": {"secretRef": {"name": "near"}}});
    world.put("/persistentvolumes//rbd", rbd);
    let azure = json!({"claimRef": bound, "azureFile": {"secretName": "file"}});
    world.put("/persistentvolumes//azure", azure);
    let free = json!({"csi": {"nodePublishSecretRef": secret("free")}});
    world.put("/persistentvolumes//free", free);
    let reached = [
        "/persistentvolumes - pv",
        "/secrets vault publish",
        "/secrets vault stage",
        "/secrets vault expand",
        "/secrets ns near",
        "/secrets ns file",
    ];
    for at in reached {
        assert!(!world.is_allowed(at), "{at} without a pod");
    }
    world.put(POD, busy_pod("node-1"));
    for at in reached {
        assert!(world.is_allowed(at), "{at}");
    }
    for at in [
        "/persistentvolumes - free",
        "/persistentvolumes ns pv",
        "/secrets vault control",
        "/secrets vault control-expand",
        "/secrets vault free",
        "/secrets ns publish",
        "/secrets vault near",
    ] {
        assert!(!world.is_allowed(at), "{at}");
    }
    world.put("/persistentvolumes//pv", json!({"claimRef": {"namespace": "ns", "name": "other"}}));
    assert!(!world.is_allowed("/secrets vault publish"));
    assert!(!world.is_allowed("/persistentvolumes - pv"));
}

#[test]
fn a_namespace_and_a_name_cannot_change_places() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let spec = json!({"nodeName": "node-1", "serviceAccountName": "bar",
        "imagePullSecrets": [{"name": "bar"}],
        "volumes": [{"name": "v", "configMap": {"name": "bar"}}]});
    world.put("/pods/foo/bar", spec);
    world.put("certificates.k8s.io/podcertificaterequests/foo/bar", json!({"nodeName": "node-1"}));
    for kind in
        ["/secrets", "/configmaps", "/serviceaccounts", "/pods", "certificates.k8s.io/podcertificaterequests"]
    {
        assert!(world.is_allowed(&format!("{kind} foo bar")), "{kind}");
        for other in ["bar foo", "foo foo", "bar bar", "- foo/bar", "- bar", "foo/bar bar"] {
            assert!(!world.is_allowed(&format!("{kind} {other}")), "{kind} {other}");
        }
    }
    let apart = "/pods a b/c";
    world.put("/pods/a/b", json!({"nodeName": "node-1"}));
    assert!(!world.is_allowed(apart) && !world.is_allowed("/pods a/b c"));
}

#[test]
fn verbs_on_what_a_pod_leads_to() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    check(&world, "verbs_on_what_a_pod_leads_to");
}

#[test]
fn pods_and_nodes() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    world.put("/pods/ns/theirs", json!({"nodeName": "node-2"}));
    world.put("/pods/ns/free", json!({}));
    check(&world, "pods_and_nodes");
}

#[test]
fn objects_of_one_node_each() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let slices = "resource.k8s.io/resourceslices";
    world.put(&format!("{slices}//mine"), json!({"nodeName": "node-1"}));
    world.put(&format!("{slices}//theirs"), json!({"nodeName": "node-2"}));
    world.put(&format!("{slices}//shared"), json!({"allNodes": true}));
    check(&world, "objects_of_one_node_each");
}

#[test]
fn certificates() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let at = "certificates.k8s.io/podcertificaterequests/ns/";
    world.put(&format!("{at}mine"), json!({"nodeName": "node-1"}));
    world.put(&format!("{at}theirs"), json!({"nodeName": "node-2"}));
    check(&world, "certificates");
}

#[test]
fn rules_for_all_nodes() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    check(&world, "rules_for_all_nodes");
    let user = node("node-1");
    let asked =
        AuthorizationAttributes { user: &user, verb: "get", target: AuthorizationTarget::Path("/metrics") };
    assert_eq!(world.authorizer.decide(&asked), Decision::NoOpinion(String::new()));
}

#[test]
fn disabled_features_grant_nothing() {
    let off = ServerFeatureGates {
        cluster_trust_bundle: false,
        cluster_trust_bundle_projection: false,
        pod_certificate_request: false,
        certificate_ledger: false,
    };
    let world = NodeAuthorizerFixture::new(off);
    world.put("certificates.k8s.io/podcertificaterequests/ns/mine", json!({"nodeName": "node-1"}));
    check(&world, "disabled_features_grant_nothing");
}

#[test]
fn only_nodes_are_nodes() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    let user = |name: &str, groups: &[&str]| {
        User::authenticated(name, "", groups.iter().map(|g| (*g).to_owned()).collect())
    };
    let strangers = [
        user("alice", &["dev"]),
        user("alice", &["system:nodes"]),
        user("system:node:node-1", &[]),
        user("system:node:node-1", &["system:node"]),
        user("system:nodes:node-1", &["system:nodes"]),
        user("System:node:node-1", &["system:nodes"]),
        user("system:serviceaccount:kube-system:node-1", &["system:nodes"]),
        User::anonymous(),
    ];
    for stranger in strangers {
        for (verb, at) in [("get", "/secrets ns s-pull"), ("list", "/services - -")] {
            let decision = world.decide_as(&stranger, verb, at, "");
            assert_eq!(decision, Decision::NoOpinion(String::new()), "{stranger:?}");
        }
    }
    let nobody = user("system:node:", &["system:nodes"]);
    let why = "unknown node for user \"system:node:\"";
    for (verb, at) in [("get", "/secrets ns s-pull"), ("list", "/services - -")] {
        let decision = world.decide_as(&nobody, verb, at, "");
        assert_eq!(decision, Decision::NoOpinion(why.into()));
    }
    // A pod without a node does not belong to a node with an empty name.
    world.put("/pods/ns/free", json!({}));
    assert!(!world.decide_as(&nobody, "get", "/pods ns free", "").is_allowed());
}

fn check(world: &NodeAuthorizerFixture, section: &str) {
    let lines = include_str!("tables.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut lines = lines.skip_while(|line| line.trim_matches(['[', ']']) != section).skip(1).peekable();
    assert!(lines.peek().is_some(), "no section {section}");
    for line in lines.take_while(|line| !line.starts_with('[')) {
        let (request, decision) = line.split_once(" : ").unwrap();
        let [verb, at @ .., selector] = &*request.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
        let expected = match decision {
            "allowed" => Decision::Allow(String::new()),
            "no opinion" => Decision::NoOpinion(String::new()),
            reason => Decision::NoOpinion(reason.into()),
        };
        let selector = if *selector == "-" { "" } else { selector };
        assert_eq!(world.decide(verb, &at.join(" "), selector), expected, "{line}");
    }
}
