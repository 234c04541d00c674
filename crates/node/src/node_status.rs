//! The Node object on the server: its status, and a heartbeat every ten seconds.
//!
//! The Node is watched, so that a change by somebody else is answered at once (`observed`). If a kubelet reports for the
//! node, nothing is written about it, and its addresses are read.

pub mod address;
pub mod object;
mod observed;

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, Error};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::{Clock, ClockReading};
use crate::csr::PATIENCE;
use crate::node_certificates::RandomSource;
use crate::template::CertificateTemplate;
use windlass_runtime::client_error::describe;
use windlass_runtime::watch::ObjectWatch;

use object::{HostInfo, is_ready, is_reported_by_kubelet, serving_template};
use observed::ObservedNode;

/// Namespace of the node leases that hold heartbeats.
const LEASES: &str = "kube-node-lease";
/// Interval between heartbeats of the node.
const BEAT: Duration = Duration::from_secs(10);
/// Retry delay of the first heartbeat, and shortest interval between two reports: others that keep changing the Node do
/// not cause more.
const SOON: Duration = Duration::from_secs(1);
/// Interval of status writes without a change.
const STATUS: Duration = Duration::from_secs(5 * 60);
/// A gap of this length between heartbeats means that one was missed.
const GAP: Duration = Duration::from_secs(15);
/// Time after a gap in which the Node is read with every heartbeat. A host that was suspended may have a watch that is
/// dead without knowing, and controllers mark nodes as lost with a delay.
const DOUBT: Duration = Duration::from_secs(3 * 60);

/// State of the Node object on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRegistration {
    /// UID of the Node object; `None` until it is created or found.
    pub uid: Option<String>,
    /// Whether a kubelet reports for the node instead of this agent.
    pub kubelet: bool,
    /// Port that the node serves on, if it does.
    pub port: Option<u16>,
    /// Addresses in the status of the Node.
    pub addresses: Vec<IpAddr>,
    /// Time of the last successful heartbeat.
    pub heartbeat: Option<OffsetDateTime>,
    /// The last error; `None` after a successful report or heartbeat.
    pub problem: Option<String>,
}

/// Registers the node and sends heartbeats.
pub struct NodeRegistrar {
    /// API client with the node's credentials.
    pub client: Client,
    /// Host and port of the server, to detect the node's address towards it.
    pub server: (String, u16),
    /// Configured addresses; detected if empty.
    pub chosen: Vec<IpAddr>,
    /// Information about the host; its addresses are filled in.
    pub host: HostInfo,
    /// Source of time for heartbeats and status updates.
    pub clock: Clock,
    /// Random numbers that spread the heartbeats of nodes started together.
    pub random: RandomSource,
    /// Publishes the state of the registration.
    pub registration: watch::Sender<NodeRegistration>,
    /// Publishes the required content of the serving certificate.
    pub templates: watch::Sender<Option<CertificateTemplate>>,
}

impl NodeRegistrar {
    /// Registers the node and sends heartbeats until dropped.
    pub async fn run(mut self) {
        let mut watch = self.watch_node();
        let mut observed = ObservedNode::default();
        let (mut lease, mut written) = (None, None::<Instant>);
        let (mut pause, mut last, mut doubt) = (SOON, None::<ClockReading>, None::<Instant>);
        loop {
            let moved = self.refresh_addresses().await;
            let due = written.is_none_or(|at| at.elapsed() >= STATUS);
            if last.is_some_and(|last| elapsed(last, (self.clock)()) >= GAP) {
                doubt = Some(Instant::now());
            }
            let mut fresh = due || moved || self.requires_report(observed);
            if !fresh && doubt.is_some_and(|since| since.elapsed() < DOUBT) {
                fresh = self.is_ready().await.is_ok_and(|ready| !ready);
            }
            if fresh {
                // What is known of the Node is older than the report.
                observed = ObservedNode::Unknown;
                written = self.record_outcome(self.report().await).then(Instant::now);
            }
            if written.is_some() && !self.registration.borrow().kubelet {
                let beat = self.renew_lease(lease.take(), fresh).await;
                lease = beat.as_ref().ok().cloned();
                if beat.is_ok() {
                    last = Some((self.clock)());
                }
                self.record_outcome(beat.map(drop));
                pause = BEAT;
            } else {
                pause = if written.is_some() { BEAT } else { (pause * 2).min(BEAT) };
            }
            let beat = tokio::time::sleep(pause.mul_f64(1.0 + 0.04 * (self.random)()));
            let earliest = Instant::now() + SOON;
            tokio::select! {
                () = beat => {}
                () = self.wait_until_changed(&mut watch, &mut observed) => sleep_until(earliest).await,
            }
        }
    }

    fn watch_node(&self) -> ObjectWatch<Node> {
        let selector = format!("metadata.name={}", self.host.name);
        ObjectWatch::with_fields(Api::all(self.client.clone()), Some(&selector))
    }

    fn requires_report(&self, observed: ObservedNode) -> bool {
        observed.requires_report(self.registration.borrow().kubelet)
    }

    /// Waits until somebody else changed the Node so that it must be reported again. Errors are those of the heartbeat
    /// as well, which reports them.
    async fn wait_until_changed(&self, watch: &mut ObjectWatch<Node>, observed: &mut ObservedNode) {
        loop {
            if let Ok(event) = watch.next().await {
                observed.observe(&event);
                // A list that has begun says nothing yet.
                let is_listing = matches!(event, Event::Init | Event::InitApply(_));
                if !is_listing && self.requires_report(*observed) {
                    return;
                }
            }
        }
    }

