//! Certificates, requests and keys that others made, read exactly as leniently as Go reads them.
//!
//! Kubernetes keeps such things in objects, and whether it takes one is decided by Go's
//! `crypto/x509` and `encoding/pem`. Whoever takes more lets things into a cluster that its clients
//! cannot read; whoever takes less breaks clients that work. So the rules here are Go's (1.26), and
//! `tests/verdicts.rs` holds them against what a real server said.
//!
//! It is stricter than Go in what no certificate should need or nobody here can compute: DER beyond
//! 1 MiB, times beyond the year 9999 in UTC, signatures of requests on P-224, with SHA-1 on P-384, by
//! RSA keys beyond 8192 bits, or by RSA keys below 2048 bits with SHA-384 or PSS, proofs of possession
//! with a salt of an odd length, and e-mail addresses with comments.
//!
//! - [`CertificateRequest`]: PKCS#10, and the proof that the requester holds the key.
//! - [`ForeignCertificate`]: a certificate that is stored and handed on.
//! - [`parse_trust_anchors`]: the text of a trust bundle; [`parse_bundle`]: that of a source of one.
//! - [`parse_certificate_blocks`] and [`IssuedChain`]: what a signer hands in.
//! - [`SubjectKey`]: a key, of an algorithm that is known or not, and proofs of possession.

mod algorithm;
mod alt_names;
mod anchor_path;
mod asn1_string;
mod bundle;
mod certificate;
mod chain;
mod der_reader;
mod distinguished_name;
mod domain_name;
mod email;
mod extensions;
mod key;
mod oid;
mod p224;
mod pem_scan;
mod request;
mod signature;
mod time;
mod trust_anchors;
mod uri;

pub use alt_names::AltNames;
pub use anchor_path::leads_to_anchor;
pub use bundle::{BundleCertificates, BundleError, parse_bundle};
pub use certificate::ForeignCertificate;
pub use chain::{
    BlockError, ChainError, IssuedChain, LeafFault, labelled_certificates, parse_certificate_blocks,
};
pub use distinguished_name::{DistinguishedName, NameAttribute};
pub use key::{EllipticCurve, KeyAlgorithm, PodKeyError, SubjectKey};
pub use request::{CertificateRequest, RequestError, RequestedExtension};
pub use signature::{HashAlgorithm, SignatureAlgorithm, SignatureError};
pub use trust_anchors::{AnchorError, EntryError, EntryFault, TrustAnchor, parse_trust_anchors};

pub(crate) use asn1_string::is_printable_string;
pub(crate) use uri::canonical as canonical_uri;

/// The label of the blocks that certificates are in.
const CERTIFICATE: &[u8] = b"CERTIFICATE";
