//! What is counted of flow control, under the names kube-apiserver gives it.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::priority_level::PriorityLevel;
use super::seat_pool::RejectReason;
use super::{LevelCounts, PriorityLevels};
use crate::metrics::plain;

/// Metrics of admission by priority level, named like those of kube-apiserver.
pub(super) struct FlowMetrics {
    registry: Registry,
    rejected: Family<RejectedLabels, Counter>,
    leases: WaitHistograms,
    nodes: WaitHistograms,
    everyone: WaitHistograms,
}

/// How long requests of a level waited; looked up once, because every request is counted.
struct WaitHistograms {
    served: Histogram,
    refused: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectedLabels {
    priority_level: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    execute: &'static str,
    priority_level: &'static str,
}

/// kube-apiserver's own buckets, in seconds.
const BUCKETS: [f64; 11] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0];

type CountSelector = fn(LevelCounts) -> usize;

impl FlowMetrics {
    /// Registers all metrics; every counter starts at zero.
    pub(super) fn new() -> FlowMetrics {
        let mut registry = Registry::default();
        let rejected: Family<RejectedLabels, Counter> = Family::default();
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests turned away with 429",
            rejected.clone(),
        );
        let waits: Family<WaitLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time requests waited for a seat",
            waits.clone(),
        );
        let of = |level: PriorityLevel| {
            let priority_level = level.name();
            let get = |execute| waits.get_or_create_owned(&WaitLabels { execute, priority_level });
            WaitHistograms { served: get("true"), refused: get("false") }
        };
        let (leases, nodes, everyone) =
            (of(PriorityLevel::Leases), of(PriorityLevel::Nodes), of(PriorityLevel::Everyone));
        FlowMetrics { registry, rejected, leases, nodes, everyone }
    }

    /// Counts a request that is no longer waiting.
    pub(super) fn waited(&self, level: PriorityLevel, served: bool, time: Duration) {
        let waits = match level {
            PriorityLevel::Exempt => return,
            PriorityLevel::Leases => &self.leases,
            PriorityLevel::Nodes => &self.nodes,
            PriorityLevel::Everyone => &self.everyone,
        };
        let histogram = if served { &waits.served } else { &waits.refused };
        histogram.observe(time.as_secs_f64());
    }

    /// Counts a request that was turned away.
    pub(super) fn rejected(&self, level: PriorityLevel, why: RejectReason) {
        let reason = match why {
            RejectReason::QueueFull => "queue-full",
            RejectReason::TimeOut => "time-out",
            RejectReason::ConcurrencyLimit => "concurrency-limit",
        };
        let labels = RejectedLabels { priority_level: level.name(), reason };
        self.rejected.get_or_create(&labels).inc();
    }

    /// Appends the metrics of all levels to `out` in Prometheus text format.
    pub(super) fn write(&self, levels: &PriorityLevels, out: &mut String) {
        let mut open = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut open, &self.registry);
        out.push_str(&plain(&open));
        let counts = PriorityLevel::ALL.map(|level| (level.name(), levels.counts(level)));
        let executing: CountSelector = |counts| counts.executing;
        for (name, help, pick) in [
            ("executing_requests", "Requests being worked on or being answered", executing),
            ("executing_seats", "Seats of the requests being worked on", |counts| counts.seats),
            ("inqueue_requests", "Requests that wait", |counts| counts.waiting),
        ] {
            let name = format!("apiserver_flowcontrol_current_{name}");
            out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
            for (level, counts) in counts {
                let count = pick(counts);
                out.push_str(&format!("{name}{{priority_level=\"{level}\"}} {count}\n"));
            }
        }
    }
}
