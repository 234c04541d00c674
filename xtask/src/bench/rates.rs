//! Requests per second with sixteen clients, each with its own connection.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use tokio::task::JoinSet;
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol};

use super::BenchContext;
use super::server::ServerProcess;
use super::table::{LatencyDistribution, ResultTable, TableRow};

/// Namespace of the objects that a group creates.
pub const NAMESPACE: &str = "bench";

/// Namespace that contains exactly as many objects as a list should return.
const LISTED: &str = "bench-listed";

const CLIENTS: usize = 16;

/// Measures every verb in turn on one server.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let server = ServerProcess::start(bench, &bench.scratch.join("rates")).await?;
    prepare(&server).await?;
    verbs(bench, table, std::slice::from_ref(&server.client), "").await?;
    server.stop()
}

/// Measures every verb in turn, with the clients spread over prepared servers.
pub async fn verbs(
    bench: &BenchContext,
    table: &mut ResultTable,
    clients: &[HttpClient],
    title: &str,
) -> Result<()> {
    let lasts = bench.phase();
    let named = |done: PhaseResult, name: &str| done.into_row(&format!("{title}{name}"));

    let created =
        phase(clients, HttpProtocol::Http1, BenchOperation::Create, &[usize::MAX; CLIENTS], lasts).await?;
    let made = created.done.clone();
    table.add(named(created, "create, 1 KiB ConfigMap")?.reference(900.0));
    let asked =
        phase(clients, HttpProtocol::Http1, BenchOperation::Ask, &[usize::MAX; CLIENTS], lasts).await?;
    table.add(named(asked, "create, CertificateSigningRequest")?.reference(700.0));
    let got = phase(clients, HttpProtocol::Http1, BenchOperation::Get, &made, lasts).await?;
    table.add(named(got, "get")?.reference(2_200.0));
    let got = phase(clients, HttpProtocol::Http2, BenchOperation::Get, &made, lasts).await?;
    table.add(named(got, "get over HTTP/2")?.reference(2_200.0));
    let updated = phase(clients, HttpProtocol::Http1, BenchOperation::GetUpdate, &made, lasts).await?;
    table.add(named(updated, "get and update, pairs")?.reference(530.0));
    let listed = phase(clients, HttpProtocol::Http1, BenchOperation::List, &made, lasts).await?;
    table.add(named(listed, "list of 100")?.reference(520.0));
    let deleted = phase(clients, HttpProtocol::Http1, BenchOperation::Delete, &made, lasts).await?;
    table.add(named(deleted, "delete")?.reference(820.0));
    Ok(())
}

/// Creates the objects that the verbs need.
pub async fn prepare(server: &ServerProcess) -> Result<()> {
    fill(server, LISTED, 100, 1_024).await?;
    fill(server, NAMESPACE, 0, 1_024).await
}

/// Creates a namespace with this many ConfigMaps of this size.
pub async fn fill(server: &ServerProcess, namespace: &str, count: usize, size: usize) -> Result<()> {
    let mut connection = server.client.connect_with(HttpProtocol::Http1).await?;
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
    connection.expect(Method::POST, "/api/v1/namespaces", body.into()).await?;
    let mut workers = JoinSet::new();
    for worker in 0..CLIENTS {
        let client = server.client.clone();
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        workers.spawn(async move {
            let mut connection = client.connect_with(HttpProtocol::Http1).await?;
            for number in (worker..count).step_by(CLIENTS) {
                let body = config_map(&format!("filled-{number}"), size, 0);
                connection.expect(Method::POST, &path, body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// Returns a ConfigMap with a payload of the given size and a counter of fixed width.
pub fn config_map(name: &str, size: usize, count: u64) -> Bytes {
    // Varied letters compress and hash like text.
    let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let payload: String =
        (0..size).map(|index| char::from(alphabet[(index * 7 + index / 31) % alphabet.len()])).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"count":"{count:012}","payload":"{payload}"}}}}"#
    )
    .into()
}

/// Creates a request for a client certificate; the server verifies its signature every time.
fn signing_request(name: &str) -> Bytes {
    let pem = include_str!("../../../crates/server/tests/api/conformance/fixtures/csr-p256.pem");
    let request = STANDARD.encode(pem);
    format!(
        r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"name":"{name}"}},"spec":{{"request":"{request}","signerName":"example.com/bench","usages":["client auth"]}}}}"#
    )
    .into()
}

/// Operation that a client repeats.
#[derive(Clone, Copy)]
enum BenchOperation {
    Create,
    /// Creates a CertificateSigningRequest from a prepared body.
    Ask,
    Get,
    GetUpdate,
    List,
    Delete,
}

