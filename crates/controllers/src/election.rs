//! Leader election: of several processes, the one that holds a Lease works.
//!
//! `role` decides what to do about the lease; `tenure` makes sure that nothing is written once it
//! may have passed to another, and `link` that not even a byte leaves that was on its way. Here they
//! meet the API.

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
    /// Who we are; no two processes may say the same.
    pub identity: String,
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// How long we lead after a renewal.
    pub renew_deadline: Duration,
    /// How long we wait between two attempts.
    pub retry_period: Duration,
}

/// Waits between attempts are up to so much longer, so that processes do not try in step.
const JITTER: f64 = 1.2;

/// How long to try to hand back the lease at the end.
const RELEASE: Duration = Duration::from_secs(2);

impl LeaderElection {
    /// An election with the times that Kubernetes' own components use.
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

    /// Whether these times can work, by client-go's rules.
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

/// Runs what `start` makes of a client whenever we lead, until `shutdown` turns true or its sender
/// is gone. With a `connection`, work is done over others than the lease is held with.
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
    let tenure = Arc::new(LeaseGuard::new(clock.clone()));
    let mut candidate = LeaderCandidate {
        leases: Api::namespaced(client.clone(), &election.namespace),
        metrics,
        election,
        clock,
        role: LeaderRole::Follower { seen: None },
        tenure,
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
        work.spawn(start(leader_client(&client, connection.clone(), &candidate.tenure)));
        let down = tokio::select! {
            _ = shutdown.wait_for(|down| *down) => true,
            () = candidate.renew_until_lost() => false,
        };
        // First of all nothing more is written; that takes no time.
        candidate.tenure.end();
        work.shutdown().await;
        if down {
            break;
        }
        tracing::warn!(lease = candidate.election.name, "no longer the leader");
        candidate.role = LeaderRole::Follower { seen: None };
    }
    candidate.metrics.leading.set(0);
    // An attempt that was broken off may have won; whoever is next need not wait for that.
    match tokio::time::timeout(RELEASE, candidate.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = describe(error.as_ref()), "the lease is not released")
        }
        Err(_) => tracing::warn!("the lease is not released: the server does not answer"),
    }
}

/// The client for the work of one term.
fn leader_client(client: &Client, connection: Option<Config>, tenure: &Arc<LeaseGuard>) -> Client {
    let own = connection.map(|config| fencing::connect(config, tenure.clone())).transpose();
    let own = own.unwrap_or_else(|error| {
        let error = describe(&error);
        tracing::error!(error, "cannot connect anew; working over the old connections");
        None
    });
    fenced_client(own.as_ref().unwrap_or(client), tenure.clone())
}

struct LeaderCandidate {
    leases: Api<Lease>,
    metrics: LeaseMetrics,
    election: LeaderElection,
    clock: Clock,
    role: LeaderRole,
    tenure: Arc<LeaseGuard>,
}

impl LeaderCandidate {
    /// Returns once this process has acquired the lease.
    async fn acquire(&mut self) {
        let mut told = false;
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
                Err(_) => Some("the server does not answer".to_owned()),
            };
            match failure {
                Some(error) if !told => {
                    tracing::warn!(error, "cannot ask for leadership; trying on");
                    told = true;
                }
                Some(error) => tracing::debug!(error, "cannot ask for leadership"),
                None => told = false,
            }
            let stretch = 1.0 + (JITTER - 1.0) * rand::random::<f64>();
            tokio::time::sleep(self.election.retry_period.mul_f64(stretch)).await;
        }
    }

    /// Renews the lease; returns when we do not lead any more.
    async fn renew_until_lost(&mut self) {
        loop {
            let Some(deadline) = self.tenure.deadline().filter(|_| self.tenure.is_leading()) else {
                return;
            };
            let pause = tokio::time::sleep(self.election.retry_period);
            if tokio::time::timeout_at(deadline, pause).await.is_err() {
                return;
            }
            // Half of the time, so that a request that got lost is followed by another.
            let limit =
                (tokio::time::Instant::now() + self.election.renew_deadline / 2).min(deadline);
            match tokio::time::timeout_at(limit, self.try_acquire_or_renew()).await {
                Ok(Ok(())) if self.role == LeaderRole::Leading => {}
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::warn!(error = describe(error.as_ref()), "cannot renew the lease");
                }
                Err(_) => tracing::warn!("cannot renew the lease: the server does not answer"),
            }
        }
    }

    /// Looks at the lease once and does what there is to do; `role` says how it ended.
    async fn try_acquire_or_renew(&mut self) -> anyhow::Result<()> {
        // The others count from when they see the lease change, which is later than this.
        let began = self.tenure.now();
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
                self.tenure.extend(began, self.election.renew_deadline);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                // Somebody was faster; the next attempt sees who.
                if self.role == LeaderRole::Leading {
                    self.metrics.conflicts.inc();
                }
                Ok(())
            }
            Err(error) => Err(error).context("cannot write the lease"),
        }
    }

    /// The lease as we want it, made from the one that is there; if it is ours already, it has been
    /// since it says.
    fn build_lease(&self, found: Option<(Lease, bool)>, transitions: i32) -> Lease {
        let (lease, renewed) = found.unwrap_or_default();
        let now = self.now_micro();
        let mut metadata = ObjectMeta { name: Some(self.election.name.clone()), ..lease.metadata };
        metadata.managed_fields = None;
        let before = lease.spec.unwrap_or_default();
        let acquired = before.acquire_time.filter(|_| renewed).or_else(|| now.clone());
        // Rounded up: others may wait too long, never too short.
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

    /// Hands the lease back if it is ours.
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

/// Metrics of one lease.
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
