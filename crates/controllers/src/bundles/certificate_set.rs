//! Certificates of a Bundle, without duplicates and ordered by digest.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use time::{Duration, OffsetDateTime};
use windlass_pki::{BundleError, ForeignCertificate, parse_bundle, pem};

/// Certificates that are left out, whatever their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateFilter {
    /// Whether expired certificates are left out.
    pub expired: bool,
    /// Leave out certificates that are not CAs.
    pub non_authorities: bool,
}

/// Certificates without duplicates, ordered by their SHA-256 fingerprint.
#[derive(Clone, Debug)]
pub struct CertificateSet {
    filters: CertificateFilter,
    now: OffsetDateTime,
    certificates: BTreeMap<[u8; 32], ForeignCertificate>,
    left_out: usize,
}

impl CertificateSet {
    /// Creates an empty set with a filter as of `now`.
    pub fn new(filters: CertificateFilter, now: OffsetDateTime) -> Self {
        Self { filters, now, certificates: BTreeMap::new(), left_out: 0 }
    }

    /// Adds all certificates of a PEM text, or none if it is invalid.
    pub fn add(&mut self, text: &[u8]) -> Result<(), BundleError> {
        let found = parse_bundle(text)?;
        self.left_out += found.skipped;
        for certificate in found.certificates {
            let expired = self.filters.expired && certificate.not_after() < self.now;
            if expired || (self.filters.non_authorities && !certificate.is_authority()) {
                self.left_out += 1;
            } else {
                self.certificates.insert(fingerprint(&certificate), certificate);
            }
        }
        Ok(())
    }

    /// Adds all certificates of another set.
    pub fn merge(&mut self, other: Self) {
        self.left_out += other.left_out;
        self.certificates.extend(other.certificates);
    }

    /// Number of certificates in the set, after filtering.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Whether the set has no certificates after filtering.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Number of certificates that were left out.
    pub fn filtered_count(&self) -> usize {
        self.left_out
    }

    /// Iterates over the certificates with their SHA-256, ordered by it.
    pub fn certificates(&self) -> impl Iterator<Item = (&[u8; 32], &ForeignCertificate)> {
        self.certificates.iter()
    }

    /// Encodes all certificates as PEM, without a newline at the end.
    pub fn pem(&self) -> String {
        to_pem(self.certificates.values())
    }

    /// Encodes the certificates that a ClusterTrustBundle may hold as PEM.
    pub fn authorities_pem(&self) -> String {
        to_pem(self.certificates.values().filter(|certificate| certificate.is_authority()))
    }

    /// Returns when the first certificate expires.
    pub fn earliest_expiry(&self) -> Option<OffsetDateTime> {
        self.certificates.values().map(ForeignCertificate::not_after).min()
    }

    /// Returns when the same sources would give another set, just because time passes.
    pub fn valid_until(&self) -> Option<OffsetDateTime> {
        let expiry = self.earliest_expiry().filter(|_| self.filters.expired)?;
        // A certificate is valid until the end of its last second.
        Some(expiry.saturating_add(Duration::SECOND))
    }
}

fn fingerprint(certificate: &ForeignCertificate) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest(&SHA256, certificate.der()).as_ref());
    fingerprint
}

fn to_pem<'a>(certificates: impl Iterator<Item = &'a ForeignCertificate>) -> String {
    let mut text = pem::encode_certificates(certificates.map(ForeignCertificate::der));
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::fixtures::{self, ED25519, P256, RSA};

    fn certificate_set(parts: &[&str], filters: CertificateFilter) -> Result<CertificateSet, String> {
        let mut pool = CertificateSet::new(filters, fixtures::now());
        pool.add(parts.join("\n").as_bytes()).map_err(|error| error.to_string())?;
        Ok(pool)
    }

    #[test]
    fn certificates_are_taken_as_trust_manager_takes_them() {
        let keep = CertificateFilter::default();
        let drop = CertificateFilter { expired: true, ..keep };
        let authorities = CertificateFilter { non_authorities: true, ..keep };
        let (expired, leaf) = (fixtures::expired_ca(), fixtures::leaf_certificate());
        let comment = "some random commentary";
        let headers = P256.replacen("-----\n", "-----\nMy-Header: Abc123\n\n", 1);
        let invalid = P256.replacen("MII", "MIA", 1);
        let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----";
        let table: &[(&str, &[&str], CertificateFilter, Option<usize>)] = &[
            ("all kinds", &[P256, ED25519, RSA], keep, Some(3)),
            ("comments", &[P256, comment, ED25519, comment, RSA, comment], keep, Some(3)),
            ("an expired one stays", &[P256, &expired], keep, Some(2)),
            ("a header", &[P256, &headers, RSA], keep, None),
            ("no certificate", &[P256, &invalid, RSA], keep, None),
            ("a private key", &[P256, key], keep, None),
            ("nothing", &["abc123"], keep, Some(0)),
            ("an expired one goes", &[P256, &expired, RSA], drop, Some(2)),
            ("expired ones go", &[P256, &expired, &expired], drop, Some(1)),
            ("only an expired one", &[&expired], drop, Some(0)),
            ("each once", &[P256, P256, P256, RSA, RSA], drop, Some(2)),
            ("a leaf stays", &[P256, &leaf], keep, Some(2)),
            ("a leaf goes", &[P256, &leaf], authorities, Some(1)),
        ];
        for (name, parts, filters, want) in table {
            let pool = certificate_set(parts, *filters);
            assert_eq!(pool.as_ref().ok().map(CertificateSet::len), *want, "{name}: {pool:?}");
            let Ok(pool) = pool else { continue };
            let text = pool.pem();
            assert!(!text.contains(comment) && !text.ends_with('\n'), "{name}");
            let again = certificate_set(&[&text], *filters).unwrap();
            assert_eq!(again.pem(), text, "{name}");
        }
    }

    #[test]
    fn poison_between_certificates_is_dropped() {
        let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
        let text = [P256.as_bytes(), &[0xff, b'\n'], RSA.as_bytes(), &[0xff]].concat();
        pool.add(&text).unwrap();
        assert_eq!(pool.len(), 2);
    }

    #[test]
    fn order_is_that_of_digests_whatever_the_order_of_sources() {
        let want = [ED25519, P256, RSA].map(str::trim_end).join("\n");
        for parts in [[P256, ED25519, RSA], [RSA, P256, ED25519]] {
            assert_eq!(certificate_set(&parts, CertificateFilter::default()).unwrap().pem(), want);
        }
        let pool =
            certificate_set(&[P256, &fixtures::leaf_certificate()], CertificateFilter::default()).unwrap();
        assert_eq!(pool.authorities_pem(), P256.trim_end());
        assert_eq!(certificate_set(&[], CertificateFilter::default()).unwrap().pem(), "");
    }

    #[test]
    fn a_set_is_good_until_the_first_expires() {
        let keep = CertificateFilter::default();
        let drop = CertificateFilter { expired: true, ..keep };
        let soon = fixtures::ca_valid_until(fixtures::now() + Duration::HOUR);
        let pool = certificate_set(&[P256, &soon], keep).unwrap();
        assert_eq!(pool.earliest_expiry(), Some(fixtures::now() + Duration::HOUR));
        assert_eq!(pool.valid_until(), None);
        let pool = certificate_set(&[P256, &soon], drop).unwrap();
        let until = pool.valid_until().unwrap();
        let at = |now| {
            let mut pool = CertificateSet::new(drop, now);
            pool.add(format!("{P256}{soon}").as_bytes()).unwrap();
            pool.len()
        };
        assert_eq!((at(until - Duration::SECOND), at(until)), (2, 1));
    }
}
