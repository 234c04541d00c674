//! Key of a namespaced object.

use std::fmt;

use kube::{Resource, ResourceExt as _};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// Namespace of the object; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object within its namespace.
    pub name: String,
}

impl NamespacedName {
    pub fn from_object(object: &impl Resource) -> NamespacedName {
        NamespacedName { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
