//! Volumes of host projections.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::managed_volume::{OwnerObject, VolumeSpec};
use super::pod_volumes_root::is_path_element;
use crate::projections::HostProjection;
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume::plan::BlockedReason;
use crate::volume::writer::VolumeWriter;
use windlass_runtime::durable::{DiskError, FileSystem};

/// Directory below the root directory with the certificate state of all projections.
const STATE_DIRECTORY: &str = "projections";

/// Returns the directory with the certificate state of one projection.
pub fn state_directory(root_dir: &Path, name: &str) -> PathBuf {
    root_dir.join(STATE_DIRECTORY).join(name)
}

/// Removes the certificate state of a projection.
pub fn remove_state(root_dir: &Path, files: &FileSystem, name: &str) -> Result<(), DiskError> {
    match files.open_directory(&root_dir.join(STATE_DIRECTORY))? {
        Some(directory) => directory.remove_all(OsStr::new(name)),
        None => Ok(()),
    }
}

/// The projections that are managed, by the IDs of their volumes.
#[derive(Default)]
pub struct HostTracker {
    projections: BTreeMap<VolumeId, Arc<HostProjection>>,
}

/// Difference between two versions of the projections file.
#[derive(Debug, Default, PartialEq)]
pub struct HostChanges {
    pub removed: Vec<(VolumeId, Arc<HostProjection>)>,
    pub applied: Vec<(VolumeId, Arc<HostProjection>)>,
}

impl HostTracker {
    /// Replaces the set of projections, and returns what changed.
    pub fn sync(&mut self, projections: &[Arc<HostProjection>]) -> HostChanges {
        let id = |name: &str| VolumeId { owner: VolumeOwner::Host, name: name.to_owned() };
        let wanted = projections.iter().map(|one| (id(&one.name), one.clone()));
        let wanted = wanted.collect::<BTreeMap<_, _>>();
        let before = std::mem::replace(&mut self.projections, wanted);
        let applied = self.projections.iter().filter(|(id, one)| before.get(*id) != Some(*one));
        let applied = applied.map(|(id, one)| (id.clone(), one.clone())).collect();
        let is_removed = |id: &VolumeId| !self.projections.contains_key(id);
        let removed = before.into_iter().filter(|(id, _)| is_removed(id)).collect();
        HostChanges { removed, applied }
    }
}

pub fn host_volume(projection: &Arc<HostProjection>, files: &FileSystem) -> VolumeSpec {
    let definition = match is_path_element(&projection.name) {
        true => Ok(Arc::new(projection.definition.clone())),
        false => Err(BlockedReason(vec![invalid_name(&projection.name)])),
    };
    VolumeSpec {
        owner: OwnerObject::Host(projection.clone()),
        definition,
        readers: projection.readers,
        writer: Some(VolumeWriter::new(&projection.directory, files.clone())),
    }
}

/// Returns why a name cannot become a directory.
pub fn invalid_name(name: &str) -> String {
    format!("{name:?} is not a valid directory name")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::field::FieldPath;

    use super::*;
    use crate::volume::definition::VolumeDefinition;
    use crate::volume::plan::VolumeReaders;

    fn projection(name: &str, directory: &str) -> Arc<HostProjection> {
        let source = serde_json::from_value(json!({"sources": []})).unwrap();
        Arc::new(HostProjection {
            name: name.into(),
            directory: directory.into(),
            namespace: "default".into(),
            definition: VolumeDefinition::parse(&source, &FieldPath::new("p")).unwrap(),
            readers: VolumeReaders::default(),
            common_name: None,
            names: Default::default(),
            stores: Vec::new(),
            notify: Vec::new(),
        })
    }

    #[test]
    fn only_differences_are_applied() {
        let names = |all: &[(VolumeId, Arc<HostProjection>)]| {
            all.iter().map(|(id, _)| id.name.clone()).collect::<Vec<_>>()
        };
        let mut tracker = HostTracker::default();
        let (a, b) = (projection("a", "/a"), projection("b", "/b"));
        let changes = tracker.sync(&[a.clone(), b]);
        assert_eq!(
            (names(&changes.removed), names(&changes.applied)),
            (vec![], vec!["a".into(), "b".into()])
        );
        assert_eq!(tracker.sync(&[a.clone(), projection("b", "/b")]), HostChanges::default());
        let changes = tracker.sync(&[a.clone(), projection("b", "/other")]);
        assert_eq!((names(&changes.removed), names(&changes.applied)), (vec![], vec!["b".into()]));
        let changes = tracker.sync(&[a]);
        assert_eq!((names(&changes.removed), names(&changes.applied)), (vec!["b".into()], vec![]));
    }

    #[test]
    fn a_name_that_is_no_directory_is_invalid() {
        let spec = host_volume(&projection("..", "/a"), &FileSystem::default());
        assert_eq!(spec.definition.unwrap_err().to_string(), "\"..\" is not a valid directory name");
    }
}
