//! PATCH with `application/apply-patch`: server-side apply.

use bytes::Bytes;
use serde_json::Value;
use windlass_api::apply::{self, ApplyError};
use windlass_api::decode as read;
use windlass_api::meta::ObjectMetaView;
use windlass_api::schema::Schema;

use super::RequestContext;
use super::decode::{self, ExpectedType};
use super::patch::check_type;
use super::write_path::managed_fields::{FieldWriter, reset_fields};
use super::write_path::preconditions::{check_name, check_version, contended};
use super::write_path::{self, WriteOperation, WriteResult, metadata_mut, mutate};
use crate::error::Error;
use crate::limits;
use crate::request::options::WriteOptions;

/// Applies the fields in the body for the request's field manager, and creates the object if there is none.
pub(super) async fn apply(
    call: &RequestContext<'_>,
    body: &Bytes,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let decode = || read::yaml(body).map_err(|e| Error::BadRequest(format!("error decoding YAML: {e}")));
    let decoded = call.run_offloaded(body.len(), decode).await?;
    let normalise = || prepare_applied(call, decoded, options);
    let (value, warnings) = call.run_offloaded(body.len(), normalise).await?;
    let schema = Schema::get();
    let id = schema.lookup(call.kind.stored().type_name);
    let id = id.ok_or_else(|| Error::Internal("the kind has no schema".into()))?;
    let writer = FieldWriter::new(call, &options.field_manager);
    let reset = reset_fields(call);
    let force = options.force.unwrap_or(false);
    for _ in 0..limits::PATCH_RETRIES {
        let old = call.cache()?.get(&call.key(&call.path.name));
        let size = body.len().max(old.as_ref().map_or(0, |old| old.size()));
        let merge = || {
            let before = old.as_ref().map(|o| o.stored_value());
            let merged =
                apply::on_apply(schema, id, before.as_ref(), &value, &writer.as_manager(), force, &reset);
            Ok((before, merged.map_err(|error| apply_error(call, &error))?))
        };
        let (before, merged) = call.run_offloaded(size, merge).await?;
        let Some(old) = old else {
            if !call.path.subresource.is_empty() {
                return Err(Error::NotFound(call.subject(&call.path.name)));
            }
            let value = merged.unwrap_or(value);
            let complete = || mutate::complete_applied(call, value);
            let object = call.run_offloaded(size, complete).await?;
            let create = WriteOperation::Create;
            let object = write_path::write(call, create, object, options.dry_run).await?;
            return Ok(WriteResult { object, created: true, warnings });
        };
        let Some(merged) = merged else {
            return Ok(WriteResult { object: old, created: false, warnings });
        };
        let normalise = || {
            let mut new = mutate::merged_form(call, merged)?;
            check_version(call, &mut new, &old)?;
            Ok(new)
        };
        let new = call.run_offloaded(size, normalise).await?;
        let before = before.unwrap_or_default();
        let asked = ObjectMetaView::from_object(&value).resource_version().to_owned();
        let operation = WriteOperation::Replace { old: &old, before: &before };
        match write_path::write(call, operation, new, options.dry_run).await {
            Err(Error::Conflict(..)) if asked.is_empty() => {}
            other => {
                return match other {
                    Ok(object) => Ok(WriteResult { object, created: false, warnings }),
                    Err(error) => Err(error.warned(warnings)),
                };
            }
        }
    }
    Err(contended(call))
}

/// Converts what is applied to the stored version, normalized as far as the schema knows it. Returns it with its warnings.
fn prepare_applied(
    call: &RequestContext<'_>,
    decoded: read::DecodedBody,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), Error> {
    let mut value = decoded.value;
    check_applied(call, &value)?;
    let expected = ExpectedType::object(call.kind, call.served);
    let (duplicates, validation) = (decoded.duplicates, options.field_validation);
    let draft = decode::applied_in_normal_form(expected, value.clone(), duplicates, validation)?;
    normalize_to(&mut value, &draft.value);
    if let Some(convert) = call.served.convert {
        value = (convert.to_stored)(value);
    }
    Ok((value, draft.warnings))
}

fn apply_error(call: &RequestContext<'_>, error: &ApplyError) -> Error {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let (text, causes) = apply::conflict_status_parts(conflicts);
            Error::ApplyConflict(text, causes)
        }
        ApplyError::Invalid(text) => {
            let (path, served) = (call.path, call.served);
            Error::Unclassified(format!(
                "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {text}",
                path.namespace, path.name, served.group, served.version, call.kind.name
            ))
        }
    }
}

fn check_applied(call: &RequestContext<'_>, value: &Value) -> Result<(), Error> {
    check_type(call, value)?;
    if !ObjectMetaView::from_object(value).managed_fields().is_empty() {
        return Err(Error::BadRequest("metadata.managedFields must be nil".into()));
    }
    let mut named = value.clone();
    if ObjectMetaView::from_object(&named).name().is_empty() {
        metadata_mut(&mut named).insert("name".into(), call.path.name.clone().into());
    }
    check_name(call, &named)
}

/// Brings the fields of `value` into the form they have in `known`, without nulls. Fields that only `known` has (defaults,
/// empty structs) are not applied; fields that it lacks are left for the merge to reject.
fn normalize_to(value: &mut Value, known: &Value) {
    match (value, known) {
        (Value::Object(map), Value::Object(known)) => {
            map.retain(|name, inner| {
                let Some(known) = known.get(name) else { return true };
                normalize_to(inner, known);
                true
            });
            map.retain(|_, inner| !inner.is_null());
        }
        (Value::Array(list), Value::Array(known)) if list.len() == known.len() => {
            for (inner, known) in list.iter_mut().zip(known) {
                normalize_to(inner, known);
            }
        }
        (value, known) => *value = known.clone(),
    }
}
