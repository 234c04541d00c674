//! Definition of a volume, from a pod or a projections file.
//!
//! The API server has validated a pod's definition, but not a file's, and not every server is ours.
//! So the rules are checked here as well, with the server's error messages. A parsed definition is
//! valid.

mod parser;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use windlass_api::field::{FieldError, FieldErrors, FieldPath};

use super::path::VolumePath;
use super::trust_anchors::BundleSelector;

/// Mode of files if the definition sets none, as in Kubernetes.
const DEFAULT_MODE: u32 = 0o644;

/// A validated `projected` volume of a pod or of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeDefinition {
    /// Mode of files without an explicit mode.
    pub default_mode: u32,
    /// Sources of the files, each with its index in the list, which identifies its credentials.
    pub sources: Vec<(usize, ProjectedSource)>,
}

/// A source of a projected volume, as in the Kubernetes API.
#[derive(Clone, Debug, PartialEq)]
pub enum ProjectedSource {
    /// `clusterTrustBundle`: trust anchors in one PEM file.
    Bundle(BundleSource),
    /// `podCertificate`: a key that the node generates, and a certificate for it.
    Certificate(CertificateSource),
    /// `configMap`: keys of a ConfigMap as files.
    ConfigMap(ObjectSource),
    /// `secret`: keys of a Secret as files.
    Secret(ObjectSource),
    /// `serviceAccountToken`: a bound token of the pod's service account.
    Token(TokenSource),
    /// `downwardAPI`: fields and resources of the pod.
    Downward(Vec<DownwardFile>),
    /// `revocationLists` of a projections file: the CRLs of a signer. Pods cannot have this source.
    RevocationLists(RevocationListSource),
}

impl ProjectedSource {
    /// Returns the name of the source's field in the API.
    pub fn field_name(&self) -> &'static str {
        match self {
            Self::Bundle(_) => "clusterTrustBundle",
            Self::Certificate(_) => "podCertificate",
            Self::ConfigMap(_) => "configMap",
            Self::Secret(_) => "secret",
            Self::Token(_) => "serviceAccountToken",
            Self::Downward(_) => "downwardAPI",
            Self::RevocationLists(_) => "revocationLists",
        }
    }

    /// Returns the type of the source as KEP-3257 names it in metrics.
    pub fn metric_label(&self) -> &'static str {
        match self {
            Self::Bundle(_) => "ClusterTrustBundle",
            Self::Certificate(_) => "PodCertificate",
            Self::ConfigMap(_) => "ConfigMap",
            Self::Secret(_) => "Secret",
            Self::Token(_) => "ServiceAccountToken",
            Self::Downward(_) => "DownwardAPI",
            Self::RevocationLists(_) => "CertificateRevocationList",
        }
    }

    /// Returns whether volumes of the host cannot have the source.
    pub fn needs_pod(&self) -> bool {
        match self {
            Self::Token(_) | Self::Downward(_) => true,
            Self::Bundle(_)
            | Self::Certificate(_)
            | Self::ConfigMap(_)
            | Self::Secret(_)
            | Self::RevocationLists(_) => false,
        }
    }

    /// Returns the paths that the definition names. An object without items adds its keys to them.
    pub fn paths(&self) -> Vec<&VolumePath> {
        match self {
            Self::Bundle(bundle) => vec![&bundle.path],
            Self::Certificate(certificate) => {
                [&certificate.bundle, &certificate.key, &certificate.chain].into_iter().flatten().collect()
            }
            Self::ConfigMap(object) | Self::Secret(object) => {
                object.items.iter().map(|item| &item.path).collect()
            }
            Self::Token(token) => vec![&token.path],
            Self::Downward(files) => files.iter().map(|file| &file.path).collect(),
            // For DER this is the directory of the files.
            Self::RevocationLists(lists) => vec![&lists.path],
        }
    }

    /// Returns the paths of files with a private key that the node generates.
    pub fn key_paths(&self) -> Vec<&VolumePath> {
        match self {
            Self::Certificate(certificate) => {
                [&certificate.bundle, &certificate.key].into_iter().flatten().collect()
            }
            Self::Bundle(_)
            | Self::ConfigMap(_)
            | Self::Secret(_)
            | Self::Token(_)
            | Self::Downward(_)
            | Self::RevocationLists(_) => Vec::new(),
        }
    }

    /// Returns the ConfigMap or Secret whose keys become files.
    pub fn object(&self) -> Option<&ObjectSource> {
        match self {
            Self::ConfigMap(object) | Self::Secret(object) => Some(object),
            Self::Bundle(_)
            | Self::Certificate(_)
            | Self::Token(_)
            | Self::Downward(_)
            | Self::RevocationLists(_) => None,
        }
    }
}