impl BenchOperation {
    async fn perform(self, connection: &mut HttpConnection, name: &str, prepared: &Bytes) -> Result<()> {
        let objects = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let object = format!("{objects}/{name}");
        let none = Bytes::new();
        match self {
            Self::Create => {
                let body = renamed(prepared, name);
                connection.expect(Method::POST, &objects, body).await?;
            }
            Self::Ask => {
                let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
                connection.expect(Method::POST, path, renamed(prepared, name)).await?;
            }
            Self::Get => {
                connection.expect(Method::GET, &object, none).await?;
            }
            Self::GetUpdate => {
                let current = connection.expect(Method::GET, &object, none).await?;
                let next = increment_counter(&current)?;
                connection.expect(Method::PUT, &object, next).await?;
            }
            Self::List => {
                let path = format!("/api/v1/namespaces/{LISTED}/configmaps");
                connection.expect(Method::GET, &path, none).await?;
            }
            Self::Delete => {
                connection.expect(Method::DELETE, &object, none).await?;
            }
        }
        Ok(())
    }
}

/// Renames the prepared body without parsing or encoding JSON in the timed loop.
fn renamed(prepared: &Bytes, name: &str) -> Bytes {
    const PLACE: &[u8] = b"NAME";
    let at = find_bytes(prepared, PLACE).unwrap_or(0);
    let mut body = Vec::with_capacity(prepared.len() + name.len());
    body.extend_from_slice(&prepared[..at]);
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(&prepared[at + PLACE.len()..]);
    body.into()
}

fn increment_counter(object: &Bytes) -> Result<Bytes> {
    const BEFORE: &[u8] = b"\"count\":\"";
    let at = find_bytes(object, BEFORE).context("the answer has no counter")? + BEFORE.len();
    let mut next = object.to_vec();
    let Some(digits) = next.get_mut(at..at + 12) else {
        bail!("the counter is cut off");
    };
    let count: u64 = std::str::from_utf8(digits)?.parse()?;
    digits.copy_from_slice(format!("{:012}", count + 1).as_bytes());
    Ok(next.into())
}

fn find_bytes(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Latencies and operation counts of one phase.
struct PhaseResult {
    took: Duration,
    samples: Vec<Duration>,
    /// Number of completed operations, by worker.
    done: Vec<usize>,
}

impl PhaseResult {
    fn into_row(self, name: &str) -> Result<TableRow> {
        let rate = self.samples.len() as f64 / self.took.as_secs_f64();
        let spread = LatencyDistribution::from_samples(self.samples)?;
        Ok(TableRow::higher(name, rate, "/s").with_note(format!(
            "{CLIENTS} clients, p50 {:.2} ms, p99 {:.2} ms",
            spread.millis(0.5),
            spread.millis(0.99)
        )))
    }
}

/// Lets every client repeat an operation on its own objects until the time is over or, if the
/// operation consumes objects, until none are left.
async fn phase(
    clients: &[HttpClient],
    protocol: HttpProtocol,
    op: BenchOperation,
    objects: &[usize],
    lasts: Duration,
) -> Result<PhaseResult> {
    let mut connections = Vec::new();
    for (_, client) in objects.iter().zip(clients.iter().cycle()) {
        connections.push(client.connect_with(protocol).await?);
    }
    let prepared = match op {
        BenchOperation::Ask => signing_request("NAME"),
        _ => config_map("NAME", 1_024, 0),
    };
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for (worker, mut connection) in connections.into_iter().enumerate() {
        let objects = objects[worker];
        let prepared = prepared.clone();
        workers.spawn(async move {
            let mut samples = Vec::new();
            while started.elapsed() < lasts {
                let number = samples.len();
                if matches!(op, BenchOperation::Delete) && number == objects {
                    break;
                }
                let name = format!("made-{worker}-{}", number % objects.max(1));
                let began = Instant::now();
                op.perform(&mut connection, &name, &prepared).await?;
                samples.push(began.elapsed());
            }
            anyhow::Ok((worker, samples))
        });
    }
    let mut done = vec![0; objects.len()];
    let mut all = Vec::new();
    while let Some(worker) = workers.join_next().await {
        let (worker, samples) = worker??;
        done[worker] = samples.len();
        all.extend(samples);
    }
    Ok(PhaseResult { took: started.elapsed(), samples: all, done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_edited_without_parsing() {
        let body = renamed(&config_map("NAME", 16, 8), "made-1-2");
        assert!(body.starts_with(br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made-1-2"}"#));
        let next = increment_counter(&body).unwrap();
        assert!(find_bytes(&next, br#""count":"000000000009""#).is_some());
        assert!(increment_counter(&Bytes::from_static(b"{}")).is_err());
        assert!(increment_counter(&Bytes::from_static(b"\"count\":\"1")).is_err());
    }
}
