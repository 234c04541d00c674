//! Signers of the user's own, as `signers.yaml` describes them.
//!
//! - `config`: the file, as it is meant; `profile`: whether a request is one that may be signed.
//!
//! Requests are signed by `sign` and approved by `approve`, as those of Kubernetes' own signers.

pub mod config;
pub mod profile;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use crate::ca::CaSource;
use crate::ca::made::{self, Recipe};
use crate::options::Clock;

use config::{CaChoice, Custom, Signers};

/// A signer of the user's own and what it signs with.
#[derive(Clone)]
pub struct CustomSigner {
    /// What it does.
    pub custom: Custom,
    /// Its certificate and key; somebody else keeps them current.
    pub ca: Arc<CaSource>,
}

/// Reads the file and the CAs in it, which must be good; a CA that is to be made is made if it is
/// not there. Writes to disk: not for async code.
pub fn open(file: &Path, clock: &Clock) -> anyhow::Result<Vec<CustomSigner>> {
    let Signers { signers } = Signers::load(file)?;
    let mut opened = Vec::with_capacity(signers.len());
    for custom in signers {
        let ca = match &custom.ca {
            CaChoice::Files { certificate, key } => {
                CaSource::chain(certificate.clone(), key.clone(), clock.clone())
            }
            CaChoice::Made { directory, key, subject, lifetime } => {
                let recipe = Recipe { key: *key, subject, lifetime: *lifetime };
                made::open(directory, recipe, clock)
            }
        };
        let ca = ca.with_context(|| format!("{}: the CA of {}", file.display(), custom.name))?;
        opened.push(CustomSigner { custom, ca });
    }
    Ok(opened)
}
