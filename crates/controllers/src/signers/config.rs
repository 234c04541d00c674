//! Configuration of custom signers: the file `signers.yaml`, and `spec` of Signer objects, with one parser for both.
//!
//! Each section has one file with its type and its parser: `ca`, `requests`, `pods`, `crl`, `limits` (with `intermediates`), and `publish`
//! here. `pattern` has the patterns for names, `usages` the usages. To add an option, add a field
//! to the type and read it in the parser beside it.

mod ca;
mod crl;
mod limits;
mod pattern;
pub mod pods;
mod requests;
mod usages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_api::field::FieldErrors;
use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::KeyType;
use windlass_runtime::config::{ConfigDocument, ConfigField, ConfigResult, MAX_CONFIG_BYTES, parse_config};
use windlass_runtime::file_watch::read_limited;

pub use windlass_runtime::config::ConfigErrors;

pub use ca::{CaConfig, CaRecipe};
pub use crl::{CrlConfig, CrlConfigMap, DEFAULT_CRL_DURATION, DistributionPointTemplate, resolve_points};
pub use limits::{IntermediatePolicy, SignerLimits};
pub use pattern::{AddressBlock, NamePattern, RequesterIdentity};
pub use pods::PodProfile;
pub use requests::{AllowedRequesters, ApprovalMode, RequestProfile};

/// Label of the objects that Windlass manages. Objects without it have another owner.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "windlass");

/// All custom signers of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignersConfig {
    /// In the order of the file, with unique names.
    pub signers: Vec<SignerConfig>,
    /// `spec` of the Signer object of each signer, in the same order.
    pub specs: Vec<Value>,
}

/// Where a configuration was written. Only files name files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigOrigin {
    /// Entry of `signers.yaml`, which may name files.
    File,
    /// `spec` of a Signer object.
    Object,
}

/// A custom signer. It signs CertificateSigningRequests, PodCertificateRequests, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct SignerConfig {
    /// Name that requests give as `signerName`; never below `kubernetes.io`.
    pub name: SignerName,
    /// Source of the signer's CA certificate and key.
    pub ca: CaConfig,
    /// Which CertificateSigningRequests it signs; `None` if none.
    pub requests: Option<RequestProfile>,
    /// Which PodCertificateRequests it signs; `None` if none.
    pub pods: Option<PodProfile>,
    /// Where its trust anchors are published; `None` if they are not.
    pub publish: Option<PublicationConfig>,
    /// Which other signers get intermediate CAs from it; `None` if none.
    pub intermediates: Option<IntermediatePolicy>,
    /// Limits on its requests; none by default.
    pub limits: SignerLimits,
    /// Publication of revocation lists; `None` for the defaults.
    pub crl: Option<CrlConfig>,
}

/// ClusterTrustBundle with the trust anchors of a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationConfig {
    /// Name of the ClusterTrustBundle: `domain:path:name`.
    pub bundle: String,
    /// Its labels, besides [`MANAGED_BY`].
    pub labels: BTreeMap<String, String>,
    /// A second bundle of the signer, which changes first during a rotation; `None` if there is none.
    pub canary: Option<CanaryPublication>,
}

/// ClusterTrustBundle that gets a new anchor, and loses an old one, before the signer's other bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryPublication {
    /// Name of the ClusterTrustBundle: `domain:path:name`.
    pub bundle: String,
    /// Its labels, besides [`MANAGED_BY`].
    pub labels: BTreeMap<String, String>,
}

const DEFAULT_BUNDLE: &str = "anchors";
const DEFAULT_CANARY_BUNDLE: &str = "canary";

impl SignersConfig {
    /// Reads and parses a signers file from disk.
    pub fn load(file: &Path) -> Result<SignersConfig, ConfigErrors> {
        SignersConfig::parse_bytes(file, &read_limited(file, MAX_CONFIG_BYTES)?)
    }

