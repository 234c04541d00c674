//! Waits for the end of a rotation.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::{Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_api::ca_rotation::{CaRotationStatus, RotationPhase};
use windlass_runtime::watch::{ListTracker, ObjectWatch, TrackedEvent, WatchErrorKind};

use super::rotations::{self, RotationObject};
use super::status_text;
use crate::commands::InterruptedError;
use crate::commands::print::plain;

/// How the wait for a rotation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    Completed,
    /// The rotation failed or was rolled back.
    Failed,
    /// It was held for longer than the timeout.
    Held,
}

/// Measures for how long a rotation has been held in its phase.
#[derive(Debug)]
struct HoldTimer {
    /// Time for which the rotation may be held; `None` for any time.
    timeout: Option<Duration>,
    /// Phase in which it is held, and since when.
    held: Option<(Option<RotationPhase>, Instant)>,
}

/// What to do after a change of the rotation, or when time has passed.
#[derive(Debug, PartialEq, Eq)]
enum WaitStep {
    /// Wait for the next change, until this moment if there is one.
    Continue(Option<Instant>),
    End(WaitOutcome),
}

/// Waits until the rotation has ended or was held for longer than the timeout. A timeout of zero means
/// none. Prints a line for every change to standard error. Returns the last state.
pub async fn wait(
    client: &Client,
    rotation: RotationObject,
    timeout: Duration,
) -> Result<(WaitOutcome, RotationObject)> {
    let (name, uid) = (rotation.name_any(), rotation.uid());
    let only = format!("metadata.name={name}");
    let mut events = ObjectWatch::with_fields(rotations::rotation_api(client), Some(&only));
    let mut tracker = ListTracker::default();
    let mut timer = HoldTimer { timeout: (!timeout.is_zero()).then_some(timeout), held: None };
    let mut printed = String::new();
    let mut current = rotation;
    loop {
        let deadline = match timer.step(current.status.as_ref(), Instant::now()) {
            WaitStep::End(outcome) => return Ok((outcome, current)),
            WaitStep::Continue(deadline) => deadline,
        };
        tokio::select! {
            event = events.next() => match event {
                Ok(event) => match tracker.track(event, RotationObject::name_any) {
                    Some(TrackedEvent::Applied(_, found)) if found.uid() == uid => current = found,
                    Some(TrackedEvent::Listed(names)) if !names.is_empty() => {}
                    None => {}
                    Some(_) => bail!("rotation {name} was deleted"),
                },
                Err(error) if error.kind == WatchErrorKind::Refused => bail!("{}", plain(&error.message)),
                Err(_) => {}
            },
            () = sleep_until(deadline) => {}
            _ = tokio::signal::ctrl_c() => {
                return Err(InterruptedError(format!("rotation {name} continues")).into());
            }
        }
        let line = status_text::summary_line(&current, OffsetDateTime::now_utc());
        let state = line.split_once(' ').map(|(_, state)| state.to_owned()).unwrap_or_default();
        if state != printed {
            eprintln!("windlass: {line}");
            printed = state;
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl HoldTimer {
    /// A rotation that no controller has reported on counts as held, because nothing will happen.
    fn step(&mut self, status: Option<&CaRotationStatus>, now: Instant) -> WaitStep {
        let phase = status.and_then(|status| status.phase);
        match phase {
            Some(RotationPhase::Completed) => return WaitStep::End(WaitOutcome::Completed),
            Some(RotationPhase::Failed | RotationPhase::RolledBack) => {
                return WaitStep::End(WaitOutcome::Failed);
            }
            Some(_) | None => {}
        }
        let is_held = phase.is_none() || status.is_some_and(|status| status.held().is_some());
        self.held = match self.held {
            _ if !is_held => None,
            Some((in_phase, since)) if in_phase == phase => Some((in_phase, since)),
            _ => Some((phase, now)),
        };
        let deadline = self.held.zip(self.timeout).map(|((_, since), timeout)| since + timeout);
        match deadline {
            Some(deadline) if now >= deadline => WaitStep::End(WaitOutcome::Held),
            deadline => WaitStep::Continue(deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(phase: &str, held: &str) -> Value {
        let condition = json!({"type": "Held", "status": held, "reason": "ConsumersNotRead", "message": "",
                               "lastTransitionTime": "2026-03-01T12:00:00Z"});
        json!({"phase": phase, "conditions": [condition]})
    }

    #[test]
    fn only_uninterrupted_holds_time_out() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let wait_until = |seconds| WaitStep::Continue(Some(at(seconds)));
        let mut timer = HoldTimer { timeout: Some(Duration::from_secs(10)), held: None };
        for (second, state, wanted) in [
            // Nobody has started it.
            (0, json!({}), wait_until(10)),
            (9, status("Preparing", "False"), WaitStep::Continue(None)),
            (12, status("WaitingForTrust", "True"), wait_until(22)),
            (15, status("WaitingForTrust", "True"), wait_until(22)),
            // Progress starts the time anew.
            (21, status("Renewing", "True"), wait_until(31)),
            (25, status("Renewing", "False"), WaitStep::Continue(None)),
            (100, status("Renewing", "True"), wait_until(110)),
            (109, status("Renewing", "True"), wait_until(110)),
            (110, status("Renewing", "True"), WaitStep::End(WaitOutcome::Held)),
            (111, status("Completed", "False"), WaitStep::End(WaitOutcome::Completed)),
            (111, status("RolledBack", "False"), WaitStep::End(WaitOutcome::Failed)),
            (111, status("Failed", "True"), WaitStep::End(WaitOutcome::Failed)),
        ] {
            let parsed: CaRotationStatus = serde_json::from_value(state.clone()).unwrap();
            assert_eq!(timer.step(Some(&parsed), at(second)), wanted, "{second} {state}");
        }
        let mut patient = HoldTimer { timeout: None, held: None };
        assert_eq!(patient.step(None, at(0)), WaitStep::Continue(None));
        assert_eq!(patient.step(None, at(1_000_000)), WaitStep::Continue(None));
    }
}
