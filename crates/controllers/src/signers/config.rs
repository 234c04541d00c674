//! The file that describes the user's own signers, `signers.yaml`, as it is meant: whatever is
//! wrong with it is told by file, line, column and field, and nothing of it is used.
//!
//! - `document`: YAML of which every value knows its place.
//! - `requests`, `pods`: what a signer signs; `pattern`: for which names.
//! - `values`: durations, usages, names.

mod document;
mod pattern;
pub mod pods;
mod requests;
mod values;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::{KeyType, Subject};

use document::{ConfigDocument, ConfigField, MAX_BYTES};

pub use document::ConfigError;
pub use pattern::{AddressBlock, NamePattern, RequesterIdentity};
pub use pods::PodProfile;
pub use requests::{AllowedRequesters, ApprovalMode, RequestProfile};

/// By this label we know what we made. What is without it is somebody else's.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "windlass");

/// The user's own signers, as their file describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct SignersConfig {
    /// In the order of the file; no two have the same name.
    pub signers: Vec<SignerConfig>,
}

/// A signer of the user's own. It signs requests, or for pods, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct SignerConfig {
    /// Its name; not one of Kubernetes' own.
    pub name: SignerName,
    /// Where the signer's CA comes from.
    pub ca: CaConfig,
    /// Which requests it signs; `None` if none.
    pub requests: Option<RequestProfile>,
    /// What it gives to pods; `None` if nothing.
    pub pods: Option<PodProfile>,
    /// How its anchors are published; `None` if they are not.
    pub publish: Option<PublicationConfig>,
}

/// Where a CA comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaConfig {
    /// From files that somebody else writes.
    Files {
        /// The CA's certificate, perhaps followed by those that vouch for it.
        certificate: PathBuf,
        /// Path of the CA's private key, as PEM.
        key: PathBuf,
    },
    /// It is made once and kept.
    SelfSigned {
        /// Directory of the generated certificate and key; created if missing.
        directory: PathBuf,
        /// What kind of key it gets.
        key: KeyType,
        /// Subject of the generated CA certificate.
        subject: Subject,
        /// Validity period of the generated CA certificate.
        duration: Duration,
    },
}

/// How a signer's anchors are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationConfig {
    /// The name of the bundle.
    pub bundle: String,
    /// Its labels, besides our own.
    pub labels: BTreeMap<String, String>,
}

const API_VERSION: &str = "windlass.dev/v1";
const KIND: &str = "Signers";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl SignersConfig {
    /// Reads and parses a signers file from disk.
    pub fn load(file: &Path) -> Result<SignersConfig, ConfigError> {
        let read = || {
            let mut text = String::new();
            let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
            std::fs::File::open(file)?.take(limit).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error: std::io::Error| {
            ConfigError::for_file(file, format!("cannot read it: {error}"))
        })?;
        SignersConfig::parse(file, &text)
    }

    /// Reads the text of a file.
    pub fn parse(file: &Path, text: &str) -> Result<SignersConfig, ConfigError> {
        let document = ConfigDocument::parse(file, text)?;
        let root = document.root().fields(&["apiVersion", "kind", "signers"])?;
        for (name, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let field = root.require(name)?;
            let found = field.text()?;
            if found != wanted {
                return Err(field.error(format!("{found:?} is not {wanted}")));
            }
        }
        let mut signers: Vec<SignerConfig> = Vec::new();
        for item in root.require("signers")?.items()? {
            let signer = parse_signer(&item)?;
            check_unique(&item, &signer, &signers)?;
            signers.push(signer);
        }
        Ok(SignersConfig { signers })
    }
}

/// Two signers cannot share a name, nor can two that are to be made share a directory.
fn check_unique(
    item: &ConfigField<'_>,
    signer: &SignerConfig,
    others: &[SignerConfig],
) -> Result<(), ConfigError> {
    let fields = item.fields(&FIELDS)?;
    if others.iter().any(|other| other.name == signer.name) {
        let field = fields.require("name")?;
        return Err(
            field.error(format!("{:?} is the name of another signer", signer.name.as_str()))
        );
    }
    let CaConfig::SelfSigned { directory, .. } = &signer.ca else { return Ok(()) };
    let taken = others.iter().any(
        |other| matches!(&other.ca, CaConfig::SelfSigned { directory: kept, .. } if kept == directory),
    );
    if taken {
        let field = fields.require("ca")?.fields(&CA_FIELDS)?.require("selfSigned")?;
        return Err(field.error("another signer's CA is kept in the same directory"));
    }
    Ok(())
}

