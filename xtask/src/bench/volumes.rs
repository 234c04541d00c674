//! Propagation of trust bundles to files: one node with many pods, and many nodes.

mod agent;
mod fleet;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::{HttpClient, HttpProtocol, self_signed_ca};

use super::BenchContext;
use super::nodes;
use super::server::ServerProcess;
use super::table::{LatencyDistribution, ResultTable, TableRow};
use agent::AgentProcess;

/// Mean time of a kubelet for one pod, in milliseconds.
const KUBELET: f64 = 70_000.0;
/// How long an idle agent is observed.
const IDLE: Duration = Duration::from_secs(20);
/// Upper limit for each wait; a longer one fails the run.
const PATIENCE: Duration = Duration::from_secs(180);

const NAMESPACE: &str = "bench";
const SIGNER: &str = "bench.example.com/pods";
const BUNDLE: &str = "bench.example.com:pods:roots";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";

/// Measures how soon a changed bundle is on disk everywhere, and the cost of an idle agent.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let (pods, nodes) = if bench.args.quick { (10, 50) } else { (110, 1_000) };
    measure_pods(bench, table, pods).await?;
    fleet::measure(bench, table, nodes).await
}

async fn measure_pods(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    let data = bench.scratch.join("volumes");
    fs::create_dir_all(&data)?;
    fs::write(data.join("signers.yaml"), signers())?;
    let server = ServerProcess::start(bench, &data).await?;
    let admin = &server.client;
    nodes::prepare(admin).await?;
    let mut roots = RootCertificates::new(3)?;
    apply_bundle(admin, &roots, Method::POST, BUNDLES).await?;
    let agent = AgentProcess::start(bench, admin, &data).await?;
    let began = Instant::now();
    let uids = create_pods(admin, count).await?;
    let files = uids.iter().map(|uid| agent.volume(uid).join("..data")).collect::<Vec<_>>();
    changed(&files, &vec![None; count], began).await?;
    let title = format!("node with {count} pods of three sources");
    let took = began.elapsed().as_secs_f64();
    table.add(
        TableRow::lower(format!("{title}: all volumes are there after"), took, "s")
            .with_note("from the first pod's creation; a key and a certificate for each"),
    );

    let mut samples = Vec::new();
    for _ in 0..if bench.args.quick { 2 } else { 5 } {
        let before = files.iter().map(|file| fs::read_link(file).ok()).collect::<Vec<_>>();
        roots.add();
        let began = Instant::now();
        apply_bundle(admin, &roots, Method::PUT, &format!("{BUNDLES}/{BUNDLE}")).await?;
        samples.extend(changed(&files, &before, began).await?);
    }
    let spread = LatencyDistribution::from_samples(samples)?;
    for (name, share) in [("half of the files", 0.5), ("99 %", 0.99), ("the last", 1.0)] {
        let name = format!("{title}: a changed bundle is in {name} after");
        table.add(
            TableRow::lower(name, spread.millis(share), "ms")
                .reference(KUBELET)
                .with_note("from the PUT; a kubelet, one pod: 60 to 79 s"),
        );
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = agent.process.cpu_seconds()?;
    tokio::time::sleep(IDLE).await;
    let busy = (agent.process.cpu_seconds()? - before) / IDLE.as_secs_f64() * 100.0;
    table.add(TableRow::lower(format!("{title}: the idle agent's share of a core"), busy, "%"));
    let resident = agent.process.resident_memory()? as f64 / f64::from(1 << 20);
    table.add(TableRow::lower(format!("{title}: the idle agent's memory"), resident, "MiB"));
    agent.stop()?;
    server.stop()
}

fn signers() -> String {
    json!({
        "apiVersion": "windlass.dev/v1",
        "kind": "Signers",
        "signers": [{
            "name": SIGNER,
            "ca": {"selfSigned": {"directory": "ca/pods"}},
            "pods": {"trustDomain": "bench.example.com"},
        }],
    })
    .to_string()
}

/// Growing list of root certificates.
pub struct RootCertificates(Vec<String>);

impl RootCertificates {
    pub fn new(count: usize) -> Result<Self> {
        let mut roots = Self(Vec::new());
        for _ in 0..count {
            roots.add();
        }
        Ok(roots)
    }

    /// All certificates as concatenated PEM blocks.
    pub fn text(&self) -> String {
        self.0.concat()
    }

    /// Creates or replaces the bundle.
    pub fn add(&mut self) {
        let root = self_signed_ca(&format!("root {}", self.0.len()));
        self.0.push(root.certificate().to_pem());
    }
}

/// Creates or replaces the bundle.
async fn apply_bundle(
    admin: &HttpClient,
    roots: &RootCertificates,
    method: Method,
    path: &str,
) -> Result<()> {
    let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
    let mut metadata = json!({"name": BUNDLE, "labels": {"stage": "live"}});
    if method == Method::PUT {
        let found = connection.expect(Method::GET, path, bytes::Bytes::new()).await?;
        let found: Value = serde_json::from_slice(&found)?;
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    }
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": metadata,
        "spec": {"signerName": SIGNER, "trustBundle": roots.text()},
    });
    connection.expect(method, path, bundle.to_string().into()).await?;
    Ok(())
}

