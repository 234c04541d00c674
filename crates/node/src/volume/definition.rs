//! What a volume is to hold, as a pod or a file of projections defines it.
//!
//! A pod's definition was checked by the server; a file's was not, and not every server is ours. So
//! the rules are checked here, too, in the server's words. What has been read is good.

mod parser;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use windlass_api::field::{FieldErrors, FieldError, FieldPath};

use super::trust_anchors::BundleSelector;
use super::path::VolumePath;

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeDefinition {
    /// The mode of files for which there is no other.
    pub default_mode: u32,
    /// Where its files come from, each with its place in the list: by it, credentials are found.
    pub sources: Vec<(usize, ProjectedSource)>,
}

/// Where files come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ProjectedSource {
    /// `clusterTrustBundle`: anchors.
    Bundle(BundleSource),
    /// `podCertificate`: a key that the node makes, and a certificate for it.
    Certificate(CertificateSource),
    /// `configMap`.
    ConfigMap(ObjectSource),
    /// `secret`.
    Secret(ObjectSource),
    /// `serviceAccountToken`.
    Token(TokenSource),
    /// `downwardAPI`: what the pod says of itself.
    Downward(Vec<DownwardFile>),
}

/// Anchors in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleSource {
    /// Which.
    pub select: BundleSelector,
    /// Whether there may be none.
    pub optional: bool,
    /// Where.
    pub path: VolumePath,
    /// Whose the file is.
    pub owner: Option<u32>,
}

/// A key and its certificates, in at least one file.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateSource {
    /// Who signs.
    pub signer: String,
    /// `ECDSAP256` and the like.
    pub key_type: String,
    /// How long the certificate may last.
    pub max_expiration_seconds: Option<i32>,
    /// What the signer is told besides.
    pub user_annotations: BTreeMap<String, String>,
    /// Where the key is, with the certificates after it.
    pub bundle: Option<VolumePath>,
    /// Where the key is.
    pub key: Option<VolumePath>,
    /// Where the certificates are.
    pub chain: Option<VolumePath>,
    /// Whose the files are.
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
    /// Which.
    pub key: String,
    /// Where.
    pub path: VolumePath,
    /// Its own mode.
    pub mode: Option<u32>,
    /// Whose the file is.
    pub owner: Option<u32>,
}

/// A token in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSource {
    /// For whom; none is the server.
    pub audience: Option<String>,
    /// How long it is to last.
    pub expiration_seconds: i64,
    /// Where.
    pub path: VolumePath,
    /// Whose the file is.
    pub owner: Option<u32>,
}

/// What the pod says of itself, in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct DownwardFile {
    /// What.
    pub value: DownwardValue,
    /// Where.
    pub path: VolumePath,
    /// Its own mode.
    pub mode: Option<u32>,
    /// Whose the file is.
    pub owner: Option<u32>,
}

/// What a pod can say of itself.
#[derive(Clone, Debug, PartialEq)]
pub enum DownwardValue {
    /// One of its fields, `metadata.labels['a']`.
    Field(String),
    /// What one of its containers needs or may have.
    Resource {
        /// Which container.
        container: String,
        /// `limits.cpu` and the like.
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
