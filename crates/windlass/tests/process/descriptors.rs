//! A server with few file descriptors and more idle anonymous connections than descriptors.

use std::process::Command;

use hyper::Method;
use serde_json::Value;
use windlass_testkit::poll_until_async;

use crate::server::{TestDataDir, TestServer};

/// Both limits of the server, so that it cannot raise the soft limit.
const FILES: usize = 256;
const IDLE: usize = 2 * FILES;

fn start() -> TestServer {
    let place = TestDataDir::new();
    let up = place.up_command("127.0.0.1:0");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" \"$@\"")]);
    command.arg(up.get_program()).args(up.get_args());
    place.launch(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_use_up_the_descriptors() {
    let server = start();
    let http = server.http();
    let mut before = http.connect().await.unwrap();
    let mut ready = async || before.request(Method::GET, "/readyz", &Value::Null).await.unwrap().0;
    assert_eq!(ready().await, 200);
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(http.connect_tls().await.unwrap());
    }
    // An existing client, new clients, and requests that open files.
    assert_eq!(ready().await, 200);
    let maps = "/api/v1/namespaces/default/configmaps";
    for number in 0..20 {
        let map = serde_json::json!({"metadata": {"name": format!("map-{number}")}});
        let (code, answer) = http.request(Method::POST, maps, map).await;
        assert_eq!(code, 201, "{answer}");
    }
    let open = poll_until_async("descriptors are not closed", async || {
        let (_, text) = before.request(Method::GET, "/metrics", &Value::Null).await.unwrap();
        let text = text.as_str().unwrap().to_owned();
        let open = text.lines().find_map(|line| line.strip_prefix("process_open_fds "));
        let open: usize = open.unwrap().parse().unwrap();
        assert!(text.contains("windlass_server_accept_errors_total 0\n"), "{text}");
        (open < FILES - 32).then_some(open)
    })
    .await;
    assert!(open > FILES / 4, "{open} descriptors are open");
    let log = server.place().log();
    let lines = log.lines().filter(|line| line.contains("accept") || line.contains("refused"));
    assert!(lines.count() <= 1, "{log}");
}
