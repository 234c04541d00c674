//! X.509 for Windlass: keys, PEM and DER within limits, reading certificates, issuing them.
//!
//! Everything here is a function of its arguments. Nothing reads a file or a clock: whoever issues
//! says when, and where the randomness of the serial number comes from. Nothing knows a Kubernetes
//! type either; a caller that has one takes the names out of it and passes those.
//!
//! - [`PrivateKey`] and [`PublicKey`]: keys, and what a key can sign.
//! - [`JwsKey`]: a public key that checks tokens, and how it is published.
//! - [`pem`]: the one reader of PEM text, and the writer.
//! - [`Subject`], [`AltName`], [`Validity`], [`KeyPurpose`], [`Serial`]: the parts of a certificate.
//! - [`Certificate`]: a parsed certificate and the facts that decisions are made on.
//! - [`CertificateAuthority`] and [`LeafTemplate`]: who issues, and what; [`issue`] does it.
//! - [`CertificateTemplate`]: what somebody asked for; [`issue_certificate`] makes of it what Kubernetes
//!   would. [`policy`], [`CertificateUsages`] and [`lifetime`] say what may be in it.
//! - [`build_csr`]: asking somebody else for one.
//! - [`CertificateRequest`], [`ForeignCertificate`], [`SubjectKey`], [`parse_trust_anchors`],
//!   [`parse_certificate_blocks`], [`IssuedChain`]: what others made, read as Go reads it.
//! - [`leads_to_anchor`]: under which anchor a certificate was issued.
//! - [`fingerprint`] and [`certificate_set_digest`]: what tells certificates and sets of them apart.
//! - [`TrustStore`] and [`KeyStore`]: PKCS#12 and JKS, for those who read no PEM.
//!
//! All input is hostile. Sizes are bounded before parsing ([`limits`]), parsing takes linear time,
//! and no input makes this crate panic.
#![deny(clippy::indexing_slicing)]

pub mod limits;
pub mod pem;
pub mod policy;

mod alt_name;
mod authority;
mod certificate;
mod csr_builder;
mod der_syntax;
mod error;
mod go_compat;
mod issuance;
mod jws;
mod key;
mod keystore;
mod lifetime;
mod purpose;
mod serial;
mod set_digest;
mod subject;
mod usages;
mod validity;

pub use alt_name::AltName;
pub use authority::{CertificateAuthority, LeafTemplate, issue};
pub use aws_lc_rs::rand::{SecureRandom, SystemRandom};
pub use certificate::{Certificate, CertificateSignature};
pub use csr_builder::{build_csr, build_stub_csr};
pub use error::Error;
pub use go_compat::{
    AltNames, AnchorError, BlockError, BundleCertificates, BundleError, CertificateRequest,
    ChainError, DistinguishedName, EllipticCurve, EntryError, EntryFault, ForeignCertificate,
    HashAlgorithm, IssuedChain, KeyAlgorithm, LeafFault, NameAttribute, PodKeyError, PodKeyType,
    RequestError, RequestedExtension, SignatureAlgorithm, SignatureError, SubjectKey, TrustAnchor,
    labelled_certificates, leads_to_anchor, parse_bundle, parse_certificate_blocks,
    parse_trust_anchors,
};
pub use issuance::{
    CertificateTemplate, IssuanceLint, IssuedCertificate, IssuedSubject, LintWarning,
    issue_certificate,
};
pub use jws::{JwkParameters, JwsKey};
pub use key::{JwsAlgorithm, KeyKind, PrivateKey, PublicKey};
pub use keystore::{
    KeyStore, KeystoreError, KeystorePassword, KeystoreProtection, Pkcs12Profile, TrustStore,
};
pub use lifetime::{LifetimeError, lifetime};
pub use purpose::KeyPurpose;
pub use rustls_pki_types::CertificateDer;
pub use serial::Serial;
pub use set_digest::{Fingerprint, certificate_set_digest, fingerprint};
pub use subject::Subject;
pub use usages::{CertificateUsages, ExtendedUsage, KeyUsageSet, UnknownUsages};
pub use validity::Validity;
