//! Keeps the NodeTrust on the server up to date, with as few writes as possible.
//!
//! After a start, the report of an earlier process is read once. From then on each change is one
//! write, because the last response contains the version that it replaces.

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, Error};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::Clock;
use crate::csr::PATIENCE;
use crate::node_certificates::RandomSource;
use crate::read_observer::ReadStates;
use crate::trust::object::{NodeTrustStatus, resource};
use crate::trust::status::{PreviousReport, status_of};
use crate::volume_manager::report::VolumeReports;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;

/// How long reports must be unchanged before a write.
const QUIET: Duration = Duration::from_millis(100);
/// Longest wait for unchanged reports.
const RESTLESS: Duration = Duration::from_millis(500);
/// Shortest interval between two writes.
const APART: Duration = Duration::from_secs(1);
/// Time between an application's read of a file and the report of it: many applications read a changed file within
/// moments, and some read theirs late. A change of the content is not delayed by it.
const READS_DELAY: Duration = Duration::from_secs(3);
/// Quiet period after a start, when volumes become known one by one; an existing report is more
/// complete until then.
const FIRST_QUIET: Duration = Duration::from_secs(1);
/// Longest wait for that quiet period.
const FIRST_RESTLESS: Duration = Duration::from_secs(10);
/// How long to wait for the first volume, with and without an existing report.
const FIRST: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));
/// Interval of checks whether the report still exists: it may have been deleted with its Node.
const LOOK: Duration = Duration::from_secs(10 * 60);
/// Retry interval if the server does not accept reports.
const ABSENT: Duration = Duration::from_secs(60);
/// Retry delays after transient failures, such as timeouts.
const TROUBLE: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

/// Writes the NodeTrust object of this node when volume reports change.
pub struct NodeTrustReporter {
    client: Client,
    node: String,
    clock: Clock,
    random: RandomSource,
    resource: ApiResource,
}

/// The NodeTrust on the server.
struct StoredNodeTrust {
    metadata: ObjectMeta,
    status: NodeTrustStatus,
    /// The status that was written, which the server may store in another form.
    written: Option<NodeTrustStatus>,
}

/// Why a NodeTrust could not be read or written.
#[derive(Debug)]
enum NodeTrustError {
    /// The server does not serve NodeTrust, or rejects it from this node.
    Absent(String),
    /// Another writer changed or deleted it.
    Changed,
    /// A transient failure, with its message; retried with backoff.
    Failed(String),
}

impl NodeTrustReporter {
    /// Creates a reporter that writes the NodeTrust named after `node`.
    pub fn new(client: Client, node: String, clock: Clock, random: RandomSource) -> Self {
        Self { client, node, clock, random, resource: resource() }
    }

    /// Keeps the report up to date. Never returns.
    pub async fn run(
        self,
        mut reports: watch::Receiver<VolumeReports>,
        mut reads: watch::Receiver<ReadStates>,
    ) {
        let mut pauses = ReportRetryState::default();
        let (mut there, mut owner) = self.begin(&mut pauses).await;
        let earlier = there.as_ref().map(|there| PreviousReport::new(&there.status)).unwrap_or_default();
        self.settle(&mut reports, there.is_some()).await;
        let mut last = None::<Duration>;
        loop {
            let known_reads = reads.borrow_and_update().clone();
            let status = status_of(&reports.borrow_and_update().clone(), &earlier, &known_reads);
            let same = there.as_ref().is_some_and(|there| {
                there.matches(&status) && (owner.is_empty() || there.is_owned_by(&owner))
            });
            if same {
                self.wait(&mut reports, &mut reads, &mut there).await;
                continue;
            }
            if let Some(left) = last.and_then(|last| APART.checked_sub(self.since(last))) {
                tokio::time::sleep(left).await;
                // Further changes may have arrived meanwhile.
                last = None;
                continue;
            }
            let written = self.write(there.as_ref(), &mut owner, &status).await;
            last = Some((self.clock)().since);
            match written {
                Ok(now) => {
                    pauses.reset(&self.node);
                    there = Some(now);
                }
                Err(NodeTrustError::Changed) => {
                    pauses.back_off(&self, &NodeTrustError::Changed).await;
                    there = self.refetch(there, &mut pauses).await;
                }
                Err(failure) => pauses.back_off(&self, &failure).await,
            }
        }
    }

