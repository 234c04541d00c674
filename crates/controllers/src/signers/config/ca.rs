//! The section `ca`: where the certificate and key of a signer's CA come from.

use std::path::PathBuf;
use std::time::Duration;

use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::{KeyType, Subject};
use windlass_runtime::config::{ConfigField, ConfigFields, ConfigResult};

use crate::pkcs11::TokenUri;

use super::{ConfigOrigin, SignerConfig, parse_key_type, parse_signer_name};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const FILE_SOURCES: [&str; 5] = ["files", "selfSigned", "secretName", "pkcs11", "issuerSignerName"];
const OBJECT_SOURCES: [&str; 5] = ["selfSigned", "secretName", "pkcs11", "issuerSignerName", "signersFile"];
/// Fields that are allowed only beside `issuerSignerName`.
const ISSUED_OPTIONS: [&str; 3] = ["keyType", "commonName", "duration"];

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
    /// Self-signed CA in a directory, which is generated on the first start.
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
    /// Self-signed CA in a Secret, which is generated if it is missing and renewed before it expires.
    SelfSignedSecret {
        /// Key type, subject and lifetime of the CA certificate.
        recipe: CaRecipe,
        /// Remaining lifetime at which a new CA replaces it; less than the lifetime.
        renew_before: Duration,
    },
    /// Secret of type `kubernetes.io/tls` that is written by somebody else, and reloaded on change.
    Secret {
        /// Name of the Secret in the signer namespace.
        name: String,
    },
    /// Key in a PKCS#11 token, which does not leave it.
    Pkcs11 {
        /// PKCS#11 URI of the private key (RFC 7512), without module and PIN.
        uri: TokenUri,
        /// Name of the Secret with the certificate chain as `tls.crt`, in the signer namespace.
        certificate_secret: String,
    },
    /// Intermediate CA that another signer issues, with its key in a Secret.
    Issued {
        /// Name of the signer that issues the CA certificate.
        issuer: SignerName,
        /// Key type, subject and lifetime of the CA certificate.
        recipe: CaRecipe,
    },
    /// The CA of the entry for the same signer in the signers file of the controllers.
    SignersFile,
}

/// Properties of a CA that Windlass generates and keeps in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaRecipe {
    /// Algorithm and size of the generated key.
    pub key: KeyType,
    /// Subject of the generated CA certificate.
    pub subject: Subject,
    /// Validity period of the CA certificate, from the time it is issued.
    pub duration: Duration,
}

impl CaConfig {
    pub(super) fn parse(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
        others: &[SignerConfig],
        origin: ConfigOrigin,
    ) -> ConfigResult<CaConfig> {
        let sources = match origin {
            ConfigOrigin::File => FILE_SOURCES,
            ConfigOrigin::Object => OBJECT_SOURCES,
        };
        let known: Vec<&str> = sources.into_iter().chain(ISSUED_OPTIONS).collect();
        let fields = section.fields(&known)?;
        let (source, field) = fields.exactly_one(&sources)?;
        if source != "issuerSignerName" {
            reject_issued_options(&fields)?;
        }
        match source {
            "files" => {
                let fields = field.fields(&["certificate", "key"])?;
                let certificate = fields.required("certificate", ConfigField::file_path);
                let key = fields.required("key", ConfigField::file_path);
                Ok(CaConfig::Files { certificate: certificate?, key: key? })
            }
            "selfSigned" => CaConfig::parse_self_signed(&field, signer, others, origin),
            "secretName" => Ok(CaConfig::Secret { name: field.valid_name(names::dns1123_subdomain)? }),
            "pkcs11" => CaConfig::parse_pkcs11(&field),
            "issuerSignerName" => CaConfig::parse_issued(&field, section, &fields, signer),
            _ => field.fields(&[]).map(|_| CaConfig::SignersFile),
        }
    }

