//! What a request requires of the stored object: its name, its uid, its resourceVersion.

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::meta::ObjectMetaView;

use super::metadata_mut;
use crate::error::{Error, ErrorSubject};
use crate::object::Object;
use crate::registry::kind::Scope;
use crate::request::options::{self, DeleteOptions};
use crate::verbs::RequestContext;

/// Checks that the object in the body is the one that the path names.
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
    if call.kind.scope == Scope::Namespaced && !namespace.is_empty() && namespace != path.namespace {
        return Err(Error::BadRequest(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            path.namespace
        )));
    }
    Ok(())
}

/// Checks that the uid in the body, if it has one, is that of the stored object.
pub(crate) fn check_uid(call: &RequestContext<'_>, new: &Value, old: &Value) -> Result<(), Error> {
    let (asked, there) = (ObjectMetaView::from_object(new).uid(), ObjectMetaView::from_object(old).uid());
    if asked.is_empty() || asked == there {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {there}");
    Err(Error::Conflict(call.subject(&call.path.name), why))
}

/// Checks that the resourceVersion in the body, if it has one, is the current one.
pub(crate) fn check_version(call: &RequestContext<'_>, new: &mut Value, old: &Object) -> Result<(), Error> {
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
        metadata_mut(new).insert("resourceVersion".into(), json!(old.revision.to_string()));
        return Ok(());
    }
    match options::parse_version(&asked) {
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

/// Checks the preconditions in the options of a deletion. Their errors name the kind instead of the resource.
pub(super) fn check_deletion(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
    old: &Object,
    before: &Value,
) -> Result<(), Error> {
    let subject = || ErrorSubject::new(call.served.group, call.kind.name, &call.path.name);
    let there = ObjectMetaView::from_object(before).uid();
    if let Some(asked) = &options.uid
        && asked != there
    {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({there}). The object might have been deleted and then recreated"
        );
        return Err(Error::Conflict(subject(), why));
    }
    if let Some(asked) = &options.resource_version
        && *asked != old.revision.to_string()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({}). The object might have been modified",
            old.revision
        );
        return Err(Error::Conflict(subject(), why));
    }
    Ok(())
}

/// 409: another write came first.
pub(crate) fn modified(call: &RequestContext<'_>) -> Error {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Error::Conflict(call.subject(&call.path.name), why.into())
}

/// 409: other writes came first in every attempt.
pub(crate) fn contended(call: &RequestContext<'_>) -> Error {
    Error::Conflict(
        call.subject(&call.path.name),
        "too many concurrent updates of the object; try again".into(),
    )
}
