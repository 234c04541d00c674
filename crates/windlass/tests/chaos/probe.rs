//! Writes to etcd without a server, to measure outages of etcd itself.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::history::HistoryRecorder;
use crate::traffic::TrafficState;

const PACE: Duration = Duration::from_millis(50);
/// Timeout of a member before the next one is tried.
const LIMIT: Duration = Duration::from_millis(250);

/// Writes a key outside the store, to each member in turn.
pub async fn run(members: Vec<String>, recorder: HistoryRecorder, shared: TrafficState) {
    for url in members.iter().cycle() {
        if shared.stopped() {
            return;
        }
        let address = url.trim_start_matches("http://");
        if matches!(timeout(LIMIT, put(address)).await, Ok(Ok(true))) {
            let now = recorder.now();
            recorder.with(|history| history.probes.push(now));
        }
        sleep(PACE).await;
    }
}

async fn put(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let body = r#"{"key":"L3Byb2Jl"}"#;
    let request = format!("POST /v3/kv/put HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
}
