//! Tests of the exact texts of conditions and events.

use serde_json::json;
use time::Duration;

use super::*;
use crate::bundles::certificate_set::{CertificateFilter, CertificateSet};
use crate::bundles::fixtures::{self, P256};

fn bundle() -> Bundle {
    fixtures::bundle(json!([{"inLine": "x"}]), json!({"configMap": {"key": "k"}}))
}

fn harvest() -> GatheredCertificates {
    let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
    pool.add(P256.as_bytes()).unwrap();
    GatheredCertificates { certificates: pool, package: Some("pkg-1-00".to_owned()) }
}

fn namespace_filter() -> NamespaceFilter {
    NamespaceFilter::new(None, []).unwrap()
}

fn sources(problem: Option<&str>) -> Vec<SourceStatus> {
    let problem = problem.map(str::to_owned);
    let inline = "inLine".to_owned();
    vec![SourceStatus { source: inline, objects: 0, certificates: 1, problem, ..SourceStatus::default() }]
}

fn failure(kind: TargetKind, namespace: &str) -> TargetFailure {
    let error = format!("failed to patch {kind} {namespace}/bundle: no");
    TargetFailure { kind, namespace: namespace.to_owned(), name: "bundle".to_owned(), error }
}

#[test]
fn reasons_and_messages_are_trust_managers() {
    let harvest = harvest();
    let namespace_filter = namespace_filter();
    let missing = SourceError::NotFound("failed to get ConfigMap a/b: configmaps \"b\" not found".into());
    let bad = SourceError::Build("inline source contains invalid PEM data: x".into());
    let one = [failure(TargetKind::ConfigMap, "ns-1")];
    let several = [
        failure(TargetKind::Secret, "a"),
        failure(TargetKind::ConfigMap, "ns-2"),
        failure(TargetKind::ConfigMap, "ns-1"),
    ];
    let anchors = [failure(TargetKind::ClusterTrustBundle, "")];
    let table = [
        (
            SyncOutcome::Synced { harvest: &harvest, namespace_filter: &namespace_filter, wrote: false },
            ("True", "Synced", "Successfully synced Bundle to all namespaces", false),
        ),
        (
            SyncOutcome::Source(&missing),
            (
                "False",
                "SourceNotFound",
                "Bundle source was not found: failed to get ConfigMap a/b: configmaps \"b\" not found",
                false,
            ),
        ),
        (
            SyncOutcome::Source(&bad),
            (
                "False",
                "SourceBuildError",
                "Failed to build bundle sources: inline source contains invalid PEM data: x",
                true,
            ),
        ),
        (
            SyncOutcome::SecretTargetsDisabled(&harvest),
            (
                "False",
                "SecretTargetsDisabled",
                "Bundle has Secret targets but the feature is disabled",
                false,
            ),
        ),
        (
            SyncOutcome::Targets(&harvest, &one),
            (
                "False",
                "SyncConfigMapTargetFailed",
                "Failed to sync bundle ConfigMap to namespace \"ns-1\": failed to patch ConfigMap \
                 ns-1/bundle: no",
                true,
            ),
        ),
        (
            SyncOutcome::Targets(&harvest, &several),
            (
                "False",
                "SyncConfigMapTargetFailed",
                "Failed to sync bundle ConfigMap to namespace \"ns-1\": failed to patch ConfigMap \
                 ns-1/bundle: no (and 2 more: ConfigMap in namespace \"ns-2\", Secret in namespace \
                 \"a\")",
                true,
            ),
        ),
        (
            SyncOutcome::Targets(&harvest, &anchors),
            (
                "False",
                "SyncClusterTrustBundleTargetFailed",
                "Failed to sync bundle ClusterTrustBundle \"bundle\": failed to patch \
                 ClusterTrustBundle /bundle: no",
                true,
            ),
        ),
    ];
    for (outcome, (status, reason, message, retry)) in table {
        let reported = report(&bundle(), outcome, &sources(None), fixtures::now());
        let want = BundleCondition {
            kind: "Synced".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: "2026-06-01T00:00:00Z".to_owned(),
            observed_generation: Some(2),
        };
        assert_eq!(reported.status.unwrap().conditions, [want]);
        let event = reported.event.unwrap();
        let warning = status == "False";
        assert_eq!((event.reason.as_str(), event.note.as_str()), (reason, message));
        assert_eq!((event.warning, reported.retry), (warning, retry), "{reason}");
        assert_eq!(event.action, if warning { "SyncFailed" } else { "Synced" });
    }
}

