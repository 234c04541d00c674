//! What the loops count, as Prometheus text, under the names client-go gives its work queues.
//!
//! The loops are few and known, so each has a static here and no registry is needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Work queue counters of the garbage collector.
pub static GARBAGE: ControllerCounters =
    ControllerCounters::new("garbage_collector_attempt_to_delete");
/// The counters of namespace deletion.
pub static NAMESPACES: ControllerCounters = ControllerCounters::new("namespace");
/// The counters of the default service accounts.
pub static ACCOUNTS: ControllerCounters = ControllerCounters::new("serviceaccount");

/// The counters of node health.
pub static NODE_LIFECYCLE: ControllerCounters =
    ControllerCounters::new("node_lifecycle_controller");

/// The counters of events on pods that nobody schedules.
pub static UNSCHEDULED: ControllerCounters = ControllerCounters::new("unscheduled_pod");

/// The counters of aggregated cluster roles.
pub static AGGREGATION: ControllerCounters = ControllerCounters::new("ClusterRoleAggregator");

/// The counters of what approves requests for certificates.
pub static APPROVING: ControllerCounters = ControllerCounters::new("csrapproving");
/// The counters of what signs them.
pub static SIGNING: ControllerCounters = ControllerCounters::new("csrsigning");
/// The counters of what signs those of pods.
pub static POD_SIGNING: ControllerCounters = ControllerCounters::new("podcertificatesigning");
/// The counters of what removes old ones.
pub static CLEANING: ControllerCounters = ControllerCounters::new("csrcleaner");
/// The counters of the root CA's ConfigMaps.
pub static ROOT_CA: ControllerCounters = ControllerCounters::new("root_ca_cert_publisher");
/// The counters of the root CA's trust bundle.
pub static TRUST_BUNDLE: ControllerCounters =
    ControllerCounters::new("ca_cert_publisher_cluster_trust_bundles");
/// The counters of the user's own signers' trust bundles.
pub static ANCHORS: ControllerCounters = ControllerCounters::new("signer_trust_bundles");
/// Work queue counters of the Bundle controller.
pub static BUNDLES: ControllerCounters = ControllerCounters::new("bundles");

static ALL: [&ControllerCounters; 14] = [
    &GARBAGE,
    &NAMESPACES,
    &ACCOUNTS,
    &NODE_LIFECYCLE,
    &UNSCHEDULED,
    &AGGREGATION,
    &APPROVING,
    &SIGNING,
    &POD_SIGNING,
    &CLEANING,
    &ROOT_CA,
    &TRUST_BUNDLE,
    &ANCHORS,
    &BUNDLES,
];

/// How often the API could not be discovered.
pub static DISCOVERY_FAILURES: AtomicU64 = AtomicU64::new(0);

/// Writes the controllers' metrics as Prometheus text.
pub fn metrics(out: &mut String) {
    let now = Instant::now();
    for family in FAMILIES {
        let QueueMetricFamily { name, kind, help, .. } = family;
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for counters in ALL {
            (family.write)(out, name, counters, now);
        }
    }
    let name = "garbagecollector_controller_resources_sync_error_total";
    let count = DISCOVERY_FAILURES.load(Relaxed);
    let _ = writeln!(out, "# HELP {name} Failures to find out what the API serves");
    let _ = writeln!(out, "# TYPE {name} counter\n{name} {count}");
    crate::ca::metrics(out);
    crate::csr_signer::metrics(out);
    crate::publisher::metrics(out);
    crate::signers::rollout::metrics(out);
    crate::bundles::metrics(out);
    crate::election::metrics(out);
}

struct QueueMetricFamily {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    write: fn(&mut String, &str, &ControllerCounters, Instant),
}

const FAMILIES: [QueueMetricFamily; 9] = [
    QueueMetricFamily {
        name: "workqueue_adds_total",
        kind: "counter",
        help: "Keys put into the queue",
        write: |out, name, c, _| write_sample(out, name, c, c.adds.load(Relaxed)),
    },
    QueueMetricFamily {
        name: "workqueue_depth",
        kind: "gauge",
        help: "Keys waiting to be worked on",
        write: |out, name, c, _| write_sample(out, name, c, c.depth.load(Relaxed)),
    },
    QueueMetricFamily {
        name: "workqueue_longest_running_processor_seconds",
        kind: "gauge",
        help: "How long the oldest work has been going on",
        write: |out, name, c, now| write_sample(out, name, c, c.longest_running_seconds(now)),
    },
    QueueMetricFamily {
        name: "workqueue_queue_duration_seconds",
        kind: "histogram",
        help: "How long keys wait in the queue",
        write: |out, name, c, _| c.waits.write(out, name, c.name),
    },
    QueueMetricFamily {
        name: "workqueue_retries_total",
        kind: "counter",
        help: "Keys put off to be tried again",
        write: |out, name, c, _| write_sample(out, name, c, c.retries.load(Relaxed)),
    },
    QueueMetricFamily {
        name: "workqueue_unfinished_work_seconds",
        kind: "gauge",
        help: "How long all work that is not done has been going on, added up",
        write: |out, name, c, now| write_sample(out, name, c, c.unfinished_seconds(now)),
    },
    QueueMetricFamily {
        name: "workqueue_work_duration_seconds",
        kind: "histogram",
        help: "How long work on a key takes",
        write: |out, name, c, _| c.works.write(out, name, c.name),
    },
    QueueMetricFamily {
        name: "windlass_controller_reconciles_total",
        kind: "counter",
        help: "Work on keys, by how it ended",
        write: |out, name, c, _| {
            for (result, count) in
                [("done", &c.done), ("waiting", &c.waiting), ("failed", &c.failed)]
            {
                let (queue, count) = (c.name, count.load(Relaxed));
                let _ = writeln!(out, "{name}{{name=\"{queue}\",result=\"{result}\"}} {count}");
            }
        },
    },
    QueueMetricFamily {
        name: "windlass_controller_watch_errors_total",
        kind: "counter",
        help: "Watches that could not begin or broke off",
        write: |out, name, c, _| write_sample(out, name, c, c.watch_errors.load(Relaxed)),
    },
];

