//! Compares the verdicts of kube-apiserver and Go on valid and broken certificates, requests and
//! keys with those of this crate.
//!
//! See `verdicts/README.md` for the origin of the rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashMap};

use base64ct::{Base64, Encoding};
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;
use windlass_pki::{
    AnchorError, CertificateRequest, EntryFault, KeyAlgorithm, RequestError, SubjectKey, parse_trust_anchors,
    pem,
};

const ROWS: &str = include_str!("verdicts/rows.txt");
const CRAFTED: &str = include_str!("verdicts/crafted.txt");
const VECTORS: &str = include_str!("verdicts/vectors.txt");
const FIXTURES: [(&str, &str); 5] = [
    ("ca-ed25519.pem", include_str!("verdicts/ca-ed25519.pem")),
    ("ca-p256.pem", include_str!("verdicts/ca-p256.pem")),
    ("ca-rsa2048.pem", include_str!("verdicts/ca-rsa2048.pem")),
    ("csr-dns.pem", include_str!("verdicts/csr-dns.pem")),
    ("csr-rsa2048.pem", include_str!("verdicts/csr-rsa2048.pem")),
];

/// Rows with another verdict, and the reason. Never more lenient; stricter only with a reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

#[test]
fn agrees_with_kubernetes_on_every_row() {
    let inputs = VerdictInputs::load();
    let exceptions = EXCEPTIONS.into_iter().collect::<HashMap<_, _>>();
    let mut unused = exceptions.keys().copied().collect::<BTreeSet<_>>();
    let mut differences = Vec::new();
    let mut rows = 0;
    for row in ROWS.lines() {
        rows += 1;
        let (kind, rest) = row.split_once(' ').unwrap();
        let (theirs, input) = rest.split_once(' ').unwrap();
        let text = inputs.text(kind, input);
        let ours = if kind == "ctb" { anchors_verdict(&text) } else { request_verdict(&text) };
        if ours == theirs {
            continue;
        }
        if exceptions.contains_key(row) {
            assert!(ours != "accepted", "looser than Kubernetes: {row}");
            unused.remove(row);
        } else {
            differences.push(format!("{row}: ours {ours}"));
        }
    }
    assert_eq!(rows, 2793);
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(unused.is_empty(), "exceptions that no row needs: {unused:?}");
}

#[test]
fn agrees_with_go_on_crafted_input() {
    let mut rows = 0;
    for row in CRAFTED.lines() {
        rows += 1;
        let mut words = row.splitn(3, ' ');
        let (kind, theirs) = (words.next().unwrap(), words.next().unwrap());
        let input = Base64::decode_vec(words.next().unwrap()).unwrap();
        let text = || String::from_utf8(input.clone()).unwrap();
        let ours = match kind {
            "ctb" => anchors_verdict(&pem::encode("CERTIFICATE", &input)).to_owned(),
            "ctb-text" => anchors_verdict(&text()).to_owned(),
            "csr" => request_verdict(&pem::encode("CERTIFICATE REQUEST", &input)).to_owned(),
            "csr-text" => request_verdict(&text()).to_owned(),
            "key" => key_verdict(&input),
            other => panic!("{other}"),
        };
        assert_eq!(ours, theirs, "{row}");
    }
    assert_eq!(rows, 2586);
}

fn key_verdict(der: &[u8]) -> String {
    let Ok(key) = SubjectKey::from_der(der) else { return "malformed".to_owned() };
    match key.algorithm() {
        KeyAlgorithm::Rsa { modulus_bits } => format!("rsa{modulus_bits}"),
        KeyAlgorithm::Ecdsa(curve) => curve.name().to_owned(),
        KeyAlgorithm::Ed25519 => "ed25519".to_owned(),
        KeyAlgorithm::X25519 | KeyAlgorithm::Dsa => "other".to_owned(),
        KeyAlgorithm::Unknown => panic!("a key of an unknown algorithm was accepted"),
    }
}

fn anchors_verdict(text: &str) -> &'static str {
    match parse_trust_anchors(text, MAX_TRUST_BUNDLE_BYTES) {
        Ok(_) => "accepted",
        Err(AnchorError::Entries(errors)) => match errors.last().unwrap().fault {
            EntryFault::Label(_) => "label",
            EntryFault::Headers => "headers",
            EntryFault::Malformed(_) => "malformed",
            EntryFault::NotAuthority => "not-authority",
        },
        Err(AnchorError::TooLong { .. }) => "too-long",
        Err(AnchorError::Missing) => "missing",
        Err(AnchorError::Duplicates(_)) => "duplicates",
    }
}

fn request_verdict(text: &str) -> &'static str {
    match CertificateRequest::from_pem(text.as_bytes()) {
        Ok(request) => match request.verify_signature() {
            Ok(()) => "accepted",
            Err(_) => "signature",
        },
        Err(RequestError::Label) => "label",
        Err(RequestError::TooLarge) => "too-large",
        Err(RequestError::Malformed(_)) => "malformed",
    }
}

struct VerdictInputs {
    vectors: HashMap<&'static str, Vec<u8>>,
    fixtures: HashMap<&'static str, Vec<u8>>,
}

impl VerdictInputs {
    fn load() -> Self {
        let vectors = VECTORS.lines().map(|line| {
            let (name, contents) = line.split_once(' ').unwrap();
            (name, Base64::decode_vec(contents).unwrap())
        });
        let fixtures = FIXTURES.map(|(name, text)| {
            let base64 = text.split("-----").nth(2).unwrap().split_whitespace().collect::<String>();
            (name, Base64::decode_vec(&base64).unwrap())
        });
        Self { vectors: vectors.collect(), fixtures: fixtures.into() }
    }

    /// Returns the text of a row: a DER or PEM file, or a fixture with one byte changed.
    fn text(&self, kind: &str, input: &str) -> String {
        let label = if kind == "csr" { "CERTIFICATE REQUEST" } else { "CERTIFICATE" };
        let words = input.split(' ').collect::<Vec<_>>();
        match words.as_slice() {
            [fixture, offset, xor] => {
                let mut der = self.fixtures[fixture].clone();
                der[offset.parse::<usize>().unwrap()] ^= u8::from_str_radix(xor, 16).unwrap();
                pem::encode(label, &der).to_string()
            }
            [vector] => {
                let contents = &self.vectors[vector];
                if contents.first() == Some(&b'0') {
                    pem::encode(label, contents).to_string()
                } else {
                    String::from_utf8(contents.clone()).unwrap()
                }
            }
            _ => panic!("{input}"),
        }
    }
}
