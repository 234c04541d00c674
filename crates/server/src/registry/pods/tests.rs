//! Pods as returned by a recorded kube-apiserver.

use serde_json::{Value, json};
use windlass_api::field::FieldErrors;
use windlass_api::status::Status;

use super::KIND;

/// Returns a pod as created by the server from a client's request.
fn created(sent: &Value) -> Value {
    let mut pod = sent.clone();
    (KIND.defaults)(&mut pod);
    (KIND.prepare_create)(&mut pod);
    pod
}

#[test]
fn projected_volumes_are_taken_and_refused_as_recorded() {
    let scenario: Value =
        serde_json::from_str(include_str!("../../../tests/fixtures/scenarios/pod-projection.json")).unwrap();
    let steps = scenario["steps"].as_array().unwrap();
    assert!(steps.len() > 10);
    for step in steps {
        let pod = created(&step["body"]);
        let mut errors = FieldErrors::new();
        (KIND.validate_create)(&pod, &mut errors);
        let says = &step["says"];
        if step["expect"]["status"] == 201 {
            assert!(errors.is_empty(), "{says}: {errors:?}");
            let expected = &step["expect"]["picked"]["spec.volumes.0"];
            assert_eq!(pod["spec"]["volumes"][0], *expected, "{says}");
        } else {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let status = Status::invalid("", "Pod", name, errors);
            let said = serde_json::to_value(status).unwrap();
            assert_eq!(said, step["expect"]["body"], "{says}");
        }
    }
}

#[test]
fn a_pod_on_a_node_is_answered_as_recorded() {
    let pod = created(&json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "pause"},
        "spec": {
            "volumes": [{"name": "node-auth-secret", "secret": {"secretName": "node-auth-secret"}}],
            "containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10.2", "resources": {}}],
            "nodeName": "fake-0"
        },
        "status": {}
    }));
    assert_eq!(
        pod["spec"],
        json!({
            "volumes": [{"name": "node-auth-secret",
                         "secret": {"secretName": "node-auth-secret", "defaultMode": 420}}],
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "nodeName": "fake-0", "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                 "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                 "effect": "NoExecute", "tolerationSeconds": 300}
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"
        })
    );
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn client_values_are_preserved() {
    let pod = created(&json!({
        "metadata": {"name": "pod-1"},
        "spec": {
            "containers": [{
                "name": "agnhost-container", "image": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
                "args": ["porter"], "ports": [{"containerPort": 8080}],
                "env": [{"name": "SERVE_PORT_8080", "value": "foo"}],
                "resources": {}, "imagePullPolicy": "IfNotPresent", "securityContext": {}
            }],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1"}
    }));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 0);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let ports = &pod["spec"]["containers"][0]["ports"];
    assert_eq!(*ports, json!([{"containerPort": 8080, "protocol": "TCP"}]));
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn there_is_a_cell_for_every_column() {
    let now = time::OffsetDateTime::UNIX_EPOCH;
    assert_eq!((KIND.row)(&json!({}), now).len(), KIND.columns.len());
    assert_eq!(KIND.columns[0].format, "name");
}
