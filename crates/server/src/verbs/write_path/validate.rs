//! Validate: the size of an object, its metadata and the rules of its kind.

use serde_json::Value;
use windlass_api::field::FieldErrors;
use windlass_api::meta::{self, ObjectMetaView};

use super::{WriteOperation, subresource_action};
use crate::error::Error;
use crate::limits;
use crate::registry::kind::{Scope, SubresourceAction};
use crate::registry::namespaces;
use crate::verbs::RequestContext;

/// Rejects an object that Kubernetes on etcd could not store either, with the error of etcd.
pub(super) fn check_size(stored: &[u8]) -> Result<(), Error> {
    if stored.len() > limits::OBJECT {
        let text = format!("etcdserver: request is too large ({} bytes)", stored.len());
        return Err(Error::TooLarge(text));
    }
    Ok(())
}

/// Checks metadata and the rules of the kind. All violations go into one error.
pub(super) fn validate(
    call: &RequestContext<'_>,
    operation: WriteOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    let mut errors = FieldErrors::new();
    match operation {
        WriteOperation::Create => validate_new(call, object, &mut errors),
        WriteOperation::Replace { before, .. } => {
            validate_changed(call, before, object, &mut errors)?;
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(call.invalid(ObjectMetaView::from_object(object).name(), errors))
}

fn validate_new(call: &RequestContext<'_>, value: &Value, errors: &mut FieldErrors) {
    let namespaced = call.kind.scope == Scope::Namespaced;
    meta::validate_object_meta(&value["metadata"], namespaced, call.kind.name_rule, errors);
    meta::validate_finalizer_names(&value["metadata"], errors);
    (call.kind.validate_csr)(value, call.csr, errors);
    (call.kind.validate_create)(value, errors);
}

fn validate_changed(
    call: &RequestContext<'_>,
    old: &Value,
    new: &Value,
    errors: &mut FieldErrors,
) -> Result<(), Error> {
    meta::validate_object_meta_update(&new["metadata"], &old["metadata"], errors);
    meta::validate_finalizer_names(&new["metadata"], errors);
    match subresource_action(call)? {
        None => (call.kind.validate_update)(new, old, errors),
        Some(SubresourceAction::View { validate_update, .. }) => {
            validate_update(new, old, call.now, errors);
        }
        Some(SubresourceAction::Finalize) => namespaces::validate_finalize(new, errors),
        Some(SubresourceAction::Create { .. }) => {}
    }
    Ok(())
}
