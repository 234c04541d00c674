//! The section `keystores`: files of other formats than PEM.

use windlass_pki::Pkcs12Profile;
use windlass_pki::limits::MAX_ALIAS_CHARACTERS;
use windlass_runtime::config::{ConfigField, ConfigFields, ConfigResult};

use super::super::keystores::{KeystoreFile, KeystoreKind};
use super::super::secret::{Passphrase, SecretText};
use super::{parse_absolute_path, parse_volume_path};
use crate::volume::definition::VolumeDefinition;
use crate::volume::path::VolumePath;
use crate::volume::payload::{PayloadFile, VolumePayload};
use windlass_runtime::durable::FileSystem;

#[derive(Clone, Copy)]
enum KeystoreFormat {
    Pkcs12,
    Jks,
}

const FORMATS: [(&str, KeystoreFormat); 2] =
    [("PKCS12", KeystoreFormat::Pkcs12), ("JKS", KeystoreFormat::Jks)];

/// Parses the `keystores` section of one projection.
pub struct KeystoresParser<'a> {
    /// File system access for reading password files.
    pub files: &'a FileSystem,
    /// Alias of keys that have none in the file.
    pub default_alias: &'a str,
}

/// Protection of a keystore, as far as it is configured.
struct KeystoreProtection {
    passphrase: Option<Passphrase>,
    profile: Option<Pkcs12Profile>,
}

impl KeystoresParser<'_> {
    /// Parses the list of keystores. Their paths are checked against the volume, if its definition is valid.
    pub fn parse(
        &self,
        list: &ConfigField<'_>,
        definition: Option<&VolumeDefinition>,
    ) -> ConfigResult<Vec<KeystoreFile>> {
        let mut reserved = definition.map(ReservedPaths::new);
        list.sensitive().parse_items(|item| {
            let fields = item.fields(&[
                "path",
                "format",
                "trustAnchorsPath",
                "keyPath",
                "certificateChainPath",
                "alias",
                "profile",
                "password",
                "passwordFile",
            ])?;
            let path = fields.required("path", parse_volume_path);
            let kind = self.parse_kind(item, &fields);
            let store = KeystoreFile { path: path?, kind: kind? };
            match &mut reserved {
                Some(reserved) => reserved.check(&store, &fields).map(|()| store),
                None => Ok(store),
            }
        })
    }

    fn parse_kind(&self, item: &ConfigField<'_>, fields: &ConfigFields<'_>) -> ConfigResult<KeystoreKind> {
        let format = fields.required("format", |field| field.one_of(&FORMATS));
        let profiles = Pkcs12Profile::ALL.map(|profile| (profile.name(), profile));
        let profile = fields.optional("profile", |field| field.one_of(&profiles));
        let passphrase = self.parse_passphrase(fields);
        let source = fields.exactly_one(&["trustAnchorsPath", "keyPath"]);
        let (format, source) = (format?, source?);
        let protection = KeystoreProtection { passphrase: passphrase?, profile: profile? };
        match (format, source) {
            (KeystoreFormat::Pkcs12, ("keyPath", key)) => {
                self.parse_key_store(item, fields, &key, protection)
            }
            (KeystoreFormat::Jks, ("keyPath", key)) => {
                Err(key.error("needs the format PKCS12, which Java 8 and newer can read"))
            }
            (format, (_, trust)) => {
                let unused = reject_fields(
                    fields,
                    &["alias", "certificateChainPath"],
                    "applies only to key stores; remove it",
                );
                let trust = parse_volume_path(&trust);
                let kind = match format {
                    KeystoreFormat::Pkcs12 => protection.pkcs12_trust(fields, trust),
                    KeystoreFormat::Jks => protection.jks_trust(item, fields, trust),
                };
                unused.and(kind)
            }
        }
    }

    fn parse_key_store(
        &self,
        item: &ConfigField<'_>,
        fields: &ConfigFields<'_>,
        key: &ConfigField<'_>,
        protection: KeystoreProtection,
    ) -> ConfigResult<KeystoreKind> {
        let key = parse_volume_path(key);
        let chain = fields.optional("certificateChainPath", parse_volume_path);
        let alias = fields.optional("alias", |field| {
            let alias = field.text()?;
            if alias.chars().count() > MAX_ALIAS_CHARACTERS {
                return Err(
                    field.invalid(format!("has more than {MAX_ALIAS_CHARACTERS} characters; shorten it"))
                );
            }
            Ok(alias.to_owned())
        });
        let profile = protection.profile.unwrap_or(Pkcs12Profile::Modern2023);
        let password = protection.require_password(item);
        Ok(KeystoreKind::Pkcs12Key {
            key: key?,
            chain: chain?,
            alias: alias?.unwrap_or_else(|| self.default_alias.to_owned()),
            password: password?,
            profile,
        })
    }

    fn parse_passphrase(&self, fields: &ConfigFields<'_>) -> ConfigResult<Option<Passphrase>> {
        let names = ["password", "passwordFile"];
        if names.iter().all(|name| fields.get(name).is_none()) {
            return Ok(None);
        }
        match fields.exactly_one(&names)? {
            ("passwordFile", field) => Ok(Some(Passphrase::read(&parse_absolute_path(&field)?, self.files))),
            (_, field) => {
                let secret = SecretText::new(field.text_or_empty()?.to_owned());
                secret.password().map_err(|error| field.error(error.to_string()))?;
                Ok(Some(Passphrase::Given(secret)))
            }
        }
    }
}

