//! The file of custom signers, `signers.yaml`.
//!
//! Each section has one file with its type and its parser: `requests`, `pods`, and `ca` and `publish` here. `pattern` has
//! the patterns for names, `usages` the usages. To add an option, add a field to the type and read it in the parser
//! beside it.

mod pattern;
pub mod pods;
mod requests;
mod usages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_api::field::FieldErrors;
use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::{KeyType, Subject};
use windlass_runtime::config::{ConfigField, ConfigResult, MAX_CONFIG_BYTES, parse_config};
use windlass_runtime::file_watch::read_limited;

pub use windlass_runtime::config::ConfigErrors;

pub use pattern::{AddressBlock, NamePattern, RequesterIdentity};
pub use pods::PodProfile;
pub use requests::{AllowedRequesters, ApprovalMode, RequestProfile};

/// Label of the objects that Windlass manages. Objects without it belong to somebody else.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "windlass");

/// All custom signers of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct SignersConfig {
    /// In the order of the file, with unique names.
    pub signers: Vec<SignerConfig>,
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
}

/// Where the certificate and key of a CA come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaConfig {
    /// Files that are written by somebody else, and reloaded on change.
    Files {
        /// Path of the CA certificate as PEM, optionally followed by its chain.
        certificate: PathBuf,
        /// Path of the CA's private key, as PEM.
        key: PathBuf,
    },
    /// Self-signed CA, which is generated on the first start.
    SelfSigned {
        /// Directory of the generated certificate and key; created if missing.
        directory: PathBuf,
        /// Type of the generated key.
        key: KeyType,
        /// Subject of the generated CA certificate.
        subject: Subject,
        /// Validity period of the generated CA certificate.
        duration: Duration,
    },
}

/// ClusterTrustBundle with the trust anchors of a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationConfig {
    /// Name of the ClusterTrustBundle: `domain:path:name`.
    pub bundle: String,
    /// Its labels, besides [`MANAGED_BY`].
    pub labels: BTreeMap<String, String>,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const DEFAULT_BUNDLE: &str = "anchors";

impl SignersConfig {
    /// Reads and parses a signers file from disk.
    pub fn load(file: &Path) -> Result<SignersConfig, ConfigErrors> {
        SignersConfig::parse_bytes(file, &read_limited(file, MAX_CONFIG_BYTES)?)
    }

    /// Parses the text of a signers file. Relative paths in it are relative to the directory of `file`.
    pub fn parse(file: &Path, text: &str) -> Result<SignersConfig, ConfigErrors> {
        SignersConfig::parse_bytes(file, text.as_bytes())
    }

