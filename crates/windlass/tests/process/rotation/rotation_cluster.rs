//! A server with a signer, and agents that keep a certificate and trust anchors of it on disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_pki::Certificate;
use windlass_testkit::{ChildProcess, poll_until};

use crate::issue::{windlass, windlass_ok};
use crate::kubectl::Kubectl;
use crate::node::shell;
use crate::server::TestDataDir;
use crate::trust_docs::MountGuard;

/// Signer whose CA is rotated.
pub const SIGNER: &str = "example.com/web";
const BUNDLE: &str = "example.com:web:anchors";
/// A rotation that takes longer has failed. It has many steps, each of which takes seconds on a loaded machine.
const ROTATION_PATIENCE: Duration = Duration::from_secs(120);

/// What the signer issues: names below the one of the requesting node.
pub fn request_policy() -> Value {
    json!({
        "commonNames": ["*.{node}.example.com"], "dnsNames": ["*.{node}.example.com"],
        "usages": ["digital signature", "key encipherment", "client auth", "server auth"],
        "maxDuration": "24h", "approval": {"automatic": {"groups": ["system:nodes"]}},
    })
}

/// An agent with one host projection.
pub struct HostAgent {
    /// Killed before its directory is unmounted.
    process: ChildProcess,
    _mounted: [MountGuard; 2],
    pub node: String,
    pub volume: HostVolume,
}

/// Directory of a host projection, with `web.pem` and `ca.pem`.
#[derive(Clone, Debug)]
pub struct HostVolume {
    pub directory: PathBuf,
    pub host_name: String,
}

/// Content of one generation of a volume.
pub struct VolumeContent {
    pub credentials: Vec<u8>,
    pub anchors: Vec<u8>,
}

impl HostVolume {
    /// Returns the directory of the present generation, whose files belong together.
    pub fn generation(&self) -> PathBuf {
        self.directory.join(fs::read_link(self.directory.join("..data")).unwrap())
    }

    /// Reads both files of one generation.
    pub fn read(&self) -> VolumeContent {
        loop {
            let generation = self.generation();
            let [credentials, anchors] = ["web.pem", "ca.pem"].map(|name| fs::read(generation.join(name)));
            // The files may be replaced while they are read; then there are newer ones.
            if let (Ok(credentials), Ok(anchors)) = (credentials, anchors) {
                return VolumeContent { credentials, anchors };
            }
        }
    }
}

impl HostAgent {
    /// Stops or continues the process.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// The server, the administrator and the agents.
pub struct RotationCluster {
    pub agents: Vec<HostAgent>,
    /// `None` while the server does not run.
    admin: Option<Kubectl>,
    path: PathBuf,
}

impl RotationCluster {
    /// Starts a server with a Signer object whose CA is generated into a Secret, and agents that join.
    pub fn start(nodes: &[&str], projection: &str) -> Self {
        Self::join(Self::start_server(), nodes, projection)
    }

    /// As [`RotationCluster::start`], with host projections on small file systems of their own.
    pub fn start_on_small_disk(nodes: &[&str], projection: &str) -> Self {
        let admin = Self::start_server();
        for node in nodes {
            let directory = admin.server.place().path().join("hosts").join(node).join("tls");
            fs::create_dir_all(&directory).unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&directory);
            assert!(mount.status().unwrap().success(), "{mount:?}");
        }
        Self::join(admin, nodes, projection)
    }