    /// Detects the addresses. Returns whether they changed.
    async fn refresh_addresses(&mut self) -> bool {
        let found = match self.chosen.is_empty() {
            false => self.chosen.clone(),
            true => address::local_address_towards(&self.server).await.into_iter().collect(),
        };
        // Without a network the server cannot be reached either.
        if found.is_empty() || found == self.host.addresses {
            return false;
        }
        self.host.addresses = found;
        true
    }

    /// Returns whether the Node on the server is ready, as this agent reported.
    async fn is_ready(&self) -> Result<bool, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        Ok(call_api(nodes.get_opt(&self.host.name)).await?.as_ref().is_some_and(is_ready))
    }

    /// Creates the Node if it is missing, and updates its labels and status.
    async fn report(&self) -> Result<(), String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = &self.host.name;
        let mut found = match call_api(nodes.get_opt(name)).await? {
            Some(found) => found,
            // The kubelet registers it again, without the taint that keeps pods away.
            None if self.registration.borrow().kubelet => return Ok(()),
            None => {
                tracing::info!(node = name, "registering the node");
                call_api(nodes.create(&PostParams::default(), &self.host.node())).await?
            }
        };
        let kubelet = is_reported_by_kubelet(&found);
        if !kubelet {
            let params = PatchParams::default();
            if let Some(patch) = self.host.label_patch(&found) {
                found = call_api(nodes.patch(name, &params, &Patch::Merge(patch))).await?;
            }
            let patch = self.host.status_patch(&found, (self.clock)().wall);
            found = call_api(nodes.patch_status(name, &params, &Patch::Merge(patch))).await?;
        }
        let template = serving_template(&found);
        self.templates.send_if_modified(|before| {
            let changed = *before != template;
            *before = template;
            changed
        });
        self.registration.send_modify(|known| {
            if kubelet && !known.kubelet {
                tracing::info!(
                    node = name,
                    "a kubelet reports the status of this node; leaving the node and its pods to it"
                );
            }
            known.uid = found.metadata.uid;
            known.kubelet = kubelet;
            known.addresses = self.host.addresses.clone();
        });
        Ok(())
    }

    /// Renews the lease that was written last, or finds or creates it. `fresh` if the node was
    /// reported just now.
    async fn renew_lease(&self, last: Option<Lease>, fresh: bool) -> Result<Lease, String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let (name, params) = (&self.host.name, PostParams::default());
        let now = (self.clock)().wall;
        let next = |found| {
            let uid = self.registration.borrow().uid.clone();
            self.host.lease(found, uid.as_deref(), now)
        };
        if let Some(last) = last {
            match attempt(leases.replace(name, &params, &next(Some(last)))).await {
                Ok(lease) => return Ok(self.lease_with_heartbeat(lease, now)),
                // Another writer changed or deleted it: handled below.
                Err(NodeApiError::Refused(404 | 409, _)) => {}
                Err(trial) => return Err(trial.text()),
            }
        }
        let lease = match call_api(leases.get_opt(name)).await? {
            Some(found) => call_api(leases.replace(name, &params, &next(Some(found)))).await?,
            None => {
                // A lease is deleted with its Node, which may be gone as well.
                if !fresh {
                    self.report().await?;
                }
                call_api(leases.create(&params, &next(None))).await?
            }
        };
        Ok(self.lease_with_heartbeat(lease, now))
    }

    fn lease_with_heartbeat(&self, lease: Lease, now: OffsetDateTime) -> Lease {
        self.registration.send_modify(|known| known.heartbeat = Some(now));
        lease
    }

    /// Records the last error, and logs it once.
    fn record_outcome(&self, outcome: Result<(), String>) -> bool {
        let problem = outcome.err();
        let fine = problem.is_none();
        self.registration.send_if_modified(|known| {
            if known.problem == problem {
                return false;
            }
            match &problem {
                Some(problem) => tracing::warn!(
                    node = self.host.name,
                    error = problem,
                    "cannot report the status of the node"
                ),
                None => {
                    tracing::info!(node = self.host.name, "reporting the status of the node again")
                }
            }
            known.problem = problem;
            true
        });
        fine
    }
}

/// Returns the elapsed time by the clock that says more: one stops while the host is suspended, and
/// the other may be set back.
fn elapsed(last: ClockReading, now: ClockReading) -> Duration {
    let wall = Duration::try_from(now.wall - last.wall).unwrap_or_default();
    wall.max(now.since.saturating_sub(last.since))
}

/// Why an API call failed.
enum NodeApiError {
    Refused(u16, String),
    Failed(String),
}

impl NodeApiError {
    fn text(self) -> String {
        match self {
            Self::Refused(_, text) | Self::Failed(text) => text,
        }
    }
}

async fn attempt<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, NodeApiError> {
    match timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let text = describe(&error);
            Err(match error {
                Error::Api(status) => NodeApiError::Refused(status.code, text),
                _ => NodeApiError::Failed(text),
            })
        }
        Err(_) => Err(NodeApiError::Failed(format!("the server did not respond within {PATIENCE:?}"))),
    }
}

async fn call_api<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    attempt(call).await.map_err(NodeApiError::text)
}
