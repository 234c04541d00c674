//! Which files are watched, and what their events mean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use time::OffsetDateTime;

use super::inotify::{InotifyInstance, WatchDescriptor, WatchEvent};
use super::state_file::ReadRecord;
use super::{AnchorFiles, AnchorReads, ReadState};
use crate::limits::MAX_READ_WATCHES;
use crate::volume::id::VolumeId;
use crate::volume::trust_anchors::Digest;

/// All observed sources of all volumes.
pub struct ReadTable {
    volumes: BTreeMap<VolumeId, ObservedVolume>,
    watches: BTreeMap<WatchDescriptor, VolumeId>,
    /// State of an earlier process, for volumes that have not appeared yet.
    restored: Vec<ReadRecord>,
}

#[derive(Default)]
struct ObservedVolume {
    /// Sources of the visible files, by path.
    visible: BTreeMap<String, ObservedSource>,
    /// Sources of files that are complete but not visible yet.
    prepared: Option<BTreeMap<String, ObservedSource>>,
    /// Files that were opened once while the agent was reading them; `None` while it is not.
    own_reads: Option<BTreeSet<WatchDescriptor>>,
}

#[derive(Clone)]
struct ObservedSource {
    digest: Digest,
    reads: AnchorReads,
    /// Empty once the files were read.
    watches: Vec<WatchDescriptor>,
}

impl ReadTable {
    /// Creates a table without volumes, which uses records of an earlier process as volumes appear.
    pub fn new(restored: Vec<ReadRecord>) -> Self {
        Self { volumes: BTreeMap::new(), watches: BTreeMap::new(), restored }
    }

    /// Returns whether no file is watched, so that there are no events.
    pub fn is_idle(&self) -> bool {
        self.watches.is_empty()
    }

    /// Forgets the records of volumes that have not appeared.
    pub fn drop_restored(&mut self) {
        self.restored.clear();
    }

    pub fn begin_own_reads(&mut self, volume: &VolumeId) {
        self.volumes.entry(volume.clone()).or_default().own_reads = Some(BTreeSet::new());
    }

    pub fn end_own_reads(&mut self, volume: &VolumeId) {
        if let Some(observed) = self.volumes.get_mut(volume) {
            observed.own_reads = None;
        }
    }

    /// Handles an event of the kernel.
    pub fn apply(&mut self, event: WatchEvent, inotify: Option<&InotifyInstance>) {
        let (WatchEvent::Opened(descriptor) | WatchEvent::Removed(descriptor)) = event;
        let Some(id) = self.watches.get(&descriptor) else { return };
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let is_prepared =
            |all: &BTreeMap<String, ObservedSource>| all.values().any(|one| one.has(descriptor));
        let is_prepared = volume.prepared.as_ref().is_some_and(is_prepared);
        if let WatchEvent::Removed(_) = event {
            volume.sources_mut().for_each(|source| source.watches.retain(|one| *one != descriptor));
            self.watches.remove(&descriptor);
            return;
        }
        // The agent reads visible files only.
        if let Some(own) = volume.own_reads.as_mut().filter(|_| !is_prepared)
            && own.insert(descriptor)
        {
            return;
        }
        let Some(source) = volume.sources_mut().find(|source| source.has(descriptor)) else { return };
        source.reads.state = ReadState::Read;
        let watches = std::mem::take(&mut source.watches);
        self.unwatch(watches, inotify);
    }

    /// Watches files that are about to become visible.
    pub fn prepare(
        &mut self,
        id: &VolumeId,
        directory: &Path,
        anchors: &[AnchorFiles],
        now: OffsetDateTime,
        inotify: Option<&InotifyInstance>,
    ) {
        self.discard(id, inotify);
        let mut prepared = BTreeMap::new();
        for files in anchors {
            let fresh = AnchorReads { changed: now, state: ReadState::NotRead { since: now } };
            // The files are replaced for the sake of another source, and the anchors are the same.
            let reads = self.known(id, files).unwrap_or(fresh);
            let source = self.observe(id, directory, files, reads, inotify);
            prepared.insert(files.path.clone(), source);
        }
        self.volumes.entry(id.clone()).or_default().prepared = Some(prepared);
    }

    /// The prepared files are visible, and the earlier ones are gone.
    pub fn switch(&mut self, id: &VolumeId, inotify: Option<&InotifyInstance>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let Some(prepared) = volume.prepared.take() else { return };
        let earlier = std::mem::replace(&mut volume.visible, prepared);
        self.unwatch(earlier.into_values().flat_map(|source| source.watches), inotify);
        self.claim_restored(id);
    }

