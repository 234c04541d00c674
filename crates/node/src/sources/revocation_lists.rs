//! Watch of all CertificateRevocationLists. It begins when a host projection first needs them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use windlass_runtime::discovery::CERTIFICATE_REVOCATION_LISTS;
use windlass_runtime::watch::{RelistBuffer, SnapshotEvent};

use super::optional_kind::{OptionalKindEvent, watch_optional_kind};
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
    let mut cache = RevocationListCache::default();
    let mut is_changed = false;
    let handle = |event: OptionalKindEvent| match event {
        OptionalKindEvent::NotServed => drop(out.send_replace(Arc::new(OptionalApi::Missing))),
        OptionalKindEvent::Object(event) => is_changed |= cache.apply(event),
        OptionalKindEvent::BatchEnd => {
            if std::mem::take(&mut is_changed) {
                out.send_replace(Arc::new(OptionalApi::Synced(cache.lists.clone())));
            }
        }
    };
    watch_optional_kind(client, CERTIFICATE_REVOCATION_LISTS, handle).await;
}

fn needs_lists(projections: &HostProjections) -> bool {
    let mut sources = projections.iter().flat_map(|projection| &projection.definition.sources);
    sources.any(|(_, source)| matches!(source, ProjectedSource::RevocationLists(_)))
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
