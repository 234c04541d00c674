//! Reconciliation of one Bundle: gather the sources, compare the targets, write, report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{DynamicObject, Patch};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_api::trust_bundle::{
    API_VERSION, Bundle, BundleStatus, HASH_ANNOTATION, KIND, SourceStatus, is_reserved_name,
};
use windlass_runtime::events::{EventRecorder, NewEvent};
use windlass_runtime::workers::Requeue;

use super::apply_patch::apply_body;
use super::cache::{BundleCache, CacheSnapshot, WatchedKind};
use super::encoder::{EncodeError, encode};
use super::mapper::{has_sources, has_targets};
use super::metrics::BundleMetrics;
use super::namespace_filter::{NamespaceFilter, NamespaceMatch};
use super::plan::{TargetOperation, TargetPlan, TargetStep, plan};
use super::settings::BundleSettings;
use super::sources::{GatherResult, GatheredCertificates, SourceError, SourceInputs, gather};
use super::status::{BundleEvent, SyncBlocker, SyncOutcome, TargetFailure, report, status_body};
use super::target::{DesiredTarget, TargetKind, desired_targets};
use super::target_writer::{TargetWriter, WRITES, apply_params, error_message, is_namespace_terminating};
use crate::options::Clock;
use crate::publisher::conflict_limiter::ConflictLimiter;
use crate::publisher::delay_queue::DelayQueue;

/// Interval after which a missing source is checked again, in case the watch missed it.
const MISSING: Duration = Duration::from_secs(300);
/// Longest delay until the next reconciliation, because clocks can be set.
const FAR: time::Duration = time::Duration::DAY;

pub struct BundleReconciler {
    /// Cache of all watched objects, filled by the watches.
    pub cache: BundleCache,
    /// Bundles to reconcile again when a certificate expires, by name.
    pub delay_queue: DelayQueue<String>,
    /// Applies, releases and deletes targets on the API server.
    pub writer: TargetWriter,
    pub settings: Arc<BundleSettings>,
    /// API for Bundles, used to write their status.
    pub bundles: Api<DynamicObject>,
    /// Publishes events that refer to Bundles.
    pub events: EventRecorder,
    /// Gauges of the Bundles and their sync latency.
    pub metrics: BundleMetrics,
    /// Returns the current time.
    pub clock: Clock,
    /// Limits writes of targets that another manager keeps changing.
    pub conflict_limiter: ConflictLimiter,
    /// Whether the CRD of the server has the status fields beyond those of trust-manager.
    pub extended: AtomicBool,
}

/// Encoded apply bodies, by target kind.
type Bodies = BTreeMap<TargetKind, Vec<u8>>;

enum StepOutcome {
    Applied,
    /// The target does not need the operation any more.
    NotNeeded,
    /// The operation failed for this reason; it is retried.
    Failed(TargetOperation, TargetFailure),
}

