//! Lifecycle of one volume: states with the data that each needs, and all transitions in [`VolumeState::step`].
//!
//! ```text
//! Uninspected ──▶ Pending ──▶ Ready ◀──▶ Blocked, Failed
//!      │             └──────────┴──────────▶ Abandoned (pod deleted before the first write)
//!      └──▶ Invalid
//! ```

use std::time::Duration;

use time::OffsetDateTime;

use super::pod_status::MountState;
use super::report::{CertificateReport, DeliveredAnchors};
use crate::volume::plan::BlockedReason;
use crate::volume::trust_anchors::Digest;
use windlass_runtime::backoff::Backoff;

/// Delay before a failed disk operation is retried; the same as kubelet's.
pub const DISK_RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(122));

#[derive(Clone, Debug, PartialEq)]
pub enum VolumeState {
    /// The directory was not inspected since the process started; the inspection may have failed.
    Uninspected(Option<VolumeDiskFailure>),
    /// The definition is invalid. Files of an earlier definition stay.
    Invalid { reason: BlockedReason, files: Option<VolumeFiles> },
    /// Inspected, and not planned yet. Files are those of an earlier process.
    Pending(Option<VolumeFiles>),
    /// The files are up to date.
    Ready(VolumeFiles),
    /// A source is missing or invalid. Retried when it changes.
    Blocked { reason: BlockedReason, files: Option<VolumeFiles> },
    /// The disk failed. Retried with backoff.
    Failed { failure: VolumeDiskFailure, files: Option<VolumeFiles> },
    /// The pod was deleted before the first write. The volume is not created any more.
    Abandoned,
}

/// An event of a volume's lifecycle.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeEvent {
    /// The directory was inspected. `invalid` is why the definition cannot be planned.
    Inspected {
        files: Option<VolumeFiles>,
        invalid: Option<BlockedReason>,
    },
    /// The planned files are on the disk.
    Written(VolumeFiles),
    /// Planning failed; files stay unchanged.
    Blocked(BlockedReason),
    /// The disk failed at this monotonic time; `random` spreads the retries.
    DiskFailed {
        reason: String,
        now: Duration,
        random: f64,
    },
    PodDeleted,
}

/// Files of a volume, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeFiles {
    /// What this process wrote last; `None` if the content of the disk is not known.
    pub last_write: Option<LastWrite>,
    /// Anchors in the files, one entry for each source of anchors; empty before the first write of this process.
    pub anchors: Vec<Option<DeliveredAnchors>>,
    pub certificates: Vec<CertificateReport>,
    /// When this process last changed the files.
    pub changed: Option<OffsetDateTime>,
}

/// Digests of the last write. They differ for host projections, which add keystores to the planned files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWrite {
    pub planned: Digest,
    pub written: Digest,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VolumeDiskFailure {
    pub reason: BlockedReason,
    pub attempts: u32,
    /// Monotonic time of the next attempt.
    pub retry_at: Duration,
}

impl VolumeDiskFailure {
    fn next(before: Option<&Self>, reason: String, now: Duration, random: f64) -> Self {
        let attempts = before.map_or(0, |failure| failure.attempts);
        Self {
            reason: BlockedReason(vec![reason]),
            attempts: attempts.saturating_add(1),
            retry_at: now + DISK_RETRY.delay(attempts, random),
        }
    }
}

