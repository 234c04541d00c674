use serde_json::{Value, json};
use windlass_api::field::Errors;

use super::super::{defaults, prepare};
use super::*;

/// A pod that meets every rule, with `change` merged into its spec.
fn pod(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
    defaults::pod(&mut pod);
    prepare::create(&mut pod);
    pod
}

fn container(change: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    for (field, value) in change.as_object().unwrap() {
        container[field] = value.clone();
    }
    pod(json!({
        "containers": [container],
        "volumes": [{"name": "v"}, {"name": "w", "persistentVolumeClaim": {"claimName": "x"}}]
    }))
}

fn volume(source: Value) -> Value {
    let mut volume = source;
    volume["name"] = json!("v");
    pod(json!({"volumes": [volume]}))
}

fn said(pod: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    create(pod, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn check(cases: &[(Value, &[&str])]) {
    for (pod, expected) in cases {
        assert_eq!(said(pod), *expected, "{pod}");
    }
}

#[test]
fn specs() {
    check(&[
        (pod(json!({})), &[]),
        (pod(json!({"containers": []})), &["spec.containers: Required value"]),
        (
            pod(json!({"restartPolicy": "Sometimes"})),
            &[
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
               \"OnFailure\", \"Never\"",
            ],
        ),
        (
            pod(json!({"dnsPolicy": "X"})),
            &["spec.dnsPolicy: Unsupported value: \"X\": supported values: \
               \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\""],
        ),
        (
            pod(json!({"dnsPolicy": "None"})),
            &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        ),
        (
            pod(json!({"activeDeadlineSeconds": 0})),
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, \
               inclusive"],
        ),
        (
            pod(json!({"ephemeralContainers": [{"name": "e", "image": "i"}]})),
            &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
        ),
        (
            pod(json!({"nodeName": "n", "schedulingGates": [{"name": "a/b"}]})),
            &[
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            ],
        ),
        (
            pod(json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]})),
            &["spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when \
               `operator` is 'Exists'"],
        ),
        (
            pod(json!({"tolerations": [{"operator": "Equal"}]})),
            &["spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists \
               when `key` is empty, which means \"match all values and all keys\""],
        ),
        (
            pod(json!({"hostAliases": [{"ip": "no", "hostnames": ["h"]}]})),
            &["spec.hostAliases[0].ip: Invalid value: \"no\": must be a valid IP address, (e.g. \
               10.9.8.7 or 2001:db8::ffff)"],
        ),
        (
            pod(json!({"securityContext": {"runAsUser": -1}})),
            &["spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and \
               2147483647, inclusive"],
        ),
        (
            pod(json!({"hostUsers": false, "hostPID": true})),
            &["spec.HostPID: Forbidden: when `hostUsers` is false"],
        ),
        (
            pod(json!({"os": {"name": "plan9"}})),
            &["spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
        ),
        (
            pod(json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}})),
            &["spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.\
               nodeSelectorTerms: Required value: must have at least one node selector term"],
        ),
        (
            pod(json!({"resourceClaims": [{"name": "r"}]})),
            &["spec.resourceClaims[0]: Invalid value: {\"Name\":\"r\",\"ResourceClaimName\":null,\
               \"ResourceClaimTemplateName\":null}: must specify one of: `resourceClaimName`, \
               `resourceClaimTemplateName`"],
        ),
    ]);
}

#[test]
fn names_are_checked() {
    for (field, label) in [("nodeName", false), ("serviceAccountName", false), ("hostname", true)] {
        let words = said(&pod(json!({field: "A_b"})));
        let grammar = if label { "RFC 1123 label" } else { "RFC 1123 subdomain" };
        assert_eq!(words.len(), 1, "{field}");
        let start = format!("spec.{field}: Invalid value: \"A_b\": a lowercase {grammar} must");
        assert!(words[0].starts_with(&start), "{words:?}");
    }
}

#[test]
fn annotations_that_mean_something() {
    let mut mirror = pod(json!({}));
    mirror["metadata"]["annotations"] = json!({
        "kubernetes.io/config.mirror": "x",
        "controller.kubernetes.io/pod-deletion-cost": "+1"
    });
    check(&[(
        mirror,
        &[
            "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set \
           spec.nodeName if mirror pod annotation is set",
            "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \
           \"+1\": must be a 32bit integer",
        ],
    )]);
}

