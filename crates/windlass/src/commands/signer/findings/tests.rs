use std::path::Path;

use time::Duration as Span;
use time::macros::datetime;
use windlass_controllers::publisher::anchors::{AnchorRecord, AnchorRecords};
use windlass_controllers::signers::config::SignersConfig;
use windlass_pki::{
    CertificateAuthority, CertificateTemplate, CertificateUsages, IssuedSubject, PrivateKey, Serial,
    SubjectKey, SystemRandom, Validity, issue_certificate,
};

use super::super::server::SignerBundle;
use super::super::signer_ca;
use super::*;
use crate::expiry::MonitoredCertificate;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);
const NAME: &str = "a.b/c";

/// Returns a CA that expires after this time.
fn files(left: Span) -> SignerCa {
    let (from, until) = (NOW - Span::DAY, NOW + left);
    SignerCa::Files(Box::new(CaFiles {
        certificate: "ca.crt".into(),
        key: "ca.key".into(),
        mode: 0o600,
        facts: signer_ca::CaCertificateInfo {
            subject: "CN=ca".into(),
            serial: "01".into(),
            key: "ECDSA P-256".into(),
            fingerprint: None,
            not_before: from,
            not_after: until,
        },
        valid: (from, until),
        anchor: b"anchor".to_vec(),
        chain: Vec::new(),
    }))
}

fn with_files(ca: SignerCa, change: impl FnOnce(&mut CaFiles)) -> SignerCa {
    let SignerCa::Files(mut files) = ca else { panic!() };
    change(&mut files);
    SignerCa::Files(files)
}

/// Returns inputs with the built-in signers and a custom one that issues certificates for up to a
/// day and publishes its anchors.
fn facts(ca: SignerCa) -> CheckInputs {
    let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [{name: a.b/c, publish: {}, \
        ca: {selfSigned: {directory: /nowhere/ca}}, requests: {usages: [any], maxDuration: 24h}}]}";
    let SignersConfig { signers, .. } = SignersConfig::parse(Path::new("signers.yaml"), text).unwrap();
    let mut known = LocalSigner::built_in(None);
    known.extend(signers.iter().map(|custom| LocalSigner { ca: ca.clone(), ..LocalSigner::custom(custom) }));
    let bundle = SignerBundle {
        name: "a.b:c:anchors".into(),
        signer: NAME.into(),
        ours: true,
        anchors: vec![b"old".to_vec(), b"anchor".to_vec()],
        facts: Vec::new(),
        records: AnchorRecords::new(),
        lacking: Vec::new(),
    };
    let seen = ServerSnapshot { bundles: vec![bundle], ..ServerSnapshot::default() };
    CheckInputs { bad_file: None, known, own: Vec::new(), server: Ok(seen) }
}

fn finding_lines(facts: &CheckInputs) -> Vec<String> {
    let found = findings(facts, NOW);
    let line = |found: &SignerFinding| {
        let signer = found.signer.as_deref().unwrap_or("-");
        format!("{} {signer}: {}", found.severity.name(), found.message)
    };
    found.iter().map(line).collect()
}

/// Certificates of the data directory that belong to no signer.
#[test]
fn certificates_of_the_server_itself_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("server.crt");
    let made = |days| {
        let validity = windlass_pki::Validity::lasting(NOW - Span::days(300), Span::days(days));
        let made = windlass_testkit::ca_with_validity("c", validity.unwrap());
        std::fs::write(&file, made.certificate().to_pem()).unwrap();
        let monitored = MonitoredCertificate::file("serving", CertificateRole::Renewed, &file);
        CheckInputs { own: vec![monitored.read().unwrap()], ..facts(files(Span::days(365))) }
    };
    for (days, severity, said) in [(299, "error", "expired"), (310, "warning", "expires")] {
        let lines = finding_lines(&made(days));
        let wanted = format!("{} {said} ", file.display());
        let found = lines.iter().any(|line| line.contains(&wanted) && line.contains(severity));
        assert!(found, "{lines:?}");
    }
    assert_eq!(finding_lines(&made(365)), [""; 0]);
}

