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

use windlass_api::field::{Errors, Path as FieldPath};
use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::{KeyKind, Subject};

use document::{Document, Field, MAX_BYTES};

pub use document::ConfigError;
pub use pattern::{AddressBlock, Pattern, Requester};
pub use pods::PodProfile;
pub use requests::{Approval, KeyType, RequestProfile, Requesters};

/// By this label we know what we made. What is without it is somebody else's.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "windlass");

/// The user's own signers, as their file describes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Signers {
    /// In the order of the file; no two have the same name.
    pub signers: Vec<Custom>,
}

/// A signer of the user's own. It signs requests, or for pods, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom {
    /// Its name; not one of Kubernetes' own.
    pub name: SignerName,
    /// What it signs with.
    pub ca: CaChoice,
    /// Which requests it signs; `None` if none.
    pub requests: Option<RequestProfile>,
    /// What it gives to pods; `None` if nothing.
    pub pods: Option<PodProfile>,
    /// How its anchors are published; `None` if they are not.
    pub publish: Option<Publication>,
}

/// Where a CA comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaChoice {
    /// From files that somebody else writes.
    Files {
        /// The CA's certificate, perhaps followed by those that vouch for it.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// It is made once and kept.
    Made {
        /// Where it is kept.
        directory: PathBuf,
        /// What kind of key it gets.
        key: KeyKind,
        /// What it is called.
        subject: Subject,
        /// How long it lasts.
        lifetime: Duration,
    },
}

/// How a signer's anchors are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The name of the bundle.
    pub bundle: String,
    /// Its labels, besides our own.
    pub labels: BTreeMap<String, String>,
}

const API_VERSION: &str = "windlass.dev/v1";
const KIND: &str = "Signers";
const MADE_KEYS: [(&str, KeyKind); 5] = [
    ("ECDSAP256", KeyKind::P256),
    ("ECDSAP384", KeyKind::P384),
    ("RSA3072", KeyKind::Rsa3072),
    ("RSA4096", KeyKind::Rsa4096),
    ("ED25519", KeyKind::Ed25519),
];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Signers {
    /// Reads a file.
    pub fn load(file: &Path) -> Result<Signers, ConfigError> {
        let read = || {
            let mut text = String::new();
            let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
            std::fs::File::open(file)?.take(limit).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error: std::io::Error| {
            ConfigError::of_file(file, format!("cannot read it: {error}"))
        })?;
        Signers::parse(file, &text)
    }

    /// Reads the text of a file.
    pub fn parse(file: &Path, text: &str) -> Result<Signers, ConfigError> {
        let document = Document::parse(file, text)?;
        let root = document.root().fields(&["apiVersion", "kind", "signers"])?;
        for (name, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let field = root.need(name)?;
            let found = field.text()?;
            if found != wanted {
                return Err(field.error(format!("{found:?} is not {wanted}")));
            }
        }
        let mut signers: Vec<Custom> = Vec::new();
        for item in root.need("signers")?.items()? {
            let signer = signer(&item)?;
            check_differs(&item, &signer, &signers)?;
            signers.push(signer);
        }
        Ok(Signers { signers })
    }
}

/// Two signers cannot share a name, nor can two that are to be made share a directory.
fn check_differs(item: &Field<'_>, signer: &Custom, others: &[Custom]) -> Result<(), ConfigError> {
    let fields = item.fields(&FIELDS)?;
    if others.iter().any(|other| other.name == signer.name) {
        let field = fields.need("name")?;
        return Err(
            field.error(format!("{:?} is the name of another signer", signer.name.as_str()))
        );
    }
    let CaChoice::Made { directory, .. } = &signer.ca else { return Ok(()) };
    let taken = others.iter().any(
        |other| matches!(&other.ca, CaChoice::Made { directory: kept, .. } if kept == directory),
    );
    if taken {
        let field = fields.need("ca")?.fields(&CA_FIELDS)?.need("selfSigned")?;
        return Err(field.error("another signer's CA is kept in the same directory"));
    }
    Ok(())
}

