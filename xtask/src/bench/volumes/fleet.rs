//! Many nodes in one process, each with one volume; one bundle changes, and each node reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_runtime::durable::FileSystem;
use windlass_testkit::{HttpClient, HttpProtocol};

use super::super::BenchContext;
use super::super::nodes;
use super::super::server::ServerProcess;
use super::super::table::{ResultTable, TableRow};
use super::super::watchers::raise_file_limit;
use super::{BUNDLE, BUNDLES, PATIENCE, RootCertificates, SIGNER, apply_bundle};

const REPORTS: &str = "/apis/windlass.dev/v1alpha1/nodetrusts";
/// Limit allowed by the KEP, in seconds.
const ALLOWED: f64 = 300.0;

/// Measures the time until the last node reports a changed bundle.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable, count: usize) -> Result<()> {
    raise_file_limit(count as u64 * 12 + 256)?;
    let data = bench.scratch.join("trust");
    let server = ServerProcess::start(bench, &data).await?;
    let admin = &server.client;
    nodes::prepare(admin).await?;
    let bootstrap = bench.scratch.join("trust.kubeconfig");
    fs::write(&bootstrap, nodes::kubeconfig(&admin.url(), &data.join("pki/ca.crt")))?;
    let mut roots = RootCertificates::new(3)?;
    apply_bundle(admin, &roots, Method::POST, BUNDLES).await?;
    let mut fleet = AgentFleet::start(&bench.scratch.join("trust-fleet"), &bootstrap, count)?;
    fleet.wait_for_generation(admin, 1).await?;

    roots.add();
    let began = Instant::now();
    apply_bundle(admin, &roots, Method::PUT, &format!("{BUNDLES}/{BUNDLE}")).await?;
    let written = fleet.wait_until_written(began).await?;
    fleet.wait_for_generation(admin, 2).await?;
    let reported = began.elapsed().as_secs_f64();
    let title = format!("{count} nodes, one bundle changed");
    table.add(TableRow::lower(format!("{title}: in the last file after"), written, "s"));
    table.add(
        TableRow::lower(format!("{title}: reported by the last node after"), reported, "s")
            .reference(ALLOWED)
            .with_note("all in one process; the KEP allows five minutes"),
    );
    let peak = server.process.peak_memory()? as f64 / f64::from(1 << 20);
    table.add(TableRow::lower(format!("{title}: the server's memory, at most"), peak, "MiB"));
    fleet.stop().await?;
    server.stop()
}

struct AgentFleet {
    agents: JoinSet<Result<(), windlass_node::RunError>>,
    /// Links with their previous targets.
    links: Vec<(PathBuf, Option<PathBuf>)>,
    down: watch::Sender<bool>,
}

impl AgentFleet {
    fn start(folder: &Path, bootstrap: &Path, count: usize) -> Result<Self> {
        let (down, shutdown) = watch::channel(false);
        let (mut agents, mut links) = (JoinSet::new(), Vec::with_capacity(count));
        for number in 0..count {
            let place = folder.join(number.to_string());
            fs::create_dir_all(&place)?;
            let volume = place.join("trust");
            let file = place.join("projections.yaml");
            fs::write(&file, projections(&volume))?;
            let read = windlass_node::projections::read(&file, &FileSystem::default())?;
            let options = windlass_node::AgentOptions {
                node_name: format!("node-{number}"),
                bootstrap_kubeconfig: Some(bootstrap.to_owned()),
                addresses: vec![[127, 0, 0, 1].into()],
                projections: Some((file, read)),
                ..windlass_node::AgentOptions::new(place.join("kubeconfig"), place.join("pki"))
            };
            agents.spawn(windlass_node::run(options, shutdown.clone()));
            links.push((volume.join("..data"), None));
        }
        Ok(Self { agents, links, down })
    }

    /// Waits until every node reports this generation of the bundle.
    async fn wait_for_generation(&mut self, admin: &HttpClient, generation: i64) -> Result<()> {
        let began = Instant::now();
        let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
        loop {
            let list = connection.expect(Method::GET, REPORTS, Bytes::new()).await?;
            let list: Value = serde_json::from_slice(&list)?;
            let items = list["items"].as_array().context("no items")?;
            let there = items.iter().filter(|node| has_generation(node, generation)).count();
            if there == self.links.len() {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "only {there} nodes report it");
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
                Some(ended) = self.agents.join_next() => {
                    ended??;
                    bail!("an agent ended");
                }
            }
        }
        for (link, before) in &mut self.links {
            *before = fs::read_link(link).ok();
        }
        Ok(())
    }

    /// Waits until every file is replaced, and returns how long that took.
    async fn wait_until_written(&self, began: Instant) -> Result<f64> {
        let (links, before) = self.links.iter().cloned().unzip::<_, _, Vec<_>, Vec<_>>();
        super::changed(&links, &before, began).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    async fn stop(mut self) -> Result<()> {
        self.down.send_replace(true);
        while let Some(ended) = self.agents.join_next().await {
            ended??;
        }
        Ok(())
    }
}

fn has_generation(node: &Value, generation: i64) -> bool {
    let sources = node["status"]["sources"].as_array();
    let mut bundles = sources.into_iter().flatten().filter_map(|one| one["bundles"].as_array());
    bundles.any(|bundles| bundles.iter().any(|bundle| bundle["generation"] == generation))
}

fn projections(volume: &Path) -> String {
    json!({
        "apiVersion": "windlass.dev/v1",
        "kind": "Projections",
        "projections": [{
            "name": "trust",
            "directory": volume,
            "projected": {"sources": [{"clusterTrustBundle": {
                "signerName": SIGNER,
                "labelSelector": {},
                "path": "ca.pem",
            }}]},
        }],
    })
    .to_string()
}
