//! ClusterTrustBundle with the CA of the API server. A replaced bundle stays besides the new one for a while, for
//! clients that still connect to servers with the old CA.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::watch::watch_metadata;
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::conflict_limiter::ConflictLimiter;
use super::delay_queue::DelayQueue;
use super::root_ca_source::SIGNER;
use super::sync_metrics::{self, SyncMetrics};
use super::{RootCa, RootCaBundle};
use crate::csr::requeue_changed;
use crate::metrics::{MetricFamilies, TRUST_BUNDLE};
use crate::options::Clock;
use crate::signers::config::MANAGED_BY;

/// Annotation with the time since which a bundle is retired.
const RETIRED: &str = "windlass.dev/retired-at";
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// The only key, because there is one current bundle.
const ALL: &str = "clustertrustbundles";

/// Runs the controller with the version of the API that `resource` names.
pub async fn run(
    client: Client,
    resource: ApiResource,
    ca: Arc<RootCa>,
    overlap: Duration,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.queue(TRUST_BUNDLE), BACKOFF));
    let selector = format!("spec.signerName={SIGNER}");
    let watch = watch_metadata(client.clone(), &resource, Some(&selector), queue.metrics(), |event| {
        if !matches!(event, Event::Init) {
            queue.add(ALL);
        }
    });
    let mut changes = ca.changes();
    let of_ca = async {
        while changes.changed().await.is_ok() {
            queue.add(ALL);
        }
        std::future::pending::<()>().await;
    };
    let publisher = Arc::new(TrustBundlePublisher {
        bundles: Api::all_with(client, &resource),
        resource: resource.clone(),
        ca,
        overlap,
        clock,
        conflict_limiter: ConflictLimiter::default(),
        foreign: Mutex::default(),
        delay_queue: DelayQueue::new(),
        syncs: metrics.publishers.trust_bundle.clone(),
    });
    let of_time = publisher.delay_queue.run(|key| queue.add(key));
    let reconcile = |_| publisher.clone().reconcile();
    // One worker is enough for one key.
    tokio::join!(watch, of_ca, of_time, run_workers(queue.clone(), 1, reconcile)).0
}

/// A bundle of the signer on the server.
#[derive(Clone, Debug)]
struct ObservedBundle {
    name: String,
    uid: Option<String>,
    version: Option<String>,
    text: String,
    ours: bool,
    retired: Option<OffsetDateTime>,
}

/// A write to one bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BundleChange {
    Create,
    /// Restore the content of the current bundle.
    Correct(String),
    /// Make a retired bundle the current one again.
    Revive(String),
    /// Record that the bundle is retired as of now.
    Retire(String),
    /// Delete the bundle with this UID and resource version.
    Delete(String, Option<String>, Option<String>),
}

impl BundleChange {
    /// Describes the change for an error message.
    fn describe(&self) -> String {
        match self {
            BundleChange::Create => "create the trust bundle".to_owned(),
            BundleChange::Correct(name) => format!("correct trust bundle {name}"),
            BundleChange::Revive(name) => format!("revive trust bundle {name}"),
            BundleChange::Retire(name) => format!("retire trust bundle {name}"),
            BundleChange::Delete(name, ..) => format!("delete trust bundle {name}"),
        }
    }
}

/// Changes to all bundles of the signer.
#[derive(Debug, Default, PartialEq)]
struct BundlePlan {
    /// Changes in order; a failed change stops the rest.
    changes: Vec<BundleChange>,
    foreign: BTreeSet<String>,
    again: Option<Duration>,
}

