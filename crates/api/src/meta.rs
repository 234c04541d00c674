//! Object metadata: read access and validation.

mod rules;

pub use rules::{
    validate_annotations, validate_field_manager, validate_finalizer_names, validate_labels,
    validate_object_meta, validate_object_meta_update,
};

use serde_json::{Map, Value};

/// View of an object's metadata; a field that is absent or has another type reads as empty.
#[derive(Clone, Copy, Debug)]
pub struct ObjectMetaView<'a>(Option<&'a Map<String, Value>>);

/// One entry of `metadata.ownerReferences`; absent text fields read as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner, empty if absent.
    pub kind: &'a str,
    /// Name of the owner, empty if absent.
    pub name: &'a str,
    /// UID of the owner, which distinguishes it from a later object of the same name.
    pub uid: &'a str,
    /// Whether the owner is the controller; `None` if unset.
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object; `None` if unset.
    pub block_owner_deletion: Option<bool>,
}

impl<'a> ObjectMetaView<'a> {
    /// Returns a view of an object's metadata.
    pub fn from_object(object: &'a Value) -> Self {
        ObjectMetaView(object.get("metadata").and_then(Value::as_object))
    }

    /// Creates a view of a metadata value.
    pub fn new(metadata: &'a Value) -> Self {
        ObjectMetaView(metadata.as_object())
    }

    /// Name of the object; empty while only `generateName` is set.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    /// Prefix from which the server generates a name.
    pub fn generate_name(self) -> &'a str {
        self.text("generateName")
    }

    /// Namespace of the object; empty for a cluster-scoped object.
    pub fn namespace(self) -> &'a str {
        self.text("namespace")
    }

    /// UID of the object: assigned by the server, never reused for a later object of the same name.
    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    /// Resource version of this revision of the object.
    pub fn resource_version(self) -> &'a str {
        self.text("resourceVersion")
    }

    /// Generation: number of spec changes; 0 for kinds without generation.
    pub fn generation(self) -> i64 {
        self.get("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Creation time of the object, in RFC 3339.
    pub fn creation_timestamp(self) -> &'a str {
        self.text("creationTimestamp")
    }

    /// Time by which the object should be deleted; `None` unless it is being deleted.
    pub fn deletion_timestamp(self) -> Option<&'a str> {
        self.get("deletionTimestamp").and_then(Value::as_str)
    }

    /// Returns true if a deletion timestamp is set.
    pub fn is_deleting(self) -> bool {
        self.deletion_timestamp().is_some()
    }

    /// Grace period for termination in seconds, if the object is being deleted.
    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.get("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }

    /// Returns the value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.get("labels")?.get(key)?.as_str()
    }

    /// Iterates over all labels as key and value; a non-string value reads as empty.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries("labels")
    }

    /// Returns the value of an annotation.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.get("annotations")?.get(key)?.as_str()
    }

    /// Iterates over all annotations as key and value; a non-string value reads as empty.
    pub fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries("annotations")
    }

    /// Finalizers that block removal of the object.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.list("finalizers").iter().filter_map(Value::as_str)
    }

    /// Returns true if the finalizer `name` is present.
    pub fn has_finalizer(self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }

    /// Iterates over the owner references of the object.
    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference<'a>> {
        self.list("ownerReferences").iter().map(OwnerReference::new)
    }

    /// Returns the owner reference of the controller.
    pub fn controller(self) -> Option<OwnerReference<'a>> {
        self.owner_references().find(|owner| owner.controller == Some(true))
    }

    /// Returns the raw entries of `managedFields`, empty if there are none.
    pub fn managed_fields(self) -> &'a [Value] {
        self.list("managedFields")
    }

    /// Returns a metadata field as raw JSON.
    pub fn get(self, field: &str) -> Option<&'a Value> {
        self.0?.get(field)
    }

    fn text(self, field: &str) -> &'a str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(self, field: &str) -> &'a [Value] {
        self.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn entries(self, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let map = self.get(field).and_then(Value::as_object);
        map.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()))
    }
}

impl<'a> OwnerReference<'a> {
    fn new(value: &'a Value) -> Self {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let flag = |field: &str| value.get(field).and_then(Value::as_bool);
        OwnerReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: flag("controller"),
            block_owner_deletion: flag("blockOwnerDeletion"),
        }
    }
}

#[cfg(test)]
mod tests;
