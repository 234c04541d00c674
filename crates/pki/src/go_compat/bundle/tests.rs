use super::*;

const P256: &str = include_str!("../../../tests/verdicts/ca-p256.pem");
const ED25519: &str = include_str!("../../../tests/verdicts/ca-ed25519.pem");
const REQUEST: &str = include_str!("../../../tests/verdicts/csr-dns.pem");
const NEGATIVE: &str = include_str!("ec-acc.pem");

fn parse_counts(text: &str) -> Result<(usize, usize), String> {
    let found = parse_bundle(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok((found.certificates.len(), found.skipped))
}

#[test]
fn reports_errors_as_trust_manager_does() {
    let mislabelled = REQUEST.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let damaged = P256.replacen("MII", "M!I", 1);
    let long = format!("-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n", "A".repeat(100));
    let refused = "invalid PEM block in bundle: only CERTIFICATE blocks are permitted but found";
    let table = [
        (String::new(), Ok((0, 0))),
        ("abc123".to_owned(), Ok((0, 0))),
        (format!("{P256}some random commentary\n{ED25519}"), Ok((2, 0))),
        (format!("{P256}{P256}"), Ok((2, 0))),
        // Go treats a damaged block as text.
        (format!("{damaged}{ED25519}"), Ok((1, 0))),
        (format!("{NEGATIVE}{P256}"), Ok((1, 1))),
        (format!("{P256}{key}"), Err(format!("{refused} 'EC PRIVATE KEY'"))),
        (long, Err(format!("{refused} '{}'", "A".repeat(64)))),
        (
            P256.replacen("-----\n", "-----\nMy-Header: Abc123\n\n", 1),
            Err("invalid PEM block in bundle; blocks are not permitted to have PEM headers".into()),
        ),
        (
            mislabelled,
            Err("invalid PEM block in bundle; invalid PEM certificate: x509: inner and outer \
                 signature algorithm differ"
                .into()),
        ),
    ];
    for (text, want) in table {
        assert_eq!(parse_counts(&text), want, "{text}");
    }
}

#[test]
fn another_negative_serial_number_is_refused() {
    // One bit of the key differs, so this is not the known root.
    let other = NEGATIVE.replacen("syLHT", "tyLHT", 1);
    assert_eq!(
        parse_counts(&other).unwrap_err(),
        "invalid PEM block in bundle; invalid PEM certificate: x509: negative serial number"
    );
}