impl KeystoreProtection {
    fn require_password(self, item: &ConfigField<'_>) -> ConfigResult<Passphrase> {
        self.passphrase.ok_or_else(|| item.error("needs one of password and passwordFile"))
    }

    fn pkcs12_trust(
        self,
        fields: &ConfigFields<'_>,
        trust: ConfigResult<VolumePath>,
    ) -> ConfigResult<KeystoreKind> {
        if self.passphrase.is_none() {
            reject_fields(fields, &["profile"], "has no effect without a password; add one")?;
        }
        let profile = self.profile.unwrap_or(Pkcs12Profile::Modern2023);
        let seal = self.passphrase.map(|passphrase| (passphrase, profile));
        Ok(KeystoreKind::Pkcs12Trust { trust: trust?, seal })
    }

    fn jks_trust(
        self,
        item: &ConfigField<'_>,
        fields: &ConfigFields<'_>,
        trust: ConfigResult<VolumePath>,
    ) -> ConfigResult<KeystoreKind> {
        let unused = reject_fields(fields, &["profile"], "applies only to PKCS12; remove it");
        let password = self.require_password(item);
        unused?;
        Ok(KeystoreKind::JksTrust { trust: trust?, password: password? })
    }
}

/// Reports those of these fields that are set.
fn reject_fields(fields: &ConfigFields<'_>, names: &[&str], message: &str) -> ConfigResult<()> {
    let rejected = names.iter().filter_map(|name| fields.get(name));
    rejected.map(|field| Err(field.error(message))).fold(Ok(()), ConfigResult::and)
}

/// Paths of a volume, as far as they are known without its ConfigMaps and Secrets.
struct ReservedPaths {
    sources: VolumePayload,
    all: VolumePayload,
    /// Whether a ConfigMap or Secret may add files with any name.
    is_open: bool,
}

impl ReservedPaths {
    fn new(definition: &VolumeDefinition) -> Self {
        let mut taken =
            Self { sources: VolumePayload::default(), all: VolumePayload::default(), is_open: false };
        for (_, source) in &definition.sources {
            taken.is_open |= source.object().is_some_and(|object| object.items.is_empty());
            for path in source.paths() {
                // Conflicts between sources are reported when the volume is planned.
                let _ = taken.sources.add(path.clone(), PayloadFile::new([], 0));
                let _ = taken.all.add(path.clone(), PayloadFile::new([], 0));
            }
        }
        taken
    }

    fn check(&mut self, store: &KeystoreFile, fields: &ConfigFields<'_>) -> ConfigResult<()> {
        let mut checked = Ok(());
        for (name, input) in store.kind.inputs() {
            if !self.is_open && self.sources.get(input).is_none() {
                let detail = "is not a file of this volume; use the path of a source";
                checked = checked.and(fields.required(name, |field| Err(field.invalid(detail))));
            }
        }
        if self.all.add(store.path.clone(), PayloadFile::new([], 0)).is_err() {
            let detail = "conflicts with another path of the volume; use another path";
            checked = checked.and(fields.required("path", |field| Err(field.invalid(detail))));
        }
        checked
    }
}
