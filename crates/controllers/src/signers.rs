//! Custom signers, which `signers.yaml` and Signer objects describe.
//!
//! - `config`: parser of both; `profile`: checks requests against it.
//! - `file`: the file, reloaded on change; `objects`: Signer objects; `set`: the signers that run now.
//! - `pods`: signs PodCertificateRequests.
//! - `rollout`: decides which CA signs while a new one is rolled out; `quota`: limits on requests.
//!
//! CertificateSigningRequests are approved by `approver` and signed by `csr_signer`, as those of built-in signers.

pub mod config;
mod file;
pub(crate) mod objects;
pub mod pods;
pub mod profile;
pub mod quota;
pub mod rollout;
mod set;
mod statistics;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_api::signer_name::SignerName;
use windlass_pki::fingerprint;

use crate::ca::self_signed::{self, SelfSignedCaSpec};
use crate::ca::{CaSource, SecretCa, SecretCaKind};
use crate::options::Clock;

use config::{ApprovalMode, CaConfig, SignerConfig, SignersConfig};
use quota::RequesterQuota;
use rollout::CaRollout;

pub use file::SignerSettings;
pub(crate) use file::SignersFile;
pub use set::SignerList;
pub(crate) use set::{SignerSet, restart_on_change, watch_authorities};
pub use statistics::{AuthorityStatistics, ListState, SignerStatistics};

/// Default namespace of the Secrets with the CAs of signers.
pub const SIGNER_NAMESPACE: &str = "windlass-system";

/// A custom signer and its CA.
#[derive(Clone)]
pub struct CustomSigner {
    /// Configuration of the signer from the signers file.
    pub custom: SignerConfig,
    /// Certificate and key of the CA, which are reloaded elsewhere.
    pub ca: Arc<CaSource>,
    /// Decides which CA signs while a new one is rolled out.
    pub rollout: Arc<CaRollout>,
    /// Certificates of each requester in the last hour.
    pub quota: Arc<RequesterQuota>,
}

impl CustomSigner {
    /// Creates a signer with this CA.
    pub fn new(custom: SignerConfig, ca: Arc<CaSource>) -> CustomSigner {
        let rollout = CaRollout::new(custom.name.as_str(), ca.clone(), max_duration(&custom));
        CustomSigner { custom, ca, rollout, quota: Arc::default() }
    }

    /// Returns the maximum lifetime that it grants.
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
    open_with(file, &SignerSettings::default(), clock)
}

/// As [`open`], with namespace and PKCS#11 library of these settings.
pub fn open_with(file: &Path, settings: &SignerSettings, clock: &Clock) -> anyhow::Result<Vec<CustomSigner>> {
    let SignersConfig { signers, .. } = SignersConfig::load(file)?;
    let opened = signers.into_iter().map(|custom| {
        let ca = open_ca(&custom, settings, clock);
        if ca.current().is_none() && custom.ca.is_local() {
            tracing::error!(
                signer = custom.name.as_str(),
                "signer has no usable CA; its requests stay pending"
            );
        }
        CustomSigner::new(custom, ca)
    });
    Ok(opened.collect())
}

/// Opens the CA of a signer. Blocks on disk reads and writes if it is in files.
fn open_ca(signer: &SignerConfig, settings: &SignerSettings, clock: &Clock) -> Arc<CaSource> {
    let clock = clock.clone();
    let secret = |name: String, kind: SecretCaKind| {
        let namespace = settings.namespace.clone();
        let secret = SecretCa { namespace, name, signer: signer.name.clone(), kind };
        CaSource::from_secret(secret, clock.clone())
    };
    match &signer.ca {
        CaConfig::Files { certificate, key } => {
            CaSource::from_chain_files(certificate.clone(), key.clone(), clock)
        }
        CaConfig::SelfSigned { directory, key, subject, duration: lifetime } => {
            let recipe = SelfSignedCaSpec { key: *key, subject, lifetime: *lifetime };
            self_signed::open(directory, recipe, &clock)
        }
        CaConfig::SelfSignedSecret { recipe, renew_before } => {
            let kind = SecretCaKind::SelfSigned { recipe: recipe.clone(), renew_before: *renew_before };
            secret(generated_secret_name(&signer.name), kind)
        }
        CaConfig::Issued { issuer, recipe } => {
            let kind = SecretCaKind::Issued { issuer: issuer.clone(), recipe: recipe.clone() };
            secret(generated_secret_name(&signer.name), kind)
        }
        CaConfig::Secret { name } => secret(name.clone(), SecretCaKind::Provided),
        CaConfig::Pkcs11 { uri, certificate_secret } => match &settings.tokens {
            Some(module) => {
                let kind = SecretCaKind::Token { uri: uri.clone(), module: module.clone() };
                secret(certificate_secret.clone(), kind)
            }
            None => CaSource::missing("the controllers run without --pkcs11-module", clock),
        },
        CaConfig::SignersFile => {
            CaSource::missing("the signers file of the controllers has no entry for the signer", clock)
        }
    }
}

/// Derives the name of a signer's object from the name of the signer: `path.domain`. A path with dots would be
/// ambiguous, and a name can be too long; a hash makes these unique.
pub fn object_name(signer: &SignerName) -> String {
    let name = format!("{}.{}", signer.path(), signer.domain());
    if !signer.path().contains('.') && name.len() <= MAX_PLAIN_NAME {
        return name;
    }
    let hash = fingerprint(signer.as_str().as_bytes());
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let plain: String = name.chars().take(MAX_PLAIN_NAME).collect();
    format!("{}-{hash}", plain.trim_end_matches(['.', '-']))
}

/// Derives the name of the Secret with the CA that is generated for a signer.
pub fn generated_secret_name(signer: &SignerName) -> String {
    format!("signer-ca-{}", object_name(signer))
}

/// Names of objects have at most 253 characters, of which prefix and hash need some.
const MAX_PLAIN_NAME: usize = 220;

fn max_duration(custom: &SignerConfig) -> Duration {
    let requests = custom.requests.as_ref().map(|profile| profile.max_duration);
    let pods = custom.pods.as_ref().map(|profile| profile.max_duration);
    let intermediates = custom.intermediates.as_ref().map(|policy| policy.max_duration);
    requests.into_iter().chain(pods).chain(intermediates).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use windlass_api::field::{FieldErrors, FieldPath};

    use super::*;

    #[test]
    fn object_names_are_valid_and_unique() {
        let long = format!("{}.example/{}", "a".repeat(60), vec!["b".repeat(60); 4].join("."));
        let table = [
            ("example.com/server-tls", "server-tls.example.com"),
            ("a.b/c", "c.a.b"),
            ("b.c/a", "a.b.c"),
            ("b.c/x.y", ""),
            (long.as_str(), ""),
        ];
        let mut all = std::collections::BTreeSet::new();
        for (signer, wanted) in table {
            let name = SignerName::parse(&FieldPath::new("name"), signer, &mut FieldErrors::new()).unwrap();
            let name = generated_secret_name(&name);
            assert_eq!(windlass_api::names::dns1123_subdomain(&name), Vec::<String>::new());
            assert!(wanted.is_empty() || name == format!("signer-ca-{wanted}"), "{name}");
            assert!(all.insert(name));
        }
    }
}
