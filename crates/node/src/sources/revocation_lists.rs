//! Watch of all CertificateRevocationLists. It begins when a host projection first needs them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;
use windlass_runtime::discovery::{
    AGENT_PACING, CERTIFICATE_REVOCATION_LISTS, KindPresence, RecheckSignal, watch_presence,
};
use windlass_runtime::watch::{ObjectWatch, RelistBuffer, SnapshotEvent, WatchErrorKind};

use crate::projections::HostProjections;
use crate::volume::definition::ProjectedSource;
use crate::volume::plan::OptionalApi;
use crate::volume::revocation_lists::{PublishedList, RevocationListIndex};

/// The known CertificateRevocationLists, or why they are not available.
pub type RevocationListView = Arc<OptionalApi<RevocationListIndex>>;

/// Returns the view before the first list.
pub fn initial_view() -> RevocationListView {
    Arc::new(OptionalApi::Unsynced)
}

/// Publishes the CertificateRevocationLists whenever they change, once a projection needs them. Never returns.
pub async fn watch_revocation_lists(
    client: Client,
    mut projections: watch::Receiver<Arc<HostProjections>>,
    out: watch::Sender<RevocationListView>,
) {
    if projections.wait_for(|all| needs_lists(all)).await.is_err() {
        return std::future::pending().await;
    }
    let (found, presence) = watch::channel(KindPresence::Unknown);
    let recheck = RecheckSignal::default();
    let kind = CERTIFICATE_REVOCATION_LISTS;
    let discovery = watch_presence(client.clone(), kind, AGENT_PACING, recheck.clone(), found);
    tokio::join!(discovery, watch_while_served(client, presence, recheck, out));
}

fn needs_lists(projections: &HostProjections) -> bool {
    let mut sources = projections.iter().flat_map(|projection| &projection.definition.sources);
    sources.any(|(_, source)| matches!(source, ProjectedSource::RevocationLists(_)))
}

async fn watch_while_served(
    client: Client,
    mut presence: watch::Receiver<KindPresence>,
    recheck: RecheckSignal,
    out: watch::Sender<RevocationListView>,
) {
    let mut cache = RevocationListCache::default();
    loop {
        let now = presence.borrow_and_update().clone();
        let watching = async {
            match now {
                KindPresence::Unknown => std::future::pending().await,
                KindPresence::NotServed => {
                    out.send_replace(Arc::new(OptionalApi::Missing));
                    std::future::pending().await
                }
                KindPresence::Served(resource) => {
                    watch_lists(&client, &resource, &recheck, &mut cache, &out).await;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            // The sender outlives this future.
            _ = presence.changed() => {}
        }
    }
}

/// Watches the lists. Never returns.
async fn watch_lists(
    client: &Client,
    resource: &ApiResource,
    recheck: &RecheckSignal,
    cache: &mut RevocationListCache,
    out: &watch::Sender<RevocationListView>,
) {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let mut events = ObjectWatch::with_fields(api, None);
    loop {
        let mut is_changed = false;
        events
            .next_batch(|event| match event {
                Ok(event) => is_changed |= cache.apply(event),
                Err(error) if error.kind == WatchErrorKind::Broken => {
                    tracing::debug!(%error, "watch of CertificateRevocationLists ended; resuming");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot watch CertificateRevocationLists; retrying with backoff");
                    recheck.notify_one();
                }
            })
            .await;
        if is_changed {
            out.send_replace(Arc::new(OptionalApi::Synced(cache.lists.clone())));
        }
    }
}

/// Cache of CertificateRevocationLists, built from list and watch events.
#[derive(Default)]
struct RevocationListCache {
    lists: RevocationListIndex,
    buffer: RelistBuffer<Option<(String, Arc<PublishedList>)>>,
}

impl RevocationListCache {
    /// Applies an event. Returns whether the lists may have changed.
    fn apply(&mut self, event: Event<DynamicObject>) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let event = buffer.push(event, |object| self.read(&object));
        self.buffer = buffer;
        match event {
            None | Some(SnapshotEvent::Applied(None)) => false,
            Some(SnapshotEvent::Applied(Some((authority, list)))) => {
                let is_changed = self.lists.get(&authority) != Some(&list);
                self.lists.set(&authority, list);
                is_changed
            }
            Some(SnapshotEvent::Deleted(object)) => {
                object.metadata.name.is_some_and(|authority| self.lists.remove(&authority))
            }
            Some(SnapshotEvent::Replaced(listed)) => {
                self.lists = RevocationListIndex::default();
                for (authority, list) in listed.into_iter().flatten() {
                    self.lists.set(&authority, list);
                }
                true
            }
        }
    }

    /// Parses an object. One that cannot be parsed leaves the earlier list in place.
    fn read(&self, object: &DynamicObject) -> Option<(String, Arc<PublishedList>)> {
        let authority = object.metadata.name.clone()?;
        match parse_list(&authority, object) {
            Ok(list) => Some((authority, Arc::new(list))),
            Err(error) => {
                tracing::warn!(name = authority, error, "ignored an invalid CertificateRevocationList");
                let earlier = self.lists.get(&authority)?.clone();
                Some((authority, earlier))
            }
        }
    }
}

fn parse_list(authority: &str, object: &DynamicObject) -> Result<PublishedList, String> {
    // The name becomes a file name.
    if authority.is_empty() || !authority.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("its name is not an authority ID in hexadecimal".into());
    }
    let field = |name| object.data.get("spec").and_then(|spec| spec.get(name)?.as_str());
    let signer = field("signerName").ok_or("spec.signerName is missing")?;
    let der =
        STANDARD.decode(field("crl").unwrap_or_default()).map_err(|error| format!("spec.crl: {error}"))?;
    PublishedList::new(signer, der).map_err(|error| format!("spec.crl: {error}"))
}
