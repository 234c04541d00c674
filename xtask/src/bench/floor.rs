//! What the machine itself allows: no server can write durably faster than its disk syncs, nor
//! accept connections faster than its processor signs.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::Bench;
use super::client::Protocol;
use super::server::Server;
use super::table::{Row, Spread, Table};

/// Measure the disk and the handshakes.
pub async fn measure(bench: &Bench, table: &mut Table) -> Result<()> {
    let spread = syncs(bench)?;
    table.add(
        Row::lower("fdatasync of 4 KiB", spread.millis(0.5), "ms")
            .note(format!("p99 {:.2} ms; the floor of one durable write", spread.millis(0.99))),
    );
    let server = Server::start(bench, &bench.scratch.join("floor")).await?;
    let rate = handshakes(bench, &server).await?;
    table.add(
        Row::higher("full TLS 1.3 handshakes", rate, "/s")
            .note("16 at a time, both sides on this machine"),
    );
    server.stop().await
}

fn syncs(bench: &Bench) -> Result<Spread> {
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
    Spread::of(samples)
}

async fn handshakes(bench: &Bench, server: &Server) -> Result<f64> {
    let lasts = bench.phase().min(Duration::from_secs(2));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..16 {
        let client = server.client.clone();
        workers.spawn(async move {
            let mut made = 0_u64;
            while started.elapsed() < lasts {
                drop(client.handshake(Protocol::Http1).await?);
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
