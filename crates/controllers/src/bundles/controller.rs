//! Bundle controller: watches that enqueue Bundles, and workers that reconcile them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::watch;
use windlass_api::trust_bundle::{BUNDLE_LABEL, Bundle};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;
use windlass_runtime::discovery::{CLUSTER_TRUST_BUNDLES, run_while_served};
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter};
use windlass_runtime::watch::{ListTracker, ObjectMetadata, TrackedEvent, WatchError, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::run_workers;

use super::access_check;
use super::cache::{BundleCache, NamespaceInfo, WatchedKind};
use super::reconcile::BundleReconciler;
use super::settings::BundleSettings;
use super::sources::{SourceObject, SourceTrustBundle};
use super::target::{TargetKind, controller_of};
use super::target_writer::TargetWriter;
use crate::metrics::{BUNDLES, MetricFamilies};
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;
use crate::publisher::conflict_limiter::ConflictLimiter;
use crate::publisher::delay_queue::DelayQueue;

/// Number of Bundles that are reconciled concurrently.
const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
/// Delay after a failed discovery.
const AGAIN: Duration = Duration::from_secs(2);
/// Interval between checks of a missing permission.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Reporting controller of the events, as in trust-manager.
const REPORTER: &str = "bundles";

/// Runs the controller with the version of the API that `resource` names. Other kinds are watched only after the first
/// Bundle exists.
pub async fn run(
    client: Client,
    resource: ApiResource,
    settings: Arc<BundleSettings>,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    metrics.bundles.clear();
    // Without a domain prefix, as trust-manager reports its events.
    let reporter = EventReporter { controller: REPORTER.into(), ..EventReporter::controller(REPORTER) };
    let kinds = [TargetKind::ConfigMap, TargetKind::Secret];
    let mut awaited = vec![WatchedKind::Bundles, WatchedKind::Namespaces];
    awaited.extend(kinds.map(WatchedKind::Sources).into_iter().chain(kinds.map(WatchedKind::Targets)));
    awaited.push(WatchedKind::Targets(TargetKind::ClusterTrustBundle));
    let controller = BundleController {
        reconciler: Arc::new(BundleReconciler {
            cache: BundleCache::new(&awaited),
            delay_queue: DelayQueue::new(),
            writer: TargetWriter::new(client.clone()),
            settings,
            bundles: Api::all_with(client.clone(), &resource),
            events: EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT),
            metrics: metrics.bundles.clone(),
            clock,
            conflict_limiter: ConflictLimiter::default(),
            extended: AtomicBool::new(true),
        }),
        queue: Arc::new(WorkQueue::new(metrics.queue(BUNDLES), BACKOFF)),
        begun: watch::Sender::new(false),
        client,
    };
    let work = async {
        controller.reconciler.cache.wait_until_ready().await;
        let reconcile = |name: String| controller.reconciler.clone().reconcile(name);
        run_workers(controller.queue.clone(), WORKERS, reconcile).await
    };
    tokio::join!(work, controller.watch_bundles(), controller.run_after_first_bundle()).0
}

#[derive(Clone)]
struct BundleController {
    reconciler: Arc<BundleReconciler>,
    queue: Arc<WorkQueue<String>>,
    /// Whether a Bundle has been seen; other objects are watched only from then on.
    begun: watch::Sender<bool>,
    client: Client,
}

