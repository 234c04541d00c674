//! The write path: the stages that every write passes, in this order.
//!
//! | stage | what it does | where |
//! |---|---|---|
//! | decode | reads the body; patch and apply merge it with the stored object | `decode`, `patch`, `apply` |
//! | mutate | stored version, defaults, namespace, managedFields; then mutating admission | `mutate`, `managed_fields`, `chain::admission` |
//! | prepare | sets the fields that only the server writes | `prepare` |
//! | validate | size, metadata and the rules of the kind | `validate` |
//! | admit | right to create, validating admission | `admit`, `chain::admission` |
//! | commit | writes to the store if the object has not changed, and reads the result back | `commit` |
//!
//! Create, update, patch and apply decode and begin to mutate in their own files, then call [`write()`]. Delete decodes
//! its options and calls [`prepare_deletion`] and [`commit_deletion`]. The order decides which of several errors a client gets, and is that of Kubernetes.
//! Each stage runs through `call.run_offloaded`: between stages, a request ends whose client is gone.

mod admit;
pub(crate) mod commit;
mod generated_name;
pub(crate) mod managed_fields;
mod metadata;
pub(crate) mod mutate;
pub(crate) mod preconditions;
mod prepare;
mod validate;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use windlass_api::meta::ObjectMetaView;

pub(crate) use generated_name::generate_name;
pub(crate) use metadata::metadata_mut;

use super::decode::{self, DecodedRequest, ExpectedType};
use super::{RequestContext, freshness};
use crate::chain::admission::{self, AdmissionOperation};
use crate::error::Error;
use crate::limits;
use crate::object::Object;
use crate::offload;
use crate::registry::kind::SubresourceAction;
use crate::request::options::{DeleteOptions, WriteOptions};

/// Outcome of a create, update, patch or apply.
pub(crate) struct WriteResult {
    /// The object as it is stored now; in a dry run, as it would be.
    pub object: Arc<Object>,
    /// Whether the object was created (201) rather than updated (200).
    pub created: bool,
    /// Texts for the `Warning` headers of the response, in order.
    pub warnings: Vec<String>,
}

pub(crate) enum DeleteOutcome {
    /// The object is gone; its last state.
    Removed(Arc<Object>),
    /// The object stays until its finalizers or its grace period are done; its state until then.
    Terminating(Arc<Object>),
}

/// What a write does to the collection.
#[derive(Clone, Copy)]
pub(crate) enum WriteOperation<'a> {
    /// Adds an object under a name that is free.
    Create,
    /// Replaces a stored object, unless it has changed since it was read.
    Replace {
        /// The object as the cache has it.
        old: &'a Arc<Object>,
        /// The same, decoded.
        before: &'a Value,
    },
}

impl<'a> WriteOperation<'a> {
    fn admission(self) -> AdmissionOperation<'a> {
        match self {
            WriteOperation::Create => AdmissionOperation::Create,
            WriteOperation::Replace { before, .. } => AdmissionOperation::Update(before),
        }
    }

    fn size(self, object: &Value) -> usize {
        let old = match self {
            WriteOperation::Create => 0,
            WriteOperation::Replace { old, .. } => old.size(),
        };
        offload::size(object).max(old)
    }
}

/// Decodes a body that holds an object of the addressed kind and version.
pub(crate) async fn decode_body(
    call: &RequestContext<'_>,
    body: &Bytes,
    options: &WriteOptions,
) -> Result<DecodedRequest, Error> {
    let expected = ExpectedType::object(call.kind, call.served);
    let decode = || decode::object(call, expected, body, options.field_validation);
    call.run_offloaded(body.len(), decode).await
}

/// Takes an object of the stored version through the stages from mutating admission to commit.
pub(crate) async fn write(
    call: &RequestContext<'_>,
    operation: WriteOperation<'_>,
    mut object: Value,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if let WriteOperation::Create = operation {
        admission::wait_for_dependencies(call, &object).await;
    }
    // Held until the commit, which the cache shows before it returns.
    let _turn = match operation {
        WriteOperation::Create if call.kind.exclusive_creates => {
            let turn = call.server.exclusive_creates.lock().await;
            call.server.catch_up().await?;
            Some(turn)
        }
        WriteOperation::Create | WriteOperation::Replace { .. } => None,
    };
    let size = operation.size(&object);
    let prepare = || {
        admission::mutate(call, operation.admission(), &mut object)?;
        prepare::prepare(call, operation, &mut object)
    };
    let name_is_generated = call.run_offloaded(size, prepare).await?;
    let validate = || {
        let stored = commit::encode_stored(call, &object);
        // First, because it is cheap: validating an object that cannot be stored wastes time.
        validate::check_size(&stored)?;
        validate::validate(call, operation, &object)?;
        admit::admit(call, operation, &object)?;
        Ok(stored)
    };
    let stored = call.run_offloaded(size, validate).await?;
    match operation {
        WriteOperation::Create => commit_new(call, object, stored, name_is_generated, dry_run).await,
        WriteOperation::Replace { old, before } => {
            commit_changed(call, old, before, &object, stored, dry_run).await
        }
    }
}

