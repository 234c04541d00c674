//! Mutated input through every entry point: no panic, bounded time, and nothing accepted that
//! rustls-webpki could not use.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rustls_pki_types::CertificateDer;
use windlass_pki::limits::{MAX_CHAIN_BYTES, MAX_TRUST_BUNDLE_BYTES};
use windlass_pki::{
    CertificateRequest, ForeignCertificate, IssuedChain, KeyAlgorithm, SubjectKey, parse_certificate_blocks,
    parse_trust_anchors, pem,
};

const VECTORS: &str = include_str!("verdicts/vectors.txt");
const P256: &str = include_str!("verdicts/ca-p256.pem");
const RSA: &str = include_str!("verdicts/ca-rsa2048.pem");

/// Sufficiently random, and identical in every run.
struct MutationRng(u64);

impl MutationRng {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Applies one or a few changes.
    fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(8) {
                _ if bytes.is_empty() => bytes.push(self.byte()),
                0 | 1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = self.byte(),
                3 => bytes[at] = [0, 1, 0x7f, 0x80, 0x81, 0x84, 0xff, 0x30][self.below(8)],
                4 => drop(bytes.remove(at)),
                5 => bytes.insert(at, self.byte()),
                6 => bytes.truncate(at),
                _ => {
                    let length = self.below(40).min(bytes.len() - at);
                    let part = bytes[at..at + length].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, part);
                }
            }
        }
        bytes
    }
}

/// Returns the DER of files that are certificates, or requests.
fn seeds(is_seed: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let contents = VECTORS.lines().map(|line| {
        let contents = Base64::decode_vec(line.split_once(' ').unwrap().1).unwrap();
        if contents.first() == Some(&b'0') {
            return contents;
        }
        let text = String::from_utf8(contents).unwrap();
        let body = text.split("-----").nth(2).unwrap_or_default();
        let base64 = body.split_whitespace().collect::<String>();
        Base64::decode_vec(&base64).unwrap_or_default()
    });
    contents.filter(|der| is_seed(der)).collect()
}

fn certificates() -> Vec<Vec<u8>> {
    let seeds = seeds(|der| ForeignCertificate::from_der(der).is_ok());
    assert!(seeds.len() > 300, "{}", seeds.len());
    seeds
}

/// Reasons why webpki cannot use a trust anchor that Kubernetes accepts, so that it must be
/// accepted here too. Windlass passes anchors on and does not verify with them.
const WEBPKI_CANNOT: [(&str, &str); 2] = [
    ("BadDer", "a key or a signature whose bits are not whole bytes, which Go shifts"),
    ("TrailingData(CertificateExtensions)", "unique identifiers (RFC 5280 §4.1.2.8), which Go skips"),
];

/// Returns webpki's error if it cannot use an anchor.
fn webpki_refusal(der: &[u8]) -> Option<String> {
    let der = CertificateDer::from(der);
    webpki::anchor_from_trusted_cert(&der).err().map(|error| format!("{error:?}"))
}

#[test]
fn accepts_no_anchor_that_webpki_cannot_load() {
    let mut random = MutationRng(1);
    let mut refusals = BTreeMap::<String, usize>::new();
    let (mut accepted, seeds) = (0, certificates());
    for round in 0..60 {
        for seed in &seeds {
            let der = if round == 0 { seed.clone() } else { random.mutate(seed) };
            let text = pem::encode("CERTIFICATE", &der);
            let Ok(anchors) = parse_trust_anchors(&text, MAX_TRUST_BUNDLE_BYTES) else { continue };
            accepted += 1;
            assert_eq!(anchors[0].der(), der);
            if let Some(refusal) = webpki_refusal(&der) {
                *refusals.entry(refusal).or_default() += 1;
            }
        }
    }
    assert!(accepted > 1000, "{accepted}");
    let known = WEBPKI_CANNOT.map(|(error, _)| error.to_owned());
    assert!(refusals.keys().eq(known.iter()), "{refusals:#?}");
}

#[test]
fn survives_mutated_certificates() {
    let mut random = MutationRng(2);
    let seeds = certificates();
    for _ in 0..60 {
        for seed in &seeds {
            let der = random.mutate(seed);
            if let Ok(certificate) = ForeignCertificate::from_der(&der) {
                assert_eq!(certificate.der(), der);
                let key = certificate.public_key();
                if key.algorithm() != KeyAlgorithm::Unknown {
                    let again = SubjectKey::from_der(key.as_der());
                    assert!(again.is_ok_and(|again| again == *key), "{key:?}");
                }
            }
            let _ = ForeignCertificate::several_from_der(&[der.as_slice(), seed].concat());
        }
    }
}

