//! Metrics of the process itself, from `/proc` where it exists.

use super::MetricsRegistry;

/// Registers resident memory and open file descriptors under the names that Prometheus clients share.
pub fn register_process_metrics(registry: &MetricsRegistry) {
    registry.register_scraped_gauge("process_resident_memory_bytes", "Resident memory size in bytes", || {
        unlabeled(resident_bytes())
    });
    registry.register_scraped_gauge("process_open_fds", "Open file descriptors", || {
        unlabeled(std::fs::read_dir("/proc/self/fd").ok().map(|files| count(files.count())))
    });
}

/// From `status`, which is in kilobytes: `statm` is in pages, whose size is not known without libc.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(count(kilobytes.saturating_mul(1024)))
}

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unlabeled(value: Option<i64>) -> Vec<(Vec<(String, String)>, i64)> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}
