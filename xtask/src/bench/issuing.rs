//! Node certificates, from sending the request until a watch sees the certificate: created,
//! auto-approved, signed, and every step durable.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol};

use super::BenchContext;
use super::access::post;
use super::server::{READER, ServerProcess};
use super::table::{LatencyDistribution, ResultTable, TableRow};
use super::watchers::raise_file_limit;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Number of clients in the burst, each with its own connection.
pub const CLIENTS: usize = 32;

/// Number of concurrent connection setups.
const SETUPS: usize = 64;

/// Timeout for a single certificate.
const PATIENCE: Duration = Duration::from_secs(120);

/// Delay that an overloaded server asks for.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Measures a burst from few clients, and many nodes that start at once.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let (burst, nodes) = if bench.args.quick { (200, 200) } else { (1_000, 5_000) };
    measure_burst(bench, table, burst).await?;
    measure_backlog(bench, table, nodes).await?;
    measure_nodes(bench, table, nodes).await
}

/// Measures requests from few clients at full speed; one watch sees them all.
async fn measure_burst(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    let server = start(bench, "issuing-burst").await?;
    let nodes = [server.client.with_token(READER)];
    // Warms up, so that one-time setup is not measured.
    burst(&server.client, &nodes, "warm", 64).await?;
    let before = server.process.cpu_seconds()?;
    let (took, samples) = burst(&server.client, &nodes, "node", count).await?;
    let cpu = (server.process.cpu_seconds()? - before) * 1_000_000.0 / count as f64;
    let spread = LatencyDistribution::from_samples(samples)?;
    let title = format!("burst of {count} node certificates");
    let rate = count as f64 / took.as_secs_f64();
    table.add(
        TableRow::higher(format!("{title}: issued"), rate, "/s").reference(160.0).with_note(format!(
            "{CLIENTS} clients; {cpu:.0} us of the server's CPU each; the bar is 1,500/s"
        )),
    );
    table.add(TableRow::lower(format!("{title}: p50"), spread.millis(0.5), "ms").reference(2_700.0));
    table.add(
        TableRow::lower(format!("{title}: p99"), spread.millis(0.99), "ms")
            .reference(4_600.0)
            .with_note("the bar is 1 s"),
    );
    server.stop()
}

/// Measures requests of many nodes through few connections: the cost of the certificates alone.
async fn measure_backlog(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    let server = start(bench, "issuing-backlog").await?;
    let nodes = [server.client.with_token(READER)];
    let (took, _) = burst(&server.client, &nodes, "node", count).await?;
    let title = format!("{count} requests of nodes, {CLIENTS} clients");
    table.add(TableRow::lower(format!("{title}: all issued"), took.as_secs_f64(), "s"));
    table.add(
        TableRow::lower(format!("{title}: the server's memory, at most"), mebibytes(&server)?, "MiB")
            .with_note("the bar is 100 MiB"),
    );
    server.stop()
}

fn mebibytes(server: &ServerProcess) -> Result<f64> {
    Ok(server.process.peak_memory()? as f64 / f64::from(1 << 20))
}

/// Measures realistic nodes: each has a connection, sends its request on it, and watches that
/// request.
async fn measure_nodes(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    raise_file_limit(count as u64 + 256)?;
    let server = start(bench, "issuing-nodes").await?;
    let client = server.client.with_token(READER);
    let connections = connect(&client, count).await?;
    let connected = server.process.resident_memory()? as f64 / f64::from(1 << 20);
    let together = Arc::new(Barrier::new(count + 1));
    let mut nodes = JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let together = together.clone();
        nodes.spawn(async move {
            together.wait().await;
            let began = Instant::now();
            timeout(PATIENCE, bootstrap(connection, &format!("node-{number}")))
                .await
                .with_context(|| format!("node {number} has no certificate"))??;
            anyhow::Ok(began.elapsed())
        });
    }
    together.wait().await;
    let began = Instant::now();
    let mut samples = Vec::with_capacity(count);
    while let Some(node) = nodes.join_next().await {
        samples.push(node??);
    }
    let took = began.elapsed();
    let peak = mebibytes(&server)?;
    let spread = LatencyDistribution::from_samples(samples)?;
    let title = format!("{count} nodes at once");
    table.add(
        TableRow::lower(format!("{title}: all have certificates"), took.as_secs_f64(), "s")
            .with_note(format!("p50 {:.0} ms, p99 {:.0} ms", spread.millis(0.5), spread.millis(0.99))),
    );
    table.add(
        TableRow::lower(format!("{title}: the server's memory, at most"), peak, "MiB").with_note(format!(
            "a TLS connection and a watch of each node; {connected:.0} MiB when connected"
        )),
    );
    server.stop()
}

/// Starts a server on which one user may have node certificates auto-approved.
async fn start(bench: &BenchContext, name: &str) -> Result<ServerProcess> {
    let server = ServerProcess::start(bench, &bench.scratch.join(name)).await?;
    allow(&server.client).await?;
    Ok(server)
}

/// Allows auto-approval of one user's node certificates.
pub async fn allow(admin: &HttpClient) -> Result<()> {
    let roles =
        ["system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"];
    for role in roles {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("bench:{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
        });
        post(admin, "clusterrolebindings", &binding).await?;
    }
    Ok(())
}