impl VolumeState {
    /// Returns the state after an event. An unexpected event changes nothing.
    pub fn step(self, event: VolumeEvent) -> Self {
        match (self, event) {
            (Self::Uninspected(_), VolumeEvent::Inspected { files, invalid }) => match invalid {
                Some(reason) => Self::Invalid { reason, files },
                None => Self::Pending(files),
            },
            (Self::Uninspected(before), VolumeEvent::DiskFailed { reason, now, random }) => {
                Self::Uninspected(Some(VolumeDiskFailure::next(before.as_ref(), reason, now, random)))
            }
            (
                state @ (Self::Uninspected(_) | Self::Invalid { .. } | Self::Abandoned),
                VolumeEvent::Written(_) | VolumeEvent::Blocked(_),
            )
            | (state @ (Self::Invalid { .. } | Self::Abandoned), VolumeEvent::DiskFailed { .. })
            | (state, VolumeEvent::Inspected { .. }) => state,
            (_, VolumeEvent::Written(files)) => Self::Ready(files),
            (state, VolumeEvent::Blocked(reason)) => Self::Blocked { reason, files: state.into_files() },
            (state, VolumeEvent::DiskFailed { reason, now, random }) => {
                let failure = VolumeDiskFailure::next(state.failure(), reason, now, random);
                let files = state.into_files();
                // The failed write may have left partial content.
                let files = files.map(|files| VolumeFiles { last_write: None, ..files });
                Self::Failed { failure, files }
            }
            (state @ Self::Uninspected(_), VolumeEvent::PodDeleted) => state,
            (state, VolumeEvent::PodDeleted) if state.files().is_some() => state,
            (_, VolumeEvent::PodDeleted) => Self::Abandoned,
        }
    }

    /// Returns the files on disk; `None` if there are none or they are unknown.
    pub fn files(&self) -> Option<&VolumeFiles> {
        match self {
            Self::Uninspected(_) | Self::Abandoned => None,
            Self::Ready(files) => Some(files),
            Self::Pending(files)
            | Self::Invalid { files, .. }
            | Self::Blocked { files, .. }
            | Self::Failed { files, .. } => files.as_ref(),
        }
    }

    fn into_files(self) -> Option<VolumeFiles> {
        match self {
            Self::Uninspected(_) | Self::Abandoned => None,
            Self::Ready(files) => Some(files),
            Self::Pending(files)
            | Self::Invalid { files, .. }
            | Self::Blocked { files, .. }
            | Self::Failed { files, .. } => files,
        }
    }

    /// Returns why the files are not up to date.
    pub fn blocked_reason(&self) -> Option<&BlockedReason> {
        match self {
            Self::Invalid { reason, .. } | Self::Blocked { reason, .. } => Some(reason),
            _ => self.failure().map(|failure| &failure.reason),
        }
    }

