//! Hardware limits: no server can write durably faster than its disk syncs, nor accept connections
//! faster than its processor signs.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use windlass_store::{
    EmbeddedOptions, EmbeddedStore, EtcdOptions, EtcdStore, KeyChange, Store, WritePrecondition, WriteRequest,
};
use windlass_testkit::HttpProtocol;

use super::BenchContext;
use super::server::{ServerProcess, prefix};
use super::table::{LatencyDistribution, ResultTable, TableRow};

/// Number of clients, as for the request rates.
const CLIENTS: usize = 16;

/// Measures disk syncs and TLS handshakes.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let spread = measure_fsync(bench)?;
    table.add(
        TableRow::lower("fdatasync of 4 KiB", spread.millis(0.5), "ms")
            .with_note(format!("p99 {:.2} ms; the floor of one durable write", spread.millis(0.99))),
    );
    let server = ServerProcess::start(bench, &bench.scratch.join("floor")).await?;
    let rate = handshakes(bench, &server).await?;
    table.add(
        TableRow::higher("full TLS 1.3 handshakes", rate, "/s")
            .with_note("16 at a time, both sides on this machine"),
    );
    server.stop()?;
    if bench.etcd.is_some() {
        let store = open(bench, &bench.scratch.join("puts"))?;
        table.add(puts(bench, store).await?);
    }
    Ok(())
}

/// Opens the store of a data directory; the server must not be running if the store is embedded.
pub fn open(bench: &BenchContext, data: &Path) -> Result<Arc<dyn Store>> {
    Ok(match &bench.etcd {
        Some(etcd) => {
            let mut options = EtcdOptions::new(etcd.urls());
            options.prefix = prefix(data);
            Arc::new(EtcdStore::open(options)?)
        }
        None => Arc::new(EmbeddedStore::open(EmbeddedOptions::new(data.join("store")))?),
    })
}

/// Writes 1 KiB values directly to the store and waits until the watch reports each.
async fn puts(bench: &BenchContext, store: Arc<dyn Store>) -> Result<TableRow> {
    let lasts = bench.phase();
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..CLIENTS {
        let store = store.clone();
        workers.spawn(async move {
            let mut samples = Vec::new();
            while started.elapsed() < lasts {
                let began = Instant::now();
                let write = WriteRequest {
                    key: format!("puts/{worker}/{}", samples.len()),
                    expect: WritePrecondition::Absent,
                    change: KeyChange::Put(vec![b'x'; 1_024].into()),
                };
                store.commit(write).await?;
                samples.push(began.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    let mut samples = Vec::new();
    while let Some(worker) = workers.join_next().await {
        samples.extend(worker??);
    }
    let rate = samples.len() as f64 / started.elapsed().as_secs_f64();
    let spread = LatencyDistribution::from_samples(samples)?;
    Ok(TableRow::higher("etcd alone: create, 1 KiB", rate, "/s").with_note(format!(
        "{CLIENTS} at a time through the store, no server; p50 {:.2} ms, p99 {:.2} ms",
        spread.millis(0.5),
        spread.millis(0.99)
    )))
}

fn measure_fsync(bench: &BenchContext) -> Result<LatencyDistribution> {
    let mut file = File::create(bench.scratch.join("syncs"))?;
    let block = [0x5a_u8; 4096];
    let count = if bench.args.quick { 100 } else { 1_000 };
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        samples.push(started.elapsed());
    }
    LatencyDistribution::from_samples(samples)
}

async fn handshakes(bench: &BenchContext, server: &ServerProcess) -> Result<f64> {
    let lasts = bench.phase().min(Duration::from_secs(2));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..16 {
        let client = server.client.clone();
        workers.spawn(async move {
            let mut made = 0_u64;
            while started.elapsed() < lasts {
                drop(client.negotiate(HttpProtocol::Http1).await?);
                made += 1;
            }
            anyhow::Ok(made)
        });
    }
    let mut made = 0;
    while let Some(worker) = workers.join_next().await {
        made += worker??;
    }
    Ok(made as f64 / started.elapsed().as_secs_f64())
}
