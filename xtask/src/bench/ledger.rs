//! The ledger of issued certificates: what it costs to record them, and a day of a large cluster in it.

mod records;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use time::OffsetDateTime;
use windlass_ledger::SegmentBuilder;
use windlass_testkit::{HttpClient, HttpProtocol, ledger_segment};

use super::BenchContext;
use super::issuing::{CLIENTS, allow, burst};
use super::server::{READER, ServerProcess};
use super::table::{LatencyDistribution, ResultTable, TableRow};
use records::{SeededLedger, seed};

const SEGMENTS: &str = "/apis/windlass.dev/v1alpha1/ledgersegments";

/// Turns the kind off, so that certificates are issued without a record.
const WITHOUT_LEDGER: &str = "--feature-gates=CertificateLedger=false";

/// Number of times that the command is measured.
const RUNS: usize = 5;

/// Timeout of the leader for reading the ledger.
const PATIENCE: Duration = Duration::from_secs(120);

const MIB: f64 = (1 << 20) as f64;

/// Measures issuance with and without the ledger, and a ledger of 150,000 pods that renewed twice.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    measure_issuance(bench, table).await?;
    measure_large(bench, table, if bench.args.quick { 3_000 } else { 300_000 }).await
}

/// Alternates bursts between two servers that differ in the ledger only.
async fn measure_issuance(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let (rounds, count) = if bench.args.quick { (2, 100) } else { (9, 1_000) };
    let with = ServerProcess::start(bench, &bench.scratch.join("ledger-with")).await?;
    let data = bench.scratch.join("ledger-without");
    let without = ServerProcess::start_with(bench, &data, &[WITHOUT_LEDGER]).await?;
    let mut rates = [Vec::new(), Vec::new()];
    let mut cpu = [0.0, 0.0];
    for server in [&with, &without] {
        allow(&server.client).await?;
        burst(&server.client, &[server.client.with_token(READER)], "warm", 64).await?;
    }
    for round in 0..rounds {
        // Each is first in every other round, in case that matters.
        let mut order = [(0, &with), (1, &without)];
        order.rotate_left(round % 2);
        for (which, server) in order {
            let before = server.process.cpu_seconds()?;
            let nodes = [server.client.with_token(READER)];
            let (took, _) = burst(&server.client, &nodes, &format!("node-{round}"), count).await?;
            rates[which].push(count as f64 / took.as_secs_f64());
            cpu[which] += server.process.cpu_seconds()? - before;
        }
    }
    let recorded = recorded(&with.client).await?.context("the ledger is not served")?;
    ensure!(recorded >= rounds * count, "{recorded} of {} certificates are recorded", rounds * count);
    ensure!(self::recorded(&without.client).await?.is_none(), "the ledger is served");
    let [with_rate, without_rate] = rates.map(median);
    let [with_cpu, without_cpu] = cpu.map(|cpu| cpu * 1_000_000.0 / (rounds * count) as f64);
    let title = format!("bursts of {count} node certificates");
    let note = format!("median of {rounds}, {CLIENTS} clients; {without_cpu:.0} us of the server's CPU each");
    table.add(
        TableRow::higher(format!("{title}, without ledger: issued"), without_rate, "/s").with_note(note),
    );
    let note = format!("in alternation with the row above; {with_cpu:.0} us of the server's CPU each");
    table.add(TableRow::higher(format!("{title}, with ledger: issued"), with_rate, "/s").with_note(note));
    let slower = (1.0 - with_rate / without_rate) * 100.0;
    let row = TableRow::lower(format!("{title}: slower with ledger"), slower, "%");
    table.add(row.with_note("the bar is 15 %"));
    with.stop()?;
    without.stop()
}

/// Counts the entries of all segments, or returns `None` if the kind is not served.
async fn recorded(client: &HttpClient) -> Result<Option<usize>> {
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    let (status, list) = connection.request(Method::GET, SEGMENTS, &Value::Null).await?;
    if status == 404 {
        return Ok(None);
    }
    let items = list["items"].as_array().context("no list")?;
    let count = items.iter().filter_map(|item| item["spec"]["entryCount"].as_u64()).sum::<u64>();
    Ok(Some(usize::try_from(count)?))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Measures a server whose ledger has very many records.
async fn measure_large(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    let now = OffsetDateTime::now_utc();
    let SeededLedger { segments, outstanding } = seed(count, now.unix_timestamp());
    let data = bench.scratch.join("ledger-large");
    let server = ServerProcess::start_alone(bench, &data).await?;
    let title = format!("{count} records");
    let stored = store(&server.client, &segments).await?;
    let note = format!("the bar is 300; {} segments, with base64 and metadata", segments.len());
    let row = TableRow::lower(format!("{title}: at rest, each"), stored as f64 / count as f64, "bytes");
    table.add(row.with_note(note));
    server.stop()?;

    let began = Instant::now();
    let server = ServerProcess::start(bench, &data).await?;
    let ready = server.ready_after.as_secs_f64();
    wait_until_loaded(&server.client, outstanding).await?;
    let note = format!("the leader has read the ledger after {:.1} s", began.elapsed().as_secs_f64());
    table.add(TableRow::lower(format!("{title}: start to ready"), ready, "s").with_note(note));
    let resident = server.process.resident_memory()? as f64 / MIB;
    let peak = server.process.peak_memory()? as f64 / MIB;
    let note = format!("server and controllers; {peak:.0} MiB at most while starting");
    table.add(TableRow::lower(format!("{title}: memory"), resident, "MiB").with_note(note));

    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(list_outstanding(bench, &data, outstanding)?);
    }
    let spread = LatencyDistribution::from_samples(times)?;
    let row = TableRow::lower(format!("{title}: cert list --outstanding"), spread.millis(0.5), "ms");
    let note =
        format!("the bar is 1 s; median of {RUNS}, max {:.0} ms; {outstanding} lines", spread.millis(1.0));
    table.add(row.with_note(note));
    server.stop()
}

/// Creates the segments through the API; returns the bytes that are stored.
async fn store(client: &HttpClient, segments: &[SegmentBuilder]) -> Result<usize> {
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    let mut bytes = 0;
    for segment in segments {
        let object = ledger_segment(segment);
        // The answer is what is stored, and the resourceVersion.
        bytes += connection.expect(Method::POST, SEGMENTS, object.to_string().into()).await?.len();
    }
    Ok(bytes)
}

/// Waits until the metrics of the leader count the certificates.
async fn wait_until_loaded(client: &HttpClient, outstanding: usize) -> Result<()> {
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    let began = Instant::now();
    loop {
        let text = connection.expect(Method::GET, "/metrics", Bytes::new()).await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let values =
            text.lines().filter(|line| line.starts_with("windlass_ledger_certificates_outstanding{"));
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        if values.sum::<usize>() == outstanding {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the leader has not read the ledger");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs the command and checks the number of lines that it prints; returns the time that it took.
fn list_outstanding(bench: &BenchContext, data: &Path, outstanding: usize) -> Result<Duration> {
    let output = bench.scratch.join("cert-list.txt");
    let began = Instant::now();
    let status = Command::new(&bench.binary)
        .args(["cert", "list", "--outstanding", "--kubeconfig"])
        .arg(data.join("admin.kubeconfig"))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?)
        .status()?;
    let took = began.elapsed();
    ensure!(status.success(), "windlass cert list: {status}");
    let lines = fs::read_to_string(&output)?.lines().count();
    ensure!(lines == outstanding + 1, "{lines} lines for {outstanding} certificates");
    Ok(took)
}
