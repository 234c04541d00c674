//! Certificates from the question to their use, by `kubectl` and `openssl` alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use time::OffsetDateTime;
use windlass_pki::{CertificateAuthority, Validity};

use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, TestDataDir};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

const JOINS: &str = "Auto approving kubelet client certificate after SubjectAccessReview.";
const RENEWS: &str = "Auto approving self kubelet client certificate after SubjectAccessReview.";

/// A key and a request for a certificate, as `openssl` makes them.
struct OpensslRequest {
    folder: PathBuf,
    name: String,
}

impl OpensslRequest {
    /// Asks `openssl` for a request in `folder`.
    fn new(folder: &Path, name: &str, subject: &str, alt_names: Option<&str>) -> OpensslRequest {
        let asked = OpensslRequest { folder: folder.to_owned(), name: name.to_owned() };
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt"]);
        command.args(["ec_paramgen_curve:P-256", "-subj", subject, "-keyout"]);
        command.arg(asked.file("key")).arg("-out").arg(asked.file("csr"));
        if let Some(names) = alt_names {
            command.arg("-addext").arg(format!("subjectAltName={names}"));
        }
        run(&mut command);
        asked
    }

    fn file(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}.{end}", self.name))
    }

    fn manifest(&self, signer: &str, usages: &str) -> String {
        let request = STANDARD.encode(fs::read(self.file("csr")).unwrap());
        let name = &self.name;
        format!(
            "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata:\n  name: {name}\nspec:\n  \
             request: {request}\n  signerName: {signer}\n  usages: [{usages}]\n"
        )
    }

    /// Creates the CertificateSigningRequest with kubectl; it must be accepted.
    fn send(&self, kubectl: &Kubectl, signer: &str, usages: &str) {
        kubectl.ok_with(&self.manifest(signer, usages), &["create", "-f", "-"]);
    }

    /// Waits until the request is as wanted.
    fn wait_for_request(
        &self,
        admin: &Kubectl,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let started = Instant::now();
        loop {
            let request = admin.json(&["get", "csr", &self.name]);
            if wanted(&request) {
                return request;
            }
            assert!(started.elapsed() < PATIENCE, "{} is not {what}: {request}", self.name);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the certificate and keeps it.
    fn issued(&self, admin: &Kubectl) -> Value {
        let has = |request: &Value| request["status"]["certificate"].is_string();
        let request = self.wait_for_request(admin, "issued", has);
        let text = request["status"]["certificate"].as_str().unwrap();
        fs::write(self.file("crt"), STANDARD.decode(text).unwrap()).unwrap();
        request
    }

    /// A kubectl that uses the certificate.
    fn login(&self, admin: &Kubectl) -> Kubectl {
        let kubeconfig = self.file("kubeconfig");
        fs::copy(&admin.kubeconfig, &kubeconfig).unwrap();
        let somebody = admin.with_kubeconfig(kubeconfig);
        let (certificate, key) = (self.file("crt"), self.file("key"));
        somebody.ok(&[
            "config",
            "set-credentials",
            "somebody",
            "--embed-certs",
            &format!("--client-certificate={}", certificate.display()),
            &format!("--client-key={}", key.display()),
        ]);
        somebody.ok(&["config", "set-context", "--current", "--user=somebody"]);
        somebody
    }

    /// That the certificate holds with this CA: for `openssl` and for rustls-webpki.
    fn verify(&self, ca: &Path, purpose: &str) {
        let mut command = Command::new("openssl");
        command.args(["verify", "-x509_strict", "-purpose", purpose, "-CAfile"]);
        run(command.arg(ca).arg(self.file("crt")));

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let (roots, now) = (Arc::new(roots), UnixTime::now());
        let leaf = CertificateDer::from_pem_file(self.file("crt")).unwrap();
        if purpose == "sslclient" {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            verifier.build().unwrap().verify_client_cert(&leaf, &[], now).unwrap();
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
            let name = ServerName::try_from("n1.example").unwrap();
            verifier.build().unwrap().verify_server_cert(&leaf, &[], &name, &[], now).unwrap();
        }
    }
}

/// A new authority that is valid for so many seconds from now.
pub fn authority(name: &str, from: i64, until: i64) -> CertificateAuthority {
    let (now, seconds) = (OffsetDateTime::now_utc(), time::Duration::seconds);
    let validity = Validity::new(now + seconds(from), now + seconds(until)).unwrap();
    windlass_testkit::ca_with_validity(name, validity)
}

/// A manifest of a request for a client certificate.
pub fn client_request(folder: &Path, name: &str, signer: &str) -> String {
    let asked = OpensslRequest::new(folder, name, &format!("/CN={name}"), None);
    asked.manifest(signer, "client auth")
}

/// A manifest of a request of a node for a serving certificate.
pub fn serving_request(folder: &Path, name: &str, node: &str) -> String {
    let subject = format!("/O=system:nodes/CN=system:node:{node}");
    let asked = OpensslRequest::new(folder, name, &subject, Some("DNS:n1.example"));
    asked.manifest(KUBELET_SERVING, "digital signature, server auth")
}

fn run(command: &mut Command) {
    let output = command.output().expect("openssl must be installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The condition of a type.
fn condition<'a>(request: &'a Value, kind: &str) -> Option<&'a Value> {
    request["status"]["conditions"].as_array()?.iter().find(|each| each["type"] == kind)
}

fn pki_file(kubectl: &Kubectl, name: &str) -> PathBuf {
    kubectl.server.place().data().join("pki").join(name)
}

fn folder(kubectl: &Kubectl) -> &Path {
    kubectl.server.place().path()
}

#[test]
fn a_person_gets_a_certificate_and_uses_it() {
    let admin = Kubectl::new();
    let asked = OpensslRequest::new(folder(&admin), "alice", "/O=dev/CN=alice", None);
    asked.send(&admin, CLIENT, "client auth");
    admin.ok(&["certificate", "approve", "alice"]);
    let request = asked.issued(&admin);
    assert!(condition(&request, "windlass.dev/SigningDelayed").is_none(), "{request}");
    assert!(admin.ok(&["get", "csr", "alice"]).contains("Approved,Issued"));
    asked.verify(&pki_file(&admin, "client-ca.crt"), "sslclient");

    let alice = asked.login(&admin);
    if alice.minor() >= 28 {
        let told = alice.json(&["auth", "whoami"]);
        assert_eq!(told["status"]["userInfo"]["username"], "alice", "{told}");
        let groups = &told["status"]["userInfo"]["groups"];
        assert_eq!(groups, &serde_json::json!(["dev", "system:authenticated"]));
    }
    let refused = alice.fails(&["get", "configmaps"]);
    assert!(refused.contains("User \"alice\" cannot list resource \"configmaps\""), "{refused}");
    admin.ok(&["create", "rolebinding", "dev", "--clusterrole=view", "--group=dev"]);
    alice.ok(&["get", "configmaps"]);
}

#[test]
fn forbidden_requests_are_not_signed() {
    let admin = Kubectl::new();
    let masters = OpensslRequest::new(folder(&admin), "masters", "/O=system:masters/CN=eve", None);
    let refused =
        admin.fails_with(&masters.manifest(CLIENT, "client auth"), &["create", "-f", "-"]);
    assert!(refused.contains("Forbidden") && refused.contains("system:masters"), "{refused}");

    let server = OpensslRequest::new(folder(&admin), "server", "/CN=eve", None);
    server.send(&admin, CLIENT, "client auth, server auth");
    admin.ok(&["certificate", "approve", "server"]);
    let failed = server
        .wait_for_request(&admin, "refused", |request| condition(request, "Failed").is_some());
    let condition = condition(&failed, "Failed").unwrap();
    assert_eq!(condition["reason"], "SignerValidationFailure");
    assert_eq!(condition["message"], "invalid usage for client certificate: server auth");
    assert!(failed["status"]["certificate"].is_null());
    assert!(admin.ok(&["get", "csr", "server"]).contains("Approved,Failed"));

    // What is denied stays denied, and what nobody decides waits: the next one is signed before them.
    let denied = OpensslRequest::new(folder(&admin), "denied", "/CN=bob", None);
    let waits = OpensslRequest::new(folder(&admin), "waits", "/CN=bob", None);
    let next = OpensslRequest::new(folder(&admin), "next", "/CN=bob", None);
    for each in [&denied, &waits, &next] {
        each.send(&admin, CLIENT, "client auth");
    }
    admin.ok(&["certificate", "deny", "denied"]);
    admin.ok(&["certificate", "approve", "next"]);
    next.issued(&admin);
    for (each, state) in [(&denied, "Denied"), (&waits, "Pending")] {
        let row = admin.ok(&["get", "csr", &each.name, "--no-headers"]);
        assert!(row.trim_end().ends_with(state), "{row}");
    }
}

/// Binds what kubeadm binds, and makes a token for nodes that join.
fn allow_node_bootstrap(admin: &Kubectl) -> Kubectl {
    let tokens = "system:bootstrappers:kubeadm:default-node-token";
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("kubelet-bootstrap", "system:node-bootstrapper".to_owned(), tokens),
        ("autoapprove", format!("{requests}:nodeclient"), tokens),
        ("rotation", format!("{requests}:selfnodeclient"), "system:nodes"),
    ] {
        let (role, group) = (format!("--clusterrole={role}"), format!("--group={group}"));
        admin.ok(&["create", "clusterrolebinding", name, &role, &group]);
    }
    admin.ok(&[
        "--namespace=kube-system",
        "create",
        "secret",
        "generic",
        "bootstrap-token-abcdef",
        "--type=bootstrap.kubernetes.io/token",
        "--from-literal=token-id=abcdef",
        "--from-literal=token-secret=0123456789abcdef",
        "--from-literal=usage-bootstrap-authentication=true",
        &format!("--from-literal=auth-extra-groups={tokens}"),
    ]);
    admin.with_token("abcdef.0123456789abcdef")
}

