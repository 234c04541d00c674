//! What is known of each volume, for metrics, people and the server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;

use crate::metrics::volumes::SourceType;
use crate::volume::content::{Digest, Select};
use crate::volume::id::VolumeId;

/// All volumes.
pub type Reports = Arc<BTreeMap<VolumeId, Arc<VolumeReport>>>;

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeReport {
    /// Where it is.
    pub directory: PathBuf,
    /// Of what it is made.
    pub sources: Vec<SourceType>,
    /// Whether it has files.
    pub ready: bool,
    /// Why it does not have those that it should have now.
    pub blocked: Option<String>,
    /// When its files last changed, in this life of the process.
    pub changed: Option<OffsetDateTime>,
    /// Which anchors are in its files: one for each source of anchors.
    pub anchors: Vec<AnchorsReport>,
}

/// Anchors in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorsReport {
    /// Which bundles were asked for.
    pub select: Select,
    /// Whether there may be none.
    pub optional: bool,
    /// Where the file is in the volume.
    pub path: String,
    /// What is in the file; none if it is not known since the process began.
    pub carried: Option<Carried>,
}

/// What is in a file of anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The digest of all its anchors.
    pub digest: Digest,
    /// The bundles that they come from, by name.
    pub bundles: Vec<CarriedBundle>,
}

/// A bundle in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedBundle {
    /// Its name.
    pub name: String,
    /// Its generation, or 0.
    pub generation: i64,
    /// The digest of its anchors.
    pub digest: Digest,
}