fn decide(
    found: &[ObservedBundle],
    wanted: &RootCaBundle,
    now: OffsetDateTime,
    overlap: Duration,
) -> BundlePlan {
    let mut decision = BundlePlan::default();
    match found.iter().find(|found| found.name == wanted.name) {
        None => decision.changes.push(BundleChange::Create),
        // The name is derived from the content, so whoever created the bundle meant this content.
        Some(found) if found.text != wanted.text => {
            decision.changes.push(BundleChange::Correct(found.name.clone()));
        }
        Some(found) if found.retired.is_some() => {
            decision.changes.push(BundleChange::Revive(found.name.clone()));
        }
        Some(_) => {}
    }
    for found in found.iter().filter(|found| found.name != wanted.name) {
        if !found.ours {
            decision.foreign.insert(found.name.clone());
            continue;
        }
        let ObservedBundle { name, uid, version, .. } = found.clone();
        // A time in the future was written by a wrong clock.
        let age = found.retired.and_then(|since| Duration::try_from(now - since).ok());
        match age {
            Some(age) if age >= overlap => {
                decision.changes.push(BundleChange::Delete(name, uid, version));
            }
            Some(age) => {
                let left = overlap - age;
                decision.again = Some(decision.again.map_or(left, |again| again.min(left)));
            }
            None => decision.changes.push(BundleChange::Retire(name)),
        }
    }
    decision
}

struct TrustBundlePublisher {
    bundles: Api<DynamicObject>,
    resource: ApiResource,
    ca: Arc<RootCa>,
    overlap: Duration,
    clock: Clock,
    conflict_limiter: ConflictLimiter,
    /// Bundles of other managers that were reported.
    foreign: Mutex<BTreeSet<String>>,
    delay_queue: DelayQueue<&'static str>,
    syncs: SyncMetrics,
}

impl TrustBundlePublisher {
    async fn reconcile(self: Arc<Self>) -> anyhow::Result<Requeue> {
        let began = Instant::now();
        let outcome = self.sync().await;
        self.syncs.observe(sync_metrics::status_code(&outcome), began.elapsed());
        outcome
    }

    async fn sync(&self) -> anyhow::Result<Requeue> {
        let published = self.ca.current();
        let Some(wanted) = &published.bundle else {
            tracing::warn!("root CA file has no certificate that a trust bundle may hold; not publishing it");
            return Ok(Requeue::Done);
        };
        let selector = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
        let found = self.bundles.list(&selector).await.map_err(anyhow::Error::from)?;
        let found: Vec<ObservedBundle> = found.items.iter().map(ObservedBundle::from_object).collect();
        let now = (self.clock)();
        let BundlePlan { changes, foreign, again } = decide(&found, wanted, now, self.overlap);
        self.report_foreign(foreign);
        for change in changes {
            if let BundleChange::Create | BundleChange::Correct(_) = change
                && !self.conflict_limiter.try_write(&wanted.name, Instant::now())
            {
                return Ok(Requeue::WithBackoff("another manager keeps changing it".into()));
            }
            match self.apply_change(&change, wanted, now).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                    return Ok(requeue_changed());
                }
                Err(error) => {
                    return Err(anyhow::Error::from(error))
                        .with_context(|| format!("cannot {}", change.describe()));
                }
            }
        }
        if let Some(again) = again {
            self.delay_queue.schedule(ALL, again);
        }
        Ok(Requeue::Done)
    }

    async fn apply_change(
        &self,
        change: &BundleChange,
        wanted: &RootCaBundle,
        now: OffsetDateTime,
    ) -> kube::Result<()> {
        let patch = match change {
            BundleChange::Create => {
                let bundle = self.build_bundle(wanted);
                return self.bundles.create(&PostParams::default(), &bundle).await.map(drop);
            }
            BundleChange::Delete(name, uid, version) => {
                let preconditions =
                    kube::api::Preconditions { uid: uid.clone(), resource_version: version.clone() };
                let parameters =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                tracing::info!(name, "overlap of the replaced trust bundle has ended; deleting it");
                return self.bundles.delete(name, &parameters).await.map(drop);
            }
            BundleChange::Correct(name) => (name, json!({"spec": {"trustBundle": wanted.text}})),
            BundleChange::Revive(name) => (name, retired_patch(Value::Null)),
            BundleChange::Retire(name) => (name, retired_patch(now.format(&Rfc3339).ok().into())),
        };
        let (name, patch) = patch;
        self.bundles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    fn build_bundle(&self, wanted: &RootCaBundle) -> DynamicObject {
        let (label, value) = MANAGED_BY;
        let mut bundle = DynamicObject::new(&wanted.name, &self.resource);
        bundle.labels_mut().insert(label.into(), value.into());
        bundle.data(json!({"spec": {"signerName": SIGNER, "trustBundle": wanted.text}}))
    }

    /// Logs bundles of other managers when their set changes.
    fn report_foreign(&self, foreign: BTreeSet<String>) {
        let mut reported = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported != foreign {
            if !foreign.is_empty() {
                tracing::warn!(
                    bundles = ?foreign,
                    "another manager owns trust bundles of {SIGNER}; leaving them unchanged"
                );
            }
            *reported = foreign;
        }
    }
}

