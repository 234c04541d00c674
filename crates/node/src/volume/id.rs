//! Which volume, and which of its sources.

use std::fmt;

/// The owner of a volume: a pod or the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeOwner {
    /// A pod, identified by namespace, name and UID.
    Pod {
        /// Namespace of the pod, as in `metadata.namespace`.
        namespace: String,
        /// Name of the pod, as in `metadata.name`.
        name: String,
        /// UID of the pod, which tells it from a namesake.
        uid: String,
    },
    /// Those of the machine itself.
    Host,
}

/// A volume. Displayed, it is `namespace/pod/volume`, or `host/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// The pod or host that the volume belongs to.
    pub owner: VolumeOwner,
    /// Name of the pod's volume or of the host projection.
    pub name: String,
}

/// A source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The volume that contains the source.
    pub volume: VolumeId,
    /// Its place in the list.
    pub index: usize,
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            VolumeOwner::Pod { namespace, name, .. } => {
                write!(f, "{namespace}/{name}/{}", self.name)
            }
            VolumeOwner::Host => write!(f, "host/{}", self.name),
        }
    }
}
