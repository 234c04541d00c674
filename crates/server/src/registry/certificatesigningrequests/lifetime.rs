//! Reports whether certificates have the requested lifetime.

use serde_json::Value;
use time::Duration;

use super::x509;
use crate::registry::kind::CertificateIssuance;
use crate::registry::object_fields::{bytes, integer, text};

/// Returns the issuance to count if the change issued a certificate for a request with a lifetime.
pub(super) fn issued(old: &Value, new: &Value) -> Option<CertificateIssuance> {
    const AT: &str = "/status/certificate";
    let asked = Duration::seconds(integer(old, "/spec/expirationSeconds")?);
    if !text(old, AT).is_empty() || text(new, AT).is_empty() {
        return None;
    }
    // Clients choose signer names freely, and every name is a time series, so only Kubernetes'
    // signers are named.
    let signer = match text(old, "/spec/signerName") {
        signer if signer.starts_with("kubernetes.io/") => signer,
        _ => "other",
    };
    let lifetime = x509::first_lifetime(&bytes(new, AT));
    let honored = lifetime.is_some_and(|got| is_honored(asked, got));
    Some(CertificateIssuance { signer: signer.to_owned(), honored })
}

/// Tolerates five minutes, for signers that backdate, and a twentieth of the requested lifetime.
fn is_honored(asked: Duration, got: Duration) -> bool {
    (asked - got).abs() < Duration::minutes(5) + asked / 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_honored_if_it_is_close_to_the_requested_one() {
        let hours = Duration::hours;
        let minutes = Duration::minutes;
        for (asked, got, want) in [
            (hours(1), hours(1), true),
            (hours(1), hours(1) + minutes(5), true),
            (hours(1), hours(1) + minutes(8), false),
            (hours(1), hours(1) - minutes(7), true),
            (hours(1), hours(1) - minutes(8), false),
            (minutes(10), minutes(15), true),
            (minutes(10), minutes(15) + Duration::seconds(30), false),
            (minutes(10), minutes(4) + Duration::seconds(31), true),
            (hours(24 * 365), hours(24 * 365 - 24 * 18), true),
            (hours(24 * 365), hours(24 * 365 + 24 * 19), false),
        ] {
            assert_eq!(is_honored(asked, got), want, "{asked} {got}");
        }
    }
}
