//! Object metadata: reading it, and the rules it must meet.

mod rules;

pub use rules::{
    validate_annotations, validate_field_manager, validate_finalizer_names, validate_labels,
    validate_object_meta, validate_object_meta_update,
};

use serde_json::{Map, Value};

/// A view of an object's metadata; a field that is absent, or of another type, reads as empty.
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
    /// Whether it is the controller, if said.
    pub controller: Option<bool>,
    /// Whether it waits for this object when it is deleted in the foreground, if said.
    pub block_owner_deletion: Option<bool>,
}

impl<'a> ObjectMetaView<'a> {
    /// The metadata of a whole object.
    pub fn from_object(object: &'a Value) -> Self {
        ObjectMetaView(object.get("metadata").and_then(Value::as_object))
    }

    /// The metadata itself, given as a value.
    pub fn new(metadata: &'a Value) -> Self {
        ObjectMetaView(metadata.as_object())
    }

    /// Name of the object; empty while only `generateName` is set.
    pub fn name(self) -> &'a str {
        self.text("name")
    }

    /// The prefix from which the server makes a name.
    pub fn generate_name(self) -> &'a str {
        self.text("generateName")
    }

    /// The namespace; empty for an object of the whole cluster.
    pub fn namespace(self) -> &'a str {
        self.text("namespace")
    }

    /// UID of the object: assigned by the server, never reused for a later object of the same name.
    pub fn uid(self) -> &'a str {
        self.text("uid")
    }

    /// The version of the object that this is.
    pub fn resource_version(self) -> &'a str {
        self.text("resourceVersion")
    }

    /// How often the wanted state has changed; 0 for kinds that do not count.
    pub fn generation(self) -> i64 {
        self.get("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// When the object was made.
    pub fn creation_timestamp(self) -> &'a str {
        self.text("creationTimestamp")
    }

    /// When the object is to be gone, if it is being deleted.
    pub fn deletion_timestamp(self) -> Option<&'a str> {
        self.get("deletionTimestamp").and_then(Value::as_str)
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(self) -> bool {
        self.deletion_timestamp().is_some()
    }

    /// How long the object may take to end, if it is being deleted.
    pub fn deletion_grace_period_seconds(self) -> Option<i64> {
        self.get("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }

    /// The value of one label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.get("labels")?.get(key)?.as_str()
    }

    /// Iterates over all labels as key and value; a value that is no string reads as empty.
    pub fn labels(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries("labels")
    }

    /// The value of one annotation.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.get("annotations")?.get(key)?.as_str()
    }

    /// Iterates over all annotations as key and value; a value that is no string reads as empty.
    pub fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries("annotations")
    }

    /// What must still be done before the object can go.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.list("finalizers").iter().filter_map(Value::as_str)
    }

    /// Whether there is such a finalizer.
    pub fn has_finalizer(self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }

    /// The objects this one belongs to.
    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference<'a>> {
        self.list("ownerReferences").iter().map(OwnerReference::new)
    }

    /// The owner that controls this object.
    pub fn controller(self) -> Option<OwnerReference<'a>> {
        self.owner_references().find(|owner| owner.controller == Some(true))
    }

    /// Returns the raw entries of `managedFields`, empty if there are none.
    pub fn managed_fields(self) -> &'a [Value] {
        self.list("managedFields")
    }

    /// One field as it is.
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
