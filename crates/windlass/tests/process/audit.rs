//! Audit log of a real process.

use hyper::Method;
use serde_json::{Value, json};

use crate::server::TestDataDir;

/// Every answered request is in the file when the process has exited, even right after the
/// response.
#[tokio::test(flavor = "multi_thread")]
async fn answered_requests_are_logged_at_shutdown() {
    let place = TestDataDir::new();
    let log = place.path().join("logs/audit.log");
    let server = place.start_with(["--audit-log-path".as_ref(), log.as_os_str()]);
    let mut connection = server.http().connect().await.unwrap();
    for number in 0..100 {
        let map = json!({"metadata": {"name": format!("map-{number}")}});
        let path = "/api/v1/namespaces/default/configmaps";
        let (code, answer) = connection.request(Method::POST, path, &map).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }
    let _place = server.stop();
    let text = std::fs::read_to_string(log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours: Vec<Value> = events.filter(|event| event["user"]["username"] == "admin").collect();
    assert_eq!(ours.len(), 100);
    assert_eq!(ours[99]["objectRef"]["name"], "map-99");
    assert!(ours.iter().all(|event| event["sourceIPs"] == json!(["127.0.0.1"])));
}