#[test]
fn containers() {
    check(&[
        (
            pod(json!({"containers": [{"name": "", "image": ""}]})),
            &[
                "spec.containers[0].name: Required value",
                "spec.containers[0].image: Required value",
            ],
        ),
        (
            pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}],
                       "initContainers": [{"name": "a", "image": "i"}]})),
            &[
                "spec.containers[1].name: Duplicate value: \"a\"",
                "spec.initContainers[0].name: Duplicate value: \"a\"",
            ],
        ),
        (
            container(json!({"image": " i"})),
            &[
                "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing \
               whitespace",
            ],
        ),
        (
            container(json!({"imagePullPolicy": "Maybe"})),
            &[
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \
               \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        ),
        (
            container(
                json!({"ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "X"}]}),
            ),
            &[
                "spec.containers[0].ports[0].containerPort: Required value",
                "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 \
               and 65535, inclusive",
                "spec.containers[0].ports[1].protocol: Unsupported value: \"X\": supported values: \
               \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            container(
                json!({"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
            ),
            &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\""],
        ),
        (
            pod(
                json!({"initContainers": [{"name": "a", "image": "i", "livenessProbe": {"exec": {"command": ["x"]}}}]}),
            ),
            &[
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers \
               without restartPolicy=Always",
            ],
        ),
    ]);
}

#[test]
fn variables() {
    check(&[
        (
            container(json!({"env": [{"name": ""}, {"name": "a=b"}]})),
            &[
                "spec.containers[0].env[0].name: Required value",
                "spec.containers[0].env[1].name: Invalid value: \"a=b\": a valid environment variable \
               name must consist only of printable ASCII characters other than '='",
            ],
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {}}]})),
            &["spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: \
               `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"],
        ),
        (
            container(json!({"env": [{"name": "A", "value": "x",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]})),
            &[
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when \
               `value` is not empty",
            ],
        ),
        (
            container(
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
            ),
            &[
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": \
               error converting fieldPath: field label not supported: spec.x",
            ],
        ),
        (
            container(
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]}),
            ),
            &["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \
               \"status.phase\": supported values: \"metadata.name\", \"metadata.namespace\", \
               \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \
               \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\""],
        ),
        (
            container(
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}]}),
            ),
            &[],
        ),
        (
            container(json!({"envFrom": [{}]})),
            &["spec.containers[0].envFrom: Invalid value: \"\": must specify one of: \
               `configMapRef` or `secretRef`"],
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef":
                {"key": "K", "volumeName": "w", "path": "f"}}}]})),
            &["spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"w\": \
               referenced volume must be of type emptyDir"],
        ),
    ]);
}

#[test]
fn mounts() {
    check(&[
        (
            container(json!({"volumeMounts": [{"name": "gone", "mountPath": ""}]})),
            &[
                "spec.containers[0].volumeMounts[0].name: Not found: \"gone\"",
                "spec.containers[0].volumeMounts[0].mountPath: Required value",
            ],
        ),
        (
            container(
                json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]}),
            ),
            &[
                "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
            ],
        ),
        (
            container(
                json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../x"}]}),
            ),
            &[
                "spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
            ],
        ),
        (
            container(
                json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]}),
            ),
            &["spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount \
               propagation is available only to privileged containers"],
        ),
        (
            container(
                json!({"volumeDevices": [{"name": "v", "devicePath": "/d"}, {"name": "w", "devicePath": "/e"}]}),
            ),
            &[
                "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume \
               source type of PersistentVolumeClaim or Ephemeral for block mode",
            ],
        ),
    ]);
}

#[test]
fn probes_and_hooks() {
    check(&[
        (
            container(json!({"livenessProbe": {}})),
            &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        (
            container(
                json!({"livenessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}, "successThreshold": 2}}),
            ),
            &[
                "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 \
               handler type",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            container(
                json!({"readinessProbe": {"httpGet": {"port": 0}, "initialDelaySeconds": -1}}),
            ),
            &[
                "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 \
               and 65535, inclusive",
                "spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1: must be \
               greater than or equal to 0",
            ],
        ),
        (
            container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}})),
            &[
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative \
               and less than terminationGracePeriodSeconds (30)",
            ],
        ),
    ]);
}

