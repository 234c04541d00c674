//! Leader election: of several processes, the one that holds a Lease runs the controllers.
//!
//! `role` is the state machine of a candidate. `lease_guard` rejects writes when the lease may have passed to another
//! process, and `fencing` drops connections with requests that are under way then. This module connects them with the
//! API.

mod fencing;
mod lease_guard;
mod role;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Config};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_runtime::client_error::describe;
use windlass_runtime::failure_log::FailureLog;
use windlass_runtime::metrics::MetricsRegistry;

use crate::options::Clock;

use lease_guard::{LeaseGuard, fenced_client};
use role::{LeaderRole, LeaseAction, LeaseRecord};

/// Configuration of leader election through a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Namespace of the Lease object.
    pub namespace: String,
    /// Name of the Lease object.
    pub name: String,
    /// Identity of this process, which must be unique.
    pub identity: String,
    /// Time after the last observed renewal after which another process takes the lease.
    pub lease_duration: Duration,
    /// Time after a renewal for which this process leads.
    pub renew_deadline: Duration,
    /// Interval between two attempts to acquire or renew the lease.
    pub retry_period: Duration,
}

/// Factor of the jitter between attempts, so that processes do not try at the same time.
const JITTER: f64 = 1.2;

/// Time limit for the release of the lease on shutdown.
const RELEASE: Duration = Duration::from_secs(2);

impl LeaderElection {
    /// Creates an election with the times of Kubernetes components.
    pub fn new(identity: String) -> LeaderElection {
        LeaderElection {
            namespace: "kube-system".into(),
            name: "windlass-controllers".into(),
            identity,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Validates the times by the rules of client-go.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.identity.is_empty() {
            Err("lock identity is empty")
        } else if self.lease_duration < Duration::from_secs(1) {
            Err("leaseDuration must be greater than zero")
        } else if self.lease_duration <= self.renew_deadline {
            Err("leaseDuration must be greater than renewDeadline")
        } else if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            Err("renewDeadline must be greater than retryPeriod*JitterFactor")
        } else if self.retry_period.is_zero() {
            Err("retryPeriod must be greater than zero")
        } else {
            Ok(())
        }
    }
}

/// Runs the future that `start` returns while this process leads, until `shutdown` turns true or its sender is dropped.
/// With a `connection`, that future gets separate connections, which end when the lease is lost.
pub async fn run<F, L>(
    client: Client,
    connection: Option<Config>,
    election: LeaderElection,
    clock: Clock,
    metrics: LeaseMetrics,
    mut shutdown: watch::Receiver<bool>,
    start: F,
) where
    F: Fn(Client) -> L,
    L: Future<Output = Infallible> + Send + 'static,
{
    let lease_guard = Arc::new(LeaseGuard::new(clock.clone()));
    let mut candidate = LeaderCandidate {
        leases: Api::namespaced(client.clone(), &election.namespace),
        metrics,
        election,
        clock,
        role: LeaderRole::Follower { seen: None },
        lease_guard,
    };
    loop {
        candidate.metrics.leading.set(0);
        let down = tokio::select! {
            _ = shutdown.wait_for(|down| *down) => true,
            () = candidate.acquire() => false,
        };
        if down {
            break;
        }
        candidate.metrics.leading.set(1);
        let mut work = JoinSet::new();
        work.spawn(start(leader_client(&client, connection.clone(), &candidate.lease_guard)));
        let down = tokio::select! {
            _ = shutdown.wait_for(|down| *down) => true,
            () = candidate.renew_until_lost() => false,
        };
        // Writes are rejected from here on, before the tasks have ended.
        candidate.lease_guard.end();
        work.shutdown().await;
        if down {
            break;
        }
        tracing::warn!(lease = candidate.election.name, "no longer the leader; controllers stopped");
        candidate.role = LeaderRole::Follower { seen: None };
    }
    candidate.metrics.leading.set(0);
    // An attempt that was cancelled may have acquired the lease; release it, so that the next leader need not wait.
    match tokio::time::timeout(RELEASE, candidate.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = describe(error.as_ref()), "cannot release the lease")
        }
        Err(_) => tracing::warn!("cannot release the lease: timed out"),
    }
}

/// Creates the client for one term as leader.
fn leader_client(client: &Client, connection: Option<Config>, lease_guard: &Arc<LeaseGuard>) -> Client {
    let own = connection.map(|config| fencing::connect(&config, lease_guard.clone())).transpose();
    let own = own.unwrap_or_else(|error| {
        let error = describe(&error);
        tracing::error!(error, "cannot open separate connections; using the existing ones");
        None
    });
    fenced_client(own.as_ref().unwrap_or(client), lease_guard.clone())
}

struct LeaderCandidate {
    leases: Api<Lease>,
    metrics: LeaseMetrics,
    election: LeaderElection,
    clock: Clock,
    role: LeaderRole,
    lease_guard: Arc<LeaseGuard>,
}

impl LeaderCandidate {
    /// Waits until this process has acquired the lease.
    async fn acquire(&mut self) {
        let mut failures = FailureLog::default();
        loop {
            let limit = self.election.renew_deadline;
            let failure = match tokio::time::timeout(limit, self.try_acquire_or_renew()).await {
                Ok(Ok(())) if self.role == LeaderRole::Leading => {
                    let LeaderElection { name, identity, .. } = &self.election;
                    tracing::info!(lease = name, identity, "became the leader");
                    return;
                }
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(describe(error.as_ref())),
                Err(_) => Some("timed out".to_owned()),
            };
            match failure {
                Some(error) if failures.is_due(&error, tokio::time::Instant::now()) => {
                    tracing::warn!(error, "cannot acquire the lease; retrying");
                }
                Some(error) => tracing::debug!(error, "still cannot acquire the lease"),
                None => failures.clear(),
            }
            let stretch = 1.0 + (JITTER - 1.0) * rand::random::<f64>();
            tokio::time::sleep(self.election.retry_period.mul_f64(stretch)).await;
        }
    }

