//! Which pods there are, and which volumes they have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Volume as PodVolume};
use time::OffsetDateTime;
use windlass_api::field::FieldPath;
use zeroize::Zeroizing;

use super::dependencies;
use super::managed_volume::{ManagedVolume, OwnerObject, VolumeStage};
use super::pod_status::PodReport;
use super::pod_teardown::PodTeardown;
use super::pod_volumes_root::is_path_element;
use super::volume_loop::{LoopTask, LoopTaskResult, VolumeLoop};
use crate::sources::pods::NodePods;
use crate::sources::tokens;
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::{SourceId, VolumeId, VolumeOwner};
use crate::volume::plan::{BlockedReason, VolumeReaders};
use crate::volume::writer::VolumeWriter;
use crate::volume_certificates::{self, CertificateSubject};

/// What a pod has that kubelet makes without the server.
const MIRROR: &str = "kubernetes.io/config.mirror";
const STATIC: &str =
    "static pods cannot have clusterTrustBundle and podCertificate sources in their volumes";

/// Whose the pods of this node are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOwnership {
    /// That is not known yet.
    Unknown,
    /// This agent manages the volumes of the pods.
    Agent,
    /// A kubelet runs on the node and manages them.
    Kubelet,
}

impl VolumeLoop {
    /// Brings volumes into line with the pods that there are.
    pub fn sync_pods(&mut self) {
        let pods: NodePods = self.manager.pods.borrow_and_update().clone();
        let (Some(pods), whose) = (pods, self.pod_ownership()) else { return };
        if whose == PodOwnership::Unknown {
            return;
        }
        self.synced = whose;
        let now = self.now();
        // What an earlier life of the process has left is looked for once it is known what is not.
        self.sweep_at.get_or_insert(now.since);
        let is_kept = |pod: &Pod| whose == PodOwnership::Agent && needs_volumes(pod, now.wall);
        let gone = |uid: &&String| !pods.get(*uid).is_some_and(|pod| is_kept(pod));
        for uid in self.pods.keys().filter(gone).cloned().collect::<Vec<_>>() {
            self.start_teardown(&uid);
        }
        for (uid, pod) in pods.iter() {
            if is_kept(pod) {
                self.sync_pod(uid, pod);
            } else if whose == PodOwnership::Agent {
                self.teardowns.entry(uid.clone()).or_default();
            }
        }
        let ends = pods.values().filter_map(|pod| deletion(pod)).filter(|at| *at > now.wall);
        self.deletion_at = ends.min().filter(|_| whose == PodOwnership::Agent);
        self.teardowns.retain(|uid, leaving| pods.contains_key(uid) || !leaving.is_complete());
        self.watch_objects();
    }

    /// A heartbeat changes nothing; the first one does, and so does a kubelet.
    pub fn registration_changed(&mut self) {
        self.manager.registration.mark_unchanged();
        if self.pod_ownership() != self.synced {
            self.sync_pods();
        }
    }

    /// What a pod is told of its volumes.
    pub fn report_pod(&self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let owner = owner_of(pod);
        let mounts = self.volumes_of(&owner).filter_map(|(id, volume)| {
            volume.mount_state(&id.name).map(|mount| (id.name.clone(), mount))
        });
        // Nobody listens only when everything ends.
        let _ = self.reports.send(PodReport::Pod(pod.clone(), mounts.collect()));
    }

    /// Whether the pod of a volume is being deleted.
    pub fn is_pod_deleting(&self, id: &VolumeId) -> bool {
        match self.volumes.get(id).map(|volume| &volume.owned) {
            Some(OwnerObject::Pod(pod)) => pod.metadata.deletion_timestamp.is_some(),
            Some(OwnerObject::Host(_)) | None => false,
        }
    }

