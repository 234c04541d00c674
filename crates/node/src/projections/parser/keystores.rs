//! Files of other formats.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_pki::Pkcs12Profile;
use windlass_pki::limits::MAX_ALIAS_CHARACTERS;

use super::super::keystores::{KeystoreFile, KeystoreKind};
use super::super::secret::{Passphrase, SecretText};
use super::fields::FieldReader;
use super::{absolute, fields};
use crate::volume::definition::{ProjectedSource, VolumeDefinition};
use crate::volume::path::VolumePath;
use crate::volume::payload::{PayloadFile, VolumePayload};
use windlass_runtime::durable::FileSystem;

const FORMATS: [&str; 2] = ["PKCS12", "JKS"];

/// Parses the `keystores` section of one projection.
pub struct KeystoresParser<'a> {
    /// File system access for reading password files.
    pub files: &'a FileSystem,
    /// What a key is called of which nothing is said.
    pub default_alias: String,
}

/// What is said of how a store is protected.
struct KeystoreProtection {
    at: FieldPath,
    passphrase: Option<Passphrase>,
    profile: Option<Pkcs12Profile>,
}

impl KeystoresParser<'_> {
    /// Parses the list of keystores and checks their paths against the volume's.
    pub fn read(
        &self,
        items: Vec<(FieldPath, Value)>,
        definition: Option<&VolumeDefinition>,
        errors: &mut FieldErrors,
    ) -> Vec<KeystoreFile> {
        let mut taken = definition.map(ReservedPaths::new);
        let mut stores = Vec::new();
        for (at, item) in items {
            let store = FieldReader::from_value(item, &at, errors)
                .and_then(|item| self.store(item, errors));
            if let (Some(store), Some(taken)) = (&store, &mut taken) {
                taken.check(store, &at, errors);
            }
            stores.extend(store);
        }
        stores
    }

    fn store(&self, mut item: FieldReader, errors: &mut FieldErrors) -> Option<KeystoreFile> {
        let path = path(&mut item, "path", true, errors);
        let format = item.require_text("format", errors);
        let profile = item.text("profile", errors);
        let profile = profile.and_then(|name| {
            let profile = Pkcs12Profile::from_name(&name);
            if profile.is_none() {
                let known = Pkcs12Profile::ALL.map(Pkcs12Profile::name);
                errors.not_supported(&item.child("profile"), &name, &known);
            }
            profile
        });
        let passphrase = self.passphrase(&mut item, errors);
        let protection = KeystoreProtection { at: item.path().clone(), passphrase, profile };
        let kind = match (format.as_deref(), item.has("trustAnchorsPath"), item.has("keyPath")) {
            (Some("PKCS12"), true, false) => pkcs12_trust(&mut item, protection, errors),
            (Some("JKS"), true, false) => jks_trust(&mut item, protection, errors),
            (Some("PKCS12"), false, true) => self.pkcs12_key(&mut item, protection, errors),
            (Some("JKS"), false, true) => {
                let detail = "a key store is PKCS12, which every Java since 8 reads";
                errors.forbidden(&item.child("keyPath"), detail);
                return None;
            }
            (Some("PKCS12" | "JKS"), false, false) => {
                errors.required(item.path(), "one of trustAnchorsPath and keyPath is required");
                return None;
            }
            (Some("PKCS12" | "JKS"), true, true) => {
                errors
                    .forbidden(item.path(), "only one of trustAnchorsPath and keyPath may be used");
                return None;
            }
            (Some(other), ..) => {
                errors.not_supported(&item.child("format"), other, &FORMATS);
                return None;
            }
            (None, ..) => return None,
        };
        for name in ["alias", "certificateChainPath"] {
            if item.take(name).is_some() {
                errors.forbidden(&item.child(name), "applies to key stores only");
            }
        }
        item.end(errors);
        Some(KeystoreFile { path: path?, kind: kind? })
    }

    fn pkcs12_key(
        &self,
        item: &mut FieldReader,
        protection: KeystoreProtection,
        errors: &mut FieldErrors,
    ) -> Option<KeystoreKind> {
        let key = path(item, "keyPath", true, errors);
        let chain = path(item, "certificateChainPath", false, errors);
        let alias = item.text("alias", errors);
        if let Some(alias) = &alias
            && !(1..=MAX_ALIAS_CHARACTERS).contains(&alias.chars().count())
        {
            let detail = format!("must have between 1 and {MAX_ALIAS_CHARACTERS} characters");
            errors.invalid_str(&item.child("alias"), alias, &detail);
        }
        let alias = alias.unwrap_or_else(|| self.default_alias.clone());
        let profile = protection.profile.unwrap_or(Pkcs12Profile::Modern2023);
        let password = protection.needed(errors);
        Some(KeystoreKind::Pkcs12Key { key: key?, chain, alias, password: password?, profile })
    }

    fn passphrase(&self, item: &mut FieldReader, errors: &mut FieldErrors) -> Option<Passphrase> {
        let file = item.text("passwordFile", errors);
        let given = item.take("password");
        if file.is_some() && given.is_some() {
            errors.forbidden(item.path(), "only one of password and passwordFile may be used");
            return None;
        }
        if let Some(file) = file {
            let path = absolute(&file, &item.child("passwordFile"), errors)?;
            return Some(Passphrase::read(&path, self.files));
        }
        let at = item.child("password");
        let secret = SecretText::new(fields::text(given?, &at, errors)?);
        if let Err(error) = secret.password() {
            errors.invalid_omitted(&at, &error.to_string());
        }
        Some(Passphrase::Given(secret))
    }
}

