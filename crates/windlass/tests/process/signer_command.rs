//! `windlass signer`: inspects signers, with a server that has custom ones.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use time::{Duration, OffsetDateTime};
use windlass_pki::Validity;
use windlass_testkit::retry;

use crate::access::add_user;
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

const SIGNERS: &str = "apiVersion: windlass.dev/v1
kind: Signers
signers:
- name: example.com/server-tls
  ca: {files: {certificate: tls/ca.crt, key: tls/ca.key}}
  requests:
    dnsNames: ['*.example.com']
    usages: [digital signature, server auth]
    maxDuration: 24h
  publish: {}
- name: example.com/made
  ca: {selfSigned: {directory: made}}
  requests: {commonNames: ['*'], usages: [client auth], maxDuration: 24h}
  publish: {}
";

const TLS: &str = "example.com/server-tls";

/// Returns a data directory with custom signers and the CA of the first.
fn place() -> TestDataDir {
    let place = TestDataDir::new();
    fs::create_dir_all(place.data().join("tls")).unwrap();
    fs::set_permissions(place.data(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(place.data().join("signers.yaml"), SIGNERS).unwrap();
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - Duration::HOUR, now + Duration::days(90)).unwrap();
    let ca = windlass_testkit::ca_with_validity("tls", validity);
    put(&place.data().join("tls/ca.crt"), &ca.certificate().to_pem());
    put(&place.data().join("tls/ca.key"), &ca.key().to_pem().unwrap());
    place
}

fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the exit code and the findings.
fn check(admin: &Kubectl, args: &[&str]) -> (Option<i32>, Value) {
    let args = [&["signer", "check", "--data-dir", "data", "-o", "json"], args].concat();
    let Output { status, stdout, .. } = windlass(admin, &args).output().unwrap();
    (status.code(), json(&String::from_utf8(stdout).unwrap()))
}

/// Polls until there are no findings: anchors are published shortly after the start.
fn wait_until_healthy(admin: &Kubectl) {
    let code = retry(|| {
        let (code, found) = check(admin, &[]);
        if found["findings"].as_array().unwrap().is_empty() { Ok(code) } else { Err(format!("{found:#}")) }
    });
    assert_eq!(code, Some(0));
}

#[test]
fn signers_are_listed_and_shown() {
    let admin = Kubectl::with_server(place().start());
    wait_until_healthy(&admin);
    windlass_ok(&admin, &["issue", "--signer", TLS, "--dns", "a.example.com", "--approve", "--out", "a"]);
    windlass_ok(
        &admin,
        &[
            "issue",
            "--signer",
            "example.com/made",
            "--cn",
            "b",
            "--usage",
            "client auth",
            "--approve",
            "--out",
            "b",
        ],
    );
    admin.ok_with(&unknown_signer_request(), &["create", "-f", "-"]);

    let list = json(&windlass_ok(&admin, &["signer", "list", "--data-dir", "data", "-o", "json"]));
    assert_eq!(list["skipped"], Value::Array(Vec::new()));
    let of = |name: &str| {
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["name"] == name).unwrap().clone()
    };
    let tls = of(TLS);
    assert_eq!((&tls["kind"], &tls["requests"]["issued"]), (&"custom".into(), &1.into()));
    assert_eq!(tls["bundles"][0], "example.com:server-tls:anchors");
    assert_eq!(tls["ca"]["certificate"]["subject"], "CN=tls");
    let serving = of("kubernetes.io/kube-apiserver-serving");
    assert_eq!(serving["ca"]["certificates"][0]["subject"], "CN=windlass-ca");
    let client = of("kubernetes.io/kube-apiserver-client");
    assert_eq!(client["ca"]["certificate"]["subject"], "CN=windlass-client-ca");
    let unknown = of("example.com/nobody");
    assert_eq!(unknown["kind"], "unknown");
    assert_eq!(unknown["requests"]["awaitingApproval"], 1);
    let wide = windlass_ok(&admin, &["signer", "list", "--data-dir", "data", "-o", "wide"]);
    assert_eq!(wide.lines().count(), 1 + list["items"].as_array().unwrap().len(), "{wide}");

    for (name, words) in [
        (TLS, ["DNS names: *.example.com", "ClusterTrustBundle example.com:server-tls:anchors"]),
        ("kubernetes.io/kubelet-serving", ["one organization: system:nodes", "server auth"]),
    ] {
        let shown = windlass_ok(&admin, &["signer", "show", name, "--data-dir", "data"]);
        assert!(words.iter().all(|words| shown.contains(words)), "{shown}");
        let show =
            |format| windlass_ok(&admin, &["signer", "show", name, "--data-dir", "data", "-o", format]);
        let yaml: Value = serde_saphyr::from_str(&show("yaml")).unwrap();
        assert_eq!(json(&show("json")), yaml);
        assert!(show("wide").contains("SHA-256 "));
    }
    let reported = windlass_fails(&admin, &["signer", "show", "example.com/x", "--data-dir", "data"]);
    assert!(reported.contains("signer \"example.com/x\" not found") && reported.contains(TLS), "{reported}");

    // Without permission to list, the result is not healthy.
    let somebody = admin.with_kubeconfig(add_user(&admin, "bob", &[]));
    let (code, found) = check(&somebody, &[]);
    assert_eq!((code, &found["errors"]), (Some(1), &4.into()), "{found:#}");
    let list = windlass_ok(&somebody, &["signer", "list", "--data-dir", "data"]);
    let line = list.lines().find(|line| line.starts_with(TLS)).unwrap();
    let words = line.split_whitespace().skip(3).collect::<Vec<_>>();
    assert_eq!(words, ["-"; 5], "{list}");

    // An unknown signer is not an error while its requests are not approved.
    let (code, found) = check(&admin, &[]);
    assert_eq!((code, &found["warnings"]), (Some(0), &1.into()), "{found:#}");
    let reported = found["findings"][0]["message"].as_str().unwrap();
    assert!(reported.ends_with("unknown signer"), "{reported}");
}

