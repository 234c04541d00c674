//! Which volume, and which of its sources.

use std::fmt;

/// Whose volumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeOwner {
    /// Those of a pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Those of the machine itself.
    Host,
}

/// A volume. Displayed, it is `namespace/pod/volume`, or `host/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// Whose it is.
    pub owner: VolumeOwner,
    /// Its name.
    pub name: String,
}

/// A source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// Of which volume.
    pub volume: VolumeId,
    /// Its place in the list.
    pub index: usize,
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            VolumeOwner::Pod { namespace, name, .. } => write!(f, "{namespace}/{name}/{}", self.name),
            VolumeOwner::Host => write!(f, "host/{}", self.name),
        }
    }
}
