//! The certificate in use, and when it is renewed.

use std::sync::Arc;

use time::OffsetDateTime;

use crate::clock::ClockReading;
use crate::key_pair::CertificateKeyPair;
use crate::node_certificates::report::CurrentCertificateReport;
use crate::renewal::RenewalTimes;
use crate::template::CertificateTemplate;

/// A certificate in use, and when it is renewed.
pub struct RotationSchedule {
    pub identity: Arc<CertificateKeyPair>,
    /// When it is due for renewal, by its validity.
    pub rotate_at: OffsetDateTime,
    /// When the server began to reject the certificate; `None` while it accepts it.
    pub rejected_since: Option<OffsetDateTime>,
    /// When to renew early, because the authority is tainted.
    pub taint_at: Option<OffsetDateTime>,
}

impl RotationSchedule {
    pub fn new(identity: Arc<CertificateKeyPair>, random: f64) -> Self {
        let leaf = identity.leaf();
        let times = RenewalTimes::between(leaf.not_before(), identity.expires());
        let rotate_at = times.refresh_at(random);
        Self { identity, rotate_at, rejected_since: None, taint_at: None }
    }

    /// Returns when to renew the certificate.
    pub fn renew_at(&self) -> OffsetDateTime {
        self.taint_at.map_or(self.rotate_at, |at| at.min(self.rotate_at))
    }

    /// Returns whether the certificate is valid and the server accepts it.
    pub fn is_usable(&self, now: ClockReading) -> bool {
        self.identity.is_valid_at(now.wall) && self.rejected_since.is_none()
    }

    pub fn report(&self, template: Option<&CertificateTemplate>) -> CurrentCertificateReport {
        let leaf = self.identity.leaf();
        let organizations = leaf.subject().organizations().into_iter().map(str::to_owned);
        CurrentCertificateReport {
            common_name: leaf.subject().common_name().to_owned(),
            organizations: organizations.collect(),
            names: leaf.alt_names().clone(),
            serial: serial_text(&self.identity),
            not_before: leaf.not_before(),
            expires: self.identity.expires(),
            rotate_at: self.renew_at(),
            lacking: template.and_then(|template| template.lacking(leaf)),
            rejected_since: self.rejected_since,
        }
    }
}

/// Returns the serial number of a certificate in hexadecimal digits.
pub fn serial_text(identity: &CertificateKeyPair) -> String {
    identity.leaf().serial().iter().map(|octet| format!("{octet:02x}")).collect()
}