#[test]
fn ca_problems_are_found() {
    let year = Span::days(365);
    let table: Vec<(SignerCa, &[&str])> = vec![
        (files(year), &[]),
        (files(Span::days(30)), &[]),
        (
            files(Span::days(30) - Span::SECOND),
            &["warning a.b/c: ca.crt expires in 29d, at 2026-07-01T11:59:59Z"],
        ),
        (
            files(Span::hours(23)),
            &[
                "warning a.b/c: ca.crt expires in 23h, at 2026-06-02T11:00:00Z",
                "warning a.b/c: requests.maxDuration is 24h, but ca.crt expires earlier, at 2026-06-02T11:00:00Z",
            ],
        ),
        (files(-Span::SECOND), &["error a.b/c: ca.crt expired at 2026-06-01T11:59:59Z"]),
        (
            with_files(files(year), |files| files.valid.0 = NOW + Span::SECOND),
            &["error a.b/c: ca.crt is not valid before 2026-06-01T12:00:01Z"],
        ),
        (
            with_files(files(year), |files| files.mode = 0o640),
            &["warning a.b/c: ca.key is accessible to other users (mode 0640)"],
        ),
        (SignerCa::Unusable("ca.crt is empty".into()), &["error a.b/c: ca.crt is empty"]),
        (
            SignerCa::ToBeMade("/nowhere/ca".into()),
            &["note a.b/c: the CA in /nowhere/ca will be created at start"],
        ),
    ];
    for (ca, wanted) in table {
        assert_eq!(finding_lines(&facts(ca.clone())), wanted, "{ca:?}");
    }
}

#[test]
fn bundles_have_the_ca() {
    let ca = files(Span::days(365));
    let change = |change: fn(&mut ServerSnapshot)| {
        let mut facts = facts(ca.clone());
        change(facts.server.as_mut().unwrap());
        finding_lines(&facts)
    };
    let lacks = "error a.b/c: trust bundle a.b:c:anchors does not contain the CA of ca.crt";
    assert_eq!(change(|seen| seen.bundles[0].anchors.truncate(1)), [lacks]);
    let foreign = change(|seen| {
        seen.bundles[0].anchors.clear();
        seen.bundles[0].ours = false;
    });
    assert_eq!(foreign, [format!("{lacks}; it has another owner")]);
    let missing = "error a.b/c: trust bundle a.b:c:anchors does not exist on the server";
    assert_eq!(change(|seen| seen.bundles.clear()), [missing]);
    // Without permission to list bundles, their state is unknown.
    let refused = change(|seen| {
        seen.bundles.clear();
        seen.bundle_access = ListOutcome::Forbidden("forbidden".into());
    });
    assert_eq!(refused, ["error -: ClusterTrustBundles skipped: forbidden"]);
    let absent = change(|seen| {
        seen.bundles.clear();
        (seen.bundle_access, seen.pod_request_access) = (ListOutcome::NotServed, ListOutcome::NotServed);
    });
    assert_eq!(
        absent,
        [
            "warning a.b/c: cannot publish the CA: the server does not serve ClusterTrustBundles",
            "note -: the server does not serve PodCertificateRequests; skipped",
            "note -: the server does not serve ClusterTrustBundles; skipped",
        ]
    );
}

fn signer_request(name: &str, api: Api, state: RequestState, seconds: i64) -> SignerRequest {
    SignerRequest {
        signer: NAME.into(),
        name: name.into(),
        api,
        state,
        since: Some(NOW - Span::seconds(seconds)),
        why: None,
        chain: None,
    }
}

#[test]
fn requests_that_wait_too_long_are_reported() {
    let request = |name, state, seconds| signer_request(name, Api::Request, state, seconds);
    let pod = |name, state, seconds| signer_request(name, Api::Pod, state, seconds);
    let of = |signer: &str, asked: SignerRequest| SignerRequest { signer: signer.into(), ..asked };
    let (approve, sign) = (RequestState::ToApprove, RequestState::ToSign);
    let delayed = SignerRequest {
        why: Some("windlass.dev/SigningDelayed SignerExpired: it has".into()),
        ..request("b", sign, 200)
    };
    let unknown = "unknown signer";
    let table: Vec<(Vec<SignerRequest>, Vec<String>)> = vec![
        (vec![request("a", sign, 60), request("b", approve, 3600)], vec![]),
        (vec![request("a", RequestState::Denied, 9999), request("b", RequestState::Issued, 9999)], vec![]),
        (
            vec![request("a", sign, 61), delayed, request("c", sign, 5)],
            vec!["error a.b/c: CertificateSigningRequests approved but not signed: 2, oldest b for 3m20s (windlass.dev/SigningDelayed SignerExpired: it has)"
                .into()],
        ),
        (
            vec![request("a", approve, 3601)],
            vec!["warning a.b/c: CertificateSigningRequests waiting for approval: 1, oldest a for 60m"
                .into()],
        ),
        (
            vec![pod("ns/a", sign, 61)],
            vec!["error a.b/c: PodCertificateRequests not signed: 1, oldest ns/a for 61s; \
                  the signer does not sign this kind"
                .into()],
        ),
        (
            vec![of("x.y/z", request("a", approve, 5))],
            vec![format!(
                "warning x.y/z: CertificateSigningRequests waiting for approval: 1, oldest a for 5s; {unknown}"
            )],
        ),
        (
            vec![of("x.y/z", request("a", sign, 61))],
            vec![format!(
                "error x.y/z: CertificateSigningRequests approved but not signed: 1, oldest a for 61s; {unknown}"
            )],
        ),
        // Another process signs for it.
        (
            vec![
                of("x.y/z", request("a", approve, 5)),
                of("x.y/z", request("b", RequestState::Issued, 50)),
            ],
            vec![],
        ),
        (
            vec![of("kubernetes.io/kube-apiserver-serving", request("a", sign, 61))],
            vec!["error kubernetes.io/kube-apiserver-serving: CertificateSigningRequests approved \
                  but not signed: 1, oldest a for 61s; the signer does not sign this kind"
                .into()],
        ),
    ];
    for (asked, wanted) in table {
        let mut facts = facts(files(Span::days(365)));
        facts.server.as_mut().unwrap().requests = asked.clone();
        assert_eq!(finding_lines(&facts), wanted, "{asked:?}");
    }
}

