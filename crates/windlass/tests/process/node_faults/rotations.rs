//! Dozens of rotations, with clients that use the certificates continuously.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hyper::Method;
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_node::AgentOptions;
use windlass_node::credential_monitor::CredentialMonitor;
use windlass_node::key_pair::CertificateKeyPair;
use windlass_node::tls_resolver::CurrentKeyPair;
use windlass_testkit::{HttpClient, retry_async};

use super::fault_proxy::FaultProxy;
use super::{NodeHome, are_distinct, soon, start_server, token};
use crate::controllers::REQUESTS;
use crate::server::BoxedError;
use crate::server::{PATIENCE, long};

/// Address of the node: loopback addresses are not approved automatically.
const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Counters of events during the rotations.
#[derive(Default)]
struct RotationCounters {
    handshakes: AtomicUsize,
    ended: AtomicUsize,
    requests: AtomicUsize,
    newcomers: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn dozens_of_rotations_cause_no_failures() {
    // Seven tenths of the lifetime have passed after a second or two.
    let admin = start_server(&["--approve-kubelet-serving", "--cluster-signing-duration=131s"]);
    let proxy = FaultProxy::start(admin.server.address).await;
    let home = Arc::new(NodeHome::new(&admin.server, "n1"));
    home.write_bootstrap_kubeconfig(&admin.server, &token(&admin), Some(proxy.address));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = AgentOptions {
        addresses: vec![NODE],
        rotate_server_certificates: true,
        serving: Some(listener),
        random: soon(),
        ..home.options()
    };
    let (down, shutdown) = watch::channel(false);
    let agent = tokio::spawn(windlass_node::run(options, shutdown));
    let stored = |home: &NodeHome| home.status().map(|s| s.certificates).unwrap_or_default();
    let both = |least: u64| {
        let enough = move |home: &NodeHome| {
            let stored = stored(home);
            stored.len() == 2 && stored.iter().all(|one| one.stored_count >= least)
        };
        wait_for_rotations(home.clone(), enough, least)
    };
    both(1).await;

    let (users, seen) = (&mut JoinSet::new(), Arc::new(RotationCounters::default()));
    let ca = admin.server.place().data().join("pki/kubelet-serving-ca.crt");
    let node = HttpClient::new(address, &ca, "").with_server_name(NODE);
    let certificates = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    users.spawn(connect_again_and_again(node.clone(), seen.clone(), certificates.clone()));
    users.spawn(hold_connections(node, seen.clone()));
    let (identities, current) = watch::channel(Some(Arc::new(home.pair())));
    users.spawn(watch_certificate(home.current(), identities));
    users.spawn(poll_with_current_client(home.kubeconfig(), current, seen.clone()));
    users.spawn(poll_with_new_client(home.kubeconfig(), seen.clone()));
    let rotations = if long() { 600 } else { 20 };
    tokio::select! {
        () = both(rotations) => {}
        Some(failed) = users.join_next() => panic!("{:?}", failed.unwrap()),
    }
    let open = proxy.open();
    users.shutdown().await;
    let serving = certificates.lock().unwrap().len();
    assert!(serving as u64 >= rotations - 2, "{serving} serving certificates were seen");
    assert!(seen.handshakes.load(Relaxed) > 100, "{} handshakes", seen.handshakes.load(Relaxed));
    assert!(seen.requests.load(Relaxed) > 100, "{} requests", seen.requests.load(Relaxed));
    assert!(seen.newcomers.load(Relaxed) > 20, "{} newcomers", seen.newcomers.load(Relaxed));
    let ended = seen.ended.load(Relaxed);
    assert!(ended as u64 >= rotations / 10, "only {ended} idle connections ended");
    // Connections of the last seconds, and those that the clients hold.
    assert!(
        proxy.connection_count() as u64 > rotations && open < 40,
        "{open} of {} are open",
        proxy.connection_count()
    );

    down.send_replace(true);
    agent.await.unwrap().unwrap();
    let (_, list) = admin.server.http().request(Method::GET, REQUESTS, Value::Null).await;
    let list = list["items"].as_array().unwrap();
    are_distinct(list);
    let asked = stored(&home).iter().map(|one| one.stored_count).sum::<u64>();
    assert!((asked..=asked + 2).contains(&(list.len() as u64)), "{} for {asked}", list.len());
}

/// Waits until there were enough rotations; panics after a timeout.
async fn wait_for_rotations(home: Arc<NodeHome>, enough: impl Fn(&NodeHome) -> bool, least: u64) {
    retry_async(PATIENCE + Duration::from_secs(2 * least), async || {
        if enough(&home) { Ok(()) } else { Err(format!("{:#?}", home.status())) }
    })
    .await;
}

/// Opens a new connection each time. Returns when one fails.
async fn connect_again_and_again(
    node: HttpClient,
    seen: Arc<RotationCounters>,
    certificates: Arc<std::sync::Mutex<BTreeSet<Vec<u8>>>>,
) -> BoxedError {
    loop {
        let connected = async {
            let mut stream = node.connect_tls().await?;
            let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
            certificates.lock().unwrap().insert(shown);
            let ask = b"GET /healthz HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n";
            stream.write_all(ask).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            if answer.starts_with(b"HTTP/1.1 200") {
                return Ok::<_, BoxedError>(());
            }
            Err(format!("an answer: {:?}", String::from_utf8_lossy(&answer)).into())
        };
        if let Err(error) = connected.await {
            return format!("a connection to the node: {error}").into();
        }
        seen.handshakes.fetch_add(1, Relaxed);
    }
}

/// Keeps used connections open until the node closes them: some time after the certificate has
/// changed, but before the idle timeout. Returns when one stays open.
async fn hold_connections(node: HttpClient, seen: Arc<RotationCounters>) -> BoxedError {
    loop {
        let held = async {
            let mut stream = node.connect_tls().await?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: n\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            let good = answer.starts_with(b"HTTP/1.1 200");
            if good { Ok::<_, BoxedError>(()) } else { Err("no answer".into()) }
        };
        match tokio::time::timeout(Duration::from_secs(9), held).await {
            Ok(Ok(())) => seen.ended.fetch_add(1, Relaxed),
            Ok(Err(error)) => return format!("a connection that is held: {error}").into(),
            Err(_) => return "a connection outlives its certificate".into(),
        };
    }
}

/// Reads the certificate continuously. Returns when it is missing.
async fn watch_certificate(
    current: PathBuf,
    identities: watch::Sender<Option<Arc<CertificateKeyPair>>>,
) -> BoxedError {
    loop {
        let read = fs::read(&current).map_err(BoxedError::from);
        match read.and_then(|text| Ok(CertificateKeyPair::from_pem(&text)?)) {
            Ok(found) => identities.send_if_modified(|before| {
                let same = |before: &Arc<CertificateKeyPair>| before.leaf().der() == found.leaf().der();
                let changed = !before.as_ref().is_some_and(same);
                if changed {
                    *before = Some(Arc::new(found));
                }
                changed
            }),
            Err(error) => return format!("no current certificate: {error}").into(),
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn config(kubeconfig: PathBuf) -> Result<Config, BoxedError> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}

/// Sends requests with the client that switches certificates. Returns when one fails.
async fn poll_with_current_client(
    kubeconfig: PathBuf,
    current: CurrentKeyPair,
    seen: Arc<RotationCounters>,
) -> BoxedError {
    let config = match config(kubeconfig).await {
        Ok(config) => config,
        Err(error) => return error,
    };
    let monitor = CredentialMonitor::new(windlass_node::clock::system());
    let nodes: Api<Node> = match windlass_node::client::connect(&config, current, monitor) {
        Ok(client) => Api::all(client),
        Err(error) => return error.into(),
    };
    loop {
        if let Err(error) = nodes.get("n1").await {
            return format!("a request of the node's client: {error:?}").into();
        }
        seen.requests.fetch_add(1, Relaxed);
    }
}

/// Reads the kubeconfig and the certificate and sends a request. Returns when that fails.
async fn poll_with_new_client(kubeconfig: PathBuf, seen: Arc<RotationCounters>) -> BoxedError {
    loop {
        let asked = async {
            let nodes: Api<Node> = Api::all(Client::try_from(config(kubeconfig.clone()).await?)?);
            nodes.get("n1").await?;
            Ok::<_, BoxedError>(())
        };
        if let Err(error) = asked.await {
            return format!("a request with the kubeconfig: {error:?}").into();
        }
        seen.newcomers.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
