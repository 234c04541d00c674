//! Custom signers, which `signers.yaml` describes.
//!
//! - `config`: parser of the file; `profile`: checks requests against it.
//! - `pods`: signs PodCertificateRequests.
//! - `rollout`: decides which CA signs while a new one is rolled out.
//!
//! CertificateSigningRequests are approved by `approver` and signed by `csr_signer`, as those of built-in signers.

pub mod config;
pub mod pods;
pub mod profile;
pub mod rollout;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::ca::CaSource;
use crate::ca::self_signed::{self, SelfSignedCaSpec};
use crate::options::Clock;

use config::{ApprovalMode, CaConfig, SignerConfig, SignersConfig};
use rollout::CaRollout;

/// A custom signer and its CA.
#[derive(Clone)]
pub struct CustomSigner {
    /// Configuration of the signer from the signers file.
    pub custom: SignerConfig,
    /// Certificate and key of the CA, which are reloaded elsewhere.
    pub ca: Arc<CaSource>,
    /// Decides which CA signs while a new one is rolled out.
    pub rollout: Arc<CaRollout>,
}

impl CustomSigner {
    /// Creates a signer with this CA.
    pub fn new(custom: SignerConfig, ca: Arc<CaSource>) -> CustomSigner {
        let rollout = CaRollout::new(custom.name.as_str(), ca.clone(), max_duration(&custom));
        CustomSigner { custom, ca, rollout }
    }

    /// Returns the longest lifetime that it grants.
    pub fn max_duration(&self) -> Duration {
        max_duration(&self.custom)
    }

    /// Whether it approves requests automatically.
    pub fn approves(&self) -> bool {
        let requests = self.custom.requests.as_ref();
        requests.is_some_and(|requests| requests.approval != ApprovalMode::Manual)
    }
}

/// Reads a valid signers file and the CAs in it. A signer whose CA is invalid is degraded until its files are valid; a
/// missing self-signed CA is generated. Blocks on disk reads and writes.
pub fn open(file: &Path, clock: &Clock) -> anyhow::Result<Vec<CustomSigner>> {
    let SignersConfig { signers } = SignersConfig::load(file)?;
    let opened = signers.into_iter().map(|custom| {
        let ca = match &custom.ca {
            CaConfig::Files { certificate, key } => {
                CaSource::from_chain_files(certificate.clone(), key.clone(), clock.clone())
            }
            CaConfig::SelfSigned { directory, key, subject, duration: lifetime } => {
                let recipe = SelfSignedCaSpec { key: *key, subject, lifetime: *lifetime };
                self_signed::open(directory, recipe, clock)
            }
        };
        if ca.current().is_none() {
            tracing::error!(
                signer = custom.name.as_str(),
                "signer has no usable CA; its requests stay pending"
            );
        }
        CustomSigner::new(custom, ca)
    });
    Ok(opened.collect())
}

fn max_duration(custom: &SignerConfig) -> Duration {
    let requests = custom.requests.as_ref().map(|profile| profile.max_duration);
    let pods = custom.pods.as_ref().map(|profile| profile.max_duration);
    requests.into_iter().chain(pods).max().unwrap_or_default()
}