    /// Renews the lease; returns when it is lost.
    async fn renew_until_lost(&mut self) {
        loop {
            let Some(deadline) = self.lease_guard.deadline().filter(|_| self.lease_guard.is_leading()) else {
                return;
            };
            let pause = tokio::time::sleep(self.election.retry_period);
            if tokio::time::timeout_at(deadline, pause).await.is_err() {
                return;
            }
            // Half of the deadline, so that a lost request is followed by another.
            let limit = (tokio::time::Instant::now() + self.election.renew_deadline / 2).min(deadline);
            match tokio::time::timeout_at(limit, self.try_acquire_or_renew()).await {
                Ok(Ok(())) if self.role == LeaderRole::Leading => {}
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::warn!(error = describe(error.as_ref()), "cannot renew the lease");
                }
                Err(_) => tracing::warn!("cannot renew the lease: timed out"),
            }
        }
    }

    /// Reads the lease once and creates, takes or renews it; `role` holds the result.
    async fn try_acquire_or_renew(&mut self) -> anyhow::Result<()> {
        // Other processes count from when they see the lease change, which is later than this.
        let began = self.lease_guard.now();
        let LeaderElection { name, identity, lease_duration, .. } = &self.election;
        let found = self.leases.get_opt(name).await.context("cannot read the lease")?;
        let record = found.as_ref().map(|lease| LeaseRecord::from_lease(lease, *lease_duration));
        let now = tokio::time::Instant::now();
        let (role, action) = self.role.step(record.as_ref(), now, identity);
        self.role = role;
        let written = match (action, found) {
            (LeaseAction::Create, _) => {
                let lease = self.build_lease(None, 0);
                self.leases.create(&PostParams::default(), &lease).await
            }
            (LeaseAction::Take { transitions }, Some(found)) => {
                let lease = self.build_lease(Some((found, false)), transitions);
                self.leases.replace(name, &PostParams::default(), &lease).await
            }
            (LeaseAction::Renew, Some(found)) => {
                let transitions = record.map_or(0, |record| record.transitions);
                let lease = self.build_lease(Some((found, true)), transitions);
                self.leases.replace(name, &PostParams::default(), &lease).await
            }
            (LeaseAction::Wait | LeaseAction::Lost, _)
            | (LeaseAction::Take { .. } | LeaseAction::Renew, None) => {
                return Ok(());
            }
        };
        match written {
            Ok(_) => {
                self.role = LeaderRole::Leading;
                self.lease_guard.extend(began, self.election.renew_deadline);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                // Another process wrote first; the next attempt reads the result.
                if self.role == LeaderRole::Leading {
                    self.metrics.conflicts.inc();
                }
                Ok(())
            }
            Err(error) => Err(error).context("cannot write the lease"),
        }
    }

    /// Builds the lease to write from the existing one. A renewal keeps the time of acquisition.
    fn build_lease(&self, found: Option<(Lease, bool)>, transitions: i32) -> Lease {
        let (lease, renewed) = found.unwrap_or_default();
        let now = self.now_micro();
        let mut metadata = ObjectMeta { name: Some(self.election.name.clone()), ..lease.metadata };
        metadata.managed_fields = None;
        let before = lease.spec.unwrap_or_default();
        let acquired = before.acquire_time.filter(|_| renewed).or_else(|| now.clone());
        // Rounded up: others may wait too long, never too briefly.
        let seconds = self.election.lease_duration.as_millis().div_ceil(1000);
        let spec = LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: acquired,
            renew_time: now,
            lease_transitions: Some(transitions),
            preferred_holder: before.preferred_holder,
            strategy: before.strategy,
        };
        Lease { metadata, spec: Some(spec) }
    }

    /// Releases the lease if this process holds it.
    async fn release(&self) -> anyhow::Result<()> {
        let Some(mut lease) = self.leases.get_opt(&self.election.name).await? else {
            return Ok(());
        };
        let record = LeaseRecord::from_lease(&lease, self.election.lease_duration);
        if record.holder != self.election.identity {
            return Ok(());
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = self.now_micro();
        }
        self.leases.replace(&self.election.name, &PostParams::default(), &lease).await?;
        Ok(())
    }

    fn now_micro(&self) -> Option<MicroTime> {
        let nanoseconds = (self.clock)().unix_timestamp_nanos();
        Timestamp::from_nanosecond(nanoseconds).ok().map(MicroTime)
    }
}

/// Metrics of leader elections, under the names of client-go.
#[derive(Debug)]
pub struct ElectionMetrics {
    leading: Family<LeaseLabels, Gauge>,
    conflicts: Family<LeaseLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: String,
}

pub struct LeaseMetrics {
    leading: Gauge,
    /// Renewals that conflicted with the write of another process.
    conflicts: Counter,
}

impl ElectionMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> ElectionMetrics {
        ElectionMetrics {
            leading: registry.register(
                "leader_election_master_status",
                "Whether this process is the leader",
                Family::default(),
            ),
            conflicts: registry.register(
                "leader_election_slowpath",
                "Renewals of the lease that conflicted with another write",
                Family::default(),
            ),
        }
    }

    /// Returns the metrics of a lease, which are exposed from now on.
    pub fn lease(&self, name: &str) -> LeaseMetrics {
        let labels = LeaseLabels { name: name.to_owned() };
        LeaseMetrics {
            leading: self.leading.get_or_create_owned(&labels),
            conflicts: self.conflicts.get_or_create_owned(&labels),
        }
    }
}
