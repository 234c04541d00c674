//! Parsers for certificates, requests and keys from elsewhere, exactly as lenient as Go's.
//!
//! Kubernetes stores these in objects, and Go's `crypto/x509` and `encoding/pem` decide whether it
//! accepts them. Accepting more would admit objects that clients cannot parse; accepting less would
//! break working clients. The rules here are therefore those of Go 1.26, and `tests/verdicts.rs`
//! compares them with the answers of a real server.
//!
//! They are stricter than Go where no certificate needs the leniency or no available library
//! computes it: DER beyond 1 MiB, times beyond the year 9999 in UTC, request signatures on P-224,
//! with SHA-1 on P-384, by RSA keys beyond 8192 bits, or by RSA keys below 2048 bits with SHA-384
//! or PSS, proofs of possession with a salt of an odd length, and e-mail addresses with comments.
//!
//! - [`CertificateRequest`]: PKCS#10 with proof of possession.
//! - [`ForeignCertificate`]: a certificate that is stored and passed on.
//! - [`parse_trust_anchors`]: the text of a trust bundle; [`parse_bundle`]: the text of a bundle
//!   source.
//! - [`parse_certificate_blocks`] and [`IssuedChain`]: what a signer submits.
//! - [`SubjectKey`]: a public key of a known or unknown algorithm, and proofs of possession.

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

/// PEM label of certificate blocks.
const CERTIFICATE: &[u8] = b"CERTIFICATE";
