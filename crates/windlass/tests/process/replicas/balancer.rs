//! Fixture: a typical TCP load balancer. It polls the readiness of each server, and assigns new
//! connections to ready ones in turn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use windlass_testkit::{HttpClient, wait_for_async};

/// Interval of readiness checks of servers.
const INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a readiness check.
const LIMIT: Duration = Duration::from_millis(500);

/// A load balancer; its connections are closed when dropped.
pub struct LoadBalancer {
    pub address: SocketAddr,
    backends: Backends,
    tasks: JoinSet<()>,
}

type Backends = Arc<Mutex<Vec<Arc<BalancerBackend>>>>;

struct BalancerBackend {
    address: SocketAddr,
    ready: AtomicBool,
}

impl LoadBalancer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backends = Backends::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, backends.clone()));
        Self { address, backends, tasks }
    }

    /// Adds a backend; `http` polls its `/readyz`.
    pub fn add(&mut self, address: SocketAddr, http: HttpClient) {
        let backend = Arc::new(BalancerBackend { address, ready: AtomicBool::new(false) });
        self.backends.lock().unwrap().push(backend.clone());
        self.tasks.spawn(check(backend, http));
    }

    /// Waits until this many servers are ready.
    pub async fn wait_for_ready_backends(&self, wanted: usize) {
        wait_for_async(&format!("never {wanted} servers that are ready"), async || {
            let backends = self.backends.lock().unwrap();
            backends.iter().filter(|backend| backend.ready.load(Relaxed)).count() == wanted
        })
        .await;
    }
}

/// Polls the readiness of a server.
async fn check(backend: Arc<BalancerBackend>, http: HttpClient) {
    loop {
        let ask = async {
            let mut connection = http.connect().await.ok()?;
            connection.request(Method::GET, "/readyz", &Value::Null).await.ok()
        };
        let answer = tokio::time::timeout(LIMIT, ask).await;
        let ready = matches!(answer, Ok(Some((200, _))));
        backend.ready.store(ready, Relaxed);
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn accept(listener: TcpListener, backends: Backends) {
    let turn = AtomicUsize::new(0);
    let mut open = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut ready = backends.lock().unwrap().clone();
        ready.retain(|backend| backend.ready.load(Relaxed));
        let first = turn.fetch_add(1, Relaxed);
        open.spawn(async move {
            for index in 0..ready.len() {
                let backend = &ready[(first + index) % ready.len()];
                // A server that refuses a connection is skipped.
                let Ok(mut server) = TcpStream::connect(backend.address).await else { continue };
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                return;
            }
        });
        while open.try_join_next().is_some() {}
    }
}
