//! ConfigMap `kube-root-ca.crt` in every namespace, with which pods verify the API server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::watch::{ListTracker, ObjectMetadata, TrackedEvent, watch_metadata};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::conflict_limiter::ConflictLimiter;
use super::sync_metrics::{self, SyncMetrics};
use super::{PublishedCa, RootCa};
use crate::csr::requeue_changed;
use crate::metrics::{MetricFamilies, ROOT_CA};
use crate::options::Clock;

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const ABOUT: &str = "kubernetes.io/description";
/// Text of kube-controller-manager, which clients compare.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
    using internal endpoints such as the internal service IP or kubernetes.default.svc. No other \
    usage is guaranteed across distributions of Kubernetes clusters.";
const IMMUTABLE: &str = "this ConfigMap is immutable and does not hold the current CAs of the API server; delete it \
    to have it created again";
/// Component in whose name events are reported.
const REPORTER: &str = "root-ca-certificate-publisher-controller";
const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));

/// Writes the root CA to a ConfigMap in every namespace; does not return.
pub async fn run(client: Client, ca: Arc<RootCa>, clock: Clock, metrics: Arc<MetricFamilies>) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.queue(ROOT_CA), BACKOFF));
    let syncs = metrics.publishers.root_ca.clone();
    let publisher = Arc::new(RootCaPublisher::new(client.clone(), ca, clock, syncs));
    let namespaces = ApiResource::erase::<Namespace>(&());
    let maps = ApiResource::erase::<ConfigMap>(&());
    let selector = format!("metadata.name={NAME}");
    let mut tracker = ListTracker::default();
    let metrics = queue.metrics();
    let in_namespaces = watch_metadata(client.clone(), &namespaces, None, metrics, |event| {
        publisher.observe_namespace(event).into_iter().for_each(|name| queue.add(name));
    });
    let of_maps = watch_metadata(client, &maps, Some(&selector), metrics, |event| {
        let key = |map: &ObjectMetadata| map.metadata.namespace.clone().unwrap_or_default();
        let Some(event) = tracker.track(event, key) else { return };
        publisher.observe_config_map(event).into_iter().for_each(|name| queue.add(name));
    });
    let mut changes = publisher.ca.changes();
    let of_ca = async {
        while changes.changed().await.is_ok() {
            publisher.conflict_limiter.reset();
            let all: Vec<String> = publisher.lock_cache().namespaces.iter().cloned().collect();
            all.into_iter().for_each(|name| queue.add(name));
        }
        std::future::pending::<()>().await;
    };
    let reconcile = |namespace| publisher.clone().reconcile(namespace);
    tokio::join!(in_namespaces, of_maps, of_ca, run_workers(queue.clone(), WORKERS, reconcile)).0
}

/// Action on the ConfigMap of a namespace.
#[derive(Debug, PartialEq)]
enum ConfigMapAction {
    Nothing,
    Create(ConfigMap),
    Replace(ConfigMap),
    /// The ConfigMap has other content and is immutable.
    Stuck,
}

fn decide(found: Option<&ConfigMap>, text: &str) -> ConfigMapAction {
    let wanted = BTreeMap::from([(KEY.to_owned(), text.to_owned())]);
    let description = (ABOUT.to_owned(), DESCRIPTION.to_owned());
    let Some(found) = found else {
        let annotations = Some(BTreeMap::from([description]));
        let metadata = ObjectMeta { name: Some(NAME.into()), annotations, ..ObjectMeta::default() };
        return ConfigMapAction::Create(ConfigMap { metadata, data: Some(wanted), ..ConfigMap::default() });
    };
    let right = found.data.as_ref() == Some(&wanted);
    let described = found.annotations().get(ABOUT).is_some_and(|text| !text.is_empty());
    if right && described {
        return ConfigMapAction::Nothing;
    }
    if !right && found.immutable == Some(true) {
        return ConfigMapAction::Stuck;
    }
    let mut map = found.clone();
    map.annotations_mut().extend([description]);
    map.data = Some(wanted);
    ConfigMapAction::Replace(map)
}

