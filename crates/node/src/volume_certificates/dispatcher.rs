//! Hands what the server says of pods' requests to those who wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::issuance::RequestOutcome;
use super::pod_request::request_outcome;
use crate::sources::discovery::{ApiAvailability, RecheckSignal};
use crate::sources::watch::{ResilientWatch, WatchFailure, WatchItem};

/// Dispatches updates of PodCertificateRequests to the tasks that wait for them.
#[derive(Default)]
pub struct RequestDispatcher {
    waiting: Mutex<BTreeMap<RequestId, mpsc::UnboundedSender<RequestUpdate>>>,
}

/// Namespace and name of a PodCertificateRequest; the UID is not part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    /// The namespace of the request, which is the pod's.
    pub namespace: String,
    /// The name of the request, which the agent generates.
    pub name: String,
}

/// What was seen of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestUpdate {
    /// The request exists; `ended` says whether it is complete.
    Present {
        /// Which of those that ever had this name it is.
        uid: String,
        /// The result of the request; `None` while it is pending.
        ended: Option<RequestOutcome>,
    },
    /// The request was deleted from the API server.
    Deleted {
        /// Which of those that ever had this name it was.
        uid: String,
    },
    /// It was not there a while ago, which may be before it was made.
    Absent,
}

/// Hears what is seen of one request, while it is kept.
pub struct RequestSubscription<'a> {
    hub: &'a RequestDispatcher,
    id: RequestId,
    updates: mpsc::UnboundedReceiver<RequestUpdate>,
}

impl RequestDispatcher {
    /// Hears from now on what is seen of a request.
    pub fn subscribe(&self, id: RequestId) -> RequestSubscription<'_> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.subscribers().insert(id.clone(), tell);
        RequestSubscription { hub: self, id, updates: heard }
    }

    /// Watches the requests of a node. Does not end.
    pub async fn run(
        &self,
        client: Client,
        node: &str,
        mut presence: watch::Receiver<ApiAvailability>,
        again: RecheckSignal,
    ) {
        loop {
            let now = presence.borrow_and_update().clone();
            tokio::select! {
                () = self.watch(&client, node, now, &again) => {}
                changed = presence.changed() => if changed.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }

    async fn watch(
        &self,
        client: &Client,
        node: &str,
        presence: ApiAvailability,
        again: &RecheckSignal,
    ) {
        let resource: ApiResource = match presence {
            ApiAvailability::Served(resource) => resource,
            ApiAvailability::Unknown | ApiAvailability::Missing => {
                return std::future::pending().await;
            }
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let mut feed = ResilientWatch::new(api, Some(&format!("spec.nodeName={node}")));
        let mut listed = BTreeSet::new();
        loop {
            match feed.next().await {
                WatchItem::Event(Event::Init) => listed.clear(),
                WatchItem::Event(Event::InitApply(request)) => {
                    listed.extend(self.dispatch(&request, false))
                }
                WatchItem::Event(Event::InitDone) => {
                    self.dispatch_absent(&std::mem::take(&mut listed))
                }
                WatchItem::Event(Event::Apply(request)) => drop(self.dispatch(&request, false)),
                WatchItem::Event(Event::Delete(request)) => drop(self.dispatch(&request, true)),
                WatchItem::Trouble(trouble) => {
                    if matches!(trouble, WatchFailure::Unserved(_)) {
                        again.notify_one();
                    }
                    tracing::debug!(why = trouble.text(), "a watch of pods' requests broke off");
                }
            }
        }
    }

    /// Tells whoever waits for this request, and says which it is if somebody does.
    fn dispatch(&self, request: &DynamicObject, deleted: bool) -> Option<RequestId> {
        let metadata = &request.metadata;
        let id = RequestId {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let waiting = self.subscribers();
        let tell = waiting.get(&id)?;
        let uid = metadata.uid.clone().unwrap_or_default();
        let seen = match deleted {
            true => RequestUpdate::Deleted { uid },
            false => RequestUpdate::Present { uid, ended: request_outcome(request) },
        };
        // Whoever does not listen any more is about to say so.
        let _ = tell.send(seen);
        Some(id)
    }

    fn dispatch_absent(&self, listed: &BTreeSet<RequestId>) {
        for (_, tell) in self.subscribers().iter().filter(|(id, _)| !listed.contains(*id)) {
            let _ = tell.send(RequestUpdate::Absent);
        }
    }

    fn subscribers(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, mpsc::UnboundedSender<RequestUpdate>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestSubscription<'_> {
    /// Waits for the next update of the request; cancel-safe.
    pub async fn next(&mut self) -> RequestUpdate {
        match self.updates.recv().await {
            Some(seen) => seen,
            None => std::future::pending().await,
        }
    }
}

impl Drop for RequestSubscription<'_> {
    fn drop(&mut self) {
        self.updates.close();
        let mut waiting = self.hub.subscribers();
        // Another may listen for it by now.
        if waiting.get(&self.id).is_some_and(mpsc::UnboundedSender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}
