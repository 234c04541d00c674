use tempfile::TempDir;

use windlass_runtime::file_lock::LockError;

use super::*;
use crate::csr::CsrStage;
use crate::node_certificates::{CertificateFailure, FailureCause, ManagerActivity};
use crate::status_file::AgentStatus;
use crate::testing::{START, client_identity, report};

fn test_options() -> (TempDir, AgentOptions) {
    let place = tempfile::tempdir().unwrap();
    let options = AgentOptions {
        node_name: "n1".into(),
        ..AgentOptions::new(place.path().join("kubeconfig"), place.path().join("pki"))
    };
    (place, options)
}

#[tokio::test]
async fn a_missing_credential_is_reported_with_the_remedy() {
    let (place, options) = test_options();
    let options = AgentOptions {
        bootstrap_kubeconfig: Some(place.path().join("bootstrap")),
        patience: Duration::from_millis(500),
        ..options
    };
    let (_down, shutdown) = watch::channel(false);
    let error = run(options, shutdown).await.unwrap_err().to_string();
    for part in ["no client certificate after", "put a kubeconfig", "bootstrap does not exist"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let status = AgentStatus::read(&place.path().join("pki")).unwrap().unwrap();
    assert_eq!(status.certificates[0].error.as_ref().unwrap().reason, "NoCredential");
}

#[tokio::test]
async fn it_stops_on_shutdown_and_locks_its_directory() {
    let (place, options) = test_options();
    let (down, shutdown) = watch::channel(false);
    let pki = place.path().join("pki");
    let running = tokio::spawn(run(options, shutdown.clone()));
    while !crate::status_file::is_running(&pki).unwrap() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let other = AgentOptions { node_name: "n1".into(), ..AgentOptions::new("k".into(), pki.clone()) };
    let error = run(other, shutdown).await.unwrap_err();
    assert!(matches!(error, RunError::Lock(LockError::Held { .. })), "{error}");
    down.send_replace(true);
    running.await.unwrap().unwrap();
    assert!(!crate::status_file::is_running(&pki).unwrap());
}

#[tokio::test]
async fn a_certificate_on_disk_is_enough_to_begin() {
    let (place, options) = test_options();
    let store = CertStore::new(&options.cert_dir, CertificatePurpose::Client.prefix(), FileSystem::default());
    let from = OffsetDateTime::now_utc() - time::Duration::hours(1);
    store.save(&client_identity(from), from).unwrap();
    let server = "https://127.0.0.1:1";
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, users: [], \
         clusters: [{{name: k, cluster: {{server: '{server}'}}}}], \
         contexts: [{{name: c, context: {{cluster: k}}}}]}}"
    );
    std::fs::write(place.path().join("kubeconfig"), kubeconfig).unwrap();
    let (down, shutdown) = watch::channel(false);
    let running = tokio::spawn(run(options, shutdown));
    let status = loop {
        let status = AgentStatus::read(&place.path().join("pki")).unwrap();
        if let Some(status) = status.filter(|status| status.registration.error.is_some()) {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let problem = status.registration.error.unwrap();
    assert_eq!(problem, format!("{server}: connection refused"));
    assert!(status.certificates[0].current.is_some());
    down.send_replace(true);
    running.await.unwrap().unwrap();
}

#[test]
fn a_node_is_ready_with_a_certificate_and_a_heartbeat() {
    let beat = |seconds| NodeRegistration {
        heartbeat: Some(START - time::Duration::seconds(seconds)),
        problem: Some("gone".into()),
        ..NodeRegistration::default()
    };
    let good = Some(START + time::Duration::hours(1));
    let table = [
        (good, beat(0), Ok(())),
        (good, beat(40), Ok(())),
        (good, beat(41), Err("no heartbeat: gone")),
        (good, NodeRegistration::default(), Err("no heartbeat: not yet registered")),
        (good, NodeRegistration { kubelet: true, ..NodeRegistration::default() }, Ok(())),
        (None, beat(0), Err("no client certificate: renewal is not due yet")),
        (
            Some(START - time::Duration::seconds(1)),
            beat(0),
            Err("the client certificate has expired: renewal is not due yet"),
        ),
    ];
    for (expires, registration, wanted) in table {
        let found = readiness(&report(CertificatePurpose::Client, expires), &registration, START);
        assert_eq!(found, wanted.map_err(str::to_owned), "{expires:?} {registration:?}");
    }
}

#[test]
fn pending_request_takes_precedence_over_earlier_failure() {
    let trouble =
        Some(CertificateFailure { cause: FailureCause::Unreachable, message: "nobody there".into() });
    let waiting = ManagerActivity::Waiting { request: "r".into(), stage: CsrStage::Signature, since: START };
    let pausing = ManagerActivity::Pausing { until: START };
    for (doing, trouble, wanted) in [
        (waiting, trouble.clone(), "r has been waiting to be signed since 2026-03-01T12:00:00Z"),
        (pausing.clone(), trouble, "nobody there"),
        (pausing, None, "retrying at 2026-03-01T12:00:00Z"),
    ] {
        let report = NodeCertificateReport { doing, trouble, ..report(CertificatePurpose::Client, None) };
        assert_eq!(failure_message(&report), wanted);
    }
}
