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

use super::gather::{Held, HeldAnchors};
use super::gauges;
use super::listing::{Listing, News};
use super::pass::Keeper;
use super::rights;
use super::seen::{Seen, Space, Watched};
use super::settings::Settings;
use super::target::{Kind, controller_of};
use super::write::Writer;
use crate::feed::{self, Metadata};
use crate::metrics::BUNDLES;
use crate::options::Clock;
use crate::pool;
use crate::publish::alarm::Alarm;
use crate::publish::contest::Contest;
use crate::queue::{Backoff, Queue};
use crate::served::{self, TRUST_BUNDLES};

/// Bundles that are brought in order at the same time.
const WORKERS: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
/// How soon to ask again what the server serves.
const AGAIN: Duration = Duration::from_secs(2);
/// How soon to ask again what is permitted.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// What trust-manager's events come from.
const REPORTER: &str = "bundles";

/// Keeps the Bundles of a server in order, with the kind in the version that it has; does not end.
/// Nothing else is looked at before there is one.
pub async fn run(client: Client, resource: ApiResource, settings: Arc<Settings>, clock: Clock) {
    gauges::forget_all();
    let kinds = [Kind::ConfigMap, Kind::Secret];
    let mut awaited = vec![Watched::Bundles, Watched::Namespaces];
    awaited.extend(kinds.map(Watched::Sources).into_iter().chain(kinds.map(Watched::Targets)));
    awaited.push(Watched::Targets(Kind::ClusterTrustBundle));
    let site = Site {
        keeper: Arc::new(Keeper {
            seen: Seen::new(&awaited),
            alarm: Alarm::new(),
            writer: Writer::new(client.clone()),
            settings,
            bundles: Api::all_with(client.clone(), &resource),
            recorder: Recorder::new(client.clone(), Reporter::from(REPORTER)),
            clock,
            contest: Contest::default(),
            extended: AtomicBool::new(true),
        }),
        queue: Arc::new(Queue::new(&BUNDLES, BACKOFF)),
        begun: watch::Sender::new(false),
        client,
    };
    let work = async {
        site.keeper.seen.ready().await;
        let reconcile = |name: String| site.keeper.clone().reconcile(name);
        pool::work(site.queue.clone(), WORKERS, reconcile).await;
    };
    tokio::join!(site.bundles(), site.rest(), work);
}

#[derive(Clone)]
struct Site {
    keeper: Arc<Keeper>,
    queue: Arc<Queue<String>>,
    /// Whether there is a Bundle.
    begun: watch::Sender<bool>,
    client: Client,
}

