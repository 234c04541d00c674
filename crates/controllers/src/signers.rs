//! Custom signers, as `signers.yaml` defines them.
//!
//! - `config`: the file; `profile`: whether a profile permits a request.
//! - `pods`: signer of PodCertificateRequests.
//! - `rollout`: selects the CA that signs while it is rotated.
//!
//! CertificateSigningRequests to custom signers are signed by `csr_signer` and approved by `approver`, like those to
//! built-in signers.

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
    /// CA of the signer; [`CaSource::watch`] keeps it current.
    pub ca: Arc<CaSource>,
    /// Selects the CA that signs while it is rotated.
    pub rollout: Arc<CaRollout>,
}

impl CustomSigner {
    /// Creates a signer with this CA.
    pub fn new(custom: SignerConfig, ca: Arc<CaSource>) -> CustomSigner {
        let rollout = CaRollout::new(custom.name.as_str(), ca.clone(), max_duration(&custom));
        CustomSigner { custom, ca, rollout }
    }

    /// Returns the longest lifetime that the signer grants.
    pub fn max_duration(&self) -> Duration {
        max_duration(&self.custom)
    }

    /// Whether the signer approves requests automatically.
    pub fn approves(&self) -> bool {
        let requests = self.custom.requests.as_ref();
        requests.is_some_and(|requests| requests.approval != ApprovalMode::Manual)
    }
}

/// Reads `signers.yaml`, which must be valid, and the CAs of its signers. A signer whose CA is invalid is degraded
/// until its files are valid; a self-signed CA is generated if it does not exist. Writes to disk: do not call it in
/// async code.
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