impl BundleReconciler {
    pub async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let Some(bundle) = self.cache.bundle(&name) else {
            self.metrics.remove(&name);
            return Ok(Requeue::Done);
        };
        if bundle.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let (view, now) = (self.cache.snapshot(), (self.clock)());
        if is_reserved_name(&name) {
            return self.release_targets(bundle, &view, now).await;
        }
        let allowed = self.settings.target_namespaces.iter().cloned();
        let namespace_filter = NamespaceFilter::new(bundle.spec.target.as_ref(), allowed);
        let GatherResult { sources, result } =
            self.gather(&bundle, &view, namespace_filter.as_ref().ok(), now);
        let harvest = match result {
            Ok(harvest) => harvest,
            Err(failure) => {
                self.delay_queue.schedule(name, MISSING);
                return self.report_outcome(&bundle, SyncOutcome::Source(&failure), &sources, now).await;
            }
        };
        if has_targets(&bundle, TargetKind::Secret) && !self.settings.secret_targets {
            let outcome = SyncOutcome::SecretTargetsDisabled(&harvest);
            return self.report_outcome(&bundle, outcome, &sources, now).await;
        }
        let namespace_filter = match namespace_filter {
            Ok(namespace_filter) => namespace_filter,
            Err(error) => {
                let blocker = SyncBlocker::NamespaceSelector(error.to_string());
                return Ok(self.report_blocker(&bundle, &blocker).await);
            }
        };
        if let Some(blocker) = find_blocker(&bundle, &view) {
            return Ok(self.report_blocker(&bundle, &blocker).await);
        }
        self.sync(bundle, &view, &namespace_filter, &harvest, &sources, now).await
    }

    /// Removes targets under a name that Kubernetes reserves, and reports why nothing is written. Servers with our CRD
    /// reject such Bundles.
    async fn release_targets(
        self: Arc<Self>,
        bundle: Arc<Bundle>,
        view: &CacheSnapshot,
        now: OffsetDateTime,
    ) -> anyhow::Result<Requeue> {
        let places = view.namespaces.iter().map(|(name, space)| match space.ending {
            true => (name.as_str(), NamespaceMatch::Ending),
            false => (name.as_str(), NamespaceMatch::Outside),
        });
        let places = places.collect::<Vec<_>>();
        let TargetPlan { steps, .. } =
            self.cache.with_targets(|targets| plan(&bundle.metadata, &[], &places, targets));
        let mut failed = None;
        for step in steps {
            if let StepOutcome::Failed(_, failure) =
                self.execute_plan(&bundle, step, &[], &Bodies::new()).await
            {
                failed = Some(failure.error);
            }
        }
        let next = self.report_outcome(&bundle, SyncOutcome::ReservedName, &[], now).await?;
        Ok(failed.map_or(next, Requeue::WithBackoff))
    }

    fn gather(
        &self,
        bundle: &Bundle,
        view: &CacheSnapshot,
        namespace_filter: Option<&NamespaceFilter>,
        now: OffsetDateTime,
    ) -> GatherResult {
        if let Some(failure) = self.unreadable_source(bundle, view) {
            return GatherResult { sources: Vec::new(), result: Err(failure) };
        }
        let at = self.settings.trust_namespace.as_str();
        let is_target =
            view.namespaces.get(at).zip(namespace_filter).is_some_and(|(space, namespace_filter)| {
                namespace_filter.match_namespace(at, &space.labels, space.ending) == NamespaceMatch::Inside
            });
        let package = self.settings.package.as_ref().map(|package| package.current());
        let world = SourceInputs {
            trust_namespace: at,
            is_target,
            config_maps: &view.config_maps,
            secrets: &view.secrets,
            trust_bundles: view.trust_bundles.as_deref(),
            package: package.as_deref(),
            filters: self.settings.filters,
            now,
        };
        gather(bundle, &world)
    }

    /// A source that cannot be read is not missing: returns the error.
    fn unreadable_source(&self, bundle: &Bundle, view: &CacheSnapshot) -> Option<SourceError> {
        let at = &self.settings.trust_namespace;
        [TargetKind::ConfigMap, TargetKind::Secret, TargetKind::ClusterTrustBundle].into_iter().find_map(
            |kind| {
                let (watched, place) = match kind {
                    TargetKind::ConfigMap | TargetKind::Secret => {
                        (WatchedKind::Sources(kind), format!(" in namespace {at}"))
                    }
                    TargetKind::ClusterTrustBundle => (WatchedKind::Targets(kind), String::new()),
                };
                let why = view.refused.get(&watched).filter(|_| has_sources(bundle, kind))?;
                Some(SourceError::Build(format!("failed to list {kind}s{place}: {why}")))
            },
        )
    }

    async fn sync(
        self: Arc<Self>,
        bundle: Arc<Bundle>,
        view: &CacheSnapshot,
        namespace_filter: &NamespaceFilter,
        harvest: &GatheredCertificates,
        sources: &[SourceStatus],
        now: OffsetDateTime,
    ) -> anyhow::Result<Requeue> {
        let desired = Arc::new(desired_targets(&bundle, &harvest.certificates));
        let places = view.namespaces.iter().map(|(name, space)| {
            (name.as_str(), namespace_filter.match_namespace(name, &space.labels, space.ending))
        });
        let places = places.collect::<Vec<_>>();
        let TargetPlan { wanted, steps, blocked } =
            self.cache.with_targets(|targets| plan(&bundle.metadata, desired.as_slice(), &places, targets));
        let bodies = match self.encode_bodies(&bundle, &desired, &steps, harvest).await? {
            Ok(bodies) => Arc::new(bodies),
            Err(error) => {
                let failure = SourceError::Build(error.to_string());
                return self.report_outcome(&bundle, SyncOutcome::Source(&failure), sources, now).await;
            }
        };
        let mut done = stream::iter(steps.into_iter().map(|step| {
            let (reconciler, bundle) = (self.clone(), bundle.clone());
            let (desired, bodies) = (desired.clone(), bodies.clone());
            async move { reconciler.execute_plan(&bundle, step, &desired, &bodies).await }
        }))
        .buffer_unordered(WRITES);
        let (mut wrote, mut unwritten, mut failures) = (false, blocked.len(), blocked);
        while let Some(done) = done.next().await {
            match done {
                StepOutcome::Applied => wrote = true,
                StepOutcome::NotNeeded => {}
                StepOutcome::Failed(operation, failure) => {
                    unwritten += usize::from(operation.is_write());
                    failures.push(failure);
                }
            }
        }
        drop(done);
        self.record_gauges(&bundle, harvest, (wanted, unwritten), wrote, failures.is_empty());
        self.schedule_expiry(&bundle, harvest, now);
        let outcome = match failures.is_empty() {
            true => SyncOutcome::Synced { harvest, namespace_filter, wrote },
            false => SyncOutcome::Targets(harvest, &failures),
        };
        self.report_outcome(&bundle, outcome, sources, now).await
    }

    /// Encodes the bodies that are needed, once per target kind.
    async fn encode_bodies(
        &self,
        bundle: &Arc<Bundle>,
        desired: &[DesiredTarget],
        steps: &[TargetStep],
        harvest: &GatheredCertificates,
    ) -> anyhow::Result<Result<Bodies, EncodeError>> {
        let writes = |kind| steps.iter().any(|step| step.kind == kind && step.operation.is_write());
        let needed = desired.iter().filter(|each| writes(each.kind)).collect::<Vec<_>>();
        if needed.is_empty() {
            return Ok(Ok(Bodies::new()));
        }
        // Encoding with a password is slow.
        let (pool, of) = (harvest.certificates.clone(), bundle.clone());
        let encoded = tokio::task::spawn_blocking(move || {
            let target = of.spec.target.as_ref();
            encode(&pool, target.and_then(|target| target.additional_formats.as_ref()))
        });
        let content = match encoded.await? {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        let mut bodies = Bodies::new();
        for each in needed {
            if let Some(version) = self.writer.version(each.kind) {
                let body = apply_body(&bundle.metadata, &version, each, &content);
                bodies.insert(each.kind, serde_json::to_vec(&body)?);
            }
        }
        Ok(Ok(bodies))
    }

    async fn execute_plan(
        &self,
        bundle: &Bundle,
        step: TargetStep,
        desired: &[DesiredTarget],
        bodies: &Bodies,
    ) -> StepOutcome {
        let TargetStep { kind, at, operation } = step;
        let result = match operation {
            TargetOperation::Write | TargetOperation::Create => {
                let (body, written) = match self.may_write(kind, &at.to_string(), desired, bodies) {
                    Ok(allowed) => allowed,
                    Err(why) => {
                        return StepOutcome::Failed(operation, target_failure(kind, at, why.to_owned()));
                    }
                };
                let applied = match operation {
                    TargetOperation::Create => self.writer.create(&bundle.metadata, kind, &at, body).await,
                    _ => self.writer.apply(kind, &at, body).await.map(Ok),
                };
                match applied {
                    Ok(Ok(metadata)) => {
                        self.cache.record_write(kind, &at, &metadata);
                        Ok(())
                    }
                    Ok(Err(why)) => {
                        self.conflict_limiter.undo_write(&written);
                        return StepOutcome::Failed(operation, target_failure(kind, at, why));
                    }
                    Err(error) => {
                        self.conflict_limiter.undo_write(&written);
                        Err(error)
                    }
                }
            }
            TargetOperation::Release => self.writer.release(&bundle.metadata, kind, &at).await,
            TargetOperation::Delete => self.writer.delete(&bundle.metadata, kind, &at).await,
        };
        match result {
            Ok(()) => StepOutcome::Applied,
            Err(error) if kind != TargetKind::ClusterTrustBundle && is_namespace_terminating(&error) => {
                StepOutcome::NotNeeded
            }
            Err(error) => {
                let error = match operation {
                    TargetOperation::Write | TargetOperation::Create => error_message(&error),
                    TargetOperation::Release | TargetOperation::Delete => {
                        format!("failed to remove it: {}", error_message(&error))
                    }
                };
                StepOutcome::Failed(operation, target_failure(kind, at, error))
            }
        }
    }

    /// Returns the body if the target may be written now, and the key of the conflict limiter.
    fn may_write<'a>(
        &self,
        kind: TargetKind,
        at: &str,
        desired: &[DesiredTarget],
        bodies: &'a Bodies,
    ) -> Result<(&'a [u8], String), &'static str> {
        let body = bodies.get(&kind).ok_or("the server does not serve ClusterTrustBundles")?;
        // The key contains the hash, so that new content does not count as a conflict.
        let hash = desired.iter().find(|each| each.kind == kind);
        let hash = hash.and_then(|each| each.annotations.get(HASH_ANNOTATION));
        let written = format!("{kind} {at} {}", hash.map_or("", String::as_str));
        match self.conflict_limiter.try_write(&written, Instant::now()) {
            true => Ok((body, written)),
            false => Err("another manager keeps changing it"),
        }
    }

    fn record_gauges(
        &self,
        bundle: &Bundle,
        harvest: &GatheredCertificates,
        (wanted, unwritten): (usize, usize),
        wrote: bool,
        well: bool,
    ) {
        let name = &bundle.metadata.name;
        self.metrics.set_targets(name, wanted.saturating_sub(unwritten), unwritten);
        if well {
            let certificates = &harvest.certificates;
            self.metrics.set_content(name, certificates.len(), certificates.earliest_expiry());
        }
        if well
            && let Some(since) = self.cache.clear_stale(name)
            && wrote
        {
            self.metrics.observe_sync(since.elapsed());
        }
    }

    /// Reconciles the Bundle again when a certificate expires, if expired ones are left out.
    fn schedule_expiry(&self, bundle: &Bundle, harvest: &GatheredCertificates, now: OffsetDateTime) {
        if let Some(until) = harvest.certificates.valid_until() {
            let after = (until - now).clamp(time::Duration::ZERO, FAR);
            self.delay_queue.schedule(bundle.metadata.name.clone(), after.unsigned_abs());
        }
    }

    async fn report_outcome(
        &self,
        bundle: &Bundle,
        outcome: SyncOutcome<'_>,
        sources: &[SourceStatus],
        now: OffsetDateTime,
    ) -> anyhow::Result<Requeue> {
        let report = report(bundle, outcome, sources, now);
        if let Some(status) = report.status {
            self.write_status(bundle, status).await?;
        }
        let note = report.event.as_ref().map(|event| event.note.clone());
        if let Some(event) = &report.event {
            self.publish_event(bundle, event).await;
        }
        Ok(match report.retry {
            true => Requeue::WithBackoff(note.unwrap_or_else(|| "status unchanged".to_owned())),
            false => Requeue::Done,
        })
    }

    /// Writes the status. A server with the CRD of trust-manager rejects other fields.
    async fn write_status(&self, bundle: &Bundle, status: BundleStatus) -> anyhow::Result<()> {
        let name = bundle.metadata.name.as_str();
        let write = async |extended| {
            let body = Patch::Apply(status_body(name, &status, extended));
            self.bundles.patch_status(name, &apply_params(), &body).await.map(drop)
        };
        let mut written = Ok(());
        if self.extended.load(Relaxed) {
            written = write(true).await;
            if let Err(kube::Error::Api(refused)) = &written
                && refused.message.contains("field not declared in schema")
            {
                tracing::info!(
                    "server has the Bundle CRD of trust-manager; omitting status fields beyond it"
                );
                self.extended.store(false, Relaxed);
            }
        }
        if !self.extended.load(Relaxed) {
            let before = bundle.status.clone().unwrap_or_default();
            let same = status_body(name, &before, false) == status_body(name, &status, false);
            written = if same { Ok(()) } else { write(false).await };
        }
        match written {
            // The Bundle was deleted.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                let extended = self.extended.load(Relaxed);
                let written = serde_json::from_value(status_body(name, &status, extended)["status"].take())?;
                self.cache.record_status(bundle, written);
                Ok(())
            }
        }
    }

    async fn report_blocker(&self, bundle: &Bundle, blocker: &SyncBlocker) -> Requeue {
        let event = blocker.event();
        self.publish_event(bundle, &event).await;
        Requeue::WithBackoff(event.note)
    }

    async fn publish_event(&self, bundle: &Bundle, event: &BundleEvent) {
        let name = &bundle.metadata.name;
        let BundleEvent { warning, reason, action, note } = event;
        match warning {
            true => tracing::warn!(bundle = name, reason, "{note}"),
            false => tracing::info!(bundle = name, reason, "{note}"),
        }
        let event = match warning {
            true => NewEvent::warning(*action, reason.as_str(), note.as_str()),
            false => NewEvent::normal(*action, reason.as_str(), note.as_str()),
        };
        let about = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(KIND.to_owned()),
            name: Some(name.clone()),
            uid: Some(bundle.metadata.uid.clone()),
            ..ObjectReference::default()
        };
        self.events.record(about, event, (self.clock)()).await;
    }
}

/// Finds what prevents the targets from being compared.
fn find_blocker(bundle: &Bundle, view: &CacheSnapshot) -> Option<SyncBlocker> {
    if let Some(why) = view.refused.get(&WatchedKind::Namespaces) {
        return Some(SyncBlocker::NamespaceList(why.clone()));
    }
    [TargetKind::ConfigMap, TargetKind::Secret, TargetKind::ClusterTrustBundle].into_iter().find_map(|kind| {
        let why = view.refused.get(&WatchedKind::Targets(kind)).filter(|_| has_targets(bundle, kind))?;
        Some(SyncBlocker::TargetList(kind, why.clone()))
    })
}

fn target_failure(
    kind: TargetKind,
    at: crate::namespaced_name::NamespacedName,
    error: String,
) -> TargetFailure {
    TargetFailure { kind, namespace: at.namespace, name: at.name, error }
}