    /// Parses the text of a signers file. Relative paths in it are relative to the directory of `file`.
    pub fn parse(file: &Path, text: &str) -> Result<SignersConfig, ConfigErrors> {
        SignersConfig::parse_bytes(file, text.as_bytes())
    }

    pub(super) fn parse_bytes(file: &Path, text: &[u8]) -> Result<SignersConfig, ConfigErrors> {
        parse_config(file, text, "Signers", "signers", |list| {
            let (mut signers, mut specs): (Vec<SignerConfig>, Vec<Value>) = Default::default();
            for item in list.items()? {
                if let Ok(signer) = SignerConfig::parse(&item, &signers, ConfigOrigin::File) {
                    specs.push(object_spec(item.to_json(), &signer.ca));
                    signers.push(signer);
                }
            }
            Ok(SignersConfig { signers, specs })
        })
    }
}

impl SignerConfig {
    /// Creates a signer that signs nothing and only publishes the CA of this certificate file.
    pub fn publish_only(name: SignerName, certificate: PathBuf) -> SignerConfig {
        let bundle = format!("{}{DEFAULT_BUNDLE}", name.bundle_prefix());
        SignerConfig {
            name,
            ca: CaConfig::Files { certificate, key: PathBuf::new() },
            requests: None,
            pods: None,
            publish: Some(PublicationConfig { bundle, labels: BTreeMap::new(), canary: None }),
            intermediates: None,
            limits: SignerLimits::default(),
            crl: None,
        }
    }

    /// Parses `spec` of a Signer object. The paths in errors begin with `spec`.
    pub fn parse_object(spec: &Value) -> Result<SignerConfig, ConfigErrors> {
        let text = json!({ "spec": spec }).to_string();
        let document = ConfigDocument::parse(Path::new("Signer"), text.as_bytes())?;
        let fields = document.root().fields(&["spec"]);
        let parsed = fields.and_then(|fields| {
            fields.required("spec", |spec| SignerConfig::parse(spec, &[], ConfigOrigin::Object))
        });
        document.finish(parsed)
    }

    fn parse(
        item: &ConfigField<'_>,
        others: &[SignerConfig],
        origin: ConfigOrigin,
    ) -> ConfigResult<SignerConfig> {
        let name_field = match origin {
            ConfigOrigin::File => "name",
            ConfigOrigin::Object => "signerName",
        };
        let fields = item.fields(&[
            name_field,
            "ca",
            "requests",
            "pods",
            "publish",
            "intermediates",
            "limits",
            "crl",
        ])?;
        let name = fields.required(name_field, |field| parse_unique_name(field, others));
        let signer = name.as_ref().map_err(|error| *error);
        let ca = fields.required("ca", |section| CaConfig::parse(section, signer, others, origin));
        let requests = fields.optional("requests", RequestProfile::parse);
        let pods = fields.optional("pods", PodProfile::parse);
        let intermediates = fields.optional("intermediates", IntermediatePolicy::parse);
        if requests == Ok(None) && pods == Ok(None) && intermediates == Ok(None) {
            item.error("signs nothing; add requests, pods or intermediates");
        }
        let publish = fields.optional("publish", |section| PublicationConfig::parse(section, signer));
        let limits = fields.optional("limits", SignerLimits::parse);
        let crl = fields.optional("crl", CrlConfig::parse);
        let (mut requests, mut pods, crl) = (requests?, pods?, crl?);
        if let Some(CrlConfig { distribution_points, .. }) = &crl {
            requests.iter_mut().for_each(|each| each.distribution_points.clone_from(distribution_points));
            pods.iter_mut().for_each(|each| each.distribution_points.clone_from(distribution_points));
        }
        Ok(SignerConfig {
            ca: ca?,
            requests,
            pods,
            publish: publish?,
            intermediates: intermediates?,
            limits: limits?.unwrap_or_default(),
            crl,
            name: name?,
        })
    }
}

