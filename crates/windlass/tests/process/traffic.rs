//! Fixture: clients that continuously request certificates, and a watch that records them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use tokio::task::JoinSet;
use windlass_testkit::{HttpClient, retry_async, wait_for_async};

use crate::controllers::{REQUESTS, node_request};
use crate::server::PATIENCE;

/// Clients that request and watch certificates until they are stopped.
pub struct IssuanceTraffic {
    seen: Arc<Mutex<IssuedByRequest>>,
    stop: Arc<AtomicBool>,
    asking: JoinSet<Vec<String>>,
    watching: JoinSet<()>,
}

/// A certificate in PEM and when it was first observed.
#[derive(Clone, Debug)]
pub struct ObservedCertificate {
    pub certificate: Vec<u8>,
    pub at: Instant,
}

/// All certificates of each request, by its name.
pub type IssuedByRequest = HashMap<String, Vec<ObservedCertificate>>;

impl IssuanceTraffic {
    /// Starts this many clients that send requests of nodes, each with a pause between requests.
    pub fn start(http: &HttpClient, clients: usize, pause: Duration) -> IssuanceTraffic {
        IssuanceTraffic::start_at(std::slice::from_ref(http), clients, pause)
    }

    /// As [`IssuanceTraffic::start`], with the clients in turn at each of the servers, and a watch at each.
    pub fn start_at(servers: &[HttpClient], clients: usize, pause: Duration) -> IssuanceTraffic {
        let (seen, stop) = (Arc::<Mutex<IssuedByRequest>>::default(), Arc::<AtomicBool>::default());
        let mut watching = JoinSet::new();
        for http in servers {
            watching.spawn(watch(http.clone(), seen.clone()));
        }
        let mut asking = JoinSet::new();
        for (client, http) in (0..clients).zip(servers.iter().cycle()) {
            asking.spawn(create_requests(http.clone(), client, pause, stop.clone()));
        }
        IssuanceTraffic { seen, stop, asking, watching }
    }

    /// Returns the certificates observed so far.
    pub fn observed(&self) -> MutexGuard<'_, IssuedByRequest> {
        self.seen.lock().unwrap()
    }

    /// Waits until one more request has a certificate.
    pub async fn wait_for_issuance(&self) {
        let before = self.observed().len();
        self.wait_until("nothing is issued any more", |seen| seen.len() > before).await;
    }

    /// Waits until the observed certificates match.
    pub async fn wait_until(&self, otherwise: &str, good: impl Fn(&IssuedByRequest) -> bool) {
        wait_for_async(otherwise, async || good(&self.observed())).await;
    }

    /// Stops the clients and waits for missing certificates. Returns all observed ones, including
    /// every request.
    pub async fn finish(mut self) -> IssuedByRequest {
        self.stop.store(true, Relaxed);
        let asking = std::mem::take(&mut self.asking);
        let asked: Vec<String> = asking.join_all().await.into_iter().flatten().collect();
        let mut watching = std::mem::take(&mut self.watching);
        retry_async(PATIENCE, async || {
            assert!(watching.try_join_next().is_none(), "the watch failed");
            let seen = self.observed();
            let missing: Vec<&String> = asked.iter().filter(|name| !seen.contains_key(*name)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("without a certificate: {missing:?}")) }
        })
        .await;
        watching.shutdown().await;
        std::mem::take(&mut *self.observed())
    }
}

async fn watch(http: HttpClient, seen: Arc<Mutex<IssuedByRequest>>) {
    let path = format!("{REQUESTS}?watch=true&resourceVersion=0");
    let mut events = http.watch(&path).await.unwrap().unwrap();
    while let Some(event) = events.next().await.unwrap() {
        let object = &event["object"];
        // A request whose certificate has expired is deleted, which is expected: it was observed
        // before.
        assert_ne!(event["type"], "ERROR", "{event}");
        let Some(certificate) = object["status"]["certificate"].as_str() else { continue };
        let certificate = STANDARD.decode(certificate).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut seen = seen.lock().unwrap();
        let had = seen.entry(name).or_default();
        if !had.iter().any(|known| known.certificate == certificate) {
            had.push(ObservedCertificate { certificate, at: Instant::now() });
        }
    }
    panic!("the watch ended");
}

async fn create_requests(
    http: HttpClient,
    client: usize,
    pause: Duration,
    stop: Arc<AtomicBool>,
) -> Vec<String> {
    let mut connection = http.connect().await.unwrap();
    let mut names = Vec::new();
    while !stop.load(Relaxed) {
        let name = format!("r-{client}-{}", names.len());
        let (code, answer) = connection.request(Method::POST, REQUESTS, &node_request(&name)).await.unwrap();
        assert_eq!(code, 201, "{answer}");
        names.push(name);
        tokio::time::sleep(pause).await;
    }
    names
}
