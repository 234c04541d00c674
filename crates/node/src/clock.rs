//! Wall-clock and monotonic time.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockReading {
    /// Wall-clock time, used for certificates. It may jump.
    pub wall: OffsetDateTime,
    /// Monotonic time since the process started, used for delays. It never jumps.
    pub since: Duration,
}

/// Returns the current time on both clocks.
pub type Clock = Arc<dyn Fn() -> ClockReading + Send + Sync>;

/// Returns the clocks of this host.
pub fn system() -> Clock {
    let began = Instant::now();
    Arc::new(move || ClockReading { wall: OffsetDateTime::now_utc(), since: began.elapsed() })
}

/// Formats a time for people, to the second.
pub fn text(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
