//! The tested cluster: three etcd members, two servers, two controller processes and a balancer.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_testkit::etcd::{EtcdCluster, HostNetwork, MemberAddress};
use windlass_testkit::{ChildProcess, HttpClient, free_address, retry_async};

use crate::balancer;
use crate::canonical;
use crate::history::{HistoryRecorder, RequestRoute, Revision};
use crate::http::{self, TOKEN};

/// Longer than any healthy operation takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds; panics after [`PATIENCE`] with what was waited for.
pub async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    retry_async(PATIENCE, async || if holds().await { Ok(()) } else { Err(what) }).await;
}

/// Host numbers of the servers, after those of the etcd members.
pub const SERVER_HOSTS: [u8; 2] = [3, 4];

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass-controllers";

pub struct ChaosCluster {
    pub cluster: EtcdCluster,
    /// `None` if this process may not create one; then everything uses loopback.
    pub network: Option<HostNetwork>,
    servers: [Option<ChildProcess>; 2],
    controllers: [Option<ChildProcess>; 2],
    pub addresses: ServerAddresses,
    pub recorder: HistoryRecorder,
    /// Revision up to which changes of etcd were recorded.
    recorded_revision: Revision,
    dir: TempDir,
}

/// Addresses of both servers and of the balancer.
#[derive(Clone)]
pub struct ServerAddresses {
    servers: [SocketAddr; 2],
    balancer: SocketAddr,
    pub http: HttpClient,
}

impl ServerAddresses {
    pub fn for_route(&self, via: RequestRoute) -> SocketAddr {
        match via {
            RequestRoute::Server(server) => self.servers[server],
            RequestRoute::Balancer => self.balancer,
        }
    }
}

impl ChaosCluster {
    /// Starts everything and creates a namespace for the traffic.
    pub async fn start() -> Self {
        let network = HostNetwork::is_permitted().then(|| HostNetwork::new(5).unwrap());
        let cluster = match &network {
            Some(network) => {
                let places = (0..3).map(|host| MemberAddress::on_host(network, host).unwrap());
                EtcdCluster::start_at(places.collect(), &[]).unwrap()
            }
            None => EtcdCluster::start(3, &[]).unwrap(),
        };
        let dir = tempfile::tempdir().unwrap();
        let tokens = format!("{TOKEN},chaos,chaos-uid,\"system:masters\"\n");
        fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        let servers = SERVER_HOSTS.map(|host| match &network {
            Some(network) => SocketAddr::from((network.address(host), 6443)),
            None => free_address(),
        });
        let balancer = balancer::start(servers).await;
        // The CA of the first server is known after its start.
        let first = launch(dir.path(), &cluster, network.as_ref(), servers[0], 0);
        let pki = |server: usize, file: &str| data(dir.path(), server).join("pki").join(file);
        fs::create_dir_all(data(dir.path(), 1).join("pki")).unwrap();
        for name in ["ca", "client-ca", "kubelet-serving-ca", "sa"] {
            for end in ["key", if name == "sa" { "pub" } else { "crt" }] {
                let file = format!("{name}.{end}");
                fs::copy(pki(0, &file), pki(1, &file)).unwrap();
            }
        }
        let second = launch(dir.path(), &cluster, network.as_ref(), servers[1], 1);
        let http = HttpClient::new(servers[0], &pki(0, "ca.crt"), TOKEN);
        let mut world = Self {
            cluster,
            network,
            servers: [Some(first), Some(second)],
            controllers: [None, None],
            addresses: ServerAddresses { servers, balancer, http },
            recorder: HistoryRecorder::new(),
            recorded_revision: 0,
            dir,
        };
        for which in [0, 1] {
            world.start_controllers(which);
        }
        let namespace = json!({"metadata": {"name": "chaos"}});
        let (http, address) = (&world.addresses.http, world.addresses.for_route(RequestRoute::Server(0)));
        let made = http::request(http, address, Method::POST, "/api/v1/namespaces", &namespace).await;
        assert!(made.is_ok_and(|made| made.status == 201));
        world
    }

    pub fn kill_server(&mut self, server: usize) {
        self.servers[server].take().unwrap().kill();
    }

    /// Restarts a server; returns when it is ready.
    pub fn start_server(&mut self, server: usize) {
        let address = self.addresses.servers[server];
        let process = launch(self.dir.path(), &self.cluster, self.network.as_ref(), address, server);
        self.servers[server] = Some(process);
    }

