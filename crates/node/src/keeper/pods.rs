//! Which pods there are, and which volumes they have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Volume as PodVolume};
use time::OffsetDateTime;
use windlass_api::field::Path;
use zeroize::Zeroizing;

use super::leaving::Leaving;
use super::needs;
use super::place::is_element;
use super::tell::Tell;
use super::volume::{Owned, Stage, Volume};
use super::work::{Finished, Task, Work};
use crate::certificates::{self, Subject};
use crate::sources::pods::Pods;
use crate::sources::tokens;
use crate::volume::definition::Definition;
use crate::volume::id::{Owner, SourceId, VolumeId};
use crate::volume::plan::{Blocked, Readers};
use crate::volume::writer::Writer;

/// What a pod has that kubelet makes without the server.
const MIRROR: &str = "kubernetes.io/config.mirror";
const STATIC: &str =
    "static pods cannot have clusterTrustBundle and podCertificate sources in their volumes";

/// Whose the pods of this node are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That is not known yet.
    Unknown,
    /// Ours.
    Ours,
    /// A kubelet's.
    Kubelets,
}

impl Work {
    /// Brings volumes into line with the pods that there are.
    pub fn sync_pods(&mut self) {
        let pods: Pods = self.keeper.pods.borrow_and_update().clone();
        let (Some(pods), whose) = (pods, self.whose()) else { return };
        if whose == Whose::Unknown {
            return;
        }
        self.synced = whose;
        let now = self.now();
        // What an earlier life of the process has left is looked for once it is known what is not.
        self.sweep_at.get_or_insert(now.since);
        let is_kept = |pod: &Pod| whose == Whose::Ours && is_living(pod, now.wall);
        let gone = |uid: &&String| !pods.get(*uid).is_some_and(|pod| is_kept(pod));
        for uid in self.pods.keys().filter(gone).cloned().collect::<Vec<_>>() {
            self.retire(&uid);
        }
        for (uid, pod) in pods.iter() {
            if is_kept(pod) {
                self.keep_pod(uid, pod);
            } else if whose == Whose::Ours {
                self.leaving.entry(uid.clone()).or_default();
            }
        }
        let ends = pods.values().filter_map(|pod| deletion(pod)).filter(|at| *at > now.wall);
        self.deletion_at = ends.min().filter(|_| whose == Whose::Ours);
        self.leaving.retain(|uid, leaving| pods.contains_key(uid) || !leaving.is_over());
        self.want_objects();
    }

    /// A heartbeat changes nothing; the first one does, and so does a kubelet.
    pub fn registration_changed(&mut self) {
        self.keeper.registration.mark_unchanged();
        if self.whose() != self.synced {
            self.sync_pods();
        }
    }

    /// What a pod is told of its volumes.
    pub fn tell_pod(&self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let owner = owner_of(pod);
        let mounts = self.volumes_of(&owner).filter_map(|(id, volume)| {
            volume.mount(&id.name).map(|mount| (id.name.clone(), mount))
        });
        // Nobody listens only when everything ends.
        let _ = self.tell.send(Tell::Pod(pod.clone(), mounts.collect()));
    }

    /// Whether the pod of a volume is being deleted.
    pub fn is_going(&self, id: &VolumeId) -> bool {
        match self.volumes.get(id).map(|volume| &volume.owned) {
            Some(Owned::Pod(pod)) => pod.metadata.deletion_timestamp.is_some(),
            Some(Owned::Host(_)) | None => false,
        }
    }

    /// Has tokens and certificates obtained for a volume.
    pub fn want_credentials(
        &mut self,
        id: &VolumeId,
        mut found: BTreeMap<usize, Zeroizing<String>>,
    ) {
        let Some(volume) = self.volumes.get(id) else { return };
        let Some(definition) = volume.good() else { return };
        let source = |index| SourceId { volume: id.clone(), index };
        let (subject, state) = match &volume.owned {
            Owned::Pod(pod) => {
                let service_account = account_of(pod);
                for (index, token) in needs::tokens(definition) {
                    let wanted = tokens::Wanted {
                        service_account: service_account.clone(),
                        audience: token.audience.clone(),
                        expiration_seconds: token.expiration_seconds,
                    };
                    self.keeper.tokens.want(&source(index), wanted, found.remove(&index));
                }
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                (Subject::Pod { service_account }, self.place.certificates(uid))
            }
            Owned::Host(projection) => {
                let state = super::hosts::state(&self.keeper.root_dir, &projection.name);
                (projection.certificate_subject(), state)
            }
        };
        for (index, certificate) in needs::certificates(definition) {
            let (source, subject, state) = (certificate.clone(), subject.clone(), state.clone());
            let wanted = certificates::Wanted { source, subject, state };
            let id = SourceId { volume: id.clone(), index };
            self.keeper.certificates.want(&id, wanted);
        }
    }

    /// Nothing more is asked for but what the volumes of this owner need.
    pub fn retain_certificates(&self, owner: &Owner) {
        let volumes = self.volumes_of(owner);
        let wanted = volumes.flat_map(|(id, volume)| {
            let pairs = volume.good().into_iter().flat_map(|good| needs::certificates(good));
            pairs.map(|(index, _)| SourceId { volume: id.clone(), index })
        });
        self.keeper.certificates.retain(owner, &wanted.collect::<Vec<_>>());
    }

