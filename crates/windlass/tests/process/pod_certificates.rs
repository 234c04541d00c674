//! Pod certificates and a custom signer, as in the documentation pages.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_testkit::poll_until;

use crate::kubectl::Kubectl;
use crate::server::TestDataDir;
use crate::trust_docs::code_blocks;

const PODS: &str = include_str!("../../../../docs/pod-certificates.md");
const REQUESTS: &str = include_str!("../../../../docs/signers.md");
const STUB: &[u8] = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-p256.stub.der");

fn with_signers(file: &str) -> Kubectl {
    let place = TestDataDir::new();
    fs::create_dir(place.data()).unwrap();
    fs::write(place.data().join("signers.yaml"), file).unwrap();
    Kubectl::with_server(place.start())
}

/// Returns the output of a command, which must succeed.
fn run_ok(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], folder: &Path) -> String {
    let output =
        Command::new(program).args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_pod_gets_a_certificate() {
    let kubectl = with_signers(code_blocks(PODS, "yaml")[0]);
    kubectl.ok(&["create", "namespace", "web"]);
    kubectl.ok(&["create", "serviceaccount", "frontend", "-n", "web"]);
    kubectl.ok(&["create", "service", "clusterip", "shop", "--tcp=443", "-n", "web"]);
    kubectl.ok(&["set", "selector", "service", "shop", "app=web", "-n", "web"]);
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n";
    kubectl.ok_with(node, &["create", "-f", "-"]);
    let pod = code_blocks(PODS, "yaml")[1].replace("spec:\n", "spec:\n  nodeName: node-1\n");
    kubectl.ok_with(&pod, &["create", "-f", "-"]);
    let uid = |arguments: &[&str]| {
        let object = kubectl.json(&[&["get"], arguments].concat());
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    // The request that its node would create.
    let request = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: PodCertificateRequest\nmetadata: {{name: r, namespace: web}}\nspec:\n  \
         signerName: example.com/workloads\n  podName: web-0\n  podUID: {}\n  serviceAccountName: frontend\n  serviceAccountUID: {}\n  \
         nodeName: node-1\n  nodeUID: {}\n  stubPKCS10Request: {}\n",
        uid(&["pod", "web-0", "-n", "web"]),
        uid(&["serviceaccount", "frontend", "-n", "web"]),
        uid(&["node", "node-1"]),
        STANDARD.encode(STUB),
    );
    kubectl.ok_with(&request, &["create", "-f", "-"]);
    let status = wait_for_answer(&kubectl);
    assert_eq!(status["conditions"][0]["type"], "Issued", "{status}");
    let folder = kubectl.server.place().path();
    fs::write(folder.join("pod.crt"), status["certificateChain"].as_str().unwrap()).unwrap();
    let bundle = kubectl.json(&["get", "clustertrustbundle", "example.com:workloads:anchors"]);
    fs::write(folder.join("ca.crt"), bundle["spec"]["trustBundle"].as_str().unwrap()).unwrap();
    let verified = run_ok("openssl", &["verify", "-CAfile", "ca.crt", "pod.crt"], folder);
    assert_eq!(verified, "pod.crt: OK\n");
    let shown = ["x509", "-in", "pod.crt", "-noout", "-ext", "subjectAltName"];
    let names = run_ok("openssl", &shown, folder);
    for name in
        ["URI:spiffe://example.com/ns/web/sa/frontend", "DNS:shop.web.svc", "DNS:shop.web.svc.cluster.local"]
    {
        assert!(names.contains(name), "{name} is not among {names}");
    }
}

fn wait_for_answer(kubectl: &Kubectl) -> Value {
    poll_until("there is no answer", || {
        let request = kubectl.json(&["get", "podcertificaterequest", "r", "-n", "web"]);
        request["status"]["conditions"].is_array().then(|| request["status"].clone())
    })
}

#[test]
fn windlass_issue_works_with_a_custom_signer() {
    let kubectl = with_signers(code_blocks(REQUESTS, "yaml")[0]);
    let folder = kubectl.server.place().path();
    let kubeconfig = kubectl.server.kubeconfig();
    let issue = ["issue", "--signer", "example.com/server-tls", "--dns", "web.example.com"];
    let place = ["--out", "tls", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let windlass = env!("CARGO_BIN_EXE_windlass");
    let reported = run_ok(windlass, &[&issue[..], &place[..]].concat(), folder);
    assert!(reported.contains("tls.crt: DNS:web.example.com, expires "), "{reported}");
    let verified = run_ok("openssl", &["verify", "-CAfile", "tls/ca.crt", "tls/tls.crt"], folder);
    assert_eq!(verified, "tls/tls.crt: OK\n");
    let before = fs::read(folder.join("tls/tls.crt")).unwrap();
    run_ok(windlass, &[&["issue", "--renew"][..], &place[..]].concat(), folder);
    assert_ne!(fs::read(folder.join("tls/tls.crt")).unwrap(), before);
}