    pub fn controllers(&self, which: usize) -> &ChildProcess {
        self.controllers[which].as_ref().unwrap()
    }

    pub fn kill_controllers(&mut self, which: usize) {
        self.controllers[which].take().unwrap().kill();
    }

    pub fn start_controllers(&mut self, which: usize) {
        let path = self.dir.path();
        let kubeconfig = path.join("controllers.kubeconfig");
        let pki = |file: &str| data(path, 0).join("pki").join(file).display().to_string();
        let ca = pki("ca.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"https://{}\", certificate-authority: \"{ca}\"}}}}]\n\
             users: [{{name: c, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n",
            self.addresses.balancer
        );
        fs::write(&kubeconfig, text).unwrap();
        let words = [
            env!("CARGO_BIN_EXE_windlass").to_owned(),
            "controllers".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--leader-elect-identity={which}"),
            // It would create a config map among those of the traffic.
            "--controllers=*,-root-ca-certificate-publisher-controller".to_owned(),
            "--leader-elect-lease-duration=4s".to_owned(),
            "--leader-elect-renew-deadline=3s".to_owned(),
            "--leader-elect-retry-period=500ms".to_owned(),
            format!("--cluster-signing-cert-file={}", pki("client-ca.crt")),
            format!("--cluster-signing-key-file={}", pki("client-ca.key")),
        ];
        let log = path.join(format!("controllers-{which}.log"));
        self.controllers[which] = Some(ChildProcess::spawn_guarded(words, &log));
    }

    /// Returns the index of the leading controller process.
    pub async fn leading_controllers(&self) -> usize {
        retry_async(PATIENCE, async || {
            let (http, address) = (&self.addresses.http, self.addresses.for_route(RequestRoute::Balancer));
            let lease = http::request(http, address, Method::GET, LEASE, &Value::Null).await;
            let holder = lease.ok().and_then(|lease| {
                lease.body["spec"]["holderIdentity"].as_str().and_then(|who| who.parse().ok())
            });
            holder.ok_or("no controllers lead")
        })
        .await
    }

    /// Records the changes of etcd since the last call; returns its revision.
    pub fn record_store_changes(&mut self) -> Revision {
        let (changes, newest) = tokio::task::block_in_place(|| {
            let begun = Instant::now();
            loop {
                match self.cluster.changes(self.recorded_revision) {
                    Ok(found) => return found,
                    Err(error) => assert!(begun.elapsed() < PATIENCE, "{error:#}"),
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        self.recorded_revision = newest;
        let changes: Vec<_> = changes.into_iter().filter_map(canonical::change).collect();
        self.recorder.with(|history| history.changes.extend(changes));
        newest
    }

    /// Copies the logs to a directory that outlives the test.
    fn save_logs(&self, to: &Path) -> std::io::Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(self.dir.path())?.map_while(Result::ok) {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        for (number, member) in self.cluster.members().iter().enumerate() {
            fs::write(to.join(format!("etcd-{number}.log")), member.log())?;
        }
        Ok(())
    }
}

impl Drop for ChaosCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (folder, file) = (artifact_dir(), artifact_dir().join("unfinished.jsonl"));
            let kept = self.save_logs(&folder);
            let kept = kept.and_then(|()| self.recorder.with(|history| history.save(&file)));
            eprintln!("the logs are in {}: {kept:?}", folder.display());
        }
    }
}

/// Directory for the history and the logs of a failed run.
pub fn artifact_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos")
}

fn data(dir: &Path, server: usize) -> PathBuf {
    dir.join(format!("server-{server}"))
}

fn launch(
    dir: &Path,
    cluster: &EtcdCluster,
    network: Option<&HostNetwork>,
    address: SocketAddr,
    server: usize,
) -> ChildProcess {
    let mut words = match network {
        Some(network) => network.command_prefix(SERVER_HOSTS[server]).unwrap(),
        None => Vec::new(),
    };
    words.extend([
        env!("CARGO_BIN_EXE_windlass").to_owned(),
        "server".to_owned(),
        format!("--listen={address}"),
        format!("--data-dir={}", data(dir, server).display()),
        format!("--token-auth-file={}", dir.join("tokens.csv").display()),
        format!("--etcd-servers={}", cluster.urls().join(",")),
    ]);
    let process = ChildProcess::spawn_guarded(words, &dir.join(format!("server-{server}.log")));
    tokio::task::block_in_place(|| process.line(PATIENCE));
    process
}
