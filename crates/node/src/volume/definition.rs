//! What a volume is to hold, as a pod or a file of projections defines it.
//!
//! A pod's definition was checked by the server; a file's was not, and not every server is ours. So
//! the rules are checked here, too, in the server's words. What has been read is good.

mod parser;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use windlass_api::field::{FieldError, FieldErrors, FieldPath};

use super::path::VolumePath;
use super::trust_anchors::BundleSelector;

/// A validated `projected` volume of a pod or of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeDefinition {
    /// The mode of files for which there is no other.
    pub default_mode: u32,
    /// Where its files come from, each with its place in the list: by it, credentials are found.
    pub sources: Vec<(usize, ProjectedSource)>,
}

/// A source of a projected volume, as in the Kubernetes API.
#[derive(Clone, Debug, PartialEq)]
pub enum ProjectedSource {
    /// `clusterTrustBundle`: trust anchors in one PEM file.
    Bundle(BundleSource),
    /// `podCertificate`: a key that the node makes, and a certificate for it.
    Certificate(CertificateSource),
    /// `configMap`: keys of a ConfigMap as files.
    ConfigMap(ObjectSource),
    /// `secret`: keys of a Secret as files.
    Secret(ObjectSource),
    /// `serviceAccountToken`: a bound token of the pod's service account.
    Token(TokenSource),
    /// `downwardAPI`: what the pod says of itself.
    Downward(Vec<DownwardFile>),
}

/// A `clusterTrustBundle` source: trust anchors in one PEM file.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleSource {
    /// The bundles whose anchors are written to the file.
    pub select: BundleSelector,
    /// Whether there may be none.
    pub optional: bool,
    /// Path of the PEM file, relative to the volume.
    pub path: VolumePath,
    /// User ID that owns the file; `None` leaves it to the system.
    pub owner: Option<u32>,
}

/// A key and its certificates, in at least one file.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateSource {
    /// Name of the signer, such as `example.com/workloads`.
    pub signer: String,
    /// Key type as in the API: `ECDSAP256`, `ED25519`, `RSA3072` and others.
    pub key_type: String,
    /// How long the certificate may last.
    pub max_expiration_seconds: Option<i32>,
    /// What the signer is told besides.
    pub user_annotations: BTreeMap<String, String>,
    /// Where the key is, with the certificates after it.
    pub bundle: Option<VolumePath>,
    /// Path of the key file; `None` if it is not written separately.
    pub key: Option<VolumePath>,
    /// Path of the chain file; `None` if it is not written separately.
    pub chain: Option<VolumePath>,
    /// User ID that owns the files; `None` is the user of `VolumeReaders`.
    pub owner: Option<u32>,
}

/// What a ConfigMap or Secret holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSource {
    /// Which, in the namespace of the pod.
    pub name: String,
    /// Whether it, or what is wanted of it, may be missing.
    pub optional: bool,
    /// What is wanted of it. With none, everything is, under its key.
    pub items: Vec<ObjectItem>,
    /// Whose files are for which there is no item.
    pub owner: Option<u32>,
}

/// One key of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectItem {
    /// Key of the ConfigMap or Secret to write.
    pub key: String,
    /// Path of the file, relative to the volume.
    pub path: VolumePath,
    /// Permission bits; `None` uses the default mode of the volume.
    pub mode: Option<u32>,
    /// User ID that owns the file; `None` leaves it to the system.
    pub owner: Option<u32>,
}

/// A token in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSource {
    /// For whom; none is the server.
    pub audience: Option<String>,
    /// How long it is to last.
    pub expiration_seconds: i64,
    /// Path of the token file, relative to the volume.
    pub path: VolumePath,
    /// User ID that owns the file; `None` is the user of `VolumeReaders`.
    pub owner: Option<u32>,
}

/// What the pod says of itself, in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct DownwardFile {
    /// The field or resource of the pod to write.
    pub value: DownwardValue,
    /// Path of the file, relative to the volume.
    pub path: VolumePath,
    /// Permission bits; `None` uses the default mode of the volume.
    pub mode: Option<u32>,
    /// User ID that owns the file; `None` leaves it to the system.
    pub owner: Option<u32>,
}

/// What a pod can say of itself.
#[derive(Clone, Debug, PartialEq)]
pub enum DownwardValue {
    /// One of its fields, `metadata.labels['a']`.
    Field(String),
    /// What one of its containers needs or may have.
    Resource {
        /// Name of the container whose resource is read.
        container: String,
        /// Resource name, such as `limits.cpu` or `requests.memory`.
        resource: String,
        /// In which unit; none is one.
        divisor: Option<String>,
    },
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", super::plan::aggregate(.0.iter().map(ToString::to_string)))]
pub struct DefinitionError(pub Vec<FieldError>);

impl VolumeDefinition {
    /// Reads a definition that stands at `at`.
    pub fn parse(volume: &ProjectedVolumeSource, at: &FieldPath) -> Result<Self, DefinitionError> {
        let mut errors = FieldErrors::new();
        let definition = parser::parse_definition(volume, at, &mut errors);
        let errors = errors.into_vec();
        if errors.is_empty() { Ok(definition) } else { Err(DefinitionError(errors)) }
    }
}