fn retired_patch(value: Value) -> Value {
    json!({"metadata": {"annotations": {RETIRED: value}}})
}

impl ObservedBundle {
    fn from_object(object: &DynamicObject) -> ObservedBundle {
        let (label, value) = MANAGED_BY;
        let text = object.data.pointer("/spec/trustBundle").and_then(Value::as_str);
        let retired = object.annotations().get(RETIRED);
        ObservedBundle {
            name: object.name_any(),
            uid: object.uid(),
            version: object.resource_version(),
            text: text.unwrap_or_default().to_owned(),
            ours: object.labels().get(label).is_some_and(|found| found == value),
            retired: retired.and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-15 12:00 UTC);
    const HOUR: Duration = Duration::from_secs(3600);

    fn observed_bundle(name: &str, text: &str, ours: bool, retired: Option<i64>) -> ObservedBundle {
        ObservedBundle {
            name: name.into(),
            uid: Some("u".into()),
            version: Some("7".into()),
            text: text.into(),
            ours,
            retired: retired.map(|minutes| NOW - time::Duration::minutes(minutes)),
        }
    }

    #[test]
    fn old_bundles_are_retained_beside_the_new_one() {
        let wanted = RootCaBundle { name: "new".into(), text: "text".into() };
        let (new, old) =
            (|| observed_bundle("new", "text", true, None), |r| observed_bundle("old", "o", true, r));
        let other = || observed_bundle("other", "o", false, Some(600));
        let retire = || BundleChange::Retire("old".into());
        let delete = || BundleChange::Delete("old".into(), Some("u".into()), Some("7".into()));
        type Row = (Vec<ObservedBundle>, Vec<BundleChange>, Option<u64>);
        let table: Vec<Row> = vec![
            (vec![], vec![BundleChange::Create], None),
            (vec![new()], vec![], None),
            (vec![old(None)], vec![BundleChange::Create, retire()], None),
            (vec![new(), old(None)], vec![retire()], None),
            (vec![new(), old(Some(0))], vec![], Some(60)),
            (vec![new(), old(Some(59))], vec![], Some(1)),
            (vec![new(), old(Some(60))], vec![delete()], None),
            // A missing current bundle is created first.
            (vec![old(Some(60))], vec![BundleChange::Create, delete()], None),
            // The clock was set back.
            (vec![new(), old(Some(-5))], vec![retire()], None),
            (vec![new(), other()], vec![], None),
            (
                vec![observed_bundle("new", "text", true, Some(5))],
                vec![BundleChange::Revive("new".into())],
                None,
            ),
            (
                vec![observed_bundle("new", "bad", false, None)],
                vec![BundleChange::Correct("new".into())],
                None,
            ),
        ];
        for (found, changes, minutes) in table {
            let decision = decide(&found, &wanted, NOW, HOUR);
            assert_eq!(decision.changes, changes, "{found:?}");
            let again = minutes.map(|minutes| Duration::from_secs(60 * minutes));
            assert_eq!(decision.again, again, "{found:?}");
            let foreign = found.iter().filter(|found| !found.ours && found.name != "new");
            assert_eq!(decision.foreign, foreign.map(|found| found.name.clone()).collect());
        }
        let decision = decide(&[new(), old(Some(1)), old(Some(30))], &wanted, NOW, HOUR);
        assert_eq!(decision.again, Some(HOUR / 2));
    }
}
