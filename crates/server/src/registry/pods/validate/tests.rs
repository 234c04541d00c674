use serde_json::{Value, json};
use windlass_api::field::FieldErrors;

use super::super::{defaults, prepare};
use super::*;

mod changes;

/// Returns a valid pod with `change` merged into its spec.
fn pod(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
    defaults::default_pod(&mut pod);
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

fn error_texts(pod: &Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    create(pod, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn check(cases: &[(Value, &[&str])]) {
    for (pod, expected) in cases {
        assert_eq!(error_texts(pod), *expected, "{pod}");
    }
}

#[test]
fn specs() {
    check(&[
        (pod(json!({})), &[]),
        (pod(json!({"containers": []})), &["spec.containers: Required value"]),
        (
            pod(json!({"restartPolicy": "Sometimes"})),
            &["spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
               \"OnFailure\", \"Never\""],
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
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        (
            pod(json!({"ephemeralContainers": [{"name": "e", "image": "i"}]})),
            &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
        ),
        (
            pod(json!({"nodeName": "n", "schedulingGates": [{"name": "a/b"}]})),
            &["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
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
        let words = error_texts(&pod(json!({field: "A_b"})));
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
            &["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
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
            &["spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing \
               whitespace"],
        ),
        (
            container(json!({"imagePullPolicy": "Maybe"})),
            &["spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \
               \"Always\", \"IfNotPresent\", \"Never\""],
        ),
        (
            container(json!({"ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "X"}]})),
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
            &["spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers \
               without restartPolicy=Always"],
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
            &["spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when \
               `value` is not empty"],
        ),
        (
            container(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]})),
            &["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": \
               error converting fieldPath: field label not supported: spec.x"],
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
            &["spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique"],
        ),
        (
            container(json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../x"}]})),
            &["spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'"],
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
            &["spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume \
               source type of PersistentVolumeClaim or Ephemeral for block mode"],
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
            container(json!({"readinessProbe": {"httpGet": {"port": 0}, "initialDelaySeconds": -1}})),
            &[
                "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 \
               and 65535, inclusive",
                "spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1: must be \
               greater than or equal to 0",
            ],
        ),
        (
            container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}})),
            &["spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative \
               and less than terminationGracePeriodSeconds (30)"],
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
            &["spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater \
               than or equal to 0"],
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
            &["spec.containers[0].resources.claims[0]: Not found: \"r\": must be one of the names \
               in pod.spec.resourceClaims which is empty"],
        ),
    ]);
}

#[test]
fn volumes() {
    check(&[
        (
            pod(json!({"volumes": [{"name": ""}, {"name": "a"}, {"name": "a"}]})),
            &["spec.volumes[0].name: Required value", "spec.volumes[2].name: Duplicate value: \"a\""],
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
            &["spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is \
               required"],
        ),
        (
            volume(json!({"nfs": {"server": "s", "path": "p"}})),
            &["spec.volumes[0].nfs.path: Invalid value: \"p\": must be an absolute path"],
        ),
        (
            volume(json!({"iscsi": {"targetPortal": "t", "iqn": "iqn.2003-01.com.example:x", "lun": 300}})),
            &["spec.volumes[0].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive"],
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
        let mut value = json!({"signerName": "example.com/pods", "keyType": "ED25519", "keyPath": "k"});
        for (field, change) in change.as_object().unwrap() {
            value[field] = change.clone();
        }
        source(json!({"podCertificate": value}))
    };
    let cases: &[(Value, Vec<String>)] = &[
        (
            source(json!({"clusterTrustBundle": {"name": "", "path": "p"}})),
            vec![
                format!("{at}.clusterTrustBundle.name: Required value: must be a valid object name"),
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
            vec!["spec.volumes[0].projected: Invalid value: \"k\": conflicting duplicate paths".to_owned()],
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
                "spec.volumes[0].projected: Invalid value: \"m\": conflicting duplicate paths".to_owned(),
            ],
        ),
    ];
    for (pod, expected) in cases {
        assert_eq!(error_texts(pod), *expected, "{pod}");
    }
}
