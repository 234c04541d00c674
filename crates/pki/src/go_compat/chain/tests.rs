use super::*;

const P256: &str = include_str!("../../../tests/verdicts/ca-p256.pem");
const ED25519: &str = include_str!("../../../tests/verdicts/ca-ed25519.pem");
const REQUEST: &str = include_str!("../../../tests/verdicts/csr-dns.pem");

/// Builds one PEM block from the contents of several certificates.
fn joined(texts: &[&str]) -> String {
    let contents = texts.iter().flat_map(|text| pem_scan::blocks(text.as_bytes()).next().unwrap().contents);
    crate::pem::encode("CERTIFICATE", &contents.collect::<Vec<_>>()).to_string()
}

fn empty() -> String {
    joined(&[])
}

fn headed() -> String {
    P256.replacen("-----\n", "-----\na: b\n\n", 1)
}

fn mislabelled() -> String {
    REQUEST.replace("CERTIFICATE REQUEST", "CERTIFICATE")
}

#[test]
fn accepts_certificates_as_kubernetes_does() {
    let table = [
        (P256.to_owned(), Ok(1)),
        (format!("a\n{P256}b\n{ED25519}c"), Ok(2)),
        (joined(&[P256, ED25519]), Ok(2)),
        (format!("{P256}{P256}"), Ok(2)),
        ("rubbish".to_owned(), Err("must contain at least one CERTIFICATE PEM block")),
        (
            format!("{P256}{REQUEST}"),
            Err("only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\""),
        ),
        (headed(), Err("no PEM block headers are permitted")),
        (empty(), Err("found CERTIFICATE PEM block containing 0 certificates")),
    ];
    for (text, expected) in table {
        let read = parse_certificate_blocks(text.as_bytes());
        let read = read.map(|all| all.len()).map_err(|error| error.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{text}");
    }
    let malformed = parse_certificate_blocks(mislabelled().as_bytes()).unwrap_err();
    assert!(matches!(malformed, BlockError::Malformed(_)), "{malformed}");
}

#[test]
fn accepts_a_chain_as_kubernetes_does() {
    let table = [
        (P256.to_owned(), None),
        (format!("{P256}\ntext\n{}{ED25519}", headed()), None),
        (headed(), None),
        (String::new(), Some(ChainError::Missing)),
        (REQUEST.to_owned(), Some(ChainError::LeafLabel)),
        (mislabelled(), Some(ChainError::MalformedLeaf)),
        (joined(&[P256, ED25519]), Some(ChainError::MalformedLeaf)),
        (format!("{P256}{REQUEST}"), Some(ChainError::Label)),
        (format!("{P256}{}", mislabelled()), Some(ChainError::Malformed)),
        (format!("{P256}{}", empty()), Some(ChainError::Malformed)),
    ];
    for (text, error) in table {
        let checked = IssuedChain::parse(&text).and_then(|chain| chain.check_rest());
        assert_eq!(checked.err(), error, "{text}");
    }
}

#[test]
fn recognizes_the_key_of_a_leaf() {
    let (mine, other) = (IssuedChain::parse(P256).unwrap(), IssuedChain::parse(ED25519).unwrap());
    let key = SubjectKey::from_der(mine.leaf().public_key().as_der()).unwrap();
    assert!(mine.is_for_key(&key));
    assert!(!other.is_for_key(&key));
    assert!(mine.leaf_faults().is_empty());
}
