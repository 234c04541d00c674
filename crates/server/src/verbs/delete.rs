//! DELETE: an object, at once or when its finalizers are done; and whole collections.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use time::Duration;
use windlass_api::meta::ObjectMetaView;
use windlass_api::timestamp;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use super::create::metadata;
use super::decode::{self, ExpectedType};
use super::list::{self, ObjectList};
use super::update::{kind_error_subject, modified, store, store_error};
use super::{RequestContext, freshness, update};
use crate::cache::store_key;
use crate::chain::admission;
use crate::error::Error;
use crate::limits;
use crate::list_body::HistoricalPage;
use crate::object::{Object, encode};
use crate::request::info::ResourcePath;
use crate::request::options::{DeleteOptions, DeletionPropagation, FieldValidation, ListOptions};

/// What a deletion came to.
pub(crate) enum DeleteOutcome {
    /// It is gone; its last state.
    Removed(Arc<Object>),
    /// It goes when its finalizers or its grace period are done; its state until then.
    Terminating(Arc<Object>),
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// A century, which still makes a date that can be written.
const LONGEST_GRACE: i64 = 100 * 365 * 24 * 60 * 60;

/// Deletes the object the path names.
pub(crate) async fn delete(
    call: &RequestContext<'_>,
    body: &Bytes,
) -> Result<DeleteOutcome, Error> {
    let options = call.run_offloaded(body.len(), || options(call, body)).await?;
    delete_one(call, &options).await
}

/// Deletes what the path and the query select, one by one, and returns what it was.
pub(crate) async fn delete_collection(
    call: &RequestContext<'_>,
    body: &Bytes,
) -> Result<ObjectList, Error> {
    let options = call.run_offloaded(body.len(), || self::options(call, body)).await?;
    let found = list::list(call, &ListOptions::parse(call.query, false)?).await?;
    delete_each(call, &options, &found.objects).await?;
    let mut rest = found.rest.clone().map(HistoricalPage::new);
    while let Some(rest) = &mut rest
        && let Some(objects) = rest.next().await.map_err(|e| Error::Internal(e.to_string()))?
    {
        delete_each(call, &options, &objects).await?;
    }
    Ok(found)
}

async fn delete_each(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
    objects: &[Arc<Object>],
) -> Result<(), Error> {
    for object in objects {
        let path = ResourcePath {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            ..call.path.clone()
        };
        let one = RequestContext { path: &path, ..*call };
        match delete_one(&one, options).await {
            // Somebody else deleted it in the meantime: that is what was wanted.
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn options(call: &RequestContext<'_>, body: &Bytes) -> Result<DeleteOptions, Error> {
    if body.is_empty() {
        return DeleteOptions::from_query(call.query);
    }
    let expected = ExpectedType {
        group: "",
        version: "v1",
        kind: "DeleteOptions",
        type_name: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    };
    let draft = decode::any_version(call, expected, body, FieldValidation::Ignore)?;
    DeleteOptions::from_value(&draft.value)
}

/// Deletes the object the path names, with options read already.
pub(crate) async fn delete_one(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, Error> {
    for _ in 0..limits::UPDATE_RETRIES {
        let found = call.cache()?.get(&call.key(&call.path.name));
        let old = found.ok_or_else(|| Error::NotFound(call.subject(&call.path.name)))?;
        let prepare = || {
            let mut value = old.stored_value();
            check_preconditions(call, options, &old, &value)?;
            admission::delete(call, &value)?;
            mark_for_deletion(call, options, &mut value);
            Ok(value)
        };
        let new = call.run_offloaded(old.size(), prepare).await?;
        let done = if is_deletable(call, &new) {
            let marked = if call.kind.graceful { Some(&new) } else { None };
            remove_finished(call, old, marked, options.dry_run).await.map(DeleteOutcome::Removed)
        } else {
            let stored = encode(call.kind.name, &call.kind.stored().api_version(), &new, false);
            let going = if stored == old.stored_bytes() {
                freshness::confirm_unchanged(call, old).await
            } else {
                store(call, &old, stored, options.dry_run).await
            };
            going.map(DeleteOutcome::Terminating)
        };
        match done {
            Err(Error::Conflict(..)) if options.resource_version.is_none() => {}
            other => return other,
        }
    }
    Err(update::contended(call))
}

/// Removes an object that has nothing left to wait for; a graceful one as it was marked.
async fn remove_finished(
    call: &RequestContext<'_>,
    mut old: Arc<Object>,
    marked: Option<&Value>,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if let Some(marked) = marked
        && !dry_run
    {
        let stored = encode(call.kind.name, &call.kind.stored().api_version(), marked, false);
        if stored != old.stored_bytes() {
            old = store(call, &old, stored, false).await?;
        }
    }
    remove(call, &old, dry_run).await
}

fn check_preconditions(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
    old: &Object,
    before: &Value,
) -> Result<(), Error> {
    let there = ObjectMetaView::from_object(before).uid();
    if let Some(asked) = &options.uid
        && asked != there
    {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({there}). The object might have been deleted and then recreated"
        );
        return Err(Error::Conflict(kind_error_subject(call), why));
    }
    if let Some(asked) = &options.resource_version
        && *asked != old.revision.to_string()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({}). The object might have been modified",
            old.revision
        );
        return Err(Error::Conflict(kind_error_subject(call), why));
    }
    Ok(())
}

/// Writes into an object that it is to be deleted: when, and what must happen first.
fn mark_for_deletion(call: &RequestContext<'_>, options: &DeleteOptions, value: &mut Value) {
    let mut finalizers: Vec<String> =
        ObjectMetaView::from_object(value).finalizers().map(str::to_owned).collect();
    if let Some(policy) = options.propagation {
        finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
        match policy {
            DeletionPropagation::Foreground => finalizers.push(FOREGROUND.into()),
            DeletionPropagation::Orphan => finalizers.push(ORPHAN.into()),
            DeletionPropagation::Background => {}
        }
    }
    let grace = (call.kind.grace)(value, options.grace_period).clamp(0, LONGEST_GRACE);
    let meta = ObjectMetaView::from_object(value);
    let already =
        meta.is_deleting().then(|| meta.deletion_grace_period_seconds().unwrap_or_default());
    let fields = metadata(value);
    if finalizers.is_empty() {
        fields.remove("finalizers");
    } else {
        fields.insert("finalizers".into(), json!(finalizers));
    }
    // A second deletion can only make the wait shorter.
    if already.is_none_or(|period| grace < period) {
        let at = call.now + Duration::seconds(grace);
        fields.insert("deletionTimestamp".into(), json!(timestamp::format(at)));
        fields.insert("deletionGracePeriodSeconds".into(), json!(grace));
        if already.is_none() && call.kind.generation {
            let generation = fields.get("generation").and_then(Value::as_i64).unwrap_or(0);
            fields.insert("generation".into(), json!(generation + 1));
        }
    }
    (call.kind.prepare_delete)(value);
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(crate) fn is_deletable(call: &RequestContext<'_>, value: &Value) -> bool {
    let meta = ObjectMetaView::from_object(value);
    meta.is_deleting()
        && meta.finalizers().next().is_none()
        && meta.deletion_grace_period_seconds().unwrap_or(0) == 0
        && (call.kind.may_vanish)(value)
}

/// Removes an object for good. Returns its last state.
pub(crate) async fn remove(
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
