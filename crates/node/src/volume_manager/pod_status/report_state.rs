//! What was reported to a pod, and the next report. It is pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::truncate_note;

/// Type of the condition that reports the state of a pod's volumes.
pub const CONDITION: &str = "windlass.dev/VolumesReady";
/// How long a problem may last before it is reported: most pods wait a little for a token or a
/// certificate.
const GRACE: Duration = Duration::from_secs(1);
/// First and longest delay between repeated events.
const REPEAT: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(1800));
/// Interval of condition writes that change only the message.
const REWORD: Duration = Duration::from_secs(30);
/// How long the watch may still deliver the pod from before the condition was written.
const ECHO: Duration = Duration::from_secs(5);
/// Backoff of failed condition writes.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));

/// The mount state of one volume, as reported to its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountState {
    /// The volume was not inspected yet.
    Unknown,
    /// The files of the volume are up to date.
    Ready,
    /// The volume keeps stale files, for this reason.
    Stale(String),
    /// The volume has no files, for this reason.
    Failed(String),
}

/// The `VolumesReady` condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesCondition {
    pub status: bool,
    pub reason: String,
    pub message: String,
}

/// One API write that reports to a pod: an event or the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusUpdate {
    /// An event about a volume, with its count including this one.
    Event { volume: String, note: String, count: u32 },
    /// Write the `VolumesReady` condition to the pod's status.
    Condition(VolumesCondition),
}

/// What the reporter does next about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextUpdate {
    Do(StatusUpdate),
    /// Wait until this time; `None` means until the next change.
    Wait(Option<Duration>),
}

/// What was reported about a pod, and the state of its volumes.
pub struct PodReportState {
    pub pod: Arc<Pod>,
    /// Mount states, with the time at which each problem started.
    mounts: BTreeMap<String, (MountState, Duration)>,
    events: BTreeMap<String, MountEvent>,
    /// The condition of the pod, as far as it is known.
    condition: Option<VolumesCondition>,
    written: Option<Duration>,
    failures: u32,
    retry_at: Duration,
}

struct MountEvent {
    note: String,
    count: u32,
    next: Duration,
}

impl PodReportState {
    /// Creates the state of a pod, to which an earlier process may have reported.
    pub fn new(pod: Arc<Pod>) -> Self {
        let condition = condition_of(&pod);
        Self {
            pod,
            mounts: BTreeMap::new(),
            events: BTreeMap::new(),
            condition,
            written: None,
            failures: 0,
            retry_at: Duration::ZERO,
        }
    }

    pub fn update(&mut self, pod: Arc<Pod>, mounts: BTreeMap<String, MountState>, now: Duration) {
        if self.written.is_none_or(|written| now.saturating_sub(written) >= ECHO) {
            self.condition = condition_of(&pod);
        }
        self.pod = pod;
        let before = std::mem::take(&mut self.mounts);
        for (name, mount) in mounts {
            let since = match before.get(&name) {
                Some((old, since)) if old.is_failure() => *since,
                _ => now,
            };
            self.mounts.insert(name, (mount, since));
        }
        let mounts = &self.mounts;
        let in_trouble = |name: &str| mounts.get(name).is_some_and(|(mount, _)| mount.is_failure());
        self.events.retain(|name, _| in_trouble(name));
    }

    /// Returns what to report now, or when.
    pub fn next(&self, now: Duration) -> NextUpdate {
        // A pod that is being deleted needs no report.
        if self.pod.metadata.deletion_timestamp.is_some() {
            return NextUpdate::Wait(None);
        }
        let mut wait = None::<Duration>;
        let mut later = |at: Duration| wait = Some(wait.map_or(at, |wait| wait.min(at)));
        for (volume, (mount, since)) in &self.mounts {
            let Some(note) = mount.failure() else { continue };
            let last = self.events.get(volume).filter(|event| event.note == note);
            let at = last.map_or(*since + GRACE, |event| event.next);
            if at <= now {
                let count = last.map_or(1, |event| event.count.saturating_add(1));
                let (volume, note) = (volume.clone(), note.to_owned());
                return NextUpdate::Do(StatusUpdate::Event { volume, note, count });
            }
            later(at);
        }
        match self.condition(now) {
            DesiredCondition::Unknown => {}
            DesiredCondition::At(at) => later(at),
            DesiredCondition::Known(wanted) if self.condition.as_ref() == Some(&wanted) => {}
            DesiredCondition::Known(wanted) => {
                let at = self.retry_at.max(self.reworded_at(&wanted));
                if at <= now {
                    return NextUpdate::Do(StatusUpdate::Condition(wanted));
                }
                later(at);
            }
        }
        NextUpdate::Wait(wait)
    }