const FIELDS: [&str; 5] = ["name", "ca", "requests", "pods", "publish"];
const CA_FIELDS: [&str; 2] = ["files", "selfSigned"];

fn parse_signer(item: &ConfigField<'_>) -> Result<SignerConfig, ConfigError> {
    let fields = item.fields(&FIELDS)?;
    let name = parse_name(&fields.require("name")?)?;
    let ca = parse_ca(&fields.require("ca")?, &name)?;
    let requests = fields.read("requests", RequestProfile::parse)?;
    let pods = fields.read("pods", PodProfile::parse)?;
    if requests.is_none() && pods.is_none() {
        return Err(item.error("has neither requests nor pods: it would sign nothing"));
    }
    let publish = fields.read("publish", |section| parse_publication(section, &name))?;
    Ok(SignerConfig { name, ca, requests, pods, publish })
}

fn parse_name(field: &ConfigField<'_>) -> Result<SignerName, ConfigError> {
    let text = field.text()?;
    let mut errors = FieldErrors::new();
    let Some(name) = SignerName::parse(&FieldPath::new("name"), text, &mut errors) else {
        let why = errors.iter().next().map(|error| error.message.clone());
        return Err(field.error(why.unwrap_or_default()));
    };
    if name.is_kubernetes() {
        return Err(field.error(format!("{text:?}: names under kubernetes.io are Kubernetes' own")));
    }
    Ok(name)
}

fn parse_ca(section: &ConfigField<'_>, signer: &SignerName) -> Result<CaConfig, ConfigError> {
    let fields = section.fields(&CA_FIELDS)?;
    match (fields.get("files"), fields.get("selfSigned")) {
        (Some(files), None) => {
            let files = files.fields(&["certificate", "key"])?;
            Ok(CaConfig::Files {
                certificate: values::parse_path(&files.require("certificate")?)?,
                key: values::parse_path(&files.require("key")?)?,
            })
        }
        (None, Some(made)) => self::parse_self_signed(&made, signer),
        (None, None) => Err(section.error("needs one of files and selfSigned")),
        (Some(_), Some(_)) => Err(section.error("has both files and selfSigned; give one of them")),
    }
}

fn parse_self_signed(
    section: &ConfigField<'_>,
    signer: &SignerName,
) -> Result<CaConfig, ConfigError> {
    let fields = section.fields(&["directory", "keyType", "commonName", "duration"])?;
    let directory = values::parse_path(&fields.require("directory")?)?;
    let key = fields.read("keyType", |field| values::parse_key_type(field, KeyType::GENERATED))?;
    let subject = match fields.get("commonName") {
        Some(field) => parse_subject(&field, field.text()?)?,
        None => parse_subject(section, signer.as_str())?,
    };
    let lifetime =
        fields.read("duration", |field| values::parse_duration_at_least(field, DAY, "24h"))?;
    let key = key.unwrap_or(KeyType::EcdsaP256);
    Ok(CaConfig::SelfSigned { directory, key, subject, duration: lifetime.unwrap_or(3650 * DAY) })
}

fn parse_subject(field: &ConfigField<'_>, common_name: &str) -> Result<Subject, ConfigError> {
    Subject::new(common_name, &[])
        .map_err(|error| field.error(format!("{common_name:?} is not a common name: {error}")))
}

fn parse_publication(
    section: &ConfigField<'_>,
    signer: &SignerName,
) -> Result<PublicationConfig, ConfigError> {
    let fields = section.fields(&["name", "labels"])?;
    let name = fields.read("name", |field| {
        values::parse_validated_name(field, field.text()?, names::dns1123_subdomain)
    })?;
    let mut labels = BTreeMap::new();
    if let Some(map) = fields.get("labels") {
        for (key, field) in map.pairs()? {
            values::parse_validated_name(&field, key, names::qualified_name)?;
            if key == MANAGED_BY.0 {
                return Err(field.error("is our own label"));
            }
            labels.insert(key.to_owned(), values::parse_label(&field)?);
        }
    }
    let name = name.as_deref().unwrap_or("anchors");
    Ok(PublicationConfig { bundle: format!("{}{name}", signer.bundle_prefix()), labels })
}

#[cfg(test)]
mod tests;
