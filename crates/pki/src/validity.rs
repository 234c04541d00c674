//! Validity periods of certificates.

use der::DateTime;
use time::{Duration, OffsetDateTime};
use x509_cert::time::{Time, Validity as Encoded};

use crate::Error;

/// A nonempty period in whole seconds; both ends are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Validity {
    /// Creates a period. Certificates have whole seconds, so fractions are truncated here rather
    /// than when encoding.
    pub fn new(not_before: OffsetDateTime, not_after: OffsetDateTime) -> Result<Self, Error> {
        let (not_before, not_after) = (whole_seconds(not_before)?, whole_seconds(not_after)?);
        if not_before > not_after {
            return Err(Error::EmptyValidity("it ends before it begins"));
        }
        Ok(Self { not_before, not_after })
    }

    /// Creates a period of `duration` that starts at `not_before`.
    pub fn lasting(not_before: OffsetDateTime, duration: Duration) -> Result<Self, Error> {
        let not_after = not_before.checked_add(duration).ok_or(BEYOND_CALENDAR)?;
        Self::new(not_before, not_after)
    }

    /// Returns the first second at which the certificate is valid (`notBefore`).
    pub fn not_before(&self) -> OffsetDateTime {
        self.not_before
    }

    /// Returns the last second at which the certificate is valid (`notAfter`), inclusive.
    pub fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Returns true if `now` is between `notBefore` and `notAfter`, both included.
    pub fn contains(&self, now: OffsetDateTime) -> bool {
        // The last second ends when the next one starts.
        self.not_before <= now && now < self.not_after.saturating_add(Duration::SECOND)
    }

    /// Returns the part of this period within `outer`.
    pub fn clipped_to(&self, outer: &Self) -> Result<Self, Error> {
        let not_before = self.not_before.max(outer.not_before);
        let not_after = self.not_after.min(outer.not_after);
        if not_before > not_after {
            return Err(Error::EmptyValidity("it is outside the validity of the CA"));
        }
        Ok(Self { not_before, not_after })
    }

    pub(crate) fn encoded(&self) -> Result<Encoded, Error> {
        Ok(Encoded::new(to_time(self.not_before)?, to_time(self.not_after)?))
    }

    pub(crate) fn decoded(encoded: &Encoded) -> Result<Self, Error> {
        Self::new(from_time(encoded.not_before)?, from_time(encoded.not_after)?)
    }
}

const BEYOND_CALENDAR: Error = Error::EmptyValidity("times must be between the years 1970 and 9999");

fn whole_seconds(time: OffsetDateTime) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(time.unix_timestamp()).map_err(|_| BEYOND_CALENDAR)
}

pub(crate) fn to_time(time: OffsetDateTime) -> Result<Time, Error> {
    let seconds = u64::try_from(time.unix_timestamp()).map_err(|_| BEYOND_CALENDAR)?;
    let date = DateTime::from_unix_duration(std::time::Duration::from_secs(seconds));
    Ok(Time::from(date.map_err(|_| BEYOND_CALENDAR)?))
}

pub(crate) fn from_time(time: Time) -> Result<OffsetDateTime, Error> {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).map_err(|_| BEYOND_CALENDAR)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| BEYOND_CALENDAR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn clips_to_the_outer_one() {
        let outer = Validity::new(datetime!(2026-01-01 00:00 UTC), datetime!(2027-01-01 00:00 UTC)).unwrap();
        let table = [
            (datetime!(2025-06-01 0:00 UTC), datetime!(2026-06-01 0:00 UTC), true),
            (datetime!(2026-06-01 0:00 UTC), datetime!(2036-06-01 0:00 UTC), true),
            (datetime!(2025-06-01 0:00 UTC), datetime!(2025-12-31 23:59:59 UTC), false),
            (datetime!(2027-01-01 0:00:01 UTC), datetime!(2028-01-01 0:00 UTC), false),
        ];
        for (not_before, not_after, some) in table {
            let clipped = Validity::new(not_before, not_after).unwrap().clipped_to(&outer);
            assert_eq!(clipped.is_ok(), some, "{not_before} {not_after}");
            if let Ok(clipped) = clipped {
                assert!(clipped.not_before() >= outer.not_before());
                assert!(clipped.not_after() <= outer.not_after());
            }
        }
    }

    #[test]
    fn survives_encoding_on_both_sides_of_2050() {
        for year in [1970, 2026, 2049, 2050, 9998] {
            let start = datetime!(1970-01-01 0:00 UTC).replace_year(year).unwrap();
            let validity = Validity::lasting(start, Duration::days(365)).unwrap();
            assert_eq!(Validity::decoded(&validity.encoded().unwrap()).unwrap(), validity);
        }
        assert!(Validity::lasting(datetime!(9999-12-31 0:00 UTC), Duration::days(2)).is_err());
    }

    #[test]
    fn includes_its_last_second() {
        let validity = Validity::new(datetime!(2026-01-01 0:00 UTC), datetime!(2026-01-02 0:00 UTC)).unwrap();
        assert!(validity.contains(datetime!(2026-01-02 0:00:00.9 UTC)));
        assert!(!validity.contains(datetime!(2026-01-02 0:00:01 UTC)));
        assert!(!validity.contains(datetime!(2025-12-31 23:59:59.9 UTC)));
    }
}
