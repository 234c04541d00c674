//! Prepare: the fields that only the server writes.

use serde_json::{Value, json};
use time::Duration;
use windlass_api::meta::ObjectMetaView;
use windlass_api::timestamp;

use super::{WriteOperation, generated_name, metadata_mut, subresource_action};
use crate::error::Error;
use crate::registry::kind::SubresourceAction;
use crate::registry::namespaces;
use crate::request::options::{DeleteOptions, DeletionPropagation};
use crate::verbs::RequestContext;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// A century: a longer grace period would exceed the dates that can be written.
const LONGEST_GRACE: i64 = 100 * 365 * 24 * 60 * 60;

/// Sets and resets what the server owns. Returns whether it generated the object's name.
pub(super) fn prepare(
    call: &RequestContext<'_>,
    operation: WriteOperation<'_>,
    object: &mut Value,
) -> Result<bool, Error> {
    match operation {
        WriteOperation::Create => Ok(prepare_new(call, object)),
        WriteOperation::Replace { before, .. } => prepare_changed(call, before, object).map(|()| false),
    }
}

fn prepare_new(call: &RequestContext<'_>, object: &mut Value) -> bool {
    let metadata = metadata_mut(object);
    metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".into(), json!(timestamp::format(call.now)));
    metadata.remove("generation");
    if call.kind.generation {
        metadata.insert("generation".into(), json!(1));
    }
    (call.kind.prepare_create)(object);
    (call.kind.prepare_create_as)(object, call.user);
    let generate = generated_name::is_needed(object);
    if generate {
        generated_name::assign(object);
    }
    generate
}

fn prepare_changed(call: &RequestContext<'_>, old: &Value, new: &mut Value) -> Result<(), Error> {
    for owned in ["uid", "creationTimestamp"] {
        if let Some(value) = old["metadata"].get(owned)
            && new["metadata"].get(owned).is_none()
        {
            metadata_mut(new).insert(owned.into(), value.clone());
        }
    }
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "namespace"] {
        match old["metadata"].get(owned) {
            Some(value) if new["metadata"].get(owned).is_none() => {
                metadata_mut(new).insert(owned.into(), value.clone());
            }
            None if owned != "namespace" => {
                metadata_mut(new).remove(owned);
            }
            _ => {}
        }
    }
    restore(new, old, "generation");
    metadata_mut(new).remove("selfLink");
    match subresource_action(call)? {
        None => (call.kind.prepare_update)(new, old),
        Some(SubresourceAction::View { prepare_update, .. }) => prepare_update(new, old, call.now),
        Some(SubresourceAction::Finalize) => namespaces::prepare_finalize(new, old),
        Some(SubresourceAction::Create { .. }) => return Err(Error::MethodNotAllowed),
    }
    if call.kind.generation && desired_changed(new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata_mut(new).insert("generation".into(), json!(generation));
    }
    Ok(())
}

fn restore(new: &mut Value, old: &Value, field: &str) {
    match old["metadata"].get(field) {
        Some(value) => metadata_mut(new).insert(field.into(), value.clone()),
        None => metadata_mut(new).remove(field),
    };
}

/// Whether anything but metadata and status differs.
fn desired_changed(new: &Value, old: &Value) -> bool {
    fn desired(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let members = object.as_object().into_iter().flatten();
        members.filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
    }
    !desired(new).eq(desired(old))
}

/// Marks an object for deletion: when it goes, and which finalizers must be done first.
pub(super) fn mark_for_deletion(call: &RequestContext<'_>, options: &DeleteOptions, value: &mut Value) {
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
    let already = meta.is_deleting().then(|| meta.deletion_grace_period_seconds().unwrap_or_default());
    let fields = metadata_mut(value);
    if finalizers.is_empty() {
        fields.remove("finalizers");
    } else {
        fields.insert("finalizers".into(), json!(finalizers));
    }
    // A second deletion can only shorten the grace period.
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
