//! Metrics of flow control, under the names of kube-apiserver.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use windlass_runtime::metrics::MetricsRegistry;

use super::priority_level::PriorityLevel;
use super::seat_pool::RejectReason;
use super::{LevelCounts, PriorityLevels};

/// Metrics of admission by priority level, named like those of kube-apiserver.
pub(super) struct FlowMetrics {
    rejected: Family<RejectedLabels, Counter>,
    waits: Family<WaitLabels, Histogram>,
    leases: WaitHistograms,
    nodes: WaitHistograms,
    everyone: WaitHistograms,
}

/// Waiting times of a level; looked up once, because every request is counted.
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

/// Buckets of kube-apiserver, in seconds.
const BUCKETS: [f64; 11] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0];

type CountSelector = fn(LevelCounts) -> usize;

impl FlowMetrics {
    /// Creates the metrics, all at zero.
    pub(super) fn new() -> FlowMetrics {
        let waits: Family<WaitLabels, Histogram> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let for_level = |level: PriorityLevel| {
            let priority_level = level.name();
            let get = |execute| waits.get_or_create_owned(&WaitLabels { execute, priority_level });
            WaitHistograms { served: get("true"), refused: get("false") }
        };
        FlowMetrics {
            rejected: Family::default(),
            leases: for_level(PriorityLevel::Leases),
            nodes: for_level(PriorityLevel::Nodes),
            everyone: for_level(PriorityLevel::Everyone),
            waits,
        }
    }

    /// Registers these metrics, and gauges of the current state of `levels`.
    pub(super) fn register(&self, registry: &MetricsRegistry, levels: &Arc<PriorityLevels>) {
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests rejected with 429",
            self.rejected.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time requests waited for a seat",
            self.waits.clone(),
        );
        let gauge = |name, help, select: CountSelector| {
            let levels = levels.clone();
            registry.register_scraped_gauge(name, help, move || {
                let count =
                    |level: PriorityLevel| ([("priority_level", level.name())], select(levels.counts(level)));
                PriorityLevel::ALL.map(count).to_vec()
            });
        };
        gauge(
            "apiserver_flowcontrol_current_executing_requests",
            "Requests in progress, until their response is written",
            |counts| counts.executing,
        );
        gauge(
            "apiserver_flowcontrol_current_executing_seats",
            "Seats of the requests in progress",
            |counts| counts.seats,
        );
        gauge("apiserver_flowcontrol_current_inqueue_requests", "Requests waiting for a seat", |counts| {
            counts.waiting
        });
    }

    /// Counts a request that has left its queue.
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

    /// Counts a request that was rejected.
    pub(super) fn rejected(&self, level: PriorityLevel, why: RejectReason) {
        let reason = match why {
            RejectReason::QueueFull => "queue-full",
            RejectReason::TimeOut => "time-out",
            RejectReason::ConcurrencyLimit => "concurrency-limit",
        };
        let labels = RejectedLabels { priority_level: level.name(), reason };
        self.rejected.get_or_create(&labels).inc();
    }
}
