//! Computes the status of a NodeTrust from the reports on volumes.
//!
//! It depends only on the content of the volumes, so it changes only when that does. It is small,
//! because most volumes of a node select and contain the same.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;
use windlass_api::node_trust::limits;

use crate::clock;
use crate::read_observer::{AnchorReads, ReadState, ReadStates};
use crate::trust::object::{NodeTrustBundle, NodeTrustSource, NodeTrustStatus, digest_text, parse_selector};
use crate::volume::trust_anchors::BundleSelector;
use crate::volume_manager::report::{VolumeReport, VolumeReports};

/// Size limit of all sources together, in bytes; API servers accept objects of 1.5 MiB.
const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// The report of an earlier process, by volume.
#[derive(Clone, Debug, Default)]
pub struct PreviousReport {
    carried: BTreeMap<(String, SourceSelection), SourceContent>,
}

/// A bundle selection with a defined order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SourceSelection {
    name: String,
    signer: String,
    /// The label selector as JSON.
    labels: String,
    optional: bool,
}

/// Anchors delivered to a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SourceContent {
    digest: String,
    bundles: Vec<NodeTrustBundle>,
}

/// Volumes that share one source entry.
#[derive(Default)]
struct SourceVolumes {
    names: BTreeSet<String>,
    /// State of those that have content; `None` if it is not known yet, which does not count as read.
    reads: BTreeMap<String, Option<ReadState>>,
    /// When the content of one of them was last changed.
    changed: Option<OffsetDateTime>,
}

impl SourceVolumes {
    /// Adds a file of a volume. `reads` is `None` if there is nothing to read.
    fn add(&mut self, volume: &str, reads: Option<Option<AnchorReads>>) {
        self.names.insert(volume.to_owned());
        let Some(reads) = reads else { return };
        self.changed = self.changed.max(reads.map(|reads| reads.changed));
        let state = reads.map(|reads| reads.state);
        let kept = self.reads.entry(volume.to_owned()).or_insert(state);
        // A volume may have several such files, of which the least proven counts.
        if proof_rank(state) < proof_rank(*kept) {
            *kept = state;
        }
    }

    fn count(&self, is_such: impl Fn(ReadState) -> bool) -> u32 {
        number(self.reads.values().filter(|state| state.is_some_and(&is_such)).count())
    }

    fn not_read(&self) -> impl Iterator<Item = &String> {
        let such = self.reads.iter().filter(|(_, state)| proof_rank(**state) < NOT_OBSERVABLE);
        such.map(|(volume, _)| volume)
    }

    fn not_read_since(&self) -> Option<OffsetDateTime> {
        let times = self.reads.values().filter_map(|state| match state {
            Some(ReadState::NotRead { since }) => Some(*since),
            Some(ReadState::Read | ReadState::NotObservable) | None => None,
        });
        times.min()
    }
}

/// Rank of files of which opens cannot be observed.
const NOT_OBSERVABLE: u8 = 2;

/// Orders states by what they prove.
fn proof_rank(state: Option<ReadState>) -> u8 {
    match state {
        None => 0,
        Some(ReadState::NotRead { .. }) => 1,
        Some(ReadState::NotObservable) => NOT_OBSERVABLE,
        Some(ReadState::Read) => 3,
    }
}

/// Key by which volumes share one source entry.
type SourceKey = (SourceSelection, Option<SourceContent>, String);

