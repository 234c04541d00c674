//! Many watchers of one kind, each with its own connection: time until an update reaches the last
//! one, and the server's cost per watcher.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol, self_signed_ca};

use super::BenchContext;
use super::server::ServerProcess;
use super::table::{LatencyDistribution, ResultTable, TableRow};

/// Certificates in a small bundle, of about 3 KiB.
const SMALL: usize = 5;

/// Certificates in a large bundle, of about 90 KiB.
const LARGE: usize = 140;

/// Collection that all watchers watch.
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
const WATCHED: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles/watched";

/// Number of concurrent connection setups: enough to keep both sides busy, few enough that none
/// waits long in the listen queue.
const SETUPS: usize = 64;

/// Parameters and reference values of one watch measurement.
struct WatcherScenario {
    watchers: usize,
    /// Number of certificates in the watched bundle.
    certificates: usize,
    /// Milliseconds from update to last watcher; KiB per watcher; CPU seconds per update.
    reference: [Option<f64>; 3],
}

/// Measures every scenario, each on a fresh server.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let crowd = |watchers, certificates, reference| WatcherScenario { watchers, certificates, reference };
    let crowds = if let Some(watchers) = bench.args.watchers {
        vec![crowd(watchers, SMALL, [None; 3])]
    } else if bench.args.quick {
        vec![crowd(200, SMALL, [None; 3]), crowd(50, LARGE, [None; 3])]
    } else {
        vec![
            crowd(5_000, SMALL, [Some(147.0), Some(70.0), Some(0.17)]),
            crowd(2_000, LARGE, [Some(347.0), None, None]),
            crowd(9_000, SMALL, [Some(283.0), None, None]),
        ]
    };
    for crowd in crowds {
        measure_crowd(bench, table, &crowd).await?;
    }
    Ok(())
}

async fn measure_crowd(bench: &BenchContext, table: &mut ResultTable, crowd: &WatcherScenario) -> Result<()> {
    let count = crowd.watchers;
    raise_file_limit(count as u64 + 256)?;
    let bundle = bundle(crowd.certificates)?;
    let title = format!("{count} watchers, {:.1} KiB", bundle.len() as f64 / 1_024.0);
    let data = bench.scratch.join(format!("watchers-{count}-{}", crowd.certificates));
    let server = ServerProcess::start(bench, &data).await?;
    let mut updater = server.client.connect_with(HttpProtocol::Http1).await?;
    let mut version = String::new();
    // The first updates are warm-up, so that one-time setup is not counted per watcher.
    for round in 0..5 {
        let answer = if round == 0 {
            updater.expect(Method::POST, BUNDLES, bundle.clone()).await?
        } else {
            updater.expect(Method::PATCH, WATCHED, change(round)).await?
        };
        version = resource_version(&answer)?;
    }
    sleep(Duration::from_millis(500)).await;
    let before = server.process.resident_memory()?;

    let (notified, mut all_notified) = mpsc::unbounded_channel();
    let connected = Instant::now();
    let streams =
        connect(&server.client, count, &format!("{BUNDLES}?watch=true&resourceVersion={version}")).await?;
    let connecting = connected.elapsed();
    let arrived = Arc::new(AtomicUsize::new(0));
    let mut readers = JoinSet::new();
    for stream in streams {
        readers.spawn(read(stream, arrived.clone(), count, notified.clone()));
    }
    sleep(Duration::from_secs(1)).await;
    let idle = server.process.resident_memory()?;

    let rounds = if bench.args.quick { 3 } else { 11 };
    let cpu_before = server.process.cpu_seconds()?;
    let mut samples = Vec::new();
    for round in 0..rounds {
        let took = update_and_wait(&mut updater, change(100 + round), &mut all_notified, &mut readers).await;
        samples.push(took.with_context(|| {
            format!("round {round}: {} events arrived in all", arrived.load(Ordering::SeqCst))
        })?);
    }
    let cpu = (server.process.cpu_seconds()? - cpu_before) / rounds as f64;
    let after = server.process.resident_memory()?;

    let [time, memory, seconds] = crowd.reference;
    let per_watcher = |resident: u64| resident.saturating_sub(before) as f64 / 1_024.0 / count as f64;
    let spread = LatencyDistribution::from_samples(samples)?;
    let row = TableRow::lower(format!("{title}: update to last watcher"), spread.millis(0.5), "ms")
        .with_note(format!(
            "median of {rounds}, max {:.0} ms; connected in {:.1} s",
            spread.millis(1.0),
            connecting.as_secs_f64()
        ));
    table.add(referenced(row, time));
    let row = TableRow::lower(format!("{title}: memory each"), per_watcher(after), "KiB")
        .with_note(format!("after {rounds} updates; {:.1} KiB before the first", per_watcher(idle)));
    table.add(referenced(row, memory));
    let row = TableRow::lower(format!("{title}: server CPU per update"), cpu, "s");
    table.add(referenced(row, seconds));
    readers.shutdown().await;
    drop(server);
    Ok(())
}

