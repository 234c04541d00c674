//! What the signers count, as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::policy::KubernetesSigner;

/// Upper bounds of how long a signature takes, in seconds.
const BOUNDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Counters and latency histogram of one signer.
#[derive(Default)]
pub struct SignerCounters {
    /// Approved requests that were looked at, each time they were.
    pub requests: AtomicU64,
    /// Certificates issued since the process started.
    pub issued: AtomicU64,
    /// Requests that were rejected permanently.
    pub failed: AtomicU64,
    /// Attempts that did not work and are made again.
    pub delayed: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len()],
    slower: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Who signs or has signed. There are as many as Kubernetes has and the user's file describes.
static SIGNERS: Mutex<BTreeMap<String, Arc<SignerCounters>>> = Mutex::new(BTreeMap::new());

/// The counts of a signer, from now on among the metrics.
pub fn for_signer(signer: &str) -> Arc<SignerCounters> {
    let mut signers = SIGNERS.lock().unwrap_or_else(PoisonError::into_inner);
    signers.entry(signer.to_owned()).or_default().clone()
}

impl SignerCounters {
    /// A certificate was written that long after its request was first seen approved.
    pub fn observe_duration(&self, time: Duration) {
        let bounds = BOUNDS.iter().zip(&self.buckets);
        let bucket = bounds.into_iter().find(|(bound, _)| time.as_secs_f64() <= **bound);
        bucket.map_or(&self.slower, |(_, bucket)| bucket).fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Writes what the signers counted.
pub fn metrics(out: &mut String) {
    // Kubernetes' own are told of even if they do not sign.
    for signer in KubernetesSigner::ALL {
        for_signer(signer.name());
    }
    let signers = SIGNERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (name, help, value) in COUNTERS {
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for (signer, counts) in &signers {
            let count = value(counts).load(Relaxed);
            let _ = writeln!(out, "{name}{{signer=\"{signer}\"}} {count}");
        }
    }
    let name = "windlass_signer_latency_seconds";
    let help = "How long certificates take from the approval that is seen to being written";
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
    for (signer, counts) in &signers {
        write_latency(out, name, signer, counts);
    }
}

type Counter = (&'static str, &'static str, fn(&SignerCounters) -> &AtomicU64);

const COUNTERS: [Counter; 4] = [
    ("windlass_signer_requests_total", "Attempts to sign approved requests", |c| &c.requests),
    ("windlass_signer_issued_total", "Certificates issued", |c| &c.issued),
    ("windlass_signer_failed_total", "Requests refused for good", |c| &c.failed),
    ("windlass_signer_delayed_total", "Attempts that are made again", |c| &c.delayed),
];

fn write_latency(out: &mut String, name: &str, signer: &str, counts: &SignerCounters) {
    let mut below = 0;
    for (bound, bucket) in BOUNDS.iter().zip(&counts.buckets) {
        below += bucket.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{signer=\"{signer}\",le=\"{bound}\"}} {below}");
    }
    let count = below + counts.slower.load(Relaxed);
    let sum = Duration::from_nanos(counts.nanoseconds.load(Relaxed)).as_secs_f64();
    let _ = writeln!(out, "{name}_bucket{{signer=\"{signer}\",le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum{{signer=\"{signer}\"}} {sum}");
    let _ = writeln!(out, "{name}_count{{signer=\"{signer}\"}} {count}");
}
