//! Signers of the user's own, as `signers.yaml` describes them.
//!
//! - `config`: the file, as it is meant; `profile`: whether a request is one that may be signed.
//! - `pods`: signs what pods ask for.
//! - `rollout`: which CA signs while it is replaced.
//!
//! Requests are signed by `sign` and approved by `approve`, as those of Kubernetes' own signers.

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

/// A signer of the user's own and what it signs with.
#[derive(Clone)]
pub struct CustomSigner {
    /// Configuration of the signer from the signers file.
    pub custom: SignerConfig,
    /// Its certificate and key; somebody else keeps them current.
    pub ca: Arc<CaSource>,
    /// Which of its CAs signs while it is replaced.
    pub rollout: Arc<CaRollout>,
}

impl CustomSigner {
    /// A signer with this CA.
    pub fn new(custom: SignerConfig, ca: Arc<CaSource>) -> CustomSigner {
        let rollout = CaRollout::new(custom.name.as_str(), ca.clone(), max_duration(&custom));
        CustomSigner { custom, ca, rollout }
    }

    /// The longest lifetime that it grants.
    pub fn max_duration(&self) -> Duration {
        max_duration(&self.custom)
    }

    /// Whether it approves requests by itself.
    pub fn approves(&self) -> bool {
        let requests = self.custom.requests.as_ref();
        requests.is_some_and(|requests| requests.approval != ApprovalMode::Manual)
    }
}

/// Reads the file, which must be good, and the CAs in it. A signer whose CA is bad is degraded until
/// its files are good; a CA that is to be made is made if it is not there. Writes to disk: not for
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
                "the signer has no usable CA; its requests stay pending"
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
