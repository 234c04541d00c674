//! State of each volume, for metrics, the status file and the server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;
use windlass_pki::{AltNames, ForeignCertificate, labelled_certificates};

use crate::volume::id::VolumeId;
use crate::volume::trust_anchors::{BundleSelector, Digest};

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The latest report of every managed volume, shared as one snapshot.
pub type VolumeReports = Arc<BTreeMap<VolumeId, Arc<VolumeReport>>>;

/// The state of one volume, for metrics, the status file and NodeTrust.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeReport {
    /// Absolute path of the volume's directory on the host.
    pub directory: PathBuf,
    /// Metric labels of the volume's sources, in order.
    pub sources: Vec<&'static str>,
    /// Whether the volume was written at least once, possibly with older content.
    pub ready: bool,
    /// Why the files are not up to date; `None` if they are.
    pub blocked: Option<String>,
    /// When this process last changed the files.
    pub changed: Option<OffsetDateTime>,
    /// Anchors in its files, one entry for each `clusterTrustBundle` source.
    pub anchors: Vec<AnchorsReport>,
    /// Certificates in the files of the volume.
    pub certificates: Vec<CertificateReport>,
}

/// A certificate in a file, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReport {
    /// The signer it was requested from.
    pub signer: String,
    /// The common name of its subject; may be empty.
    pub common_name: String,
    /// Its alternative names of all types.
    pub names: Vec<String>,
    /// The common name of its issuer; may be empty.
    pub issuer: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// The beginning of its validity.
    pub not_before: OffsetDateTime,
    /// The end of its validity.
    pub not_after: OffsetDateTime,
}

impl CertificateReport {
    /// Parses the first certificate of a PEM chain, if it is valid. A key before it is not decoded.
    pub fn from_chain(signer: &str, chain: &[u8]) -> Option<CertificateReport> {
        let begin = chain.windows(BEGIN.len()).position(|window| window == BEGIN)?;
        let leaf = labelled_certificates(chain.get(begin..)?).next()?;
        let leaf = ForeignCertificate::from_der(&leaf).ok()?;
        let AltNames { dns_names, email_addresses, ip_addresses, uris } = leaf.alt_names();
        let addresses = ip_addresses.iter().map(ToString::to_string);
        let names = uris.iter().chain(dns_names).cloned().chain(addresses);
        Some(CertificateReport {
            signer: signer.to_owned(),
            common_name: leaf.subject().common_name().to_owned(),
            names: names.chain(email_addresses.iter().cloned()).collect(),
            issuer: leaf.issuer().common_name().to_owned(),
            serial: leaf.serial().iter().map(|octet| format!("{octet:02x}")).collect(),
            not_before: leaf.not_before(),
            not_after: leaf.not_after(),
        })
    }
}

/// The trust anchors that one `clusterTrustBundle` source delivered to its file.
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorsReport {
    /// The bundles that the source selects.
    pub select: BundleSelector,
    /// Whether the bundles may be missing.
    pub optional: bool,
    /// Path of the file, relative to the volume.
    pub path: String,
    /// Anchors in the file; `None` if not known since the process started.
    pub carried: Option<DeliveredAnchors>,
}

/// The anchors that a file contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredAnchors {
    /// Digest of all anchors in the file.
    pub digest: Digest,
    /// The bundles that the anchors come from, sorted by name.
    pub bundles: Vec<DeliveredBundle>,
}

/// A bundle whose anchors are in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredBundle {
    /// Name of the ClusterTrustBundle that the anchors come from.
    pub name: String,
    /// `metadata.generation` of the bundle, or 0 if the server sets none.
    pub generation: i64,
    /// Digest of the anchors of this bundle.
    pub digest: Digest,
}