/// A `clusterTrustBundle` source: trust anchors in one PEM file.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleSource {
    /// The bundles whose anchors are written to the file.
    pub select: BundleSelector,
    /// Whether the bundles may be missing.
    pub optional: bool,
    /// Path of the PEM file, relative to the volume.
    pub path: VolumePath,
    /// User ID that owns the file; `None` leaves it to the system.
    pub owner: Option<u32>,
}

/// A `podCertificate` source: a key and its certificates, in at least one file.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateSource {
    /// Name of the signer, such as `example.com/workloads`.
    pub signer: String,
    /// Key type as in the API: `ECDSAP256`, `ED25519`, `RSA3072` and others.
    pub key_type: String,
    /// Longest lifetime of the certificate, in seconds; `None` uses the server's default.
    pub max_expiration_seconds: Option<i32>,
    /// Additional annotations passed to the signer.
    pub user_annotations: BTreeMap<String, String>,
    /// Path of the file with the key followed by the certificates.
    pub bundle: Option<VolumePath>,
    /// Path of the key file; `None` if it is not written separately.
    pub key: Option<VolumePath>,
    /// Path of the chain file; `None` if it is not written separately.
    pub chain: Option<VolumePath>,
    /// User ID that owns the files; `None` is the user of `VolumeReaders`.
    pub owner: Option<u32>,
}

/// A `configMap` or `secret` source.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSource {
    /// Name of the object, in the pod's namespace.
    pub name: String,
    /// Whether the object or its listed keys may be missing.
    pub optional: bool,
    /// Keys to write. If empty, all keys are written under their names.
    pub items: Vec<ObjectItem>,
    /// User ID that owns the files without an item.
    pub owner: Option<u32>,
}

/// One key of an object, written to a file.
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

/// A `serviceAccountToken` source: a token in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSource {
    /// Audience of the token; `None` means the API server.
    pub audience: Option<String>,
    /// Requested lifetime of the token, in seconds.
    pub expiration_seconds: i64,
    /// Path of the token file, relative to the volume.
    pub path: VolumePath,
    /// User ID that owns the file; `None` is the user of `VolumeReaders`.
    pub owner: Option<u32>,
}

/// A file of a `downwardAPI` source.
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

/// A value of the pod that a `downwardAPI` file contains.
#[derive(Clone, Debug, PartialEq)]
pub enum DownwardValue {
    /// A field of the pod, such as `metadata.labels['a']`.
    Field(String),
    /// A resource request or limit of a container.
    Resource {
        /// Name of the container whose resource is read.
        container: String,
        /// Resource name, such as `limits.cpu` or `requests.memory`.
        resource: String,
        /// Unit of the value; `None` means 1.
        divisor: Option<String>,
    },
}

/// The certificate revocation lists of all authorities of a signer.
#[derive(Clone, Debug, PartialEq)]
pub struct RevocationListSource {
    /// Signer of the certificates, such as `example.com/web`.
    pub signer: String,
    /// Whether there may be no list; the PEM file is empty then.
    pub optional: bool,
    /// Path of the PEM file, or of the directory of DER files, relative to the volume.
    pub path: VolumePath,
    /// Encoding of the lists, which decides the number of files.
    pub format: RevocationListFormat,
}

/// Encoding of certificate revocation lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationListFormat {
    /// One file with the lists of all authorities, sorted by authority ID.
    Pem,
    /// A directory with one file for each authority, named after the authority ID, because a DER file holds one list.
    Der,
}

/// Everything that is wrong with a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", super::plan::aggregate(.0.iter().map(ToString::to_string)))]
pub struct DefinitionError(pub Vec<FieldError>);

impl Default for VolumeDefinition {
    /// A volume without sources, with the default mode of Kubernetes.
    fn default() -> Self {
        Self { default_mode: DEFAULT_MODE, sources: Vec::new() }
    }
}

impl VolumeDefinition {
    /// Parses and validates the definition at the field path `at`.
    pub fn parse(volume: &ProjectedVolumeSource, at: &FieldPath) -> Result<Self, DefinitionError> {
        let mut errors = FieldErrors::new();
        let definition = parser::parse_definition(volume, at, &mut errors);
        let errors = errors.into_vec();
        if errors.is_empty() { Ok(definition) } else { Err(DefinitionError(errors)) }
    }
}
