//! The end: all servers show the same, at the same revision, which is what etcd has.

use super::reads::difference;
use super::timeline::Timeline;
use super::{Rule, Verdict};
use crate::history::History;

pub fn check(history: &History, timeline: &Timeline<'_>, verdict: &mut Verdict) {
    for rest in &history.rest {
        if rest.version != history.newest {
            let what = format!(
                "server {} lists {} at {}, etcd is at {}",
                rest.server, rest.resource, rest.version, history.newest
            );
            verdict.blame(Rule::Converged, what);
        }
        let stored = timeline.state(&rest.resource, history.newest);
        if rest.objects != stored {
            let what = format!(
                "server {} lists other {} than are stored: {}",
                rest.server,
                rest.resource,
                difference(&rest.objects, &stored)
            );
            verdict.blame(Rule::Converged, what);
        }
    }
}