#[test]
fn errors_come_first_and_a_server_failure_is_one_finding() {
    let mut facts = facts(files(Span::DAY));
    facts.known.truncate(5);
    facts.bad_file = Some("signers.yaml:1:1: kind: is missing".into());
    let stranger = SignerRequest {
        signer: "x.y/z".into(),
        ..signer_request("a", Api::Request, RequestState::ToSign, 99)
    };
    facts.server.as_mut().unwrap().requests = vec![stranger];
    // The signer may be defined in the file, so it is not reported as unknown.
    let stuck = "error x.y/z: CertificateSigningRequests approved but not signed: 1, oldest a for 99s";
    assert_eq!(finding_lines(&facts), ["error -: signers.yaml:1:1: kind: is missing", stuck]);
    facts.server = Err(SnapshotError::Unreachable("cannot reach it".into()));
    assert_eq!(finding_lines(&facts).last().unwrap(), "error -: cannot reach it");
    facts.server = Err(SnapshotError::NoServer("no kubeconfig".into()));
    assert_eq!(finding_lines(&facts).last().unwrap(), "warning -: no server checked: no kubeconfig");
    facts.server = Err(SnapshotError::NotRequested);
    assert_eq!(finding_lines(&facts), ["error -: signers.yaml:1:1: kind: is missing"]);
    let mut facts = self::facts(files(Span::DAY * 2));
    facts.server = Err(SnapshotError::Unreachable("cannot reach it".into()));
    let severities = findings(&facts, NOW).into_iter().map(|found| found.severity);
    assert_eq!(severities.collect::<Vec<_>>(), [FindingSeverity::Error, FindingSeverity::Warning]);
}

#[test]
fn shared_wildcards_are_reported() {
    let text = |names: &str, who: &str| {
        format!(
            "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: a.b/c, \
             ca: {{selfSigned: {{directory: /nowhere/ca}}}}, requests: {{usages: [any], maxDuration: 24h, \
             dnsNames: [{names}], uris: ['spiffe://a/*'], approval: {who}}}}}]}}"
        )
    };
    let two = "{automatic: {users: ['system:node:a', 'system:node:b']}}";
    let both = "dnsNames *.a.b, uris spiffe://a/*";
    let table = [
        ("'*.a.b', c.a.b", two, Some(both)),
        ("'*.a.b'", "{automatic: {groups: ['system:nodes']}}", Some(both)),
        ("'{node}.a.b', '*.{node}.a.b'", two, Some("uris spiffe://a/*")),
        ("'*.a.b'", "{automatic: {users: ['system:node:a']}}", None),
        ("'*.a.b'", "manual", None),
    ];
    for (names, who, shared) in table {
        let text = text(names, who);
        let SignersConfig { signers, .. } = SignersConfig::parse(Path::new("signers.yaml"), &text).unwrap();
        let known = LocalSigner { ca: SignerCa::Elsewhere, ..LocalSigner::custom(&signers[0]) };
        let facts = CheckInputs {
            bad_file: None,
            known: vec![known],
            server: Err(SnapshotError::NotRequested),
            own: Vec::new(),
        };
        let wanted = shared.map(|shared| {
            format!(
                "warning a.b/c: several requesters share {shared}: each can obtain the others' names; \
                 tie names to the requester, for example {{node}}.example.com"
            )
        });
        assert_eq!(finding_lines(&facts), Vec::from_iter(wanted), "{names} {who}");
    }
}

