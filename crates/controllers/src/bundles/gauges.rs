//! What is told of Bundles to Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

/// What is told of all Bundles of this process.
static ALL: GaugeRegistry = GaugeRegistry::new();

/// A millisecond, and twice the last fifteen times: half a minute.
const BUCKETS: u32 = 16;

struct GaugeRegistry {
    inner: Mutex<GaugeState>,
}

struct GaugeState {
    bundles: BTreeMap<String, BundleGauges>,
    latency: SyncLatency,
}

/// What is told of one Bundle. What is not known is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleGauges {
    /// When the first certificate in its targets expires, and how many there are.
    pub content: Option<(Option<OffsetDateTime>, usize)>,
    /// How many targets are as they should be, and how many are not.
    pub targets: Option<(usize, usize)>,
}

#[derive(Clone, Copy)]
struct SyncLatency {
    count: u64,
    seconds: f64,
    buckets: [u64; BUCKETS as usize],
}

/// Tells of a Bundle. What is not known now stays as it was.
pub fn set(name: &str, gauge: BundleGauges) {
    let mut inner = ALL.lock();
    let told = inner.bundles.entry(name.to_owned()).or_default();
    told.content = gauge.content.or(told.content);
    told.targets = gauge.targets.or(told.targets);
}

/// Tells no more of a Bundle.
pub fn remove(name: &str) {
    ALL.lock().bundles.remove(name);
}

/// Tells no more of any.
pub fn clear() {
    ALL.lock().bundles.clear();
}

/// Counts how long it took until all targets had a change.
pub fn observe_sync(after: Duration) {
    ALL.lock().latency.observe(after);
}

/// Writes it all as Prometheus text.
pub fn metrics(out: &mut String) {
    let inner = ALL.lock();
    inner.write(out);
}

impl GaugeRegistry {
    const fn new() -> GaugeRegistry {
        let latency = SyncLatency { count: 0, seconds: 0.0, buckets: [0; BUCKETS as usize] };
        GaugeRegistry { inner: Mutex::new(GaugeState { bundles: BTreeMap::new(), latency }) }
    }

    fn lock(&self) -> MutexGuard<'_, GaugeState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GaugeState {
    fn write(&self, out: &mut String) {
        // Writing to a string does not fail.
        let family = |out: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        let name = "windlass_bundle_certificates";
        family(out, name, "gauge", "Certificates in the targets of a Bundle");
        for (bundle, gauge) in &self.bundles {
            if let Some((_, count)) = gauge.content {
                let _ = writeln!(out, "{name}{{bundle=\"{bundle}\"}} {count}");
            }
        }
        let name = "windlass_bundle_earliest_expiration_timestamp_seconds";
        family(out, name, "gauge", "When the first certificate expires, in seconds since 1970");
        for (bundle, gauge) in &self.bundles {
            if let Some((Some(expiry), _)) = gauge.content {
                let seconds = expiry.unix_timestamp();
                let _ = writeln!(out, "{name}{{bundle=\"{bundle}\"}} {seconds}");
            }
        }
        let name = "windlass_bundle_targets";
        family(out, name, "gauge", "Targets of a Bundle, by whether they are as they should be");
        for (bundle, gauge) in &self.bundles {
            let Some((synced, failed)) = gauge.targets else { continue };
            for (state, count) in [("synced", synced), ("failed", failed)] {
                let _ = writeln!(out, "{name}{{bundle=\"{bundle}\",state=\"{state}\"}} {count}");
            }
        }
        let name = "windlass_bundle_sync_latency_seconds";
        family(out, name, "histogram", "From a change that was seen until all targets have it");
        let SyncLatency { count, seconds, buckets } = &self.latency;
        for (bound, below) in bounds().zip(buckets) {
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {count}");
    }
}

impl SyncLatency {
    fn observe(&mut self, after: Duration) {
        let seconds = after.as_secs_f64();
        self.count += 1;
        self.seconds += seconds;
        for (bucket, bound) in self.buckets.iter_mut().zip(bounds()) {
            *bucket += u64::from(seconds <= bound);
        }
    }
}

fn bounds() -> impl Iterator<Item = f64> {
    (0..BUCKETS).map(|power| f64::from(1_u32 << power) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let gauges = GaugeRegistry::new();
        let mut inner = gauges.lock();
        let expiry = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(7);
        let gauge = BundleGauges { content: Some((Some(expiry), 140)), targets: Some((1999, 1)) };
        inner.bundles.insert("roots".to_owned(), gauge);
        inner.bundles.insert("none".to_owned(), BundleGauges::default());
        inner.latency.observe(Duration::from_millis(3));
        inner.latency.observe(Duration::from_secs(60));
        let mut text = String::new();
        inner.write(&mut text);
        for line in [
            "windlass_bundle_certificates{bundle=\"roots\"} 140",
            "windlass_bundle_earliest_expiration_timestamp_seconds{bundle=\"roots\"} 7",
            "windlass_bundle_targets{bundle=\"roots\",state=\"synced\"} 1999",
            "windlass_bundle_targets{bundle=\"roots\",state=\"failed\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"0.002\"} 0",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"0.004\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"32.768\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"+Inf\"} 2",
            "windlass_bundle_sync_latency_seconds_sum 60.003",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("none"));
    }
}