    /// The prepared files will not become visible.
    pub fn discard(&mut self, id: &VolumeId, inotify: Option<&InotifyInstance>) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let prepared = volume.prepared.take().unwrap_or_default();
        self.unwatch(prepared.into_values().flat_map(|source| source.watches), inotify);
    }

    /// The visible files have these anchors. They are watched if they were not, after a restart or for lack of watches.
    pub fn confirm(
        &mut self,
        id: &VolumeId,
        directory: &Path,
        anchors: &[AnchorFiles],
        written: OffsetDateTime,
        inotify: Option<&InotifyInstance>,
    ) {
        self.discard(id, inotify);
        let earlier = self.volumes.get(id).map(|volume| volume.visible.clone()).unwrap_or_default();
        let mut visible = BTreeMap::new();
        for files in anchors {
            let unknown = AnchorReads { changed: written, state: ReadState::NotRead { since: written } };
            let reads = self.known(id, files).unwrap_or(unknown);
            let watched = earlier.get(&files.path).filter(|source| !source.watches.is_empty());
            let source = match watched.filter(|source| source.digest == files.digest) {
                Some(source) => source.clone(),
                None => self.observe(id, directory, files, reads, inotify),
            };
            visible.insert(files.path.clone(), source);
        }
        let kept: BTreeSet<_> = visible.values().flat_map(|source| source.watches.iter().copied()).collect();
        let gone = earlier.into_values().flat_map(|source| source.watches);
        self.unwatch(gone.filter(|watch| !kept.contains(watch)).collect::<Vec<_>>(), inotify);
        self.volumes.entry(id.clone()).or_default().visible = visible;
        self.claim_restored(id);
    }

    /// Removes a volume with its watches.
    pub fn forget(&mut self, id: &VolumeId, inotify: Option<&InotifyInstance>) {
        let Some(volume) = self.volumes.remove(id) else { return };
        let prepared = volume.prepared.unwrap_or_default();
        let sources = volume.visible.into_values().chain(prepared.into_values());
        self.unwatch(sources.flat_map(|source| source.watches).collect::<Vec<_>>(), inotify);
        self.claim_restored(id);
    }

    /// Returns the state of all visible sources.
    pub fn states(&self) -> BTreeMap<(VolumeId, String), AnchorReads> {
        let sources = self.volumes.iter().flat_map(|(id, volume)| {
            volume.visible.iter().map(move |(path, source)| ((id.clone(), path.clone()), source.reads))
        });
        sources.collect()
    }

    /// Returns what a later process restores.
    pub fn records(&self) -> Vec<ReadRecord> {
        let known = self.volumes.iter().flat_map(|(id, volume)| {
            volume
                .visible
                .iter()
                .map(move |(path, source)| ReadRecord::new(id, path, source.digest, source.reads))
        });
        known.chain(self.restored.iter().cloned()).collect()
    }

    /// Returns what is known about the same anchors in the same place.
    fn known(&self, id: &VolumeId, files: &AnchorFiles) -> Option<AnchorReads> {
        let visible = self.volumes.get(id).and_then(|volume| volume.visible.get(&files.path));
        match visible {
            Some(source) => Some(source.reads).filter(|_| source.digest == files.digest),
            None => self.restored.iter().find_map(|record| record.reads_of(id, files)),
        }
    }

    /// Drops the records of a volume, whose state is in the table now.
    fn claim_restored(&mut self, id: &VolumeId) {
        self.restored.retain(|record| !record.is_of(id));
    }

    /// Watches the files of a source, unless they were read.
    fn observe(
        &mut self,
        id: &VolumeId,
        directory: &Path,
        files: &AnchorFiles,
        reads: AnchorReads,
        inotify: Option<&InotifyInstance>,
    ) -> ObservedSource {
        let mut source = ObservedSource { digest: files.digest, reads, watches: Vec::new() };
        if reads.state == ReadState::Read {
            return source;
        }
        let since = match reads.state {
            ReadState::NotRead { since } => since,
            ReadState::Read | ReadState::NotObservable => reads.changed,
        };
        source.reads.state = ReadState::NotRead { since };
        for path in std::iter::once(&files.path).chain(&files.stores) {
            let watch = inotify.filter(|_| self.watches.len() < MAX_READ_WATCHES);
            match watch.map(|inotify| inotify.watch(&directory.join(path))) {
                Some(Ok(descriptor)) => {
                    self.watches.insert(descriptor, id.clone());
                    source.watches.push(descriptor);
                }
                // An unwatched file could be the one that is read.
                Some(Err(_)) | None => {
                    let watches = std::mem::take(&mut source.watches);
                    self.unwatch(watches, inotify);
                    source.reads.state = ReadState::NotObservable;
                    return source;
                }
            }
        }
        source
    }

    fn unwatch(
        &mut self,
        watches: impl IntoIterator<Item = WatchDescriptor>,
        inotify: Option<&InotifyInstance>,
    ) {
        for descriptor in watches {
            if self.watches.remove(&descriptor).is_some()
                && let Some(inotify) = inotify
            {
                inotify.unwatch(descriptor);
            }
        }
    }
}

impl ObservedVolume {
    fn sources_mut(&mut self) -> impl Iterator<Item = &mut ObservedSource> {
        self.visible.values_mut().chain(self.prepared.iter_mut().flat_map(BTreeMap::values_mut))
    }
}

impl ObservedSource {
    fn has(&self, descriptor: WatchDescriptor) -> bool {
        self.watches.contains(&descriptor)
    }
}
