//! Work queue, worker and watch metrics of controllers, under the names that client-go gives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::MetricsRegistry;

/// Buckets of client-go, in seconds: ten nanoseconds to a quarter of an hour.
const BUCKETS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Metric families that all controllers of a process share, one series per controller.
#[derive(Debug)]
pub struct WorkQueueMetrics {
    adds: Family<QueueLabels, Counter>,
    depth: Family<QueueLabels, Gauge>,
    queue_duration: Family<QueueLabels, Histogram>,
    work_duration: Family<QueueLabels, Histogram>,
    retries: Family<QueueLabels, Counter>,
    reconciles: Family<ReconcileLabels, Counter>,
    watch_errors: Family<QueueLabels, Counter>,
    controllers: Arc<Mutex<ControllerMap>>,
}

type ControllerMap = BTreeMap<&'static str, Arc<ControllerMetrics>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    name: &'static str,
    result: &'static str,
}

/// Result of a reconciliation, as `windlass_controller_reconciles_total` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Nothing was left to do.
    Done,
    /// The key was requeued because something else has to happen first.
    Waiting,
    /// An error or a panic; the key was requeued.
    Failed,
}

/// Metrics of one controller: its work queue, its workers and its watches.
#[derive(Debug)]
pub struct ControllerMetrics {
    name: &'static str,
    /// Watches that could not start or ended with an error.
    pub watch_errors: Counter,
    adds: Counter,
    depth: Gauge,
    queue_duration: Histogram,
    work_duration: Histogram,
    retries: Counter,
    done: Counter,
    waiting: Counter,
    failed: Counter,
    running: Mutex<RunningWork>,
}

#[derive(Debug, Default)]
struct RunningWork {
    last_ticket: u64,
    started: BTreeMap<u64, Instant>,
}

impl WorkQueueMetrics {
    /// Registers the families. Call it once per registry.
    pub fn register(registry: &MetricsRegistry) -> Self {
        let histogram = || Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> _);
        let controllers: Arc<Mutex<ControllerMap>> = Arc::default();
        let metrics = Self {
            adds: registry.register("workqueue_adds", "Keys added to the queue", Family::default()),
            depth: registry.register("workqueue_depth", "Keys waiting to be processed", Family::default()),
            queue_duration: registry.register(
                "workqueue_queue_duration_seconds",
                "Time that keys wait in the queue",
                histogram(),
            ),
            work_duration: registry.register(
                "workqueue_work_duration_seconds",
                "Time that processing a key takes",
                histogram(),
            ),
            retries: registry.register("workqueue_retries", "Keys requeued with backoff", Family::default()),
            reconciles: registry.register(
                "windlass_controller_reconciles",
                "Reconciliations, by result",
                Family::default(),
            ),
            watch_errors: registry.register(
                "windlass_controller_watch_errors",
                "Watches that could not start or ended with an error",
                Family::default(),
            ),
            controllers: controllers.clone(),
        };
        let ages = controllers.clone();
        registry.register_scraped_gauge(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest processing that is not finished",
            move || sample_ages(&ages, |ages| ages.fold(0.0, f64::max)),
        );
        registry.register_scraped_gauge(
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of all processing that is not finished",
            // Not `sum`, which is -0 for nothing.
            move || sample_ages(&controllers, |ages| ages.fold(0.0, |sum, age| sum + age)),
        );
        metrics
    }

    /// Returns the metrics of a controller, named as kube-controller-manager names its queue. A restarted
    /// controller gets the same metrics again.
    pub fn controller(&self, name: &'static str) -> Arc<ControllerMetrics> {
        let mut controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        controllers.entry(name).or_insert_with(|| Arc::new(self.create(name))).clone()
    }

    /// All series of a controller exist from the start, so that rates are right from the first event on.
    fn create(&self, name: &'static str) -> ControllerMetrics {
        let labels = QueueLabels { name };
        let result = |result| self.reconciles.get_or_create_owned(&ReconcileLabels { name, result });
        ControllerMetrics {
            name,
            watch_errors: self.watch_errors.get_or_create_owned(&labels),
            adds: self.adds.get_or_create_owned(&labels),
            depth: self.depth.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            done: result("done"),
            waiting: result("waiting"),
            failed: result("failed"),
            running: Mutex::default(),
        }
    }
}

impl ControllerMetrics {
    /// Creates metrics that are not exported, for tests and one-shot commands.
    pub fn unregistered(name: &'static str) -> Arc<Self> {
        WorkQueueMetrics::register(&MetricsRegistry::new()).controller(name)
    }

    /// Name of the controller, as in the label `name`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Number of keys that wait in the queue.
    pub fn depth(&self) -> i64 {
        self.depth.get()
    }

