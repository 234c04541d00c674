use time::macros::datetime;

use super::super::certificate_requests::{RequestApi as Api, RequestState, SignerRequest};
use windlass_controllers::publisher::anchors::AnchorRecords;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn certificate(days: i64) -> CaCertificateInfo {
    CaCertificateInfo {
        subject: "CN=ca".into(),
        serial: "4b:af".into(),
        key: "ECDSA P-256".into(),
        fingerprint: Some("0123456789abcdef0123".into()),
        not_before: NOW,
        not_after: NOW + time::Duration::days(days),
    }
}

fn bundle(name: &str, signer: &str, days: i64) -> SignerBundle {
    let facts = vec![certificate(days)];
    SignerBundle {
        name: name.into(),
        signer: signer.into(),
        ours: true,
        anchors: Vec::new(),
        facts,
        records: AnchorRecords::new(),
        lacking: Vec::new(),
    }
}

fn snapshot() -> ServerSnapshot {
    let asked = |signer: &str, api, state, seconds| SignerRequest {
        signer: signer.into(),
        name: "r".into(),
        api,
        state,
        since: Some(NOW - time::Duration::seconds(seconds)),
        why: None,
        chain: None,
    };
    let client = "kubernetes.io/kube-apiserver-client";
    ServerSnapshot {
        requests: vec![
            asked(client, Api::Request, RequestState::ToSign, 90),
            asked(client, Api::Request, RequestState::Denied, 5),
            asked(client, Api::Request, RequestState::Failed, 5),
            asked("x.y/z", Api::Request, RequestState::ToApprove, 5),
            asked("x.y/z", Api::Pod, RequestState::Issued, 5),
        ],
        bundles: vec![bundle("x.y:b:one", "x.y/b", 400), bundle("x.y:b:two", "x.y/b", 40)],
        ..ServerSnapshot::default()
    }
}

/// Returns the words in the line of a signer.
fn row_words(text: &str, name: &str) -> Vec<String> {
    let mut lines = text.lines().map(|line| line.split("   ").map(str::trim));
    let line = lines.find_map(|mut line| (line.next()? == name).then_some(line));
    line.unwrap().filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_name_has_a_line() {
    let rows = rows(&LocalSigner::built_in(None), Some(&snapshot()));
    let text = text(&rows, None, NOW);
    assert_eq!(rows.len(), 7, "{text}");
    assert_eq!(
        row_words(&text, "kubernetes.io/kube-apiserver-client"),
        ["built-in", "<unknown>", "0", "1 (90s)", "2", "0", "<none>"]
    );
    assert_eq!(row_words(&text, "x.y/z"), ["unknown", "<unknown>", "1", "0", "0", "1", "<none>"]);
    // Of several certificates, the first to expire counts.
    assert_eq!(row_words(&text, "x.y/b"), ["unknown", "40d", "0", "0", "0", "0", "x.y:b:one, x.y:b:two"]);
    let wide = super::text(&rows, Some(OutputFormat::Wide), NOW);
    let wide = row_words(&wide, "x.y/b");
    assert_eq!(wide[8..], ["4b:af,4b:af", "0123456789abcdef,0123456789abcdef", "unknown"]);
    let names = super::text(&rows, Some(OutputFormat::Name), NOW);
    assert_eq!(names.lines().count(), 7);
}

#[test]
fn without_a_server_nothing_is_counted() {
    let rows = rows(&LocalSigner::built_in(None), None);
    let text = text(&rows, None, NOW);
    assert_eq!(
        row_words(&text, "kubernetes.io/legacy-unknown"),
        ["built-in", "<unknown>", "-", "-", "-", "-", "-"]
    );
    let document = serde_json::to_value(&rows).unwrap();
    assert!(document[0].get("requests").is_none(), "{document}");
    assert_eq!(document[0]["ca"]["from"], "unknown");
    // Forbidden kinds are unknown; kinds that are not served count as none.
    let table = [
        (ListOutcome::Forbidden("no".into()), ListOutcome::Complete, ["-", "-"]),
        (ListOutcome::Complete, ListOutcome::Forbidden("no".into()), ["-", "-"]),
        (ListOutcome::Complete, ListOutcome::NotServed, ["0", "1 (90s)"]),
    ];
    for (of_requests, of_pods, wanted) in table {
        let seen = ServerSnapshot { csr_access: of_requests, pod_request_access: of_pods, ..snapshot() };
        let text = super::text(&super::rows(&LocalSigner::built_in(None), Some(&seen)), None, NOW);
        assert_eq!(row_words(&text, "kubernetes.io/kube-apiserver-client")[2..4], wanted);
    }
    for (ca, shown) in [
        (SignerCa::ToBeMade("d".into()), "<to be created>"),
        (SignerCa::Unusable("x".into()), "<unusable>"),
        (SignerCa::Elsewhere, "<unknown>"),
    ] {
        assert_eq!(cell(&ca, &[]).expiry(NOW), shown);
    }
    let old = CaCell::Bundles { certificates: vec![certificate(-1)] };
    assert_eq!(old.expiry(NOW), "expired");
}
