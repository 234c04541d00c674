//! Authorities whose certificates are to be renewed before their time, as their signer publishes them.
//!
//! A signer that stops using a CA key annotates its ClusterTrustBundles with the authority. Every holder renews at its
//! own moment of a window, so that they do not all ask at once. The moment follows from the key of the certificate, so
//! that a restart does not change it.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};
use windlass_api::duration;
use windlass_pki::ForeignCertificate;

/// Annotation of ClusterTrustBundles: a JSON object from authority ID to the taint.
pub const TAINTED_AUTHORITIES: &str = "windlass.dev/tainted-authorities";

/// Longest window that is used, so that a wrong one does not keep certificates of the authority for good.
const MAX_WINDOW: Duration = Duration::days(7);

/// An authority whose certificates are to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaintedAuthority {
    /// When renewals begin.
    pub since: OffsetDateTime,
    /// How long renewals take, so that they are spread.
    pub window: Duration,
}

/// Tainted authorities by ID, which is the subject key identifier in lower-case hexadecimal.
pub type TaintedAuthorities = BTreeMap<String, TaintedAuthority>;

#[derive(Deserialize)]
struct TaintDocument {
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    #[serde(default)]
    window: String,
}

/// Parses the value of the annotation.
pub fn parse_taints(text: &str) -> Result<TaintedAuthorities, String> {
    let parsed: BTreeMap<String, TaintDocument> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let taint = |(authority, TaintDocument { since, window }): (String, TaintDocument)| {
        let window = match window.as_str() {
            "" => Duration::ZERO,
            text => parse_window(text)?,
        };
        Ok((authority.to_ascii_lowercase(), TaintedAuthority { since, window }))
    };
    parsed.into_iter().map(taint).collect()
}

/// Returns when to renew a certificate because of its authority; `None` if that is not tainted.
pub fn renewal_of(leaf: &ForeignCertificate, taints: &TaintedAuthorities) -> Option<OffsetDateTime> {
    if taints.is_empty() {
        return None;
    }
    let id: String = leaf.authority_key_identifier()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let taint = taints.get(&id)?;
    let key = leaf.public_key().to_public_key().ok()?;
    Some(renewal_time(*taint, key.as_der()))
}

/// Returns when to renew a certificate with this public key: at a moment of the window that depends on the key only.
fn renewal_time(taint: TaintedAuthority, public_key: &[u8]) -> OffsetDateTime {
    let hash = digest(&SHA256, public_key);
    let mut first = [0; 4];
    first.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
    // Less than one, so that the window is never exceeded.
    let fraction = f64::from(u32::from_be_bytes(first)) / (f64::from(u32::MAX) + 1.0);
    taint.since + taint.window * fraction
}

fn parse_window(text: &str) -> Result<Duration, String> {
    let window = duration::parse(text).map_err(|error| format!("window {text:?}: {error}"))?;
    Ok(Duration::try_from(window).unwrap_or(MAX_WINDOW).min(MAX_WINDOW))
}

#[cfg(test)]
mod tests {
    use windlass_pki::PrivateKey;

    use super::*;
    use crate::testing::{AUTHORITY, CertificateFixture, START};

    fn taint(window: Duration) -> TaintedAuthority {
        TaintedAuthority { since: START, window }
    }

    #[test]
    fn the_annotation_is_parsed() {
        let one = |window| Ok([("0a".to_owned(), taint(window))].into());
        let table: [(&str, Result<TaintedAuthorities, ()>); 9] = [
            ("{}", Ok(TaintedAuthorities::new())),
            (r#"{"0a": {"since": "2026-03-01T12:00:00Z", "window": "10m"}}"#, one(Duration::minutes(10))),
            (
                r#"{"0A": {"since": "2026-03-01T13:00:00+01:00", "window": "1h30m"}}"#,
                one(Duration::minutes(90)),
            ),
            (r#"{"0a": {"since": "2026-03-01T12:00:00Z"}}"#, one(Duration::ZERO)),
            (r#"{"0a": {"since": "2026-03-01T12:00:00Z", "window": "9000h"}}"#, one(MAX_WINDOW)),
            (r#"{"0a": {"since": "now", "window": "10m"}}"#, Err(())),
            (r#"{"0a": {"since": "2026-03-01T12:00:00Z", "window": "soon"}}"#, Err(())),
            (r#"{"0a": {"window": "10m"}}"#, Err(())),
            ("[]", Err(())),
        ];
        for (text, expected) in table {
            assert_eq!(parse_taints(text).map_err(|_| ()), expected, "{text}");
        }
    }

    #[test]
    fn renewals_are_spread_over_the_window_by_key() {
        let window = Duration::minutes(10);
        let mut counts = [0; 10];
        for number in 0..1000_u32 {
            let at = renewal_time(taint(window), &number.to_be_bytes());
            assert_eq!(at, renewal_time(taint(window), &number.to_be_bytes()), "the same for the same key");
            assert!(at >= START && at < START + window, "{at}");
            counts[usize::try_from((at - START).whole_minutes()).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
        assert_eq!(renewal_time(taint(Duration::ZERO), b"key"), START);
    }

    #[test]
    fn only_certificates_of_the_authority_are_renewed() {
        let key = PrivateKey::generate().unwrap();
        let leaf = CertificateFixture::client(START).certificate(key.public_key());
        let issuer = AUTHORITY.certificate().authority_id();
        for (authority, is_renewed) in [(issuer.as_str(), true), ("0a0b", false), ("", false)] {
            let taints = [(authority.to_owned(), taint(Duration::ZERO))].into();
            assert_eq!(renewal_of(&leaf, &taints), is_renewed.then_some(START), "{authority}");
        }
        assert_eq!(renewal_of(&leaf, &TaintedAuthorities::new()), None);
    }
}
