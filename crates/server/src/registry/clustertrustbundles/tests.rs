//! Table tests of trust bundle validation.

use serde_json::{Value, json};
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;

use super::KIND;
use crate::registry::object_fields::tests::{cells, change_refusals, refusals};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/api/conformance/fixtures/", $name))
    };
}

fn bundle(name: &str, signer: &str, pem: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}})
}

#[test]
fn bundles_are_named_after_their_signer() {
    let without = "metadata.name: Invalid value: \"a:b\": ClusterTrustBundle without signer name";
    let prefix = "ClusterTrustBundle for signerName e.com/s must be named with prefix e.com:s:";
    let long = format!("e.com:s:{}", "a".repeat(253));
    let too_long = format!("{long}a");
    let cases: &[(&str, &str, &[&str])] = &[
        ("a.b-c", "", &[]),
        ("a:b", "", &[without]),
        ("A", "", &["metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"]),
        ("e.com:s:a.b", "e.com/s", &[]),
        (&long, "e.com/s", &[]),
        (&too_long, "e.com/s", &[&format!("metadata.name: Invalid value: \"{too_long}\"")]),
        ("e.com:s:", "e.com/s", &["metadata.name: Invalid value: \"e.com:s:\": a lowercase RFC"]),
        ("e.com:s:a:b", "e.com/s", &["metadata.name: Invalid value: \"e.com:s:a:b\": a lower"]),
        ("a", "e.com/s", &[&format!("metadata.name: Invalid value: \"a\": {prefix}")]),
        ("e.com:s", "e.com/s", &[&format!("metadata.name: Invalid value: \"e.com:s\": {prefix}")]),
        ("s:a", "s", &["spec.signerName: Invalid value: \"s\": must be a fully qualified domain"]),
    ];
    for (name, signer, want) in cases {
        let reported = refusals(&KIND, &bundle(name, signer, fixture!("ca-p256.pem")));
        assert_eq!(reported.len(), want.len(), "{name}: {reported:?}");
        assert!(
            reported.iter().zip(*want).all(|(reported, want)| reported.starts_with(want)),
            "{reported:?}"
        );
    }
    let mut generated = bundle("e.com:s:a-x", "e.com/s", fixture!("ca-p256.pem"));
    generated["metadata"]["generateName"] = json!("e.com:s:a-");
    assert_eq!(refusals(&KIND, &generated), [""; 0]);
    generated["metadata"]["generateName"] = json!("a-");
    let reported = refusals(&KIND, &generated);
    assert_eq!(reported, [format!("metadata.generateName: Invalid value: \"a-\": {prefix}")]);
}

#[test]
fn trust_anchors_are_certificates_of_authorities_each_once() {
    let [one, two] = [fixture!("ca-p256.pem"), fixture!("ca-p384.pem")];
    let leaf = fixture!("leaf.pem");
    let broken = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
    let cases: &[(&[&str], &[&str])] = &[
        (&[one], &[]),
        (&[one, two, fixture!("ca-ed25519.pem"), fixture!("ca-rsa2048.pem")], &[]),
        (&["before\n", one, "between\n", two, "after\n"], &[]),
        (&[fixture!("ca-expired.pem")], &[]),
        (&[fixture!("ca-intermediate.pem")], &[]),
        (&[broken, one], &[]),
        (&[], &["at least one trust anchor must be provided"]),
        (&["no PEM"], &["at least one trust anchor must be provided"]),
        (&[broken], &["at least one trust anchor must be provided"]),
        (&[leaf], &["entry 0 does not have the CA bit set"]),
        (&[fixture!("ca-nobc.pem")], &["entry 0 does not have the CA bit set"]),
        (&[fixture!("ca-headers.pem")], &["entry 0 has PEM block headers"]),
        (&[fixture!("ca-truncated.pem")], &["entry 0 does not parse as X.509"]),
        (&[fixture!("ca-trailing.pem")], &["entry 0 does not parse as X.509"]),
        (&[one, fixture!("key-block.pem")], &["entry 1 has bad block type: PRIVATE KEY"]),
        (&[fixture!("ca-wronglabel.pem")], &["entry 0 has bad block type: TRUSTED CERTIFICATE"]),
        (&[one, one], &["duplicate trust anchor (indices [0 1])"]),
        (
            &[one, two, one, two, one],
            &["duplicate trust anchor (indices [0 2 4])", "duplicate trust anchor (indices [1 3])"],
        ),
        (
            &[one, leaf, one, fixture!("ca-headers.pem")],
            &["entry 1 does not have the CA bit set", "entry 3 has PEM block headers"],
        ),
    ];
    for (parts, want) in cases {
        let reported = refusals(&KIND, &bundle("a", "", &parts.concat()));
        let want =
            want.iter().map(|words| format!("spec.trustBundle: Invalid value: \"<value omitted>\": {words}"));
        assert_eq!(reported, want.collect::<Vec<_>>());
    }
}

#[test]
fn a_bundle_has_its_limit() {
    let pem = fixture!("ca-p256.pem");
    let padding = MAX_TRUST_BUNDLE_BYTES - pem.len();
    let full = format!("{pem}{}", "x".repeat(padding));
    assert_eq!(refusals(&KIND, &bundle("a", "", &full)), [""; 0]);
    let reported = refusals(&KIND, &bundle("a", "", &format!("{full}x")));
    assert_eq!(reported, ["spec.trustBundle: Too long: may not be more than 1048576 bytes"]);
}

#[test]
fn a_change_keeps_the_signer_and_parses_what_is_new() {
    let pem = fixture!("ca-p256.pem");
    let old = bundle("e.com:s:a", "e.com/s", "no PEM");
    assert_eq!(change_refusals(&KIND, &old, &old), [""; 0]);
    let better = bundle("e.com:s:a", "e.com/s", pem);
    assert_eq!(change_refusals(&KIND, &better, &old), [""; 0]);
    let worse = bundle("e.com:s:a", "e.com/s", "nothing");
    assert_eq!(change_refusals(&KIND, &worse, &better).len(), 1);
    let reported = change_refusals(&KIND, &bundle("e.com:s:a", "e.com/t", pem), &better);
    assert_eq!(
        reported,
        [
            "metadata.name: Invalid value: \"e.com:s:a\": ClusterTrustBundle for signerName e.com/t must be named with prefix e.com:t:",
            "spec.signerName: Invalid value: \"e.com/t\": field is immutable",
        ]
    );
    let reported = change_refusals(&KIND, &bundle("a", "e.com/s", pem), &bundle("a", "", pem));
    assert_eq!(reported.len(), 2, "a bundle without a signer cannot get one: {reported:?}");
}

#[test]
fn rows_name_the_signer() {
    assert_eq!(cells(&KIND, &bundle("a", "", "")), json!(["a", "<none>"]));
    assert_eq!(cells(&KIND, &bundle("a", "e.com/s", "")), json!(["a", "e.com/s"]));
}
