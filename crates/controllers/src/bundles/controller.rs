//! The loop: watches that wake Bundles, and workers that bring them in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::watch;
use windlass_api::trust_bundle::{BUNDLE_LABEL, Bundle};
use windlass_client_error::describe;

use super::access_check;
use super::cache::{BundleCache, NamespaceInfo, WatchedKind};
use super::gauges;
use super::reconcile::BundleReconciler;
use super::relist::{ObjectEvent, RelistTracker};
use super::settings::BundleSettings;
use super::sources::{SourceObject, SourceTrustBundle};
use super::target::{TargetKind, controller_of};
use super::target_writer::TargetWriter;
use crate::discovery::{self, TRUST_BUNDLES};
use crate::metrics::BUNDLES;
use crate::options::Clock;
use crate::publisher::conflict_limiter::ConflictLimiter;
use crate::publisher::delay_queue::DelayQueue;
use crate::resource_watch::{self, Metadata};
use crate::work_queue::{RetryBackoff, WorkQueue};
use crate::workers;

/// Bundles that are brought in order at the same time.
const WORKERS: usize = 8;
const BACKOFF: RetryBackoff =
    RetryBackoff::new(Duration::from_millis(100), Duration::from_secs(60));
/// How soon to ask again what the server serves.
const AGAIN: Duration = Duration::from_secs(2);
/// How soon to ask again what is permitted.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// What trust-manager's events come from.
const REPORTER: &str = "bundles";

/// Keeps the Bundles of a server in order, with the kind in the version that it has; does not end.
/// Nothing else is looked at before there is one.
pub async fn run(
    client: Client,
    resource: ApiResource,
    settings: Arc<BundleSettings>,
    clock: Clock,
) {
    gauges::clear();
    let kinds = [TargetKind::ConfigMap, TargetKind::Secret];
    let mut awaited = vec![WatchedKind::Bundles, WatchedKind::Namespaces];
    awaited
        .extend(kinds.map(WatchedKind::Sources).into_iter().chain(kinds.map(WatchedKind::Targets)));
    awaited.push(WatchedKind::Targets(TargetKind::ClusterTrustBundle));
    let site = BundleController {
        keeper: Arc::new(BundleReconciler {
            cache: BundleCache::new(&awaited),
            delay_queue: DelayQueue::new(),
            writer: TargetWriter::new(client.clone()),
            settings,
            bundles: Api::all_with(client.clone(), &resource),
            recorder: Recorder::new(client.clone(), Reporter::from(REPORTER)),
            clock,
            conflict_limiter: ConflictLimiter::default(),
            extended: AtomicBool::new(true),
        }),
        queue: Arc::new(WorkQueue::new(&BUNDLES, BACKOFF)),
        begun: watch::Sender::new(false),
        client,
    };
    let work = async {
        site.keeper.cache.wait_until_ready().await;
        let reconcile = |name: String| site.keeper.clone().reconcile(name);
        workers::run(site.queue.clone(), WORKERS, reconcile).await;
    };
    tokio::join!(site.watch_bundles(), site.run_after_first_bundle(), work);
}

#[derive(Clone)]
struct BundleController {
    keeper: Arc<BundleReconciler>,
    queue: Arc<WorkQueue<String>>,
    /// Whether there is a Bundle.
    begun: watch::Sender<bool>,
    client: Client,
}

