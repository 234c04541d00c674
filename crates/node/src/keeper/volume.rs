//! One volume: what it is to hold, what is known of it, and the two things that are done to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::needs::{self, Seen};
use super::place::Place;
use super::report::{AnchorsReport, Carried, CertificateReport, VolumeReport};
use super::tell::Mount;
use super::world::Gathered;
use crate::clock::Clock;
use crate::metrics::volumes::SourceType;
use crate::projections::Projection;
use crate::volume::content::Digest;
use crate::volume::definition::Definition;
use crate::volume::plan::{Action, Blocked, Readers, decide};
use crate::volume::writer::{Writer, Written};

/// Whose it is.
#[derive(Clone)]
pub enum Owned {
    Pod(Arc<Pod>),
    Host(Arc<Projection>),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not known what is on the disk.
    New,
    /// It is kept.
    Kept,
    /// Its pod is going away, and it was never made: it is not begun any more.
    Dropped,
}

/// A volume.
pub struct Volume {
    /// Tells it from one with the same name before it.
    pub serial: u64,
    pub owned: Owned,
    /// What it is to hold, or what is wrong with it.
    pub definition: Result<Arc<Definition>, Blocked>,
    pub readers: Readers,
    /// None if it cannot be anywhere.
    pub writer: Option<Writer>,
    pub stage: Stage,
    /// When it was first heard of.
    pub since: Duration,
    /// Whether it has files.
    pub ready: bool,
    /// Whether it was ever decided what is to be in it.
    pub decided: bool,
    /// Why its files are not what they should be.
    pub blocked: Option<Blocked>,
    /// What was written last, by this process.
    pub last: Option<Last>,
    /// What its selections came to when it was last decided.
    pub seen: Vec<Arc<Seen>>,
    /// What the disk has of them.
    pub carried: Vec<Option<Carried>>,
    /// The certificates that the disk has.
    pub certificates: Vec<CertificateReport>,
    /// When its files last changed.
    pub changed: Option<OffsetDateTime>,
    /// How often the disk did not do it, one time after the other.
    pub failures: u32,
    /// When to try again.
    pub retry_at: Option<Duration>,
    /// When to look whether somebody has damaged it.
    pub check_at: Duration,
    /// Whether it is time for that.
    pub check: bool,
    /// Whether it is to be worked on.
    pub queued: bool,
}

/// What was written last: what was decided, and the same with what was made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    pub plain: Digest,
    pub whole: Digest,
}

/// What is found on the disk.
pub struct Found {
    pub ready: bool,
    /// Tokens, by the place of their source.
    pub tokens: BTreeMap<usize, Zeroizing<String>>,
    pub certificates: Vec<CertificateReport>,
}

/// What is to be made.
pub struct Order {
    pub definition: Arc<Definition>,
    pub readers: Readers,
    pub gathered: Gathered,
    pub writer: Writer,
    pub projection: Option<Arc<Projection>>,
    pub ready: bool,
    /// What need not be written again.
    pub last: Option<Last>,
    pub clock: Clock,
}

/// What came of it.
pub struct Made {
    pub outcome: Result<Done, Trouble>,
    pub took: Duration,
}

/// It is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub last: Last,
    /// None if it was known without looking.
    pub written: Option<Written>,
    /// The certificates in it.
    pub certificates: Vec<CertificateReport>,
}

/// It is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Something is missing.
    Blocked(Blocked),
    /// The disk did not do it.
    Disk(String),
}

impl Volume {
    /// The definition, if it is one.
    pub fn good(&self) -> Option<&Arc<Definition>> {
        self.definition.as_ref().ok().filter(|_| self.stage != Stage::Dropped)
    }

    /// Where its ConfigMaps and Secrets are.
    pub fn namespace(&self) -> &str {
        match &self.owned {
            Owned::Pod(pod) => pod.metadata.namespace.as_deref().unwrap_or_default(),
            Owned::Host(projection) => &projection.namespace,
        }
    }

