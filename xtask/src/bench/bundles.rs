//! Distribution of trust Bundles to every namespace: one to many namespaces, and many at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::process::Command;
use windlass_testkit::{HttpClient, HttpConnection, HttpProtocol};

use super::BenchContext;
use super::process::MeasuredProcess;
use super::server::ServerProcess;
use super::table::{ResultTable, TableRow};
use super::volumes::RootCertificates;

const BUNDLES: &str = "/apis/trust.cert-manager.io/v1alpha1/bundles";
const LABEL: &str = "trust.cert-manager.io/bundle";
/// Certificates per Bundle, as many as a system trust store has.
const CERTIFICATES: usize = 140;
/// Number of Bundles created at once.
const MANY: usize = 100;
/// Time after which controllers have certainly reconciled everything.
const SETTLE: Duration = Duration::from_secs(5);
/// Upper limit for each wait; a longer one fails the run.
const PATIENCE: Duration = Duration::from_secs(180);

/// Measures the time until a Bundle reaches every namespace, the number of writes, and the
/// resources used.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let count = if bench.args.quick { 100 } else { 2_000 };
    let data = bench.scratch.join("bundles");
    let server = ServerProcess::start_alone(bench, &data).await?;
    let mut admin = server.client.connect_with(HttpProtocol::Http1).await?;
    create_namespaces(&mut admin, count).await?;
    let controllers = controllers(bench, &data);
    // Startup is not part of the measurement.
    tokio::time::sleep(SETTLE).await;
    let mut roots = RootCertificates::new(CERTIFICATES)?;
    let title = format!("a Bundle of {CERTIFICATES} certificates in {count} namespaces");

    let began = Instant::now();
    put(&mut admin, &bundle("all", &roots, &json!({})), Method::POST).await?;
    let first = wait_until_all(&server.client, "all", count, &BTreeMap::new()).await?;
    let took = began.elapsed().as_secs_f64();
    table.add(TableRow::lower(format!("{title}: all in sync after"), took, "s"));
    table.add(TableRow::higher(format!("{title}: targets"), count as f64 / took, "/s"));

    roots.add();
    let began = Instant::now();
    put(&mut admin, &bundle("all", &roots, &json!({})), Method::PUT).await?;
    let second = wait_until_all(&server.client, "all", count, &first).await?;
    let took = began.elapsed().as_secs_f64();
    table.add(TableRow::lower(format!("{title}: a change is in all after"), took, "s"));
    add_memory(table, &title, &controllers)?;
    controllers.stop()?;

    // A new process reconciles everything again.
    let controllers = self::controllers(bench, &data);
    tokio::time::sleep(SETTLE).await;
    let third = targets(&mut admin, "all").await?;
    let written = third.iter().filter(|(name, version)| second.get(*name) != Some(version));
    let written = written.count() as f64;
    table.add(TableRow::lower(format!("{title}: writes of a second pass"), written, ""));
    measure_many(&server.client, table, count).await?;
    add_memory(table, &format!("{MANY} Bundles at once, {count} targets"), &controllers)?;
    controllers.stop()?;
    server.stop()
}

/// Starts controllers in a separate process, so that their memory is measured separately.
fn controllers(bench: &BenchContext, data: &Path) -> MeasuredProcess {
    let mut command = Command::new(&bench.binary);
    command.args(["controllers", "--leader-elect=false"]);
    command.arg("--kubeconfig").arg(data.join("admin.kubeconfig"));
    MeasuredProcess::start(&mut command, &bench.scratch.join("controllers.log"))
}

fn add_memory(table: &mut ResultTable, title: &str, controllers: &MeasuredProcess) -> Result<()> {
    let peak = controllers.peak_memory()? as f64 / f64::from(1 << 20);
    table.add(TableRow::lower(format!("{title}: the controllers' memory, at most"), peak, "MiB"));
    Ok(())
}

