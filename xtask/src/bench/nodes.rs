//! Many nodes in one process: each joins with a bootstrap token, then rotates its certificate,
//! against one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_node::clock::{self, Clock};
use windlass_testkit::{HttpClient, HttpProtocol};

use super::BenchContext;
use super::access::post;
use super::server::ServerProcess;
use super::table::{ResultTable, TableRow};
use super::watchers::raise_file_limit;

const TOKEN: &str = "bench1.0123456789abcdef";
const GROUP: &str = "system:bootstrappers:bench:nodes";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Timeout for the whole fleet.
const PATIENCE: Duration = Duration::from_secs(180);
/// Clock offset of the nodes that makes certificates of one year due for renewal.
const AHEAD: time::Duration = time::Duration::days(350);

/// Measures how long all nodes take to join and to rotate, and the cost for the server.
pub async fn measure(bench: &BenchContext, table: &mut ResultTable) -> Result<()> {
    let count = if bench.args.quick { 50 } else { 1_000 };
    raise_file_limit(count as u64 * 6 + 256)?;
    let data = bench.scratch.join("nodes");
    let server = ServerProcess::start(bench, &data).await?;
    prepare(&server.client).await?;
    let bootstrap = bench.scratch.join("bootstrap.kubeconfig");
    fs::write(&bootstrap, kubeconfig(&server.client.url(), &data.join("pki/ca.crt")))?;

    let began = Instant::now();
    let mut fleet = NodeFleet::start(&bench.scratch.join("fleet"), &bootstrap, count)?;
    fleet.wait_until(|node| fs::read_link(&node.current).is_ok()).await?;
    let joined = began.elapsed();
    let asked = requests(&server.client).await?;
    ensure!(asked == count, "{count} nodes made {asked} requests");

    let began = Instant::now();
    for node in &fleet.nodes {
        node.advance_clock()?;
    }
    fleet.wait_until(BenchNode::has_rotated).await?;
    let rotated = began.elapsed();
    let asked = requests(&server.client).await?;
    ensure!(asked == 2 * count, "{count} nodes made {asked} requests to join and to rotate");

    let title = format!("{count} node agents");
    table.add(
        TableRow::lower(format!("{title}: all have joined"), joined.as_secs_f64(), "s")
            .with_note("key, request, approval, certificate, files, kubeconfig; one request each"),
    );
    table.add(
        TableRow::lower(format!("{title}: all have rotated"), rotated.as_secs_f64(), "s")
            .with_note("put forward in one moment; one request each"),
    );
    let peak = server.process.peak_memory()? as f64 / f64::from(1 << 20);
    table.add(TableRow::lower(format!("{title}: the server's memory, at most"), peak, "MiB"));
    fleet.stop().await?;
    server.stop()
}

/// Creates a bootstrap token and the permissions of its bearers and nodes.
pub async fn prepare(admin: &HttpClient) -> Result<()> {
    let (id, secret) = TOKEN.split_once('.').context("the token has no dot")?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": GROUP,
        },
    });
    let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
    let path = "/api/v1/namespaces/kube-system/secrets";
    connection.expect(Method::POST, path, secret.to_string().into()).await?;
    for (role, group) in [
        ("system:node-bootstrapper", GROUP),
        ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", GROUP),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
    ] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("bench:{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        post(admin, "clusterrolebindings", &binding).await?;
    }
    Ok(())
}

/// Returns the bootstrap kubeconfig with the token.
pub fn kubeconfig(url: &str, ca: &Path) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": ca}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    })
    .to_string()
}

/// Returns the number of certificate signing requests.
async fn requests(admin: &HttpClient) -> Result<usize> {
    let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
    let list = connection.expect(Method::GET, &format!("{REQUESTS}?limit=1"), Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let shown = list["items"].as_array().map_or(0, Vec::len);
    let others = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(shown + usize::try_from(others)?)
}

/// Node agents that run as tasks of this process.
struct NodeFleet {
    nodes: Vec<Arc<BenchNode>>,
    agents: JoinSet<Result<(), windlass_node::RunError>>,
    down: watch::Sender<bool>,
}

struct BenchNode {
    /// Symlink to the current certificate.
    current: PathBuf,
    /// Target of the link when the clock was advanced.
    before: OnceLock<PathBuf>,
}

impl BenchNode {
    /// Advances the clock until there is a new certificate.
    fn advance_clock(&self) -> Result<()> {
        let target = fs::read_link(&self.current)?;
        ensure!(self.before.set(target).is_ok(), "the clock was put forward twice");
        Ok(())
    }

    fn has_rotated(&self) -> bool {
        let now = fs::read_link(&self.current).ok();
        now.is_some() && self.before.get() != now.as_ref()
    }

    fn clock(self: Arc<Self>) -> Clock {
        let system = clock::system();
        Arc::new(move || {
            let mut now = system();
            if self.before.get().is_some() && !self.has_rotated() {
                now.wall += AHEAD;
            }
            now
        })
    }
}

impl NodeFleet {
    fn start(folder: &Path, bootstrap: &Path, count: usize) -> Result<Self> {
        let (down, shutdown) = watch::channel(false);
        let (mut nodes, mut agents) = (Vec::with_capacity(count), JoinSet::new());
        for number in 0..count {
            let place = folder.join(number.to_string());
            fs::create_dir_all(&place)?;
            let pki = place.join("pki");
            let current = pki.join("kubelet-client-current.pem");
            let node = Arc::new(BenchNode { current, before: OnceLock::new() });
            let options = windlass_node::AgentOptions {
                node_name: format!("node-{number}"),
                bootstrap_kubeconfig: Some(bootstrap.to_owned()),
                addresses: vec![[127, 0, 0, 1].into()],
                clock: node.clone().clock(),
                ..windlass_node::AgentOptions::new(place.join("kubeconfig"), pki)
            };
            agents.spawn(windlass_node::run(options, shutdown.clone()));
            nodes.push(node);
        }
        Ok(Self { nodes, agents, down })
    }

    /// Waits until all nodes meet the condition.
    async fn wait_until(&mut self, good: impl Fn(&BenchNode) -> bool) -> Result<()> {
        let began = Instant::now();
        let mut next = 0;
        while let Some(node) = self.nodes.get(next) {
            if good(node) {
                next += 1;
                continue;
            }
            ensure!(began.elapsed() < PATIENCE, "node {next} is not there after {PATIENCE:?}");
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
                Some(ended) = self.agents.join_next() => {
                    ended??;
                    bail!("an agent ended");
                }
            }
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.down.send_replace(true);
        while let Some(ended) = self.agents.join_next().await {
            ended??;
        }
        Ok(())
    }
}
