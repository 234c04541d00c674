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

use super::contest::Contest;
use super::syncs::{self, ROOT_CA};
use super::{Published, RootCa};
use crate::feed::{self, Metadata};
use crate::metrics::ROOT_CA as COUNTERS;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};

const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const ABOUT: &str = "kubernetes.io/description";
/// What kube-controller-manager writes there: clients compare it.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
    using internal endpoints such as the internal service IP or kubernetes.default.svc. No other \
    usage is guaranteed across distributions of Kubernetes clusters.";
const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));

/// Runs the loop; does not end.
pub async fn run(client: Client, ca: Arc<RootCa>) {
    let queue = Arc::new(Queue::new(&COUNTERS, BACKOFF));
    let publisher = Arc::new(Publisher::new(client.clone(), ca));
    let namespaces = ApiResource::erase::<Namespace>(&());
    let maps = ApiResource::erase::<ConfigMap>(&());
    let selector = format!("metadata.name={NAME}");
    let mut listed = HashSet::new();
    let in_namespaces = feed::follow(client.clone(), &namespaces, None, &COUNTERS, |event| {
        publisher.namespace(event).into_iter().for_each(|name| queue.add(name));
    });
    let of_maps = feed::follow(client, &maps, Some(&selector), &COUNTERS, |event| {
        publisher.map(event, &mut listed).into_iter().for_each(|name| queue.add(name));
    });
    let mut changes = publisher.ca.changes();
    let of_ca = async {
        while changes.changed().await.is_ok() {
            publisher.contest.begin_anew();
            let all: Vec<String> = publisher.known().namespaces.iter().cloned().collect();
            all.into_iter().for_each(|name| queue.add(name));
        }
        std::future::pending::<()>().await;
    };
    let reconcile = |namespace| publisher.clone().reconcile(namespace);
    tokio::join!(in_namespaces, of_maps, of_ca, pool::work(queue.clone(), WORKERS, reconcile));
}

/// What to do about the ConfigMap of a namespace.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create(ConfigMap),
    Replace(ConfigMap),
    /// It says something else and cannot be changed.
    Stuck,
}

fn decide(found: Option<&ConfigMap>, text: &str) -> Action {
    let wanted = BTreeMap::from([(KEY.to_owned(), text.to_owned())]);
    let description = (ABOUT.to_owned(), DESCRIPTION.to_owned());
    let Some(found) = found else {
        let annotations = Some(BTreeMap::from([description]));
        let metadata = ObjectMeta { name: Some(NAME.into()), annotations, ..ObjectMeta::default() };
        return Action::Create(ConfigMap { metadata, data: Some(wanted), ..ConfigMap::default() });
    };
    let right = found.data.as_ref() == Some(&wanted);
    let described = found.annotations().get(ABOUT).is_some_and(|text| !text.is_empty());
    if right && described {
        return Action::Nothing;
    }
    if !right && found.immutable == Some(true) {
        return Action::Stuck;
    }
    let mut map = found.clone();
    map.annotations_mut().extend([description]);
    map.data = Some(wanted);
    Action::Replace(map)
}

struct Publisher {
    client: Client,
    ca: Arc<RootCa>,
    recorder: Recorder,
    contest: Contest,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Namespaces that are not going away.
    namespaces: HashSet<String>,
    /// The version in which a namespace's ConfigMap said what it should, and what that was.
    good: HashMap<String, (Option<String>, Arc<Published>)>,
    /// ConfigMaps that cannot be changed, by uid, and to what: each is told of once.
    stuck: HashMap<String, (Option<String>, Arc<Published>)>,
}

impl Publisher {
    fn new(client: Client, ca: Arc<RootCa>) -> Publisher {
        let reporter = Reporter::from("root-ca-certificate-publisher-controller");
        let recorder = Recorder::new(client.clone(), reporter);
        Publisher { client, ca, recorder, contest: Contest::default(), known: Mutex::default() }
    }