/// Stores a new object; if its name was generated and is taken, under another one.
async fn commit_new(
    call: &RequestContext<'_>,
    mut object: Value,
    mut stored: Bytes,
    generated: bool,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    let (size, mut attempt) = (offload::size(&object), 0);
    loop {
        let name = ObjectMetaView::from_object(&object).name();
        match commit::insert(call, name, stored, dry_run).await {
            Err(Error::AlreadyExists { .. }) if generated && attempt < limits::NAME_RETRIES => {}
            Err(Error::AlreadyExists { subject, deleting, .. }) => {
                return Err(Error::AlreadyExists { subject, deleting, generated });
            }
            other => return other,
        }
        attempt += 1;
        let rename = || {
            generated_name::assign(&mut object);
            let stored = commit::encode_stored(call, &object);
            validate::check_size(&stored)?;
            Ok(stored)
        };
        stored = call.run_offloaded(size, rename).await?;
    }
}

/// Stores a changed object, or removes it if it was only waiting for this change to be deleted.
async fn commit_changed(
    call: &RequestContext<'_>,
    old: &Arc<Object>,
    before: &Value,
    object: &Value,
    stored: Bytes,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if is_deletable(call, object) {
        commit::remove(call, old, dry_run).await?;
        // Watchers get the last state that was stored, the writer gets what it asked for.
        return commit::decode_stored(call, &old.key, old.revision, &stored).await;
    }
    if stored == old.stored_bytes() {
        return freshness::confirm_unchanged(call, old.clone()).await;
    }
    let written = commit::replace(call, old, stored, dry_run).await?;
    if !dry_run && let Some(issued) = (call.kind.issued)(before, object) {
        call.server.metrics.issued(issued);
    }
    Ok(written)
}

/// Takes the deletion of a stored object through its stages up to preparation. Returns the object marked for deletion.
pub(crate) async fn prepare_deletion(
    call: &RequestContext<'_>,
    old: &Object,
    options: &DeleteOptions,
) -> Result<Value, Error> {
    let prepare = || {
        let mut object = old.stored_value();
        preconditions::check_deletion(call, options, old, &object)?;
        admission::delete(call, &object)?;
        prepare::mark_for_deletion(call, options, &mut object);
        Ok(object)
    };
    call.run_offloaded(old.size(), prepare).await
}

/// Removes an object that was marked for deletion, or stores the mark if the object has to wait. A conflict means that
/// another write came first.
pub(crate) async fn commit_deletion(
    call: &RequestContext<'_>,
    old: Arc<Object>,
    marked: &Value,
    dry_run: bool,
) -> Result<DeleteOutcome, Error> {
    if is_deletable(call, marked) {
        return remove_marked(call, old, marked, dry_run).await.map(DeleteOutcome::Removed);
    }
    let stored = commit::encode_stored(call, marked);
    let terminating = if stored == old.stored_bytes() {
        freshness::confirm_unchanged(call, old).await
    } else {
        commit::replace(call, &old, stored, dry_run).await
    };
    terminating.map(DeleteOutcome::Terminating)
}

/// Removes an object that has nothing left to wait for. Watchers of a kind with grace periods see it marked first.
async fn remove_marked(
    call: &RequestContext<'_>,
    mut old: Arc<Object>,
    marked: &Value,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if call.kind.graceful && !dry_run {
        let stored = commit::encode_stored(call, marked);
        if stored != old.stored_bytes() {
            old = commit::replace(call, &old, stored, false).await?;
        }
    }
    commit::remove(call, &old, dry_run).await
}

/// Returns true if a terminating object has nothing left to wait for.
fn is_deletable(call: &RequestContext<'_>, object: &Value) -> bool {
    let meta = ObjectMetaView::from_object(object);
    meta.is_deleting()
        && meta.finalizers().next().is_none()
        && meta.deletion_grace_period_seconds().unwrap_or(0) == 0
        && (call.kind.may_vanish)(object)
}

/// Returns how the subresource of the path is written, or `None` for the object itself.
fn subresource_action(call: &RequestContext<'_>) -> Result<Option<&'static SubresourceAction>, Error> {
    if call.path.subresource.is_empty() {
        return Ok(None);
    }
    let found = call.kind.subresource(&call.path.subresource);
    found.map(|s| Some(&s.action)).ok_or(Error::NoSuchResource)
}
