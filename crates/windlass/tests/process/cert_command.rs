//! `windlass cert`: certificates of a ledger that the tests write themselves, so that its contents are known.

mod docs_page;
pub mod ledger_seed;

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_ledger::{KeyHash, LedgerChain, SerialNumber};
use windlass_node::trust::object::digest_text;
use windlass_node::volume::trust_anchors::TrustBundle;
use windlass_pki::{
    Certificate, CertificateAuthority, PrivateKey, Serial, Subject, SystemRandom, Validity, pem,
};

use crate::controllers::server;
use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

use ledger_seed::{LedgerSeed, node_record, pod_record, record};

/// CA keys of the seeded certificates.
const OLD: &str = "3f6c2e0d8a51b7940c1e5d2f6a7b8c9d0e1f2a3b";
const NEW: &str = "91d4b3f2a7c6e5d8091b2c3d4e5f60718293a4b5";

/// Starts a server without controllers, which would write to the ledger themselves.
fn ledger_server() -> Kubectl {
    Kubectl::with_server(server(TestDataDir::new(), [""; 0]))
}

fn serials(admin: &Kubectl, flags: &str) -> String {
    let args: Vec<&str> =
        ["cert", "list", "-o", "json"].into_iter().chain(flags.split_whitespace()).collect();
    let document: Value = serde_json::from_str(&windlass_ok(admin, &args)).unwrap();
    let items = document["items"].as_array().unwrap();
    items.iter().map(|item| item["serialNumber"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// Runs a command that exits with this code; returns standard output and error.
fn run(admin: &Kubectl, code: i32, args: &[&str]) -> (String, String) {
    let Output { status, stdout, stderr } = windlass(admin, args).output().unwrap();
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(status.code(), Some(code), "{args:?}: {out}\n{err}");
    (out, err)
}

#[test]
fn certificates_are_listed_and_shown() {
    let admin = ledger_server();
    let (out, err) = run(&admin, 0, &["cert", "list"]);
    assert_eq!((out.as_str(), err.as_str()), ("", "windlass: the ledger is empty\n"));
    let mut seed = LedgerSeed::new();
    seed.issue(node_record("0a01", OLD, "n1", 0));
    seed.issue(node_record("0a02", NEW, "n1", 1));
    seed.issue(pod_record("0b01", OLD, "shop", "web-0"));
    seed.record(record("0c01", OLD, "example.com/web", 90));
    seed.store(&admin);

    assert_eq!(serials(&admin, ""), "0b01 0c01 0a01 0a02");
    assert_eq!(serials(&admin, "--outstanding"), "0b01 0c01 0a02");
    assert_eq!(serials(&admin, &format!("--outstanding --authority {OLD}")), "0b01 0c01");
    assert_eq!(serials(&admin, "--node n1"), "0b01 0a01 0a02");
    assert_eq!(serials(&admin, "--pod shop/web-0"), "0b01");
    assert_eq!(serials(&admin, "--signer example.com/web --expiring-within 91d"), "0c01");
    let table = windlass_ok(&admin, &["cert", "list"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SERIAL", "SIGNER", "HOLDER", "STATE", "EXPIRES"]);
    assert_eq!(rows[1][..4], ["0b01", "example.com/workloads", "pod/shop/web-0", "Issued"]);
    assert_eq!(rows[2][..4], ["0c01", "example.com/web", "CN=web", "Recorded"]);
    assert_eq!(rows[3][..4], ["0a01", "kubernetes.io/kubelet-serving", "node/n1", "Superseded"]);
    assert!(windlass_ok(&admin, &["cert", "list", "-o", "wide"]).contains("RECORDED\n"));
    let name = windlass_ok(&admin, &["cert", "list", "--serial", "0a01", "-o", "name"]);
    assert_eq!(name, format!("certificate/{OLD}-0a01\n"));
    let (out, err) = run(&admin, 0, &["cert", "list", "--node", "n9"]);
    assert_eq!((out.as_str(), err.as_str()), ("", "windlass: no certificates found\n"));

    let shown = windlass_ok(&admin, &["cert", "show", name.trim()]);
    for words in [
        "Superseded by:       0a02",
        "State:               Deleted",
        "in no ClusterTrustBundle",
        "long-0000000001",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let json: Value =
        serde_json::from_str(&windlass_ok(&admin, &["cert", "show", "0b01", "-o", "json"])).unwrap();
    let yaml: Value =
        serde_saphyr::from_str(&windlass_ok(&admin, &["cert", "show", "0b01", "-o", "yaml"])).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json["record"]["holder"]["serviceAccountName"], "web");
    assert_eq!(json["request"]["kind"], "PodCertificateRequest");
    let missing = windlass_fails(&admin, &["cert", "show", "0d01"]);
    assert!(missing.contains("no certificate with serial number 0d01 in the ledger"), "{missing}");
}

#[test]
fn many_segments_are_read_in_pages() {
    let admin = ledger_server();
    let mut seed = LedgerSeed::new();
    for number in 0..100 {
        seed.issue(record(&format!("{:04x}", 0x1000 + number), OLD, "example.com/web", 90));
        seed.next_segment(LedgerChain::Long);
    }
    seed.store(&admin);
    assert_eq!(serials(&admin, "").split(' ').count(), 100);
    let report: Value =
        serde_json::from_str(&windlass_ok(&admin, &["cert", "verify-ledger", "-o", "json"])).unwrap();
    assert_eq!((&report["intact"], &report["chains"][2]["lastSequence"]), (&json!(true), &json!(101)));
}

#[test]
fn a_revocation_names_one_certificate() {
    let admin = ledger_server();
    let mut seed = LedgerSeed::new();
    seed.issue(node_record("0a01", OLD, "n1", 0));
    seed.issue(record("0a01", NEW, "example.com/web", 90));
    seed.issue(record("0b01", OLD, "example.com/web", 91));
    seed.issue(record("0e01", OLD, "example.com/expired", -1));
    seed.store(&admin);

    let unconfirmed = windlass_fails(&admin, &["cert", "revoke", "0b01", "--reason", "keyCompromise"]);
    assert!(unconfirmed.contains("confirmation needs a terminal; add --yes"), "{unconfirmed}");
    let revoke = |code, args: &str| {
        let args: Vec<&str> =
            ["cert", "revoke", "--yes"].into_iter().chain(args.split_whitespace()).collect();
        run(&admin, code, &args)
    };
    let (_, err) = revoke(1, "0a01 --reason keyCompromise");
    assert!(err.contains("2 certificates have serial number 0a01; add --signer or --authority"), "{err}");
    assert!(err.contains(OLD) && err.contains(NEW) && err.contains("node/n1"), "{err}");
    let (out, _) = revoke(0, &format!("0a01 --authority {OLD} --reason keyCompromise --comment lost"));
    assert!(
        out.starts_with(&format!(
            "certificaterevocation.windlass.dev/{OLD}-0a01 revoked (keyCompromise): node/n1 "
        )),
        "{out}"
    );
    let object = admin.json(&["get", "certificaterevocation", &format!("{OLD}-0a01")]);
    assert_eq!(
        (&object["spec"]["comment"], &object["spec"]["signerName"]),
        (&json!("lost"), &json!("kubernetes.io/kubelet-serving"))
    );
    // Again, also with another reason: the first one stays.
    let (out, _) = revoke(0, &format!("0a01 --authority {OLD} --reason superseded"));
    assert!(out.contains(" already revoked (keyCompromise)"), "{out}");
    let (_, err) = revoke(1, &format!("certificate/{OLD}-0a01 --undo"));
    assert!(err.contains("has reason keyCompromise; only certificateHold can be withdrawn"), "{err}");
    assert_eq!(serials(&admin, "--outstanding"), "0a01 0b01");
    let shown = windlass_ok(&admin, &["cert", "show", "0a01", "--authority", OLD]);
    assert!(shown.contains("Revocation:          keyCompromise since "), "{shown}");

    let name = format!("certificaterevocation.windlass.dev/{OLD}-0b01\n");
    assert_eq!(revoke(0, "0b01 --reason certificateHold -o name").0, name);
    assert_eq!(serials(&admin, "--outstanding"), "0a01");
    let (_, err) = revoke(1, "0b01 --reason keyCompromise");
    assert!(err.contains("is on hold already"), "{err}");
    assert!(revoke(0, "0b01 --undo").0.contains(" valid again "));
    assert!(revoke(0, "0b01 --undo").0.contains(" not revoked "));
    assert_eq!(serials(&admin, "--outstanding"), "0a01 0b01");
    for (args, words) in [
        ("0e01 --reason superseded", "the certificate expired "),
        ("0f01 --reason superseded", "no certificate with serial number 0f01 in the ledger"),
        ("localhost:6443 --reason superseded", "is no serial number and no file that exists"),
    ] {
        let (_, err) = revoke(1, args);
        assert!(err.contains(words), "{args}: {err}");
    }
}

#[test]
fn files_and_servers_are_shown_with_their_anchors() {
    let admin = ledger_server();
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - time::Duration::hours(1), now + time::Duration::days(90)).unwrap();
    let serial = || Serial::random(&SystemRandom::new()).unwrap();
    let subject = |name: &str| Subject::new(name, &[]).unwrap();
    let key = || PrivateKey::generate().unwrap();
    let root = CertificateAuthority::self_signed(&subject("root"), validity, key(), serial()).unwrap();
    let leaf = root.intermediate(&subject("web"), validity, key(), serial()).unwrap();
    let certificate: &Certificate = leaf.certificate();
    let authority: String =
        root.certificate().key_identifier().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let file = admin.server.place().path().join("tls.crt");
    fs::write(&file, pem::encode_certificates([&**certificate.der()])).unwrap();

    let refused = windlass_fails(&admin, &["cert", "revoke", "tls.crt", "--reason", "unspecified", "--yes"]);
    assert!(refused.contains("is not in the ledger; add --signer and --authority to revoke it"), "{refused}");
    let mut seed = LedgerSeed::new();
    let mut record = record("01", &authority, "example.com/web", 90);
    record.serial = SerialNumber::from_bytes(certificate.serial()).unwrap();
    record.key_hash = KeyHash::from_spki(certificate.public_key().as_der());
    let mut other = record.clone();
    other.authority = OLD.parse().unwrap();
    other.key_hash = KeyHash([1; 32]);
    seed.issue(record);
    seed.issue(other);
    seed.store(&admin);
    let anchors = root.certificate().to_pem();
    let bundle = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": anchors}});
    let digest = TrustBundle::new("x", 0, "", std::collections::BTreeMap::new(), &anchors).anchors.digest();
    let digest = digest_text(&digest);
    let carried = json!([{"name": "roots", "generation": 1, "digest": digest}]);
    let report = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeTrust", "metadata": {"name": "n1"},
        "status": {"volumes": 1, "blocked": 0, "bundles": 1, "sources": [
            {"name": "roots", "digest": digest, "bundles": carried, "volumes": ["default/web-0/trust"]}]}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    for object in [bundle, node, report] {
        admin.ok_with(&object.to_string(), &["create", "-f", "-"]);
    }

    // The key tells it from the other certificate with this serial number.
    let shown = windlass_ok(&admin, &["cert", "show", "tls.crt"]);
    for words in [
        authority.as_str(),
        "issued by CN=root",
        "roots: 1 of 1 node has it",
        "delivered to n1",
        "CN=web, serial ",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let address = admin.server.address.to_string();
    let shown = windlass_ok(&admin, &["cert", "show", &address]);
    assert!(shown.contains("none: the certificate is not in the ledger"), "{shown}");
    assert!(shown.contains("IP:127.0.0.1"), "{shown}");
    let revoked = windlass_ok(&admin, &["cert", "revoke", "tls.crt", "--reason", "unspecified", "--yes"]);
    assert!(revoked.contains(&format!("/{authority}-")), "{revoked}");
    let closed = windlass_fails(&admin, &["cert", "show", "127.0.0.1:1"]);
    assert!(closed.contains("cannot get the certificate of 127.0.0.1:1"), "{closed}");
}

#[test]
fn tampering_is_detected() {
    let admin = ledger_server();
    let mut seed = LedgerSeed::new();
    for number in 1..=3 {
        seed.issue(record(&format!("0{number}"), OLD, "example.com/web", 90));
        seed.next_segment(LedgerChain::Long);
    }
    seed.issue(pod_record("0b01", OLD, "shop", "web-0"));
    seed.store(&admin);
    let (out, _) = run(&admin, 0, &["cert", "verify-ledger"]);
    let head = |chain: &str| {
        let row = out.lines().find(|line| line.starts_with(chain)).unwrap();
        format!("{chain}={}", row.split_whitespace().last().unwrap())
    };
    assert!(out.lines().nth(3).unwrap().starts_with("long     1-4 "), "{out}");
    let (long, short) = (head("long"), head("short"));
    // Noted heads are found again after appends.
    seed.issue(record("04", OLD, "example.com/web", 90));
    seed.issue(pod_record("0b02", OLD, "shop", "web-1"));
    seed.store(&admin);
    let args = ["cert", "verify-ledger", "--expect-head", &long, "--expect-head", &short];
    run(&admin, 0, &args);

    let object = |name: &str| admin.json(&["get", "ledgersegment", name]);
    let second = object("long-0000000002");
    let mut forged = second.clone();
    forged["spec"]["entries"] = object("long-0000000001")["spec"]["entries"].clone();
    admin.ok_with(&forged.to_string(), &["replace", "-f", "-"]);
    let (out, err) = run(&admin, 1, &["cert", "verify-ledger"]);
    assert!(out.contains("long: segment 2 was modified: its successor has another hash\n"), "{out}");
    assert_eq!(err, "windlass: the ledger is damaged\n");

    admin.ok(&["delete", "ledgersegment", "long-0000000002"]);
    let (out, _) = run(&admin, 1, &["cert", "verify-ledger"]);
    assert!(out.contains("long: segment 2 is missing\n"), "{out}");
    let mut restored = second;
    restored["metadata"] = json!({"name": "long-0000000002"});
    admin.ok_with(&restored.to_string(), &["create", "-f", "-"]);
    run(&admin, 0, &args);

    // Nothing in a chain vouches for its newest segment.
    admin.ok(&["delete", "ledgersegment", "long-0000000004"]);
    run(&admin, 0, &["cert", "verify-ledger"]);
    let (out, _) = run(&admin, 1, &args);
    assert!(out.contains("long: no segment has the expected head sha256:"), "{out}");
}