impl KeystoreProtection {
    fn needed(self, errors: &mut FieldErrors) -> Option<Passphrase> {
        if self.passphrase.is_none() {
            errors.required(&self.at, "one of password and passwordFile is required");
        }
        self.passphrase
    }
}

fn pkcs12_trust(
    item: &mut FieldReader,
    protection: KeystoreProtection,
    errors: &mut FieldErrors,
) -> Option<KeystoreKind> {
    let trust = path(item, "trustAnchorsPath", true, errors);
    let KeystoreProtection { at, passphrase, profile } = protection;
    if passphrase.is_none() && profile.is_some() {
        errors.forbidden(&at.child("profile"), "nothing is protected without a password");
    }
    let seal =
        passphrase.map(|passphrase| (passphrase, profile.unwrap_or(Pkcs12Profile::Modern2023)));
    Some(KeystoreKind::Pkcs12Trust { trust: trust?, seal })
}

fn jks_trust(
    item: &mut FieldReader,
    protection: KeystoreProtection,
    errors: &mut FieldErrors,
) -> Option<KeystoreKind> {
    let trust = path(item, "trustAnchorsPath", true, errors);
    if protection.profile.is_some() {
        errors.forbidden(&protection.at.child("profile"), "is for PKCS12");
    }
    let password = protection.needed(errors);
    Some(KeystoreKind::JksTrust { trust: trust?, password: password? })
}

/// A path in the volume.
fn path(
    item: &mut FieldReader,
    name: &str,
    is_needed: bool,
    errors: &mut FieldErrors,
) -> Option<VolumePath> {
    if !is_needed && !item.has(name) {
        return None;
    }
    let text = item.require_text(name, errors)?;
    let path = VolumePath::parse(&text);
    let told = |error: &_| errors.invalid_str(&item.child(name), &text, &format!("{error}"));
    path.inspect_err(told).ok()
}

/// What is where in a volume, as far as that is known before its objects are.
struct ReservedPaths {
    sources: VolumePayload,
    all: VolumePayload,
    /// Whether an object may bring files of any name.
    is_open: bool,
}

impl ReservedPaths {
    fn new(definition: &VolumeDefinition) -> Self {
        let mut taken = Self {
            sources: VolumePayload::default(),
            all: VolumePayload::default(),
            is_open: false,
        };
        for (_, source) in &definition.sources {
            let paths = match source {
                ProjectedSource::Bundle(bundle) => vec![&bundle.path],
                ProjectedSource::Certificate(certificate) => {
                    let paths = [&certificate.bundle, &certificate.key, &certificate.chain];
                    paths.into_iter().flatten().collect()
                }
                ProjectedSource::ConfigMap(object) | ProjectedSource::Secret(object) => {
                    taken.is_open |= object.items.is_empty();
                    object.items.iter().map(|item| &item.path).collect()
                }
                ProjectedSource::Token(token) => vec![&token.path],
                ProjectedSource::Downward(files) => files.iter().map(|file| &file.path).collect(),
            };
            for path in paths {
                // Where sources are in each other's way, that is told of them.
                let _ = taken.sources.add(path.clone(), PayloadFile::new([], 0));
                let _ = taken.all.add(path.clone(), PayloadFile::new([], 0));
            }
        }
        taken
    }

    fn check(&mut self, store: &KeystoreFile, at: &FieldPath, errors: &mut FieldErrors) {
        for (field, input) in store.kind.inputs() {
            if !self.is_open && self.sources.get(input).is_none() {
                let detail = "no source of this volume has this path";
                errors.not_found_because(&at.child(field), input.as_str(), detail);
            }
        }
        if let Err(error) = self.all.add(store.path.clone(), PayloadFile::new([], 0)) {
            errors.invalid_str(&at.child("path"), store.path.as_str(), &error.to_string());
        }
    }
}
