//! Table tests, one decision per line.

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

/// Verb, target, selector, and the reason for refusal; `None` if allowed.
type AuthorizationCase = (&'static str, &'static str, &'static str, Option<&'static str>);

#[test]
fn verbs_on_what_a_pod_leads_to() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    let unrelated = Some("no relationship found between node 'node-1' and this object");
    let read = Some("can only read resources of this type");
    let get = Some("can only get individual resources of this type");
    let tokens = Some("can only create tokens for individual service accounts");
    let lines: &[AuthorizationCase] = &[
        ("get", "/secrets ns s-pull", "", None),
        ("list", "/secrets ns s-pull", "metadata.name=s-pull", None),
        ("watch", "/secrets ns s-pull", "metadata.name=s-pull", None),
        ("get", "/secrets ns other", "", unrelated),
        ("list", "/secrets ns other", "metadata.name=other", unrelated),
        ("list", "/secrets ns -", "", Some("No Object name found")),
        ("watch", "/secrets ns -", "", Some("No Object name found")),
        ("list", "/secrets - s-pull", "", Some("can only read namespaced object of this type")),
        ("get", "/secrets/status ns s-pull", "", Some("cannot read subresource")),
        ("create", "/secrets ns -", "", read),
        ("update", "/secrets ns s-pull", "", read),
        ("patch", "/secrets ns s-pull", "", read),
        ("delete", "/secrets ns s-pull", "", read),
        ("deletecollection", "/secrets ns -", "", read),
        ("watch", "/configmaps ns c-env", "metadata.name=c-env", None),
        ("list", "/configmaps ns -", "", Some("No Object name found")),
        ("update", "/configmaps ns c-env", "", read),
        ("get", "/persistentvolumeclaims ns claim", "", None),
        ("list", "/persistentvolumeclaims ns -", "", get),
        ("watch", "/persistentvolumeclaims ns claim", "metadata.name=claim", get),
        ("update", "/persistentvolumeclaims ns claim", "", get),
        ("update", "/persistentvolumeclaims/status ns claim", "", None),
        ("patch", "/persistentvolumeclaims/status ns claim", "", None),
        ("patch", "/persistentvolumeclaims/status ns other", "", unrelated),
        ("get", "/persistentvolumeclaims/status ns claim", "", Some("can only get/update/patch this type")),
        ("get", "/persistentvolumeclaims/odd ns claim", "", Some("cannot get subresource")),
        ("get", "/persistentvolumes - -", "", Some("No Object name found")),
        ("list", "/persistentvolumes - -", "", get),
        ("get", "/persistentvolumes/status - pv", "", Some("cannot get subresource")),
        ("list", "resource.k8s.io/resourceclaims ns -", "", get),
        ("get", "storage.k8s.io/volumeattachments - a", "", unrelated),
        ("list", "storage.k8s.io/volumeattachments - -", "", get),
        ("get", "/serviceaccounts ns account", "", None),
        ("get", "/serviceaccounts ns other", "", unrelated),
        ("list", "/serviceaccounts ns account", "metadata.name=account", tokens),
        ("update", "/serviceaccounts ns account", "", tokens),
        ("create", "/serviceaccounts/token ns account", "", None),
        ("create", "/serviceaccounts/token ns other", "", unrelated),
        ("create", "/serviceaccounts/token other account", "", unrelated),
        ("create", "/serviceaccounts/token ns -", "", tokens),
        ("get", "/serviceaccounts/token ns account", "", tokens),
        (
            "create",
            "/serviceaccounts ns account",
            "",
            Some("can only create token subresource of serviceaccount"),
        ),
    ];
    check(&world, lines);
}

