//! Certificates with `kubectl`: request, approve, deny, publish anchors.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::access::add_user;
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

fn fixture(name: &str) -> String {
    let folder = "../server/tests/api/conformance/fixtures";
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name)).unwrap()
}

fn request(name: &str, signer: &str) -> String {
    let pem = STANDARD.encode(fixture("csr-p256.pem"));
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata:\n  name: {name}\nspec:\n  \
         request: {pem}\n  signerName: {signer}\n  expirationSeconds: 3600\n  usages: [client auth]\n"
    )
}

fn bundle(name: &str, signer: &str) -> String {
    let signer = if signer.is_empty() { String::new() } else { format!("  signerName: {signer}\n") };
    let anchors = fixture("ca-p256.pem").replace('\n', "\n    ");
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata:\n  name: {name}\nspec:\n{signer}  \
         trustBundle: |\n    {anchors}\n"
    )
}

#[test]
fn requests_are_approved_and_denied() {
    let admin = Kubectl::new();
    for name in ["good", "bad"] {
        admin.ok_with(&request(name, "example.com/people"), &["create", "-f", "-"]);
    }
    let row = |name: &str| {
        let table = admin.ok(&["get", "csr", name]);
        let mut lines = table.lines().map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(head, ["NAME", "AGE", "SIGNERNAME", "REQUESTOR", "REQUESTEDDURATION", "CONDITION"]);
        row.last().unwrap().clone()
    };
    assert_eq!(row("good"), "Pending");
    assert!(admin.ok(&["certificate", "approve", "good"]).contains("good approved"));
    assert!(admin.ok(&["certificate", "deny", "bad"]).contains("bad denied"));
    assert_eq!((row("good"), row("bad")), ("Approved".into(), "Denied".into()));
    let described = admin.ok(&["describe", "csr", "good"]);
    for words in ["kubernetes-admin", "example.com/people", "Approved"] {
        assert!(described.contains(words), "{words} in\n{described}");
    }
    // A decision cannot be changed.
    admin.fails(&["certificate", "deny", "good"]);

    let status = format!("{{\"status\":{{\"certificate\":\"{}\"}}}}", STANDARD.encode(fixture("leaf.pem")));
    if admin.minor() >= 24 {
        let patch = ["patch", "csr", "good", "--subresource=status", "--type=merge", "-p", &status];
        admin.ok(&patch);
        assert_eq!(row("good"), "Approved,Issued");
    }
}

#[test]
fn only_authorized_users_approve() {
    let admin = Kubectl::new();
    admin.ok_with(&request("asked", "example.com/people"), &["create", "-f", "-"]);
    let role = [
        "create",
        "clusterrole",
        "requests",
        "--verb=get,list,update",
        "--resource=certificatesigningrequests,certificatesigningrequests/approval",
    ];
    admin.ok(&role);
    admin.ok(&["create", "clusterrolebinding", "requests", "--clusterrole=requests", "--user=alice"]);
    let alice = admin.with_kubeconfig(add_user(&admin, "alice", &[]));
    let refused = alice.fails(&["certificate", "approve", "asked"]);
    let text = "user not permitted to approve requests with signerName \"example.com/people\"";
    assert!(refused.contains(text), "{refused}");

    let people = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: people\nrules:\n\
                  - apiGroups: [certificates.k8s.io]\n  resources: [signers]\n  \
                  resourceNames: [example.com/*]\n  verbs: [approve]\n";
    admin.ok_with(people, &["create", "-f", "-"]);
    admin.ok(&["create", "clusterrolebinding", "people", "--clusterrole=people", "--user=alice"]);
    alice.ok(&["certificate", "approve", "asked"]);
}

#[test]
fn anchors_are_published_and_found() {
    let admin = Kubectl::new();
    admin.ok_with(&bundle("plain", ""), &["apply", "-f", "-"]);
    admin.ok_with(&bundle("example.com:people:v1", "example.com/people"), &["apply", "-f", "-"]);
    admin.ok(&["label", "clustertrustbundle", "example.com:people:v1", "use=live"]);
    let found = |args: &[&str]| {
        let args = [&["get", "clustertrustbundles", "-o", "name"], args].concat();
        admin.ok(&args).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let linked = "clustertrustbundle.certificates.k8s.io/example.com:people:v1";
    assert_eq!(found(&["--field-selector", "spec.signerName=example.com/people"]), [linked]);
    assert_eq!(found(&["-l", "use=live"]), [linked]);
    let refused = admin.fails_with(&bundle("wrong:name:x", "example.com/people"), &["create", "-f", "-"]);
    assert!(refused.contains("example.com:people:"), "{refused}");
    let generation = ["get", "clustertrustbundle", "plain", "-o", "jsonpath={.metadata.generation}"];
    assert_eq!(admin.ok(&generation), "1");
    admin.ok(&["delete", "clustertrustbundle", "plain"]);
}

#[test]
fn the_kinds_explain_themselves() {
    let admin = Kubectl::new();
    for (field, word) in [
        ("csr.spec.signerName", "FIELD"),
        ("clustertrustbundle.spec", "trustBundle"),
        ("podcertificaterequest.spec", "stubPKCS10Request"),
    ] {
        let reported = admin.ok(&["explain", field]);
        assert!(reported.contains(word), "{field}: {reported}");
    }
    let older = ["explain", "podcertificaterequest.spec", "--api-version=certificates.k8s.io/v1beta1"];
    assert!(admin.ok(&older).contains("proofOfPossession"));
}

#[test]
fn a_disabled_feature_is_not_served() {
    let gates = "--feature-gates=ClusterTrustBundle=false,PodCertificateRequest=false";
    let kubectl = Kubectl::with_server(TestDataDir::new().start_with([gates]));
    let resources = kubectl.ok(&["api-resources", "--api-group=certificates.k8s.io", "-o", "name"]);
    assert_eq!(resources.trim(), "certificatesigningrequests.certificates.k8s.io");

    let place = TestDataDir::new();
    let gates = "ClusterTrustBundle=false,ClusterTrustBundleProjection=true";
    let output = place.up_command("127.0.0.1:0").args(["--feature-gates", gates]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && reported.contains("depends on features that are disabled"),
        "{reported}"
    );
}
