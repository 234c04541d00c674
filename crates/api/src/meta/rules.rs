//! Validation of `ObjectMeta`, in the order in which Kubernetes checks it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ObjectMetaView, OwnerReference};
use crate::field::{FieldErrors, FieldPath};
use crate::names;

/// Maximum total size of all annotation keys and values, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
const MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const IMMUTABLE: &str = "field is immutable";

/// Validates the metadata of an object with its kind's `name_rule`.
///
/// The name must already be generated.
pub fn validate_object_meta(
    metadata: &Value,
    namespaced: bool,
    name_rule: impl Fn(&str, bool) -> Vec<String>,
    errors: &mut FieldErrors,
) {
    let meta = ObjectMetaView::new(metadata);
    let path = FieldPath::new("metadata");
    let (prefix, name) = (meta.generate_name(), meta.name());
    if !prefix.is_empty() {
        errors.invalid_each(&path.child("generateName"), prefix, name_rule(prefix, true));
    }
    if name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        errors.invalid_each(&path.child("name"), name, name_rule(name, false));
    }
    validate_namespace(&path.child("namespace"), meta.namespace(), namespaced, errors);
    if meta.generation() < 0 {
        let generation = Value::from(meta.generation());
        let at = path.child("generation");
        errors.invalid(&at, &generation, "must be greater than or equal to 0");
    }
    validate_maps_and_owners(&path, meta, errors);
    validate_finalizers(&path.child("finalizers"), meta, errors);
    validate_managed_fields(&path.child("managedFields"), meta, errors);
}

/// Validates an update of an object's metadata.
///
/// The server must already have restored what clients cannot change: an absent uid, the creation
/// and deletion timestamps, and the generation.
pub fn validate_object_meta_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata");
    let (new, old) = (ObjectMetaView::new(new), ObjectMetaView::new(old));
    if old.is_deleting() {
        validate_no_new_finalizers(&path.child("finalizers"), new, old, errors);
    }
    if new.resource_version().is_empty() {
        let at = path.child("resourceVersion");
        errors.invalid_str(&at, "", "must be specified for an update");
    }
    if new.generation() < old.generation() {
        let generation = Value::from(new.generation());
        errors.invalid(&path.child("generation"), &generation, "must not be decremented");
    }
    for (field, is, was) in [
        ("name", new.name(), old.name()),
        ("namespace", new.namespace(), old.namespace()),
        ("uid", new.uid(), old.uid()),
    ] {
        if is != was {
            errors.invalid_str(&path.child(field), is, IMMUTABLE);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (is, was) = (new.get(field), old.get(field));
        let (is, was) = (is.unwrap_or(&Value::Null), was.unwrap_or(&Value::Null));
        if is != was {
            errors.invalid(&path.child(field), is, IMMUTABLE);
        }
    }
    validate_maps_and_owners(&path, new, errors);
    validate_managed_fields(&path.child("managedFields"), new, errors);
}

fn validate_maps_and_owners(path: &FieldPath, meta: ObjectMetaView<'_>, errors: &mut FieldErrors) {
    if let Some(labels) = meta.get("labels") {
        validate_labels(&path.child("labels"), labels, errors);
    }
    if let Some(annotations) = meta.get("annotations") {
        validate_annotations(&path.child("annotations"), annotations, errors);
    }
    validate_owner_references(&path.child("ownerReferences"), meta, errors);
}

fn validate_namespace(path: &FieldPath, namespace: &str, namespaced: bool, errors: &mut FieldErrors) {
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(path, ""),
        (false, false) => errors.forbidden(path, "not allowed on this type"),
        (false, true) => {}
        (true, false) => {
            errors.invalid_each(path, namespace, names::dns1123_label(namespace));
        }
    }
}

/// Validates label keys and values; a value that is not an object has none.
pub fn validate_labels(path: &FieldPath, labels: &Value, errors: &mut FieldErrors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.invalid_each(path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(path, value, names::label_value(value));
    }
}

/// Validates annotation keys, ignoring case, and the total size.
pub fn validate_annotations(path: &FieldPath, annotations: &Value, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        errors.invalid_each(path, key, names::qualified_name(&key.to_lowercase()));
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}

fn validate_owner_references(path: &FieldPath, meta: ObjectMetaView<'_>, errors: &mut FieldErrors) {
    let mut controller: Option<OwnerReference<'_>> = None;
    let mut all: Option<String> = None;
    for (i, owner) in meta.owner_references().enumerate() {
        validate_owner_reference(&path.index(i), owner, errors);
        if owner.controller != Some(true) {
            continue;
        }
        let Some(first) = controller else {
            controller = Some(owner);
            continue;
        };
        // Each of these errors contains the whole list.
        let all = all.get_or_insert_with(|| {
            let shown: Vec<String> = meta.owner_references().map(format_owner).collect();
            format!("[{}]", shown.join(","))
        });
        let words = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for \
             {}/{} and {}/{}",
            first.kind, first.name, owner.kind, owner.name
        );
        errors.invalid_shown(path, all, &words);
    }
}

