//! Signers of the user's own, as `signers.yaml` describes them.
//!
//! - `config`: the file, as it is meant; `profile`: whether a request is one that may be signed.
//! - `pods`: signs what pods ask for.
//!
//! Requests are signed by `sign` and approved by `approve`, as those of Kubernetes' own signers.

pub mod config;
pub mod pods;
pub mod profile;

use std::path::Path;
use std::sync::Arc;

use crate::ca::CaSource;
use crate::ca::made::{self, Recipe};
use crate::options::Clock;

use config::{Approval, CaChoice, Custom, Signers};

/// A signer of the user's own and what it signs with.
#[derive(Clone)]
pub struct CustomSigner {
    /// What it does.
    pub custom: Custom,
    /// Its certificate and key; somebody else keeps them current.
    pub ca: Arc<CaSource>,
}

impl CustomSigner {
    /// Whether it approves requests by itself.
    pub fn approves(&self) -> bool {
        let requests = self.custom.requests.as_ref();
        requests.is_some_and(|requests| requests.approval != Approval::Manual)
    }
}

/// Reads the file, which must be good, and the CAs in it. A signer whose CA is bad is degraded until
/// its files are good; a CA that is to be made is made if it is not there. Writes to disk: not for
/// async code.
pub fn open(file: &Path, clock: &Clock) -> anyhow::Result<Vec<CustomSigner>> {
    let Signers { signers } = Signers::load(file)?;
    let opened = signers.into_iter().map(|custom| {
        let ca = match &custom.ca {
            CaChoice::Files { certificate, key } => {
                CaSource::chain(certificate.clone(), key.clone(), clock.clone())
            }
            CaChoice::Made { directory, key, subject, lifetime } => {
                let recipe = Recipe { key: *key, subject, lifetime: *lifetime };
                made::open(directory, recipe, clock)
            }
        };
        if ca.current().is_none() {
            tracing::error!(
                signer = custom.name.as_str(),
                "the signer has no usable CA; its requests stay pending"
            );
        }
        CustomSigner { custom, ca }
    });
    Ok(opened.collect())
}
