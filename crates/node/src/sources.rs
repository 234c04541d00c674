//! Sources of volumes on the API server: watched or requested.
//!
//! - [`pods`]: the pods of this node.
//! - [`bundles`]: all ClusterTrustBundles.
//! - `optional_kind`: watch of a kind that the server may not have.
//! - [`objects`]: the ConfigMaps and Secrets that volumes reference.
//! - [`revocation_lists`]: all CertificateRevocationLists.
//! - [`tokens`]: service account tokens.
//!
//! A [`SourceChange`] tells the volume manager what has changed.

pub mod bundles;
pub mod objects;
mod optional_kind;
pub mod pods;
pub mod revocation_lists;
pub mod tokens;

use std::future::Future;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::volume::id::VolumeId;

/// A change of something that volumes depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceChange {
    /// A watched ConfigMap or Secret changed or was deleted.
    Object(objects::ObjectId),
    /// A token or certificate of this volume changed.
    Volume(VolumeId),
}

/// Sends changes to the volume manager; the channel is unbounded.
pub type ChangeSender = mpsc::UnboundedSender<SourceChange>;

struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