/// Converts an entry of the file to `spec` of its Signer object. Objects cannot name files, so a CA in files of the
/// controllers is only referred to.
fn object_spec(mut entry: Value, ca: &CaConfig) -> Value {
    if let Some(fields) = entry.as_object_mut() {
        let name = fields.remove("name").unwrap_or_default();
        fields.insert("signerName".to_owned(), name);
        if ca.is_local() {
            fields.insert("ca".to_owned(), json!({"signersFile": {}}));
        }
        // Objects have no word for the default.
        if let Some(requests) = fields.get_mut("requests").and_then(Value::as_object_mut)
            && requests.get("approval").is_some_and(Value::is_string)
        {
            requests.remove("approval");
        }
    }
    entry
}

fn parse_unique_name(field: &ConfigField<'_>, others: &[SignerConfig]) -> ConfigResult<SignerName> {
    let name = parse_signer_name(field)?;
    if others.iter().any(|other| other.name == name) {
        return Err(field.invalid("is the name of another signer; use a unique name"));
    }
    Ok(name)
}

/// Parses the name of a custom signer.
fn parse_signer_name(field: &ConfigField<'_>) -> ConfigResult<SignerName> {
    let text = field.text()?;
    let mut errors = FieldErrors::new();
    let name = SignerName::parse(field.path(), text, &mut errors);
    field.report_field_errors(errors.iter())?;
    match name {
        Some(name) if name.is_kubernetes() => {
            Err(field.invalid("is reserved for Kubernetes; use a domain other than kubernetes.io"))
        }
        name => name.ok_or_else(|| field.invalid("is not a signer name")),
    }
}

/// Parses the name of a key type that is among those accepted in this place.
fn parse_key_type(field: &ConfigField<'_>, accepted: &[KeyType]) -> ConfigResult<KeyType> {
    let table: Vec<(&str, KeyType)> = accepted.iter().map(|each| (each.name(), *each)).collect();
    field.one_of(&table)
}

impl PublicationConfig {
    fn parse(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
    ) -> ConfigResult<PublicationConfig> {
        let fields = section.fields(&["name", "labels", "canary"])?;
        let name = fields.optional("name", |field| field.valid_name(names::dns1123_subdomain));
        let labels = fields.optional("labels", |map| map.parse_entries(parse_label));
        let canary = fields.optional("canary", |section| CanaryPublication::parse(section, signer));
        let (name, prefix) = (name?, signer?.bundle_prefix());
        let bundle = format!("{prefix}{}", name.as_deref().unwrap_or(DEFAULT_BUNDLE));
        let canary = canary?;
        if canary.as_ref().is_some_and(|canary| canary.bundle == bundle) {
            return Err(section.error("has the same name for both bundles; change canary.name"));
        }
        Ok(PublicationConfig { bundle, labels: labels?.unwrap_or_default().into_iter().collect(), canary })
    }
}

impl CanaryPublication {
    fn parse(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
    ) -> ConfigResult<CanaryPublication> {
        let fields = section.fields(&["name", "labels"])?;
        let name = fields.optional("name", |field| field.valid_name(names::dns1123_subdomain));
        let labels = fields.optional("labels", |map| map.parse_entries(parse_label));
        let (name, prefix) = (name?, signer?.bundle_prefix());
        Ok(CanaryPublication {
            bundle: format!("{prefix}{}", name.as_deref().unwrap_or(DEFAULT_CANARY_BUNDLE)),
            labels: labels?.unwrap_or_default().into_iter().collect(),
        })
    }
}

fn parse_label(key: &str, field: &ConfigField<'_>) -> ConfigResult<(String, String)> {
    field.check_name(key, names::qualified_name)?;
    if key == MANAGED_BY.0 {
        return Err(field.error("is set by Windlass; remove it"));
    }
    let value = field.text_or_empty()?;
    field.check_name(value, names::label_value)?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests;
