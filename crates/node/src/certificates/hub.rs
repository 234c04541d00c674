//! Hands what the server says of pods' requests to those who wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::obtain::Ended;
use super::pod::ended;
use crate::sources::feed::{Fed, Feed, Trouble};
use crate::sources::served::{Again, Presence};

/// Those who wait.
#[derive(Default)]
pub struct Hub {
    waiting: Mutex<BTreeMap<RequestId, mpsc::UnboundedSender<Seen>>>,
}

/// Which request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What was seen of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It is there.
    Is {
        /// Which of those that ever had this name it is.
        uid: String,
        /// What became of it.
        ended: Option<Ended>,
    },
    /// It was deleted.
    Deleted {
        /// Which of those that ever had this name it was.
        uid: String,
    },
    /// It was not there a while ago, which may be before it was made.
    Absent,
}

/// Hears what is seen of one request, while it is kept.
pub struct Listener<'a> {
    hub: &'a Hub,
    id: RequestId,
    heard: mpsc::UnboundedReceiver<Seen>,
}

impl Hub {
    /// Hears from now on what is seen of a request.
    pub fn listen(&self, id: RequestId) -> Listener<'_> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.waiting().insert(id.clone(), tell);
        Listener { hub: self, id, heard }
    }

    /// Watches the requests of a node. Does not end.
    pub async fn follow(
        &self,
        client: Client,
        node: &str,
        mut presence: watch::Receiver<Presence>,
        again: Again,
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

    async fn watch(&self, client: &Client, node: &str, presence: Presence, again: &Again) {
        let resource: ApiResource = match presence {
            Presence::Is(resource) => resource,
            Presence::Unknown | Presence::Missing => return std::future::pending().await,
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let mut feed = Feed::new(api, Some(&format!("spec.nodeName={node}")));
        let mut listed = BTreeSet::new();
        loop {
            match feed.next().await {
                Fed::Event(Event::Init) => listed.clear(),
                Fed::Event(Event::InitApply(request)) => listed.extend(self.tell(&request, false)),
                Fed::Event(Event::InitDone) => self.tell_absent(&std::mem::take(&mut listed)),
                Fed::Event(Event::Apply(request)) => drop(self.tell(&request, false)),
                Fed::Event(Event::Delete(request)) => drop(self.tell(&request, true)),
                Fed::Trouble(trouble) => {
                    if matches!(trouble, Trouble::Unserved(_)) {
                        again.notify_one();
                    }
                    tracing::debug!(why = trouble.text(), "a watch of pods' requests broke off");
                }
            }
        }
    }

    /// Tells whoever waits for this request, and says which it is if somebody does.
    fn tell(&self, request: &DynamicObject, deleted: bool) -> Option<RequestId> {
        let metadata = &request.metadata;
        let id = RequestId {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let waiting = self.waiting();
        let tell = waiting.get(&id)?;
        let uid = metadata.uid.clone().unwrap_or_default();
        let seen = match deleted {
            true => Seen::Deleted { uid },
            false => Seen::Is { uid, ended: ended(request) },
        };
        // Whoever does not listen any more is about to say so.
        let _ = tell.send(seen);
        Some(id)
    }

    fn tell_absent(&self, listed: &BTreeSet<RequestId>) {
        for (_, tell) in self.waiting().iter().filter(|(id, _)| !listed.contains(*id)) {
            let _ = tell.send(Seen::Absent);
        }
    }

    fn waiting(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, mpsc::UnboundedSender<Seen>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener<'_> {
    /// What is seen next.
    pub async fn next(&mut self) -> Seen {
        match self.heard.recv().await {
            Some(seen) => seen,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.heard.close();
        let mut waiting = self.hub.waiting();
        // Another may listen for it by now.
        if waiting.get(&self.id).is_some_and(mpsc::UnboundedSender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}