const FIELDS: [&str; 5] = ["name", "ca", "requests", "pods", "publish"];
const CA_FIELDS: [&str; 2] = ["files", "selfSigned"];

fn signer(item: &Field<'_>) -> Result<Custom, ConfigError> {
    let fields = item.fields(&FIELDS)?;
    let name = name(&fields.need("name")?)?;
    let ca = ca(&fields.need("ca")?, &name)?;
    let requests = fields.read("requests", RequestProfile::read)?;
    let pods = fields.read("pods", PodProfile::read)?;
    if requests.is_none() && pods.is_none() {
        return Err(item.error("has neither requests nor pods: it would sign nothing"));
    }
    let publish = fields.read("publish", |section| publication(section, &name))?;
    Ok(Custom { name, ca, requests, pods, publish })
}

fn name(field: &Field<'_>) -> Result<SignerName, ConfigError> {
    let text = field.text()?;
    let mut errors = Errors::new();
    let Some(name) = SignerName::parse(&FieldPath::new("name"), text, &mut errors) else {
        let why = errors.iter().next().map(|error| error.message.clone());
        return Err(field.error(why.unwrap_or_default()));
    };
    if name.is_kubernetes() {
        return Err(field.error(format!("{text:?}: names under kubernetes.io are Kubernetes' own")));
    }
    Ok(name)
}

fn ca(section: &Field<'_>, signer: &SignerName) -> Result<CaChoice, ConfigError> {
    let fields = section.fields(&CA_FIELDS)?;
    match (fields.get("files"), fields.get("selfSigned")) {
        (Some(files), None) => {
            let files = files.fields(&["certificate", "key"])?;
            Ok(CaChoice::Files {
                certificate: values::path(&files.need("certificate")?)?,
                key: values::path(&files.need("key")?)?,
            })
        }
        (None, Some(made)) => self::made(&made, signer),
        (None, None) => Err(section.error("needs one of files and selfSigned")),
        (Some(_), Some(_)) => Err(section.error("has both files and selfSigned; give one of them")),
    }
}

fn made(section: &Field<'_>, signer: &SignerName) -> Result<CaChoice, ConfigError> {
    let fields = section.fields(&["directory", "keyType", "commonName", "duration"])?;
    let directory = values::path(&fields.need("directory")?)?;
    let key = fields.read("keyType", |field| values::one_of(field, &MADE_KEYS))?;
    let subject = match fields.get("commonName") {
        Some(field) => subject(&field, field.text()?)?,
        None => subject(section, signer.as_str())?,
    };
    let lifetime =
        fields.read("duration", |field| values::duration_of_at_least(field, DAY, "24h"))?;
    let key = key.unwrap_or(KeyKind::P256);
    Ok(CaChoice::Made { directory, key, subject, lifetime: lifetime.unwrap_or(3650 * DAY) })
}

fn subject(field: &Field<'_>, common_name: &str) -> Result<Subject, ConfigError> {
    Subject::new(common_name, &[])
        .map_err(|error| field.error(format!("{common_name:?} is not a common name: {error}")))
}

fn publication(section: &Field<'_>, signer: &SignerName) -> Result<Publication, ConfigError> {
    let fields = section.fields(&["name", "labels"])?;
    let name = fields
        .read("name", |field| values::named(field, field.text()?, names::dns1123_subdomain))?;
    let mut labels = BTreeMap::new();
    if let Some(map) = fields.get("labels") {
        for (key, field) in map.pairs()? {
            values::named(&field, key, names::qualified_name)?;
            if key == MANAGED_BY.0 {
                return Err(field.error("is our own label"));
            }
            labels.insert(key.to_owned(), values::label(&field)?);
        }
    }
    let name = name.as_deref().unwrap_or("anchors");
    Ok(Publication { bundle: format!("{}{name}", signer.bundle_prefix()), labels })
}

#[cfg(test)]
mod tests;