    /// What is known of it.
    pub fn report(&self) -> VolumeReport {
        let definition = self.definition.as_deref().ok();
        let carried = self.carried.iter().cloned().chain(std::iter::repeat(None));
        let anchors = definition.into_iter().flat_map(needs::bundle_sources).zip(carried);
        let anchors = anchors.map(|(source, carried)| AnchorsReport {
            select: source.select.clone(),
            optional: source.optional,
            path: source.path.as_str().to_owned(),
            carried,
        });
        VolumeReport {
            directory: self.writer.as_ref().map_or_else(PathBuf::new, |w| w.directory().to_owned()),
            sources: definition.map(sources).unwrap_or_default(),
            ready: self.ready,
            blocked: self.blocked.as_ref().map(ToString::to_string),
            changed: self.changed,
            anchors: anchors.collect(),
            certificates: self.certificates.clone(),
        }
    }

    /// What its pod is told. None if that is nothing.
    pub fn mount(&self, name: &str) -> Option<Mount> {
        let why = self.blocked.as_ref().map(|blocked| blocked.failed_mount(name));
        match why {
            _ if self.stage == Stage::Dropped => None,
            Some(why) if self.ready => Some(Mount::Old(why)),
            Some(why) => Some(Mount::Failed(why)),
            None if self.decided => Some(Mount::Good),
            None => Some(Mount::Unknown),
        }
    }
}

/// What it is made of.
fn sources(definition: &Definition) -> Vec<SourceType> {
    definition.sources.iter().map(|(_, source)| SourceType::of(source)).collect()
}

/// Looks what is on the disk since an earlier life of the process.
pub fn look(
    place: Option<&Place>,
    writer: &Writer,
    definition: Option<&Definition>,
) -> Result<Found, String> {
    if let Some(place) = place {
        place.prepare().map_err(|error| error.to_string())?;
    }
    let found = writer.read().map_err(|error| error.to_string())?;
    let mut tokens = BTreeMap::new();
    for (index, source) in definition.into_iter().flat_map(needs::tokens) {
        let file = found.as_ref().and_then(|found| found.get(&source.path));
        if let Some(text) = file.and_then(|file| std::str::from_utf8(&file.bytes).ok()) {
            tokens.insert(index, Zeroizing::new(text.to_owned()));
        }
    }
    let certificates = definition.into_iter().flat_map(needs::certificates);
    let certificates = certificates.filter_map(|(_, source)| {
        let path = source.chain.as_ref().or(source.bundle.as_ref())?;
        let file = found.as_ref().and_then(|found| found.get(path))?;
        CertificateReport::of_chain(&source.signer, &file.bytes)
    });
    let certificates = certificates.collect();
    Ok(Found { ready: found.is_some(), tokens, certificates })
}

/// Decides what is to be in it, and writes that.
pub fn make(order: &Order) -> Made {
    let began = (order.clock)().since;
    let outcome = try_make(order);
    let took = (order.clock)().since.saturating_sub(began);
    Made { outcome, took }
}

fn try_make(order: &Order) -> Result<Done, Trouble> {
    let world = order.gathered.world();
    let payload = match decide(&order.definition, order.readers, &world, order.ready) {
        Action::Write(payload) => payload,
        Action::Keep(mut blocked) | Action::Wait(mut blocked) => {
            blocked.0.extend(order.gathered.reasons.iter().cloned());
            return Err(Trouble::Blocked(blocked));
        }
    };
    let plain = payload.digest();
    let certificates = order.gathered.certificates(&order.definition);
    if let Some(last) = order.last.filter(|last| last.plain == plain) {
        return Ok(Done { last, written: None, certificates });
    }
    let (payload, whole) = match &order.projection {
        None => (payload, plain),
        Some(projection) => {
            let payload = projection.finish(payload).map_err(Trouble::Blocked)?;
            let whole = payload.digest();
            (payload, whole)
        }
    };
    let written = order.writer.write(&payload, (order.clock)().wall);
    let written = written.map_err(|error| Trouble::Disk(error.to_string()))?;
    Ok(Done { last: Last { plain, whole }, written: Some(written), certificates })
}
