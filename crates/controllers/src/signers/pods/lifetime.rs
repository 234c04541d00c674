//! Validity and renewal time of pod certificates.

use std::time::Duration as Span;

use time::{Duration, OffsetDateTime};
use windlass_pki::{Error, Validity};

/// Minimum lifetime that the API accepts.
const SHORTEST: Duration = Duration::HOUR;
/// Allowance for clocks that are behind. The API rejects five minutes.
const BACKDATE: Duration = Duration::minutes(2);
/// Minimum that the API requires between the renewal and either end of the validity.
const MARGIN: Duration = Duration::minutes(10);

/// Validity and renewal time of one certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateTimes {
    /// Validity period of the certificate, within that of the CA.
    pub validity: Validity,
    /// When the node should request the next certificate.
    pub begin_refresh_at: OffsetDateTime,
}

/// Limits on the lifetime of a certificate, and when it is renewed.
#[derive(Debug, Clone, Copy)]
pub struct LifetimeLimits {
    /// Maximum of the signer.
    pub max_duration: Span,
    /// Maximum of the request.
    pub asked: Duration,
    /// Fraction of the lifetime after which a certificate is renewed, between 0 and 1.
    pub refresh_after: f64,
}

/// Reason for which no valid times exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValidityError {
    /// Request or signer allow less than the minimum.
    #[error("the lifetime is limited to {}s, and the minimum is one hour", .0.whole_seconds())]
    TooShort(Duration),
    /// The CA is not valid yet.
    #[error("the signer's CA is not valid before {0}")]
    TooEarly(OffsetDateTime),
    /// The CA expires too soon.
    #[error("the signer's CA is valid until {0}, which is too soon for a certificate of one hour")]
    TooLate(OffsetDateTime),
    /// The times are outside the range of X.509.
    #[error(transparent)]
    Impossible(#[from] Error),
}

impl LifetimeLimits {
    /// Computes the times of a certificate that a CA with the validity `authority` issues now.
    pub fn compute(
        &self,
        now: OffsetDateTime,
        authority: &Validity,
    ) -> Result<CertificateTimes, ValidityError> {
        let max_duration = Duration::try_from(self.max_duration).unwrap_or(Duration::MAX);
        let lifetime = max_duration.min(self.asked);
        if lifetime < SHORTEST {
            return Err(ValidityError::TooShort(lifetime));
        }
        if authority.not_before() > now {
            return Err(ValidityError::TooEarly(authority.not_before()));
        }
        let start = (now - BACKDATE).max(authority.not_before());
        let validity = Validity::lasting(start, lifetime)?;
        let ends = authority.not_after();
        let validity = validity.clipped_to(authority).map_err(|_| ValidityError::TooLate(ends))?;
        let lifetime = validity.not_after() - validity.not_before();
        if lifetime < SHORTEST {
            return Err(ValidityError::TooLate(ends));
        }
        Ok(CertificateTimes { validity, begin_refresh_at: self.refresh_time(validity, lifetime) })
    }