    /// Returns the disk failure that is being retried.
    pub fn failure(&self) -> Option<&VolumeDiskFailure> {
        match self {
            Self::Uninspected(failure) => failure.as_ref(),
            Self::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// Returns whether the volume is planned and written when its sources change.
    pub fn is_maintained(&self) -> bool {
        match self {
            Self::Pending(_) | Self::Ready(_) | Self::Blocked { .. } | Self::Failed { .. } => true,
            Self::Uninspected(_) | Self::Invalid { .. } | Self::Abandoned => false,
        }
    }

    /// Returns what is reported to the pod about the volume `name`; `None` if nothing.
    pub fn mount_state(&self, name: &str) -> Option<MountState> {
        let message = self.blocked_reason().map(|reason| reason.failed_mount(name));
        match (self, message) {
            (Self::Abandoned, _) => None,
            (Self::Ready(_), _) => Some(MountState::Ready),
            (_, None) => Some(MountState::Unknown),
            (state, Some(message)) if state.files().is_some() => Some(MountState::Stale(message)),
            (_, Some(message)) => Some(MountState::Failed(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::payload::VolumePayload;

    const NOW: Duration = Duration::from_secs(100);

    fn reason(text: &str) -> BlockedReason {
        BlockedReason(vec![text.to_owned()])
    }

    fn files(written: bool) -> VolumeFiles {
        let digest = VolumePayload::default().digest();
        let last_write = written.then_some(LastWrite { planned: digest, written: digest });
        VolumeFiles { last_write, ..VolumeFiles::default() }
    }

    fn failure(text: &str, attempts: u32) -> VolumeDiskFailure {
        let retry_at = NOW + DISK_RETRY.delay(attempts - 1, 0.5);
        VolumeDiskFailure { reason: reason(text), attempts, retry_at }
    }

    #[test]
    fn transitions() {
        use VolumeEvent as Event;
        use VolumeState as State;
        let inspected = |files, invalid| Event::Inspected { files, invalid };
        let disk_failed = || Event::DiskFailed { reason: "full".into(), now: NOW, random: 0.5 };
        let invalid = |files| State::Invalid { reason: reason("bad"), files };
        let blocked = |files| State::Blocked { reason: reason("no a"), files };
        let failed = |attempts, files| State::Failed { failure: failure("full", attempts), files };
        let (old, new) = (|| Some(files(false)), || Some(files(true)));
        let table = [
            (State::Uninspected(None), inspected(None, None), State::Pending(None)),
            (State::Uninspected(None), inspected(old(), None), State::Pending(old())),
            (State::Uninspected(None), inspected(old(), Some(reason("bad"))), invalid(old())),
            (State::Uninspected(None), disk_failed(), State::Uninspected(Some(failure("full", 1)))),
            (
                State::Uninspected(Some(failure("full", 1))),
                disk_failed(),
                State::Uninspected(Some(failure("full", 2))),
            ),
            (State::Uninspected(Some(failure("full", 3))), inspected(None, None), State::Pending(None)),
            (State::Uninspected(None), Event::PodDeleted, State::Uninspected(None)),
            (State::Pending(None), Event::Written(files(true)), State::Ready(files(true))),
            (State::Pending(None), Event::Blocked(reason("no a")), blocked(None)),
            (State::Pending(old()), Event::Blocked(reason("no a")), blocked(old())),
            (State::Pending(None), disk_failed(), failed(1, None)),
            (State::Pending(None), Event::PodDeleted, State::Abandoned),
            (State::Pending(old()), Event::PodDeleted, State::Pending(old())),
            (State::Ready(files(true)), Event::Blocked(reason("no a")), blocked(new())),
            (State::Ready(files(true)), disk_failed(), failed(1, old())),
            (State::Ready(files(false)), Event::PodDeleted, State::Ready(files(false))),
            (blocked(None), Event::Written(files(true)), State::Ready(files(true))),
            (blocked(None), Event::PodDeleted, State::Abandoned),
            (blocked(new()), disk_failed(), failed(1, old())),
            (failed(1, None), disk_failed(), failed(2, None)),
            (failed(2, old()), Event::Written(files(true)), State::Ready(files(true))),
            (failed(2, old()), Event::Blocked(reason("no a")), blocked(old())),
            (failed(1, None), Event::PodDeleted, State::Abandoned),
            (invalid(None), Event::Written(files(true)), invalid(None)),
            (invalid(None), disk_failed(), invalid(None)),
            (invalid(None), Event::PodDeleted, State::Abandoned),
            (State::Abandoned, Event::Written(files(true)), State::Abandoned),
            (State::Abandoned, inspected(old(), None), State::Abandoned),
            (State::Abandoned, disk_failed(), State::Abandoned),
        ];
        for (state, event, expected) in table {
            let row = format!("{state:?} {event:?}");
            assert_eq!(state.step(event), expected, "{row}");
        }
    }

    #[test]
    fn mount_states() {
        let message = reason("no a").failed_mount("v");
        let blocked = |files| VolumeState::Blocked { reason: reason("no a"), files };
        let failed = VolumeDiskFailure { reason: reason("no a"), attempts: 1, retry_at: NOW };
        let table = [
            (VolumeState::Uninspected(None), Some(MountState::Unknown)),
            (VolumeState::Uninspected(Some(failed)), Some(MountState::Failed(message.clone()))),
            (VolumeState::Pending(Some(files(false))), Some(MountState::Unknown)),
            (VolumeState::Ready(files(false)), Some(MountState::Ready)),
            (blocked(None), Some(MountState::Failed(message.clone()))),
            (blocked(Some(files(false))), Some(MountState::Stale(message))),
            (VolumeState::Abandoned, None),
        ];
        for (state, expected) in table {
            assert_eq!(state.mount_state("v"), expected, "{state:?}");
        }
    }
}
