//! What volumes are made of, as the server has it: watched, and asked for.
//!
//! - [`pods`]: the pods of this node.
//! - [`bundles`]: all ClusterTrustBundles.
//! - [`objects`]: those ConfigMaps and Secrets that volumes name.
//! - [`tokens`]: tokens of service accounts.
//!
//! Whoever makes volumes is woken by a [`SourceChange`] that says what has changed.

pub mod bundles;
pub mod objects;
pub mod pods;
pub mod tokens;

use std::future::Future;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::volume::id::VolumeId;

/// Something has changed that volumes depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceChange {
    /// A watched ConfigMap or Secret changed or was deleted.
    Object(objects::ObjectId),
    /// A token or a certificate of this volume.
    Volume(VolumeId),
}

/// Sends changes to the volume manager; the channel is unbounded.
pub type ChangeSender = mpsc::UnboundedSender<SourceChange>;

/// Something that goes on for as long as this is kept.
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
