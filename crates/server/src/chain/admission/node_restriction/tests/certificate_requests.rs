//! Certificate requests that a node may create.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/api/conformance/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    STANDARD.encode(std::fs::read(path).unwrap()).into()
}

fn signing(signer: &str, file: &str) -> Value {
    json!({"spec": {"signerName": signer, "request": fixture(file)}})
}

#[test]
fn a_node_requests_node_certificates_in_its_own_name() {
    let (client, serving) = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving");
    let wrong = "can only create a node CSR with CN=system:node:";
    for (node, object, reported) in [
        ("node-1", signing(client, "csr-node1.pem"), String::new()),
        ("node-1", signing(serving, "csr-node1-serving.pem"), String::new()),
        ("node-2", signing(client, "csr-node1.pem"), format!("{wrong}node-2")),
        ("node-2", signing(serving, "csr-node1-serving.pem"), format!("{wrong}node-2")),
        ("node-1", signing(client, "csr-p256.pem"), format!("{wrong}node-1")),
        ("node-1", signing("kubernetes.io/kube-apiserver-client", "csr-p256.pem"), String::new()),
        ("node-1", signing("example.com/any", "garbage.pem"), String::new()),
    ] {
        let case = NodeRestrictionCase {
            node,
            at: "certificates.k8s.io/certificatesigningrequests",
            object,
            ..NodeRestrictionCase::default()
        };
        assert_eq!(case.refusal_text(), reported, "{node}");
    }
    for file in ["garbage.pem", "csr-truncated.pem", "ca-p256.pem"] {
        let case = NodeRestrictionCase {
            node: "node-1",
            at: "certificates.k8s.io/certificatesigningrequests",
            object: signing(client, file),
            ..NodeRestrictionCase::default()
        };
        assert!(case.refusal_text().starts_with("unable to parse csr: "), "{file}: {}", case.refusal_text());
    }
}

const PODS: &str = "certificates.k8s.io/podcertificaterequests";

fn related_objects() -> Vec<(&'static str, Value)> {
    let mounts =
        json!([{"projected": {"sources": [{"podCertificate": {"signerName": "example.com/pods"}}]}}]);
    let pod = |uid: &str, node: &str| {
        json!({
            "metadata": {"name": "p", "uid": uid},
            "spec": {"nodeName": node, "serviceAccountName": "sa", "volumes": mounts},
        })
    };
    let mut mirror = pod("mirror-uid", "node-1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    vec![
        ("nodes//node-1", json!({"metadata": {"uid": "node-uid"}})),
        ("pods/ns/p", pod("pod-uid", "node-1")),
        ("pods/ns/elsewhere", pod("elsewhere-uid", "node-2")),
        ("pods/ns/mirror", mirror),
        ("serviceaccounts/ns/sa", json!({"metadata": {"uid": "sa-uid"}})),
    ]
}

fn pod_request(changes: &[(&str, &str)]) -> Value {
    let mut spec = json!({
        "nodeName": "node-1", "nodeUID": "node-uid", "podName": "p", "podUID": "pod-uid",
        "serviceAccountName": "sa", "serviceAccountUID": "sa-uid", "signerName": "example.com/pods",
    });
    for (field, value) in changes {
        spec[*field] = json!(value);
    }
    json!({"spec": spec})
}

/// Tests each check of a pod certificate request.
#[test]
fn a_node_requests_certificates_of_its_own_pods() {
    let world = related_objects();
    for (changes, reported) in [
        (&[][..], ""),
        (
            &[("nodeName", "node-2")],
            "PodCertificateRequest.Spec.NodeName=\"node-2\", which is not the requesting node \"node-1\"",
        ),
        (
            &[("nodeUID", "old")],
            "500 PodCertificateRequest for pod \"ns/p\" names node UID \"old\", inconsistent with the running node (\"node-uid\")",
        ),
        (
            &[("podName", "gone")],
            "500 while retrieving pod \"ns/gone\" named in the PodCertificateRequest: pod \"gone\" not found",
        ),
        (
            &[("podUID", "old")],
            "500 PodCertificateRequest for pod \"ns/p\" contains pod UID (\"old\") which differs from running pod \"pod-uid\"",
        ),
        (
            &[("podName", "elsewhere"), ("podUID", "elsewhere-uid")],
            "pod \"ns/elsewhere\" is not running on node \"node-1\" named in the PodCertificateRequest",
        ),
        (&[("podName", "mirror"), ("podUID", "mirror-uid")], "pod \"ns/mirror\" is a mirror pod"),
        (
            &[("serviceAccountName", "other")],
            "PodCertificateRequest for pod \"ns/p\" contains serviceAccountName (\"other\") that differs from running pod (\"sa\")",
        ),
        (
            &[("serviceAccountUID", "old")],
            "500 PodCertificateRequest for pod \"ns/p\" names service account UID \"old\", which differs from the running service account (\"sa-uid\")",
        ),
        (
            &[("signerName", "example.com/other")],
            "pod \"ns/p\" does not mount a podCertificate volume for signer \"example.com/other\"",
        ),
        (&[("signerName", "")], "pod \"ns/p\" does not mount a podCertificate volume for signer \"\""),
        (&[("signerName", "example.com/granted")], ""),
    ] {
        let case = NodeRestrictionCase {
            node: "node-1",
            at: PODS,
            namespace: "ns",
            object: pod_request(changes),
            others: &world,
            audiences: &["example.com/granted for sa"],
            ..NodeRestrictionCase::default()
        };
        assert_eq!(case.refusal_text(), reported, "{changes:?}");
    }
}

#[test]
fn a_node_does_nothing_else_with_them() {
    let (world, old) = (related_objects(), pod_request(&[]));
    for (at, operation, reported) in [
        (PODS.to_owned(), AdmissionOperation::Update(&old), "unexpected operation UPDATE"),
        (PODS.to_owned(), AdmissionOperation::Delete, "unexpected operation DELETE"),
        (format!("{PODS}/status"), AdmissionOperation::Update(&old), "unexpected operation UPDATE"),
        (format!("{PODS}/status"), AdmissionOperation::Create, "unexpected subresource status"),
    ] {
        let case = NodeRestrictionCase {
            node: "node-1",
            at: &at,
            namespace: "ns",
            operation,
            object: pod_request(&[]),
            others: &world,
            ..NodeRestrictionCase::default()
        };
        assert_eq!(case.refusal_text(), reported, "{at}");
    }
    let gone: Vec<_> = world.into_iter().filter(|(at, _)| !at.starts_with("service")).collect();
    let case = NodeRestrictionCase {
        node: "node-1",
        at: PODS,
        namespace: "ns",
        object: pod_request(&[]),
        others: &gone,
        ..NodeRestrictionCase::default()
    };
    let reported = "500 while retrieving service account \"ns/sa\" named in the PodCertificateRequest: serviceaccount \"sa\" not found";
    assert_eq!(case.refusal_text(), reported);
}
