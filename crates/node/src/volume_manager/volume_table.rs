//! All managed volumes, and the reports on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::dependencies;
use super::managed_volume::{ManagedVolume, VolumeSpec};
use super::pod_status::MountState;
use super::report::VolumeReports;
use crate::sources::objects::ObjectId;
use crate::volume::id::{SourceId, VolumeId, VolumeOwner};

/// Volumes by ID, and the channel on which their reports are published.
pub struct VolumeTable {
    volumes: BTreeMap<VolumeId, ManagedVolume>,
    last_serial: u64,
    reports: watch::Sender<VolumeReports>,
}

impl VolumeTable {
    pub fn new(reports: watch::Sender<VolumeReports>) -> Self {
        Self { volumes: BTreeMap::new(), last_serial: 0, reports }
    }

    pub fn get(&self, id: &VolumeId) -> Option<&ManagedVolume> {
        self.volumes.get(id)
    }

    pub fn get_mut(&mut self, id: &VolumeId) -> Option<&mut ManagedVolume> {
        self.volumes.get_mut(id)
    }

    /// Returns the volume for which a job with this serial number was started, unless it was
    /// replaced since.
    pub fn get_started(&mut self, id: &VolumeId, serial: u64) -> Option<&mut ManagedVolume> {
        self.get_mut(id).filter(|volume| volume.serial == serial)
    }

    /// Adds an uninspected volume, replacing one with the same ID.
    pub fn insert(&mut self, id: VolumeId, spec: VolumeSpec, now: Duration, check_at: Duration) {
        self.last_serial += 1;
        let volume = ManagedVolume::new(self.last_serial, spec, now, check_at);
        self.volumes.insert(id, volume);
    }

    pub fn remove(&mut self, id: &VolumeId) {
        self.volumes.remove(id);
        self.publish(id);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&VolumeId, &ManagedVolume)> {
        self.volumes.iter()
    }

    pub fn of_owner(&self, owner: &VolumeOwner) -> impl Iterator<Item = (&VolumeId, &ManagedVolume)> {
        let first = VolumeId { owner: owner.clone(), name: String::new() };
        self.volumes.range(first..).take_while(move |(id, _)| id.owner == *owner)
    }

    pub fn ids_of(&self, owner: &VolumeOwner) -> Vec<VolumeId> {
        self.of_owner(owner).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the volumes that use a ConfigMap or a Secret.
    pub fn ids_using(&self, object: &ObjectId) -> Vec<VolumeId> {
        let using = self.iter().filter(|(_, volume)| volume.objects().any(|used| used == *object));
        using.map(|(id, _)| id.clone()).collect()
    }

    pub fn certificate_sources(&self, owner: &VolumeOwner) -> Vec<SourceId> {
        let sources = self.of_owner(owner).flat_map(|(id, volume)| {
            let definition = volume.definition().into_iter();
            let sources = definition.flat_map(|definition| dependencies::certificates(definition));
            sources.map(|(index, _)| SourceId { volume: id.clone(), index })
        });
        sources.collect()
    }

    /// Returns what is reported to a pod about its volumes, by name.
    pub fn mount_states(&self, owner: &VolumeOwner) -> BTreeMap<String, MountState> {
        let mounts = self.of_owner(owner).filter_map(|(id, volume)| {
            volume.state().mount_state(&id.name).map(|mount| (id.name.clone(), mount))
        });
        mounts.collect()
    }

    /// Publishes the report on a volume, or removes it if there is none.
    pub fn publish(&self, id: &VolumeId) {
        let report = self.get(id).and_then(ManagedVolume::report);
        self.reports.send_if_modified(|reports| {
            if reports.get(id).map(|known| &**known) == report.as_ref() {
                return false;
            }
            let reports = Arc::make_mut(reports);
            match report {
                Some(report) => reports.insert(id.clone(), Arc::new(report)),
                None => reports.remove(id),
            };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::field::FieldPath;

    use super::super::managed_volume::OwnerObject;
    use super::super::volume_state::VolumeEvent;
    use super::*;
    use crate::sources::objects::ObjectKind;
    use crate::volume::definition::VolumeDefinition;
    use crate::volume::plan::VolumeReaders;
    use crate::volume::writer::VolumeWriter;

    fn id(pod: &str, name: &str) -> VolumeId {
        let owner = VolumeOwner::Pod { namespace: "n".into(), name: pod.into(), uid: pod.into() };
        VolumeId { owner, name: name.into() }
    }

    fn spec() -> VolumeSpec {
        let source = serde_json::from_value(json!({"sources": [{"configMap": {"name": "m"}}]}));
        let definition = VolumeDefinition::parse(&source.unwrap(), &FieldPath::new("v")).unwrap();
        let pod = serde_json::from_value(json!({"metadata": {"namespace": "n"}})).unwrap();
        VolumeSpec {
            owner: OwnerObject::Pod(Arc::new(pod)),
            definition: Ok(Arc::new(definition)),
            readers: VolumeReaders::default(),
            writer: Some(VolumeWriter::new("/v".as_ref(), Default::default())),
        }
    }

    #[test]
    fn volumes_are_found_by_owner_object_and_serial_number() {
        let reports = watch::Sender::default();
        let mut table = VolumeTable::new(reports.clone());
        let all = [id("a", "1"), id("a", "2"), id("b", "1")];
        for id in &all {
            table.insert(id.clone(), spec(), Duration::ZERO, Duration::MAX);
            table.publish(id);
        }
        assert_eq!(table.ids_of(&all[0].owner), all[..2]);
        let object =
            |name: &str| ObjectId { kind: ObjectKind::ConfigMap, namespace: "n".into(), name: name.into() };
        assert_eq!(table.ids_using(&object("m")), all);
        assert_eq!(table.ids_using(&object("other")), []);
        assert_eq!(reports.borrow().len(), 3);
        // A replacing volume does not get the results of jobs of its predecessor.
        let serial = table.get(&all[0]).unwrap().serial;
        table.insert(all[0].clone(), spec(), Duration::ZERO, Duration::MAX);
        assert!(table.get_started(&all[0], serial).is_none());
        table.remove(&all[1]);
        assert_eq!(reports.borrow().len(), 2);
    }

    #[test]
    fn abandoned_volumes_are_not_reported() {
        let reports = watch::Sender::default();
        let mut table = VolumeTable::new(reports.clone());
        let id = id("a", "1");
        table.insert(id.clone(), spec(), Duration::ZERO, Duration::MAX);
        table.publish(&id);
        assert_eq!(table.mount_states(&id.owner).len(), 1);
        let volume = table.get_mut(&id).unwrap();
        volume.apply(&id, VolumeEvent::Inspected { files: None, invalid: None });
        volume.apply(&id, VolumeEvent::PodDeleted);
        table.publish(&id);
        assert!(reports.borrow().is_empty() && table.mount_states(&id.owner).is_empty());
    }
}