    /// Counts a key that became ready.
    pub fn count_add(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    /// Counts a key that was requeued with backoff.
    pub fn count_retry(&self) {
        self.retries.inc();
    }

    /// Removes keys from the depth that will never be processed, because their queue is dropped.
    pub fn count_dropped(&self, keys: usize) {
        self.depth.dec_by(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// Counts a finished reconciliation by its result.
    pub fn count_reconcile(&self, result: ReconcileResult) {
        self.result_counter(result).inc();
    }

    /// Number of reconciliations with this result.
    pub fn reconciles(&self, result: ReconcileResult) -> u64 {
        self.result_counter(result).get()
    }

    /// Counts a key that left the queue after `waited`; its processing lasts until the timer is dropped.
    pub fn start_work(self: &Arc<Self>, waited: Duration) -> WorkTimer {
        self.depth.dec();
        self.queue_duration.observe(waited.as_secs_f64());
        let mut running = self.running();
        running.last_ticket += 1;
        let ticket = running.last_ticket;
        running.started.insert(ticket, Instant::now());
        WorkTimer { metrics: self.clone(), ticket }
    }

    fn result_counter(&self, result: ReconcileResult) -> &Counter {
        match result {
            ReconcileResult::Done => &self.done,
            ReconcileResult::Waiting => &self.waiting,
            ReconcileResult::Failed => &self.failed,
        }
    }

    fn running(&self) -> MutexGuard<'_, RunningWork> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sample_ages(
    controllers: &Mutex<ControllerMap>,
    aggregate: impl Fn(&mut dyn Iterator<Item = f64>) -> f64,
) -> Vec<(QueueLabels, f64)> {
    let now = Instant::now();
    let controllers = controllers.lock().unwrap_or_else(PoisonError::into_inner);
    let sample = |metrics: &Arc<ControllerMetrics>| {
        let running = metrics.running();
        let mut ages = running.started.values().map(|start| now.duration_since(*start).as_secs_f64());
        (QueueLabels { name: metrics.name }, aggregate(&mut ages))
    };
    controllers.values().map(sample).collect()
}

/// Measures the processing of a key, from [`ControllerMetrics::start_work`] until it is dropped.
#[derive(Debug)]
pub struct WorkTimer {
    metrics: Arc<ControllerMetrics>,
    ticket: u64,
}

impl Drop for WorkTimer {
    fn drop(&mut self) {
        let started = self.metrics.running().started.remove(&self.ticket);
        if let Some(started) = started {
            self.metrics.work_duration.observe(started.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn controllers_are_measured_under_the_names_of_client_go() {
        let registry = MetricsRegistry::new();
        let metrics = WorkQueueMetrics::register(&registry);
        let namespaces = metrics.controller("namespace");
        metrics.controller("serviceaccount");
        namespaces.count_add();
        namespaces.count_add();
        let timer = namespaces.start_work(Duration::from_millis(5));
        tokio::time::advance(Duration::from_secs(3)).await;
        namespaces.count_retry();
        namespaces.count_reconcile(ReconcileResult::Failed);
        namespaces.watch_errors.inc();
        let text = registry.encode();
        for line in [
            "# TYPE workqueue_adds_total counter",
            "workqueue_adds_total{name=\"namespace\"} 2",
            "workqueue_depth{name=\"namespace\"} 1",
            "workqueue_retries_total{name=\"namespace\"} 1",
            "workqueue_longest_running_processor_seconds{name=\"namespace\"} 3.0",
            "workqueue_unfinished_work_seconds{name=\"namespace\"} 3.0",
            "workqueue_unfinished_work_seconds{name=\"serviceaccount\"} 0.0",
            "workqueue_queue_duration_seconds_bucket{le=\"0.001\",name=\"namespace\"} 0",
            "workqueue_queue_duration_seconds_bucket{le=\"0.01\",name=\"namespace\"} 1",
            "workqueue_queue_duration_seconds_bucket{le=\"1000\",name=\"namespace\"} 1",
            "workqueue_queue_duration_seconds_count{name=\"namespace\"} 1",
            "workqueue_work_duration_seconds_count{name=\"namespace\"} 0",
            "windlass_controller_reconciles_total{name=\"namespace\",result=\"failed\"} 1",
            "windlass_controller_reconciles_total{name=\"namespace\",result=\"done\"} 0",
            "windlass_controller_watch_errors_total{name=\"namespace\"} 1",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in\n{text}");
        }
        drop(timer);
        let text = registry.encode();
        for line in [
            "workqueue_work_duration_seconds_bucket{le=\"1\",name=\"namespace\"} 0",
            "workqueue_work_duration_seconds_bucket{le=\"10\",name=\"namespace\"} 1",
            "workqueue_work_duration_seconds_sum{name=\"namespace\"} 3.0",
            "workqueue_unfinished_work_seconds{name=\"namespace\"} 0.0",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_restarted_controller_keeps_its_metrics() {
        let metrics = WorkQueueMetrics::register(&MetricsRegistry::new());
        metrics.controller("a").count_reconcile(ReconcileResult::Done);
        assert_eq!(metrics.controller("a").reconciles(ReconcileResult::Done), 1);
    }
}
