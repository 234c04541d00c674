//! Dispatches updates of PodCertificateRequests to the tasks that wait for them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::issuance::RequestOutcome;
use super::pod_request::request_outcome;
use windlass_runtime::discovery::{KindPresence, RecheckSignal};
use windlass_runtime::watch::{ListTracker, ObjectWatch, TrackedEvent, WatchErrorKind};

/// Dispatches updates of PodCertificateRequests to the tasks that wait for them.
#[derive(Default)]
pub struct RequestDispatcher {
    waiting: Mutex<BTreeMap<RequestId, mpsc::UnboundedSender<RequestUpdate>>>,
}

/// Namespace and name of a PodCertificateRequest; the UID is not part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The namespace of the request, which is the pod's.
    pub namespace: String,
    /// The name of the request, which the agent generates.
    pub name: String,
}

/// An observed state of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestUpdate {
    /// The request exists; `ended` says whether it is complete.
    Present {
        /// UID of the request, which distinguishes it from namesakes.
        uid: String,
        /// The result of the request; `None` while it is pending.
        ended: Option<RequestOutcome>,
    },
    /// The request was deleted from the API server.
    Deleted {
        /// UID of the request, which distinguishes it from namesakes.
        uid: String,
    },
    /// The request did not exist recently, possibly because it was not created yet.
    Absent,
}

/// Receives the updates of one request until it is dropped.
pub struct RequestSubscription<'a> {
    hub: &'a RequestDispatcher,
    id: RequestId,
    updates: mpsc::UnboundedReceiver<RequestUpdate>,
}

impl RequestDispatcher {
    /// Subscribes to the updates of a request.
    pub fn subscribe(&self, id: RequestId) -> RequestSubscription<'_> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.subscribers().insert(id.clone(), tell);
        RequestSubscription { hub: self, id, updates: heard }
    }

    /// Watches the requests of a node. Never returns.
    pub async fn run(
        &self,
        client: Client,
        node: &str,
        mut presence: watch::Receiver<KindPresence>,
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

    async fn watch(&self, client: &Client, node: &str, presence: KindPresence, again: &RecheckSignal) {
        let resource: ApiResource = match presence {
            KindPresence::Served(resource) => resource,
            KindPresence::Unknown | KindPresence::NotServed => {
                return std::future::pending().await;
            }
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let selector = format!("spec.nodeName={node}");
        let mut events = ObjectWatch::with_fields(api, Some(&selector));
        let mut list = ListTracker::default();
        loop {
            match events.next().await.map(|event| list.track(event, request_id)) {
                Ok(None) => {}
                Ok(Some(TrackedEvent::Applied(id, request))) => self.dispatch(&id, &request, false),
                Ok(Some(TrackedEvent::Deleted(id, request))) => self.dispatch(&id, &request, true),
                Ok(Some(TrackedEvent::Listed(ids))) => self.dispatch_absent(&ids),
                Err(error) => {
                    if error.kind == WatchErrorKind::NotServed {
                        again.notify_one();
                    }
                    tracing::debug!(%error, "watch of PodCertificateRequests ended; resuming");
                }
            }
        }
    }

    /// Sends the state of a request to its subscriber, if there is one.
    fn dispatch(&self, id: &RequestId, request: &DynamicObject, deleted: bool) {
        let subscribers = self.subscribers();
        let Some(subscriber) = subscribers.get(id) else { return };
        let uid = request.metadata.uid.clone().unwrap_or_default();
        let update = match deleted {
            true => RequestUpdate::Deleted { uid },
            false => RequestUpdate::Present { uid, ended: request_outcome(request) },
        };
        // A closed subscription is about to be removed.
        let _ = subscriber.send(update);
    }

    fn dispatch_absent(&self, listed: &HashSet<RequestId>) {
        let subscribers = self.subscribers();
        for (_, subscriber) in subscribers.iter().filter(|(id, _)| !listed.contains(*id)) {
            let _ = subscriber.send(RequestUpdate::Absent);
        }
    }

    fn subscribers(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, mpsc::UnboundedSender<RequestUpdate>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn request_id(request: &DynamicObject) -> RequestId {
    RequestId {
        namespace: request.metadata.namespace.clone().unwrap_or_default(),
        name: request.metadata.name.clone().unwrap_or_default(),
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
        // Another subscriber may have replaced this one.
        if waiting.get(&self.id).is_some_and(mpsc::UnboundedSender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}
