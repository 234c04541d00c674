//! Files of other formats.

use serde_json::Value;
use windlass_api::field::{Errors, Path};
use windlass_pki::Profile;
use windlass_pki::limits::MAX_ALIAS_CHARACTERS;

use super::super::secret::{Passphrase, Secret};
use super::super::stores::{Store, StoreKind};
use super::fields::Fields;
use super::{absolute, fields};
use crate::files::Files;
use crate::volume::definition::{Definition, Source};
use crate::volume::path::VolumePath;
use crate::volume::payload::{File, Payload};

const FORMATS: [&str; 2] = ["PKCS12", "JKS"];

/// Reads stores.
pub struct Reader<'a> {
    /// Where passwords are.
    pub files: &'a Files,
    /// What a key is called of which nothing is said.
    pub default_alias: String,
}

/// What is said of how a store is protected.
struct Protection {
    at: Path,
    passphrase: Option<Passphrase>,
    profile: Option<Profile>,
}

impl Reader<'_> {
    /// Reads `stores`.
    pub fn read(
        &self,
        items: Vec<(Path, Value)>,
        definition: Option<&Definition>,
        errors: &mut Errors,
    ) -> Vec<Store> {
        let mut taken = definition.map(Taken::new);
        let mut stores = Vec::new();
        for (at, item) in items {
            let store = Fields::of(item, &at, errors).and_then(|item| self.store(item, errors));
            if let (Some(store), Some(taken)) = (&store, &mut taken) {
                taken.check(store, &at, errors);
            }
            stores.extend(store);
        }
        stores
    }

    fn store(&self, mut item: Fields, errors: &mut Errors) -> Option<Store> {
        let path = path(&mut item, "path", true, errors);
        let format = item.need_text("format", errors);
        let profile = item.text("profile", errors);
        let profile = profile.and_then(|name| {
            let profile = Profile::from_name(&name);
            if profile.is_none() {
                let known = Profile::ALL.map(Profile::name);
                errors.not_supported(&item.child("profile"), &name, &known);
            }
            profile
        });
        let passphrase = self.passphrase(&mut item, errors);
        let protection = Protection { at: item.at().clone(), passphrase, profile };
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
                errors.required(item.at(), "one of trustAnchorsPath and keyPath is required");
                return None;
            }
            (Some("PKCS12" | "JKS"), true, true) => {
                errors.forbidden(item.at(), "only one of trustAnchorsPath and keyPath may be used");
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
        Some(Store { path: path?, kind: kind? })
    }

    fn pkcs12_key(
        &self,
        item: &mut Fields,
        protection: Protection,
        errors: &mut Errors,
    ) -> Option<StoreKind> {
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
        let profile = protection.profile.unwrap_or(Profile::Modern2023);
        let password = protection.needed(errors);
        Some(StoreKind::Pkcs12Key { key: key?, chain, alias, password: password?, profile })
    }

    fn passphrase(&self, item: &mut Fields, errors: &mut Errors) -> Option<Passphrase> {
        let file = item.text("passwordFile", errors);
        let given = item.take("password");
        if file.is_some() && given.is_some() {
            errors.forbidden(item.at(), "only one of password and passwordFile may be used");
            return None;
        }
        if let Some(file) = file {
            let path = absolute(&file, &item.child("passwordFile"), errors)?;
            return Some(Passphrase::read(&path, self.files));
        }
        let at = item.child("password");
        let secret = Secret::new(fields::text(given?, &at, errors)?);
        if let Err(error) = secret.password() {
            errors.invalid_omitted(&at, &error.to_string());
        }
        Some(Passphrase::Given(secret))
    }
}

impl Protection {
    fn needed(self, errors: &mut Errors) -> Option<Passphrase> {
        if self.passphrase.is_none() {
            errors.required(&self.at, "one of password and passwordFile is required");
        }
        self.passphrase
    }
}

fn pkcs12_trust(
    item: &mut Fields,
    protection: Protection,
    errors: &mut Errors,
) -> Option<StoreKind> {
    let trust = path(item, "trustAnchorsPath", true, errors);
    let Protection { at, passphrase, profile } = protection;
    if passphrase.is_none() && profile.is_some() {
        errors.forbidden(&at.child("profile"), "nothing is protected without a password");
    }
    let seal = passphrase.map(|passphrase| (passphrase, profile.unwrap_or(Profile::Modern2023)));
    Some(StoreKind::Pkcs12Trust { trust: trust?, seal })
}

fn jks_trust(item: &mut Fields, protection: Protection, errors: &mut Errors) -> Option<StoreKind> {
    let trust = path(item, "trustAnchorsPath", true, errors);
    if protection.profile.is_some() {
        errors.forbidden(&protection.at.child("profile"), "is for PKCS12");
    }
    let password = protection.needed(errors);
    Some(StoreKind::JksTrust { trust: trust?, password: password? })
}

/// A path in the volume.
fn path(item: &mut Fields, name: &str, is_needed: bool, errors: &mut Errors) -> Option<VolumePath> {
    if !is_needed && !item.has(name) {
        return None;
    }
    let text = item.need_text(name, errors)?;
    let path = VolumePath::parse(&text);
    let told = |error: &_| errors.invalid_str(&item.child(name), &text, &format!("{error}"));
    path.inspect_err(told).ok()
}

/// What is where in a volume, as far as that is known before its objects are.
struct Taken {
    sources: Payload,
    /// The same, with stores.
    all: Payload,
    /// Whether an object may bring files of any name.
    is_open: bool,
}

impl Taken {
    fn new(definition: &Definition) -> Self {
        let mut taken =
            Self { sources: Payload::default(), all: Payload::default(), is_open: false };
        for (_, source) in &definition.sources {
            let paths = match source {
                Source::Bundle(bundle) => vec![&bundle.path],
                Source::Certificate(certificate) => {
                    let paths = [&certificate.bundle, &certificate.key, &certificate.chain];
                    paths.into_iter().flatten().collect()
                }
                Source::ConfigMap(object) | Source::Secret(object) => {
                    taken.is_open |= object.items.is_empty();
                    object.items.iter().map(|item| &item.path).collect()
                }
                Source::Token(token) => vec![&token.path],
                Source::Downward(files) => files.iter().map(|file| &file.path).collect(),
            };
            for path in paths {
                // Where sources are in each other's way, that is told of them.
                let _ = taken.sources.add(path.clone(), File::new([], 0));
                let _ = taken.all.add(path.clone(), File::new([], 0));
            }
        }
        taken
    }

    fn check(&mut self, store: &Store, at: &Path, errors: &mut Errors) {
        for (field, input) in store.kind.inputs() {
            if !self.is_open && self.sources.get(input).is_none() {
                let detail = "no source of this volume has this path";
                errors.not_found_because(&at.child(field), input.as_str(), detail);
            }
        }
        if let Err(error) = self.all.add(store.path.clone(), File::new([], 0)) {
            errors.invalid_str(&at.child("path"), store.path.as_str(), &error.to_string());
        }
    }
}
