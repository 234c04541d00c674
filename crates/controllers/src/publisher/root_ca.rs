//! A ConfigMap `kube-root-ca.crt` in every namespace: what pods verify the API server with.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::runtime::events::{self, EventType, Recorder, Reporter};
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;
use windlass_client_error::describe;

use super::conflict_limiter::ConflictLimiter;
use super::sync_metrics::{self, ROOT_CA};
use super::{PublishedCa, RootCa};
use crate::metrics::ROOT_CA as COUNTERS;
use crate::resource_watch::{self, Metadata};
use crate::work_queue::{RetryBackoff, WorkQueue};
use crate::workers::{self, ReconcileOutcome};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const ABOUT: &str = "kubernetes.io/description";
/// What kube-controller-manager writes there: clients compare it.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
    using internal endpoints such as the internal service IP or kubernetes.default.svc. No other \
    usage is guaranteed across distributions of Kubernetes clusters.";
const WORKERS: usize = 8;
const BACKOFF: RetryBackoff = RetryBackoff::new(Duration::from_millis(5), Duration::from_secs(60));

/// Runs the loop; does not end.
pub async fn run(client: Client, ca: Arc<RootCa>) {
    let queue = Arc::new(WorkQueue::new(&COUNTERS, BACKOFF));
    let publisher = Arc::new(RootCaPublisher::new(client.clone(), ca));
    let namespaces = ApiResource::erase::<Namespace>(&());
    let maps = ApiResource::erase::<ConfigMap>(&());
    let selector = format!("metadata.name={NAME}");
    let mut listed = HashSet::new();
    let in_namespaces =
        resource_watch::watch_metadata(client.clone(), &namespaces, None, &COUNTERS, |event| {
            publisher.observe_namespace(event).into_iter().for_each(|name| queue.add(name));
        });
    let of_maps =
        resource_watch::watch_metadata(client, &maps, Some(&selector), &COUNTERS, |event| {
            publisher
                .observe_config_map(event, &mut listed)
                .into_iter()
                .for_each(|name| queue.add(name));
        });
    let mut changes = publisher.ca.changes();
    let of_ca = async {
        while changes.changed().await.is_ok() {
            publisher.contest.reset();
            let all: Vec<String> = publisher.lock_cache().namespaces.iter().cloned().collect();
            all.into_iter().for_each(|name| queue.add(name));
        }
        std::future::pending::<()>().await;
    };
    let reconcile = |namespace| publisher.clone().reconcile(namespace);
    tokio::join!(in_namespaces, of_maps, of_ca, workers::run(queue.clone(), WORKERS, reconcile));
}

/// What to do about the ConfigMap of a namespace.
#[derive(Debug, PartialEq)]
enum ConfigMapAction {
    Nothing,
    Create(ConfigMap),
    Replace(ConfigMap),
    /// It says something else and cannot be changed.
    Stuck,
}