#[test]
fn a_node_joins_renews_and_serves() {
    let place = TestDataDir::new();
    let mut command = place.up_command("127.0.0.1:0");
    command.arg("--approve-kubelet-serving");
    let server = place.launch(command).unwrap_or_else(|place| panic!("{}", place.log()));
    let admin = Kubectl::with_server(server);
    let joining = allow_node_bootstrap(&admin);
    let (folder, subject) = (folder(&admin), "/O=system:nodes/CN=system:node:n1");

    let first = OpensslRequest::new(folder, "joins", subject, None);
    first.send(&joining, KUBELET_CLIENT, "digital signature, client auth");
    let request = first.issued(&admin);
    assert_eq!(condition(&request, "Approved").unwrap()["message"], JOINS);
    first.verify(&pki_file(&admin, "client-ca.crt"), "sslclient");
    let node = first.login(&admin);

    let second = OpensslRequest::new(folder, "renews", subject, None);
    second.send(&node, KUBELET_CLIENT, "digital signature, client auth");
    let request = second.issued(&admin);
    assert_eq!(condition(&request, "Approved").unwrap()["message"], RENEWS);
    let node = second.login(&admin);
    // For another node it is not the node's to ask, and who is in no group that may join waits.
    let other = OpensslRequest::new(folder, "other", "/O=system:nodes/CN=system:node:n2", None);
    let manifest = other.manifest(KUBELET_CLIENT, "digital signature, client auth");
    let refused = node.fails_with(&manifest, &["create", "-f", "-"]);
    assert!(refused.contains("can only create a node CSR with CN=system:node:n1"), "{refused}");
    let bob = ["create", "clusterrolebinding", "bob", "--clusterrole=system:node-bootstrapper"];
    admin.ok(&[&bob[..], &["--user=bob"]].concat());
    admin.ok_with(&manifest, &["create", "-f", "-", "--as=bob"]);

    node.ok_with("apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n", &["create", "-f", "-"]);
    let addresses = r#"{"status":{"addresses":[{"type":"Hostname","address":"n1.example"},
                        {"type":"InternalIP","address":"192.0.2.1"}]}}"#;
    admin.ok(&["patch", "node", "n1", "--subresource=status", "--type=merge", "-p", addresses]);
    let names = Some("DNS:n1.example,IP:192.0.2.1");
    let serves = OpensslRequest::new(folder, "serves", subject, names);
    serves.send(&node, KUBELET_SERVING, "digital signature, server auth");
    let request = serves.issued(&admin);
    let approved = condition(&request, "Approved").unwrap();
    assert_eq!(approved["reason"], "AutoApproved");
    serves.verify(&pki_file(&admin, "kubelet-serving-ca.crt"), "sslserver");

    let names = Some("DNS:n1.example,DNS:elsewhere.example,IP:192.0.2.1");
    let foreign = OpensslRequest::new(folder, "foreign", subject, names);
    foreign.send(&node, KUBELET_SERVING, "digital signature, server auth");
    mismatch_is_told(&admin, &foreign);
    // A person may still decide otherwise.
    admin.ok(&["certificate", "approve", "foreign"]);
    foreign.issued(&admin);
    assert!(admin.ok(&["get", "csr", "other"]).contains("Pending"));
}