/// Sends requests from clients spread over `nodes`; a watch of `admin` sees all certificates.
/// Returns the total time and the latencies.
pub async fn burst(
    admin: &HttpClient,
    nodes: &[HttpClient],
    prefix: &str,
    count: usize,
) -> Result<(Duration, Vec<Duration>)> {
    let mut watch = admin.connect_with(HttpProtocol::Http1).await?;
    let path = format!("{REQUESTS}?watch=true&fieldSelector=spec.signerName%3D{SIGNER}");
    let stream = watch.start(Method::GET, &path, Bytes::new()).await?.into_body();
    let seen = tokio::spawn(observe_certificates(stream, prefix.to_owned(), count));
    let mut connections = Vec::new();
    for node in nodes.iter().cycle().take(CLIENTS) {
        connections.push(node.connect_with(HttpProtocol::Http1).await?);
    }
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for (worker, mut connection) in connections.into_iter().enumerate() {
        let prefix = prefix.to_owned();
        workers.spawn(async move {
            let mut sent = Vec::new();
            for number in (worker..count).step_by(CLIENTS) {
                let name = format!("{prefix}-{number}");
                let body = request(&name);
                sent.push((name, Instant::now()));
                connection.expect(Method::POST, REQUESTS, body).await?;
            }
            anyhow::Ok(sent)
        });
    }
    let mut sent = Vec::with_capacity(count);
    while let Some(worker) = workers.join_next().await {
        sent.extend(worker??);
    }
    let seen = timeout(PATIENCE, seen).await.context("not all certificates were seen")???;
    let mut samples = Vec::with_capacity(count);
    let mut last = began;
    for (name, at) in sent {
        let seen = *seen.get(&name).with_context(|| format!("{name} was not seen"))?;
        last = last.max(seen);
        samples.push(seen.duration_since(at));
    }
    Ok((last.duration_since(began), samples))
}

/// Records when each request's certificate was first seen.
async fn observe_certificates(
    mut stream: Incoming,
    prefix: String,
    count: usize,
) -> Result<HashMap<String, Instant>> {
    let mut seen = HashMap::with_capacity(count);
    let mut rest = BytesMut::new();
    let prefix = format!("\"name\":\"{prefix}-");
    while seen.len() < count {
        for line in lines(&mut stream, &mut rest).await? {
            if has_certificate(&line)
                && let Some(name) = event_name(&line, &prefix)
            {
                seen.entry(name).or_insert_with(Instant::now);
            }
        }
    }
    Ok(seen)
}

/// Requests a certificate and waits for it, like a kubelet.
async fn bootstrap(mut connection: HttpConnection, name: &str) -> Result<()> {
    loop {
        let (status, answer) = connection.fetch(Method::POST, REQUESTS, request(name)).await?;
        match status {
            StatusCode::CREATED => break,
            // Every Kubernetes client waits for Retry-After and retries.
            StatusCode::TOO_MANY_REQUESTS => tokio::time::sleep(RETRY_AFTER).await,
            _ => bail!("{status}: {}", String::from_utf8_lossy(&answer)),
        }
    }
    let path = format!("{REQUESTS}?watch=true&fieldSelector=metadata.name%3D{name}");
    let answer = connection.start(Method::GET, &path, Bytes::new()).await?;
    ensure!(answer.status().is_success(), "watch: {}", answer.status());
    let (mut stream, mut rest) = (answer.into_body(), BytesMut::new());
    loop {
        if lines(&mut stream, &mut rest).await?.iter().any(has_certificate) {
            return Ok(());
        }
    }
}

/// Returns the lines completed by the next chunk of a stream.
async fn lines(stream: &mut Incoming, rest: &mut BytesMut) -> Result<Vec<Bytes>> {
    let Some(frame) = stream.frame().await else { bail!("a watch ended") };
    if let Ok(data) = frame?.into_data() {
        rest.extend_from_slice(&data);
    }
    let mut lines = Vec::new();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
        lines.push(rest.split_to(at + 1).freeze());
    }
    Ok(lines)
}

fn has_certificate(event: &Bytes) -> bool {
    const FIELD: &[u8] = b"\"certificate\":\"";
    event.windows(FIELD.len()).any(|window| window == FIELD)
}

/// Returns the object's name, which begins with `prefix`; managed fields have no such names.
fn event_name(event: &Bytes, prefix: &str) -> Option<String> {
    let text = std::str::from_utf8(event).ok()?;
    let at = text.find(prefix)? + "\"name\":\"".len();
    text.get(at..)?.split('"').next().map(str::to_owned)
}

async fn connect(client: &HttpClient, count: usize) -> Result<Vec<HttpConnection>> {
    let places = Arc::new(Semaphore::new(SETUPS));
    let mut setups = JoinSet::new();
    for _ in 0..count {
        let (client, places) = (client.clone(), places.clone());
        setups.spawn(async move {
            let _place = places.acquire().await?;
            let mut connection = client.connect_with(HttpProtocol::Http1).await?;
            connection.expect(Method::GET, "/readyz", Bytes::new()).await?;
            anyhow::Ok(connection)
        });
    }
    let mut connections = Vec::with_capacity(count);
    while let Some(connection) = setups.join_next().await {
        connections.push(connection??);
    }
    Ok(connections)
}

/// Creates a node's request; the server verifies its signature every time.
fn request(name: &str) -> Bytes {
    let pem = include_str!("issuing/node.csr");
    let request = STANDARD.encode(pem);
    format!(
        r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"{name}"}},"spec":{{"request":"{request}","signerName":"{SIGNER}","usages":["digital signature","client auth"]}}}}"#
    )
    .into()
}