    /// Reads the existing report and the UID of the Node, with retries.
    async fn begin(&self, pauses: &mut ReportRetryState) -> (Option<StoredNodeTrust>, String) {
        loop {
            let found = match self.fetch().await {
                Ok(found) => self.owner().await.map(|owner| (found, owner)),
                Err(failure) => Err(failure),
            };
            match found {
                Ok((found, owner)) => return (found, owner.unwrap_or_default()),
                Err(failure) => pauses.back_off(self, &failure).await,
            }
        }
    }

    /// Waits until the volumes are known after a start.
    async fn settle(&self, reports: &mut watch::Receiver<VolumeReports>, reported: bool) {
        let (patience, quiet, restless) = match reported {
            true => (FIRST.0, FIRST_QUIET, FIRST_RESTLESS),
            false => (FIRST.1, QUIET, RESTLESS),
        };
        if reports.borrow_and_update().is_empty() {
            let _ = timeout(patience, changed(reports)).await;
        }
        gather(reports, quiet, restless).await;
    }

    /// Waits until a write or check is due.
    async fn wait(
        &self,
        reports: &mut watch::Receiver<VolumeReports>,
        reads: &mut watch::Receiver<ReadStates>,
        there: &mut Option<StoredNodeTrust>,
    ) {
        let reads_settled = async {
            changed(reads).await;
            tokio::time::sleep(READS_DELAY).await;
        };
        tokio::select! {
            () = changed(reports) => gather(reports, QUIET, RESTLESS).await,
            () = reads_settled => {}
            () = tokio::time::sleep(LOOK.mul_f64(0.5 + (self.random)())) => {
                if let Ok(found) = self.fetch().await
                    && found.as_ref().map(StoredNodeTrust::version)
                        != there.as_ref().map(StoredNodeTrust::version)
                {
                    *there = found;
                }
            }
        }
    }

    async fn refetch(
        &self,
        there: Option<StoredNodeTrust>,
        pauses: &mut ReportRetryState,
    ) -> Option<StoredNodeTrust> {
        match self.fetch().await {
            Ok(found) => found,
            Err(failure) => {
                pauses.back_off(self, &failure).await;
                there
            }
        }
    }

    fn since(&self, then: Duration) -> Duration {
        (self.clock)().since.saturating_sub(then)
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &self.resource)
    }

    async fn fetch(&self) -> Result<Option<StoredNodeTrust>, NodeTrustError> {
        let found = timeout(PATIENCE, self.api().get(&self.node)).await;
        match found.map_err(|_| silence())? {
            Ok(found) => Ok(Some(StoredNodeTrust::new(found, None))),
            // Only the resource itself can report that the object is missing.
            Err(Error::Api(status))
                if status.code == 404
                    && status.details.as_ref().is_some_and(|about| about.name == self.node) =>
            {
                Ok(None)
            }
            Err(error) => Err(NodeTrustError::from_client_error(&error)),
        }
    }

    /// Returns the UID of the Node; `None` if it does not exist.
    async fn owner(&self) -> Result<Option<String>, NodeTrustError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = timeout(PATIENCE, nodes.get_metadata_opt(&self.node)).await;
        let found = found.map_err(|_| silence())?;
        let found = found.map_err(|error| NodeTrustError::Failed(describe(&error)))?;
        Ok(found.and_then(|node| node.metadata.uid))
    }

    /// Writes the report, with one request if it exists.
    async fn write(
        &self,
        there: Option<&StoredNodeTrust>,
        owner: &mut String,
        status: &NodeTrustStatus,
    ) -> Result<StoredNodeTrust, NodeTrustError> {
        if there.is_none() || owner.is_empty() {
            // Another Node may have this name by now, and a report is deleted with its own.
            *owner = self.owner().await?.ok_or_else(|| {
                NodeTrustError::Failed(format!("the node {} is not registered yet", self.node))
            })?;
        }
        let mut object = DynamicObject::new(&self.node, &self.resource);
        if let Some(there) = there {
            object.metadata = there.metadata.clone();
        }
        set_owner(&mut object.metadata, &self.node, owner);
        object.data = json!({ "status": status });
        let (api, params) = (self.api(), PostParams::default());
        let written = match there {
            Some(_) => timeout(PATIENCE, api.replace(&self.node, &params, &object)).await,
            None => timeout(PATIENCE, api.create(&params, &object)).await,
        };
        match written.map_err(|_| silence())? {
            Ok(answer) => Ok(StoredNodeTrust::new(answer, Some(status.clone()))),
            Err(Error::Api(said)) if said.code == 409 => Err(NodeTrustError::Changed),
            Err(Error::Api(said)) if said.code == 404 && there.is_some() => Err(NodeTrustError::Changed),
            Err(error) => Err(NodeTrustError::from_client_error(&error)),
        }
    }
}