#[test]
fn survives_mutated_requests() {
    let mut random = MutationRng(3);
    let seeds = seeds(|der| CertificateRequest::from_der(der).is_ok());
    assert!(seeds.len() > 10, "{}", seeds.len());
    for _ in 0..1000 {
        for seed in &seeds {
            let der = random.mutate(seed);
            let Ok(request) = CertificateRequest::from_der(&der) else { continue };
            let unchanged = CertificateRequest::from_der(seed).unwrap();
            if request.verify_signature().is_ok() {
                // Only the key holder can change what is requested.
                assert_eq!(request.subject(), unchanged.subject());
                assert_eq!(request.alt_names(), unchanged.alt_names());
                assert_eq!(request.extensions(), unchanged.extensions());
                assert_eq!(request.public_key(), unchanged.public_key());
            }
        }
    }
}

#[test]
fn survives_mutated_keys_and_proofs() {
    let mut random = MutationRng(4);
    let key = |name: &str| read_fixture(name);
    for name in ["ed25519", "p224", "p256", "p384", "p521", "rsa2048", "rsa3072"] {
        let (spki, proof) = (key(&format!("{name}.spki")), key(&format!("{name}.pop")));
        let original = SubjectKey::from_der(&spki).unwrap();
        for _ in 0..1500 {
            if let Ok(other) = SubjectKey::from_der(&random.mutate(&spki)) {
                let proven = other.verify_possession(POD_UID, &proof).is_ok();
                assert!(!proven || other == original, "{name}");
            }
            let changed = random.mutate(&proof);
            let proven = original.verify_possession(POD_UID, &changed).is_ok();
            assert!(!proven || changed == proof, "{name}");
        }
    }
}

const POD_UID: &[u8] = include_bytes!("possession/pod-uid.txt");

fn read_fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/possession/pcr-");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[test]
fn survives_mutated_text() {
    let mut random = MutationRng(5);
    let bundle = format!("# text\n{P256}between\n{RSA}");
    let request = include_str!("verdicts/csr-dns.pem");
    for _ in 0..10_000 {
        let text = random.mutate(bundle.as_bytes());
        let _ = parse_certificate_blocks(&text);
        let text = String::from_utf8_lossy(&text);
        let _ = parse_trust_anchors(&text, MAX_TRUST_BUNDLE_BYTES);
        if let Ok(chain) = IssuedChain::parse(&text) {
            let _ = (chain.leaf_faults(), chain.check_rest());
        }
        let _ = CertificateRequest::from_pem(&random.mutate(request.as_bytes()));
    }
}

/// Expensive text of maximum size. Anything worse than linear would take minutes.
#[test]
fn runs_in_bounded_time() {
    let size = MAX_TRUST_BUNDLE_BYTES;
    let fill = |part: &str| part.repeat(size / part.len());
    let begun = "-----BEGIN CERTIFICATE-----\n";
    let ended = "\n-----END CERTIFICATE-----\n";
    let der = |part: &[u8]| {
        let contents = part.repeat(MAX_CHAIN_BYTES * 7 / part.len());
        pem::encode("CERTIFICATE", &contents).to_string()
    };
    let texts = [
        fill(begun),
        fill(ended),
        fill("-----BEGIN A-----\n\n-----END B-----\n"),
        fill("-----BEGIN A-----\n-----BEGIN B-----\n-----END A-----\n"),
        fill("-----BEGIN A:-----\n-----END A:-----\n"),
        fill("-----BEGIN A-----\na: b\n-----END A-----\n"),
        fill("-----BEGIN A-----\n-----END A-----\n"),
        format!("{begun}{}", fill("a: b\n")),
        format!("{begun}{}{ended}", fill("a:\n")),
        format!("{begun}{}{ended}", fill("AAAA")),
        format!("{begun}{}{ended}", fill("A \t")),
        fill("-"),
        fill("\n"),
        fill("\n-----END "),
        fill("-----BEGIN "),
        fill(P256),
        der(&[0x30]),
        der(&[0x30, 0x80]),
        der(&[0x30, 0x83, 0x0a, 0, 0]),
        der(&[0x31, 0]),
    ];
    for text in texts {
        let text = &text[..text.len().min(size)];
        let start = Instant::now();
        let _ = parse_trust_anchors(text, size);
        let _ = parse_certificate_blocks(text.as_bytes());
        let _ = CertificateRequest::from_pem(text.as_bytes());
        let _ = IssuedChain::parse(text).map(|chain| chain.check_rest());
        let shape = text.chars().take(60).collect::<String>();
        assert!(start.elapsed() < Duration::from_secs(10), "{shape:?}: {:?}", start.elapsed());
    }
}
