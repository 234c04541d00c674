use super::*;
use crate::limits::MAX_TRUST_BUNDLE_BYTES;

const P256: &str = include_str!("../../../tests/verdicts/ca-p256.pem");
const ED25519: &str = include_str!("../../../tests/verdicts/ca-ed25519.pem");
const REQUEST: &str = include_str!("../../../tests/verdicts/csr-dns.pem");

fn messages(text: &str) -> Vec<String> {
    match parse_trust_anchors(text, MAX_TRUST_BUNDLE_BYTES) {
        Ok(anchors) => vec![format!("{} anchors", anchors.len())],
        Err(error) => error.messages(),
    }
}

#[test]
fn reports_errors_as_kubernetes_does() {
    let mislabelled = REQUEST.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    let table = [
        (P256.to_owned(), vec!["1 anchors"]),
        (format!("# one\n{P256}\n# two\n{ED25519}"), vec!["2 anchors"]),
        (P256.replace('\n', "\r\n"), vec!["1 anchors"]),
        (P256.trim_end().to_owned(), vec!["1 anchors"]),
        (String::new(), vec!["at least one trust anchor must be provided"]),
        ("rubbish".to_owned(), vec!["at least one trust anchor must be provided"]),
        (REQUEST.to_owned(), vec!["entry 0 has bad block type: CERTIFICATE REQUEST"]),
        (
            format!("{P256}{REQUEST}{mislabelled}"),
            vec!["entry 1 has bad block type: CERTIFICATE REQUEST", "entry 2 does not parse as X.509"],
        ),
        (P256.replacen("-----\n", "-----\na: b\n\n", 1), vec!["entry 0 has PEM block headers"]),
        (
            format!("{P256}{ED25519}{P256}{ED25519}{P256}"),
            vec!["duplicate trust anchor (indices [0 2 4])", "duplicate trust anchor (indices [1 3])"],
        ),
        // An unparsable block is not counted, and errors hide duplicates.
        (format!("-----BEGIN X-----\n*\n-----END X-----\n{P256}"), vec!["1 anchors"]),
        (format!("{P256}{P256}{REQUEST}"), vec!["entry 2 has bad block type: CERTIFICATE REQUEST"]),
    ];
    for (text, expected) in table {
        assert_eq!(messages(&text), expected, "{text}");
    }
}

#[test]
fn holds_the_limit_to_the_byte() {
    let padded = |length: usize| format!("{P256}{}", " ".repeat(length - P256.len()));
    assert_eq!(messages(&padded(MAX_TRUST_BUNDLE_BYTES)), ["1 anchors"]);
    let error = parse_trust_anchors(&padded(MAX_TRUST_BUNDLE_BYTES + 1), MAX_TRUST_BUNDLE_BYTES);
    assert_eq!(error.unwrap_err(), AnchorError::TooLong { limit: MAX_TRUST_BUNDLE_BYTES });
}