    fn parse_self_signed(
        section: &ConfigField<'_>,
        signer: ConfigResult<&SignerName>,
        others: &[SignerConfig],
        origin: ConfigOrigin,
    ) -> ConfigResult<CaConfig> {
        let fields = match origin {
            ConfigOrigin::File => {
                section.fields(&["directory", "keyType", "commonName", "duration", "renewBefore"])?
            }
            ConfigOrigin::Object => section.fields(&["keyType", "commonName", "duration", "renewBefore"])?,
        };
        let directory = fields.optional("directory", |field| {
            let directory = field.file_path()?;
            if others.iter().any(|other| other.ca.self_signed_directory() == Some(&directory)) {
                let detail = "is the CA directory of another signer; use another directory";
                return Err(field.invalid(detail));
            }
            Ok(directory)
        });
        let recipe = CaRecipe::parse(section, &fields, signer, 3650 * DAY);
        let renew_before = fields.optional("renewBefore", |field| {
            if directory.as_ref().is_ok_and(Option::is_some) {
                return Err(field.error("has no effect with directory; remove one of them"));
            }
            match (field.duration()?, &recipe) {
                (long, Ok(recipe)) if long >= recipe.duration => {
                    Err(field.invalid("is not shorter than the duration; shorten it"))
                }
                (duration, _) => Ok(duration),
            }
        });
        let recipe = recipe?;
        Ok(match (directory?, renew_before?) {
            (Some(directory), _) => CaConfig::SelfSigned {
                directory,
                key: recipe.key,
                subject: recipe.subject,
                duration: recipe.duration,
            },
            (None, renew_before) => {
                let renew_before = renew_before.unwrap_or_else(|| recipe.default_renew_before());
                CaConfig::SelfSignedSecret { recipe, renew_before }
            }
        })
    }

    fn parse_pkcs11(section: &ConfigField<'_>) -> ConfigResult<CaConfig> {
        let fields = section.fields(&["uri", "certificateSecretName"])?;
        let uri = fields.required("uri", |field| {
            field.text()?.parse::<TokenUri>().map_err(|error| field.error(error.to_string()))
        });
        let certificate_secret =
            fields.required("certificateSecretName", |field| field.valid_name(names::dns1123_subdomain));
        Ok(CaConfig::Pkcs11 { uri: uri?, certificate_secret: certificate_secret? })
    }

    fn parse_issued(
        field: &ConfigField<'_>,
        section: &ConfigField<'_>,
        fields: &ConfigFields<'_>,
        signer: ConfigResult<&SignerName>,
    ) -> ConfigResult<CaConfig> {
        let issuer = parse_signer_name(field).and_then(|issuer| match signer {
            Ok(signer) if *signer == issuer => {
                Err(field.invalid("is the signer itself; use another signer, or selfSigned"))
            }
            _ => Ok(issuer),
        });
        let recipe = CaRecipe::parse(section, fields, signer, 365 * DAY);
        Ok(CaConfig::Issued { issuer: issuer?, recipe: recipe? })
    }

    fn self_signed_directory(&self) -> Option<&PathBuf> {
        match self {
            CaConfig::SelfSigned { directory, .. } => Some(directory),
            _ => None,
        }
    }

    /// Whether objects cannot describe this CA, because it is in files of the controllers.
    pub fn is_local(&self) -> bool {
        matches!(self, CaConfig::Files { .. } | CaConfig::SelfSigned { .. })
    }
}

impl CaRecipe {
    fn parse(
        section: &ConfigField<'_>,
        fields: &ConfigFields<'_>,
        signer: ConfigResult<&SignerName>,
        default_duration: Duration,
    ) -> ConfigResult<CaRecipe> {
        let key = fields.optional("keyType", |field| parse_key_type(field, KeyType::GENERATED));
        let subject = match fields.get("commonName") {
            Some(field) => field.text().and_then(|text| parse_subject(&field, text)),
            None => signer.and_then(|signer| parse_subject(section, signer.as_str())),
        };
        let duration = fields.optional("duration", |field| field.duration_at_least(DAY));
        Ok(CaRecipe {
            key: key?.unwrap_or(KeyType::EcdsaP256),
            subject: subject?,
            duration: duration?.unwrap_or(default_duration),
        })
    }

    /// Returns the remaining lifetime at which the CA is renewed if nothing else is configured: a third of it.
    pub fn default_renew_before(&self) -> Duration {
        self.duration / 3
    }
}

fn reject_issued_options(fields: &ConfigFields<'_>) -> ConfigResult<()> {
    let set = ISSUED_OPTIONS.iter().filter_map(|name| fields.get(name));
    let errors: Vec<_> =
        set.map(|field| field.error("has no effect without issuerSignerName; remove it")).collect();
    errors.first().map_or(Ok(()), |error| Err(*error))
}

fn parse_subject(field: &ConfigField<'_>, common_name: &str) -> ConfigResult<Subject> {
    Subject::new(common_name, &[])
        .map_err(|error| field.error(format!("{common_name:?} is not valid as a common name: {error}")))
}