/// Measures many Bundles, each for one group of namespaces.
async fn measure_many(client: &HttpClient, table: &mut ResultTable, count: usize) -> Result<()> {
    let mut admin = client.connect_with(HttpProtocol::Http1).await?;
    let roots = RootCertificates::new(3)?;
    let began = Instant::now();
    for number in 0..MANY {
        let selector = json!({"matchLabels": {"group": (number % groups(count)).to_string()}});
        let bundle = bundle(&format!("many-{number}"), &roots, &selector);
        put(&mut admin, &bundle, Method::POST).await?;
    }
    for number in 0..MANY {
        let wanted = (0..count).filter(|n| n % groups(count) == number % groups(count)).count();
        wait_until_all(client, &format!("many-{number}"), wanted, &BTreeMap::new()).await?;
    }
    let took = began.elapsed().as_secs_f64();
    table.add(TableRow::lower(format!("{MANY} Bundles at once, {count} targets: after"), took, "s"));
    Ok(())
}

/// Returns the number of namespace groups.
fn groups(count: usize) -> usize {
    count.min(MANY)
}

async fn create_namespaces(admin: &mut HttpConnection, count: usize) -> Result<()> {
    let namespace = |name: &str, group: usize| {
        let labels = json!({"group": group.to_string()});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    };
    // Existing namespaces count towards the number.
    for number in 0..count {
        let namespace = namespace(&format!("ns-{number}"), number % groups(count));
        admin.expect(Method::POST, "/api/v1/namespaces", namespace.to_string().into()).await?;
    }
    Ok(())
}

fn bundle(name: &str, roots: &RootCertificates, selector: &Value) -> Value {
    // System namespaces are in no group.
    let mut selector = selector.clone();
    if selector.get("matchLabels").is_none() {
        selector = json!({"matchExpressions": [{"key": "group", "operator": "Exists"}]});
    }
    json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {
            "sources": [{"inLine": roots.text()}],
            "target": {"configMap": {"key": "ca.pem"}, "namespaceSelector": selector},
        },
    })
}

async fn put(admin: &mut HttpConnection, bundle: &Value, method: Method) -> Result<()> {
    let mut bundle = bundle.clone();
    let mut path = BUNDLES.to_owned();
    if method == Method::PUT {
        path = format!("{BUNDLES}/{}", bundle["metadata"]["name"].as_str().context("no name")?);
        let found = admin.expect(Method::GET, &path, Bytes::new()).await?;
        let found: Value = serde_json::from_slice(&found)?;
        bundle["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    }
    admin.expect(method, &path, bundle.to_string().into()).await?;
    Ok(())
}

/// Waits until the Bundle is synced and has `count` targets, all of which differ from before.
async fn wait_until_all(
    client: &HttpClient,
    name: &str,
    count: usize,
    before: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut admin = client.connect_with(HttpProtocol::Http1).await?;
    let path = format!("{BUNDLES}/{name}");
    let began = Instant::now();
    loop {
        let found = admin.expect(Method::GET, &path, Bytes::new()).await?;
        if is_synced(&serde_json::from_slice(&found)?) {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "{name} is not in sync");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let there = targets(&mut admin, name).await?;
    ensure!(there.len() == count, "{name} has {} targets, not {count}", there.len());
    let others = there.iter().all(|(name, version)| before.get(name) != Some(version));
    ensure!(others, "a target of {name} is the same as before");
    Ok(there)
}

fn is_synced(bundle: &Value) -> bool {
    let conditions = bundle["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Synced"
            && condition["status"] == "True"
            && condition["observedGeneration"] == bundle["metadata"]["generation"]
    })
}

/// Returns the resource versions of the Bundle's targets by namespace.
async fn targets(admin: &mut HttpConnection, name: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut more = String::new();
    loop {
        let path = format!("/api/v1/configmaps?labelSelector={LABEL}%3D{name}&limit=200{more}");
        let list = admin.expect(Method::GET, &path, Bytes::new()).await?;
        let list: Value = serde_json::from_slice(&list)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or("").to_owned();
            found.insert(text("namespace"), text("resourceVersion"));
        }
        match list["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => more = format!("&continue={next}"),
            _ => return Ok(found),
        }
    }
}