    /// Has tokens and certificates obtained for a volume.
    pub fn request_credentials(
        &mut self,
        id: &VolumeId,
        mut found: BTreeMap<usize, Zeroizing<String>>,
    ) {
        let Some(volume) = self.volumes.get(id) else { return };
        let Some(definition) = volume.valid_definition() else { return };
        let source = |index| SourceId { volume: id.clone(), index };
        let (subject, state) = match &volume.owned {
            OwnerObject::Pod(pod) => {
                let service_account = account_of(pod);
                for (index, token) in dependencies::tokens(definition) {
                    let wanted = tokens::TokenSpec {
                        service_account: service_account.clone(),
                        audience: token.audience.clone(),
                        expiration_seconds: token.expiration_seconds,
                    };
                    self.manager.tokens.ensure(&source(index), wanted, found.remove(&index));
                }
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                (CertificateSubject::Pod { service_account }, self.root.certificates(uid))
            }
            OwnerObject::Host(projection) => {
                let state = super::host_volumes::state(&self.manager.root_dir, &projection.name);
                (projection.certificate_subject(), state)
            }
        };
        for (index, certificate) in dependencies::certificates(definition) {
            let (source, subject, state) = (certificate.clone(), subject.clone(), state.clone());
            let wanted = volume_certificates::CertificateSpec { source, subject, state };
            let id = SourceId { volume: id.clone(), index };
            self.manager.certificates.ensure(&id, wanted);
        }
    }

    /// Nothing more is asked for but what the volumes of this owner need.
    pub fn retain_certificates(&self, owner: &VolumeOwner) {
        let volumes = self.volumes_of(owner);
        let wanted = volumes.flat_map(|(id, volume)| {
            let pairs = volume
                .valid_definition()
                .into_iter()
                .flat_map(|good| dependencies::certificates(good));
            pairs.map(|(index, _)| SourceId { volume: id.clone(), index })
        });
        self.manager.certificates.retain(owner, &wanted.collect::<Vec<_>>());
    }

