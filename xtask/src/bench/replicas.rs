//! Two servers and two controllers on one etcd, with clients spread over both servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use std::process::Command;

use super::BenchContext;
use super::issuing::{CLIENTS, allow, burst};
use super::process::MeasuredProcess;
use super::rates;
use super::server::{READER, ServerProcess};
use super::table::{LatencyDistribution, ResultTable, TableRow};

/// Measures certificates and requests over two servers.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let (one, other) = (bench.scratch.join("replica-1"), bench.scratch.join("replica-2"));
    let first = ServerProcess::start_alone(bench, &one).await?;
    let second = ServerProcess::start_beside(bench, &other, &one).await?;
    let controllers = [controllers(bench, &one, &one), self::controllers(bench, &other, &one)];
    allow(&first.client).await?;
    let nodes = [&first, &second].map(|server| server.client.with_token(READER));
    // Warms up, so that one-time setup is not measured; also waits for a leader.
    burst(&first.client, &nodes, "warm", 64).await?;
    let count = if bench.args.quick { 200 } else { 1_000 };
    // Requests sent through one server are observed through the other.
    let (took, samples) = burst(&second.client, &nodes, "node", count).await?;
    issued(table, count, took, samples)?;
    for process in controllers {
        process.stop()?;
    }

    rates::prepare(&first).await?;
    let clients = [first.client.clone(), second.client.clone()];
    rates::verbs(bench, table, &clients, "two servers: ").await?;
    let resident = (first.process.resident_memory()? + second.process.resident_memory()?) as f64
        / f64::from(1 << 20)
        / 2.0;
    table.add(TableRow::lower("two servers: memory of one, afterwards", resident, "MiB"));
    second.stop()?;
    first.stop()
}

fn issued(table: &mut ResultTable, count: usize, took: Duration, samples: Vec<Duration>) -> Result<()> {
    let spread = LatencyDistribution::from_samples(samples)?;
    let title = format!("two servers, burst of {count} node certificates");
    let rate = count as f64 / took.as_secs_f64();
    table.add(
        TableRow::higher(format!("{title}: issued"), rate, "/s")
            .reference(160.0)
            .with_note(format!("{CLIENTS} clients; two controllers, of which one works")),
    );
    table.add(TableRow::lower(format!("{title}: p50"), spread.millis(0.5), "ms").reference(2_700.0));
    table.add(TableRow::lower(format!("{title}: p99"), spread.millis(0.99), "ms").reference(4_600.0));
    Ok(())
}

/// Starts controllers of the server at `data`, which sign with the CA of the first.
fn controllers(bench: &BenchContext, data: &Path, first: &Path) -> MeasuredProcess {
    let mut command = Command::new(&bench.binary);
    command
        .args(["controllers", "--kubeconfig"])
        .arg(data.join("admin.kubeconfig"))
        .arg("--cluster-signing-cert-file")
        .arg(first.join("pki/client-ca.crt"))
        .arg("--cluster-signing-key-file")
        .arg(first.join("pki/client-ca.key"));
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    MeasuredProcess::start(&mut command, &bench.scratch.join(format!("controllers-{name}.log")))
}
