//! Time from exec to ready, and memory of an idle server.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::BenchContext;
use super::rates::{NAMESPACE, fill};
use super::server::ServerProcess;
use super::table::{LatencyDistribution, ResultTable, TableRow};

/// Number of starts; a single short start is not representative.
const STARTS: usize = 5;

const MIB: f64 = (1 << 20) as f64;

/// Measures starts on an empty directory and on a full one.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let mut fresh = Vec::new();
    for attempt in 0..STARTS {
        let server = ServerProcess::start(bench, &bench.scratch.join(format!("fresh-{attempt}"))).await?;
        fresh.push(server.ready_after);
        server.stop()?;
    }
    table.add(start_row("start to ready, fresh directory", fresh)?.reference(4_000.0));

    let data = bench.scratch.join("full");
    let server = ServerProcess::start(bench, &data).await?;
    wait_idle_period().await;
    let idle = server.process.resident_memory()? as f64 / MIB;
    table.add(TableRow::lower("idle memory", idle, "MiB").reference(315.0));

    let objects = if bench.args.quick { 1_000 } else { 10_000 };
    fill(&server, NAMESPACE, objects, 1_024).await?;
    server.stop()?;
    let mut restarts = Vec::new();
    let mut holding = 0.0;
    for attempt in 0..STARTS {
        let server = ServerProcess::start(bench, &data).await?;
        restarts.push(server.ready_after);
        if attempt == 0 {
            wait_idle_period().await;
            holding = server.process.resident_memory()? as f64 / MIB;
        }
        server.stop()?;
    }
    table.add(start_row(format!("start to ready, {objects} objects of 1 KiB"), restarts)?);
    table.add(TableRow::lower(format!("idle memory, {objects} objects of 1 KiB"), holding, "MiB"));
    Ok(())
}

fn start_row(name: impl Into<String>, samples: Vec<Duration>) -> Result<TableRow> {
    let spread = LatencyDistribution::from_samples(samples)?;
    Ok(TableRow::lower(name, spread.millis(0.5), "ms")
        .with_note(format!("median of {STARTS}, max {:.0} ms", spread.millis(1.0))))
}

/// Waits until the server counts as idle, because only the passage of time defines that.
async fn wait_idle_period() {
    sleep(Duration::from_secs(2)).await;
}
