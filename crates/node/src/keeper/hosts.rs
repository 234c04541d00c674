//! The machine's own volumes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::place::is_element;
use super::volume::Owned;
use super::work::{Finished, Task, Work};
use crate::files::{DiskError, Files};
use crate::projections::{Projection, Projections};
use crate::volume::id::{Owner, VolumeId};
use crate::volume::plan::Blocked;
use crate::volume::writer::Writer;

/// Where the state of all of them is.
const STATE: &str = "projections";

/// Where the state of one's certificates is.
pub fn state(root_dir: &Path, name: &str) -> PathBuf {
    root_dir.join(STATE).join(name)
}

impl Work {
    /// Brings volumes into line with the projections that there are.
    pub fn sync_hosts(&mut self) {
        let projections: Projections = self.keeper.projections.borrow_and_update().clone();
        let id = |projection: &Arc<Projection>| VolumeId {
            owner: Owner::Host,
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
            let definition = match is_element(&id.name) {
                true => Ok(Arc::new(projection.definition.clone())),
                false => {
                    let why = format!("{:?} cannot be the name of a directory", id.name);
                    Err(Blocked(vec![why]))
                }
            };
            let writer = Writer::new(&projection.directory, self.keeper.files.clone());
            let owned = Owned::Host((*projection).clone());
            let made = self.new_volume(owned, definition, projection.readers, Some(writer));
            self.volumes.insert((*id).clone(), made);
        }
        self.retain_certificates(&Owner::Host);
        for (id, _) in changed {
            self.publish(id);
            self.queue(id);
        }
        self.want_objects();
    }

    /// One is defined no more. Its files stay, since somebody may be using them.
    fn drop_host(&mut self, id: &VolumeId, projection: &Projection) {
        let directory = projection.directory.display();
        tracing::info!(volume = %id, %directory, "kept no more; its files stay as they are");
        self.drop_volume(id);
        self.keeper.notifier.forget(&id.name);
        if is_element(&id.name) {
            let (root_dir, files) = (self.keeper.root_dir.clone(), self.keeper.files.clone());
            let name = id.name.clone();
            self.spawn(Task::Tidy, move || {
                if let Err(error) = remove_state(&root_dir, &files, &name) {
                    tracing::warn!("{error}");
                }
                Finished::Tidied
            });
        }
    }
}

fn remove_state(root_dir: &Path, files: &Files, name: &str) -> Result<(), DiskError> {
    match files.folder(&root_dir.join(STATE))? {
        Some(folder) => folder.remove_all(OsStr::new(name)),
        None => Ok(()),
    }
}