#[test]
fn resources() {
    let resources = |value: Value| container(json!({"resources": value}));
    check(&[
        (
            resources(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            &["spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or \
               equal to cpu limit of 1"],
        ),
        (
            resources(json!({"requests": {"cpu": "-1"}})),
            &[
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater \
               than or equal to 0",
            ],
        ),
        (
            resources(json!({"requests": {"pods": "1"}})),
            &["spec.containers[0].resources.requests[pods]: Invalid value: \"pods\": must be a \
               standard resource for containers"],
        ),
        (
            resources(json!({"requests": {"example.com/gpu": "1"}})),
            &["spec.containers[0].resources.limits: Required value: Limit must be set for non \
               overcommitable resources"],
        ),
        (
            resources(json!({"limits": {"example.com/gpu": "1500m"}})),
            &[
                "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"1500m\": \
               must be an integer",
                "spec.containers[0].resources.requests[example.com/gpu]: Invalid value: \"1500m\": \
               must be an integer",
            ],
        ),
        (
            resources(json!({"claims": [{"name": "r"}]})),
            &[
                "spec.containers[0].resources.claims[0]: Not found: \"r\": must be one of the names \
               in pod.spec.resourceClaims which is empty",
            ],
        ),
    ]);
}

#[test]
fn volumes() {
    check(&[
        (
            pod(json!({"volumes": [{"name": ""}, {"name": "a"}, {"name": "a"}]})),
            &[
                "spec.volumes[0].name: Required value",
                "spec.volumes[2].name: Duplicate value: \"a\"",
            ],
        ),
        (
            volume(json!({"emptyDir": {}, "hostPath": {"path": "/"}, "downwardAPI": {}})),
            &[
                "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        ),
        (
            volume(json!({"hostPath": {"path": "/a/../b", "type": "Disk"}})),
            &[
                "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                "spec.volumes[0].hostPath.type: Unsupported value: \"Disk\": supported values: \"\", \
               \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \
               \"FileOrCreate\", \"Socket\"",
            ],
        ),
        (
            volume(
                json!({"secret": {"defaultMode": 512, "items": [{"key": "k", "path": "..x", "mode": -1}]}}),
            ),
            &[
                "spec.volumes[0].secret.secretName: Required value",
                "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 \
               and 0777 (octal), both inclusive",
                "spec.volumes[0].secret.items[0].path: Invalid value: \"..x\": must not start with '..'",
                "spec.volumes[0].secret.items[0].mode: Invalid value: -1: must be a number between 0 \
               and 0777 (octal), both inclusive",
            ],
        ),
        (
            volume(json!({"downwardAPI": {"items": [{"path": "p"}]}})),
            &[
                "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is \
               required",
            ],
        ),
        (
            volume(json!({"nfs": {"server": "s", "path": "p"}})),
            &["spec.volumes[0].nfs.path: Invalid value: \"p\": must be an absolute path"],
        ),
        (
            volume(
                json!({"iscsi": {"targetPortal": "t", "iqn": "iqn.2003-01.com.example:x", "lun": 300}}),
            ),
            &[
                "spec.volumes[0].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
            ],
        ),
        (
            volume(json!({"iscsi": {"targetPortal": "t", "iqn": "iqn.2003"}})),
            &["spec.volumes[0].iscsi.iqn: Invalid value: \"iqn.2003\": must be valid format"],
        ),
        (volume(json!({"csi": {"driver": "Driver.example.com"}})), &[]),
        (volume(json!({"image": {}})), &["spec.volumes[0].image.reference: Required value"]),
    ]);
}

#[test]
fn projections_beyond_the_recorded_ones() {
    let source = |value: Value| volume(json!({"projected": {"sources": [value]}}));
    let at = "spec.volumes[0].projected.sources[0]";
    let certificate = |change: Value| {
        let mut value =
            json!({"signerName": "example.com/pods", "keyType": "ED25519", "keyPath": "k"});
        for (field, change) in change.as_object().unwrap() {
            value[field] = change.clone();
        }
        source(json!({"podCertificate": value}))
    };
    let cases: &[(Value, Vec<String>)] = &[
        (
            source(json!({"clusterTrustBundle": {"name": "", "path": "p"}})),
            vec![
                format!(
                    "{at}.clusterTrustBundle.name: Required value: must be a valid object name"
                ),
                format!(
                    "{at}.clusterTrustBundle.name: Invalid value: \"\": not a valid \
                     clustertrustbundlename: {}",
                    names::dns1123_subdomain("")[0]
                ),
            ],
        ),
        (source(json!({"clusterTrustBundle": {"name": "example.com:a:b", "path": "p"}})), vec![]),
        (
            source(
                json!({"clusterTrustBundle": {"name": "a", "signerName": "b", "path": "p", "optional": true,
                "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchLabels": {"a": "<"}}}}),
            ),
            vec![format!(
                "{at}.clusterTrustBundle: Invalid value: {{\"Name\":\"a\",\"SignerName\":\"b\",\
                 \"LabelSelector\":{{\"matchLabels\":{{\"a\":\"\\u003c\"}},\"matchExpressions\":\
                 [{{\"key\":\"k\",\"operator\":\"Exists\"}}]}},\"Optional\":true,\"Path\":\"p\",\
                 \"User\":null}}: only one of name and signerName may be used"
            )],
        ),
        (
            certificate(json!({"maxExpirationSeconds": 7_862_401})),
            vec![format!(
                "{at}.podCertificate.maxExpirationSeconds: Invalid value: 7862401: if provided, \
                 maxExpirationSeconds must be <= 7862400"
            )],
        ),
        (
            certificate(json!({"signerName": "kubernetes.io/x", "maxExpirationSeconds": 86401})),
            vec![format!(
                "{at}.podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, \
                 maxExpirationSeconds must be <= 86400"
            )],
        ),
        (
            certificate(json!({"certificateChainPath": "k"})),
            vec![
                "spec.volumes[0].projected: Invalid value: \"k\": conflicting duplicate paths"
                    .to_owned(),
            ],
        ),
        (
            certificate(json!({"userAnnotations": {"plain": "x", "Example.com/A": "y"}})),
            vec![format!(
                "{at}.podCertificate.userAnnotations: Invalid value: \"plain\": must be a \
                 domain-prefixed key (such as \"acme.io/foo\")"
            )],
        ),
        (
            source(json!({"serviceAccountToken": {"path": "", "expirationSeconds": 599}})),
            vec![
                format!(
                    "{at}.serviceAccountToken.expirationSeconds: Invalid value: 599: may not \
                     specify a duration less than 10 minutes"
                ),
                "spec.volumes[0].projected.path: Required value".to_owned(),
                format!(
                    "{at}.serviceAccountToken: Forbidden: must not be specified when \
                     serviceAccountName is not set"
                ),
            ],
        ),
        (
            volume(json!({"projected": {"defaultMode": 512, "sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}]}})),
            vec![
                "spec.volumes[0].projected.defaultMode: Invalid value: 512: must be a number \
                 between 0 and 0777 (octal), both inclusive"
                    .to_owned(),
                "spec.volumes[0].projected: Invalid value: \"m\": conflicting duplicate paths"
                    .to_owned(),
            ],
        ),
    ];
    for (pod, expected) in cases {
        assert_eq!(said(pod), *expected, "{pod}");
    }
}

fn said_of_change(new: &Value, old: &Value) -> Vec<String> {
    let mut errors = Errors::new();
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
                "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to \
                  previous value",
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
        assert_eq!(said_of_change(&new, &old), expected, "{new}");
    }
    let mut more = old.clone();
    let again = json!({"name": "d", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"});
    more["spec"]["containers"].as_array_mut().unwrap().push(again);
    assert_eq!(
        said_of_change(&more, &old),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

fn read_spec(pod: &mut Value) -> &mut serde_json::Map<String, Value> {
    pod["spec"].as_object_mut().unwrap()
}

#[test]
fn gated_pods_may_become_choosier() {
    let old = pod(json!({"schedulingGates": [{"name": "a/b"}], "nodeSelector": {"x": "y"}}));
    let mut new = old.clone();
    new["spec"]["nodeSelector"]["z"] = json!("1");
    new["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}});
    read_spec(&mut new).remove("schedulingGates");
    assert_eq!(said_of_change(&new, &old), [""; 0]);
    let mut other = old.clone();
    other["spec"]["nodeSelector"] = json!({"x": "other"});
    other["spec"]["schedulingGates"] = json!([{"name": "new/gate"}]);
    assert_eq!(
        said_of_change(&other, &old),
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
    let mut errors = Errors::new();
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
        let mut errors = Errors::new();
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
        [
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"
        ]
    );
}

#[test]
fn resizes_change_amounts_only() {
    let mut old = container(
        json!({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}}),
    );
    old["status"] = json!({"qosClass": "Burstable"});
    let said = |new: &Value| {
        let mut errors = Errors::new();
        resize(new, &old, &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let with = |resources: Value| {
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"] = resources;
        new
    };
    let fine =
        with(json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}));
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
