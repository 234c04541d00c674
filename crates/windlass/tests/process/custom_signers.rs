//! Custom signers, as in the documentation page.

use std::fs;
use std::process::{Command, Stdio};

use crate::kubectl::Kubectl;
use crate::server::TestDataDir;
use crate::signing::{authority, client_request};
use crate::trust_docs::code_blocks;

const PAGE: &str = include_str!("../../../../docs/signers.md");

/// Converts the commands of a console block to a script that stops at the first failure.
fn script(console: &str) -> String {
    let commands = console.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
    let script = commands.collect::<Vec<_>>().join("\n");
    // A script can be faster than the signer, unlike a user.
    let waits = "kubectl wait --for=condition=Approved csr/web\n";
    let issued = "until kubectl get csr web -o yaml | grep -q certificate:; do sleep 0.1; done\n";
    assert!(script.contains(waits), "{script}");
    let program = r#"kubectl() { command "${WINDLASS_KUBECTL:-kubectl}" "$@"; }"#;
    format!("set -euo pipefail\n{program}\n{}", script.replace(waits, &format!("{waits}{issued}")))
}

#[test]
fn the_page_is_right() {
    let place = TestDataDir::new();
    fs::create_dir(place.data()).unwrap();
    fs::write(place.data().join("signers.yaml"), code_blocks(PAGE, "yaml")[0]).unwrap();
    let server = place.start();
    let output = Command::new("bash")
        .arg("-c")
        .arg(script(code_blocks(PAGE, "console")[1]))
        .current_dir(server.place().path())
        .env("HOME", server.place().path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("web.crt: OK\n"), "{said}");
    assert!(server.place().data().join("ca/server-tls/ca.key").exists());
}

#[test]
fn objects_of_the_page_sign() {
    let place = TestDataDir::new();
    let server = place.start();
    fs::write(server.place().path().join("signer.yaml"), code_blocks(PAGE, "yaml")[1]).unwrap();
    let commands = code_blocks(PAGE, "console")[2].replace("$ ", "");
    let binary = env!("CARGO_BIN_EXE_windlass");
    let programs = format!(
        "kubectl() {{ command \"${{WINDLASS_KUBECTL:-kubectl}}\" \"$@\"; }}\nwindlass() {{ {binary} \"$@\"; }}"
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(format!("set -euo pipefail\n{programs}\n{commands}"))
        .current_dir(server.place().path())
        .env("HOME", server.place().path())
        .env("KUBECONFIG", server.place().data().join("admin.kubeconfig"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("example.com/client-tls   True") && said.ends_with("tls/tls.crt: OK\n"), "{said}");
}

#[test]
fn an_invalid_file_is_rejected_at_startup_with_its_position() {
    let place = TestDataDir::new();
    let file = place.path().join("signers.yaml");
    fs::write(&file, code_blocks(PAGE, "yaml")[0].replace("maxDuration: 2160h", "maxDuration: \"24\""))
        .unwrap();
    let said = format!(
        "{}:13:18: signers[0].requests.maxDuration: \"24\" is not a duration; use a number and a unit, such as 24h",
        file.display()
    );
    let mut up = place.restart_command();
    up.arg("--signers").arg(&file);
    let mut controllers = Command::new(env!("CARGO_BIN_EXE_windlass"));
    controllers.args(["controllers", "--kubeconfig", "nowhere", "--signers"]).arg(&file);
    for mut command in [up, controllers] {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        assert!(errors.contains(&said), "{errors}");
    }
}

/// The CA of one signer has expired, another is half written, and the CA of kubelets is garbage:
/// the server starts, a third signer works, and all three are reported.
#[test]
fn an_invalid_ca_does_not_keep_the_server_from_starting() {
    let place = TestDataDir::new();
    let data = place.data();
    fs::create_dir_all(data.join("tls")).unwrap();
    fs::create_dir_all(data.join("pki")).unwrap();
    let old = authority("old", -7200, -3600);
    let text = old.certificate().to_pem();
    for (name, text) in [("old", text.as_str()), ("half", &text[..text.len() / 2])] {
        fs::write(data.join(format!("tls/{name}.crt")), text).unwrap();
        let key = old.key().to_pem().unwrap();
        fs::write(data.join(format!("tls/{name}.key")), key.as_bytes()).unwrap();
    }
    fs::write(data.join("pki/kubelet-serving-ca.crt"), "garbage").unwrap();
    fs::write(data.join("pki/kubelet-serving-ca.key"), "garbage").unwrap();
    let requests = "requests: {commonNames: ['*'], usages: [client auth], maxDuration: 1h, \
                    approval: {automatic: {users: [kubernetes-admin]}}}";
    let file = |name: &str| {
        format!(
            "{{name: a.b/{name}, {requests}, ca: {{files: {{certificate: tls/{name}.crt, key: tls/{name}.key}}}}}}"
        )
    };
    let good = format!("{{name: a.b/good, {requests}, ca: {{selfSigned: {{directory: made}}}}}}");
    let all = [file("old"), file("half"), good].join(", ");
    let text = format!("{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{all}]}}");
    fs::write(data.join("signers.yaml"), text).unwrap();

    let admin = Kubectl::with_server(place.start());
    let folder = admin.server.place().path().to_owned();
    let request = |signer: &str| {
        let manifest = client_request(&folder, signer.split('/').nth(1).unwrap(), signer);
        admin.ok_with(&manifest, &["create", "-f", "-"]);
    };
    request("a.b/good");
    admin.ok(&["wait", "--for=jsonpath={.status.certificate}", "csr/good", "--timeout=30s"]);
    request("a.b/old");
    let wait = ["wait", "--for=condition=windlass.dev/SigningDelayed", "csr/old", "--timeout=30s"];
    admin.ok(&wait);
    let message = admin.ok(&["get", "csr", "old", "-o", "yaml"]);
    assert!(message.contains("SignerUnavailable") && message.contains("it expired at"), "{message}");
    let metrics = admin.ok(&["get", "--raw", "/metrics"]);
    for (signer, problem) in [
        ("a.b/old", 1),
        ("a.b/half", 1),
        ("a.b/good", 0),
        ("kubernetes.io/kubelet-serving", 1),
        ("kubernetes.io/kube-apiserver-client", 0),
    ] {
        let line = format!("windlass_signer_ca_degraded{{signer=\"{signer}\"}} {problem}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    let mut check = Command::new(env!("CARGO_BIN_EXE_windlass"));
    check.args(["signer", "check", "--files-only", "--data-dir"]).arg(&data);
    let said = check.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.status.code(), Some(1), "{text}");
    for signer in ["a.b/old", "a.b/half", "kubernetes.io/kubelet-serving"] {
        assert!(text.contains(&format!("error    {signer}: ")), "{signer}: {text}");
    }
    // The new CA is loaded.
    let new = authority("new", -60, 3600);
    fs::write(data.join("tls/old.key"), new.key().to_pem().unwrap().as_bytes()).unwrap();
    fs::write(data.join("tls/old.crt"), new.certificate().to_pem()).unwrap();
    admin.ok(&["wait", "--for=jsonpath={.status.certificate}", "csr/old", "--timeout=30s"]);
}