    /// Records an attempt to write an event; it is repeated in any case.
    pub fn event_written(&mut self, volume: &str, note: &str, count: u32, now: Duration) {
        let next = now + REPEAT.delay(count.saturating_sub(1), 0.5);
        let event = MountEvent { note: note.to_owned(), count, next };
        self.events.insert(volume.to_owned(), event);
    }

    /// Records that the API server accepted the condition.
    pub fn condition_written(&mut self, condition: VolumesCondition, now: Duration) {
        self.condition = Some(condition);
        self.written = Some(now);
        self.failures = 0;
    }

    /// Records that the condition could not be written.
    pub fn condition_failed(&mut self, now: Duration, random: f64) {
        self.retry_at = now + RETRY.delay(self.failures, random);
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns whether the pod's condition has this status, whatever its message.
    pub fn has_status(&self, status: bool) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.status == status)
    }

    fn reworded_at(&self, wanted: &VolumesCondition) -> Duration {
        let same = |has: &VolumesCondition| has.status == wanted.status && has.reason == wanted.reason;
        match self.written {
            Some(written) if self.condition.as_ref().is_some_and(same) => written + REWORD,
            _ => Duration::ZERO,
        }
    }

    fn condition(&self, now: Duration) -> DesiredCondition {
        let mounts = self.mounts.values();
        if self.mounts.is_empty() || mounts.clone().any(|(mount, _)| *mount == MountState::Unknown) {
            return DesiredCondition::Unknown;
        }
        let trouble = mounts.filter(|(mount, _)| mount.is_failure());
        let Some(settled) = trouble.clone().map(|(_, since)| *since + GRACE).max() else {
            let (reason, message) = ("VolumesReady".into(), String::new());
            return DesiredCondition::Known(VolumesCondition { status: true, reason, message });
        };
        if settled > now {
            return DesiredCondition::At(settled);
        }
        let failed = trouble.clone().any(|(mount, _)| matches!(mount, MountState::Failed(_)));
        let reason = if failed { "FailedMount" } else { "KeepingOldContent" };
        let notes = trouble.filter_map(|(mount, _)| mount.failure()).collect::<Vec<_>>();
        let message = truncate_note(&notes.join("; ")).to_owned();
        DesiredCondition::Known(VolumesCondition { status: false, reason: reason.into(), message })
    }
}

enum DesiredCondition {
    /// The state of a volume is not known yet.
    Unknown,
    At(Duration),
    Known(VolumesCondition),
}

impl MountState {
    fn is_failure(&self) -> bool {
        self.failure().is_some()
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Ready => None,
            Self::Stale(why) | Self::Failed(why) => Some(why),
        }
    }
}

