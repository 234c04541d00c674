//! What time it is, in two ways.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockReading {
    /// What the calendar says. It may jump, and certificates go by it.
    pub wall: OffsetDateTime,
    /// How long ago the process began. It never jumps, and pauses go by it.
    pub since: Duration,
}

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> ClockReading + Send + Sync>;

/// The clocks of this machine.
pub fn system() -> Clock {
    let began = Instant::now();
    Arc::new(move || ClockReading { wall: OffsetDateTime::now_utc(), since: began.elapsed() })
}

/// A time as people read it, to the second.
pub fn text(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}