#[test]
fn signer_objects_are_listed_shown_and_checked() {
    const OBJECT: &str = "\
        apiVersion: windlass.dev/v1alpha1\nkind: Signer\nmetadata: {name: objects}\nspec:\n  \
        signerName: example.com/objects\n  ca: {selfSigned: {}}\n  publish: {}\n  \
        requests: {commonNames: ['*'], usages: [client auth], maxDuration: 24h}\n";
    let admin = Kubectl::with_server(TestDataDir::new().start());
    admin.ok_with(OBJECT, &["create", "-f", "-"]);
    wait_until_healthy(&admin);
    let list = windlass_ok(&admin, &["signer", "list", "--data-dir", "data"]);
    let line = list.lines().find(|line| line.starts_with("example.com/objects ")).unwrap();
    let words = line.split_whitespace().collect::<Vec<_>>();
    assert_eq!((words[1], words[7]), ("custom", "example.com:objects:anchors"), "{list}");
    let shown = windlass_ok(&admin, &["signer", "show", "example.com/objects", "-o", "wide"]);
    for part in ["common names: *", "Active: CN=example.com/objects, id "] {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    // The server accepts the pattern, and the controllers reject it.
    admin.ok_with(&OBJECT.replace("['*']", "['a*b']"), &["apply", "-f", "-"]);
    let message = retry(|| {
        let (code, found) = check(&admin, &[]);
        let message = found["findings"][0]["message"].as_str().unwrap_or_default().to_owned();
        if code == Some(1) { Ok(message) } else { Err(format!("{found:#}")) }
    });
    assert!(message.starts_with("Signer objects: InvalidSpec: spec.requests.commonNames[0]: "), "{message}");
}

/// Returns a request for a signer that does not exist.
fn unknown_signer_request() -> String {
    let fixture = "../server/tests/api/conformance/fixtures/csr-p256.pem";
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture)).unwrap();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: stranger}}\n\
         spec: {{request: {text}, signerName: example.com/nobody, usages: [client auth]}}\n"
    )
}