    /// Whose turn it is after something happened to a namespace.
    fn namespace(&self, event: Event<Metadata>) -> Option<String> {
        let mut known = self.known();
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
    fn map(&self, event: Event<Metadata>, listed: &mut HashSet<String>) -> Vec<String> {
        let mut known = self.known();
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

    async fn reconcile(self: Arc<Self>, namespace: String) -> anyhow::Result<Next> {
        let began = Instant::now();
        let outcome = self.sync(&namespace).await;
        let code = match &outcome {
            Ok((_, code)) => *code,
            Err(_) => syncs::code(&outcome),
        };
        ROOT_CA.count(code, began.elapsed());
        outcome.map(|(next, _)| next)
    }

    /// Brings a namespace's ConfigMap in order; also says with which code that ended.
    async fn sync(&self, namespace: &str) -> anyhow::Result<(Next, u16)> {
        let published = self.ca.current();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(NAME).await?;
        let action = decide(found.as_ref(), &published.text);
        if let Action::Create(_) | Action::Replace(_) = action
            && !self.contest.may_write(namespace, Instant::now())
        {
            return Ok((Next::Wait("somebody else keeps changing it".into()), 409));
        }
        let parameters = PostParams::default();
        let written = match (action, found) {
            (Action::Nothing, Some(found)) => Ok(found),
            (Action::Nothing, None) => return Ok((Next::Done, 200)),
            (Action::Create(map), _) => maps.create(&parameters, &map).await,
            (Action::Replace(map), _) => maps.replace(NAME, &parameters, &map).await,
            (Action::Stuck, found) => {
                if let Some(found) = found {
                    self.tell(namespace, &found, published).await;
                }
                return Ok((Next::Done, 422));
            }
        };
        match written {
            Ok(map) => {
                let good = (map.resource_version(), published);
                self.known().good.insert(namespace.to_owned(), good);
                Ok((Next::Done, 200))
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok((Next::Wait("it was changed meanwhile".into()), status.code))
            }
            Err(kube::Error::Api(status)) if is_gone(&status) => Ok((Next::Done, 200)),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells once that a ConfigMap cannot be changed. Its end or other CAs bring us back to it.
    async fn tell(&self, namespace: &str, map: &ConfigMap, published: Arc<Published>) {
        let report = (map.uid(), published);
        let before = self.known().stuck.insert(namespace.to_owned(), report.clone());
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the answer means that the namespace is gone or going.
fn is_gone(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found() || causes.any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(annotations: Value, data: Value, immutable: bool) -> ConfigMap {
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
        let Action::Create(new) = decide(None, "text") else { panic!() };
        assert_eq!(serde_json::to_value(&new.data).unwrap(), text);
        assert_eq!(serde_json::to_value(new.annotations()).unwrap(), full);
        let right = [map(said.clone(), text.clone(), false), map(full.clone(), text.clone(), true)];
        for map in right {
            assert_eq!(decide(Some(&map), "text"), Action::Nothing, "{map:?}");
        }
        for wrong in [
            map(json!({}), text.clone(), false),
            map(json!({ABOUT: ""}), text.clone(), true),
            map(said.clone(), json!({"ca.crt": "other"}), false),
            map(said.clone(), json!({"ca.crt": "text", "more": ""}), false),
            map(said.clone(), Value::Null, false),
        ] {
            let immutable = wrong.immutable;
            let Action::Replace(map) = decide(Some(&wrong), "text") else { panic!("{wrong:?}") };
            assert_eq!(serde_json::to_value(&map.data).unwrap(), text);
            assert_eq!(serde_json::to_value(map.annotations()).unwrap(), full);
            assert_eq!((map.resource_version().as_deref(), map.immutable), (Some("7"), immutable));
            assert_eq!(map.binary_data, wrong.binary_data);
        }
        let stuck = map(full, json!({"ca.crt": "other"}), true);
        assert_eq!(decide(Some(&stuck), "text"), Action::Stuck);
    }
}
