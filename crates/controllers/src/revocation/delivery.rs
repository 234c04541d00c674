//! Writes the revocation lists of signers to ConfigMaps in namespaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;
use windlass_pki::CertificateRevocationList;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::watch::{ObjectMetadata, RelistBuffer, SnapshotEvent, watch_metadata, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::config_map::{CONTENT_LABEL, ListContent, ListMapAction};
use super::{RevocationContext, list_object};
use crate::csr::requeue_changed;
use crate::metrics::CRL_CONFIG_MAPS;
use crate::namespaced_name::NamespacedName;
use crate::publisher::conflict_limiter::ConflictLimiter;
use crate::signers::config::CrlConfigMap;
use crate::signers::{CustomSigner, restart_on_change};

const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Delivers lists for the signers that want it; does not return. Without such a signer nothing is watched, so that no
/// permissions on ConfigMaps are needed.
pub async fn run(client: Client, lists: ApiResource, context: RevocationContext) -> Infallible {
    restart_on_change(context.custom.subscribe(), |signers| {
        let targets: Vec<DeliveryTarget> = signers.iter().filter_map(DeliveryTarget::from_signer).collect();
        let (client, lists, context) = (client.clone(), lists.clone(), context.clone());
        async move {
            if targets.is_empty() {
                return std::future::pending().await;
            }
            ListDelivery::new(client, context, targets).run(lists).await
        }
    })
    .await
}

/// Where the lists of a signer go.
struct DeliveryTarget {
    signer: String,
    map: CrlConfigMap,
}

impl DeliveryTarget {
    fn from_signer(signer: &CustomSigner) -> Option<DeliveryTarget> {
        let map = signer.custom.crl.as_ref()?.config_map.clone()?;
        Some(DeliveryTarget { signer: signer.custom.name.to_string(), map })
    }
}

struct ListDelivery {
    client: Client,
    context: RevocationContext,
    targets: Vec<DeliveryTarget>,
    events: EventRecorder,
    limiter: ConflictLimiter,
    queue: Arc<WorkQueue<NamespacedName>>,
    state: Mutex<DeliveryState>,
}

/// A published list with its signer.
struct DeliveredList {
    signer: String,
    list: CertificateRevocationList,
}

#[derive(Default)]
struct DeliveryState {
    /// Labels of namespaces that are not terminating.
    namespaces: HashMap<String, BTreeMap<String, String>>,
    /// Published lists by authority id; `None` until they have been read.
    lists: Option<BTreeMap<String, DeliveredList>>,
    /// ConfigMaps that belong to others, by signer.
    conflicts: HashMap<String, BTreeSet<NamespacedName>>,
}

impl ListDelivery {
    fn new(client: Client, context: RevocationContext, targets: Vec<DeliveryTarget>) -> Arc<ListDelivery> {
        let reporter = EventReporter::controller("certificate-revocation");
        Arc::new(ListDelivery {
            events: EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT),
            queue: Arc::new(WorkQueue::new(context.metrics.queue(CRL_CONFIG_MAPS), BACKOFF)),
            client,
            context,
            targets,
            limiter: ConflictLimiter::default(),
            state: Mutex::default(),
        })
    }

    async fn run(self: Arc<Self>, lists: ApiResource) -> Infallible {
        let metrics = self.queue.metrics();
        let namespaces = ApiResource::erase::<Namespace>(&());
        let of_namespaces = watch_metadata(self.client.clone(), &namespaces, None, metrics, |event| {
            self.observe_namespace(event);
        });
        let mut buffer = RelistBuffer::default();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &lists);
        let of_lists = watch_objects(api, &lists.plural, Config::default(), metrics, |event| {
            if let Ok(event) = event {
                self.observe_list(&mut buffer, event);
            }
        });
        let selector = format!("{}={}", CONTENT_LABEL.0, CONTENT_LABEL.1);
        let maps: Api<ObjectMetadata> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<ConfigMap>(&()));
        let of_maps =
            watch_objects(maps, "configmaps", Config::default().labels(&selector), metrics, |event| {
                if let Ok(Event::Apply(map) | Event::Delete(map)) = event {
                    self.queue.add(NamespacedName::from_object(&map));
                }
            });
        let reconcile = |key: NamespacedName| self.clone().reconcile(key);
        let workers = run_workers(self.queue.clone(), WORKERS, reconcile);
        tokio::join!(of_namespaces, of_lists, of_maps, workers).0
    }

    fn observe_namespace(&self, event: Event<ObjectMetadata>) {
        let mut state = self.lock();
        match event {
            Event::Init => state.namespaces.clear(),
            Event::InitDone => {}
            Event::Delete(found) => drop(state.namespaces.remove(&found.name_any())),
            Event::Apply(found) | Event::InitApply(found) => {
                let name = found.name_any();
                if found.metadata.deletion_timestamp.is_some() {
                    state.namespaces.remove(&name);
                    return;
                }
                let labels = found.metadata.labels.unwrap_or_default();
                if state.namespaces.insert(name.clone(), labels.clone()).as_ref() == Some(&labels) {
                    return;
                }
                drop(state);
                self.enqueue(&name, &labels);
            }
        }
    }

    fn observe_list(
        &self,
        buffer: &mut RelistBuffer<Option<(String, DeliveredList)>>,
        event: Event<DynamicObject>,
    ) {
        let Some(event) = buffer.push(event, |object| read_list(&object)) else { return };
        let mut state = self.lock();
        let lists = state.lists.get_or_insert_default();
        match event {
            SnapshotEvent::Applied(list) => lists.extend(list),
            SnapshotEvent::Deleted(object) => drop(lists.remove(&object.name_any())),
            SnapshotEvent::Replaced(all) => *lists = all.into_iter().flatten().collect(),
        }
        let namespaces: Vec<_> =
            state.namespaces.iter().map(|(name, labels)| (name.clone(), labels.clone())).collect();
        drop(state);
        // The content changes, which is not a conflict with another manager.
        self.limiter.reset();
        namespaces.iter().for_each(|(name, labels)| self.enqueue(name, labels));
    }

    /// Enqueues the ConfigMaps that a namespace should have.
    fn enqueue(&self, namespace: &str, labels: &BTreeMap<String, String>) {
        let selected = self.targets.iter().filter(|target| target.selects(labels));
        for DeliveryTarget { map, .. } in selected {
            self.queue.add(NamespacedName { namespace: namespace.to_owned(), name: map.name.clone() });
        }
    }

    /// Returns the first signer that delivers to a ConfigMap, and its lists; `None` if nothing is to be written now.
    fn content(&self, key: &NamespacedName) -> Option<(&DeliveryTarget, Option<ListContent>)> {
        let state = self.lock();
        let (labels, lists) = (state.namespaces.get(&key.namespace)?, state.lists.as_ref()?);
        let target =
            self.targets.iter().find(|target| target.map.name == key.name && target.selects(labels))?;
        let own = lists.iter().filter(|(_, list)| list.signer == target.signer);
        let own = own.map(|(authority, each)| (authority.clone(), each.list.clone())).collect();
        Some((target, ListContent::new(&target.signer, &own)))
    }

    async fn reconcile(self: Arc<Self>, key: NamespacedName) -> anyhow::Result<Requeue> {
        let Some((target, content)) = self.content(&key) else { return Ok(Requeue::Done) };
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = maps.get_opt(&key.name).await?;
        let action = match &content {
            Some(content) => content.decide(found.as_ref(), &key.name),
            None => ListMapAction::Conflict("the lists exceed the size of a ConfigMap"),
        };
        let is_write = matches!(action, ListMapAction::Create(_) | ListMapAction::Replace(_));
        if is_write && !self.limiter.try_write(&key.to_string(), Instant::now()) {
            return Ok(Requeue::WithBackoff("another manager keeps changing it".into()));
        }
        let reason = match &action {
            ListMapAction::Conflict(reason) => Some(*reason),
            _ => None,
        };
        self.report(&target.signer, &key, found.as_ref(), reason).await;
        let written = match action {
            ListMapAction::Nothing | ListMapAction::Conflict(_) => return Ok(Requeue::Done),
            ListMapAction::Create(map) => maps.create(&PostParams::default(), &map).await,
            ListMapAction::Replace(map) => maps.replace(&key.name, &PostParams::default(), &map).await,
        };
        match written {
            Ok(_) => Ok(Requeue::Done),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(requeue_changed())
            }
            // The namespace is gone or terminating.
            Err(kube::Error::Api(status))
                if status.is_not_found() || status.is_forbidden() && self.is_gone(&key) =>
            {
                Ok(Requeue::Done)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn is_gone(&self, key: &NamespacedName) -> bool {
        !self.lock().namespaces.contains_key(&key.namespace)
    }

    /// Reports a ConfigMap that cannot be written, when that changes.
    async fn report(
        &self,
        signer: &str,
        key: &NamespacedName,
        found: Option<&ConfigMap>,
        conflict: Option<&str>,
    ) {
        let is_news = {
            let mut state = self.lock();
            let conflicts = state.conflicts.entry(signer.to_owned()).or_default();
            let is_known = match conflict {
                Some(_) => !conflicts.insert(key.clone()),
                None => conflicts.remove(key),
            };
            self.context.metrics.crl.set_conflicts(signer, conflicts.len());
            !is_known
        };
        let Some(reason) = conflict.filter(|_| is_news) else { return };
        tracing::warn!(signer, config_map = %key, reason, "cannot write revocation lists to a ConfigMap");
        if let Some(found) = found {
            let note = format!("cannot write the revocation lists of {signer}: {reason}");
            let event = NewEvent::warning("Publish", "CRLConflict", note.as_str());
            self.events.warn(found.object_ref(&()), event, (self.context.clock)()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeliveryTarget {
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.map.namespaces.matches(|key| labels.get(key).map(String::as_str))
    }
}

fn read_list(object: &DynamicObject) -> Option<(String, DeliveredList)> {
    let list = CertificateRevocationList::from_der(&list_object::list_der(object)?).ok()?;
    let signer = list_object::signer_name(object).to_owned();
    Some((object.name_any(), DeliveredList { signer, list }))
}