impl StoredNodeTrust {
    fn new(found: DynamicObject, written: Option<NodeTrustStatus>) -> Self {
        let status = found.data.get("status").cloned().unwrap_or_default();
        let status = serde_json::from_value(status).unwrap_or_default();
        let metadata = ObjectMeta { managed_fields: None, ..found.metadata };
        Self { metadata, status, written }
    }

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn matches(&self, status: &NodeTrustStatus) -> bool {
        self.status == *status || self.written.as_ref() == Some(status)
    }

    fn is_owned_by(&self, uid: &str) -> bool {
        self.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
    }
}

impl NodeTrustError {
    fn from_client_error(error: &Error) -> Self {
        match error {
            Error::Api(status) if matches!(status.code, 403 | 404) => Self::Absent(describe(error)),
            error => Self::Failed(describe(error)),
        }
    }
}

/// Number of failures, and whether they were logged.
#[derive(Default)]
struct ReportRetryState {
    failures: u32,
    reported: bool,
}

impl ReportRetryState {
    /// Waits after a failure, and logs the first one.
    async fn back_off(&mut self, reporter: &NodeTrustReporter, failure: &NodeTrustError) {
        let (random, node) = ((reporter.random)(), &reporter.node);
        let pause = match failure {
            NodeTrustError::Changed if self.failures == 0 => Duration::ZERO,
            NodeTrustError::Changed | NodeTrustError::Failed(_) => TROUBLE.delay(self.failures, random),
            NodeTrustError::Absent(_) => ABSENT.mul_f64(0.5 + random),
        };
        self.failures = self.failures.saturating_add(1);
        match failure {
            NodeTrustError::Changed => {
                tracing::debug!(node, "NodeTrust was changed concurrently; retrying")
            }
            NodeTrustError::Absent(why) if !self.reported => {
                tracing::info!(node, error = why, "the server does not accept NodeTrust; retrying");
                self.reported = true;
            }
            NodeTrustError::Failed(why) if !self.reported && self.failures > 2 => {
                tracing::warn!(node, error = why, "cannot write NodeTrust; retrying");
                self.reported = true;
            }
            NodeTrustError::Absent(why) | NodeTrustError::Failed(why) => {
                tracing::debug!(node, error = why, "cannot write NodeTrust");
            }
        }
        tokio::time::sleep(pause).await;
    }

    fn reset(&mut self, node: &str) {
        if self.reported {
            tracing::info!(node, "writing NodeTrust again");
        }
        *self = Self::default();
    }
}

fn silence() -> NodeTrustError {
    NodeTrustError::Failed(format!("the server did not respond within {PATIENCE:?}"))
}

/// Makes the Node the owner, so that the report is deleted with it.
fn set_owner(metadata: &mut ObjectMeta, node: &str, uid: &str) {
    let others = metadata.owner_references.take().unwrap_or_default();
    let mut owners: Vec<_> = others.into_iter().filter(|one| one.kind != "Node").collect();
    owners.push(OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    });
    metadata.owner_references = Some(owners);
}

/// Waits for a change; forever if the sender is gone.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until nothing has changed for `quiet`, but at most for `restless`.
async fn gather(reports: &mut watch::Receiver<VolumeReports>, quiet: Duration, restless: Duration) {
    let end = Instant::now() + restless;
    while Instant::now() < end {
        let until = end.min(Instant::now() + quiet);
        if timeout_at(until, changed(reports)).await.is_err() {
            return;
        }
    }
}
