//! Ages as people read them in tables.

use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// How long ago the RFC 3339 `timestamp` was, `<unknown>` if there is none.
pub fn since(timestamp: &str, now: OffsetDateTime) -> String {
    match OffsetDateTime::parse(timestamp, &Rfc3339) {
        Ok(then) => rough(now - then),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A duration in its one or two largest units, the finer the shorter it is.
fn rough(duration: Duration) -> String {
    let seconds = duration.whole_seconds();
    let (minutes, hours, days) =
        (duration.whole_minutes(), duration.whole_hours(), duration.whole_days());
    match () {
        // Two machines' clocks may differ a little; more than that is worth showing.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_shows_them() {
        for (seconds, words) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400 + 86400, "8y"),
        ] {
            assert_eq!(rough(Duration::seconds(seconds)), words);
        }
        assert_eq!(since("", OffsetDateTime::UNIX_EPOCH), "<unknown>");
        assert_eq!(since("1969-12-31T23:59:55Z", OffsetDateTime::UNIX_EPOCH), "5s");
    }
}