fn validate_owner_reference(path: &FieldPath, owner: OwnerReference<'_>, errors: &mut FieldErrors) {
    let at_version = path.child("apiVersion");
    if owner.api_version.is_empty() {
        errors.required(&at_version, "must not be empty");
    } else if version(owner.api_version).is_empty() {
        let detail = "must be <group>/<version> or <version>";
        errors.invalid_str(&at_version, owner.api_version, detail);
    }
    for (field, value) in [("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)] {
        if value.is_empty() {
            errors.required(&path.child(field), "must not be empty");
        }
    }
    if matches!(owner.api_version, "v1" | "/v1") && owner.kind == "Event" {
        let words = "/v1, Kind=Event is disallowed from being an owner";
        errors.invalid_shown(path, &format_owner(owner), words);
    }
}

/// Returns the version of `version` or `group/version`; empty for anything else.
fn version(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => api_version,
        Some((_, version)) if !version.contains('/') => version,
        Some(_) => "",
    }
}

/// Formats the reference as JSON with upstream's field order.
fn format_owner(owner: OwnerReference<'_>) -> String {
    let text = |value: &str| Value::from(value).to_string();
    let flag =
        |name: &str, value: Option<bool>| value.map_or(String::new(), |value| format!(",\"{name}\":{value}"));
    format!(
        "{{\"apiVersion\":{},\"kind\":{},\"name\":{},\"uid\":{}{}{}}}",
        text(owner.api_version),
        text(owner.kind),
        text(owner.name),
        text(owner.uid),
        flag("controller", owner.controller),
        flag("blockOwnerDeletion", owner.block_owner_deletion),
    )
}

fn validate_finalizers(path: &FieldPath, meta: ObjectMetaView<'_>, errors: &mut FieldErrors) {
    for finalizer in meta.finalizers() {
        errors.invalid_each(path, finalizer, names::qualified_name(finalizer));
    }
    if meta.has_finalizer("orphan") && meta.has_finalizer("foregroundDeletion") {
        let all = Value::from(meta.finalizers().collect::<Vec<_>>());
        let words = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(path, &all, words);
    }
}

/// Checks that finalizers without a prefix are known to Kubernetes.
///
/// Built-in kinds have this rule in addition to those of [`validate_object_meta`].
pub fn validate_finalizer_names(metadata: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("finalizers");
    for (i, finalizer) in ObjectMetaView::new(metadata).finalizers().enumerate() {
        let known = matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !known && !finalizer.contains('/') {
            let words = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid_str(&path.index(i), finalizer, words);
        }
    }
}

fn validate_no_new_finalizers(
    path: &FieldPath,
    new: ObjectMetaView<'_>,
    old: ObjectMetaView<'_>,
    errors: &mut FieldErrors,
) {
    let known: BTreeSet<&str> = old.finalizers().collect();
    let added: BTreeSet<&str> = new.finalizers().filter(|f| !known.contains(f)).collect();
    if added.is_empty() {
        return;
    }
    let shown: Vec<String> = added.into_iter().map(crate::field::quote).collect();
    errors.forbidden(
        path,
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            shown.join(", ")
        ),
    );
}

fn validate_managed_fields(path: &FieldPath, meta: ObjectMetaView<'_>, errors: &mut FieldErrors) {
    for (i, entry) in meta.managed_fields().iter().enumerate() {
        let path = path.index(i);
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let operation = text("operation");
        if !matches!(operation, "Apply" | "Update") {
            let words = "must be `Apply` or `Update`";
            errors.invalid_str(&path.child("operation"), operation, words);
        }
        let fields_type = text("fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.invalid_str(&path.child("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        validate_field_manager(&path.child("manager"), text("manager"), errors);
        if text("subresource").len() > SUBRESOURCE_MAX {
            errors.too_long(&path.child("subresource"), SUBRESOURCE_MAX);
        }
    }
}

/// Validates a field manager name: short and printable characters only.
pub fn validate_field_manager(path: &FieldPath, manager: &str, errors: &mut FieldErrors) {
    if manager.len() > MANAGER_MAX {
        errors.too_long(path, MANAGER_MAX);
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        if errors.is_full() {
            break;
        }
        let words = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.invalid_str(path, manager, &words);
    }
}

/// Returns true for printable characters and the plain space, as defined by Go.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // The standard library's debug escaping covers exactly the non-printable characters, except
    // that it also escapes a leading combining character; the leading `a` avoids that.
    let mut buffer = String::from("a");
    buffer.push(c);
    buffer.escape_debug().eq(buffer.chars())
}