fn test_authority(name: &str) -> CertificateAuthority {
    let validity = Validity::new(NOW - Span::DAY, NOW + Span::days(99)).unwrap();
    windlass_testkit::ca_with_validity(name, validity)
}

/// Returns a request with a certificate of this CA that expires after this time.
fn issued(name: &str, ca: &CertificateAuthority, left: Span) -> SignerRequest {
    let key = PrivateKey::generate().unwrap();
    let issued = issue_certificate(
        ca,
        &CertificateTemplate {
            subject: IssuedSubject::new("leaf", &[]),
            alt_names: windlass_pki::AltNames::default(),
            usages: CertificateUsages::from_names(&["digital signature", "server auth"]).unwrap(),
            validity: Validity::new(NOW - Span::HOUR, NOW + left).unwrap(),
            public_key: &SubjectKey::from_der(key.public_key().as_der()).unwrap(),
            serial: Serial::random(&SystemRandom::new()).unwrap(),
            crl_distribution_points: Vec::new(),
        },
    );
    let chain = Some(issued.unwrap().to_pem());
    SignerRequest { chain, ..signer_request(name, Api::Request, RequestState::Issued, 50) }
}

/// Both leaves come from a CA whose anchor was removed from the bundle; earlier versions reported
/// nothing.
#[test]
fn certificates_without_a_published_anchor_are_reported() {
    let (old, new) = (test_authority("ca"), test_authority("ca"));
    let der = |ca: &CertificateAuthority| ca.certificate().der().to_vec();
    let facts_with = |anchors: Vec<Vec<u8>>, asked: Vec<SignerRequest>| {
        let ca = with_files(files(Span::days(99)), |files| files.anchor = der(&new));
        let mut facts = facts(ca);
        let seen = facts.server.as_mut().unwrap();
        seen.bundles[0].anchors = anchors;
        seen.requests = asked;
        facts
    };
    let leaves = || {
        vec![
            issued("one", &old, Span::hours(22)),
            issued("two", &old, Span::hours(23)),
            issued("three", &new, Span::hours(23)),
            issued("expired", &old, -Span::SECOND),
        ]
    };
    assert_eq!(finding_lines(&facts_with(vec![der(&new), der(&old)], leaves())), [""; 0]);
    let lost = "error a.b/c: certificates issued under a CA whose trust anchor is not published: 2, \
                the last one (two) expires at 2026-06-02T11:00:00Z; renew them, or publish the \
                anchor again";
    assert_eq!(finding_lines(&facts_with(vec![der(&new)], leaves())), [lost]);
    // For a signer that publishes nothing, the distribution of trust is unknown.
    let elsewhere = SignerRequest { signer: "x.y/z".into(), ..issued("one", &old, Span::HOUR) };
    assert_eq!(finding_lines(&facts_with(vec![der(&new)], vec![elsewhere])), [""; 0]);
}

#[test]
fn a_ca_waiting_for_nodes_is_reported() {
    let held = |hold_until: Option<OffsetDateTime>, lacking: &[&str]| {
        let mut facts = facts(files(Span::days(99)));
        let bundle = &mut facts.server.as_mut().unwrap().bundles[0];
        let name: String =
            windlass_pki::fingerprint(b"anchor").iter().map(|byte| format!("{byte:02x}")).collect();
        bundle.records =
            AnchorRecords::from([(name, AnchorRecord { hold_until, ..AnchorRecord::default() })]);
        bundle.lacking = lacking.iter().map(|node| (*node).to_owned()).collect();
        finding_lines(&facts)
    };
    assert_eq!(held(None, &[]), [""; 0]);
    assert_eq!(held(Some(NOW), &["n1"]), [""; 0]);
    let waits = "error a.b/c: the CA of ca.crt does not sign yet; waiting for delivery of its trust anchor until 2026-06-01T12:01:00Z;";
    let minute = Some(NOW + Span::MINUTE);
    assert_eq!(held(minute, &[]), [format!("{waits} no reporting node lacks it")]);
    assert_eq!(held(minute, &["n1"]), [format!("{waits} nodes without it: 1 (n1)")]);
    let many = held(minute, &["1", "2", "3", "4", "5", "6"]);
    assert_eq!(many, [format!("{waits} nodes without it: 6 (1, 2, 3, 4, 5, …)")]);
}