/// Computes the status. For volumes that have not been inspected yet, it is the `earlier` report.
pub fn status_of(reports: &VolumeReports, earlier: &PreviousReport, reads: &ReadStates) -> NodeTrustStatus {
    let mut groups = BTreeMap::<SourceKey, SourceVolumes>::new();
    let mut bundles = BTreeSet::new();
    let (mut volumes, mut blocked) = (0, 0);
    for (id, report) in reports.iter().filter(|(_, report)| !report.anchors.is_empty()) {
        volumes += 1;
        blocked += u32::from(report.blocked.is_some());
        let volume = id.to_string();
        for (path, selection, content) in contents(&volume, report, earlier) {
            let of_this = content.iter().flat_map(|content| &content.bundles);
            bundles.extend(of_this.map(|bundle| bundle.name.clone()));
            let message = truncate_message(report.blocked.as_deref().unwrap_or_default());
            let reads = content.is_some().then(|| reads.get(&(id.clone(), path.to_owned())).copied());
            let key = (selection, content, message.to_owned());
            groups.entry(key).or_default().add(&volume, reads);
        }
    }
    let mut status =
        NodeTrustStatus { volumes, blocked, bundles: number(bundles.len()), ..NodeTrustStatus::default() };
    let mut room = MAX_SOURCE_BYTES;
    for (key, volumes) in groups {
        let source = source(key, &volumes);
        let size = serde_json::to_string(&source).map_or(usize::MAX, |text| text.len());
        match room.checked_sub(size) {
            Some(left) if status.sources.len() < limits().sources => {
                room = left;
                status.sources.push(source);
            }
            // A shorter entry that comes later is not added: the list must be stable.
            Some(_) | None => {
                room = 0;
                status.more_sources += 1;
            }
        }
    }
    status
}

impl PreviousReport {
    /// Indexes an earlier status by volume and selection.
    pub fn new(status: &NodeTrustStatus) -> Self {
        let mut carried = BTreeMap::new();
        for source in status.sources.iter().filter(|source| !source.digest.is_empty()) {
            let Some(select) = parse_selector(source) else { continue };
            let selection = SourceSelection::new(&select, source.optional);
            let (digest, bundles) = (source.digest.clone(), source.bundles.clone());
            let content = SourceContent { digest, bundles };
            for volume in &source.volumes {
                carried.insert((volume.clone(), selection.clone()), content.clone());
            }
        }
        Self { carried }
    }
}

impl SourceSelection {
    fn new(select: &BundleSelector, optional: bool) -> Self {
        let (name, signer, labels) = match select {
            BundleSelector::Name(name) => (name.clone(), String::new(), String::new()),
            BundleSelector::Signer(signer, labels) => {
                (String::new(), signer.clone(), labels.to_object().to_string())
            }
        };
        Self { name, signer, labels, optional }
    }
}

fn contents<'a>(
    volume: &'a str,
    report: &'a VolumeReport,
    earlier: &'a PreviousReport,
) -> impl Iterator<Item = (&'a str, SourceSelection, Option<SourceContent>)> + 'a {
    report.anchors.iter().map(move |anchors| {
        let selection = SourceSelection::new(&anchors.select, anchors.optional);
        let content = match &anchors.carried {
            Some(carried) => {
                let bundles = carried.bundles.iter().map(|bundle| NodeTrustBundle {
                    name: bundle.name.clone(),
                    generation: bundle.generation,
                    digest: digest_text(&bundle.digest),
                });
                let bundles = bundles.take(limits().bundles).collect();
                Some(SourceContent { digest: digest_text(&carried.digest), bundles })
            }
            // A volume without files is a namesake of the reported one.
            None if !report.ready => None,
            None => earlier.carried.get(&(volume.to_owned(), selection.clone())).cloned(),
        };
        (anchors.path.as_str(), selection, content)
    })
}

fn source((selection, content, message): SourceKey, volumes: &SourceVolumes) -> NodeTrustSource {
    let SourceSelection { name, signer, labels, optional } = selection;
    let labels = serde_json::from_str::<serde_json::Value>(&labels).ok();
    let (digest, bundles) = content.map(|content| (content.digest, content.bundles)).unwrap_or_default();
    NodeTrustSource {
        name,
        signer_name: signer,
        label_selector: labels.filter(|labels| !labels.is_null()),
        optional,
        digest,
        bundles,
        volumes: volumes.names.iter().take(limits().volumes).cloned().collect(),
        more_volumes: number(volumes.names.len().saturating_sub(limits().volumes)),
        message,
        read_volumes: volumes.count(|state| state == ReadState::Read),
        not_read_volumes: volumes.not_read().take(limits().volumes).cloned().collect(),
        not_read_since: volumes.not_read_since().map(clock::text),
        not_observable_volumes: volumes.count(|state| state == ReadState::NotObservable),
        last_update_time: volumes.changed.map(clock::text),
    }
}

fn truncate_message(message: &str) -> &str {
    let mut end = limits().message_bytes.min(message.len());
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
