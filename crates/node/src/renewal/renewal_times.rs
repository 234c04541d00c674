//! When a certificate is to be renewed, and how late that is.

use time::{Duration, OffsetDateTime};
use windlass_pki::ForeignCertificate;

/// Those that are renewed this much later than they should be are overdue, as for kubelet.
const OVERDUE: Duration = Duration::minutes(10);
/// Over how long renewals are spread at most.
const SPREAD: Duration = Duration::minutes(5);

/// What matters of a certificate in the course of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RenewalTimes {
    /// Start of the validity, from the certificate.
    pub not_before: OffsetDateTime,
    /// End of the validity, from the certificate.
    pub not_after: OffsetDateTime,
    /// When it should be renewed.
    pub begin_refresh_at: OffsetDateTime,
    /// Over how long renewals are spread, so that those that were issued together are not renewed
    /// together.
    spread: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateAge {
    /// The certificate is valid and its renewal is not overdue.
    Fresh,
    /// There should have been another for a while.
    Overdue,
    /// It is of no use any more.
    Expired,
}

impl RenewalTimes {
    /// Those of a pod's certificate, for which the signer says when to renew it. One that does not, or
    /// says something impossible, means after two thirds of its life.
    pub fn for_pod(leaf: &ForeignCertificate, begin: Option<OffsetDateTime>) -> Self {
        let (not_before, not_after) = (leaf.not_before(), leaf.not_after());
        let begin = begin.filter(|begin| (not_before..not_after).contains(begin));
        let begin_refresh_at = begin.unwrap_or_else(|| not_before + life(leaf) * 2 / 3);
        let spread = SPREAD.min((not_after - begin_refresh_at) / 10);
        Self { not_before, not_after, begin_refresh_at, spread }
    }

    /// Those of a certificate of a host projection.
    pub fn for_host(leaf: &ForeignCertificate) -> Self {
        Self::between(leaf.not_before(), leaf.not_after())
    }

    /// Renewal when 70 to 90 percent of the validity have passed, as kubelet does it.
    pub fn between(not_before: OffsetDateTime, not_after: OffsetDateTime) -> Self {
        let validity = not_after - not_before;
        let (begin_refresh_at, spread) = (not_before + validity * 0.7, validity * 0.2);
        Self { not_before, not_after, begin_refresh_at, spread }
    }

    /// When to renew it. `random` is from 0 to 1.
    pub fn refresh_at(&self, random: f64) -> OffsetDateTime {
        self.begin_refresh_at + self.spread * random.clamp(0.0, 1.0)
    }

    /// Returns whether renewal is overdue or the certificate expired at `now`.
    pub fn age(&self, now: OffsetDateTime) -> CertificateAge {
        // By this all of them are renewed, wherever in the spread they are.
        let late = OVERDUE.max(self.spread + SPREAD);
        if now > self.not_after {
            CertificateAge::Expired
        } else if now > self.begin_refresh_at + late {
            CertificateAge::Overdue
        } else {
            CertificateAge::Fresh
        }
    }
}

fn life(leaf: &ForeignCertificate) -> Duration {
    leaf.not_after() - leaf.not_before()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CertificateFixture, START};
    use windlass_pki::PrivateKey;

    fn leaf(life: Duration) -> ForeignCertificate {
        let key = PrivateKey::generate().unwrap();
        let signed = CertificateFixture { until: START + life, ..CertificateFixture::client(START) };
        signed.certificate(key.public_key())
    }

    #[test]
    fn pods_are_renewed_when_the_signer_says_a_little_apart() {
        let table = [
            // Life, what the signer says, and the first and last moment, in minutes.
            (1440, Some(1410), (1410, 1413)),
            (1440, Some(720), (720, 725)),
            (60, Some(50), (50, 51)),
            (1440, None, (960, 965)),
            (60, None, (40, 42)),
            // Impossible.
            (60, Some(-1), (40, 42)),
            (60, Some(60), (40, 42)),
            (60, Some(1000), (40, 42)),
        ];
        for (life, begin, (first, last)) in table {
            let begin = begin.map(|minutes| START + Duration::minutes(minutes));
            let times = RenewalTimes::for_pod(&leaf(Duration::minutes(life)), begin);
            let at = |minutes| START + Duration::minutes(minutes);
            assert_eq!(times.refresh_at(0.0), at(first), "{life} {begin:?}");
            assert_eq!(times.refresh_at(1.0), at(last), "{life} {begin:?}");
            assert!(times.refresh_at(1.0) < times.not_after);
        }
    }

    #[test]
    fn hosts_are_renewed_between_70_and_90_percent() {
        let times = RenewalTimes::for_host(&leaf(Duration::minutes(100)));
        assert_eq!(times.refresh_at(0.0), START + Duration::minutes(70));
        assert_eq!(times.refresh_at(1.0), START + Duration::minutes(90));
        assert_eq!(times.age(START + Duration::minutes(95)), CertificateAge::Fresh);
        assert_eq!(times.age(START + Duration::minutes(96)), CertificateAge::Overdue);
    }

    #[test]
    fn certificate_age_is_computed() {
        let begin = START + Duration::minutes(30);
        let times = RenewalTimes::for_pod(&leaf(Duration::minutes(60)), Some(begin));
        let table = [
            (0, CertificateAge::Fresh),
            (40, CertificateAge::Fresh),
            (41, CertificateAge::Overdue),
            (60, CertificateAge::Overdue),
        ];
        for (minutes, age) in table.into_iter().chain([(61, CertificateAge::Expired)]) {
            assert_eq!(times.age(START + Duration::minutes(minutes)), age, "{minutes}");
        }
    }
}
