//! Descriptions of failed TLS handshakes, with dates instead of UNIX timestamps.

use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use time::OffsetDateTime;

/// Describes a TLS error that a client of the API got.
pub fn describe_tls_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => describe_certificate_error(error),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS".to_owned(),
        error => error.to_string(),
    }
}

fn describe_certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = span(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("the server's certificate expired {} ({ago} ago)", date(*not_after))
        }
        CertificateError::Expired => "the server's certificate has expired".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            let ahead = span(not_before.as_secs().saturating_sub(time.as_secs()));
            let date = date(*not_before);
            format!(
                "the server's certificate is not valid before {date} (in {ahead}); check the local clock"
            )
        }
        CertificateError::NotValidYet => {
            "the server's certificate is not valid yet; check the local clock".to_owned()
        }
        CertificateError::UnknownIssuer => "the server's certificate is signed by an unknown authority; \
             check certificate-authority in the kubeconfig"
            .to_owned(),
        // A CA with the same name and a different key: of another installation, or a replaced one.
        CertificateError::BadSignature => "the server's certificate is signed by an unknown authority, \
             which has the name of the one in the kubeconfig; the kubeconfig belongs to another server or an old CA"
            .to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            match presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ") {
                names if names.is_empty() => {
                    format!("the server's certificate is not valid for {expected}")
                }
                names => {
                    format!("the server's certificate is valid for {names}, not for {expected}")
                }
            }
        }
        CertificateError::NotValidForName => {
            "the server's certificate is not valid for the server's name".to_owned()
        }
        error => format!("the server's certificate is rejected: {error}"),
    }
}

/// Extracts the name from the library's `DnsName("name")` or `IpAddress(address)`.
fn bare(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

fn date(moment: UnixTime) -> String {
    let seconds = i64::try_from(moment.as_secs()).ok();
    let time = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.map_or_else(|| "at an unknown time".to_owned(), |time| time.date().to_string())
}

/// Formats a duration in its largest whole unit.
fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute")];
    let unit = UNITS.into_iter().find(|(unit, _)| seconds >= *unit);
    let (count, name) = unit.map_or((seconds, "second"), |(unit, name)| (seconds / unit, name));
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn rejected_certificates_have_a_readable_reason() {
        // 2027-11-16T12:29:39Z
        let end = 1_826_369_779;
        let name = rustls::pki_types::ServerName::try_from("192.0.2.9").unwrap();
        for (error, wanted) in [
            (
                CertificateError::ExpiredContext { time: at(end + 86_773), not_after: at(end) },
                "the server's certificate expired 2027-11-16 (1 day ago)",
            ),
            (
                CertificateError::NotValidYetContext { time: at(end - 7200), not_before: at(end) },
                "the server's certificate is not valid before 2027-11-16 (in 2 hours); check the local clock",
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected: name,
                    presented: vec!["DnsName(\"a.example\")".into(), "IpAddress(192.0.2.1)".into()],
                },
                "the server's certificate is valid for a.example, 192.0.2.1, not for 192.0.2.9",
            ),
        ] {
            assert_eq!(describe_tls_error(&rustls::Error::InvalidCertificate(error)), wanted);
        }
        for error in [CertificateError::UnknownIssuer, CertificateError::BadSignature] {
            let text = describe_tls_error(&rustls::Error::InvalidCertificate(error));
            assert!(text.contains("unknown authority"), "{text}");
        }
    }
}