/// A node that adds names of the API server to its own addresses gets no certificate for them by
/// itself, and whoever approves one by hand still makes none that clients take for the API server's.
#[test]
fn a_node_cannot_impersonate_the_api_server() {
    let place = TestDataDir::new();
    let mut command = place.up_command("127.0.0.1:0");
    command.args(["--approve-kubelet-serving", "--tls-san=api.example,192.0.2.9"]);
    let server = place.launch(command).unwrap_or_else(|place| panic!("{}", place.log()));
    let data = server.place().data();
    let admin = Kubectl::with_server(server);
    let (folder, subject) = (folder(&admin), "/O=system:nodes/CN=system:node:n1");
    let joining = allow_node_bootstrap(&admin);
    let first = OpensslRequest::new(folder, "joins", subject, None);
    first.send(&joining, KUBELET_CLIENT, "digital signature, client auth");
    first.issued(&admin);
    let node = first.login(&admin);
    node.ok_with("apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n", &["create", "-f", "-"]);

    let names = ["localhost", "kubernetes.default.svc", "*", "API.example"];
    let numbers = ["127.0.0.1", "192.0.2.9", "10.96.0.1"];
    let address = |kind: &str, name: &str| serde_json::json!({"type": kind, "address": name});
    let mut addresses = vec![address("Hostname", "n1.example"), address("InternalIP", "192.0.2.1")];
    addresses.extend(names.map(|name| address("InternalDNS", name)));
    addresses.extend(numbers.map(|number| address("ExternalIP", number)));
    let mut claimed = node.json(&["get", "node", "n1"]);
    claimed["status"]["addresses"] = addresses.into();
    let path = "/api/v1/nodes/n1/status";
    node.ok_with(&claimed.to_string(), &["replace", "--raw", path, "-f", "-"]);

    let asked = names.map(|name| format!("DNS:{name}")).into_iter();
    let asked = asked.chain(numbers.map(|number| format!("IP:{number}"))).enumerate();
    for (index, name) in asked {
        let names = format!("DNS:n1.example,{name}");
        let reserved =
            OpensslRequest::new(folder, &format!("reserved-{index}"), subject, Some(&names));
        reserved.send(&node, KUBELET_SERVING, "digital signature, server auth");
        let delayed = "windlass.dev/ApprovalDelayed";
        let request =
            reserved.wait_for_request(&admin, "put off", |r| condition(r, delayed).is_some());
        assert_eq!(condition(&request, delayed).unwrap()["reason"], "ReservedName", "{name}");
        assert!(condition(&request, "Approved").is_none(), "{request}");
    }
    // What a person approves is signed, by a CA that clients do not verify the server with.
    admin.ok(&["certificate", "approve", "reserved-0"]);
    let reserved = OpensslRequest { folder: folder.to_owned(), name: "reserved-0".into() };
    reserved.issued(&admin);
    reserved.verify(&data.join("pki/kubelet-serving-ca.crt"), "sslserver");
    let refused = Command::new("openssl")
        .args(["verify", "-CAfile"])
        .args([data.join("pki/ca.crt"), reserved.file("crt")])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let ca = fs::read_to_string(data.join("pki/ca.crt")).unwrap();
    let text =
        admin.ok(&["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"]);
    assert_eq!(text, ca, "the CA of the API server alone");
    let bundle =
        admin.json(&["get", "clustertrustbundle", "kubernetes.io:kubelet-serving:anchors"]);
    let published = bundle["spec"]["trustBundle"].as_str().unwrap();
    let kubelets = fs::read_to_string(data.join("pki/kubelet-serving-ca.crt")).unwrap();
    assert_eq!(published.trim(), kubelets.trim());
}

/// That a request with a name that is not the node's waits and says for what, where people look.
fn mismatch_is_told(admin: &Kubectl, asked: &OpensslRequest) {
    let delayed = "windlass.dev/ApprovalDelayed";
    let request =
        asked.wait_for_request(admin, "put off", |request| condition(request, delayed).is_some());
    let told = condition(&request, delayed).unwrap();
    assert_eq!(told["reason"], "AddressMismatch");
    assert!(told["message"].as_str().unwrap().contains("\"elsewhere.example\""), "{told}");
    assert!(condition(&request, "Denied").is_none() && condition(&request, "Approved").is_none());
    assert!(admin.ok(&["get", "csr", &asked.name]).contains("Pending"));
    let started = Instant::now();
    loop {
        let described = admin.ok(&["describe", "csr", &asked.name]);
        if described.contains("AddressMismatch") && described.contains("elsewhere.example") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "no event in\n{described}");
    }
}
