use http::Request;
use serde_json::Value;

use super::*;
use crate::server::system_clock;

/// Returns an audit log in a temporary directory, and its file.
fn audit() -> (AuditLog, std::path::PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    (AuditLog::to_file(&path, LogRotation::default(), system_clock()).unwrap(), path, dir)
}

fn parts() -> Parts {
    Request::get("/api/v1/pods").body(()).unwrap().into_parts().0
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn both_users_are_named_when_one_acts_as_the_other() {
    let (audit, path, _dir) = audit();
    let (peer, parts, id) = (Peer::local(User::anonymous()), parts(), HeaderValue::from_static("i"));
    let clock = system_clock();
    let mut record = audit.begin(&peer, &parts, &id, &clock);
    let mut user = User::authenticated("admin", "", vec![]);
    user.extra.insert("example.org/k".into(), vec!["v".into()]);
    record.user = Some(Arc::new(user));
    record.impersonated = Some(Arc::new(User::authenticated("alice", "u", vec!["dev".into()])));
    record.failed(&Error::Timeout);
    record.complete().await;
    drop(record);
    drop(audit);
    let event = lines(&path).remove(0);
    assert_eq!(event["user"]["extra"], serde_json::json!({"example.org/k": ["v"]}));
    assert_eq!(event["impersonatedUser"]["username"], "alice");
    assert_eq!(event["impersonatedUser"]["uid"], "u");
    assert_eq!(event["responseStatus"]["code"], 504);
}

/// More tasks than threads write more events than the queue holds; none may be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_rather_than_go_unseen() {
    let (audit, path, _dir) = audit();
    let audit = Arc::new(audit);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..40 {
        let audit = audit.clone();
        tasks.spawn(async move {
            let (peer, parts, clock) = (Peer::local(User::anonymous()), parts(), system_clock());
            for number in 0..500 {
                let id = HeaderValue::from_str(&format!("{task}-{number}")).unwrap();
                let mut record = audit.begin(&peer, &parts, &id, &clock);
                record.user = Some(Arc::new(User::authenticated("jane", "", vec![])));
                record.failed(&Error::Timeout);
                record.complete().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    drop(audit);
    let mut ids: Vec<String> = lines(&path).iter().map(|e| e["auditID"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20_000);
}

#[tokio::test]
async fn events_after_close_are_counted_as_lost() {
    let (audit, path, _dir) = audit();
    audit.close();
    let (peer, parts, id) = (Peer::local(User::anonymous()), parts(), HeaderValue::from_static("i"));
    let clock = system_clock();
    let mut record = audit.begin(&peer, &parts, &id, &clock);
    record.panicked();
    record.complete().await;
    let metrics = MetricsRegistry::new();
    audit.register_metrics(&metrics);
    let text = metrics.encode();
    assert!(text.contains("apiserver_audit_error_total{plugin=\"log\"} 1\n"), "{text}");
    assert!(lines(&path).is_empty());
}

#[test]
fn disabled_audit_records_nothing() {
    let audit = AuditLog::default();
    let (peer, parts, id) = (Peer::local(User::anonymous()), parts(), HeaderValue::from_static("i"));
    let clock: Clock = Arc::new(|| panic!("the clock is not even read"));
    let mut record = audit.begin(&peer, &parts, &id, &clock);
    record.failed(&Error::Timeout);
    assert!(record.open.is_none() && record.line.is_none());
}