#[test]
fn check_reports_problems() {
    let place = place();
    let admin = Kubectl::with_server(place.start_with(["--feature-gates", "PodCertificateRequest=false"]));
    let data = admin.server.place().data();
    let output = windlass(&admin, &["signer", "list", "--data-dir", "data"]).output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success());
    assert!(reported.contains("the server does not serve PodCertificateRequests; skipped"), "{reported}");

    let files_only = |words: &str| {
        let (code, found) = check(&admin, &["--files-only"]);
        let [finding] = found["findings"].as_array().unwrap().as_slice() else { panic!("{found:#}") };
        let message = finding["message"].as_str().unwrap();
        assert!(message.contains(words), "{found:#}");
        assert_eq!(code == Some(1), finding["severity"] == "error", "{found:#}");
        code
    };
    fs::set_permissions(data.join("tls/ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(files_only("tls/ca.key is accessible to other users (mode 0644)"), Some(0));
    fs::set_permissions(data.join("tls/ca.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(data.join("made/ca.crt")).unwrap();
    assert_eq!(files_only("made/ca.crt is missing, but"), Some(1));
    fs::remove_file(data.join("made/ca.key")).unwrap();
    assert_eq!(files_only("made will be created at start"), Some(0));
    assert_eq!(fs::read_dir(data.join("made")).unwrap().count(), 0);

    let good = fs::read_to_string(data.join("tls/ca.crt")).unwrap();
    fs::write(data.join("tls/ca.crt"), &good[..good.len() / 2]).unwrap();
    let output = windlass(&admin, &["signer", "check", "--data-dir", "data"]).output().unwrap();
    let reported = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reported}");
    let line = reported.lines().find(|line| line.starts_with("error    example.com/server-tls: "));
    assert!(line.unwrap_or_default().contains("data/tls/ca.crt"), "{reported}");

    // The server signs with and publishes another CA than the one in the file.
    fs::write(data.join("tls/ca.crt"), fs::read(data.join("pki/ca.crt")).unwrap()).unwrap();
    fs::write(data.join("tls/ca.key"), fs::read(data.join("pki/client-ca.key")).unwrap()).unwrap();
    let (_, found) = check(&admin, &[]);
    let reported = found["findings"][0]["message"].as_str().unwrap();
    assert!(reported.ends_with("the private key does not belong to the certificate"), "{reported}");

    put(&data.join("signers.yaml"), &SIGNERS.replace("maxDuration: 24h", "maxDuration: 24"));
    let (code, found) = check(&admin, &["--files-only"]);
    let reported = found["findings"][0]["message"].as_str().unwrap();
    assert!(reported.contains("signers.yaml:9:18: signers[0].requests.maxDuration: "), "{reported}");
    assert_eq!(code, Some(1));
    let reported = windlass_fails(&admin, &["signer", "list", "--data-dir", "data"]);
    assert!(
        reported.contains("signers.yaml:9:18: ") && reported.contains("signers.yaml:13:70: "),
        "{reported}"
    );
    // Built-in signers need no file.
    windlass_ok(&admin, &["signer", "show", "kubernetes.io/legacy-unknown", "--data-dir", "data"]);
}

#[test]
fn files_are_checked_without_a_server() {
    let admin = Kubectl::with_server(place().start());
    wait_until_healthy(&admin);
    let text = fs::read_to_string(&admin.kubeconfig).unwrap();
    let dead = text.replace(&admin.server.address.to_string(), "127.0.0.1:1");
    fs::write(admin.server.place().path().join("dead"), dead).unwrap();
    fs::write(admin.server.place().data().join("tls/ca.key"), "").unwrap();
    let (code, found) = check(&admin, &["--kubeconfig", "dead"]);
    assert_eq!((code, &found["errors"]), (Some(1), &2.into()), "{found:#}");
    let messages = found["findings"].as_array().unwrap().iter();
    let messages = messages.map(|finding| finding["message"].as_str().unwrap()).collect::<Vec<_>>();
    assert!(messages[0].ends_with("tls/ca.key is empty"), "{messages:?}");
    assert!(messages[1] == "https://127.0.0.1:1: connection refused", "{messages:?}");
    let reported = windlass_fails(&admin, &["signer", "list", "--kubeconfig", "dead", "--data-dir", "data"]);
    assert!(
        reported.contains("https://127.0.0.1:1: connection refused") && reported.lines().count() == 1,
        "{reported}"
    );

    // No server is configured, and none is contacted.
    let mut command = windlass(&admin, &["signer", "list", "--data-dir", "data"]);
    let home = admin.server.place().path();
    let output = command.env_remove("KUBECONFIG").env("HOME", home).output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && reported.contains("no server checked: "), "{reported}");
    assert!(String::from_utf8(output.stdout).unwrap().contains(TLS));
}