/// Creates pods bound to the node, each with one volume of three sources. Returns their UIDs.
async fn create_pods(admin: &HttpClient, count: usize) -> Result<Vec<String>> {
    let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
    let core = "/api/v1/namespaces";
    let create =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let object = create("Namespace", NAMESPACE).to_string();
    connection.expect(Method::POST, core, object.into()).await?;
    let account = create("ServiceAccount", "bench").to_string();
    let path = format!("{core}/{NAMESPACE}/serviceaccounts");
    connection.expect(Method::POST, &path, account.into()).await?;
    let mut map = create("ConfigMap", "settings");
    map["data"] = json!({"settings.yaml": "x: 1\n".repeat(100)});
    let path = format!("{core}/{NAMESPACE}/configmaps");
    connection.expect(Method::POST, &path, map.to_string().into()).await?;
    let path = format!("{core}/{NAMESPACE}/pods");
    let mut uids = Vec::with_capacity(count);
    for number in 0..count {
        let made = connection.expect(Method::POST, &path, pod_object(number).to_string().into()).await?;
        let made: Value = serde_json::from_slice(&made)?;
        uids.push(made["metadata"]["uid"].as_str().context("a pod has no UID")?.to_owned());
    }
    Ok(uids)
}

fn pod_object(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("pod-{number}")},
        "spec": {
            "nodeName": agent::NAME,
            "serviceAccountName": "bench",
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "trust", "projected": {"sources": [
                {"clusterTrustBundle": {
                    "signerName": SIGNER,
                    "labelSelector": {"matchLabels": {"stage": "live"}},
                    "path": "ca.pem",
                }},
                {"podCertificate": {
                    "signerName": SIGNER,
                    "keyType": "ECDSAP256",
                    "credentialBundlePath": "credentials.pem",
                }},
                {"configMap": {"name": "settings"}},
            ]}}],
        },
    })
}

/// Waits until every link has a new target, and returns how long each took.
async fn changed(links: &[PathBuf], before: &[Option<PathBuf>], began: Instant) -> Result<Vec<Duration>> {
    let mut left = links.iter().zip(before).collect::<Vec<_>>();
    let mut samples = Vec::new();
    while !left.is_empty() {
        ensure!(began.elapsed() < PATIENCE, "{} volumes did not change", left.len());
        left.retain(|(link, before)| {
            let now = fs::read_link(link).ok();
            let changed = now.is_some() && now != **before;
            if changed {
                samples.push(began.elapsed());
            }
            !changed
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(samples)
}

fn directory(place: &Path, uid: &str) -> PathBuf {
    place.join("pods").join(uid).join("volumes/kubernetes.io~projected/trust")
}
