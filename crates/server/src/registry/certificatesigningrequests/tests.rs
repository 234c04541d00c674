//! Table tests of validation and columns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;
use windlass_api::field::FieldErrors;

use super::KIND;
use crate::registry::kind::{CertificateIssuance, SubresourceAction};
use crate::registry::object_fields::tests::{cells, change_refusals, created, error_texts, refusals};
use crate::user::User;

const NOW: OffsetDateTime = datetime!(2026-05-04 12:00 UTC);

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/api/conformance/fixtures/", $name))
    };
}

fn base64(bytes: &[u8]) -> Value {
    json!(STANDARD.encode(bytes))
}

fn request() -> Value {
    json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": base64(fixture!("csr-p256.pem")),
            "signerName": "example.com/signer",
            "usages": ["client auth"],
        },
        "status": {},
    })
}

/// Returns the request with `value` at `pointer`, whose parent must exist.
fn with(pointer: &str, value: Value) -> Value {
    let mut request = request();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    request.pointer_mut(parent).unwrap()[field] = value;
    request
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind,
        "status": "True",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn decided(kinds: &[&str]) -> Value {
    let conditions: Vec<Value> = kinds.iter().map(|kind| condition(kind)).collect();
    with("/status/conditions", json!(conditions))
}

/// Updates through a subresource and returns the result and its errors.
fn through(name: &str, mut new: Value, old: &Value) -> (Value, Vec<String>) {
    let SubresourceAction::View { prepare_update, validate_update } = KIND.subresource(name).unwrap().action
    else {
        panic!("{name} is no view")
    };
    prepare_update(&mut new, old, NOW);
    let mut errors = FieldErrors::new();
    validate_update(&new, old, NOW, &mut errors);
    (new, error_texts(&errors))
}

#[test]
fn a_new_request_keeps_the_rules() {
    let signer = "a lowercase RFC 1123 label must consist";
    let cases: &[(&str, Value, &[&str])] = &[
        ("/spec/usages", json!(["any", "s/mime"]), &[]),
        ("/spec/usages", json!([]), &["spec.usages: Required value"]),
        ("/spec/usages", json!(["any", "fly"]), &["spec.usages[1]: Unsupported value: \"fly\""]),
        ("/spec/usages", json!(["any", "any"]), &["spec.usages[1]: Duplicate value: \"any\""]),
        (
            "/spec/usages",
            json!(["fly", "fly"]),
            &[
                "spec.usages[0]: Unsupported value: \"fly\"",
                "spec.usages[1]: Unsupported value: \"fly\"",
                "spec.usages[1]: Duplicate value: \"fly\"",
            ],
        ),
        ("/spec/signerName", json!(""), &["spec.signerName: Required value"]),
        (
            "/spec/signerName",
            json!("Example.com/x"),
            &[&format!(
                "spec.signerName: Invalid value: \"Example.com\": validating label \"Example\": {signer}"
            )],
        ),
        (
            "/spec/signerName",
            json!("kubernetes.io/legacy-unknown"),
            &["spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy"],
        ),
        ("/spec/expirationSeconds", json!(600), &[]),
        ("/spec/expirationSeconds", json!(i32::MAX), &[]),
        (
            "/spec/expirationSeconds",
            json!(599),
            &["spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600"],
        ),
        (
            "/spec/request",
            Value::Null,
            &["spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST"],
        ),
        ("/spec/request", base64(fixture!("ca-p256.pem")), &["spec.request: Invalid value: \"LS0t"]),
        ("/spec/request", base64(fixture!("csr-truncated.pem")), &["spec.request: Invalid value"]),
        ("/spec/request", base64(fixture!("csr-badsig.pem")), &["spec.request: Invalid value"]),
        ("/spec/request", base64(fixture!("csr-rsa2048.pem")), &[]),
        ("/spec/request", base64(fixture!("csr-p384.pem")), &[]),
        ("/spec/request", base64(fixture!("csr-ed25519.pem")), &[]),
        ("/status/conditions", json!([{"status": "True"}]), &["status.conditions[0].type: Required"]),
        ("/status/conditions", json!([{"type": "Seen"}]), &["status.conditions[0].status: Required value"]),
        (
            "/status/conditions",
            json!([{"type": "Seen", "status": "Perhaps"}]),
            &[
                "status.conditions[0].status: Unsupported value: \"Perhaps\": supported values: \"False\", \"True\", \"Unknown\"",
            ],
        ),
        (
            "/status/conditions",
            json!([{"type": "Failed", "status": "Unknown"}]),
            &["status.conditions[0].status: Unsupported value: \"Unknown\": supported values: \"True\""],
        ),
    ];
    for (pointer, value, want) in cases {
        let reported = refusals(&KIND, &with(pointer, value.clone()));
        assert_eq!(reported.len(), want.len(), "{value}: {reported:?}");
        for (reported, want) in reported.iter().zip(*want) {
            assert!(reported.starts_with(want), "{value}: {reported}");
        }
    }
}

#[test]
fn text_around_a_request_does_not_matter_but_blocks_before_it_do() {
    let [request, key] = [fixture!("csr-p256.pem").as_slice(), fixture!("key-block.pem").as_slice()];
    for (text, good) in [
        ([b"hello\n", request, b"goodbye\n"].concat(), true),
        ([request, key].concat(), true),
        ([key, request].concat(), false),
    ] {
        let reported = refusals(&KIND, &with("/spec/request", base64(&text)));
        assert_eq!(reported.is_empty(), good, "{reported:?}");
    }
}

#[test]
fn values_accepted_by_older_servers_may_stay() {
    let bad: &[(&str, Value)] = &[
        ("/spec/usages", json!(["fly"])),
        ("/spec/usages", json!(["any", "any"])),
        ("/spec/signerName", json!("kubernetes.io/legacy-unknown")),
        ("/status/conditions", json!([{"type": "", "status": "True"}])),
        ("/status/conditions", json!([condition("Seen"), condition("Seen")])),
        ("/status/conditions", json!([condition("Approved"), condition("Denied")])),
        ("/status/certificate", base64(b"no certificate")),
        ("/spec/request", base64(b"no request")),
    ];
    for (pointer, value) in bad {
        let old = with(pointer, value.clone());
        assert!(!refusals(&KIND, &old).is_empty(), "{value} is good");
        assert_eq!(change_refusals(&KIND, &old, &old), [""; 0], "{value}");
    }
    let new = with("/spec/request", base64(b"no request"));
    assert_eq!(change_refusals(&KIND, &new, &request()).len(), 1, "what changes is checked");
}

#[test]
fn the_server_records_the_requester() {
    let mut request = with("/spec/username", json!("mallory"));
    request["spec"]["extra"] = json!({"a": ["b"]});
    request["status"] = json!({"conditions": [condition("Approved")], "certificate": "eA=="});
    let mut made = created(&KIND, request);
    let mut user = User::authenticated("alice", "u1", vec!["staff".into()]);
    (KIND.prepare_create_as)(&mut made, &user);
    assert_eq!(made["status"], json!({}));
    let spec = &made["spec"];
    assert_eq!((&spec["username"], &spec["uid"]), (&json!("alice"), &json!("u1")));
    assert_eq!(spec["groups"], json!(["staff", "system:authenticated"]));
    assert_eq!(spec.get("extra"), None);
    user.uid.clear();
    user.extra.insert("k".into(), vec!["v".into()]);
    (KIND.prepare_create_as)(&mut made, &user);
    assert_eq!(made["spec"]["extra"], json!({"k": ["v"]}));
    assert_eq!(made["spec"].get("uid"), None);
}

#[test]
fn a_plain_update_changes_metadata_only() {
    let old = decided(&["Approved"]);
    let mut new = with("/spec/signerName", json!("example.com/other"));
    new["metadata"]["labels"] = json!({"a": "b"});
    (KIND.prepare_update)(&mut new, &old);
    assert_eq!((&new["spec"], &new["status"]), (&old["spec"], &old["status"]));
    assert_eq!(new["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn each_subresource_permits_its_own_changes() {
    let forbidden = |what: &str| format!("status.conditions: Forbidden: updates may not {what}");
    let remove = |kind: &str| forbidden(&format!("remove a condition of type \"{kind}\""));
    let add = |kind: &str| forbidden(&format!("add a condition of type \"{kind}\""));
    type Kinds = &'static [&'static str];
    let cases: &[(&str, Kinds, Kinds, &[String])] = &[
        ("approval", &[], &["Approved"], &[]),
        ("approval", &[], &["Denied"], &[]),
        ("approval", &["Approved"], &["Approved", "Failed"], &[]),
        ("approval", &["Approved"], &[], &[remove("Approved")]),
        ("approval", &["Approved"], &["Seen"], &[remove("Approved")]),
        ("approval", &["Denied"], &[], &[remove("Denied")]),
        ("approval", &["Failed"], &["Seen"], &[remove("Failed")]),
        ("approval", &["Seen"], &[], &[]),
        ("status", &["Approved"], &["Approved", "Failed"], &[]),
        ("status", &["Seen"], &["Noted"], &[]),
        ("status", &[], &["Approved"], &[add("Approved")]),
        ("status", &[], &["Denied"], &[add("Denied")]),
        ("status", &["Approved"], &[], &[remove("Approved")]),
        ("status", &["Failed"], &[], &[remove("Failed")]),
    ];
    for (door, before, after, want) in cases {
        let (_, reported) = through(door, decided(after), &decided(before));
        assert_eq!(reported, *want, "{door} {before:?} {after:?}");
    }
    let (_, reported) = through("approval", decided(&["Approved", "Denied"]), &decided(&[]));
    assert_eq!(reported.len(), 1);
    assert!(reported[0].ends_with("`conditions[{\"type\": \"Denied\"}]`"), "{reported:?}");
}

#[test]
fn a_status_leaves_the_decision_as_it_was() {
    let old = decided(&["Approved"]);
    let mut new = decided(&["Failed", "Approved"]);
    new["status"]["conditions"][1]["message"] = json!("something else");
    new["spec"]["signerName"] = json!("example.com/other");
    let (new, reported) = through("status", new, &old);
    assert_eq!(reported, [""; 0]);
    assert_eq!(new["status"]["conditions"][1], condition("Approved"));
    assert_eq!(new["spec"], old["spec"]);
}

#[test]
fn an_approval_leaves_the_certificate_as_it_was() {
    let certificate = base64(fixture!("leaf.pem"));
    let (new, reported) = through("approval", with("/status/certificate", certificate.clone()), &request());
    assert_eq!((reported.len(), &new["status"]), (0, &json!({})));
    let old = with("/status/certificate", certificate.clone());
    let (new, reported) = through("approval", decided(&["Approved"]), &old);
    assert_eq!((reported.len(), &new["status"]["certificate"]), (0, &certificate));
}

#[test]
fn a_certificate_is_set_once() {
    let set = "status.certificate: Forbidden: updates may not modify existing certificate content";
    let bad = |words: &str| format!("status.certificate: Invalid value: \"<certificate data>\": {words}");
    let leaf = || base64(fixture!("leaf.pem"));
    let twice = [fixture!("leaf.pem").as_slice(), fixture!("ca-p256.pem")].concat();
    let garbled = b"-----BEGIN CERTIFICATE-----\neHl6\n-----END CERTIFICATE-----\n";
    let cases: Vec<(Value, Value, Option<String>)> = vec![
        (Value::Null, leaf(), None),
        (Value::Null, base64(&twice), None),
        (Value::Null, base64(fixture!("bundle-interblock.pem")), None),
        (leaf(), leaf(), None),
        (leaf(), base64(fixture!("ca-p256.pem")), Some(set.into())),
        (leaf(), Value::Null, Some(set.into())),
        (Value::Null, base64(b"x"), Some(bad("must contain at least one CERTIFICATE PEM block"))),
        (
            Value::Null,
            base64(fixture!("key-block.pem")),
            Some(bad("only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"")),
        ),
        (Value::Null, base64(fixture!("ca-headers.pem")), Some(bad("no PEM block headers are permitted"))),
        (Value::Null, base64(garbled), Some(bad(""))),
    ];
    for (i, (before, after, want)) in cases.into_iter().enumerate() {
        let old = with("/status/certificate", before);
        let (_, reported) = through("status", with("/status/certificate", after), &old);
        assert_eq!(reported.len(), usize::from(want.is_some()), "case {i}: {reported:?}");
        assert!(
            reported.iter().zip(&want).all(|(reported, want)| reported.starts_with(want)),
            "{reported:?}"
        );
    }
}

#[test]
fn conditions_get_the_times_they_lack() {
    let now = json!("2026-05-04T12:00:00Z");
    let long_ago = json!("2026-01-01T00:00:00Z");
    let old = decided(&["Seen"]);
    let bare = |status: &str| json!({"type": "Seen", "status": status, "lastUpdateTime": null});
    let cases = [
        (bare("True"), &now, &long_ago),
        (bare("False"), &now, &now),
        (condition("Other"), &long_ago, &long_ago),
        (json!({"type": "Other", "status": "True"}), &now, &now),
    ];
    for door in ["approval", "status"] {
        for (given, updated, changed) in &cases {
            let new = with("/status/conditions", json!([given]));
            let (new, reported) = through(door, new, &old);
            assert_eq!(reported, [""; 0]);
            let condition = &new["status"]["conditions"][0];
            assert_eq!(condition["lastUpdateTime"], **updated, "{given}");
            assert_eq!(condition["lastTransitionTime"], **changed, "{given}");
        }
    }
}

#[test]
fn rows_show_the_state_of_requests() {
    let cases: &[(&[&str], bool, &str)] = &[
        (&[], false, "Pending"),
        (&["Approved"], false, "Approved"),
        (&["Denied"], false, "Denied"),
        (&["Approved", "Denied"], false, "Denied"),
        (&["Approved", "Failed"], false, "Approved,Failed"),
        (&["Failed"], false, "Pending,Failed"),
        (&["Approved"], true, "Approved,Issued"),
        (&["Approved", "Failed"], true, "Approved,Failed,Issued"),
    ];
    for (kinds, issued, want) in cases {
        let mut request = decided(kinds);
        if *issued {
            request["status"]["certificate"] = json!("eA==");
        }
        assert_eq!(cells(&KIND, &request)[5], **want);
    }
    let mut request = with("/spec/expirationSeconds", json!(3600));
    request["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
    request["spec"]["username"] = json!("alice");
    let row = json!(["r", "120m", "example.com/signer", "alice", "60m", "Pending"]);
    assert_eq!(cells(&KIND, &request), row);
    let bare = json!({"metadata": {"name": "r"}});
    assert_eq!(cells(&KIND, &bare), json!(["r", "<unknown>", "<none>", "", "<none>", "Pending"]));
}

#[test]
fn requested_lifetimes_are_counted_once() {
    // The certificate is valid for thirty years.
    let asked = |seconds: i64, signer: &str| {
        let mut request = with("/spec/expirationSeconds", json!(seconds));
        request["spec"]["signerName"] = json!(signer);
        request
    };
    let answered = |request: &Value| {
        let mut request = request.clone();
        request["status"]["certificate"] = base64(fixture!("leaf.pem"));
        request
    };
    let issued = |signer: &str, honored| Some(CertificateIssuance { signer: signer.into(), honored });
    let (kubernetes, long) = ("kubernetes.io/kube-apiserver-client", 30 * 365 * 24 * 60 * 60);
    let cases = [
        (asked(600, "example.com/a"), issued("other", false)),
        (asked(long, "example.com/a"), issued("other", true)),
        (asked(long, kubernetes), issued(kubernetes, true)),
        (asked(long, "x.kubernetes.io/a"), issued("other", true)),
        (request(), None),
        (answered(&asked(600, kubernetes)), None),
    ];
    for (old, want) in cases {
        assert_eq!((KIND.issued)(&old, &answered(&old)), want);
        assert_eq!((KIND.issued)(&old, &{ old.clone() }), None);
    }
}
