//! When a list is checked again. Changes come in bursts, so a change makes a list due no earlier than it may be signed
//! again.

use time::OffsetDateTime;

/// When the list of one authority is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSchedule {
    /// Number of changes so far.
    changes: u64,
    state: ScheduleState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ScheduleState {
    /// The work queue has it, possibly delayed after a failure.
    Queued,
    /// Nothing is to be done before `check_at`, or before `signable_at` if something changes.
    Waiting { check_at: OffsetDateTime, signable_at: OffsetDateTime },
}

impl ListSchedule {
    /// Creates the schedule of a list that is checked now.
    pub fn queued() -> ListSchedule {
        ListSchedule { changes: 0, state: ScheduleState::Queued }
    }

    /// Notes that a revocation or the published list changed. Returns whether the list is to be checked now.
    pub fn note_change(&mut self, now: OffsetDateTime) -> bool {
        self.changes = self.changes.wrapping_add(1);
        if let ScheduleState::Waiting { check_at, signable_at } = &mut self.state {
            *check_at = (*check_at).min(*signable_at);
        }
        self.take_due(now)
    }

    /// Returns whether the list is to be checked now; it is queued then.
    pub fn take_due(&mut self, now: OffsetDateTime) -> bool {
        match self.state {
            ScheduleState::Waiting { check_at, .. } if check_at <= now => {
                self.state = ScheduleState::Queued;
                true
            }
            ScheduleState::Waiting { .. } | ScheduleState::Queued => false,
        }
    }

    /// Returns a token for [`ListSchedule::settle`], before the state is read on which a check depends.
    pub fn begin(&self) -> u64 {
        self.changes
    }

    /// Ends a check. The next one is at `check_at`, or at `signable_at` if something changed since `begun`.
    pub fn settle(&mut self, begun: u64, check_at: OffsetDateTime, signable_at: OffsetDateTime) {
        let check_at = if begun == self.changes { check_at } else { check_at.min(signable_at) };
        self.state = ScheduleState::Waiting { check_at, signable_at };
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn ten_thousand_changes_share_a_check() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let mut schedule = ListSchedule::queued();
        let begun = schedule.begin();
        schedule.settle(begun, start + Duration::HOUR, start + 2 * Duration::SECOND);
        let mut checks = 0;
        for change in 0..10_000 {
            let now = start + Duration::MILLISECOND * change;
            if schedule.note_change(now) {
                checks += 1;
                // The change that arrives during the check is not lost.
                let begun = schedule.begin();
                assert!(!schedule.note_change(now));
                schedule.settle(begun, now + Duration::HOUR, now + 2 * Duration::SECOND);
            }
        }
        assert_eq!(checks, 4, "one each two seconds");
        assert!(schedule.take_due(start + 60 * Duration::SECOND));
        assert!(!schedule.take_due(start + 60 * Duration::SECOND), "it is queued");
    }

    #[test]
    fn a_list_is_checked_when_it_is_due() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let mut schedule = ListSchedule::queued();
        assert!(!schedule.take_due(start) && !schedule.note_change(start), "the queue has it");
        let begun = schedule.begin();
        schedule.settle(begun, start + Duration::HOUR, start);
        assert!(!schedule.take_due(start + Duration::MINUTE));
        assert!(schedule.take_due(start + Duration::HOUR));
        let begun = schedule.begin();
        schedule.settle(begun, start + 2 * Duration::HOUR, start);
        assert!(schedule.note_change(start + Duration::HOUR), "a change is checked at once");
    }
}
