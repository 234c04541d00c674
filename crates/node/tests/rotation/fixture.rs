//! A server with controllers and a signer, and a node's volumes, in accelerated time.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_controllers::ca::CaSource;
use windlass_controllers::signers::CustomSigner;
use windlass_controllers::signers::config::SignersConfig;
use windlass_node::agent::volumes::VolumeRuntime;
use windlass_node::clock::ClockReading;
use windlass_node::node_status::NodeRegistration;
use windlass_pki::{CertificateAuthority, parse_certificate_blocks};
use windlass_server::MASTERS;
use windlass_testkit::{TestServer, create, self_signed_ca, write_ca};

const SIGNER: &str = "example.com/workloads";
/// Acceleration of time: seconds per real second.
const RATE: i32 = 60;
/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
pub struct FastClock {
    began: Instant,
    from: OffsetDateTime,
}

impl FastClock {
    pub fn wall(&self) -> OffsetDateTime {
        self.from + self.began.elapsed() * RATE.unsigned_abs()
    }
}

pub struct RotationFixture {
    server: TestServer,
    clock: FastClock,
    tasks: JoinSet<()>,
}

/// A root CA with its key.
pub struct RootAuthority {
    pair: CertificateAuthority,
}

impl RootAuthority {
    pub fn new(name: &str) -> Self {
        Self { pair: self_signed_ca(name) }
    }
}

pub struct PodVolumeFiles {
    directory: PathBuf,
    seen: Mutex<BTreeSet<Vec<u8>>>,
}

impl PodVolumeFiles {
    pub fn current(&self) -> Option<PathBuf> {
        fs::read_link(self.directory.join("..data")).ok()
    }

    /// Reads the target of `..data`, the credentials and the anchors.
    pub fn read(&self) -> Option<(PathBuf, Vec<u8>, Vec<u8>)> {
        loop {
            let current = self.current()?;
            let of = |name: &str| fs::read(self.directory.join(&current).join(name));
            // The files may be replaced while they are read; then there are newer ones.
            if let (Ok(credentials), Ok(anchors)) = (of("credentials.pem"), of("ca.pem")) {
                return Some((current, credentials, anchors));
            }
        }
    }

    pub fn trusts(&self, root: &RootAuthority) -> bool {
        let Some((_, _, anchors)) = self.read() else { return false };
        let anchors = parse_certificate_blocks(&anchors).unwrap();
        anchors.iter().any(|anchor| anchor.der() == &**root.pair.certificate().der())
    }

    /// Returns whether its certificate was issued by this root.
    pub fn is_issued_by(&self, root: &RootAuthority) -> bool {
        let Some((_, credentials, _)) = self.read() else { return false };
        let text = String::from_utf8(credentials).unwrap();
        let chain = &text[text.find("-----BEGIN CERTIFICATE").unwrap()..];
        let leaf = parse_certificate_blocks(chain.as_bytes()).unwrap().remove(0);
        self.seen.lock().unwrap().insert(leaf.der().to_vec());
        let issuer = parse_certificate_blocks(root.pair.certificate().to_pem().as_bytes()).unwrap();
        leaf.issuer() == *issuer[0].subject()
    }

    pub fn certificates_seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl RotationFixture {
    pub async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let clock = FastClock { began: Instant::now(), from: OffsetDateTime::now_utc() };
        let server = TestServer::with(|options| options.clock = Arc::new(move || clock.wall())).await;
        let mut world = Self { server, clock, tasks: JoinSet::new() };
        world.prepare().await;
        world.run_controllers();
        world.run_node();
        world
    }

    pub fn clock(&self) -> FastClock {
        self.clock
    }

    fn client_of(&self, name: &str, group: &str) -> Client {
        Client::new(self.server.transport_as(name, &[group]), "web")
    }

    fn admin(&self) -> Client {
        self.client_of("admin", MASTERS)
    }

    async fn prepare(&self) {
        let admin = self.admin();
        create(&Api::<Namespace>::all(admin.clone()), json!({"metadata": {"name": "web"}})).await;
        create(&Api::<Node>::all(admin.clone()), json!({"metadata": {"name": "n1"}})).await;
        let accounts = Api::<ServiceAccount>::default_namespaced(admin.clone());
        create(&accounts, json!({"metadata": {"name": "default"}})).await;
        let service = json!({
            "metadata": {"name": "server"},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": 443}]},
        });
        create(&Api::<Service>::default_namespaced(admin), service).await;
    }