    fn refresh_time(&self, validity: Validity, lifetime: Duration) -> OffsetDateTime {
        let after = Duration::seconds((lifetime * self.refresh_after).whole_seconds());
        // The minimum lifetime leaves room for both margins.
        validity.not_before() + after.clamp(MARGIN, lifetime - MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-05-04 12:00:00.75 UTC);
    const START: OffsetDateTime = datetime!(2026-05-04 11:58:00 UTC);

    fn hours(hours: u64) -> Span {
        Span::from_secs(hours * 3600)
    }

    fn limits(max_duration: Span, asked: i64, refresh_after: f64) -> LifetimeLimits {
        LifetimeLimits { max_duration, asked: Duration::seconds(asked), refresh_after }
    }

    fn authority(from: OffsetDateTime, until: OffsetDateTime) -> Validity {
        Validity::new(from, until).unwrap()
    }

    fn usual() -> Validity {
        authority(datetime!(2026-01-01 0:00 UTC), datetime!(2036-01-01 0:00 UTC))
    }

    #[test]
    fn the_shorter_of_both_limits_counts() {
        // Maximum lifetime, requested lifetime and refresh fraction; then in minutes: lifetime and
        // time until renewal.
        let table = [
            (hours(24), 86_400, 0.5, 1440, 720),
            (hours(24), 3600, 0.5, 60, 30),
            (hours(1), 86_400, 0.5, 60, 30),
            (hours(2000), 7_862_400, 0.5, 120_000, 60_000),
            (hours(9999), 7_862_400, 0.5, 131_040, 65_520),
            // The renewal is at least ten minutes from both ends.
            (hours(1), 3600, 0.0, 60, 10),
            (hours(1), 3600, 0.1, 60, 10),
            (hours(1), 3600, 0.9, 60, 50),
            (hours(1), 3600, 1.0, 60, 50),
            (hours(24), 86_400, 1.0, 1440, 1430),
        ];
        for (max_duration, asked, refresh_after, life, renewal) in table {
            let times = limits(max_duration, asked, refresh_after).compute(NOW, &usual()).unwrap();
            assert_eq!(times.validity.not_before(), START);
            assert_eq!(times.validity.not_after(), START + Duration::minutes(life));
            assert_eq!(times.begin_refresh_at, START + Duration::minutes(renewal), "{max_duration:?}");
        }
    }

    #[test]
    fn renewals_are_in_whole_seconds() {
        let times = limits(hours(1), 3601, 1.0 / 3.0).compute(NOW, &usual()).unwrap();
        assert_eq!(times.begin_refresh_at, START + Duration::seconds(1200));
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let from = datetime!(2026-01-01 0:00 UTC);
        let day = limits(hours(24), 86_400, 0.5);
        let until = |ends| day.compute(NOW, &authority(from, ends));
        let ends = datetime!(2026-05-04 13:00 UTC);
        let times = until(ends).unwrap();
        assert_eq!((times.validity.not_before(), times.validity.not_after()), (START, ends));
        assert_eq!(times.begin_refresh_at, START + Duration::minutes(31));
        assert!(until(datetime!(2026-05-04 12:58:00 UTC)).is_ok());
        for ends in [
            datetime!(2026-05-04 12:57:59 UTC),
            datetime!(2026-05-04 12:00:00 UTC),
            datetime!(2026-05-04 11:00:00 UTC),
        ] {
            assert_eq!(until(ends), Err(ValidityError::TooLate(ends)));
        }
    }

    #[test]
    fn no_certificate_begins_before_its_authority() {
        let ends = datetime!(2036-01-01 0:00 UTC);
        let day = limits(hours(24), 86_400, 0.5);
        let fresh = datetime!(2026-05-04 11:59:30 UTC);
        let times = day.compute(NOW, &authority(fresh, ends)).unwrap();
        assert_eq!(times.validity, Validity::lasting(fresh, Duration::DAY).unwrap());
        let later = datetime!(2026-05-04 12:00:01 UTC);
        let early = day.compute(NOW, &authority(later, ends));
        assert_eq!(early, Err(ValidityError::TooEarly(later)));
    }

    #[test]
    fn lifetimes_below_one_hour_are_rejected() {
        let short = limits(hours(24), 3599, 0.5).compute(NOW, &usual());
        assert_eq!(short, Err(ValidityError::TooShort(Duration::seconds(3599))));
        assert!(limits(hours(24), i64::MIN, 0.5).compute(NOW, &usual()).is_err());
        let far = datetime!(9999-12-31 12:00 UTC);
        let ca = authority(datetime!(2026-01-01 0:00 UTC), datetime!(9999-12-31 23:00 UTC));
        assert!(limits(hours(24), 86_400, 0.5).compute(far, &ca).is_err());
    }
}