impl BundleController {
    fn enqueue(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.reconciler.cache.mark_stale(&name);
            self.queue.add(name);
        }
    }

    async fn run_after_first_bundle(&self) {
        // It cannot fail: `self` holds the sender.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
        tokio::join!(
            self.watch_namespaces(),
            self.watch_config_maps(),
            self.watch_secrets(),
            self.watch_targets(TargetKind::ConfigMap, ApiResource::erase::<ConfigMap>(&())),
            self.watch_targets(TargetKind::Secret, ApiResource::erase::<Secret>(&())),
            self.watch_trust_bundles(),
            self.watch_package(),
            self.reconciler.delay_queue.run(|name| self.enqueue([name])),
        );
    }

    async fn watch_bundles(&self) {
        let (seen, api, mut tracker) =
            (&self.reconciler.cache, self.reconciler.bundles.clone(), ListTracker::default());
        let watched = WatchedKind::Bundles;
        watch_objects(api, "bundles", Config::default(), self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match tracker.track(event, NamespacedName::from_object) {
                Some(TrackedEvent::Applied(at, object)) => match parse_bundle(&object) {
                    Ok(bundle) => {
                        if seen.insert_bundle(bundle) {
                            self.enqueue([at.name]);
                        }
                        self.begun.send_replace(true);
                    }
                    Err(error) => tracing::warn!(bundle = at.name, %error, "cannot parse Bundle"),
                },
                Some(TrackedEvent::Deleted(at, _)) => {
                    seen.remove_bundle(&at.name);
                    self.enqueue([at.name]);
                }
                Some(TrackedEvent::Listed(listed)) => {
                    self.enqueue(seen.retain_bundles(&listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                None => {}
            }
        })
        .await;
    }

    async fn watch_namespaces(&self) {
        let (seen, mut tracker) = (&self.reconciler.cache, ListTracker::default());
        let api: Api<ObjectMetadata> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Namespace>(&()));
        let watched = WatchedKind::Namespaces;
        watch_objects(api, "namespaces", Config::default(), self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match tracker.track(event, NamespacedName::from_object) {
                Some(TrackedEvent::Applied(at, object)) => {
                    self.enqueue(seen.set_namespace(&at.name, Some(namespace_info(object))))
                }
                Some(TrackedEvent::Deleted(at, _)) => self.enqueue(seen.set_namespace(&at.name, None)),
                Some(TrackedEvent::Listed(listed)) => {
                    self.enqueue(seen.retain_namespaces(&listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                None => {}
            }
        })
        .await;
    }

    async fn watch_config_maps(&self) {
        let at = &self.reconciler.settings.trust_namespace;
        let (mut tracker, kind) = (ListTracker::default(), TargetKind::ConfigMap);
        self.wait_until_permitted(WatchedKind::Sources(kind), Some(at)).await;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), at);
        watch_objects(api, "configmaps", Config::default(), self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(WatchedKind::Sources(kind), event) else {
                return;
            };
            self.observe_source(
                kind,
                tracker.track(event, NamespacedName::from_object),
                SourceObject::from_config_map,
            );
        })
        .await;
    }

    async fn watch_secrets(&self) {
        let at = &self.reconciler.settings.trust_namespace;
        let (mut tracker, kind) = (ListTracker::default(), TargetKind::Secret);
        self.wait_until_permitted(WatchedKind::Sources(kind), Some(at)).await;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), at);
        watch_objects(api, "secrets", Config::default(), self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(WatchedKind::Sources(kind), event) else {
                return;
            };
            self.observe_source(
                kind,
                tracker.track(event, NamespacedName::from_object),
                SourceObject::from_secret,
            );
        })
        .await;
    }

    fn observe_source<K>(
        &self,
        kind: TargetKind,
        event: Option<TrackedEvent<K, NamespacedName>>,
        held: impl FnOnce(K) -> SourceObject,
    ) {
        let seen = &self.reconciler.cache;
        match event {
            Some(TrackedEvent::Applied(at, object)) => {
                self.enqueue(seen.set_source(kind, &at.name, Some(held(object))))
            }
            Some(TrackedEvent::Deleted(at, _)) => self.enqueue(seen.set_source(kind, &at.name, None)),
            Some(TrackedEvent::Listed(listed)) => {
                let at = &self.reconciler.settings.trust_namespace;
                self.enqueue(seen.retain_sources(kind, &listed, at));
                self.enqueue(seen.mark_listed(WatchedKind::Sources(kind)));
            }
            None => {}
        }
    }

    /// Watches targets in all namespaces, also in those that no Bundle selects any more. If the permissions are
    /// restricted to the target namespaces, watches those.
    async fn watch_targets(&self, kind: TargetKind, resource: ApiResource) {
        let only = &self.reconciler.settings.target_namespaces;
        if only.is_empty() || access_check::can_list(&self.client, kind, None).await {
            let everywhere = Api::all_with(self.client.clone(), &resource);
            return self.watch_targets_in(kind, everywhere, None).await;
        }
        join_all(only.iter().map(|namespace| {
            let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
            self.watch_targets_in(kind, api, Some(namespace))
        }))
        .await;
    }

    /// Watches targets in one namespace, or in all.
    async fn watch_targets_in(&self, kind: TargetKind, api: Api<ObjectMetadata>, within: Option<&str>) {
        self.wait_until_permitted(WatchedKind::Targets(kind), within).await;
        let (seen, mut tracker, watched) =
            (&self.reconciler.cache, ListTracker::default(), WatchedKind::Targets(kind));
        let config = Config::default().labels(BUNDLE_LABEL);
        let plural = format!("{}s", kind.to_string().to_lowercase());
        watch_objects(api, &plural, config, self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match tracker.track(event, NamespacedName::from_object) {
                Some(TrackedEvent::Applied(at, object)) => {
                    self.enqueue(seen.set_target(kind, &at, &object.metadata))
                }
                Some(TrackedEvent::Deleted(at, object)) => {
                    self.enqueue(seen.remove_target(kind, &at, &object.metadata))
                }
                Some(TrackedEvent::Listed(listed)) => {
                    self.enqueue(seen.retain_targets(kind, within, &listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                None => {}
            }
        })
        .await;
    }

    /// Watches ClusterTrustBundles while the server serves them: they are sources and targets.
    async fn watch_trust_bundles(&self) {
        loop {
            match CLUSTER_TRUST_BUNDLES.find(&self.client).await {
                Ok(Some(_)) => break,
                // Not served, so there is no list to wait for.
                Ok(None) => {
                    self.enqueue(
                        self.reconciler
                            .cache
                            .mark_listed(WatchedKind::Targets(TargetKind::ClusterTrustBundle)),
                    );
                    break;
                }
                Err(error) => {
                    tracing::debug!(error = describe(&error), "cannot discover ClusterTrustBundles");
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        loop {
            let controller = self.clone();
            let start = move |resource| controller.clone().watch_trust_bundle_resource(resource);
            run_while_served(self.client.clone(), CLUSTER_TRUST_BUNDLES, REPORTER, start, || {}).await;
        }
    }

    async fn watch_trust_bundle_resource(self, resource: ApiResource) {
        let kind = TargetKind::ClusterTrustBundle;
        let _served = TrustBundleAvailability(self.clone());
        self.wait_until_permitted(WatchedKind::Targets(kind), None).await;
        self.reconciler.writer.set_trust_bundle_resource(Some(resource.clone()));
        self.enqueue(self.reconciler.cache.set_trust_bundles_served(true));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let (seen, mut tracker, watched) =
            (&self.reconciler.cache, ListTracker::default(), WatchedKind::Targets(kind));
        watch_objects(api, &resource.plural, Config::default(), self.queue.metrics(), |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match tracker.track(event, NamespacedName::from_object) {
                Some(TrackedEvent::Applied(at, object)) => {
                    self.enqueue(seen.set_target(kind, &at, &object.metadata));
                    self.enqueue(seen.set_trust_bundle(&at.name, Some(parse_trust_bundle(object))));
                }
                Some(TrackedEvent::Deleted(at, object)) => {
                    self.enqueue(seen.remove_target(kind, &at, &object.metadata));
                    self.enqueue(seen.set_trust_bundle(&at.name, None));
                }
                Some(TrackedEvent::Listed(listed)) => {
                    self.enqueue(seen.retain_trust_bundles(&listed));
                    self.enqueue(seen.retain_targets(kind, None, &listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                None => {}
            }
        })
        .await;
    }

    async fn watch_package(&self) {
        let Some(package) = &self.reconciler.settings.package else { return };
        let mut changes = package.changes();
        while changes.changed().await.is_ok() {
            self.enqueue(self.reconciler.cache.bundles_using_package());
        }
    }

    /// Waits for the permission to list a kind; until then the kind is marked as refused.
    async fn wait_until_permitted(&self, watched: WatchedKind, namespace: Option<&str>) {
        let (WatchedKind::Sources(kind) | WatchedKind::Targets(kind)) = watched else { return };
        while !access_check::can_list(&self.client, kind, namespace).await {
            let why = access_check::forbidden_message(kind, namespace);
            self.enqueue(self.reconciler.cache.mark_refused(watched, why));
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Returns the event, and marks the kind as refused if the watch was rejected.
    fn event_or_refusal<K>(
        &self,
        watched: WatchedKind,
        event: Result<Event<K>, &WatchError>,
    ) -> Option<Event<K>> {
        match event {
            Ok(event) => Some(event),
            Err(error) => {
                if let Some(why) = refusal_message(error) {
                    self.enqueue(self.reconciler.cache.mark_refused(watched, why));
                }
                None
            }
        }
    }
}

/// Exists while ClusterTrustBundles are served; its drop resets the state.
struct TrustBundleAvailability(BundleController);

impl Drop for TrustBundleAvailability {
    fn drop(&mut self) {
        self.0.reconciler.writer.set_trust_bundle_resource(None);
        self.0.enqueue(self.0.reconciler.cache.set_trust_bundles_served(false));
    }
}

/// Returns the server's message if it rejects the watch; `None` for errors that pass.
fn refusal_message(error: &WatchError) -> Option<String> {
    let is_refused = match error.status {
        Some(403) => true,
        Some(401 | 404 | 405) => !error.was_established,
        _ => false,
    };
    is_refused.then(|| error.message.clone())
}

fn parse_bundle(object: &DynamicObject) -> Result<Bundle, serde_json::Error> {
    Bundle::from_value(&serde_json::to_value(object)?)
}

fn namespace_info(object: ObjectMetadata) -> NamespaceInfo {
    let ending = object.metadata.deletion_timestamp.is_some();
    NamespaceInfo { labels: object.metadata.labels.unwrap_or_default(), ending }
}

fn parse_trust_bundle(object: DynamicObject) -> SourceTrustBundle {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
    SourceTrustBundle {
        controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
        signer: text("/spec/signerName").unwrap_or_default().to_owned(),
        text: text("/spec/trustBundle").unwrap_or_default().to_owned(),
        labels: object.labels().iter().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<_, _>>(),
    }
}
