//! Where an object is that has a namespace.

use std::fmt;

use kube::{Resource, ResourceExt as _};

/// A namespace, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// In which namespace.
    pub namespace: String,
    /// Under which name.
    pub name: String,
}

impl NamespacedName {
    /// Where this one is.
    pub fn from_object(object: &impl Resource) -> NamespacedName {
        NamespacedName { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