    fn run_controllers(&mut self) {
        // An initial root; tests choose the one to sign with.
        self.sign_with(&RootAuthority::new("nobody"));
        let signers = format!(
            "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: {SIGNER}, \
             ca: {{files: {{certificate: ca.crt, key: ca.key}}}}, pods: {{trustDomain: \
             example.com, serviceNames: true, maxDuration: 1h, refreshAfter: 0.3}}}}]}}"
        );
        let clock = self.clock;
        let clock: windlass_controllers::Clock = Arc::new(move || clock.wall());
        let file = self.server.dir().join("signers.yaml");
        let custom = SignersConfig::parse(&file, &signers).unwrap().signers.remove(0);
        let [certificate, key] = ["ca.crt", "ca.key"].map(|name| self.server.dir().join(name));
        let ca = CaSource::from_chain_files(certificate, key, clock.clone());
        let options = windlass_controllers::ControllerOptions {
            custom: vec![CustomSigner::new(custom, ca)],
            ..windlass_controllers::ControllerOptions::new(clock)
        };
        let shutdown = self.server.shutdown();
        self.tasks.spawn(windlass_controllers::run(self.admin(), options, shutdown));
    }

    fn run_node(&mut self) {
        let (clock, root) = (self.clock, self.server.dir().join("node"));
        let options = windlass_node::AgentOptions {
            node_name: "n1".into(),
            root_dir: root.clone(),
            clock: Arc::new(move || ClockReading { wall: clock.wall(), since: clock.began.elapsed() }),
            look: Duration::from_millis(100),
            tmpfs: false,
            ..windlass_node::AgentOptions::new(root.join("kubeconfig"), root.join("pki"))
        };
        let registration = NodeRegistration { heartbeat: Some(clock.wall()), ..NodeRegistration::default() };
        let registration = watch::Sender::new(registration);
        let client = self.client_of("system:node:n1", "system:nodes");
        let volumes = VolumeRuntime::new(&options);
        volumes.start(&options, &client, registration.subscribe(), &mut self.tasks);
        // The task runs as long as there are volumes.
        self.tasks.spawn(async move {
            let _hold = registration;
            std::future::pending::<()>().await;
        });
    }

    pub fn sign_with(&self, root: &RootAuthority) {
        write_ca(self.server.dir(), &root.pair);
    }

    /// Creates or updates a bundle of the signer.
    pub async fn apply_bundle(&self, name: &str, label: &str, roots: &[&RootAuthority]) {
        let name = format!("example.com:workloads:{name}");
        let text = roots.iter().map(|root| root.pair.certificate().to_pem());
        let bundle = json!({
            "apiVersion": "certificates.k8s.io/v1beta1",
            "kind": "ClusterTrustBundle",
            "metadata": {"name": name, "labels": {"stage": label}},
            "spec": {"signerName": SIGNER, "trustBundle": text.collect::<String>()},
        });
        let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1beta1", "ClusterTrustBundle");
        let bundles = Api::<DynamicObject>::all_with(self.admin(), &ApiResource::from_gvk(&kind));
        let params = PatchParams::apply("test").force();
        bundles.patch(&name, &params, &Patch::Apply(&bundle)).await.unwrap();
    }

    /// Creates a pod on the node. Returns its volume.
    pub async fn add_pod(&self, name: &str) -> Arc<PodVolumeFiles> {
        let sources = json!([
            {"clusterTrustBundle": {
                "signerName": SIGNER,
                "labelSelector": {"matchLabels": {"stage": "live"}},
                "path": "ca.pem",
            }},
            {"podCertificate": {
                "signerName": SIGNER,
                "keyType": "ECDSAP256",
                "maxExpirationSeconds": 3600,
                "credentialBundlePath": "credentials.pem",
            }},
        ]);
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": "n1",
                "serviceAccountName": "default",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "tls", "projected": {"sources": sources}}],
            },
        });
        let pod = create(&Api::<Pod>::default_namespaced(self.admin()), pod).await;
        let pods = self.server.dir().join("node/pods").join(pod.uid().unwrap());
        let directory = pods.join("volumes/kubernetes.io~projected/tls");
        Arc::new(PodVolumeFiles { directory, seen: Mutex::default() })
    }

    pub async fn until(&self, what: &str, good: impl Fn() -> bool) {
        let began = Instant::now();
        while !good() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