fn decide(found: Option<&ConfigMap>, text: &str) -> ConfigMapAction {
    let wanted = BTreeMap::from([(KEY.to_owned(), text.to_owned())]);
    let description = (ABOUT.to_owned(), DESCRIPTION.to_owned());
    let Some(found) = found else {
        let annotations = Some(BTreeMap::from([description]));
        let metadata = ObjectMeta { name: Some(NAME.into()), annotations, ..ObjectMeta::default() };
        return ConfigMapAction::Create(ConfigMap {
            metadata,
            data: Some(wanted),
            ..ConfigMap::default()
        });
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
    recorder: Recorder,
    contest: ConflictLimiter,
    known: Mutex<ConfigMapCache>,
}

#[derive(Default)]
struct ConfigMapCache {
    /// Namespaces that are not going away.
    namespaces: HashSet<String>,
    /// The version in which a namespace's ConfigMap said what it should, and what that was.
    good: HashMap<String, (Option<String>, Arc<PublishedCa>)>,
    /// ConfigMaps that cannot be changed, by uid, and to what: each is told of once.
    stuck: HashMap<String, (Option<String>, Arc<PublishedCa>)>,
}

impl RootCaPublisher {
    fn new(client: Client, ca: Arc<RootCa>) -> RootCaPublisher {
        let reporter = Reporter::from("root-ca-certificate-publisher-controller");
        let recorder = Recorder::new(client.clone(), reporter);
        RootCaPublisher {
            client,
            ca,
            recorder,
            contest: ConflictLimiter::default(),
            known: Mutex::default(),
        }
    }

    /// Whose turn it is after something happened to a namespace.
    fn observe_namespace(&self, event: Event<Metadata>) -> Option<String> {
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

    /// Whose turn it is after something happened to a ConfigMap. A list that begins anew tells by
    /// silence what is gone.
    fn observe_config_map(
        &self,
        event: Event<Metadata>,
        listed: &mut HashSet<String>,
    ) -> Vec<String> {
        let mut known = self.lock_cache();
        let (found, gone) = match event {
            Event::Init => {
                listed.clear();
                return Vec::new();
            }
            Event::InitDone => {
                let lost = known.good.keys().filter(|name| !listed.contains(*name));
                let lost: Vec<String> = lost.cloned().collect();
                lost.iter().for_each(|name| drop(known.good.remove(name)));
                listed.clear();
                return lost;
            }
            Event::InitApply(found) => {
                listed.extend(found.metadata.namespace.clone());
                (found, false)
            }
            Event::Apply(found) => (found, false),
            Event::Delete(found) => (found, true),
        };
        let Some(name) = found.metadata.namespace else { return Vec::new() };
        let current = self.ca.current();
        let as_left = known.good.get(&name).is_some_and(|(version, what)| {
            *version == found.metadata.resource_version && Arc::ptr_eq(what, &current)
        });
        if gone {
            known.good.remove(&name);
        }
        if gone || !as_left { vec![name] } else { Vec::new() }
    }

    async fn reconcile(self: Arc<Self>, namespace: String) -> anyhow::Result<ReconcileOutcome> {
        let began = Instant::now();
        let outcome = self.sync(&namespace).await;
        let code = match &outcome {
            Ok((_, code)) => *code,
            Err(_) => sync_metrics::status_code(&outcome),
        };
        ROOT_CA.observe(code, began.elapsed());
        outcome.map(|(next, _)| next)
    }

    /// Brings a namespace's ConfigMap in order; also says with which code that ended.
    async fn sync(&self, namespace: &str) -> anyhow::Result<(ReconcileOutcome, u16)> {
        let published = self.ca.current();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(NAME).await?;
        let action = decide(found.as_ref(), &published.text);
        if let ConfigMapAction::Create(_) | ConfigMapAction::Replace(_) = action
            && !self.contest.try_write(namespace, Instant::now())
        {
            return Ok((ReconcileOutcome::Requeue("somebody else keeps changing it".into()), 409));
        }
        let parameters = PostParams::default();
        let written = match (action, found) {
            (ConfigMapAction::Nothing, Some(found)) => Ok(found),
            (ConfigMapAction::Nothing, None) => return Ok((ReconcileOutcome::Done, 200)),
            (ConfigMapAction::Create(map), _) => maps.create(&parameters, &map).await,
            (ConfigMapAction::Replace(map), _) => maps.replace(NAME, &parameters, &map).await,
            (ConfigMapAction::Stuck, found) => {
                if let Some(found) = found {
                    self.report_immutable(namespace, &found, published).await;
                }
                return Ok((ReconcileOutcome::Done, 422));
            }
        };
        match written {
            Ok(map) => {
                let good = (map.resource_version(), published);
                self.lock_cache().good.insert(namespace.to_owned(), good);
                Ok((ReconcileOutcome::Done, 200))
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok((ReconcileOutcome::Requeue("it was changed meanwhile".into()), status.code))
            }
            Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => {
                Ok((ReconcileOutcome::Done, 200))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tells once that a ConfigMap cannot be changed. Its end or other CAs bring us back to it.
    async fn report_immutable(
        &self,
        namespace: &str,
        map: &ConfigMap,
        published: Arc<PublishedCa>,
    ) {
        let report = (map.uid(), published);
        let before = self.lock_cache().stuck.insert(namespace.to_owned(), report.clone());
        if before.is_some_and(|(uid, what)| uid == report.0 && Arc::ptr_eq(&what, &report.1)) {
            return;
        }
        tracing::warn!(namespace, "{NAME} is immutable and does not hold the current CAs");
        let event = events::Event {
            type_: EventType::Warning,
            reason: "ImmutableRootCA".into(),
            note: Some(
                "This ConfigMap is immutable and does not hold the current CAs of the API server. \
                 Delete it to have it made anew."
                    .into(),
            ),
            action: "Publish".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &map.object_ref(&())).await {
            tracing::debug!(error = describe(&error), namespace, "cannot write an event");
        }
    }

    fn lock_cache(&self) -> MutexGuard<'_, ConfigMapCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the answer means that the namespace is gone or going.
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
        let right = [
            config_map(said.clone(), text.clone(), false),
            config_map(full.clone(), text.clone(), true),
        ];
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
            let ConfigMapAction::Replace(map) = decide(Some(&wrong), "text") else {
                panic!("{wrong:?}")
            };
            assert_eq!(serde_json::to_value(&map.data).unwrap(), text);
            assert_eq!(serde_json::to_value(map.annotations()).unwrap(), full);
            assert_eq!((map.resource_version().as_deref(), map.immutable), (Some("7"), immutable));
            assert_eq!(map.binary_data, wrong.binary_data);
        }
        let stuck = config_map(full, json!({"ca.crt": "other"}), true);
        assert_eq!(decide(Some(&stuck), "text"), ConfigMapAction::Stuck);
    }
}
