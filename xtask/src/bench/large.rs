//! One kind with very many objects: startup, list and memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_store::{KeyChange, Store, WritePrecondition, WriteRequest};
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol};

use super::BenchContext;
use super::floor::open;
use super::rates::{NAMESPACE, config_map, fill};
use super::server::ServerProcess;
use super::table::{ResultTable, TableRow};

const PAGE: usize = 500;
/// Number of concurrent writes while filling the store.
const WRITERS: usize = 256;
/// Object that is created through the API, and changed while the others are listed.
const MODEL: &str = "filled-0";
const MIB: f64 = (1 << 20) as f64;

/// Measures on a store that was filled without a server.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let count: usize = if bench.args.quick { 2_000 } else { 150_000 };
    let data = bench.scratch.join("large");
    let server = ServerProcess::start(bench, &data).await?;
    fill(&server, NAMESPACE, 1, 1_024).await?;
    server.stop()?;
    let store = open(bench, &data)?;
    let rate = prefill(&store, count - 1).await?;
    store.close().await?;
    drop(store);

    let server = ServerProcess::start(bench, &data).await?;
    let title = format!("{count} objects of 1 KiB");
    let ready = server.ready_after.as_secs_f64();
    table.add(
        TableRow::lower(format!("{title}: start to ready"), ready, "s")
            .with_note(format!("the bar is 10 s; written straight into the store at {rate:.0}/s")),
    );
    // Idle memory is measured after a quiet period.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = server.process.resident_memory()? as f64 / MIB;
    let peak = server.process.peak_memory()? as f64 / MIB;
    table.add(
        TableRow::lower(format!("{title}: memory"), idle, "MiB")
            .with_note(format!("{peak:.0} MiB at most while starting")),
    );
    let took = list(&server.client, count).await?;
    let grown = server.process.resident_memory()? as f64 / MIB - idle;
    table.add(
        list_row(&format!("{title}: list in pages of {PAGE}"), took)
            .with_note(format!("the bar is 30 s; at one resourceVersion; memory grew by {grown:.1} MiB")),
    );
    let (took, written) = list_while_written(&server.client, count).await?;
    let grown = server.process.resident_memory()? as f64 / MIB - idle;
    let name = format!("{title}: the same while one is written to");
    table.add(list_row(&name, took).with_note(format!(
        "at one resourceVersion, {written} writes meanwhile; memory grew by {grown:.1} MiB"
    )));
    server.stop()
}

fn list_row(name: &str, took: Duration) -> TableRow {
    TableRow::lower(name, took.as_secs_f64(), "s")
}

/// Copies the object that a client created; returns objects per second.
async fn prefill(store: &Arc<dyn Store>, count: usize) -> Result<f64> {
    let key = format!("core/configmaps/{NAMESPACE}/{MODEL}");
    let model = store.get(&key).await?.context("the model is not where it should be")?;
    let model = String::from_utf8(model.value.to_vec())?;
    let parsed: Value = serde_json::from_str(&model)?;
    let uid = parsed["metadata"]["uid"].as_str().context("the model has no UID")?.to_owned();
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..WRITERS {
        let (store, model, uid) = (store.clone(), model.clone(), uid.clone());
        workers.spawn(async move {
            for number in (worker..count).step_by(WRITERS) {
                let name = format!("large-{number:06}");
                let own = format!("{}{number:012}", uid.get(..24).unwrap_or_default());
                let value = model.replace(MODEL, &name).replace(&uid, &own);
                let write = WriteRequest {
                    key: format!("core/configmaps/{NAMESPACE}/{name}"),
                    expect: WritePrecondition::Absent,
                    change: KeyChange::Put(value.into()),
                };
                store.commit(write).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Lists everything in pages and checks that it is complete and consistent.
async fn list(client: &HttpClient, count: usize) -> Result<Duration> {
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    let began = Instant::now();
    let (mut found, mut version, mut next) = (0, None, String::new());
    loop {
        let path = format!("/api/v1/configmaps?limit={PAGE}&continue={next}");
        let answer = connection.expect(Method::GET, &path, Bytes::new()).await?;
        let page = ListHeader::parse(&answer)?;
        found += count_items(&answer);
        let first: &mut String = version.get_or_insert_with(|| page.version.clone());
        ensure!(*first == page.version, "a page is of {}, the first of {first}", page.version);
        if page.next.is_empty() {
            break;
        }
        next = page.next;
    }
    let took = began.elapsed();
    ensure!(found >= count, "{found} of {count} objects were listed");
    Ok(took)
}

/// Lists while a client writes, so that the first page's revision is outdated before the second.
async fn list_while_written(client: &HttpClient, count: usize) -> Result<(Duration, u64)> {
    let (done, ended) = watch::channel(false);
    let mut connection = client.connect_with(HttpProtocol::Http1).await?;
    // One write before the first page, so that no list is faster than the first write.
    write(&mut connection, 0).await?;
    let writer = tokio::spawn(async move {
        let mut written = 0;
        while !*ended.borrow() {
            written += 1;
            write(&mut connection, written).await?;
        }
        anyhow::Ok(written)
    });
    let took = list(client, count).await?;
    done.send_replace(true);
    Ok((took, writer.await??))
}

async fn write(connection: &mut HttpConnection, number: u64) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{MODEL}");
    connection.expect(Method::PUT, &path, config_map(MODEL, 1_024, number)).await?;
    Ok(())
}

/// Metadata at the beginning of a list.
struct ListHeader {
    version: String,
    next: String,
}

impl ListHeader {
    /// Parses the header without the items, whose parsing would dominate the measurement.
    fn parse(answer: &[u8]) -> Result<ListHeader> {
        let end = answer.windows(8).position(|part| part == b"\"items\":");
        let head = answer.get(..end.context("no list")?).unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        let head: Value = serde_json::from_str(&format!("{}}}", head.trim_end_matches(',')))?;
        let field = |name: &str| head["metadata"][name].as_str().unwrap_or_default().to_owned();
        Ok(ListHeader { version: field("resourceVersion"), next: field("continue") })
    }
}

/// Counts UIDs: every object has exactly one, and nothing else here has any.
fn count_items(answer: &[u8]) -> usize {
    answer.windows(7).filter(|part| *part == b"\"uid\":\"").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_by_its_head() {
        let list = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"metadata":{"uid":"1"}},{"metadata":{"uid":"2"}}]}"#;
        let head = ListHeader::parse(list).unwrap();
        assert_eq!((head.version.as_str(), head.next.as_str()), ("7", "abc"));
        assert_eq!(count_items(list), 2);
        assert!(ListHeader::parse(b"{}").is_err());
    }
}
