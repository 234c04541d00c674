//! Updates of pods, also through their subresources.

use super::*;

fn update_error_texts(new: &Value, old: &Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    update(new, old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn changes() {
    let old = pod(json!({"activeDeadlineSeconds": 10}));
    let with = |pointer: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        new
    };
    let mut no_deadline = old.clone();
    read_spec(&mut no_deadline).remove("activeDeadlineSeconds");
    let mut tolerant = old.clone();
    tolerant["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"operator": "Exists"}));
    let mut intolerant = old.clone();
    intolerant["spec"]["tolerations"].as_array_mut().unwrap().pop();
    for (new, expected) in [
        (old.clone(), vec![]),
        (with("/spec/containers/0/image", json!("j")), vec![]),
        (with("/spec/activeDeadlineSeconds", json!(5)), vec![]),
        (tolerant, vec![]),
        (
            with("/spec/activeDeadlineSeconds", json!(11)),
            vec![
                "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value",
            ],
        ),
        (
            no_deadline,
            vec![
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive \
                  integer to nil value",
            ],
        ),
        (
            intolerant,
            vec![
                "spec.tolerations: Forbidden: existing toleration can not be modified except its \
                  tolerationSeconds",
            ],
        ),
        (
            with("/spec/dnsPolicy", json!("Default")),
            vec![
                "spec: Forbidden: pod updates may not change fields other than \
                  `spec.containers[*].image`,`spec.initContainers[*].image`,\
                  `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
                  tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it \
                  was previously negative)",
            ],
        ),
    ] {
        assert_eq!(update_error_texts(&new, &old), expected, "{new}");
    }
    let mut more = old.clone();
    let again =
        json!({"name": "d", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"});
    more["spec"]["containers"].as_array_mut().unwrap().push(again);
    assert_eq!(
        update_error_texts(&more, &old),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

fn read_spec(pod: &mut Value) -> &mut serde_json::Map<String, Value> {
    pod["spec"].as_object_mut().unwrap()
}

#[test]
fn gated_pods_may_narrow_their_node_selection() {
    let old = pod(json!({"schedulingGates": [{"name": "a/b"}], "nodeSelector": {"x": "y"}}));
    let mut new = old.clone();
    new["spec"]["nodeSelector"]["z"] = json!("1");
    new["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}});
    read_spec(&mut new).remove("schedulingGates");
    assert_eq!(update_error_texts(&new, &old), [""; 0]);
    let mut other = old.clone();
    other["spec"]["nodeSelector"] = json!({"x": "other"});
    other["spec"]["schedulingGates"] = json!([{"name": "new/gate"}]);
    assert_eq!(
        update_error_texts(&other, &old),
        [
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new \
             scheduling gate 'new/gate'",
            "spec.nodeSelector: Invalid value: {\"x\":\"other\"}: only additions to \
             spec.nodeSelector are allowed (no mutations or deletions)",
        ]
    );
}

#[test]
fn status_changes() {
    let old = json!({"spec": {"restartPolicy": "Never", "nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"qosClass": "BestEffort", "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": 0}}}]}});
    let new = json!({"spec": old["spec"], "status": {
        "qosClass": "Guaranteed", "nominatedNodeName": "m", "hostIP": "1.1.1.1",
        "hostIPs": [{"ip": "2.2.2.2"}], "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}],
        "conditions": [{"type": "a b"}],
        "containerStatuses": [{"name": "c", "state": {"running": {}}}]}});
    let mut errors = FieldErrors::new();
    status(&new, &old, &mut errors);
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(words[0].starts_with("status.conditions[0].Type: Invalid value: \"a b\""), "{words:?}");
    assert_eq!(
        words[1..],
        [
            "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            "status.qosClass: Invalid value: \"Guaranteed\": field is immutable",
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
            "status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.1\"}]: may \
             specify no more than one IP for each IP family",
            "status.podIPs[1]: Duplicate value: {\"IP\":\"10.0.0.1\"}",
            "status.hostIPs[0].ip: Invalid value: \"2.2.2.2\": must be equal to `hostIP`",
        ]
    );
}

#[test]
fn ephemeral_containers_only_grow() {
    let mut old = pod(json!({}));
    let debug = json!({"name": "e", "image": "i", "imagePullPolicy": "Always",
                       "terminationMessagePolicy": "File", "resources": {}});
    old["spec"]["ephemeralContainers"] = json!([debug]);
    let said = |new: &Value| {
        let mut errors = FieldErrors::new();
        ephemeral_containers(new, &old, &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut more = old.clone();
    let mut second = debug.clone();
    second["name"] = json!("f");
    second["ports"] = json!([{"containerPort": 1, "protocol": "TCP"}]);
    second["targetContainerName"] = json!("gone");
    more["spec"]["ephemeralContainers"] = json!([debug, second]);
    assert_eq!(
        said(&more),
        [
            "spec.ephemeralContainers[1].targetContainerName: Not found: \"gone\"",
            "spec.ephemeralContainers[1].ports: Forbidden: cannot be set for an Ephemeral Container",
        ]
    );
    let mut none = old.clone();
    read_spec(&mut none).remove("ephemeralContainers");
    assert_eq!(
        said(&none),
        ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"]
    );
}

#[test]
fn resizes_change_amounts_only() {
    let mut old = container(
        json!({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}),
    );
    old["status"] = json!({"qosClass": "Burstable"});
    let said = |new: &Value| {
        let mut errors = FieldErrors::new();
        resize(new, &old, &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let with = |resources: Value| {
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"] = resources;
        new
    };
    let fine = with(json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}));
    assert_eq!(said(&fine), [""; 0]);
    let less = with(json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}));
    assert_eq!(
        said(&less),
        [
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            "spec.containers[0].resources.limits[memory]: Forbidden: memory limits cannot be \
             decreased unless resizePolicy is RestartContainer",
        ]
    );
    let other = with(
        json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1"}, "limits": {"memory": "2Gi"}}),
    );
    assert_eq!(said(&other), ["spec: Forbidden: only cpu and memory resources are mutable"]);
}