fn condition_of(pod: &Pod) -> Option<VolumesCondition> {
    let all = pod.status.as_ref()?.conditions.as_ref()?;
    let found = all.iter().find(|condition| condition.type_ == CONDITION)?;
    Some(VolumesCondition {
        status: found.status == "True",
        reason: found.reason.clone().unwrap_or_default(),
        message: found.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pod(status: serde_json::Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "status": status});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn mounts(all: &[(&str, MountState)]) -> BTreeMap<String, MountState> {
        all.iter().map(|(name, mount)| ((*name).to_owned(), mount.clone())).collect()
    }

    fn failed(why: &str) -> MountState {
        MountState::Failed(why.into())
    }

    fn report_state(all: &[(&str, MountState)]) -> PodReportState {
        let mut state = PodReportState::new(pod(json!({})));
        state.update(state.pod.clone(), mounts(all), Duration::ZERO);
        state
    }

    fn condition(status: bool, reason: &str, message: &str) -> VolumesCondition {
        VolumesCondition { status, reason: reason.into(), message: message.into() }
    }

    #[test]
    fn a_condition_says_how_all_volumes_are() {
        let old = MountState::Stale("old".into());
        let cases = [
            (&[][..], None),
            (&[("a", MountState::Ready), ("b", MountState::Unknown)], None),
            (&[("a", MountState::Ready)], Some(condition(true, "VolumesReady", ""))),
            (&[("a", failed("why")), ("b", MountState::Ready)], Some(condition(false, "FailedMount", "why"))),
            (&[("a", old.clone())], Some(condition(false, "KeepingOldContent", "old"))),
            (&[("a", old), ("b", failed("why"))], Some(condition(false, "FailedMount", "old; why"))),
        ];
        for (mounts, expected) in cases {
            let mut state = report_state(mounts);
            let mut found = None;
            loop {
                match state.next(SECOND) {
                    NextUpdate::Do(StatusUpdate::Condition(condition)) => {
                        state.condition_written(condition.clone(), SECOND);
                        found = Some(condition);
                    }
                    NextUpdate::Do(StatusUpdate::Event { volume, note, count }) => {
                        state.event_written(&volume, &note, count, SECOND);
                    }
                    NextUpdate::Wait(_) => break,
                }
            }
            assert_eq!(found, expected, "{mounts:?}");
        }
    }

    #[test]
    fn transient_failure_is_not_reported() {
        let mut state = report_state(&[("a", failed("x"))]);
        assert_eq!(state.next(Duration::ZERO), NextUpdate::Wait(Some(GRACE)));
        // The problem continues with another reason: the grace period does not restart.
        state.update(state.pod.clone(), mounts(&[("a", failed("y"))]), GRACE / 2);
        assert_eq!(state.next(GRACE / 2), NextUpdate::Wait(Some(GRACE)));
        let event = |note: &str, count| {
            NextUpdate::Do(StatusUpdate::Event { volume: "a".into(), note: note.into(), count })
        };
        assert_eq!(state.next(GRACE), event("y", 1));
        state.update(state.pod.clone(), mounts(&[("a", MountState::Ready)]), GRACE);
        let good = NextUpdate::Do(StatusUpdate::Condition(condition(true, "VolumesReady", "")));
        assert_eq!(state.next(GRACE), good);
    }

    #[test]
    fn an_event_is_repeated_more_and_more_slowly() {
        let mut state = report_state(&[("a", failed("x"))]);
        state.condition_written(condition(false, "FailedMount", "x"), GRACE);
        let mut now = GRACE;
        let mut pauses = Vec::new();
        for expected in 1..=8 {
            let NextUpdate::Do(StatusUpdate::Event { volume, note, count }) = state.next(now) else {
                panic!("{:?}", state.next(now))
            };
            assert_eq!(count, expected);
            state.event_written(&volume, &note, count, now);
            let NextUpdate::Wait(Some(at)) = state.next(now) else { panic!("{:?}", state.next(now)) };
            pauses.push((at - now).as_secs() / 60);
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        // Another reason is reported at once.
        state.update(state.pod.clone(), mounts(&[("a", failed("z"))]), now);
        let next = state.next(now);
        assert!(matches!(next, NextUpdate::Do(StatusUpdate::Event { count: 1, .. })), "{next:?}");
    }

    #[test]
    fn unchanged_condition_is_not_written() {
        let has = json!({"conditions": [
            {"type": CONDITION, "status": "True", "reason": "VolumesReady"},
        ]});
        let mut state = PodReportState::new(pod(has));
        state.update(state.pod.clone(), mounts(&[("a", MountState::Ready)]), Duration::ZERO);
        assert_eq!(state.next(SECOND), NextUpdate::Wait(None));
        // Another client removed the condition.
        state.update(pod(json!({})), mounts(&[("a", MountState::Ready)]), SECOND);
        let good = condition(true, "VolumesReady", "");
        assert_eq!(state.next(SECOND), NextUpdate::Do(StatusUpdate::Condition(good.clone())));
        state.condition_written(good, SECOND);
        // A stale pod that arrives late changes nothing.
        state.update(pod(json!({})), mounts(&[("a", MountState::Ready)]), SECOND * 2);
        assert_eq!(state.next(SECOND * 2), NextUpdate::Wait(None));
    }

    #[test]
    fn rewordings_are_delayed_and_failures_back_off() {
        let mut state = report_state(&[("a", failed("x"))]);
        let has = condition(false, "FailedMount", "x");
        state.condition_written(has, GRACE);
        state.event_written("a", "x", 1, GRACE);
        state.update(state.pod.clone(), mounts(&[("a", failed("y"))]), GRACE);
        state.event_written("a", "y", 1, GRACE);
        assert_eq!(state.next(GRACE), NextUpdate::Wait(Some(GRACE + REWORD)));
        let now = GRACE + REWORD;
        assert!(matches!(state.next(now), NextUpdate::Do(StatusUpdate::Condition(_))));
        state.condition_failed(now, 0.5);
        assert_eq!(state.next(now), NextUpdate::Wait(Some(now + SECOND * 2)));
        state.condition_failed(now, 0.5);
        assert_eq!(state.next(now), NextUpdate::Wait(Some(now + SECOND * 4)));
    }

    #[test]
    fn a_terminating_pod_gets_no_reports() {
        let mut state = report_state(&[("a", failed("x"))]);
        let mut going = Pod::clone(&state.pod);
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-03-01T12:00:00Z")).unwrap();
        state.update(Arc::new(going), mounts(&[("a", failed("x"))]), Duration::ZERO);
        assert_eq!(state.next(SECOND * 9), NextUpdate::Wait(None));
    }
}