/// Returns a trust bundle with this many CAs.
fn bundle(certificates: usize) -> Result<Bytes> {
    let mut anchors = String::new();
    for number in 0..certificates {
        let ca = self_signed_ca(&format!("bench-authority-{number}"));
        anchors.push_str(&ca.certificate().to_pem());
    }
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": "watched"},
        "spec": {"trustBundle": anchors},
    });
    Ok(bundle.to_string().into())
}

/// Returns a change that every watcher sees; the trust anchors stay.
fn change(round: u64) -> Bytes {
    format!(r#"{{"metadata":{{"annotations":{{"example.com/round":"{round:06}"}}}}}}"#).into()
}

fn referenced(row: TableRow, reference: Option<f64>) -> TableRow {
    match reference {
        Some(value) => row.reference(value),
        None => row,
    }
}

/// Updates once and waits until every watcher has the whole event.
async fn update_and_wait(
    updater: &mut HttpConnection,
    body: Bytes,
    all_notified: &mut mpsc::UnboundedReceiver<Instant>,
    readers: &mut JoinSet<Result<()>>,
) -> Result<Duration> {
    let sent = Instant::now();
    updater.expect(Method::PATCH, WATCHED, body).await?;
    tokio::select! {
        last = timeout(Duration::from_secs(30), all_notified.recv()) => {
            let last = last.context("not all watchers received the update within 30 s")?;
            Ok(last.context("no watcher is left")?.duration_since(sent))
        }
        Some(ended) = readers.join_next() => {
            ended??;
            bail!("a watch ended");
        }
    }
}

/// Opens all watches, some at a time.
async fn connect(client: &HttpClient, count: usize, path: &str) -> Result<Vec<Incoming>> {
    let places = Arc::new(Semaphore::new(SETUPS));
    let path: Arc<str> = path.into();
    let mut setups = JoinSet::new();
    for _ in 0..count {
        let (client, path, places) = (client.clone(), path.clone(), places.clone());
        setups.spawn(async move {
            let _place = places.acquire().await?;
            let mut connection = client.connect_with(HttpProtocol::Http1).await?;
            let response = connection.start(Method::GET, &path, Bytes::new()).await?;
            ensure!(response.status().is_success(), "watch: {}", response.status());
            Ok(response.into_body())
        });
    }
    let mut streams = Vec::with_capacity(count);
    while let Some(stream) = setups.join_next().await {
        streams.push(stream??);
        if streams.len().is_multiple_of(1_000) {
            eprintln!("bench:   {} of {count} watchers", streams.len());
        }
    }
    Ok(streams)
}

/// Reads one watch. Encoded JSON contains no line feed, so each one ends an event.
async fn read(
    mut stream: Incoming,
    arrived: Arc<AtomicUsize>,
    watchers: usize,
    notified: mpsc::UnboundedSender<Instant>,
) -> Result<()> {
    while let Some(frame) = stream.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        for _ in data.iter().filter(|byte| **byte == b'\n') {
            // Rounds are sequential, so a multiple of the watcher count means all have it.
            if (arrived.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(watchers) {
                notified.send(Instant::now()).ok();
            }
        }
    }
    Ok(())
}

/// Raises the file limit: both processes need one file per connection, and the server inherits the
/// limit.
pub fn raise_file_limit(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum
        && maximum < wanted
    {
        bail!(
            "{wanted} open files are needed and at most {maximum} are allowed: raise `ulimit -Hn`, or use --watchers"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum.or(Some(wanted)), maximum: limit.maximum })?;
    Ok(())
}

fn resource_version(object: &[u8]) -> Result<String> {
    let object: serde_json::Value = serde_json::from_slice(object)?;
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.context("the answer has no resourceVersion")?.to_owned())
}