impl Site {
    fn wake(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.keeper.seen.stale(&name);
            self.queue.add(name);
        }
    }

    async fn rest(&self) {
        // It cannot fail: the sender is here.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
        tokio::join!(
            self.namespaces(),
            self.config_maps(),
            self.secrets(),
            self.targets(Kind::ConfigMap, ApiResource::erase::<ConfigMap>(&())),
            self.targets(Kind::Secret, ApiResource::erase::<Secret>(&())),
            self.anchors(),
            self.package(),
            self.keeper.alarm.ring(|name| self.wake([name])),
        );
    }

    async fn bundles(&self) {
        let (seen, api, mut listing) =
            (&self.keeper.seen, self.keeper.bundles.clone(), Listing::default());
        let watched = Watched::Bundles;
        feed::follow_selected(api, "bundles", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.heard(watched, event) else { return };
            match listing.hear(event) {
                News::Is(at, object) => match read(&object) {
                    Ok(bundle) => {
                        if seen.put_bundle(bundle) {
                            self.wake([at.name]);
                        }
                        self.begun.send_replace(true);
                    }
                    Err(error) => tracing::warn!(bundle = at.name, %error, "cannot be read"),
                },
                News::Gone(at, _) => {
                    seen.remove_bundle(&at.name);
                    self.wake([at.name]);
                }
                News::Listed(listed) => {
                    self.wake(seen.keep_bundles(&listed));
                    self.wake(seen.listed(watched));
                }
                News::Nothing => {}
            }
        })
        .await;
    }

    async fn namespaces(&self) {
        let (seen, mut listing) = (&self.keeper.seen, Listing::default());
        let api: Api<Metadata> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Namespace>(&()));
        let watched = Watched::Namespaces;
        feed::follow_selected(api, "namespaces", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.heard(watched, event) else { return };
            match listing.hear(event) {
                News::Is(at, object) => self.wake(seen.namespace(&at.name, Some(space(object)))),
                News::Gone(at, _) => self.wake(seen.namespace(&at.name, None)),
                News::Listed(listed) => {
                    self.wake(seen.keep_namespaces(&listed));
                    self.wake(seen.listed(watched));
                }
                News::Nothing => {}
            }
        })
        .await;
    }

    async fn config_maps(&self) {
        let at = &self.keeper.settings.trust_namespace;
        let (mut listing, kind) = (Listing::default(), Kind::ConfigMap);
        self.permitted(Watched::Sources(kind), Some(at)).await;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), at);
        feed::follow_selected(api, "configmaps", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.heard(Watched::Sources(kind), event) else { return };
            self.source(kind, listing.hear(event), Held::of_config_map);
        })
        .await;
    }

    async fn secrets(&self) {
        let at = &self.keeper.settings.trust_namespace;
        let (mut listing, kind) = (Listing::default(), Kind::Secret);
        self.permitted(Watched::Sources(kind), Some(at)).await;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), at);
        feed::follow_selected(api, "secrets", Config::default(), &BUNDLES, |event| {
            let Some(event) = self.heard(Watched::Sources(kind), event) else { return };
            self.source(kind, listing.hear(event), Held::of_secret);
        })
        .await;
    }

    fn source<K>(&self, kind: Kind, news: News<K>, held: impl FnOnce(K) -> Held) {
        let seen = &self.keeper.seen;
        match news {
            News::Is(at, object) => self.wake(seen.source(kind, &at.name, Some(held(object)))),
            News::Gone(at, _) => self.wake(seen.source(kind, &at.name, None)),
            News::Listed(listed) => {
                let at = &self.keeper.settings.trust_namespace;
                self.wake(seen.keep_sources(kind, &listed, at));
                self.wake(seen.listed(Watched::Sources(kind)));
            }
            News::Nothing => {}
        }
    }

    /// Watches targets everywhere, also where no Bundle goes any more. Who may see only the
    /// namespaces that are written to sees those.
    async fn targets(&self, kind: Kind, resource: ApiResource) {
        let only = &self.keeper.settings.target_namespaces;
        if only.is_empty() || rights::may_list(&self.client, kind, None).await {
            let everywhere = Api::all_with(self.client.clone(), &resource);
            return self.targets_within(kind, everywhere, None).await;
        }
        join_all(only.iter().map(|namespace| {
            let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
            self.targets_within(kind, api, Some(namespace))
        }))
        .await;
    }

    /// Watches targets in one namespace or everywhere.
    async fn targets_within(&self, kind: Kind, api: Api<Metadata>, within: Option<&str>) {
        self.permitted(Watched::Targets(kind), within).await;
        let (seen, mut listing, watched) =
            (&self.keeper.seen, Listing::default(), Watched::Targets(kind));
        let config = Config::default().labels(BUNDLE_LABEL);
        let plural = format!("{}s", kind.to_string().to_lowercase());
        feed::follow_selected(api, &plural, config, &BUNDLES, |event| {
            let Some(event) = self.heard(watched, event) else { return };
            match listing.hear(event) {
                News::Is(at, object) => self.wake(seen.target(kind, &at, &object.metadata)),
                News::Gone(at, object) => self.wake(seen.target_gone(kind, &at, &object.metadata)),
                News::Listed(listed) => {
                    self.wake(seen.keep_targets(kind, within, &listed));
                    self.wake(seen.listed(watched));
                }
                News::Nothing => {}
            }
        })
        .await;
    }

    /// Watches ClusterTrustBundles while the server has them: they are sources, and targets.
    async fn anchors(&self) {
        loop {
            match served::find(&self.client, TRUST_BUNDLES).await {
                Ok(Some(_)) => break,
                // There is nothing to wait for.
                Ok(None) => {
                    self.wake(self.keeper.seen.listed(Watched::Targets(Kind::ClusterTrustBundle)));
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
            served::while_served(self.client.clone(), TRUST_BUNDLES, REPORTER, move |resource| {
                site.clone().anchors_of(resource)
            })
            .await;
        }
    }

    async fn anchors_of(self, resource: ApiResource) {
        let kind = Kind::ClusterTrustBundle;
        let _served = Served(self.clone());
        self.permitted(Watched::Targets(kind), None).await;
        self.keeper.writer.write_anchors(Some(resource.clone()));
        self.wake(self.keeper.seen.has_anchors(true));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let (seen, mut listing, watched) =
            (&self.keeper.seen, Listing::default(), Watched::Targets(kind));
        feed::follow_selected(api, &resource.plural, Config::default(), &BUNDLES, |event| {
            let Some(event) = self.heard(watched, event) else { return };
            match listing.hear(event) {
                News::Is(at, object) => {
                    self.wake(seen.target(kind, &at, &object.metadata));
                    self.wake(seen.anchors(&at.name, Some(anchors(object))));
                }
                News::Gone(at, object) => {
                    self.wake(seen.target_gone(kind, &at, &object.metadata));
                    self.wake(seen.anchors(&at.name, None));
                }
                News::Listed(listed) => {
                    self.wake(seen.keep_anchors(&listed));
                    self.wake(seen.keep_targets(kind, None, &listed));
                    self.wake(seen.listed(watched));
                }
                News::Nothing => {}
            }
        })
        .await;
    }

    async fn package(&self) {
        let Some(package) = &self.keeper.settings.package else { return };
        let mut changes = package.changes();
        while changes.changed().await.is_ok() {
            self.wake(self.keeper.seen.users_of_package());
        }
    }

    /// Waits until something may be listed; until then it is known that it cannot be.
    async fn permitted(&self, watched: Watched, namespace: Option<&str>) {
        let (Watched::Sources(kind) | Watched::Targets(kind)) = watched else { return };
        while !rights::may_list(&self.client, kind, namespace).await {
            let why = rights::refusal(kind, namespace);
            self.wake(self.keeper.seen.refused(watched, why));
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// The event, if it is one. That something cannot be listed is noted.
    fn heard<K>(
        &self,
        watched: Watched,
        event: Result<Event<K>, &watcher::Error>,
    ) -> Option<Event<K>> {
        match event {
            Ok(event) => Some(event),
            Err(error) => {
                if let Some(why) = refusal(error) {
                    self.wake(self.keeper.seen.refused(watched, why));
                }
                None
            }
        }
    }
}

/// While it lives, the server has ClusterTrustBundles.
struct Served(Site);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.keeper.writer.write_anchors(None);
        self.0.wake(self.0.keeper.seen.has_anchors(false));
    }
}

/// What the server says if it does not let something be listed. Anything else may pass.
fn refusal(error: &watcher::Error) -> Option<String> {
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

fn read(object: &DynamicObject) -> Result<Bundle, serde_json::Error> {
    Bundle::read(&serde_json::to_value(object)?)
}

fn space(object: Metadata) -> Space {
    let ending = object.metadata.deletion_timestamp.is_some();
    Space { labels: object.metadata.labels.unwrap_or_default(), ending }
}

fn anchors(object: DynamicObject) -> HeldAnchors {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
    HeldAnchors {
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