    fn volumes_of<'a>(
        &'a self,
        owner: &'a VolumeOwner,
    ) -> impl Iterator<Item = (&'a VolumeId, &'a ManagedVolume)> {
        let first = VolumeId { owner: owner.clone(), name: String::new() };
        self.volumes.range(first..).take_while(move |(id, _)| id.owner == *owner)
    }

    fn pod_ownership(&self) -> PodOwnership {
        let registration = self.manager.registration.borrow();
        match registration.heartbeat {
            _ if registration.kubelet => PodOwnership::Kubelet,
            Some(_) => PodOwnership::Agent,
            None => PodOwnership::Unknown,
        }
    }

    /// A pod is there, or has changed.
    fn sync_pod(&mut self, uid: &str, pod: &Arc<Pod>) {
        if self.teardowns.get(uid).is_some_and(|leaving| !leaving.is_complete()) {
            return;
        }
        self.teardowns.remove(uid);
        let before = self.pods.get(uid);
        if before.is_some_and(|before| Arc::ptr_eq(before, pod)) {
            return;
        }
        let before = self.pods.insert(uid.to_owned(), pod.clone());
        let same =
            |pod: &Pod| (projected(pod).cloned().collect::<Vec<_>>(), VolumeReaders::from_pod(pod));
        let owner = owner_of(pod);
        if before.is_some_and(|before| same(&before) == same(pod)) {
            self.update_pod(&owner, pod);
        } else {
            self.add_pod(&owner, uid, pod);
        }
        self.report_pod(uid);
    }

    /// A pod has changed, but not its volumes.
    fn update_pod(&mut self, owner: &VolumeOwner, pod: &Arc<Pod>) {
        let ids = self.volumes_of(owner).map(|(id, _)| id.clone()).collect::<Vec<_>>();
        let going = pod.metadata.deletion_timestamp.is_some();
        let mut dropped = false;
        for id in ids {
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            volume.owned = OwnerObject::Pod(pod.clone());
            if going
                && volume.stage == VolumeStage::Kept
                && !volume.ready
                && !self.busy.contains(&id)
            {
                volume.stage = VolumeStage::Dropped;
                dropped = true;
                self.publish(&id);
            } else if volume.valid_definition().is_some_and(|good| dependencies::has_downward(good))
            {
                self.queue(&id);
            }
        }
        if dropped {
            self.retain_certificates(owner);
        }
    }

    /// A pod has these volumes from now on.
    fn add_pod(&mut self, owner: &VolumeOwner, uid: &str, pod: &Arc<Pod>) {
        let mut names = Vec::new();
        for (index, volume) in pod.spec.iter().flat_map(|spec| &spec.volumes).flatten().enumerate()
        {
            let Some(source) = &volume.projected else { continue };
            let at = FieldPath::new("spec").child("volumes").index(index).child("projected");
            let definition = VolumeDefinition::parse(source, &at).map(Arc::new);
            let mut definition = definition.map_err(|error| BlockedReason(vec![error.to_string()]));
            if let Ok(good) = &definition
                && is_mirror(pod)
                && dependencies::needs_server(good)
            {
                definition = Err(BlockedReason(vec![STATIC.into()]));
            }
            let id = VolumeId { owner: owner.clone(), name: volume.name.clone() };
            let writer = self.root.volume(uid, &volume.name);
            if writer.is_none() {
                let name = if is_path_element(uid) { &volume.name } else { uid };
                let why = format!("{name:?} cannot be the name of a directory");
                definition = Err(BlockedReason(vec![why]));
            }
            let made = self.new_volume(
                OwnerObject::Pod(pod.clone()),
                definition,
                VolumeReaders::from_pod(pod),
                writer,
            );
            self.volumes.insert(id.clone(), made);
            names.push(id);
        }
        let gone = self.volumes_of(owner).map(|(id, _)| id.clone());
        let gone = gone.filter(|id| !names.contains(id)).collect::<Vec<_>>();
        for id in gone {
            self.drop_volume(&id);
        }
        self.retain_certificates(owner);
        for id in names {
            self.publish(&id);
            self.queue(&id);
        }
    }

    /// A volume of which nothing is known yet.
    pub fn new_volume(
        &mut self,
        owned: OwnerObject,
        definition: Result<Arc<VolumeDefinition>, BlockedReason>,
        readers: VolumeReaders,
        writer: Option<VolumeWriter>,
    ) -> ManagedVolume {
        ManagedVolume {
            serial: self.next_serial(),
            owned,
            definition,
            readers,
            writer,
            stage: VolumeStage::New,
            since: self.now().since,
            ready: false,
            decided: false,
            blocked: None,
            last: None,
            seen: Vec::new(),
            carried: Vec::new(),
            certificates: Vec::new(),
            changed: None,
            failures: 0,
            retry_at: None,
            check_at: self.next_check(),
            check: false,
            queued: false,
        }
    }

    /// A volume is kept no more.
    pub fn drop_volume(&mut self, id: &VolumeId) {
        self.volumes.remove(id);
        self.publish(id);
    }

    /// A pod has no volumes any more: everything of it is removed.
    fn start_teardown(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        let owner = owner_of(&pod);
        let ids = self.volumes_of(&owner).map(|(id, _)| id.clone()).collect::<Vec<_>>();
        for id in ids {
            self.drop_volume(&id);
        }
        self.manager.tokens.forget(&owner);
        self.manager.certificates.retain(&owner, &[]);
        let _ = self.reports.send(PodReport::Removed(uid.to_owned()));
        self.teardowns.insert(uid.to_owned(), PodTeardown::default());
    }

    /// When it is time, looks for directories that belong to no pod.
    pub fn sweep(&mut self, now: Duration) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.sweep_at = Some(self.next_check());
        let place = self.root.clone();
        self.spawn(LoopTask::Sweep, move || {
            LoopTaskResult::Swept(place.uids().map_err(|error| error.to_string()))
        });
    }
}

/// When a pod that is being deleted is to be gone.
pub fn deletion(pod: &Pod) -> Option<OffsetDateTime> {
    let at = pod.metadata.deletion_timestamp.as_ref()?;
    OffsetDateTime::from_unix_timestamp_nanos(at.0.as_nanosecond()).ok()
}

/// Whether nothing runs in it any more.
pub fn is_terminated(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether it is to have volumes.
fn needs_volumes(pod: &Pod, now: OffsetDateTime) -> bool {
    !is_terminated(pod) && deletion(pod).is_none_or(|at| at > now)
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR)
}

fn projected(pod: &Pod) -> impl Iterator<Item = &PodVolume> {
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    volumes.filter(|volume| volume.projected.is_some())
}

fn account_of(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let name = spec.and_then(|spec| spec.service_account_name.clone());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into())
}

fn owner_of(pod: &Pod) -> VolumeOwner {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let (namespace, name) = (text(&meta.namespace), text(&meta.name));
    VolumeOwner::Pod { namespace, name, uid: text(&meta.uid) }
}