impl BundleController {
    fn enqueue(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.keeper.cache.mark_stale(&name);
            self.queue.add(name);
        }
    }

    async fn run_after_first_bundle(&self) {
        // It cannot fail: the sender is here.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
        tokio::join!(
            self.watch_namespaces(),
            self.watch_config_maps(),
            self.watch_secrets(),
            self.watch_targets(TargetKind::ConfigMap, ApiResource::erase::<ConfigMap>(&())),
            self.watch_targets(TargetKind::Secret, ApiResource::erase::<Secret>(&())),
            self.watch_trust_bundles(),
            self.watch_package(),
            self.keeper.delay_queue.run(|name| self.enqueue([name])),
        );
    }

    async fn watch_bundles(&self) {
        let (seen, api, mut listing) =
            (&self.keeper.cache, self.keeper.bundles.clone(), RelistTracker::default());
        let watched = WatchedKind::Bundles;
        resource_watch::watch_with_config(api, "bundles", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match listing.observe(event) {
                ObjectEvent::Applied(at, object) => match parse_bundle(&object) {
                    Ok(bundle) => {
                        if seen.insert_bundle(bundle) {
                            self.enqueue([at.name]);
                        }
                        self.begun.send_replace(true);
                    }
                    Err(error) => tracing::warn!(bundle = at.name, %error, "cannot be read"),
                },
                ObjectEvent::Deleted(at, _) => {
                    seen.remove_bundle(&at.name);
                    self.enqueue([at.name]);
                }
                ObjectEvent::Listed(listed) => {
                    self.enqueue(seen.retain_bundles(&listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                ObjectEvent::Ignored => {}
            }
        })
        .await;
    }

    async fn watch_namespaces(&self) {
        let (seen, mut listing) = (&self.keeper.cache, RelistTracker::default());
        let api: Api<Metadata> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Namespace>(&()));
        let watched = WatchedKind::Namespaces;
        resource_watch::watch_with_config(
            api,
            "namespaces",
            Config::default(),
            &BUNDLES,
            |event| {
                let Some(event) = self.event_or_refusal(watched, event) else { return };
                match listing.observe(event) {
                    ObjectEvent::Applied(at, object) => {
                        self.enqueue(seen.set_namespace(&at.name, Some(namespace_info(object))))
                    }
                    ObjectEvent::Deleted(at, _) => self.enqueue(seen.set_namespace(&at.name, None)),
                    ObjectEvent::Listed(listed) => {
                        self.enqueue(seen.retain_namespaces(&listed));
                        self.enqueue(seen.mark_listed(watched));
                    }
                    ObjectEvent::Ignored => {}
                }
            },
        )
        .await;
    }

    async fn watch_config_maps(&self) {
        let at = &self.keeper.settings.trust_namespace;
        let (mut listing, kind) = (RelistTracker::default(), TargetKind::ConfigMap);
        self.wait_until_permitted(WatchedKind::Sources(kind), Some(at)).await;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), at);
        resource_watch::watch_with_config(
            api,
            "configmaps",
            Config::default(),
            &BUNDLES,
            |event| {
                let Some(event) = self.event_or_refusal(WatchedKind::Sources(kind), event) else {
                    return;
                };
                self.observe_source(kind, listing.observe(event), SourceObject::from_config_map);
            },
        )
        .await;
    }

    async fn watch_secrets(&self) {
        let at = &self.keeper.settings.trust_namespace;
        let (mut listing, kind) = (RelistTracker::default(), TargetKind::Secret);
        self.wait_until_permitted(WatchedKind::Sources(kind), Some(at)).await;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), at);
        resource_watch::watch_with_config(api, "secrets", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.event_or_refusal(WatchedKind::Sources(kind), event) else {
                return;
            };
            self.observe_source(kind, listing.observe(event), SourceObject::from_secret);
        })
        .await;
    }

    fn observe_source<K>(
        &self,
        kind: TargetKind,
        news: ObjectEvent<K>,
        held: impl FnOnce(K) -> SourceObject,
    ) {
        let seen = &self.keeper.cache;
        match news {
            ObjectEvent::Applied(at, object) => {
                self.enqueue(seen.set_source(kind, &at.name, Some(held(object))))
            }
            ObjectEvent::Deleted(at, _) => self.enqueue(seen.set_source(kind, &at.name, None)),
            ObjectEvent::Listed(listed) => {
                let at = &self.keeper.settings.trust_namespace;
                self.enqueue(seen.retain_sources(kind, &listed, at));
                self.enqueue(seen.mark_listed(WatchedKind::Sources(kind)));
            }
            ObjectEvent::Ignored => {}
        }
    }

    /// Watches targets everywhere, also where no Bundle goes any more. Who may see only the
    /// namespaces that are written to sees those.
    async fn watch_targets(&self, kind: TargetKind, resource: ApiResource) {
        let only = &self.keeper.settings.target_namespaces;
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

    /// Watches targets in one namespace or everywhere.
    async fn watch_targets_in(&self, kind: TargetKind, api: Api<Metadata>, within: Option<&str>) {
        self.wait_until_permitted(WatchedKind::Targets(kind), within).await;
        let (seen, mut listing, watched) =
            (&self.keeper.cache, RelistTracker::default(), WatchedKind::Targets(kind));
        let config = Config::default().labels(BUNDLE_LABEL);
        let plural = format!("{}s", kind.to_string().to_lowercase());
        resource_watch::watch_with_config(api, &plural, config, &BUNDLES, |event| {
            let Some(event) = self.event_or_refusal(watched, event) else { return };
            match listing.observe(event) {
                ObjectEvent::Applied(at, object) => {
                    self.enqueue(seen.set_target(kind, &at, &object.metadata))
                }
                ObjectEvent::Deleted(at, object) => {
                    self.enqueue(seen.remove_target(kind, &at, &object.metadata))
                }
                ObjectEvent::Listed(listed) => {
                    self.enqueue(seen.retain_targets(kind, within, &listed));
                    self.enqueue(seen.mark_listed(watched));
                }
                ObjectEvent::Ignored => {}
            }
        })
        .await;
    }

    /// Watches ClusterTrustBundles while the server has them: they are sources, and targets.
    async fn watch_trust_bundles(&self) {
        loop {
            match discovery::discover(&self.client, TRUST_BUNDLES).await {
                Ok(Some(_)) => break,
                // There is nothing to wait for.
                Ok(None) => {
                    self.enqueue(
                        self.keeper
                            .cache
                            .mark_listed(WatchedKind::Targets(TargetKind::ClusterTrustBundle)),
                    );
                    break;
                }
                Err(error) => {
                    tracing::debug!(
                        error = describe(&error),
                        "cannot find out what the server serves"
                    );
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        loop {
            let site = self.clone();
            discovery::run_while_served(
                self.client.clone(),
                TRUST_BUNDLES,
                REPORTER,
                move |resource| site.clone().watch_trust_bundle_resource(resource),
            )
            .await;
        }
    }

    async fn watch_trust_bundle_resource(self, resource: ApiResource) {
        let kind = TargetKind::ClusterTrustBundle;
        let _served = TrustBundleAvailability(self.clone());
        self.wait_until_permitted(WatchedKind::Targets(kind), None).await;
        self.keeper.writer.set_trust_bundle_resource(Some(resource.clone()));
        self.enqueue(self.keeper.cache.set_trust_bundles_served(true));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let (seen, mut listing, watched) =
            (&self.keeper.cache, RelistTracker::default(), WatchedKind::Targets(kind));
        resource_watch::watch_with_config(
            api,
            &resource.plural,
            Config::default(),
            &BUNDLES,
            |event| {
                let Some(event) = self.event_or_refusal(watched, event) else { return };
                match listing.observe(event) {
                    ObjectEvent::Applied(at, object) => {
                        self.enqueue(seen.set_target(kind, &at, &object.metadata));
                        self.enqueue(
                            seen.set_trust_bundle(&at.name, Some(parse_trust_bundle(object))),
                        );
                    }
                    ObjectEvent::Deleted(at, object) => {
                        self.enqueue(seen.remove_target(kind, &at, &object.metadata));
                        self.enqueue(seen.set_trust_bundle(&at.name, None));
                    }
                    ObjectEvent::Listed(listed) => {
                        self.enqueue(seen.retain_trust_bundles(&listed));
                        self.enqueue(seen.retain_targets(kind, None, &listed));
                        self.enqueue(seen.mark_listed(watched));
                    }
                    ObjectEvent::Ignored => {}
                }
            },
        )
        .await;
    }

    async fn watch_package(&self) {
        let Some(package) = &self.keeper.settings.package else { return };
        let mut changes = package.changes();
        while changes.changed().await.is_ok() {
            self.enqueue(self.keeper.cache.bundles_using_package());
        }
    }

    /// Waits until something may be listed; until then it is known that it cannot be.
    async fn wait_until_permitted(&self, watched: WatchedKind, namespace: Option<&str>) {
        let (WatchedKind::Sources(kind) | WatchedKind::Targets(kind)) = watched else { return };
        while !access_check::can_list(&self.client, kind, namespace).await {
            let why = access_check::forbidden_message(kind, namespace);
            self.enqueue(self.keeper.cache.mark_refused(watched, why));
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// The event, if it is one. That something cannot be listed is noted.
    fn event_or_refusal<K>(
        &self,
        watched: WatchedKind,
        event: Result<Event<K>, &watcher::Error>,
    ) -> Option<Event<K>> {
        match event {
            Ok(event) => Some(event),
            Err(error) => {
                if let Some(why) = refusal_message(error) {
                    self.enqueue(self.keeper.cache.mark_refused(watched, why));
                }
                None
            }
        }
    }
}

/// While it lives, the server has ClusterTrustBundles.
struct TrustBundleAvailability(BundleController);

impl Drop for TrustBundleAvailability {
    fn drop(&mut self) {
        self.0.keeper.writer.set_trust_bundle_resource(None);
        self.0.enqueue(self.0.keeper.cache.set_trust_bundles_served(false));
    }
}

/// What the server says if it does not let something be listed. Anything else may pass.
fn refusal_message(error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            if matches!(status.code, 401 | 403 | 404 | 405) =>
        {
            Some(status.message.clone())
        }
        watcher::Error::WatchError(status) if status.code == 403 => Some(status.message.clone()),
        _ => None,
    }
}

fn parse_bundle(object: &DynamicObject) -> Result<Bundle, serde_json::Error> {
    Bundle::from_value(&serde_json::to_value(object)?)
}

fn namespace_info(object: Metadata) -> NamespaceInfo {
    let ending = object.metadata.deletion_timestamp.is_some();
    NamespaceInfo { labels: object.metadata.labels.unwrap_or_default(), ending }
}

fn parse_trust_bundle(object: DynamicObject) -> SourceTrustBundle {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
    SourceTrustBundle {
        controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
        signer: text("/spec/signerName").unwrap_or_default().to_owned(),
        text: text("/spec/trustBundle").unwrap_or_default().to_owned(),
        labels: object
            .labels()
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<BTreeMap<_, _>>(),
    }
}
