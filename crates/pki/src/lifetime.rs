//! Validity periods of requested certificates.

use time::{Duration, OffsetDateTime};

use crate::{Certificate, Error, Validity};

/// Certificates are backdated by this much, to tolerate clock skew.
const BACKDATE: Duration = Duration::minutes(5);

/// Shortest lifetime: twice the backdating, so that some of it remains.
const SHORTEST: Duration = Duration::minutes(10);

/// For lifetimes below this, the backdating is not negligible and is not subtracted from the end.
const SHORT: Duration = Duration::hours(8);

/// Reason why no validity period is possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LifetimeError {
    /// The CA expires before the certificate's validity starts.
    #[error("the signer has expired: NotAfter={}", go_time(*.0))]
    SignerExpired(OffsetDateTime),
    /// The CA has already expired.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={}", go_time(*.0))]
    ExpiredInThePast(OffsetDateTime),
    /// The period is empty, or beyond the calendar.
    #[error(transparent)]
    Impossible(#[from] Error),
}

/// Returns the validity of a certificate requested at `now`: the requested duration, limited by
/// `max_lifetime` and by the CA's validity.
pub fn lifetime(
    requested: Option<Duration>,
    max_lifetime: Duration,
    authority: &Certificate,
    now: OffsetDateTime,
) -> Result<Validity, LifetimeError> {
    within(requested, max_lifetime, authority.validity().not_after(), now)
}

fn within(
    requested: Option<Duration>,
    max_lifetime: Duration,
    end: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Validity, LifetimeError> {
    let duration = match requested {
        Some(requested) if requested <= max_lifetime => requested.max(SHORTEST),
        Some(_) | None => max_lifetime,
    };
    let from = now.saturating_sub(BACKDATE);
    if from >= end {
        return Err(LifetimeError::SignerExpired(end));
    }
    if now >= end {
        return Err(LifetimeError::ExpiredInThePast(end));
    }
    let until = if duration < SHORT { now } else { from }.saturating_add(duration);
    Ok(Validity::new(from, until.min(end))?)
}

/// Formats a time as Go does.
fn go_time(time: OffsetDateTime) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    let (date, (hour, minute, second)) = (time.date(), time.to_hms());
    format!("{date} {hour:02}:{minute:02}:{second:02} +0000 UTC")
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00:00.75 UTC);
    const YEAR: Duration = Duration::days(365);

    #[test]
    fn follows_the_table() {
        let far = datetime!(2036-01-01 0:00 UTC);
        let (minute, hour) = (Duration::MINUTE, Duration::HOUR);
        // Requested duration, maximum, and resulting lifetime.
        let table = [
            (None, YEAR, YEAR),
            (None, hour, hour + 5 * minute),
            (Some(YEAR + Duration::SECOND), YEAR, YEAR),
            (Some(YEAR), YEAR, YEAR),
            (Some(2 * hour), hour, hour + 5 * minute),
            (Some(hour), YEAR, hour + 5 * minute),
            (Some(10 * minute), YEAR, 15 * minute),
            (Some(10 * minute - Duration::SECOND), YEAR, 15 * minute),
            (Some(Duration::ZERO), YEAR, 15 * minute),
            (Some(-hour), YEAR, 15 * minute),
            (Some(8 * hour), YEAR, 8 * hour),
            (Some(8 * hour - Duration::SECOND), YEAR, 8 * hour + 5 * minute - Duration::SECOND),
            (Some(Duration::DAY), YEAR, Duration::DAY),
            // The maximum takes precedence over the minimum.
            (Some(10 * minute), 6 * minute, 11 * minute),
            (Some(7 * minute), 6 * minute, 11 * minute),
            (Some(5 * minute), 6 * minute, 15 * minute),
            (None, 6 * minute, 11 * minute),
            (None, 8 * hour, 8 * hour),
        ];
        for (requested, max_lifetime, lifetime) in table {
            let validity = within(requested, max_lifetime, far, NOW).unwrap();
            assert_eq!(validity.not_before(), datetime!(2026-06-01 11:55:00 UTC));
            let actual = validity.not_after() - validity.not_before();
            assert_eq!(actual, lifetime, "{requested:?} of {max_lifetime}");
        }
    }

    #[test]
    fn ends_with_the_authority() {
        for end in [
            datetime!(2026-06-01 12:00:01 UTC),
            datetime!(2026-07-01 0:00 UTC),
            NOW.replace_nanosecond(0).unwrap() + YEAR - BACKDATE,
        ] {
            assert_eq!(within(None, YEAR, end, NOW).unwrap().not_after(), end);
        }
        let later = NOW + YEAR;
        assert!(within(None, YEAR, later, NOW).unwrap().not_after() < later);
    }

    #[test]
    fn refuses_for_an_expired_authority() {
        let expired = datetime!(2026-06-01 11:55:00.75 UTC);
        let table = [
            (expired, "the signer has expired: NotAfter=2026-06-01 11:55:00 +0000 UTC"),
            (
                expired + Duration::SECOND,
                "refusing to sign a certificate that expired in the past: \
                 NotAfter=2026-06-01 11:55:01 +0000 UTC",
            ),
            (
                NOW,
                "refusing to sign a certificate that expired in the past: \
                 NotAfter=2026-06-01 12:00:00 +0000 UTC",
            ),
            (
                datetime!(1999-01-02 3:04:05 UTC),
                "the signer has expired: NotAfter=1999-01-02 03:04:05 +0000 UTC",
            ),
        ];
        for (end, text) in table {
            assert_eq!(within(None, YEAR, end, NOW).unwrap_err().to_string(), text);
        }
        let end = datetime!(9999-12-31 23:59:59 UTC);
        within(None, Duration::MAX, end, NOW).unwrap();
        let error = within(None, Duration::MIN, end, NOW).unwrap_err();
        assert!(matches!(error, LifetimeError::Impossible(_)), "{error}");
    }
}
