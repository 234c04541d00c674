//! Signers that are configured locally, with their CAs. Reads files only.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use windlass_controllers::csr_signer::KubernetesSigner;
use windlass_controllers::signers::config::{ConfigErrors, RequestProfile, SignerConfig, SignersConfig};

use super::signer_ca::{CaFileForm, SignerCa};
use super::signing_policy::{SignerDescription, SignerKind};
use super::{built_in, custom};
use crate::cli::{DataDirArgs, SignerSourceArgs};
use crate::commands::data_dir;
use crate::datadir::DataDirLayout;
use crate::expiry::{CertificateLifetime, CertificateRole, MonitoredCertificate};

/// A signer that is configured locally.
#[derive(Debug)]
pub struct LocalSigner {
    pub document: SignerDescription,
    pub ca: SignerCa,
    /// Maximum lifetimes of certificates, each with the field that sets it.
    pub max_durations: Vec<(&'static str, Duration)>,
    /// Name of the ClusterTrustBundle with its anchors.
    pub bundle: Option<String>,
    /// Wildcards that several requesters share, as `field pattern`.
    pub shared_wildcards: Vec<String>,
}

/// Local sources of signer configuration: data directory and `signers.yaml`.
#[derive(Debug)]
pub struct SignerSources {
    /// Layout of the data directory, if there is one.
    pub data: Option<DataDirLayout>,
    /// Path of `signers.yaml`, if there is one.
    pub signers: Option<PathBuf>,
}

impl SignerSources {
    /// Returns the sources that the flags name, or existing ones where `windlass up` expects them.
    pub fn from_flags(arguments: &SignerSourceArgs) -> Result<Self> {
        let given = arguments.data_dir.is_some();
        let data = match data_dir::layout(&DataDirArgs { data_dir: arguments.data_dir.clone() }) {
            Ok(layout) if layout.root().is_dir() => Some(layout),
            Ok(layout) if given => {
                bail!("data directory {} does not exist", layout.root().display())
            }
            Err(error) if given => return Err(error),
            Ok(_) | Err(_) => None,
        };
        let usual = data.as_ref().map(DataDirLayout::signers).filter(|file| file.exists());
        Ok(Self { data, signers: arguments.signers.clone().or(usual) })
    }

    /// Returns the lifetimes of the certificates that the data directory issued to its server and
    /// administrator, and of the serving CA, which belongs to no signer. Missing files were never
    /// created and are skipped.
    pub fn own_certificates(&self) -> Vec<CertificateLifetime> {
        let Some(data) = &self.data else { return Vec::new() };
        let own = [
            ("serving", CertificateRole::Renewed, "server.crt"),
            ("admin", CertificateRole::Renewed, "admin.crt"),
            ("serving-ca", CertificateRole::OwnAuthority, "ca.crt"),
        ];
        let read =
            |(name, role, file)| MonitoredCertificate::file(name, role, data.pki_file(file)).read().ok();
        own.into_iter().filter_map(read).collect()
    }

    /// Loads the custom signers; an empty list without a file.
    pub fn custom(&self) -> Result<Vec<SignerConfig>, ConfigErrors> {
        let read = self.signers.as_deref().map(SignersConfig::load).transpose()?;
        Ok(read.map(|read| read.signers).unwrap_or_default())
    }
}

impl LocalSigner {
    /// Returns the built-in signers, with their CAs if the data directory of `windlass up` is here.
    pub fn built_in(data: Option<&DataDirLayout>) -> Vec<Self> {
        let documents = built_in::NAMES.into_iter().filter_map(built_in::document);
        let known = documents.map(|document| Self {
            ca: data.map_or(SignerCa::Elsewhere, |data| own_ca(data, &document.name)),
            document,
            max_durations: Vec::new(),
            bundle: None,
            shared_wildcards: Vec::new(),
        });
        known.collect()
    }

    /// Converts a custom signer of the file or of an object.
    pub fn custom(custom: &SignerConfig) -> Self {
        let requests = custom.requests.as_ref().map(|profile| ("requests.maxDuration", profile.max_duration));
        let pods = custom.pods.as_ref().map(|profile| ("pods.maxDuration", profile.max_duration));
        let shared = custom.requests.iter().flat_map(RequestProfile::shared_wildcards);
        Self {
            shared_wildcards: shared.map(|(field, each)| format!("{field} {each}")).collect(),
            document: custom::document(custom),
            ca: SignerCa::from_choice(&custom.ca),
            max_durations: requests.into_iter().chain(pods).collect(),
            bundle: custom.publish.as_ref().map(|publication| publication.bundle.clone()),
        }
    }

    pub fn name(&self) -> &str {
        &self.document.name
    }

    pub fn kind(&self) -> SignerKind {
        self.document.kind
    }
}

/// Reads the CA files with which `windlass up` signs.
fn own_ca(data: &DataDirLayout, name: &str) -> SignerCa {
    let pair = match KubernetesSigner::from_name(name) {
        Some(KubernetesSigner::Client | KubernetesSigner::KubeletClient) => "client-ca",
        Some(KubernetesSigner::KubeletServing | KubernetesSigner::LegacyUnknown) => "kubelet-serving-ca",
        None => return SignerCa::Elsewhere,
    };
    let (certificate, key) = (data.pki_file(&format!("{pair}.crt")), data.pki_file(&format!("{pair}.key")));
    // A server with other CAs creates none there; one that never ran has none yet.
    match certificate.exists() || key.exists() {
        true => SignerCa::read(&certificate, &key, CaFileForm::One),
        false => SignerCa::Elsewhere,
    }
}
