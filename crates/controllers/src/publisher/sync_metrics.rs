//! What the publishers count, under the names kube-controller-manager gives it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Sync metrics of the `kube-root-ca.crt` ConfigMaps.
pub static ROOT_CA: SyncMetrics = SyncMetrics::new("root_ca_cert_publisher");
/// Syncs of the trust bundle.
pub static TRUST_BUNDLE: SyncMetrics = SyncMetrics::new("clustertrustbundle_publisher");
/// Syncs of the user's own signers' trust bundles.
pub static ANCHORS: SyncMetrics = SyncMetrics::new("windlass_signer_bundle");

/// kube-controller-manager's buckets: a millisecond, and twice the last fourteen times.
const BUCKETS: u32 = 15;

/// Syncs of one publisher, by the code they ended with.
#[derive(Debug)]
pub struct SyncMetrics {
    prefix: &'static str,
    codes: Mutex<BTreeMap<u16, SyncDurations>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SyncDurations {
    count: u64,
    seconds: f64,
    buckets: [u64; BUCKETS as usize],
}

impl SyncMetrics {
    const fn new(prefix: &'static str) -> SyncMetrics {
        SyncMetrics { prefix, codes: Mutex::new(BTreeMap::new()) }
    }

    /// Records a sync by its HTTP status code and duration.
    pub fn observe(&self, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = codes.entry(code).or_default();
        durations.count += 1;
        durations.seconds += seconds;
        for (bucket, bound) in durations.buckets.iter_mut().zip(bounds()) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    fn write(&self, out: &mut String) {
        let prefix = self.prefix;
        let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Writing to a string does not fail.
        let name = format!("{prefix}_sync_total");
        let _ = writeln!(out, "# HELP {name} Syncs, by how they ended\n# TYPE {name} counter");
        for (code, SyncDurations { count, .. }) in &codes {
            let _ = writeln!(out, "{name}{{code=\"{code}\"}} {count}");
        }
        let name = format!("{prefix}_sync_duration_seconds");
        let _ = writeln!(out, "# HELP {name} How long syncs take\n# TYPE {name} histogram");
        for (code, SyncDurations { count, seconds, buckets }) in &codes {
            for (bound, below) in bounds().zip(buckets) {
                let _ = writeln!(out, "{name}_bucket{{code=\"{code}\",le=\"{bound}\"}} {below}");
            }
            let _ = writeln!(out, "{name}_bucket{{code=\"{code}\",le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "{name}_sum{{code=\"{code}\"}} {seconds}");
            let _ = writeln!(out, "{name}_count{{code=\"{code}\"}} {count}");
        }
    }
}

fn bounds() -> impl Iterator<Item = f64> {
    (0..BUCKETS).map(|power| f64::from(1_u32 << power) / 1000.0)
}

/// The code of an outcome: 200, what the server answered, or 500.
pub fn status_code<T>(outcome: &anyhow::Result<T>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => status.code,
            _ => 500,
        },
    }
}

/// Writes the publishers' metrics as Prometheus text.
pub fn metrics(out: &mut String) {
    ROOT_CA.write(out);
    TRUST_BUNDLE.write(out);
    ANCHORS.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_counted_by_code() {
        let syncs = SyncMetrics::new("p");
        syncs.observe(200, Duration::from_millis(3));
        syncs.observe(200, Duration::from_secs(60));
        syncs.observe(422, Duration::ZERO);
        let mut text = String::new();
        syncs.write(&mut text);
        for line in [
            "p_sync_total{code=\"200\"} 2",
            "p_sync_total{code=\"422\"} 1",
            "p_sync_duration_seconds_bucket{code=\"200\",le=\"0.002\"} 0",
            "p_sync_duration_seconds_bucket{code=\"200\",le=\"0.004\"} 1",
            "p_sync_duration_seconds_bucket{code=\"200\",le=\"16.384\"} 1",
            "p_sync_duration_seconds_bucket{code=\"200\",le=\"+Inf\"} 2",
            "p_sync_duration_seconds_sum{code=\"200\"} 60.003",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
