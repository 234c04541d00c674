//! The machine's own volumes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::managed_volume::OwnerObject;
use super::pod_volumes_root::is_path_element;
use super::volume_loop::{LoopTask, LoopTaskResult, VolumeLoop};
use crate::files::{DiskError, FileSystem};
use crate::projections::{HostProjection, HostProjections};
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume::plan::BlockedReason;
use crate::volume::writer::VolumeWriter;

/// Where the state of all of them is.
const STATE: &str = "projections";

/// Where the state of one's certificates is.
pub fn state(root_dir: &Path, name: &str) -> PathBuf {
    root_dir.join(STATE).join(name)
}

impl VolumeLoop {
    /// Brings volumes into line with the projections that there are.
    pub fn sync_hosts(&mut self) {
        let projections: HostProjections = self.manager.projections.borrow_and_update().clone();
        let id = |projection: &Arc<HostProjection>| VolumeId {
            owner: VolumeOwner::Host,
            name: projection.name.clone(),
        };
        let wanted = projections.iter().map(|one| (id(one), one.clone()));
        let wanted = wanted.collect::<BTreeMap<_, _>>();
        let before = std::mem::replace(&mut self.hosts, wanted.clone());
        for (id, old) in &before {
            if !wanted.contains_key(id) {
                self.drop_host(id, old);
            }
        }
        let changed = wanted.iter().filter(|(id, one)| before.get(*id) != Some(*one));
        let changed = changed.collect::<Vec<_>>();
        for (id, projection) in &changed {
            let definition = match is_path_element(&id.name) {
                true => Ok(Arc::new(projection.definition.clone())),
                false => {
                    let why = format!("{:?} cannot be the name of a directory", id.name);
                    Err(BlockedReason(vec![why]))
                }
            };
            let writer = VolumeWriter::new(&projection.directory, self.manager.files.clone());
            let owned = OwnerObject::Host((*projection).clone());
            let made = self.new_volume(owned, definition, projection.readers, Some(writer));
            self.volumes.insert((*id).clone(), made);
        }
        self.retain_certificates(&VolumeOwner::Host);
        for (id, _) in changed {
            self.publish(id);
            self.queue(id);
        }
        self.watch_objects();
    }

    /// One is defined no more. Its files stay, since somebody may be using them.
    fn drop_host(&mut self, id: &VolumeId, projection: &HostProjection) {
        let directory = projection.directory.display();
        tracing::info!(volume = %id, %directory, "kept no more; its files stay as they are");
        self.drop_volume(id);
        self.manager.notifier.forget(&id.name);
        if is_path_element(&id.name) {
            let (root_dir, files) = (self.manager.root_dir.clone(), self.manager.files.clone());
            let name = id.name.clone();
            self.spawn(LoopTask::Tidy, move || {
                if let Err(error) = remove_state(&root_dir, &files, &name) {
                    tracing::warn!("{error}");
                }
                LoopTaskResult::Tidied
            });
        }
    }
}

fn remove_state(root_dir: &Path, files: &FileSystem, name: &str) -> Result<(), DiskError> {
    match files.open_directory(&root_dir.join(STATE))? {
        Some(folder) => folder.remove_all(OsStr::new(name)),
        None => Ok(()),
    }
}