#[test]
fn pods_and_nodes() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    world.put(POD, busy_pod("node-1"));
    world.put("/pods/ns/theirs", json!({"nodeName": "node-2"}));
    world.put("/pods/ns/free", json!({}));
    let unrelated = Some("no relationship found between node 'node-1' and this object");
    let select = Some("can only list/watch pods with spec.nodeName field selector");
    let lines: &[AuthorizationCase] = &[
        ("get", "/pods ns busy", "", None),
        ("get", "/pods ns theirs", "", unrelated),
        ("get", "/pods ns free", "", unrelated),
        ("get", "/pods ns missing", "", unrelated),
        ("list", "/pods - -", "spec.nodeName=node-1", None),
        ("watch", "/pods ns -", "spec.nodeName==node-1", None),
        ("list", "/pods - -", "status.phase!=Failed,spec.nodeName=node-1", None),
        ("list", "/pods - -", "spec.nodeName=node-0,spec.nodeName=node-1", None),
        ("list", "/pods - -", "", select),
        ("list", "/pods - -", "spec.nodeName=node-2", select),
        ("list", "/pods - -", "spec.nodeName=", select),
        ("list", "/pods - -", "spec.nodeName!=node-1", select),
        ("watch", "/pods ns -", "spec.nodename=node-1", select),
        ("list", "/pods ns busy", "metadata.name=busy", None),
        ("watch", "/pods ns theirs", "metadata.name=theirs", unrelated),
        ("create", "/pods ns -", "", None),
        ("delete", "/pods ns theirs", "", None),
        ("update", "/pods ns busy", "", Some("")),
        ("patch", "/pods ns busy", "", Some("")),
        ("deletecollection", "/pods ns -", "spec.nodeName=node-1", Some("")),
        ("update", "/pods/status ns theirs", "", None),
        ("patch", "/pods/status ns busy", "", None),
        ("get", "/pods/status ns busy", "", Some("")),
        ("create", "/pods/eviction ns busy", "", None),
        ("create", "/pods/binding ns free", "", Some("")),
        ("patch", "/pods/ephemeralcontainers ns busy", "", Some("")),
        ("get", "/pods/log ns busy", "", Some("")),
        ("get", "/nodes - node-1", "", None),
        ("list", "/nodes - node-1", "metadata.name=node-1", None),
        ("watch", "/nodes - node-1", "metadata.name=node-1", None),
        ("get", "/nodes - node-2", "", Some("node 'node-1' cannot read 'node-2', only its own Node object")),
        ("list", "/nodes - -", "", Some("node 'node-1' cannot read all nodes, only its own Node object")),
        ("create", "/nodes - -", "", None),
        ("update", "/nodes - node-2", "", None),
        ("patch", "/nodes - node-1", "", None),
        ("delete", "/nodes - node-1", "", Some("")),
        ("deletecollection", "/nodes - -", "", Some("")),
        ("update", "/nodes/status - node-1", "", None),
        ("patch", "/nodes/status - node-1", "", None),
        ("get", "/nodes/status - node-1", "", Some("")),
        ("create", "/nodes/proxy - node-1", "", Some("")),
    ];
    check(&world, lines);
}

