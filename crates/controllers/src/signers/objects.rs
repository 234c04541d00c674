//! Signer objects: which signers they and the signers file define together.
//!
//! - `sources`: follows both and updates the set of signers.
//! - `controller`: watches the objects while the server has the kind.
//! - `file_sync`: applies the entries of the file as objects.
//! - `status`: status of an object, a pure function; `reporter`: writes it; `metrics`: exposes whether it is ready.
//!
//! An object takes precedence over the entry of the file for the same signer, which it usually was made from. The entry
//! alone counts where objects are not served, and until its object exists.

mod controller;
mod file_sync;
mod metrics;
mod reporter;
mod sources;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;
use windlass_api::signer_name::SignerName;

use super::config::{CaConfig, SignerConfig};

pub(crate) use controller::run;
pub(crate) use metrics::SignerObjectMetrics;
pub(crate) use sources::SignerSources;

/// Signer objects by their names.
pub(crate) type SignerObjects = BTreeMap<String, DynamicObject>;

/// Outcome of reading an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectVerdict {
    /// The object defines this signer.
    Accepted(SignerName),
    /// The spec is invalid, for these reasons.
    Invalid(String),
    /// Another object defines the signer.
    Duplicate {
        /// Signer that both objects name.
        signer: SignerName,
        /// Name of the object that defines it.
        owner: String,
    },
}

/// Signers that file and objects define together, and the verdicts on the objects by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SignerResolution {
    pub(crate) signers: Vec<SignerConfig>,
    pub(crate) verdicts: BTreeMap<String, ObjectVerdict>,
}

/// Combines the entries of the file with the objects.
pub(crate) fn resolve(file: &[SignerConfig], objects: &SignerObjects) -> SignerResolution {
    let mut resolution = SignerResolution::default();
    let mut by_age: Vec<&DynamicObject> = objects.values().collect();
    by_age.sort_by_key(|object| (object.metadata.creation_timestamp.clone(), object.name_any()));
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for object in by_age {
        let name = object.name_any();
        let verdict = match SignerConfig::parse_object(spec(object)) {
            Err(errors) => {
                // The name alone is reserved: the entry of the file must not apply instead of an object that restricts it.
                if let Some(signer) = spec(object).get("signerName").and_then(Value::as_str) {
                    owners.entry(signer.to_owned()).or_insert_with(|| name.clone());
                }
                ObjectVerdict::Invalid(errors.messages().join("; "))
            }
            Ok(config) => match owners.get(config.name.as_str()) {
                Some(owner) => ObjectVerdict::Duplicate { signer: config.name, owner: owner.clone() },
                None => {
                    owners.insert(config.name.to_string(), name.clone());
                    let signer = config.name.clone();
                    resolution.signers.push(with_file_ca(config, file));
                    ObjectVerdict::Accepted(signer)
                }
            },
        };
        resolution.verdicts.insert(name, verdict);
    }
    let entries = file.iter().filter(|entry| !owners.contains_key(entry.name.as_str()));
    resolution.signers.extend(entries.cloned());
    resolution.signers.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    resolution
}

/// Replaces the reference to the signers file by the CA of the file's entry, if there is one.
fn with_file_ca(config: SignerConfig, file: &[SignerConfig]) -> SignerConfig {
    let entry = file.iter().find(|entry| entry.name == config.name);
    match (&config.ca, entry) {
        (CaConfig::SignersFile, Some(entry)) => SignerConfig { ca: entry.ca.clone(), ..config },
        _ => config,
    }
}

fn spec(object: &DynamicObject) -> &Value {
    object.data.get("spec").unwrap_or(&Value::Null)
}
