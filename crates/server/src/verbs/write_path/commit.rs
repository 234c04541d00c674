//! Commit: one write to the store, on condition that the object is as it was read.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use windlass_api::meta::ObjectMetaView;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use super::preconditions::modified;
use crate::cache::store_key;
use crate::error::Error;
use crate::object::{Object, encode_object};
use crate::verbs::RequestContext;
use crate::verbs::store_error::store_error;

/// Encodes an object as it is stored.
pub(crate) fn encode_stored(call: &RequestContext<'_>, object: &Value) -> Bytes {
    encode_object(call.kind.name, &call.kind.stored().api_version(), object, false)
}

/// Stores a new object under `name`, if that is free.
pub(super) async fn insert(
    call: &RequestContext<'_>,
    name: &str,
    stored: Bytes,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    let key = call.key(name);
    let exists = || {
        let deleting = call.cache().ok().and_then(|c| c.get(&key));
        let deleting = deleting.is_some_and(|o| ObjectMetaView::from_object(&o.stored_value()).is_deleting());
        Error::AlreadyExists { subject: call.subject(name), deleting, generated: false }
    };
    if dry_run {
        if call.cache()?.get(&key).is_some() {
            return Err(exists());
        }
        let read = || {
            let object = Object::unversioned(call.kind, &key, &stored);
            object.map(Arc::new).map_err(|e| Error::Internal(e.to_string()))
        };
        return call.run_offloaded(stored.len(), read).await;
    }
    let write = WriteRequest {
        key: store_key(call.kind, &key),
        expect: WritePrecondition::Absent,
        change: KeyChange::Put(stored.clone()),
    };
    match call.server.store.commit(write).await {
        Ok(done) => committed_object(call, &key, done.revision, &stored).await,
        Err(windlass_store::Error::Conflict { .. }) => Err(exists()),
        Err(other) => Err(store_error(call.server, other)),
    }
}

/// Stores changed bytes in place of `old`, if that is still the current state.
pub(crate) async fn replace(
    call: &RequestContext<'_>,
    old: &Arc<Object>,
    stored: Bytes,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if dry_run {
        return decode_stored(call, &old.key, old.revision, &stored).await;
    }
    let write = WriteRequest {
        key: store_key(call.kind, &old.key),
        expect: WritePrecondition::Revision(old.revision),
        change: KeyChange::Put(stored.clone()),
    };
    match call.server.store.commit(write).await {
        Ok(done) => committed_object(call, &old.key, done.revision, &stored).await,
        Err(windlass_store::Error::Conflict { .. }) => Err(modified(call)),
        Err(other) => Err(store_error(call.server, other)),
    }
}

/// Removes `old` from the store, if that is still the current state. Returns the last state.
pub(super) async fn remove(
    call: &RequestContext<'_>,
    old: &Arc<Object>,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if dry_run {
        return Ok(old.clone());
    }
    let write = WriteRequest {
        key: store_key(call.kind, &old.key),
        expect: WritePrecondition::Revision(old.revision),
        change: KeyChange::Delete,
    };
    match call.server.store.commit(write).await {
        Ok(done) => Ok(Arc::new(old.deleted_at(done.revision))),
        Err(windlass_store::Error::Conflict { .. }) => Err(modified(call)),
        Err(other) => Err(store_error(call.server, other)),
    }
}

/// Returns the object that a commit wrote: from the cache, unless that has a newer one already.
async fn committed_object(
    call: &RequestContext<'_>,
    key: &str,
    revision: u64,
    stored: &[u8],
) -> Result<Arc<Object>, Error> {
    match call.cache()?.get(key) {
        Some(object) if object.revision == revision => Ok(object),
        _ => decode_stored(call, key, revision, stored).await,
    }
}

/// Decodes stored bytes into an object of that revision.
pub(super) async fn decode_stored(
    call: &RequestContext<'_>,
    key: &str,
    revision: u64,
    stored: &[u8],
) -> Result<Arc<Object>, Error> {
    let read = || {
        let object = Object::new(call.kind, key, revision, stored);
        object.map(Arc::new).map_err(|e| Error::Internal(e.to_string()))
    };
    call.run_offloaded(stored.len(), read).await
}