#[test]
fn objects_of_one_node_each() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let slices = "resource.k8s.io/resourceslices";
    world.put(&format!("{slices}//mine"), json!({"nodeName": "node-1"}));
    world.put(&format!("{slices}//theirs"), json!({"nodeName": "node-2"}));
    world.put(&format!("{slices}//shared"), json!({"allNodes": true}));
    let unrelated = Some("no relationship found between node 'node-1' and this object");
    let same = Some("can only access node lease with the same name as the requesting node");
    let place = Some("can only access leases in the \"kube-node-lease\" system namespace");
    let verbs = Some("can only get, create, update, patch, or delete a node lease");
    let csi = Some("can only access CSINode with the same name as the requesting node");
    let trust = Some("can only access NodeTrust with the same name as the requesting node");
    let trusts = Some("can only get, create, update, or patch a NodeTrust");
    let select = Some("can only list/watch/deletecollection resourceslices with nodeName field selector");
    let lines: &[AuthorizationCase] = &[
        ("get", "coordination.k8s.io/leases kube-node-lease node-1", "", None),
        ("create", "coordination.k8s.io/leases kube-node-lease -", "", None),
        ("update", "coordination.k8s.io/leases kube-node-lease node-1", "", None),
        ("patch", "coordination.k8s.io/leases kube-node-lease node-1", "", None),
        ("delete", "coordination.k8s.io/leases kube-node-lease node-1", "", None),
        ("get", "coordination.k8s.io/leases kube-node-lease node-2", "", same),
        ("update", "coordination.k8s.io/leases kube-node-lease node-2", "", same),
        ("get", "coordination.k8s.io/leases kube-system node-1", "", place),
        ("create", "coordination.k8s.io/leases ns -", "", place),
        ("list", "coordination.k8s.io/leases kube-node-lease -", "", verbs),
        ("watch", "coordination.k8s.io/leases kube-node-lease node-1", "", verbs),
        ("deletecollection", "coordination.k8s.io/leases kube-node-lease -", "", verbs),
        ("get", "storage.k8s.io/csinodes - node-1", "", None),
        ("create", "storage.k8s.io/csinodes - -", "", None),
        ("delete", "storage.k8s.io/csinodes - node-1", "", None),
        ("get", "storage.k8s.io/csinodes - node-2", "", csi),
        ("patch", "storage.k8s.io/csinodes - node-2", "", csi),
        (
            "list",
            "storage.k8s.io/csinodes - -",
            "",
            Some("can only get, create, update, patch, or delete a CSINode"),
        ),
        ("get", "storage.k8s.io/csinodes/status - node-1", "", Some("cannot authorize CSINode subresources")),
        ("get", "windlass.dev/nodetrusts - node-1", "", None),
        ("create", "windlass.dev/nodetrusts - -", "", None),
        ("update", "windlass.dev/nodetrusts - node-1", "", None),
        ("patch", "windlass.dev/nodetrusts - node-1", "", None),
        ("get", "windlass.dev/nodetrusts - node-2", "", trust),
        ("update", "windlass.dev/nodetrusts - node-2", "", trust),
        ("patch", "windlass.dev/nodetrusts - node-2", "", trust),
        ("list", "windlass.dev/nodetrusts - -", "", trusts),
        ("list", "windlass.dev/nodetrusts - node-1", "", trusts),
        ("watch", "windlass.dev/nodetrusts - node-1", "", trusts),
        ("delete", "windlass.dev/nodetrusts - node-1", "", trusts),
        ("deletecollection", "windlass.dev/nodetrusts - -", "", trusts),
        (
            "update",
            "windlass.dev/nodetrusts/status - node-1",
            "",
            Some("cannot authorize NodeTrust subresources"),
        ),
        ("create", "resource.k8s.io/resourceslices - -", "", None),
        ("get", "resource.k8s.io/resourceslices - mine", "", None),
        ("update", "resource.k8s.io/resourceslices - mine", "", None),
        ("patch", "resource.k8s.io/resourceslices - mine", "", None),
        ("delete", "resource.k8s.io/resourceslices - mine", "", None),
        ("get", "resource.k8s.io/resourceslices - theirs", "", unrelated),
        ("delete", "resource.k8s.io/resourceslices - theirs", "", unrelated),
        ("get", "resource.k8s.io/resourceslices - shared", "", unrelated),
        ("get", "resource.k8s.io/resourceslices ns mine", "", unrelated),
        ("list", "resource.k8s.io/resourceslices - -", "spec.nodeName=node-1", None),
        ("watch", "resource.k8s.io/resourceslices - -", "spec.nodeName=node-1", None),
        ("deletecollection", "resource.k8s.io/resourceslices - -", "spec.nodeName=node-1", None),
        ("list", "resource.k8s.io/resourceslices - -", "", select),
        ("deletecollection", "resource.k8s.io/resourceslices - -", "spec.nodeName=node-2", select),
        (
            "get",
            "resource.k8s.io/resourceslices/status - mine",
            "",
            Some("cannot authorize ResourceSlice subresources"),
        ),
        (
            "approve",
            "resource.k8s.io/resourceslices - mine",
            "",
            Some(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        ),
    ];
    check(&world, lines);
}

