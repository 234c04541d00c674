//! X.509 for Windlass: keys, PEM and DER within limits, reading certificates, issuing them.
//!
//! Everything here is a function of its arguments. Nothing reads a file or a clock: the caller passes
//! the time and the source of randomness. Nothing knows a Kubernetes type either; a caller takes the
//! names out of the object and passes those.
//!
//! - [`PrivateKey`] and [`PublicKey`]: keys, and what a key can sign. [`KeyType`]: their types and how
//!   these are named; `key_type.rs` says how to add one.
//! - [`JwsKey`]: a public key that verifies tokens, and its JWK.
//! - [`pem`]: the only reader of PEM text, and the writer.
//! - [`Subject`], [`AltName`], [`Validity`], [`KeyPurpose`], [`Serial`]: the parts of a certificate.
//! - [`Certificate`]: a parsed certificate and the facts that decisions depend on.
//! - [`CertificateAuthority`] and [`LeafTemplate`]: the issuer and the leaf; [`issue`] signs it.
//! - [`CaKey`]: the key of a CA, in memory or behind an [`ExternalKey`]; [`SignatureScheme`]: how it
//!   signs.
//! - [`CertificateRevocationList`]: CRLs, signed from a [`CrlTemplate`]; [`DistributionPoint`]: where a
//!   certificate says they are.
//! - [`CertificateTemplate`]: the content of a request; [`issue_certificate`] issues it as Kubernetes
//!   would. [`policy`], [`CertificateUsages`] and [`lifetime()`] limit what it may contain.
//! - [`build_csr`]: certificate signing requests.
//! - [`CertificateRequest`], [`ForeignCertificate`], [`SubjectKey`], [`parse_trust_anchors`],
//!   [`parse_certificate_blocks`], [`IssuedChain`]: input of others, parsed as Go parses it.
//! - [`leads_to_anchor`]: the anchor under which a certificate was issued.
//! - [`fingerprint`] and [`certificate_set_digest`]: identities of certificates and of sets of them.
//! - [`TrustStore`] and [`KeyStore`]: PKCS#12 and JKS, for applications that do not read PEM.
//!
//! All input is hostile. Sizes are bounded before parsing ([`limits`]), parsing takes linear time,
//! and no input makes this crate panic.
//!
//! ```
//! use windlass_pki::{AltNames, CertificateRequest, IssuedSubject, KeyType, PrivateKey, build_csr};
//!
//! # fn main() -> Result<(), windlass_pki::Error> {
//! let key = PrivateKey::generate_type(KeyType::Ed25519)?;
//! let pem = build_csr(&key, &IssuedSubject::new("system:node:n1", &[]), &AltNames::default())?;
//! let request = CertificateRequest::from_pem(pem.as_bytes()).expect("it was just written");
//! assert_eq!(request.public_key().key_type(), Some(KeyType::Ed25519));
//! # Ok(())
//! # }
//! ```
#![deny(clippy::indexing_slicing)]

pub mod limits;
pub mod pem;
pub mod policy;

mod alt_name;
mod authority;
mod ca_key;
mod certificate;
mod crl;
mod csr_builder;
mod der_syntax;
mod distribution_point;
mod error;
mod go_compat;
mod issuance;
mod jws;
mod key;
mod key_type;
mod keystore;
mod lifetime;
mod purpose;
mod serial;
mod set_digest;
mod signature_scheme;
mod subject;
mod usages;
mod validity;

pub use alt_name::AltName;
pub use authority::{CertificateAuthority, IntermediateTemplate, LeafTemplate, issue};
pub use aws_lc_rs::rand::{SecureRandom, SystemRandom};
pub use ca_key::{CaKey, ExternalKey};
pub use certificate::{Certificate, CertificateSignature};
pub use crl::{CertificateRevocationList, CrlTemplate, RevocationReason, RevokedCertificate};
pub use csr_builder::{build_csr, build_stub_csr};
pub use distribution_point::DistributionPoint;
pub use error::Error;
pub use go_compat::{
    AltNames, AnchorError, BlockError, BundleCertificates, BundleError, CertificateRequest, ChainError,
    DistinguishedName, EllipticCurve, EntryError, EntryFault, ForeignCertificate, HashAlgorithm, IssuedChain,
    KeyAlgorithm, LeafFault, NameAttribute, PodKeyError, RequestError, RequestedExtension,
    SignatureAlgorithm, SignatureError, SubjectKey, TrustAnchor, labelled_certificates, leads_to_anchor,
    parse_bundle, parse_certificate_blocks, parse_trust_anchors,
};
pub use issuance::{
    CertificateTemplate, IssuanceLint, IssuedCertificate, IssuedSubject, LintWarning, issue_certificate,
    lint_certificate,
};
pub use jws::{JwkParameters, JwsKey};
pub use key::{JwsAlgorithm, PrivateKey, PublicKey};
pub use key_type::KeyType;
pub use keystore::{
    KeyStore, KeystoreError, KeystorePassword, KeystoreProtection, Pkcs12Profile, TrustStore,
};
pub use lifetime::{LifetimeError, lifetime};
pub use purpose::KeyPurpose;
pub use rustls_pki_types::CertificateDer;
pub use serial::Serial;
pub use set_digest::{Fingerprint, certificate_set_digest, fingerprint};
pub use signature_scheme::SignatureScheme;
pub use subject::Subject;
pub use usages::{CertificateUsages, ExtendedUsage, KeyUsageSet, UnknownUsages};
pub use validity::Validity;