struct RootCaPublisher {
    client: Client,
    ca: Arc<RootCa>,
    clock: Clock,
    events: EventRecorder,
    syncs: SyncMetrics,
    conflict_limiter: ConflictLimiter,
    known: Mutex<ConfigMapCache>,
}

#[derive(Default)]
struct ConfigMapCache {
    /// Namespaces that are not terminating.
    namespaces: HashSet<String>,
    /// Resource version in which the ConfigMap of a namespace was up to date, and with which content.
    good: HashMap<String, (Option<String>, Arc<PublishedCa>)>,
    /// Immutable ConfigMaps by namespace: UID and content of the last report, so that each is reported once.
    stuck: HashMap<String, (Option<String>, Arc<PublishedCa>)>,
}

impl RootCaPublisher {
    fn new(client: Client, ca: Arc<RootCa>, clock: Clock, syncs: SyncMetrics) -> RootCaPublisher {
        let reporter = EventReporter { controller: REPORTER.into(), ..EventReporter::controller(REPORTER) };
        let events = EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT);
        RootCaPublisher {
            client,
            ca,
            clock,
            events,
            syncs,
            conflict_limiter: ConflictLimiter::default(),
            known: Mutex::default(),
        }
    }

    /// Applies an event of a namespace; returns it if it needs a sync.
    fn observe_namespace(&self, event: Event<ObjectMetadata>) -> Option<String> {
        let mut known = self.lock_cache();
        let (found, gone) = match event {
            Event::Init => {
                known.namespaces.clear();
                return None;
            }
            Event::InitDone => return None,
            Event::Apply(found) | Event::InitApply(found) => (found, false),
            Event::Delete(found) => (found, true),
        };
        let name = found.metadata.name?;
        if gone || found.metadata.deletion_timestamp.is_some() {
            known.namespaces.remove(&name);
            known.good.remove(&name);
            known.stuck.remove(&name);
            return None;
        }
        known.namespaces.insert(name.clone());
        let current = self.ca.current();
        let good = known.good.get(&name).is_some_and(|(_, what)| Arc::ptr_eq(what, &current));
        (!good).then_some(name)
    }

    /// Applies an event of a ConfigMap and returns the namespaces that need a sync.
    fn observe_config_map(&self, event: TrackedEvent<ObjectMetadata, String>) -> Vec<String> {
        let mut known = self.lock_cache();
        match event {
            TrackedEvent::Applied(namespace, map) => {
                let current = self.ca.current();
                let is_ours = known.good.get(&namespace).is_some_and(|(version, what)| {
                    *version == map.metadata.resource_version && Arc::ptr_eq(what, &current)
                });
                if is_ours { Vec::new() } else { vec![namespace] }
            }
            TrackedEvent::Deleted(namespace, _) => {
                known.good.remove(&namespace);
                vec![namespace]
            }
            TrackedEvent::Listed(namespaces) => {
                let is_gone = |name: &String, _: &mut _| !namespaces.contains(name);
                known.good.extract_if(is_gone).map(|(name, _)| name).collect()
            }
        }
    }

    async fn reconcile(self: Arc<Self>, namespace: String) -> anyhow::Result<Requeue> {
        let began = Instant::now();
        let outcome = self.sync(&namespace).await;
        let code = match &outcome {
            Ok((_, code)) => *code,
            Err(_) => sync_metrics::status_code(&outcome),
        };
        self.syncs.observe(code, began.elapsed());
        outcome.map(|(next, _)| next)
    }

    /// Syncs the ConfigMap of a namespace; also returns the status code for the metrics.
    async fn sync(&self, namespace: &str) -> anyhow::Result<(Requeue, u16)> {
        let published = self.ca.current();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(NAME).await?;
        let action = decide(found.as_ref(), &published.text);
        if let ConfigMapAction::Create(_) | ConfigMapAction::Replace(_) = action
            && !self.conflict_limiter.try_write(namespace, Instant::now())
        {
            return Ok((Requeue::WithBackoff("another manager keeps changing it".into()), 409));
        }
        let parameters = PostParams::default();
        let written = match (action, found) {
            (ConfigMapAction::Nothing, Some(found)) => Ok(found),
            (ConfigMapAction::Nothing, None) => return Ok((Requeue::Done, 200)),
            (ConfigMapAction::Create(map), _) => maps.create(&parameters, &map).await,
            (ConfigMapAction::Replace(map), _) => maps.replace(NAME, &parameters, &map).await,
            (ConfigMapAction::Stuck, found) => {
                if let Some(found) = found {
                    self.report_immutable(namespace, &found, published).await;
                }
                return Ok((Requeue::Done, 422));
            }
        };
        match written {
            Ok(map) => {
                let good = (map.resource_version(), published);
                self.lock_cache().good.insert(namespace.to_owned(), good);
                Ok((Requeue::Done, 200))
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok((requeue_changed(), status.code))
            }
            Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => Ok((Requeue::Done, 200)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports an immutable ConfigMap once. Its deletion or a change of the CA causes the next sync.
    async fn report_immutable(&self, namespace: &str, map: &ConfigMap, published: Arc<PublishedCa>) {
        let report = (map.uid(), published);
        let before = self.lock_cache().stuck.insert(namespace.to_owned(), report.clone());
        if before.is_some_and(|(uid, what)| uid == report.0 && Arc::ptr_eq(&what, &report.1)) {
            return;
        }
        tracing::warn!(namespace, "ConfigMap {NAME} is immutable and does not hold the current CAs");
        let event = NewEvent::warning("Publish", "ImmutableRootCA", IMMUTABLE);
        self.events.record(map.object_ref(&()), event, (self.clock)()).await;
    }

    fn lock_cache(&self) -> MutexGuard<'_, ConfigMapCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the response means that the namespace is gone or terminating.
fn is_namespace_terminating(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found() || causes.any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config_map(annotations: Value, data: Value, immutable: bool) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"name": NAME, "resourceVersion": "7", "annotations": annotations},
            "data": data,
            "binaryData": {"other": "AAAA"},
            "immutable": immutable,
        }))
        .unwrap()
    }

    #[test]
    fn a_map_is_right_when_it_has_the_text_and_a_description() {
        let (text, said) = (json!({"ca.crt": "text"}), json!({ABOUT: "own words"}));
        let full = json!({ABOUT: DESCRIPTION});
        let ConfigMapAction::Create(new) = decide(None, "text") else { panic!() };
        assert_eq!(serde_json::to_value(&new.data).unwrap(), text);
        assert_eq!(serde_json::to_value(new.annotations()).unwrap(), full);
        let right =
            [config_map(said.clone(), text.clone(), false), config_map(full.clone(), text.clone(), true)];
        for map in right {
            assert_eq!(decide(Some(&map), "text"), ConfigMapAction::Nothing, "{map:?}");
        }
        for wrong in [
            config_map(json!({}), text.clone(), false),
            config_map(json!({ABOUT: ""}), text.clone(), true),
            config_map(said.clone(), json!({"ca.crt": "other"}), false),
            config_map(said.clone(), json!({"ca.crt": "text", "more": ""}), false),
            config_map(said.clone(), Value::Null, false),
        ] {
            let immutable = wrong.immutable;
            let ConfigMapAction::Replace(map) = decide(Some(&wrong), "text") else { panic!("{wrong:?}") };
            assert_eq!(serde_json::to_value(&map.data).unwrap(), text);
            assert_eq!(serde_json::to_value(map.annotations()).unwrap(), full);
            assert_eq!((map.resource_version().as_deref(), map.immutable), (Some("7"), immutable));
            assert_eq!(map.binary_data, wrong.binary_data);
        }
        let stuck = config_map(full, json!({"ca.crt": "other"}), true);
        assert_eq!(decide(Some(&stuck), "text"), ConfigMapAction::Stuck);
    }
}
