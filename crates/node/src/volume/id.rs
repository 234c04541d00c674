//! IDs of volumes and of their sources.

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
        /// UID of the pod, which distinguishes it from another pod of the same name.
        uid: String,
    },
    /// The host, for host projections.
    Host,
}

/// ID of a volume, displayed as `namespace/pod/volume` or `host/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// The pod or host that the volume belongs to.
    pub owner: VolumeOwner,
    /// Name of the pod's volume or of the host projection.
    pub name: String,
}

/// ID of a source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The volume that contains the source.
    pub volume: VolumeId,
    /// Index of the source in the list.
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
