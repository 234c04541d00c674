//! PATCH: an object changed by a description of the change.

use bytes::Bytes;
use serde_json::Value;
use windlass_api::apply::{self, ApplyError, FieldManager};
use windlass_api::decode as read;
use windlass_api::meta::ObjectMetaView;
use windlass_api::patch::{self, PatchError};
use windlass_api::schema::Schema;
use windlass_api::{limits as api_limits, timestamp};

use super::RequestContext;
use super::create::{self, WriteResult, metadata, stored_form};
use super::decode::{self, ExpectedType};
use super::update::{check_name, check_version, contended, record, replace, reset_fields};
use crate::error::Error;
use crate::limits;
use crate::request::negotiation::{PatchType, patch_type};
use crate::request::options::{FieldValidation, WriteOptions};

/// Changes the object the path names as the body says.
pub(crate) async fn patch(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let how = patch_type(call.headers)?;
    let options = WriteOptions::parse(call.query, "PatchOptions")?;
    options.check_patch(how == PatchType::Apply)?;
    match how {
        PatchType::Apply => apply(call, body, &options).await,
        _ => change(call, body, how, &options).await,
    }
}

async fn change(
    call: &RequestContext<'_>,
    body: &Bytes,
    how: PatchType,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let parsed = call.run_offloaded(body.len(), || parse(body, how)).await?;
    let manager = call.manager(&options.field_manager);
    for _ in 0..limits::PATCH_RETRIES {
        let found = call.cache()?.get(&call.key(&call.path.name));
        let old = found.ok_or_else(|| Error::NotFound(call.subject(&call.path.name)))?;
        let size = body.len().max(old.size());
        let merge = || {
            let current = old.value(call.kind, call.served);
            let patched = patched(call, &current, body, &parsed, how)?;
            if read::depth(&patched) > api_limits::MAX_DEPTH {
                return Err(Error::BadRequest("the patched object is nested too deeply".into()));
            }
            Ok(patched)
        };
        let patched = call.run_offloaded(size, merge).await?;
        let normalise = || normalised(call, patched, &parsed, how, options);
        let (new, warnings) = call.run_offloaded(size, normalise).await?;
        let asked = ObjectMetaView::from_object(&new).resource_version().to_owned();
        let compare = || {
            let (mut new, before) = (new, old.stored_value());
            check_version(call, &mut new, &old)?;
            record(call, Some(&before), &mut new, &manager);
            Ok((new, before))
        };
        let (new, before) = call.run_offloaded(size, compare).await?;
        match replace(call, &old, &before, new, options.dry_run).await {
            // A patch that names no version of its own is meant for whatever is there.
            Err(Error::Conflict(..)) if asked == old.revision.to_string() => {}
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

/// What a patch made of an object, in the stored version, and what is odd about it.
fn normalised(
    call: &RequestContext<'_>,
    patched: Value,
    parsed: &ParsedPatch,
    how: PatchType,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), Error> {
    let text = patched.to_string();
    let mut draft = decode::patched_in_normal_form(
        ExpectedType::object(call.kind, call.served),
        patched,
        parsed.duplicates.clone(),
        options.field_validation,
        || match how {
            PatchType::Strategic => decode::as_go_prints(&parsed.value),
            _ => text,
        },
    )?;
    decode::dedup_owner_references(&mut draft);
    check_type(call, &draft.value)?;
    let new = stored_form(call, draft.value);
    check_name(call, &new)?;
    Ok((new, draft.warnings))
}

/// A patch as JSON, where it is an object.
struct ParsedPatch {
    value: Value,
    duplicates: Vec<String>,
}

fn parse(body: &[u8], how: PatchType) -> Result<ParsedPatch, Error> {
    if how == PatchType::Json {
        return Ok(ParsedPatch { value: Value::Null, duplicates: Vec::new() });
    }
    match read::json(body) {
        Ok(decoded) => Ok(ParsedPatch { value: decoded.value, duplicates: decoded.duplicates }),
        Err(_) if how == PatchType::Merge => Err(Error::BadRequest("invalid JSON patch".into())),
        Err(error) => {
            let text = error.to_string();
            let why = text.rsplit("json parse error: ").next().unwrap_or(&text);
            Err(Error::BadRequest(format!("error decoding patch: {why}")))
        }
    }
}

fn patched(
    call: &RequestContext<'_>,
    current: &Value,
    body: &[u8],
    parsed: &ParsedPatch,
    how: PatchType,
) -> Result<Value, Error> {
    let schema = Schema::get();
    let result = match how {
        PatchType::Json => patch::json(current, body),
        PatchType::Merge => Ok(patch::merge(current, parsed.value.clone())),
        PatchType::Strategic | PatchType::Apply => match schema.lookup(call.served.type_name) {
            Some(id) => patch::strategic(schema, id, current, parsed.value.clone()),
            None => Err(PatchError::Failed("the kind has no schema".into())),
        },
    };
    let secret = ExpectedType::object(call.kind, call.served).is_secret();
    result.map_err(|error| match error {
        PatchError::Malformed(text) => Error::BadRequest(text),
        PatchError::TooManyOperations { .. } | PatchError::TooLarge(_) => {
            Error::TooLarge(error.to_string())
        }
        PatchError::Failed(text) => {
            tracing::debug!(
                text = if secret { decode::REDACTED } else { &text },
                "a patch does not fit"
            );
            Error::UnprocessablePatch
        }
        PatchError::Directive(_) if secret => {
            Error::Unclassified(format!("the patch does not fit: {}", decode::REDACTED))
        }
        PatchError::Directive(text) => Error::Unclassified(text),
    })
}

/// A patch cannot turn an object into one of another kind.
fn check_type(call: &RequestContext<'_>, value: &Value) -> Result<(), Error> {
    let (kind, version) = (value["kind"].as_str(), value["apiVersion"].as_str());
    let wanted = call.served.api_version();
    if kind == Some(call.kind.name) && version == Some(wanted.as_str()) {
        return Ok(());
    }
    let text = format!(
        "the patched object is of kind {:?} in {:?}, not {:?} in {wanted:?}",
        kind.unwrap_or_default(),
        version.unwrap_or_default(),
        call.kind.name
    );
    Err(Error::BadRequest(text))
}

/// Server-side apply: the fields in the body are the manager's, and are to be so.
async fn apply(
    call: &RequestContext<'_>,
    body: &Bytes,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let decode =
        || read::yaml(body).map_err(|e| Error::BadRequest(format!("error decoding YAML: {e}")));
    let decoded = call.run_offloaded(body.len(), decode).await?;
    let normalise = || prepare_applied(call, decoded, options);
    let (value, warnings) = call.run_offloaded(body.len(), normalise).await?;
    let schema = Schema::get();
    let id = schema.lookup(call.kind.stored().type_name);
    let id = id.ok_or_else(|| Error::Internal("the kind has no schema".into()))?;
    let (api_version, time) = (call.served.api_version(), timestamp::format(call.now));
    let who = FieldManager {
        manager: &options.field_manager,
        api_version: &api_version,
        subresource: &call.path.subresource,
        time: &time,
    };
    let reset = reset_fields(call);
    let force = options.force.unwrap_or(false);
    for _ in 0..limits::PATCH_RETRIES {
        let old = call.cache()?.get(&call.key(&call.path.name));
        let size = body.len().max(old.as_ref().map_or(0, |old| old.size()));
        let merge = || {
            let before = old.as_ref().map(|o| o.stored_value());
            let merged = apply::on_apply(schema, id, before.as_ref(), &value, &who, force, &reset);
            Ok((before, merged.map_err(|error| apply_error(call, &error))?))
        };
        let (before, merged) = call.run_offloaded(size, merge).await?;
        let Some(old) = old else {
            if !call.path.subresource.is_empty() {
                return Err(Error::NotFound(call.subject(&call.path.name)));
            }
            let value = merged.unwrap_or(value);
            return create::create_applied(call, value, warnings, options).await;
        };
        let Some(merged) = merged else {
            return Ok(WriteResult { object: old, created: false, warnings });
        };
        let normalise = || {
            let expected = ExpectedType::object(call.kind, call.kind.stored());
            let ignore = FieldValidation::Ignore;
            let mut new = decode::in_normal_form(expected, merged, Vec::new(), ignore)?.value;
            (call.kind.defaults)(&mut new);
            check_version(call, &mut new, &old)?;
            Ok(new)
        };
        let new = call.run_offloaded(size, normalise).await?;
        let before = before.unwrap_or_default();
        let asked = ObjectMetaView::from_object(&value).resource_version().to_owned();
        match replace(call, &old, &before, new, options.dry_run).await {
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

/// What was applied in the stored version, in normal form as far as it goes, and what is odd about it.
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
        metadata(&mut named).insert("name".into(), call.path.name.clone().into());
    }
    check_name(call, &named)
}

/// Brings what `value` says into the form it has in `known`, and leaves out nulls; what `known` has
/// more (defaults, empty structs) is not applied, and what it has not is left for the merge to judge.
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
