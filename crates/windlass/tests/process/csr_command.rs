//! `windlass csr`: shows certificate signing requests and decides on them.

use std::process::Stdio;
use std::{fs, thread};

use serde_json::Value;

use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, wait};

/// Creates requests that are pending approval.
fn requests(admin: &Kubectl, signer: &str, names: &[&str]) {
    let folder = "../server/tests/api/conformance/fixtures/csr-p256.pem";
    let text = fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let documents = names.iter().map(|name| {
        format!(
            "---\napiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata:\n  name: {name}\nspec:\n  \
             request: {text}\n  signerName: {signer}\n  expirationSeconds: 3600\n  usages: [client auth]\n"
        )
    });
    admin.ok_with(&documents.collect::<String>(), &["create", "-f", "-"]);
}

#[test]
fn requests_are_listed_shown_and_decided() {
    let admin = Kubectl::new();
    assert_eq!(windlass_ok(&admin, &["csr", "list"]), "");
    requests(&admin, "example.com/people", &["good", "bad"]);
    requests(&admin, "example.com/others", &["other"]);
    let names = |args: &[&str]| {
        let args = [&["csr", "list", "-o", "name"], args].concat();
        let text = windlass_ok(&admin, &args);
        text.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["bad", "good", "other"]);
    assert_eq!(names(&["--signer", "example.com/people"]), ["bad", "good"]);

    let reported = windlass_ok(&admin, &["csr", "approve", "good", "--reason", "Checked"]);
    let object = "certificatesigningrequest.certificates.k8s.io/good";
    assert!(reported.starts_with(&format!("{object} approved: O=dev, CN=fixture-p256 ")), "{reported}");
    assert!(reported.contains("from example.com/people for client auth, 60m requested"), "{reported}");
    assert!(windlass_ok(&admin, &["csr", "approve", "good"]).contains("already approved"));
    assert!(
        windlass_fails(&admin, &["csr", "deny", "good"])
            .contains("good is already approved and cannot be denied")
    );
    // A request that cannot be decided does not affect the others.
    let output = windlass(&admin, &["csr", "deny", "good", "none", "bad"]).output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(reported.contains("request \"none\" not found") && reported.contains("2 of 3"), "{reported}");
    assert!(!output.status.success());
    assert!(admin.ok(&["get", "csr", "bad"]).contains("Denied"));
    assert_eq!(names(&["--pending"]), ["other"]);

    // Decisions of kubectl look the same.
    admin.ok(&["certificate", "deny", "other"]);
    let table = windlass_ok(&admin, &["csr", "list"]);
    let ours = table.lines().map(|line| line.split_whitespace().last().unwrap());
    assert_eq!(ours.collect::<Vec<_>>(), ["CONDITION", "Denied", "Approved", "Denied"]);
    let wide = windlass_ok(&admin, &["csr", "list", "-o", "wide"]);
    assert!(wide.contains("CERTIFICATE\n") && wide.contains("ECDSA P-256"), "{wide}");

    let shown = windlass_ok(&admin, &["csr", "show", "good"]);
    for words in ["Requested by:        kubernetes-admin", "ECDSA P-256", "Approved True", "Checked"] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let json: Value =
        serde_json::from_str(&windlass_ok(&admin, &["csr", "show", "good", "-o", "json"])).unwrap();
    let yaml: Value =
        serde_saphyr::from_str(&windlass_ok(&admin, &["csr", "show", "good", "-o", "yaml"])).unwrap();
    assert_eq!(json, yaml);
    assert_eq!((&json["state"], &json["expirationSeconds"]), (&"Approved".into(), &3600.into()));
    let all: Value = serde_json::from_str(&windlass_ok(&admin, &["csr", "list", "-o", "json"])).unwrap();
    assert_eq!(all["items"][1], json);
}

#[test]
fn two_concurrent_approvals_both_succeed() {
    let admin = Kubectl::new();
    let names = (0..30).map(|number| format!("r{number:02}")).collect::<Vec<_>>();
    let names = names.iter().map(String::as_str).collect::<Vec<_>>();
    requests(&admin, "example.com/people", &names);
    let args = [&["csr", "approve"], names.as_slice()].concat();
    let start = || {
        let mut command = windlass(&admin, &args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let reported = [start(), start()].map(|child| {
        thread::spawn(move || {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        })
    });
    let reported = reported.map(|thread| thread.join().unwrap()).concat();
    let (all, already) = (" approved: ", " already approved: ");
    assert_eq!(reported.matches(all).count(), 2 * names.len(), "{reported}");
    assert_eq!(reported.matches(already).count(), names.len(), "{reported}");
}

#[test]
fn errors_take_one_line() {
    let admin = Kubectl::new();
    let place = admin.server.place().path();
    let text = fs::read_to_string(&admin.kubeconfig).unwrap();
    let dead = text.replace(&admin.server.address.to_string(), "127.0.0.1:1");
    fs::write(place.join("dead"), dead).unwrap();
    fs::write(place.join("rubbish"), "no kubeconfig\n").unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("client-")).collect();
    fs::write(place.join("nobody"), lines.join("\n").replace("  user:\n", "  user: {token: x}\n")).unwrap();
    for (file, words) in [
        ("missing", "cannot use missing: No such file"),
        ("rubbish", "cannot use rubbish: "),
        ("dead", "https://127.0.0.1:1: connection refused\n"),
        ("nobody", "the server rejected the credentials"),
    ] {
        let issue = ["issue", "--signer", "example.com/a", "--cn", "a", "--out", "a"];
        for command in [&["csr", "list"][..], &["csr", "show", "a"], &["csr", "approve", "a"], &issue] {
            let mut child = windlass(&admin, &[command, &["--kubeconfig", file]].concat());
            let mut child = child.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let status = wait(&mut child, PATIENCE).expect("it gives up");
            let reported = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
            assert_eq!(status.code(), Some(1), "{reported}");
            assert!(
                reported.lines().count() == 1 && reported.contains(words),
                "{file} {command:?}: {reported}"
            );
        }
        assert!(!place.join("a").exists(), "{file}");
    }
}
