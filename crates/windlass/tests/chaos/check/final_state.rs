//! Final state: all servers return the state of etcd at the same revision.

use super::reads::difference;
use super::timeline::StoreTimeline;
use super::{CheckResult, ConsistencyRule};
use crate::history::ChaosHistory;

pub fn check(history: &ChaosHistory, timeline: &StoreTimeline<'_>, verdict: &mut CheckResult) {
    for rest in &history.rest {
        if rest.version != history.newest {
            let what = format!(
                "server {} lists {} at {}, etcd is at {}",
                rest.server, rest.resource, rest.version, history.newest
            );
            verdict.report_violation(ConsistencyRule::Converged, what);
        }
        let stored = timeline.state(&rest.resource, history.newest);
        if rest.objects != stored {
            let what = format!(
                "server {} lists other {} than are stored: {}",
                rest.server,
                rest.resource,
                difference(&rest.objects, &stored)
            );
            verdict.report_violation(ConsistencyRule::Converged, what);
        }
    }
}
