//! Limits of a signer on requests: how many wait at the same time, and how many certificates one requester gets within
//! an hour. Windows of requesters live as long as the process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use windlass_api::timestamp;

use crate::limits::MAX_TRACKED_REQUESTERS;

/// Reason of the condition on a request whose requester has got too many certificates.
pub const RATE_LIMITED: &str = "RateLimited";
/// Reason of the condition on a request that waits behind too many others.
pub const TOO_MANY_PENDING: &str = "TooManyPendingRequests";

const MINUTES: i64 = 60;

/// Certificates of each requester in the last hour, counted by minute.
#[derive(Default)]
pub struct RequesterQuota {
    windows: Mutex<HashMap<String, RequesterWindow>>,
}

/// Minutes with certificates, oldest first, and how many there were.
#[derive(Default)]
struct RequesterWindow {
    minutes: VecDeque<(i64, u32)>,
}

/// Delay of a request that exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDelay {
    /// Reason of the condition and event, in CamelCase.
    pub reason: &'static str,
    /// Message for requesters, with the limit.
    pub message: String,
}

impl LimitDelay {
    /// Creates the delay of a request that waits behind too many others.
    pub fn pending(limit: u32) -> LimitDelay {
        let message = format!(
            "{limit} older requests wait for the signer; it signs this one when some of them are answered"
        );
        LimitDelay { reason: TOO_MANY_PENDING, message }
    }

    fn rate(limit: u32, next: OffsetDateTime) -> LimitDelay {
        let next = timestamp::format(next);
        let message = format!(
            "the requester got {limit} certificates from this signer within an hour, which is the limit; the next one is possible at {next}"
        );
        LimitDelay { reason: RATE_LIMITED, message }
    }
}

impl RequesterQuota {
    /// Counts a certificate for a requester, or returns why there is none now.
    pub fn reserve(&self, requester: &str, limit: u32, now: OffsetDateTime) -> Result<(), LimitDelay> {
        let minute = now.unix_timestamp().div_euclid(60);
        let mut windows = self.lock();
        if !windows.contains_key(requester) && windows.len() >= MAX_TRACKED_REQUESTERS {
            make_room(&mut windows, minute);
        }
        let window = windows.entry(requester.to_owned()).or_default();
        window.expire(minute);
        if window.count() >= u64::from(limit) {
            let oldest = window.minutes.front().map_or(minute, |(oldest, _)| *oldest);
            let next = OffsetDateTime::from_unix_timestamp((oldest + MINUTES) * 60).unwrap_or(now);
            return Err(LimitDelay::rate(limit, next));
        }
        match window.minutes.back_mut() {
            Some((last, count)) if *last >= minute => *count += 1,
            _ => window.minutes.push_back((minute, 1)),
        }
        Ok(())
    }

    /// Returns a certificate that was counted last and not issued.
    pub fn release(&self, requester: &str) {
        let mut windows = self.lock();
        let Some(window) = windows.get_mut(requester) else { return };
        if let Some((_, count)) = window.minutes.back_mut() {
            *count -= 1;
            if *count == 0 {
                window.minutes.pop_back();
            }
        }
        if window.minutes.is_empty() {
            windows.remove(requester);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RequesterWindow>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequesterWindow {
    fn expire(&mut self, minute: i64) {
        while self.minutes.front().is_some_and(|(oldest, _)| oldest + MINUTES <= minute) {
            self.minutes.pop_front();
        }
    }

    fn count(&self) -> u64 {
        self.minutes.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    fn last_minute(&self) -> i64 {
        self.minutes.back().map_or(i64::MIN, |(minute, _)| *minute)
    }
}

/// Forgets requesters without certificates in the last hour and, if there are none, the half that got theirs first.
fn make_room(windows: &mut HashMap<String, RequesterWindow>, minute: i64) {
    windows.retain(|_, window| window.last_minute() + MINUTES > minute);
    if windows.len() >= MAX_TRACKED_REQUESTERS {
        let mut last: Vec<i64> = windows.values().map(RequesterWindow::last_minute).collect();
        let middle = last.len() / 2;
        let (_, median, _) = last.select_nth_unstable(middle);
        let median = *median;
        let mut excess = middle;
        windows.retain(|_, window| {
            let goes = window.last_minute() <= median && excess > 0;
            excess -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-18 12:00:30 UTC);

    #[test]
    fn each_requester_gets_so_many_within_an_hour() {
        let quota = RequesterQuota::default();
        let later = |minutes| NOW + time::Duration::minutes(minutes);
        assert_eq!(quota.reserve("a", 2, NOW), Ok(()));
        assert_eq!(quota.reserve("a", 2, later(30)), Ok(()));
        let delay = quota.reserve("a", 2, later(59)).unwrap_err();
        assert_eq!(delay.reason, RATE_LIMITED);
        assert!(delay.message.ends_with("possible at 2026-11-18T13:00:00Z"), "{}", delay.message);
        assert_eq!(quota.reserve("b", 2, later(59)), Ok(()), "limits are per requester");
        assert_eq!(quota.reserve("a", 3, later(59)), Ok(()), "a raised limit applies at once");
        assert_eq!(quota.reserve("a", 3, later(60)), Ok(()), "the first one is an hour old");
        assert!(quota.reserve("a", 3, later(60)).is_err());
        quota.release("a");
        assert_eq!(quota.reserve("a", 3, later(60)), Ok(()));
        quota.release("b");
        quota.release("nobody");
        assert_eq!(quota.lock().len(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let quota = RequesterQuota::default();
        for number in 0..=MAX_TRACKED_REQUESTERS {
            quota.reserve(&number.to_string(), 1, NOW).unwrap();
        }
        let held = quota.lock().len();
        assert!(held > 1 && held <= MAX_TRACKED_REQUESTERS / 2 + 1, "{held}");
        let later = NOW + time::Duration::hours(2);
        for number in 0..MAX_TRACKED_REQUESTERS {
            quota.reserve(&format!("later {number}"), 1, later).unwrap();
        }
        assert!(quota.lock().len() <= MAX_TRACKED_REQUESTERS);
    }
}