fn write_sample(
    out: &mut String,
    name: &str,
    counters: &ControllerCounters,
    value: impl std::fmt::Display,
) {
    let _ = writeln!(out, "{name}{{name=\"{}\"}} {value}", counters.name);
}

/// The counters of one loop.
#[derive(Debug)]
pub struct ControllerCounters {
    /// The loop's name, as kube-controller-manager calls its queue.
    pub name: &'static str,
    /// Reconciliations that finished without a requeue.
    pub done: AtomicU64,
    /// Work that ended with having to wait for something.
    pub waiting: AtomicU64,
    /// Reconciliations that returned an error or panicked.
    pub failed: AtomicU64,
    /// Watches that could not begin or broke off.
    pub watch_errors: AtomicU64,
    depth: AtomicI64,
    adds: AtomicU64,
    retries: AtomicU64,
    waits: DurationHistogram,
    works: DurationHistogram,
    running: Mutex<RunningWork>,
}

#[derive(Debug)]
struct RunningWork {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl ControllerCounters {
    /// Creates counters at zero; `name` is the queue's label in metrics.
    pub const fn new(name: &'static str) -> ControllerCounters {
        ControllerCounters {
            name,
            done: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            watch_errors: AtomicU64::new(0),
            depth: AtomicI64::new(0),
            adds: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            waits: DurationHistogram::new(),
            works: DurationHistogram::new(),
            running: Mutex::new(RunningWork { next: 0, since: BTreeMap::new() }),
        }
    }

    /// A key came into the queue.
    pub fn record_add(&self) {
        self.adds.fetch_add(1, Relaxed);
        self.depth.fetch_add(1, Relaxed);
    }

    /// A key was put off.
    pub fn record_retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Keys left the queue without being worked on, because the queue is gone.
    pub fn record_dropped(&self, keys: usize) {
        self.depth.fetch_sub(i64::try_from(keys).unwrap_or(i64::MAX), Relaxed);
    }

    /// A key left the queue after it waited that long; work lasts until the answer is dropped.
    pub fn start_work(&'static self, waited: Duration) -> WorkTimer {
        self.depth.fetch_sub(1, Relaxed);
        self.waits.observe(waited);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.next += 1;
        let (ticket, now) = (running.next, Instant::now());
        running.since.insert(ticket, now);
        WorkTimer { counters: self, ticket }
    }

    fn longest_running_seconds(&self, now: Instant) -> f64 {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = running.since.values().map(|since| now.duration_since(*since).as_secs_f64());
        ages.fold(0.0, f64::max)
    }

    fn unfinished_seconds(&self, now: Instant) -> f64 {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Adding starts from 0: the sum of nothing would be written as -0.
        let ages = running.since.values().map(|since| now.duration_since(*since).as_secs_f64());
        ages.fold(0.0, |sum, age| sum + age)
    }
}

/// Work that is going on.
#[derive(Debug)]
pub struct WorkTimer {
    counters: &'static ControllerCounters,
    ticket: u64,
}

impl Drop for WorkTimer {
    fn drop(&mut self) {
        let mut running = self.counters.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = running.since.remove(&self.ticket) {
            self.counters.works.observe(since.elapsed());
        }
    }
}

/// client-go's buckets, in seconds: ten nanoseconds to a quarter of an hour.
const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

#[derive(Debug)]
struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl DurationHistogram {
    const fn new() -> DurationHistogram {
        DurationHistogram {
            buckets: [const { AtomicU64::new(0) }; BOUNDS.len()],
            count: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        }
    }

    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(i) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[i].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, queue: &str) {
        let mut below = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{name=\"{queue}\",le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Relaxed).max(below);
        let sum = Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{name=\"{queue}\",le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{name=\"{queue}\"}} {sum}");
        let _ = writeln!(out, "{name}_count{{name=\"{queue}\"}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_below_each_bound() {
        let histogram = DurationHistogram::new();
        for seconds in [0.005, 0.05, 2000.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        let mut text = String::new();
        histogram.write(&mut text, "h", "q");
        for line in [
            "h_bucket{name=\"q\",le=\"0.001\"} 0",
            "h_bucket{name=\"q\",le=\"0.01\"} 1",
            "h_bucket{name=\"q\",le=\"0.1\"} 2",
            "h_bucket{name=\"q\",le=\"1000\"} 2",
            "h_bucket{name=\"q\",le=\"+Inf\"} 3",
            "h_sum{name=\"q\"} 2000.055",
            "h_count{name=\"q\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        let mut text = String::new();
        metrics(&mut text);
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap(),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(family), "{line} under {family}"),
            }
        }
        assert!(text.contains("workqueue_depth{name=\"namespace\"} "));
        assert!(text.contains("workqueue_unfinished_work_seconds{name=\"serviceaccount\"} "));
    }
}
