//! PUT: an object replaced; and the loop that every change to an existing object goes through.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_api::apply::{self, FieldManager, FieldSet};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::{self, ObjectMetaView};
use windlass_api::schema::Schema;
use windlass_api::timestamp;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use super::create::{self, WriteResult, check_size, committed_object, metadata, stored_form};
use super::decode::{self, DecodedRequest, ExpectedType};
use super::{RequestContext, delete, freshness};
use crate::cache::store_key;
use crate::chain::admission::{self, AdmissionOperation};
use crate::error::{Error, ErrorSubject};
use crate::limits;
use crate::object::{Object, encode};
use crate::offload::size;
use crate::registry::kind::{Scope, Subresource, SubresourceAction};
use crate::registry::namespaces;
use crate::request::options::WriteOptions;
use crate::server::Server;

/// Replaces the object the path names, or through a subresource a part of it.
pub(crate) async fn update(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let options = WriteOptions::parse(call.query, "UpdateOptions")?;
    let expected = ExpectedType::object(call.kind, call.served);
    let decode = || decode::object(call, expected, body, options.field_validation);
    let DecodedRequest { value, warnings } = call.run_offloaded(body.len(), decode).await?;
    let told = warnings.clone();
    put(call, value, warnings, &options).await.map_err(|error| error.warned(told))
}

async fn put(
    call: &RequestContext<'_>,
    value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let size = size(&value);
    let value = call.run_offloaded(size, || Ok(stored_form(call, value))).await?;
    check_name(call, &value)?;
    let manager = call.manager(&options.field_manager);
    for _ in 0..limits::UPDATE_RETRIES {
        let Some(old) = call.cache()?.get(&call.key(&call.path.name)) else {
            if call.kind.create_on_update && call.path.subresource.is_empty() {
                return create_instead(call, value, warnings, options).await;
            }
            return Err(Error::NotFound(call.subject(&call.path.name)));
        };
        let unconditional = ObjectMetaView::from_object(&value).resource_version().is_empty();
        let compare = || {
            let (mut new, before) = (value.clone(), old.stored_value());
            check_uid(call, &new, &before)?;
            check_version(call, &mut new, &old)?;
            record(call, Some(&before), &mut new, &manager);
            Ok((new, before))
        };
        let (new, before) = call.run_offloaded(size.max(old.size()), compare).await?;
        match replace(call, &old, &before, new, options.dry_run).await {
            Err(Error::Conflict(..)) if unconditional => {}
            other => {
                let object = other?;
                return Ok(WriteResult { object, created: false, warnings });
            }
        }
    }
    Err(contended(call))
}

async fn create_instead(
    call: &RequestContext<'_>,
    mut value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    if !ObjectMetaView::from_object(&value).resource_version().is_empty()
        || !ObjectMetaView::from_object(&value).uid().is_empty()
    {
        return Err(Error::NotFound(call.subject(&call.path.name)));
    }
    metadata(&mut value).insert("name".into(), json!(call.path.name));
    // `create_value` begins with a value of the served version.
    if let Some(convert) = call.served.convert {
        value = (convert.from_stored)(value);
    }
    create::create_value(call, value, warnings, options).await
}

/// The object in a body must be the one the path names.
pub(crate) fn check_name(call: &RequestContext<'_>, value: &Value) -> Result<(), Error> {
    let (name, namespace) =
        (ObjectMetaView::from_object(value).name(), ObjectMetaView::from_object(value).namespace());
    let path = call.path;
    if name.is_empty() {
        return Err(Error::BadRequest(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            path.name
        )));
    }
    if name != path.name {
        return Err(Error::BadRequest(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            path.name
        )));
    }
    if call.kind.scope == Scope::Namespaced && !namespace.is_empty() && namespace != path.namespace
    {
        return Err(Error::BadRequest(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            path.namespace
        )));
    }
    Ok(())
}