#[test]
fn certificates() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let at = "certificates.k8s.io/podcertificaterequests/ns/";
    world.put(&format!("{at}mine"), json!({"nodeName": "node-1"}));
    world.put(&format!("{at}theirs"), json!({"nodeName": "node-2"}));
    let unrelated = Some("no relationship found between node 'node-1' and this object");
    let part = Some("nodes may not access the status subresource of PodCertificateRequests");
    let select = Some("can only list/watch podcertificaterequests with nodeName field selector");
    let lines: &[AuthorizationCase] = &[
        ("create", "certificates.k8s.io/podcertificaterequests ns -", "", None),
        ("get", "certificates.k8s.io/podcertificaterequests ns mine", "", None),
        ("get", "certificates.k8s.io/podcertificaterequests ns theirs", "", unrelated),
        ("get", "certificates.k8s.io/podcertificaterequests ns missing", "", unrelated),
        ("list", "certificates.k8s.io/podcertificaterequests - -", "spec.nodeName=node-1", None),
        ("watch", "certificates.k8s.io/podcertificaterequests ns -", "spec.nodeName=node-1", None),
        ("list", "certificates.k8s.io/podcertificaterequests - -", "", select),
        ("list", "certificates.k8s.io/podcertificaterequests - -", "spec.nodeName=node-2", select),
        ("watch", "certificates.k8s.io/podcertificaterequests - -", "spec.nodeName!=node-1", select),
        ("list", "certificates.k8s.io/podcertificaterequests ns mine", "metadata.name=mine", select),
        (
            "update",
            "certificates.k8s.io/podcertificaterequests ns mine",
            "",
            Some("nodes may not update podcertificaterequests"),
        ),
        (
            "delete",
            "certificates.k8s.io/podcertificaterequests ns mine",
            "",
            Some("nodes may not delete podcertificaterequests"),
        ),
        (
            "deletecollection",
            "certificates.k8s.io/podcertificaterequests ns -",
            "spec.nodeName=node-1",
            Some("nodes may not deletecollection podcertificaterequests"),
        ),
        ("get", "certificates.k8s.io/podcertificaterequests/status ns mine", "", part),
        ("update", "certificates.k8s.io/podcertificaterequests/status ns mine", "", part),
        ("create", "certificates.k8s.io/certificatesigningrequests - -", "", None),
        ("get", "certificates.k8s.io/certificatesigningrequests - any", "", None),
        ("list", "certificates.k8s.io/certificatesigningrequests - -", "", None),
        ("watch", "certificates.k8s.io/certificatesigningrequests - -", "", None),
        ("update", "certificates.k8s.io/certificatesigningrequests - any", "", Some("")),
        ("delete", "certificates.k8s.io/certificatesigningrequests - any", "", Some("")),
        ("update", "certificates.k8s.io/certificatesigningrequests/approval - any", "", Some("")),
        ("update", "certificates.k8s.io/certificatesigningrequests/status - any", "", Some("")),
        ("get", "certificates.k8s.io/clustertrustbundles - any", "", None),
        ("list", "certificates.k8s.io/clustertrustbundles - -", "", None),
        ("watch", "certificates.k8s.io/clustertrustbundles - -", "", None),
        ("create", "certificates.k8s.io/clustertrustbundles - -", "", Some("")),
        ("approve", "certificates.k8s.io/signers - a.io/b", "", Some("")),
    ];
    check(&world, lines);
}

#[test]
fn rules_for_all_nodes() {
    let world = NodeAuthorizerFixture::new(ServerFeatureGates::default());
    let lines: &[AuthorizationCase] = &[
        ("create", "authentication.k8s.io/tokenreviews - -", "", None),
        ("create", "authorization.k8s.io/subjectaccessreviews - -", "", None),
        ("create", "authorization.k8s.io/localsubjectaccessreviews ns -", "", None),
        ("create", "authorization.k8s.io/selfsubjectaccessreviews - -", "", Some("")),
        ("get", "/services ns s", "", None),
        ("list", "/services - -", "", None),
        ("watch", "/services - -", "", None),
        ("update", "/services ns s", "", Some("")),
        ("get", "/services/status ns s", "", Some("")),
        ("get", "/endpoints ns e", "", None),
        ("list", "/endpoints - -", "", Some("")),
        ("create", "/events ns -", "", None),
        ("patch", "events.k8s.io/events ns e", "", None),
        ("update", "/events ns e", "", None),
        ("get", "/events ns e", "", Some("")),
        ("delete", "/events ns e", "", Some("")),
        ("list", "storage.k8s.io/csidrivers - -", "", None),
        ("create", "storage.k8s.io/csidrivers - -", "", Some("")),
        ("watch", "node.k8s.io/runtimeclasses - -", "", None),
        ("get", "/runtimeclasses - r", "", Some("")),
        ("get", "/namespaces ns ns", "", Some("")),
        ("list", "rbac.authorization.k8s.io/clusterroles - -", "", Some("")),
        ("get", "apps/secrets ns s", "", Some("")),
        ("get", "*/* ns s", "", Some("")),
    ];
    check(&world, lines);
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
    let lines: &[AuthorizationCase] = &[
        ("list", "certificates.k8s.io/clustertrustbundles - -", "", Some("")),
        ("create", "certificates.k8s.io/podcertificaterequests ns -", "", Some("")),
        ("get", "certificates.k8s.io/podcertificaterequests ns mine", "", Some("")),
        ("list", "certificates.k8s.io/podcertificaterequests - -", "spec.nodeName=node-1", Some("")),
        ("list", "certificates.k8s.io/certificatesigningrequests - -", "", None),
    ];
    check(&world, lines);
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

fn check(world: &NodeAuthorizerFixture, lines: &[AuthorizationCase]) {
    for (verb, at, selector, why) in lines {
        let expected = match why {
            None => Decision::Allow(String::new()),
            Some(why) => Decision::NoOpinion((*why).into()),
        };
        assert_eq!(world.decide(verb, at, selector), expected, "{verb} {at} {selector}");
    }
}