    fn parse_bytes(file: &Path, text: &[u8]) -> Result<SignersConfig, ConfigErrors> {
        parse_config(file, text, "Signers", "signers", |list| {
            let mut signers: Vec<SignerConfig> = Vec::new();
            for item in list.items()? {
                signers.extend(SignerConfig::parse(&item, &signers));
            }
            Ok(SignersConfig { signers })
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
            publish: Some(PublicationConfig { bundle, labels: BTreeMap::new() }),
        }
    }

    fn parse(item: &ConfigField<'_>, others: &[SignerConfig]) -> ConfigResult<SignerConfig> {
        let fields = item.fields(&["name", "ca", "requests", "pods", "publish"])?;
        let name = fields.required("name", |field| parse_name(field, others));
        let signer = name.as_ref().map_err(|error| *error);
        let ca = fields.required("ca", |section| CaConfig::parse(section, signer, others));
        let requests = fields.optional("requests", RequestProfile::parse);
        let pods = fields.optional("pods", PodProfile::parse);
        if requests == Ok(None) && pods == Ok(None) {
            item.error("signs nothing; add requests or pods");
        }
        let publish = fields.optional("publish", |section| PublicationConfig::parse(section, signer));
        let (ca, publish) = (ca?, publish?);
        Ok(SignerConfig { name: name?, ca, requests: requests?, pods: pods?, publish })
    }
}

fn parse_name(field: &ConfigField<'_>, others: &[SignerConfig]) -> ConfigResult<SignerName> {
    let text = field.text()?;
    let mut errors = FieldErrors::new();
    let name = SignerName::parse(field.path(), text, &mut errors);
    field.report_field_errors(errors.iter())?;
    match name {
        Some(name) if name.is_kubernetes() => {
            Err(field.invalid("is reserved for Kubernetes; use a domain other than kubernetes.io"))
        }
        Some(name) if others.iter().any(|other| other.name == name) => {
            Err(field.invalid("is the name of another signer; use a unique name"))
        }
        name => name.ok_or_else(|| field.invalid("is not a signer name")),
    }
}

impl CaConfig {
    fn parse(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
        others: &[SignerConfig],
    ) -> ConfigResult<CaConfig> {
        match section.fields(&["files", "selfSigned"])?.exactly_one(&["files", "selfSigned"])? {
            ("files", files) => {
                let fields = files.fields(&["certificate", "key"])?;
                let certificate = fields.required("certificate", ConfigField::file_path);
                let key = fields.required("key", ConfigField::file_path);
                Ok(CaConfig::Files { certificate: certificate?, key: key? })
            }
            (_, self_signed) => CaConfig::parse_self_signed(&self_signed, signer, others),
        }
    }

    fn parse_self_signed(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
        others: &[SignerConfig],
    ) -> ConfigResult<CaConfig> {
        let fields = section.fields(&["directory", "keyType", "commonName", "duration"])?;
        let directory = fields.required("directory", |field| {
            let directory = field.file_path()?;
            if others.iter().any(|other| other.ca.self_signed_directory() == Some(&directory)) {
                let detail = "is the CA directory of another signer; use another directory";
                return Err(field.invalid(detail));
            }
            Ok(directory)
        });
        let key = fields.optional("keyType", |field| parse_key_type(field, KeyType::GENERATED));
        let subject = match fields.get("commonName") {
            Some(field) => field.text().and_then(|text| parse_subject(&field, text)),
            None => signer.and_then(|signer| parse_subject(section, signer.as_str())),
        };
        let duration = fields.optional("duration", |field| field.duration_at_least(DAY));
        Ok(CaConfig::SelfSigned {
            directory: directory?,
            key: key?.unwrap_or(KeyType::EcdsaP256),
            subject: subject?,
            duration: duration?.unwrap_or(3650 * DAY),
        })
    }

    fn self_signed_directory(&self) -> Option<&PathBuf> {
        match self {
            CaConfig::Files { .. } => None,
            CaConfig::SelfSigned { directory, .. } => Some(directory),
        }
    }
}

/// Parses the name of a key type that is among those accepted in this place.
fn parse_key_type(field: &ConfigField<'_>, accepted: &[KeyType]) -> ConfigResult<KeyType> {
    let table: Vec<(&str, KeyType)> = accepted.iter().map(|each| (each.name(), *each)).collect();
    field.one_of(&table)
}

fn parse_subject(field: &ConfigField<'_>, common_name: &str) -> ConfigResult<Subject> {
    Subject::new(common_name, &[])
        .map_err(|error| field.error(format!("{common_name:?} is not valid as a common name: {error}")))
}

impl PublicationConfig {
    fn parse(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
    ) -> ConfigResult<PublicationConfig> {
        let fields = section.fields(&["name", "labels"])?;
        let name = fields.optional("name", |field| field.valid_name(names::dns1123_subdomain));
        let labels = fields.optional("labels", |map| map.parse_entries(parse_label));
        let (name, prefix) = (name?, signer?.bundle_prefix());
        Ok(PublicationConfig {
            bundle: format!("{prefix}{}", name.as_deref().unwrap_or(DEFAULT_BUNDLE)),
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