    fn volumes_of<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> impl Iterator<Item = (&'a VolumeId, &'a Volume)> {
        let first = VolumeId { owner: owner.clone(), name: String::new() };
        self.volumes.range(first..).take_while(move |(id, _)| id.owner == *owner)
    }

    fn whose(&self) -> Whose {
        let registration = self.keeper.registration.borrow();
        match registration.heartbeat {
            _ if registration.kubelet => Whose::Kubelets,
            Some(_) => Whose::Ours,
            None => Whose::Unknown,
        }
    }

    /// A pod is there, or has changed.
    fn keep_pod(&mut self, uid: &str, pod: &Arc<Pod>) {
        if self.leaving.get(uid).is_some_and(|leaving| !leaving.is_over()) {
            return;
        }
        self.leaving.remove(uid);
        let before = self.pods.get(uid);
        if before.is_some_and(|before| Arc::ptr_eq(before, pod)) {
            return;
        }
        let before = self.pods.insert(uid.to_owned(), pod.clone());
        let same = |pod: &Pod| (projected(pod).cloned().collect::<Vec<_>>(), Readers::of(pod));
        let owner = owner_of(pod);
        if before.is_some_and(|before| same(&before) == same(pod)) {
            self.renew_pod(&owner, pod);
        } else {
            self.begin_pod(&owner, uid, pod);
        }
        self.tell_pod(uid);
    }

    /// A pod has changed, but not its volumes.
    fn renew_pod(&mut self, owner: &Owner, pod: &Arc<Pod>) {
        let ids = self.volumes_of(owner).map(|(id, _)| id.clone()).collect::<Vec<_>>();
        let going = pod.metadata.deletion_timestamp.is_some();
        let mut dropped = false;
        for id in ids {
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            volume.owned = Owned::Pod(pod.clone());
            if going && volume.stage == Stage::Kept && !volume.ready && !self.busy.contains(&id) {
                volume.stage = Stage::Dropped;
                dropped = true;
                self.publish(&id);
            } else if volume.good().is_some_and(|good| needs::has_downward(good)) {
                self.queue(&id);
            }
        }
        if dropped {
            self.retain_certificates(owner);
        }
    }

    /// A pod has these volumes from now on.
    fn begin_pod(&mut self, owner: &Owner, uid: &str, pod: &Arc<Pod>) {
        let mut names = Vec::new();
        for (index, volume) in pod.spec.iter().flat_map(|spec| &spec.volumes).flatten().enumerate()
        {
            let Some(source) = &volume.projected else { continue };
            let at = Path::new("spec").child("volumes").index(index).child("projected");
            let definition = Definition::read(source, &at).map(Arc::new);
            let mut definition = definition.map_err(|error| Blocked(vec![error.to_string()]));
            if let Ok(good) = &definition
                && is_mirror(pod)
                && needs::needs_server(good)
            {
                definition = Err(Blocked(vec![STATIC.into()]));
            }
            let id = VolumeId { owner: owner.clone(), name: volume.name.clone() };
            let writer = self.place.volume(uid, &volume.name);
            if writer.is_none() {
                let name = if is_element(uid) { &volume.name } else { uid };
                let why = format!("{name:?} cannot be the name of a directory");
                definition = Err(Blocked(vec![why]));
            }
            let made =
                self.new_volume(Owned::Pod(pod.clone()), definition, Readers::of(pod), writer);
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
        owned: Owned,
        definition: Result<Arc<Definition>, Blocked>,
        readers: Readers,
        writer: Option<Writer>,
    ) -> Volume {
        Volume {
            serial: self.next_serial(),
            owned,
            definition,
            readers,
            writer,
            stage: Stage::New,
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
    fn retire(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        let owner = owner_of(&pod);
        let ids = self.volumes_of(&owner).map(|(id, _)| id.clone()).collect::<Vec<_>>();
        for id in ids {
            self.drop_volume(&id);
        }
        self.keeper.tokens.forget(&owner);
        self.keeper.certificates.retain(&owner, &[]);
        let _ = self.tell.send(Tell::Gone(uid.to_owned()));
        self.leaving.insert(uid.to_owned(), Leaving::default());
    }

    /// When it is time, looks for directories that belong to no pod.
    pub fn sweep(&mut self, now: Duration) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.sweep_at = Some(self.next_check());
        let place = self.place.clone();
        self.spawn(Task::Sweep, move || {
            Finished::Swept(place.uids().map_err(|error| error.to_string()))
        });
    }
}

/// When a pod that is being deleted is to be gone.
pub fn deletion(pod: &Pod) -> Option<OffsetDateTime> {
    let at = pod.metadata.deletion_timestamp.as_ref()?;
    OffsetDateTime::from_unix_timestamp_nanos(at.0.as_nanosecond()).ok()
}

/// Whether nothing runs in it any more.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether it is to have volumes.
fn is_living(pod: &Pod, now: OffsetDateTime) -> bool {
    !is_over(pod) && deletion(pod).is_none_or(|at| at > now)
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

fn owner_of(pod: &Pod) -> Owner {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let (namespace, name) = (text(&meta.namespace), text(&meta.name));
    Owner::Pod { namespace, name, uid: text(&meta.uid) }
}
