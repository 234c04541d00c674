//! Reports of certificate managers, built without a manager.

use time::{Duration, OffsetDateTime};
use windlass_pki::AltNames;

use crate::node_certificates::{CurrentCertificateReport, ManagerActivity, NodeCertificateReport};
use crate::template::CertificatePurpose;

/// Returns the report of a manager with or without a certificate.
pub fn report(purpose: CertificatePurpose, expires: Option<OffsetDateTime>) -> NodeCertificateReport {
    let held = expires.map(|expires| CurrentCertificateReport {
        common_name: "system:node:n1".into(),
        organizations: vec!["system:nodes".into()],
        names: AltNames::default(),
        serial: "01".into(),
        not_before: expires - Duration::days(1),
        expires,
        rotate_at: expires - Duration::hours(4),
        lacking: None,
        rejected_since: None,
    });
    NodeCertificateReport {
        purpose,
        held,
        doing: ManagerActivity::Holding,
        trouble: None,
        errors: 0,
        stored: 0,
        rejections: 0,
        warnings: Vec::new(),
    }
}
