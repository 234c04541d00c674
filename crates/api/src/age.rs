//! Human-readable durations and ages, formatted like the columns of `kubectl get`.

use time::OffsetDateTime;

use crate::timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats the age at `now` of an object created at `created`; an empty or unparsable timestamp
/// yields `<unknown>`.
pub fn age(created: &str, now: OffsetDateTime) -> String {
    match timestamp::parse(created) {
        Ok(created) => human_duration((now - created).whole_seconds()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Formats seconds with two or three significant digits.
///
/// A timestamp up to one second in the future is attributed to clock skew and shown as now.
pub fn human_duration(seconds: i64) -> String {
    let two = |big: i64, big_unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, 'm', s % MINUTE, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, 'h', s % HOUR / MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, 'd', s % DAY / HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, 'y', s % YEAR / DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn durations_change_their_form_at_the_boundaries() {
        let cases = [
            (i64::MIN, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (HOUR, "60m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + 3599, "8h"),
            (DAY, "24h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (i64::MAX, "292471208677y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds), want, "{seconds}");
        }
    }

    #[test]
    fn ages_count_from_creation() {
        let now = datetime!(2026-01-01 00:01:00.5 UTC);
        let cases = [
            ("2026-01-01T00:00:00Z", "60s"),
            ("2026-01-01T00:01:02Z", "0s"),
            ("2026-01-01T00:01:03Z", "<invalid>"),
            ("", "<unknown>"),
        ];
        for (created, want) in cases {
            assert_eq!(age(created, now), want, "{created}");
        }
    }
}
