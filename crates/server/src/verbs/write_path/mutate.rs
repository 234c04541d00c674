//! Mutate: the stored version of an object, its defaults, its namespace and its managedFields.

use serde_json::{Value, json};
use windlass_api::meta::ObjectMetaView;

use super::{managed_fields, metadata_mut};
use crate::error::Error;
use crate::registry::kind::Scope;
use crate::request::options::FieldValidation;
use crate::verbs::RequestContext;
use crate::verbs::decode::{self, ExpectedType};

/// Converts an object of the served version to the stored one and fills in defaults. It keeps the `apiVersion` it came
/// with, because some rules differ by version; encoding writes the stored one.
pub(crate) fn stored_form(call: &RequestContext<'_>, object: Value) -> Value {
    let mut object = match call.served.convert {
        Some(convert) => (convert.to_stored)(object),
        None => object,
    };
    (call.kind.defaults)(&mut object);
    object
}

/// Normalizes an object that server-side apply merged, which is in the stored version, and fills in defaults.
pub(crate) fn merged_form(call: &RequestContext<'_>, merged: Value) -> Result<Value, Error> {
    let stored = ExpectedType::object(call.kind, call.kind.stored());
    let normal = decode::in_normal_form(stored, merged, Vec::new(), FieldValidation::Ignore)?;
    let mut object = normal.value;
    (call.kind.defaults)(&mut object);
    Ok(object)
}

/// Sets the namespace and the managedFields of a new object.
pub(crate) fn complete_new(
    call: &RequestContext<'_>,
    mut object: Value,
    field_manager: &str,
) -> Result<Value, Error> {
    set_namespace(call, &mut object)?;
    strip_server_fields(&mut object)?;
    managed_fields::record(call, None, &mut object, &call.manager(field_manager));
    Ok(object)
}

/// Completes a new object that server-side apply merged; it keeps the managedFields that apply computed.
pub(crate) fn complete_applied(call: &RequestContext<'_>, merged: Value) -> Result<Value, Error> {
    let managed = merged["metadata"].get("managedFields").cloned();
    let mut object = merged_form(call, merged)?;
    set_namespace(call, &mut object)?;
    strip_server_fields(&mut object)?;
    let metadata = metadata_mut(&mut object);
    metadata.insert("name".into(), json!(call.path.name));
    if let Some(managed) = managed {
        metadata.insert("managedFields".into(), managed);
    }
    Ok(object)
}

/// Puts the object into the namespace of the path; if the object names one, it must be the same.
fn set_namespace(call: &RequestContext<'_>, object: &mut Value) -> Result<(), Error> {
    let own = ObjectMetaView::from_object(object).namespace().to_owned();
    match call.kind.scope {
        Scope::Cluster => {
            metadata_mut(object).remove("namespace");
        }
        Scope::Namespaced if own.is_empty() => {
            metadata_mut(object).insert("namespace".into(), json!(call.path.namespace));
        }
        Scope::Namespaced if own == call.path.namespace => {}
        Scope::Namespaced => {
            let text =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Error::BadRequest(text.into()));
        }
    }
    Ok(())
}

/// Removes metadata that a client cannot set on a new object.
fn strip_server_fields(object: &mut Value) -> Result<(), Error> {
    if !ObjectMetaView::from_object(object).resource_version().is_empty() {
        let text = "resourceVersion should not be set on objects to be created";
        return Err(Error::Unclassified(text.into()));
    }
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        metadata_mut(object).remove(owned);
    }
    Ok(())
}
