//! Where an object is that has a namespace.

use std::fmt;

use kube::{Resource, ResourceExt as _};

/// A namespace, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespaced {
    /// In which namespace.
    pub namespace: String,
    /// Under which name.
    pub name: String,
}

impl Namespaced {
    /// Where this one is.
    pub fn of(object: &impl Resource) -> Namespaced {
        Namespaced { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for Namespaced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
