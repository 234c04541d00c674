//! Events on requests for certificates that wait, so that `kubectl describe` says why.
//!
//! An event is a courtesy: the condition on the request says the same and stays. So there are a
//! few a second at most, whatever happens to however many requests, and one that cannot be written
//! holds up nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use tokio::time::Instant;

use crate::requests::Request;

/// Events at once.
const BURST: u32 = 25;
/// How long until there may be one more.
const EACH: Duration = Duration::from_millis(200);

/// Writes events, but not too many.
pub struct Notices {
    recorder: Recorder,
    allowance: Mutex<Allowance>,
}

struct Allowance {
    left: u32,
    since: Instant,
}

impl Notices {
    /// Events under the name of a controller.
    pub fn new(client: Client, controller: &str) -> Notices {
        let recorder = Recorder::new(client, Reporter::from(controller));
        let allowance = Allowance { left: BURST, since: Instant::now() };
        Notices { recorder, allowance: Mutex::new(allowance) }
    }

    /// Warns on a request.
    pub async fn warn(&self, request: &Request, action: &str, reason: &str, note: &str) {
        let now = Instant::now();
        if !self.allowance.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.into(),
            note: Some(note.chars().take(1024).collect()),
            action: action.into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &request.object_ref(&())).await {
            tracing::debug!(%error, reason, "cannot write an event");
        }
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_millis() / EACH.as_millis();
        if let Some(earned) = u32::try_from(passed).ok().filter(|earned| *earned > 0) {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.since = now;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_at_once_and_then_slowly() {
        let mut allowance = Allowance { left: BURST, since: Instant::now() };
        let mut taken = |after: Duration| {
            let now = Instant::now() + after;
            (0..1000).filter(|_| allowance.take(now)).count()
        };
        assert_eq!(taken(Duration::ZERO), 25);
        assert_eq!(taken(EACH), 1);
        assert_eq!(taken(EACH * 4), 3);
        assert_eq!(taken(Duration::from_secs(3600)), 25);
    }
}
