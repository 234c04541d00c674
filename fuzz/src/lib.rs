//! Shared by all fuzz targets: a limit on the processing time of an input.

use std::time::{Duration, Instant};

/// Time limit per 64 KiB. Uninstrumented code takes well under 10 ms for that; the rest allows for
/// instrumentation and a busy machine.
const PER_64_KIB: Duration = Duration::from_millis(250);

/// Runs one input and aborts if it takes too long for its size.
pub fn run_with_time_limit<T>(data: &[u8], run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = run();
    let took = started.elapsed();
    let allowed = PER_64_KIB * (1 + (data.len() >> 16) as u32);
    assert!(took < allowed, "{} bytes took {took:?}, more than {allowed:?}", data.len());
    result
}