    fn start_server() -> Kubectl {
        let admin = Kubectl::with_server(TestDataDir::new().start());
        let signer = json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "Signer", "metadata": {"name": "web"},
            "spec": {"signerName": SIGNER, "ca": {"selfSigned": {}}, "requests": request_policy(), "publish": {}},
        });
        admin.ok_with(&signer.to_string(), &["create", "-f", "-"]);
        admin
    }

    /// Lets agents join a server that has the signer, and waits until they have files and report them.
    pub fn join(admin: Kubectl, nodes: &[&str], projection: &str) -> Self {
        let path = admin.server.place().path().to_owned();
        let made = windlass_ok(&admin, &["token", "create", "-o", "json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let (prepare, _) = made["command"].as_str().unwrap().rsplit_once(" && ").unwrap();
        assert!(shell(&path, prepare).status().unwrap().success());
        let agents = nodes.iter().map(|node| start_agent(&path, node, projection)).collect();
        let cluster = Self { agents, admin: Some(admin), path };
        cluster.wait_for_reports(projection);
        cluster
    }

    fn wait_for_reports(&self, projection: &str) {
        for agent in &self.agents {
            poll_until(&format!("{} has no files", agent.node), || {
                agent.volume.directory.join("web.pem").exists().then_some(())
            });
        }
        let volume = json!([format!("host/{projection}")]);
        poll_until("not all agents report", || {
            let reports = self.admin().json(&["get", "nodetrusts"]);
            let reports = reports["items"].as_array()?.iter();
            let delivered = |report: &&Value| report["status"]["sources"][0]["volumes"] == volume;
            (reports.filter(delivered).count() == self.agents.len()).then_some(())
        });
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn admin(&self) -> &Kubectl {
        self.admin.as_ref().unwrap()
    }

    /// Kills the server with its controllers by SIGKILL, and starts it again.
    pub fn kill_and_restart(&mut self) {
        let Kubectl { server, .. } = self.admin.take().unwrap();
        let place = Arc::into_inner(server).unwrap().kill();
        self.admin = Some(Kubectl::with_server(place.start()));
    }

    /// Builds a `windlass rotate` command.
    pub fn rotate(&self, args: &[&str]) -> Command {
        windlass(self.admin(), &[&["rotate"], args].concat())
    }

    /// Starts a rotation without waiting for it; returns its name.
    pub fn start_rotation(&self, flags: &[&str]) -> String {
        let args = [&["start", SIGNER, "-o", "name"], flags].concat();
        let output = self.rotate(&args).output().unwrap();
        let name = String::from_utf8(expect_code(output, 0).stdout).unwrap();
        name.trim().rsplit('/').next().unwrap().to_owned()
    }

    /// Returns a rotation as it is now.
    pub fn rotation(&self, name: &str) -> Value {
        self.admin().json(&["get", "carotation", name])
    }

    /// Waits until a rotation has completed.
    pub fn wait_until_completed(&self, name: &str) -> Value {
        let began = Instant::now();
        loop {
            let rotation = self.rotation(name);
            if rotation["status"]["phase"] == "Completed" {
                return rotation;
            }
            assert!(began.elapsed() < ROTATION_PATIENCE, "{:#}", rotation["status"]);
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the trust anchors that the signer publishes, as PEM.
    pub fn published(&self) -> String {
        let path = "jsonpath={.spec.trustBundle}";
        self.admin().ok(&["get", "clustertrustbundle", BUNDLE, "-o", path])
    }

    /// Checks what a completed rotation leaves behind: one anchor, leaves below it, and no leaf of the old CA in use.
    pub fn check_completed(&self, rotation: &Value) {
        let status = &rotation["status"];
        let id = |role: &str| status[role]["id"].as_str().unwrap().to_owned();
        assert_ne!(id("oldAuthority"), id("newAuthority"));
        let published = self.published();
        assert_eq!(published.matches("BEGIN").count(), 1, "{published}");
        assert_eq!(Certificate::from_pem(published.as_bytes()).unwrap().authority_id(), id("newAuthority"));
        fs::write(self.path.join("published.pem"), &published).unwrap();
        for agent in &self.agents {
            poll_until(&format!("the leaf of {} does not chain to the new CA", agent.node), || {
                let leaf = agent.volume.directory.join("web.pem");
                let line = format!("openssl verify -CAfile published.pem {}", leaf.display());
                shell(&self.path, &line).output().unwrap().status.success().then_some(())
            });
            assert_eq!(agent.volume.read().anchors, published.as_bytes(), "{}", agent.node);
        }
        let args = ["cert", "list", "--outstanding", "--authority", &id("oldAuthority"), "-o", "name"];
        assert_eq!(windlass_ok(self.admin(), &args), "");
        let phases: BTreeSet<&str> =
            status["steps"].as_array().unwrap().iter().filter_map(|step| step["phase"].as_str()).collect();
        assert!(phases.contains("Completed"), "{phases:?}");
    }
}

/// Returns the reason for which a rotation is held; `None` if it is not.
pub fn held_reason(rotation: &Value) -> Option<&str> {
    let conditions = rotation["status"]["conditions"].as_array()?;
    let held = conditions.iter().find(|each| each["type"] == "Held" && each["status"] == "True")?;
    held["reason"].as_str()
}

/// Lists the names and reasons of the laggards of a rotation.
pub fn laggards(rotation: &Value) -> Vec<(&str, &str)> {
    let listed = rotation["status"]["laggards"].as_array().into_iter().flatten();
    listed.map(|each| (each["name"].as_str().unwrap(), each["reason"].as_str().unwrap())).collect()
}

/// Checks the exit code of a command.
pub fn expect_code(output: Output, code: i32) -> Output {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    output
}

fn start_agent(path: &Path, node: &str, projection: &str) -> HostAgent {
    let home = path.join("hosts").join(node);
    fs::create_dir_all(&home).unwrap();
    let host_name = format!("web.{node}.example.com");
    let directory = home.join("tls");
    let projections = json!({"apiVersion": "windlass.dev/v1", "kind": "Projections", "projections": [{
        "name": projection, "directory": directory,
        "certificate": {"commonName": host_name, "dnsNames": [host_name]},
        "projected": {"sources": [
            {"clusterTrustBundle": {"signerName": SIGNER, "labelSelector": {}, "path": "ca.pem"}},
            {"podCertificate": {"signerName": SIGNER, "keyType": "ECDSAP256", "credentialBundlePath": "web.pem"}},
        ]},
    }]});
    fs::write(home.join("projections.yaml"), projections.to_string()).unwrap();
    let line = format!(
        "exec windlass node --bootstrap-kubeconfig windlass-node/bootstrap.kubeconfig \
         --kubeconfig hosts/{node}/kubeconfig --cert-dir hosts/{node}/pki --node-name {node} \
         --metrics-listen 127.0.0.1:0 --projections hosts/{node}/projections.yaml"
    );
    let process = ChildProcess::spawn_logged(&mut shell(path, &line), &home.join("node.log"));
    let _mounted = [home.join("pki/pods"), directory.clone()].map(MountGuard);
    HostAgent { process, _mounted, node: node.to_owned(), volume: HostVolume { directory, host_name } }
}
