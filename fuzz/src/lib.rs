//! What all fuzz targets share: a limit on the time an input may take.

use std::time::{Duration, Instant};

/// What 64 KiB may cost. Uninstrumented code takes well under 10 ms for that; the instrumentation
/// and a machine that does other work are the rest.
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
