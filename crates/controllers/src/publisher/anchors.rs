//! Trust anchors of signers, one ClusterTrustBundle for each signer. While a CA is rotated, the bundle holds the new
//! anchor, and the old one until the last certificate issued under it has expired; the new CA does not sign before
//! nodes have its anchor.
//!
//! - `decision`: content of a bundle; `record`: annotation about its anchors.
//! - `delivery`: nodes that have the bundle.

mod decision;
mod delivery;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::watch::{WatchError, watch_metadata, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::conflict_limiter::ConflictLimiter;
use super::delay_queue::DelayQueue;
use super::sync_metrics;
use crate::csr::requeue_changed;
use crate::metrics::{ANCHORS, MetricFamilies};
use crate::options::Clock;
use crate::signers::CustomSigner;
use crate::signers::config::{MANAGED_BY, PublicationConfig};
use crate::signers::rollout::{self, RolloutGovernance};

use decision::{AnchorAction, AnchorPolicy, BundleContents, ExistingBundle, decide};

pub use decision::TrustAnchor;
pub(crate) use decision::digest;
pub use delivery::resource as node_trusts;
pub(crate) use delivery::{ExpectedBundle, NodeReports, ReportedDelivery};
pub(crate) use record::encode as encode_records;
pub use record::{AnchorRecord, AnchorRecords};

/// Annotation with the SHA-256 of the current anchor: that of the newest CA, or that of the active one where rotations
/// decide.
pub(crate) const CURRENT: &str = "windlass.dev/anchor";
/// Annotation with the records of the anchors, as JSON.
pub(crate) const RECORDS: &str = "windlass.dev/anchors";
/// Annotation with the time since which the other anchors are retired, written by versions without records.
const RETIRED: &str = "windlass.dev/retired-at";
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// Number of bundles that are reconciled concurrently.
const WORKERS: usize = 4;
/// Number of nodes that are named in the log.
const NAMED: usize = 5;

/// Durations of a CA rotation.
#[derive(Clone, Copy, Debug)]
pub struct RolloutTiming {
    /// Time for which an anchor stays after the last certificate issued under it has expired.
    pub overlap: Duration,
    /// Longest time for which a new CA waits until its anchor is published and delivered to nodes.
    pub delivery_timeout: Duration,
}

/// Reads the records about the anchors of a bundle; `None` if there are none.
pub fn records(bundle: &DynamicObject) -> Option<AnchorRecords> {
    bundle.annotations().get(RECORDS).and_then(|records| record::parse(records))
}

/// Lists the nodes that select a bundle but do not have its current content, according to these NodeTrusts.
pub fn nodes_lacking(bundle: &DynamicObject, node_trusts: Vec<DynamicObject>) -> Vec<String> {
    let mut reports = NodeReports::default();
    for report in node_trusts {
        reports.observe(Ok(Event::InitApply(report)), |_, _| true);
    }
    reports.observe(Ok(Event::InitDone), |_, _| true);
    let signer = bundle.data.pointer("/spec/signerName").and_then(Value::as_str);
    let wanted = ExpectedBundle {
        bundle: &bundle.name_any(),
        signer: signer.unwrap_or_default(),
        labels: bundle.labels(),
        digest: &decision::digest(&TrustAnchor::parse_pem(trust_bundle_text(bundle))),
    };
    let lacking = reports.nodes_lacking(wanted).unwrap_or_default();
    lacking.into_iter().map(str::to_owned).collect()
}

/// Publishes the anchors of those signers that are configured to, with the version of the API that `resource` names.
pub async fn run(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    pace: RolloutTiming,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    if signers.is_empty() {
        return std::future::pending().await;
    }
    let queue = Arc::new(WorkQueue::new(metrics.queue(ANCHORS), BACKOFF));
    let published = signers.into_iter().flat_map(PublishedBundle::list);
    let publisher = Arc::new(AnchorPublisher {
        node_trusts: Api::all_with(client.clone(), &delivery::resource()),
        bundles: Api::all_with(client.clone(), &resource),
        events: EventRecorder::new(
            client.clone(),
            EventReporter::controller("signer-anchors"),
            CONTROLLER_EVENT_LIMIT,
        ),
        published: published.map(|each| (each.name.clone(), each)).collect(),
        pace,
        clock,
        held: watch::Sender::new(BTreeSet::new()),
        reports: Mutex::default(),
        conflict_limiter: ConflictLimiter::default(),
        delay_queue: DelayQueue::new(),
        resource: resource.clone(),
        metrics,
    });
    let known = |name: &String| publisher.published.contains_key(name);
    let watch = watch_metadata(client, &resource, None, queue.metrics(), |event| match event {
        Event::Init => {}
        Event::InitApply(bundle) | Event::Apply(bundle) | Event::Delete(bundle) => {
            Some(bundle.name_any()).filter(known).into_iter().for_each(|name| queue.add(name));
        }
        // Bundles that do not exist have no event.
        Event::InitDone => publisher.published.keys().for_each(|name| queue.add(name.clone())),
    });
    let of_cas = join_all(publisher.published.values().map(|bundle| {
        let (mut changes, queue) = (bundle.signer.ca.changes(), queue.clone());
        let mut governance = bundle.signer.rollout.watch_governance();
        async move {
            loop {
                let changed = tokio::select! {
                    changed = changes.changed() => changed,
                    changed = governance.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
                queue.add(bundle.name.clone());
            }
        }
    }));
    let of_time = publisher.delay_queue.run(|name| queue.add(name));
    let of_nodes = publisher.watch_reports(&queue);
    let reconcile = |name: String| publisher.clone().reconcile(name);
    tokio::join!(watch, of_cas, of_time, of_nodes, run_workers(queue.clone(), WORKERS, reconcile)).0
}

/// A bundle of a signer.
struct PublishedBundle {
    /// Name of the ClusterTrustBundle.
    name: String,
    labels: BTreeMap<String, String>,
    signer: CustomSigner,
    /// Whether it only changes before the signer's other bundle, which decides when a CA signs.
    is_canary: bool,
}

impl PublishedBundle {
    fn list(signer: CustomSigner) -> Vec<PublishedBundle> {
        let Some(PublicationConfig { bundle, labels, canary }) = signer.custom.publish.clone() else {
            return Vec::new();
        };
        let canary = canary.map(|canary| PublishedBundle {
            name: canary.bundle,
            labels: canary.labels,
            signer: signer.clone(),
            is_canary: true,
        });
        let main = PublishedBundle { name: bundle, labels, signer, is_canary: false };
        canary.into_iter().chain([main]).collect()
    }

    /// Whether the publisher writes the bundle now. Where rotations decide, a new CA of somebody else is not published
    /// before one runs, and while one runs it writes the bundles.
    fn is_writable(&self, found: Option<&ExistingBundle>, newest: &TrustAnchor) -> bool {
        let is_active = || {
            let active = found.filter(|found| found.ours).and_then(|found| found.current.as_ref());
            active.is_none_or(|active| *active == newest.fingerprint())
        };
        match self.signer.rollout.governance() {
            RolloutGovernance::Timed => true,
            RolloutGovernance::Undecided | RolloutGovernance::Rotating => false,
            RolloutGovernance::Steady => self.signer.ca.is_generated() || is_active(),
        }
    }

    /// Tells the rollout what is published.
    fn report(&self, publication: rollout::PublicationState, now: OffsetDateTime) {
        if !self.is_canary {
            self.signer.rollout.set_publication(publication, now);
        }
    }

    fn report_anchors(&self, anchors: Vec<TrustAnchor>) {
        if !self.is_canary {
            self.signer.rollout.set_published_anchors(anchors);
        }
    }
}

struct AnchorPublisher {
    bundles: Api<DynamicObject>,
    node_trusts: Api<DynamicObject>,
    events: EventRecorder,
    /// Bundles by their names.
    published: BTreeMap<String, PublishedBundle>,
    pace: RolloutTiming,
    clock: Clock,
    /// Bundles whose newest anchor is not on all nodes yet.
    held: watch::Sender<BTreeSet<String>>,
    reports: Mutex<NodeReports>,
    conflict_limiter: ConflictLimiter,
    delay_queue: DelayQueue<String>,
    resource: ApiResource,
    metrics: Arc<MetricFamilies>,
}

impl AnchorPublisher {
    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let began = Instant::now();
        let outcome = self.sync(&name).await;
        let code = sync_metrics::status_code(&outcome);
        self.metrics.publishers.anchors.observe(code, began.elapsed());
        outcome
    }

    async fn sync(&self, name: &str) -> anyhow::Result<Requeue> {
        let Some(bundle) = self.published.get(name) else { return Ok(Requeue::Done) };
        let signer = &bundle.signer;
        let object = self.bundles.get_opt(name).await.map_err(anyhow::Error::from)?;
        let found = object.as_ref().map(|object| existing_bundle(object, &bundle.labels));
        if !bundle.is_canary {
            let own = found.as_ref().filter(|found| found.ours);
            signer.rollout.set_active_anchor(own.and_then(|found| found.current.clone()));
        }
        // A CA that becomes usable is a change, which enqueues the bundle again.
        let Some(ca) = signer.ca.current() else { return Ok(Requeue::Done) };
        let now = (self.clock)();
        let current = TrustAnchor::from_certificate(ca.anchor());
        if !bundle.is_writable(found.as_ref(), &current) {
            self.observe_only(bundle, object.as_ref(), found.as_ref(), now);
            return Ok(Requeue::Done);
        }
        let policy = AnchorPolicy {
            now,
            overlap: self.pace.overlap,
            timeout: self.pace.delivery_timeout,
            max_duration: signer.max_duration(),
            signing: signer.rollout.signing_fingerprint(),
            delivered: self.is_delivered(name, signer, object.as_ref()),
        };
        let action = decide(found.as_ref(), current.clone(), &policy);
        let anchors = object.as_ref().map(|object| TrustAnchor::parse_pem(trust_bundle_text(object)));
        bundle.report_anchors(anchors.unwrap_or_default());
        self.report_foreign(signer, object.as_ref(), &action, now).await;
        let records = found.and_then(|found| found.records).unwrap_or_default();
        let (records, again) = match action {
            AnchorAction::LeaveAlone => {
                let records = object.as_ref().map(foreign_records).unwrap_or_default();
                bundle.report(rollout::PublicationState::Known(records), now);
                return Ok(Requeue::Done);
            }
            AnchorAction::Full { anchors, again } => {
                self.report_full(signer, object.as_ref(), anchors, now).await;
                bundle.report(rollout::PublicationState::Full(records), now);
                self.schedule(name, again);
                return Ok(Requeue::WithBackoff("the trust bundle has no room for a new anchor".into()));
            }
            AnchorAction::Keep { again } => (records, again),
            AnchorAction::Write { contents, again } => {
                if let Some(next) = self.try_write(bundle, object.as_ref(), &contents).await? {
                    return Ok(next);
                }
                if !bundle.is_canary {
                    signer.rollout.set_active_anchor(Some(contents.current_fingerprint()));
                }
                bundle.report_anchors(contents.anchors);
                (contents.records, again)
            }
        };
        self.record_hold(name, records.get(&current.fingerprint()), now);
        bundle.report(rollout::PublicationState::Known(records), now);
        self.schedule(name, again);
        Ok(Requeue::Done)
    }

    /// Tells the rollout what a bundle contains that somebody else writes now.
    fn observe_only(
        &self,
        bundle: &PublishedBundle,
        object: Option<&DynamicObject>,
        found: Option<&ExistingBundle>,
        now: OffsetDateTime,
    ) {
        self.record_hold(&bundle.name, None, now);
        let (Some(object), Some(found)) = (object, found) else { return };
        bundle.report_anchors(TrustAnchor::parse_pem(trust_bundle_text(object)));
        let records = found.records.clone().filter(|_| found.ours).unwrap_or_else(|| foreign_records(object));
        bundle.report(rollout::PublicationState::Known(records), now);
    }

    fn schedule(&self, name: &str, again: Option<Duration>) {
        if let Some(again) = again {
            self.delay_queue.schedule(name.to_owned(), again);
        }
    }

    /// Writes a bundle. Returns how to continue if it was not written.
    async fn try_write(
        &self,
        bundle: &PublishedBundle,
        object: Option<&DynamicObject>,
        contents: &BundleContents,
    ) -> anyhow::Result<Option<Requeue>> {
        let name = &bundle.name;
        // The key contains the anchor, so that a new CA does not wait for a conflict about the previous one.
        let written = format!("{name} {}", contents.current_fingerprint());
        if !self.conflict_limiter.try_write(&written, Instant::now()) {
            return Ok(Some(Requeue::WithBackoff("another manager keeps changing it".into())));
        }
        match self.write(bundle, object, contents).await {
            Ok(()) => Ok(None),
            Err(kube::Error::Api(status))
                if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
            {
                Ok(Some(requeue_changed()))
            }
            Err(error) => {
                // The CA may have to sign although its anchor is not published, when it has waited long enough.
                let _ = bundle.signer.rollout.select_ca((self.clock)());
                Err(anyhow::Error::from(error)).with_context(|| format!("cannot write trust bundle {name}"))
            }
        }
    }

    async fn write(
        &self,
        bundle: &PublishedBundle,
        object: Option<&DynamicObject>,
        contents: &BundleContents,
    ) -> kube::Result<()> {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::from([MANAGED_BY]);
        labels.extend(bundle.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let records = record::encode(&contents.records);
        let mut written = json!({
            "metadata": {
                "labels": labels,
                "annotations": {CURRENT: contents.current_fingerprint(), RECORDS: records, RETIRED: null},
            },
            "spec": {"signerName": bundle.signer.custom.name.as_str(), "trustBundle": contents.to_pem()},
        });
        let (name, anchors) = (&bundle.name, contents.anchors.len());
        tracing::info!(name, anchors, "writing trust bundle of signer");
        match object {
            Some(object) => {
                // The server rejects the patch if the bundle has changed since it was read.
                written["metadata"]["resourceVersion"] = object.resource_version().into();
                let parameters = PatchParams::default();
                self.bundles.patch(name, &parameters, &Patch::Merge(written)).await.map(drop)
            }
            None => {
                let mut created = DynamicObject::new(name, &self.resource).data(json!({
                    "spec": written["spec"],
                }));
                let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
                created.metadata.labels = Some(labels.into_iter().map(own).collect());
                let annotations = [(CURRENT, contents.current_fingerprint()), (RECORDS, records)];
                let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
                created.metadata.annotations = Some(annotations.into());
                self.bundles.create(&PostParams::default(), &created).await.map(drop)
            }
        }
    }

    /// Whether all nodes that report have the current bundle.
    fn is_delivered(&self, name: &str, signer: &CustomSigner, object: Option<&DynamicObject>) -> bool {
        let (Some(object), true) = (object, self.held.borrow().contains(name)) else {
            return false;
        };
        let anchors = TrustAnchor::parse_pem(trust_bundle_text(object));
        // An anchor that was added since is not what nodes were asked to have.
        let current = signer.ca.current().map(|ca| TrustAnchor::from_certificate(ca.anchor()));
        if !current.is_some_and(|current| anchors.contains(&current)) {
            return false;
        }
        let wanted = ExpectedBundle {
            bundle: name,
            signer: signer.custom.name.as_str(),
            labels: object.labels(),
            digest: &decision::digest(&anchors),
        };
        self.reports().nodes_lacking(wanted).is_some_and(|lacking| {
            let (nodes, named) = (lacking.len(), lacking.iter().take(NAMED).collect::<Vec<_>>());
            tracing::debug!(name, nodes, ?named, "nodes without the new trust anchor");
            lacking.is_empty()
        })
    }

    /// Records whether the newest CA waits for nodes, whose reports are watched then.
    fn record_hold(&self, name: &str, newest: Option<&AnchorRecord>, now: OffsetDateTime) {
        let holds = newest.and_then(|record| record.hold_until).is_some_and(|until| until > now);
        self.held.send_if_modified(|held| match holds {
            true => held.insert(name.to_owned()),
            false => held.remove(name),
        });
    }

    /// Watches the reports of nodes while a CA waits for them.
    async fn watch_reports(&self, queue: &WorkQueue<String>) -> Infallible {
        let mut held = self.held.subscribe();
        loop {
            // It cannot fail: `self` holds the sender.
            let _ = held.wait_for(|held| !held.is_empty()).await;
            let take = |event: Result<Event<DynamicObject>, &WatchError>| {
                let matters = |name: &str, signer: &str| self.is_relevant(name, signer);
                self.reports().observe(event, matters);
                self.held.borrow().iter().for_each(|name| queue.add(name.clone()));
            };
            let (api, config) = (self.node_trusts.clone(), Config::default());
            tokio::select! {
                never = watch_objects(api, "nodetrusts", config, queue.metrics(), take) => match never {},
                _ = held.wait_for(BTreeSet::is_empty) => {}
            }
            *self.reports() = NodeReports::default();
        }
    }

    /// Whether a source that selects a bundle by name, or by signer, may select one of ours.
    fn is_relevant(&self, name: &str, signer: &str) -> bool {
        match name {
            "" => self.published.values().any(|each| each.signer.custom.name.as_str() == signer),
            name => self.published.contains_key(name),
        }
    }

    fn reports(&self) -> MutexGuard<'_, NodeReports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn report_foreign(
        &self,
        signer: &CustomSigner,
        object: Option<&DynamicObject>,
        action: &AnchorAction,
        now: OffsetDateTime,
    ) {
        let foreign = *action == AnchorAction::LeaveAlone;
        if self.metrics.publishers.set_conflict(signer.custom.name.as_str(), foreign)
            && foreign
            && let Some(object) = object
        {
            let signer = &signer.custom.name;
            let note = format!(
                "another manager owns this trust bundle; the trust anchors of {signer} are not published"
            );
            self.warn(object, "ForeignTrustBundle", &note, now).await;
        }
    }

    async fn report_full(
        &self,
        signer: &CustomSigner,
        object: Option<&DynamicObject>,
        anchors: usize,
        now: OffsetDateTime,
    ) {
        let signer = &signer.custom.name;
        let note = format!(
            "trust bundle full: with the new CA of {signer} it would hold {anchors} anchors, and certificates issued under the others have not expired; rotate the CA less often or shorten the lifetimes of certificates"
        );
        if let Some(object) = object {
            self.warn(object, "TrustBundleFull", &note, now).await;
        }
    }

    async fn warn(&self, object: &DynamicObject, reason: &'static str, note: &str, now: OffsetDateTime) {
        let event = NewEvent::warning("Publishing", reason, note);
        self.events.warn(object.object_ref(&self.resource), event, now).await;
    }
}

pub(crate) fn trust_bundle_text(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/trustBundle").and_then(Value::as_str).unwrap_or_default()
}

/// Reads a bundle. `labels` are those that it should have besides ours.
fn existing_bundle(object: &DynamicObject, labels: &BTreeMap<String, String>) -> ExistingBundle {
    let (key, value) = MANAGED_BY;
    let annotation = |name: &str| object.annotations().get(name);
    let retired = annotation(RETIRED).and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    ExistingBundle {
        ours: object.labels().get(key).is_some_and(|found| found == value),
        labelled: labels.iter().all(|(key, value)| object.labels().get(key) == Some(value)),
        text: trust_bundle_text(object).to_owned(),
        current: annotation(CURRENT).cloned(),
        records: records(object),
        retired,
    }
}

/// Creates records for the anchors of a bundle of another manager, which decides how long they stay.
fn foreign_records(object: &DynamicObject) -> AnchorRecords {
    let anchors = TrustAnchor::parse_pem(trust_bundle_text(object));
    anchors.iter().map(|anchor| (anchor.fingerprint(), AnchorRecord::default())).collect()
}
