//! Reports of managers that are not there.

use time::{Duration, OffsetDateTime};
use windlass_pki::AltNames;

use crate::manager::{Doing, HeldReport, Report};
use crate::template::Purpose;

/// What a manager that holds something says, or one that holds nothing.
pub fn report(purpose: Purpose, expires: Option<OffsetDateTime>) -> Report {
    let held = expires.map(|expires| HeldReport {
        common_name: "system:node:n1".into(),
        organizations: vec!["system:nodes".into()],
        names: AltNames::default(),
        serial: "01".into(),
        not_before: expires - Duration::days(1),
        expires,
        rotate_at: expires - Duration::hours(4),
        lacking: None,
    });
    Report {
        purpose,
        held,
        doing: Doing::Holding,
        trouble: None,
        errors: 0,
        stored: 0,
        warnings: Vec::new(),
    }
}
