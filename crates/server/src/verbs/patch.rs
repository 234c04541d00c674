//! PATCH: changes an object by a JSON patch, a merge patch or a strategic merge patch.

use bytes::Bytes;
use serde_json::Value;
use windlass_api::decode as read;
use windlass_api::limits as api_limits;
use windlass_api::meta::ObjectMetaView;
use windlass_api::patch::{self, PatchError};
use windlass_api::schema::Schema;

use super::decode::{self, ExpectedType};
use super::write_path::preconditions::{check_name, check_version, contended};
use super::write_path::{self, WriteOperation, WriteResult, managed_fields, mutate};
use super::{RequestContext, apply};
use crate::error::Error;
use crate::limits;
use crate::request::negotiation::{PatchType, patch_type};
use crate::request::options::WriteOptions;

/// Applies the patch in the body to the object that the path names.
pub(crate) async fn patch(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let how = patch_type(call.headers)?;
    let options = WriteOptions::parse(call.query, "PatchOptions")?;
    options.check_patch(how == PatchType::Apply)?;
    match how {
        PatchType::Apply => apply::apply(call, body, &options).await,
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
                return Err(Error::BadRequest("patched object is nested too deeply".into()));
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
            managed_fields::record(call, Some(&before), &mut new, &manager);
            Ok((new, before))
        };
        let (new, before) = call.run_offloaded(size, compare).await?;
        let operation = WriteOperation::Replace { old: &old, before: &before };
        match write_path::write(call, operation, new, options.dry_run).await {
            // A patch without a resourceVersion applies to whatever is stored.
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

/// Converts a patched object to the stored version. Returns it with its warnings.
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
    let new = mutate::stored_form(call, draft.value);
    check_name(call, &new)?;
    Ok((new, draft.warnings))
}

/// A patch parsed as JSON, if it is an object.
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
        PatchError::TooManyOperations { .. } | PatchError::TooLarge(_) => Error::TooLarge(error.to_string()),
        PatchError::Failed(text) => {
            tracing::debug!(text = if secret { decode::REDACTED } else { &text }, "patch does not apply");
            Error::UnprocessablePatch
        }
        PatchError::Directive(_) if secret => {
            Error::Unclassified(format!("the patch does not apply: {}", decode::REDACTED))
        }
        PatchError::Directive(text) => Error::Unclassified(text),
    })
}

/// Checks that a patch does not change the kind of the object.
pub(super) fn check_type(call: &RequestContext<'_>, value: &Value) -> Result<(), Error> {
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