#[test]
fn an_unchanged_report_is_not_repeated() {
    let (harvest, namespace_filter) = (harvest(), namespace_filter());
    let outcome =
        |wrote| SyncOutcome::Synced { harvest: &harvest, namespace_filter: &namespace_filter, wrote };
    let mut bundle = bundle();
    let first = report(&bundle, outcome(true), &sources(None), fixtures::now());
    bundle.status = first.status;
    let later = fixtures::now() + Duration::HOUR;
    assert_eq!(report(&bundle, outcome(false), &sources(None), later), StatusReport::default());
    // Targets were written: this causes an event but no status change.
    let again = report(&bundle, outcome(true), &sources(None), later);
    assert!(again.status.is_none() && again.event.is_some());
    // Conditions of other managers are kept.
    let other = BundleCondition { kind: "Deprecated".to_owned(), ..BundleCondition::default() };
    bundle.status.as_mut().unwrap().conditions.insert(0, other);
    assert_eq!(report(&bundle, outcome(false), &sources(None), later), StatusReport::default());
    // Same state in a new generation: the transition time stays.
    bundle.metadata.generation = 3;
    let new = report(&bundle, outcome(false), &sources(None), later).status.unwrap();
    assert_eq!(new.conditions[0].last_transition_time, "2026-06-01T00:00:00Z");
    assert_eq!(new.conditions[0].observed_generation, Some(3));
    // A problem of one source changes the status but causes no event.
    bundle.metadata.generation = 2;
    let new = report(&bundle, outcome(false), &sources(Some("not there")), later);
    assert!(new.status.is_some() && new.event.is_none());
}

#[test]
fn a_failure_leaves_what_the_targets_hold() {
    let (harvest, namespace_filter) = (harvest(), namespace_filter());
    let mut bundle = bundle();
    let good = SyncOutcome::Synced { harvest: &harvest, namespace_filter: &namespace_filter, wrote: true };
    bundle.status = report(&bundle, good, &sources(None), fixtures::now()).status;
    let later = fixtures::now() + Duration::HOUR;
    let missing = SourceError::NotFound("gone".into());
    let reported = report(&bundle, SyncOutcome::Source(&missing), &sources(Some("gone")), later);
    let status = reported.status.unwrap();
    assert_eq!(status.default_ca_version.as_deref(), Some("pkg-1-00"));
    assert_eq!(
        (status.certificates, status.earliest_expiry.as_deref()),
        (Some(1), Some("2056-01-01T00:00:00Z"))
    );
    assert_eq!(status.conditions[0].last_transition_time, "2026-06-01T01:00:00Z");
    assert_eq!(status.sources[0].problem.as_deref(), Some("gone"));
    // The default package is not used any more.
    let without = GatheredCertificates { package: None, ..harvest };
    let good = SyncOutcome::Synced { harvest: &without, namespace_filter: &namespace_filter, wrote: true };
    let status = report(&bundle, good, &sources(None), later).status.unwrap();
    assert_eq!(status.default_ca_version, None);
}

#[test]
fn a_status_is_one_that_the_schema_takes() {
    let (harvest, namespace_filter) = (harvest(), namespace_filter());
    let good = SyncOutcome::Synced { harvest: &harvest, namespace_filter: &namespace_filter, wrote: true };
    let status = report(&bundle(), good, &sources(None), fixtures::now()).status.unwrap();
    let mut body = status_body("bundle", &status, true);
    assert_eq!(
        body["status"],
        json!({
            "conditions": [{
                "type": "Synced", "status": "True", "reason": "Synced", "observedGeneration": 2,
                "message": "Successfully synced Bundle to all namespaces",
                "lastTransitionTime": "2026-06-01T00:00:00Z",
            }],
            "defaultCAVersion": "pkg-1-00",
            "sources": [{"source": "inLine", "objects": 0, "certificates": 1}],
            "certificates": 1,
            "earliestExpiry": "2056-01-01T00:00:00Z",
        })
    );
    body["spec"] = json!({"sources": [{"inLine": "x"}]});
    let errors = windlass_api::trust_bundle::validate(&body);
    assert!(errors.is_empty(), "{errors:?}");
    let plain = status_body("bundle", &status, false);
    let keys: Vec<_> = plain["status"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["conditions", "defaultCAVersion"]);
}

#[test]
fn many_failures_are_summarized() {
    let harvest = harvest();
    let failures: Vec<_> = (0..2000).map(|n| failure(TargetKind::ConfigMap, &format!("ns-{n:04}"))).collect();
    let reported = report(&bundle(), SyncOutcome::Targets(&harvest, &failures), &[], fixtures::now());
    let message = reported.event.unwrap().note;
    assert!(message.contains("(and 1999 more: ConfigMap in namespace \"ns-0001\""), "{message}");
    assert!(message.ends_with(", …)") && message.len() < 1024, "{message}");
    let long = SourceError::Build("ä".repeat(40_000));
    let reported = report(&bundle(), SyncOutcome::Source(&long), &[], fixtures::now());
    assert_eq!(reported.status.unwrap().conditions[0].message.chars().count(), MAX_MESSAGE_CHARS);
}

#[test]
fn other_failures_are_events_only() {
    let table = [
        (
            SyncBlocker::NamespaceSelector("x".into()),
            ("NamespaceSelectorError", "Failed to build namespace match labels selector: x"),
        ),
        (SyncBlocker::NamespaceList("x".into()), ("NamespaceListError", "Failed to list namespaces: x")),
        (
            SyncBlocker::TargetList(TargetKind::ConfigMap, "x".into()),
            ("ConfigMapListError", "Failed to list configmaps: x"),
        ),
    ];
    for (blocker, (reason, note)) in table {
        let event = blocker.event();
        assert_eq!((event.reason.as_str(), event.note.as_str()), (reason, note));
        assert!(event.warning);
    }
}