fn check_uid(call: &RequestContext<'_>, new: &Value, old: &Value) -> Result<(), Error> {
    let (asked, there) =
        (ObjectMetaView::from_object(new).uid(), ObjectMetaView::from_object(old).uid());
    if asked.is_empty() || asked == there {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {there}");
    Err(Error::Conflict(call.subject(&call.path.name), why))
}

/// The resourceVersion in the body, if it has one, must be the current one.
pub(crate) fn check_version(
    call: &RequestContext<'_>,
    new: &mut Value,
    old: &Object,
) -> Result<(), Error> {
    let asked = ObjectMetaView::from_object(new).resource_version().to_owned();
    if asked.is_empty() || asked == "0" {
        if !call.kind.unconditional_update {
            let mut errors = FieldErrors::new();
            let at = FieldPath::new("metadata").child("resourceVersion");
            errors.invalid(&at, &json!(0), "must be specified for an update");
            return Err(Error::Invalid {
                group: call.served.group.into(),
                kind: call.kind.plural.into(),
                name: call.path.name.clone(),
                errors,
            });
        }
        metadata(new).insert("resourceVersion".into(), json!(old.revision.to_string()));
        return Ok(());
    }
    match crate::request::options::parse_version(&asked) {
        Ok(version) if version == old.revision => Ok(()),
        Ok(_) => Err(modified(call)),
        Err(_) => {
            let mut errors = FieldErrors::new();
            let at = FieldPath::new("metadata").child("resourceVersion");
            errors.invalid_str(&at, &asked, "must be a resource version of this server");
            Err(call.invalid(&call.path.name, errors))
        }
    }
}

/// 409: somebody else was faster.
pub(crate) fn modified(call: &RequestContext<'_>) -> Error {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Error::Conflict(call.subject(&call.path.name), why.into())
}

/// 409: others are faster all the time.
pub(crate) fn contended(call: &RequestContext<'_>) -> Error {
    Error::Conflict(call.subject(&call.path.name), "the object changes too often; try again".into())
}

/// Notes in managedFields which fields this write changed.
pub(crate) fn record(
    call: &RequestContext<'_>,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
) {
    let schema = Schema::get();
    let Some(id) = schema.lookup(call.kind.stored().type_name) else { return };
    let (api_version, time) = (call.served.api_version(), timestamp::format(call.now));
    let who = FieldManager {
        manager,
        api_version: &api_version,
        subresource: &call.path.subresource,
        time: &time,
    };
    apply::on_update(schema, id, old, new, &who, &reset_fields(call));
}

/// The fields that a write at this place never owns, because the server sets them back: the status
/// for the object itself, everything but the status for its `status`, unless the kind says otherwise.
pub(crate) fn reset_fields(call: &RequestContext<'_>) -> FieldSet {
    let mut own = call.kind.resets.iter();
    if let Some(reset) = own.find(|r| r.subresource == call.path.subresource) {
        return FieldSet::from_paths(reset.fields);
    }
    let viewed =
        |s: &&Subresource| matches!(s.action, SubresourceAction::View { .. }) && s.name == "status";
    if !call.kind.subresources.iter().any(|s| viewed(&s)) {
        return FieldSet::default();
    }
    match call.path.subresource.as_str() {
        "" => FieldSet::from_paths(&[&["status"]]),
        "status" => FieldSet::from_paths(&[&["spec"]]),
        _ => FieldSet::default(),
    }
}

/// Prepares, validates and stores a changed object. Returns the object as it is afterwards.
pub(crate) async fn replace(
    call: &RequestContext<'_>,
    old: &Arc<Object>,
    before: &Value,
    mut new: Value,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    let size = size(&new).max(old.size());
    let prepare = || {
        admission::mutate(call, AdmissionOperation::Update(before), &mut new)?;
        prepare(call, before, &mut new)
    };
    call.run_offloaded(size, prepare).await?;
    let validate = || {
        let stored = encode(call.kind.name, &call.kind.stored().api_version(), &new, false);
        // First: what cannot be stored is not worth the time.
        check_size(&stored)?;
        validate(call, before, &new)?;
        admission::validate(call, AdmissionOperation::Update(before), &new)?;
        Ok(stored)
    };
    let stored = call.run_offloaded(size, validate).await?;
    if delete::is_deletable(call, &new) {
        delete::remove(call, old, dry_run).await?;
        // Watchers see the last state that was stored, the writer what it asked for.
        return create::decode_object(call, &old.key, old.revision, &stored).await;
    }
    if stored == old.stored_bytes() {
        return freshness::confirm_unchanged(call, old.clone()).await;
    }
    let object = store(call, old, stored, dry_run).await?;
    if !dry_run && let Some(issued) = (call.kind.issued)(before, &new) {
        call.server.metrics.issued(issued);
    }
    Ok(object)
}

/// Puts changed bytes in the place of `old`, if it is still there unchanged.
pub(crate) async fn store(
    call: &RequestContext<'_>,
    old: &Arc<Object>,
    stored: Bytes,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    if dry_run {
        return create::decode_object(call, &old.key, old.revision, &stored).await;
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

fn prepare(call: &RequestContext<'_>, old: &Value, new: &mut Value) -> Result<(), Error> {
    for owned in ["uid", "creationTimestamp"] {
        if let Some(value) = old["metadata"].get(owned)
            && new["metadata"].get(owned).is_none()
        {
            metadata(new).insert(owned.into(), value.clone());
        }
    }
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "namespace"] {
        match old["metadata"].get(owned) {
            Some(value) if new["metadata"].get(owned).is_none() => {
                metadata(new).insert(owned.into(), value.clone());
            }
            None if owned != "namespace" => {
                metadata(new).remove(owned);
            }
            _ => {}
        }
    }
    restore(new, old, "generation");
    metadata(new).remove("selfLink");
    match action(call)? {
        None => (call.kind.prepare_update)(new, old),
        Some(SubresourceAction::View { prepare_update, .. }) => prepare_update(new, old, call.now),
        Some(SubresourceAction::Finalize) => namespaces::prepare_finalize(new, old),
        Some(SubresourceAction::Create { .. }) => return Err(Error::MethodNotAllowed),
    }
    if call.kind.generation && desired_changed(new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata(new).insert("generation".into(), json!(generation));
    }
    Ok(())
}

fn restore(new: &mut Value, old: &Value, field: &str) {
    match old["metadata"].get(field) {
        Some(value) => metadata(new).insert(field.into(), value.clone()),
        None => metadata(new).remove(field),
    };
}

/// Whether anything but metadata and status differs.
fn desired_changed(new: &Value, old: &Value) -> bool {
    fn desired(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let members = object.as_object().into_iter().flatten();
        members
            .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
    }
    !desired(new).eq(desired(old))
}

fn validate(call: &RequestContext<'_>, old: &Value, new: &Value) -> Result<(), Error> {
    let mut errors = FieldErrors::new();
    meta::validate_object_meta_update(&new["metadata"], &old["metadata"], &mut errors);
    meta::validate_finalizer_names(&new["metadata"], &mut errors);
    match action(call)? {
        None => (call.kind.validate_update)(new, old, &mut errors),
        Some(SubresourceAction::View { validate_update, .. }) => {
            validate_update(new, old, call.now, &mut errors);
        }
        Some(SubresourceAction::Finalize) => namespaces::validate_finalize(new, &mut errors),
        Some(SubresourceAction::Create { .. }) => {}
    }
    if errors.is_empty() { Ok(()) } else { Err(call.invalid(&call.path.name, errors)) }
}

fn action(call: &RequestContext<'_>) -> Result<Option<&'static SubresourceAction>, Error> {
    if call.path.subresource.is_empty() {
        return Ok(None);
    }
    let found = call.kind.subresource(&call.path.subresource);
    found.map(|s| Some(&s.action)).ok_or(Error::NoSuchResource)
}

/// What a client is told when the store could not do its part.
pub(crate) fn store_error(server: &Server, error: windlass_store::Error) -> Error {
    use windlass_store::Error as Store;
    tracing::error!(%error, "the store refused");
    let (reason, told) = match error {
        Store::Future { .. } => {
            ("behind", Error::Unavailable("the store is behind; try again".into()))
        }
        // The change may be on disk all the same, and be there after a restart.
        Store::Failed { .. } => ("failed", Error::Internal("the store failed".into())),
        Store::Full { .. } => {
            ("full", Error::Unavailable("the store is full; nothing was changed".into()))
        }
        Store::Unknown { .. } => {
            let text =
                "the store did not answer in time; whether anything was changed is not known";
            ("unknown", Error::Unavailable(text.into()))
        }
        Store::Conflict { .. }
        | Store::Compacted { .. }
        | Store::Corrupt { .. }
        | Store::Format { .. }
        | Store::Locked { .. }
        | Store::Refused { .. }
        | Store::Unavailable { .. }
        | Store::Closed => {
            let text = "the store is not available; nothing was changed";
            ("unavailable", Error::Unavailable(text.into()))
        }
    };
    server.metrics.store_refused(reason);
    told
}

/// The subject of errors that name the kind instead of the resource.
pub(crate) fn kind_error_subject(call: &RequestContext<'_>) -> ErrorSubject {
    ErrorSubject::new(call.served.group, call.kind.name, &call.path.name)
}
