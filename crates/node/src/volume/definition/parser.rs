//! Parser of volume definitions. It reports all errors, not only the first.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, KeyToPath, PodCertificateProjection,
    ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};
use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::quantity::Quantity;
use windlass_api::selector::labels::{self, LabelSelector};
use windlass_api::signer_name::{SignerName, is_kubernetes, trust_bundle_name_rule};
use windlass_pki::KeyType;

use super::super::path::{PathError, VolumePath};
use super::super::trust_anchors::BundleSelector;
use super::{
    BundleSource, CertificateSource, DEFAULT_MODE, DownwardFile, DownwardValue, ObjectItem, ObjectSource,
    ProjectedSource, TokenSource, VolumeDefinition,
};

/// Bounds of requested lifetimes, in seconds; Kubernetes' own signers issue for at most a day.
const MIN_LIFETIME: i32 = 3600;
const MAX_LIFETIME: i32 = 91 * 86400;
const MAX_KUBERNETES_LIFETIME: i32 = 86400;
const MAX_ANNOTATIONS: usize = 256 * 1024;
const MAX_SELECTOR: usize = 100 * 1024;
const MAX_USER: i64 = i32::MAX as i64;
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// State shared while parsing one definition.
struct DefinitionParser<'a> {
    errors: &'a mut FieldErrors,
    volume: &'a FieldPath,
    /// Paths that sources name. Paths of whole objects are unknown until the objects are.
    taken: BTreeSet<VolumePath>,
    default_owner: Option<u32>,
}

pub fn parse_definition(
    volume: &ProjectedVolumeSource,
    at: &FieldPath,
    errors: &mut FieldErrors,
) -> VolumeDefinition {
    let mut reader = DefinitionParser { errors, volume: at, taken: BTreeSet::new(), default_owner: None };
    let default_mode = reader.mode(volume.default_mode, at, "defaultMode");
    reader.default_owner = reader.user(volume.default_user, at, "defaultUser");
    let mut sources = Vec::new();
    for (index, source) in volume.sources.iter().flatten().enumerate() {
        let at = at.child("sources").index(index);
        let mut found = reader.sources(source, &at);
        if found.len() > 1 {
            reader.errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
        sources.extend(found.pop().map(|source| (index, source)));
    }
    VolumeDefinition { default_mode: default_mode.unwrap_or(DEFAULT_MODE), sources }
}

impl DefinitionParser<'_> {
    /// Returns the source of one list entry, if it is valid.
    fn sources(&mut self, source: &VolumeProjection, at: &FieldPath) -> Vec<ProjectedSource> {
        let mut found = Vec::new();
        if let Some(secret) = &source.secret {
            let at = at.child("secret");
            let object = self.object(&secret.name, secret.optional, secret.items.as_deref(), &at);
            found.push(ProjectedSource::Secret(object));
        }
        if let Some(map) = &source.config_map {
            let at = at.child("configMap");
            let object = self.object(&map.name, map.optional, map.items.as_deref(), &at);
            found.push(ProjectedSource::ConfigMap(object));
        }
        if let Some(downward) = &source.downward_api {
            let at = at.child("downwardAPI");
            let items = downward.items.iter().flatten();
            let files = items.filter_map(|item| self.downward(item, &at)).collect();
            found.push(ProjectedSource::Downward(files));
        }
        if let Some(token) = &source.service_account_token {
            let token = self.token(token, &at.child("serviceAccountToken"));
            found.extend(token.map(ProjectedSource::Token));
        }
        if let Some(bundle) = &source.cluster_trust_bundle {
            let bundle = self.bundle(bundle, &at.child("clusterTrustBundle"));
            found.extend(bundle.map(ProjectedSource::Bundle));
        }
        if let Some(certificate) = &source.pod_certificate {
            let certificate = self.certificate(certificate, &at.child("podCertificate"));
            found.push(ProjectedSource::Certificate(certificate));
        }
        found
    }

    fn object(
        &mut self,
        name: &str,
        optional: Option<bool>,
        items: Option<&[KeyToPath]>,
        at: &FieldPath,
    ) -> ObjectSource {
        if name.is_empty() {
            self.errors.required(&at.child("name"), "");
        }
        let items = items.unwrap_or_default().iter().enumerate();
        let items = items.filter_map(|(index, item)| {
            let at = at.child("items").index(index);
            if item.key.is_empty() {
                self.errors.required(&at.child("key"), "");
            }
            let mode = self.mode(item.mode, &at, "mode");
            let owner = self.owner(item.user, &at);
            let path = self.path(&item.path, &at, "path")?;
            Some(ObjectItem { key: item.key.clone(), path, mode, owner })
        });
        let items = items.collect();
        let (name, optional) = (name.to_owned(), optional.unwrap_or(false));
        ObjectSource { name, optional, items, owner: self.default_owner }
    }

    fn downward(&mut self, file: &DownwardAPIVolumeFile, at: &FieldPath) -> Option<DownwardFile> {
        let value = match (&file.field_ref, &file.resource_field_ref) {
            (Some(_), Some(_)) => {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                self.errors.invalid_str(at, "resource", detail);
                None
            }
            (Some(field), None) => Some(DownwardValue::Field(field.field_path.clone())),
            (None, Some(resource)) => {
                let container = resource.container_name.clone().unwrap_or_default();
                if container.is_empty() {
                    let at = at.child("resourceFieldRef").child("containerName");
                    self.errors.required(&at, "");
                }
                let divisor = resource.divisor.as_ref().map(|divisor| divisor.0.clone());
                if let Some(text) = &divisor
                    && let Err(error) = Quantity::parse(text)
                {
                    let at = at.child("resourceFieldRef").child("divisor");
                    self.errors.invalid_str(&at, text, &error.to_string());
                }
                let resource = resource.resource.clone();
                Some(DownwardValue::Resource { container, resource, divisor })
            }
            (None, None) => {
                self.errors.required(at, "one of fieldRef and resourceFieldRef is required");
                None
            }
        };
        let mode = self.mode(file.mode, at, "mode");
        let owner = self.owner(file.user, at);
        let path = self.path(&file.path, at, "path")?;
        Some(DownwardFile { value: value?, path, mode, owner })
    }

    fn token(&mut self, token: &ServiceAccountTokenProjection, at: &FieldPath) -> Option<TokenSource> {
        let seconds = token.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS);
        let detail = match seconds {
            ..600 => Some("may not specify a duration less than 10 minutes"),
            4_294_967_297.. => Some("may not specify a duration larger than 2^32 seconds"),
            _ => None,
        };
        if let Some(detail) = detail {
            self.errors.invalid(&at.child("expirationSeconds"), &seconds.into(), detail);
        }
        let owner = self.owner(token.user, at);
        // The server also reports this for the volume instead of the source.
        let path = self.path(&token.path, &self.volume.clone(), "path")?;
        let audience = token.audience.clone().filter(|audience| !audience.is_empty());
        Some(TokenSource { audience, expiration_seconds: seconds, path, owner })
    }

    fn bundle(&mut self, bundle: &ClusterTrustBundleProjection, at: &FieldPath) -> Option<BundleSource> {
        let select = match (&bundle.name, &bundle.signer_name) {
            (Some(_), Some(_)) => {
                let detail = "only one of name and signerName may be used";
                self.errors.invalid_omitted(at, detail);
                None
            }
            (Some(name), None) => self.bundle_name(bundle, name, at),
            (None, Some(signer)) => self.bundle_signer(bundle, signer, at),
            (None, None) => {
                self.errors.required(at, "either name or signerName must be specified");
                None
            }
        };
        let owner = self.owner(bundle.user, at);
        let path = self.path(&bundle.path, at, "path")?;
        let optional = bundle.optional.unwrap_or(false);
        Some(BundleSource { select: select?, optional, path, owner })
    }

    fn bundle_name(
        &mut self,
        bundle: &ClusterTrustBundleProjection,
        name: &str,
        at: &FieldPath,
    ) -> Option<BundleSelector> {
        if name.is_empty() {
            self.errors.required(&at.child("name"), "must be a valid object name");
        }
        // A name with colons belongs to a signer's bundle; the name contains the signer.
        let signer = name.rsplit_once(':').map(|(signer, _)| signer.replace(':', "/"));
        for words in trust_bundle_name_rule(&signer.unwrap_or_default(), name, false) {
            let words = format!("not a valid clustertrustbundlename: {words}");
            self.errors.invalid_str(&at.child("name"), name, &words);
        }
        if bundle.label_selector.is_some() {
            let detail = "labelSelector must be unset if name is specified";
            self.errors.invalid_omitted(&at.child("labelSelector"), detail);
        }
        Some(BundleSelector::Name(name.to_owned()))
    }

    fn bundle_signer(
        &mut self,
        bundle: &ClusterTrustBundleProjection,
        signer: &str,
        at: &FieldPath,
    ) -> Option<BundleSelector> {
        if signer.is_empty() {
            self.errors.required(&at.child("signerName"), "must be a valid signer name");
        }
        SignerName::parse(&at.child("signerName"), signer, self.errors);
        let at = at.child("labelSelector");
        let object = serde_json::to_value(&bundle.label_selector).unwrap_or(Value::Null);
        let before = self.errors.len();
        labels::validate_label_selector(&at, &object, self.errors);
        if self.errors.len() > before {
            return None;
        }
        let selector = match LabelSelector::from_object(&object) {
            Ok(selector) => selector,
            Err(error) => {
                let words = format!("while parsing label selector: {error}");
                self.errors.invalid_omitted(&at, &words);
                return None;
            }
        };
        let length = selector.to_string().len();
        if length > MAX_SELECTOR {
            let words = format!("label selector length ({length}) is larger than {MAX_SELECTOR}");
            self.errors.invalid_omitted(&at, &words);
        }
        Some(BundleSelector::Signer(signer.to_owned(), selector))
    }

    fn certificate(&mut self, certificate: &PodCertificateProjection, at: &FieldPath) -> CertificateSource {
        let signer = certificate.signer_name.clone();
        SignerName::parse(&at.child("signerName"), &signer, self.errors);
        let annotations = certificate.user_annotations.clone().unwrap_or_default();
        let mut size = 0;
        for (key, value) in &annotations {
            let at = at.child("userAnnotations");
            names::domain_prefixed_key(&at, &key.to_lowercase(), self.errors);
            size += key.len() + value.len();
        }
        if size > MAX_ANNOTATIONS {
            self.errors.too_long(&at.child("userAnnotations"), MAX_ANNOTATIONS);
        }
        let key_type = certificate.key_type.clone();
        let key_types = KeyType::names(KeyType::POD_CERTIFICATE);
        if !key_types.contains(&key_type.as_str()) {
            self.errors.not_supported(&at.child("keyType"), &key_type, &key_types);
        }
        self.lifetime(certificate.max_expiration_seconds, &signer, at);
        let paths = [
            ("credentialBundlePath", &certificate.credential_bundle_path),
            ("keyPath", &certificate.key_path),
            ("certificateChainPath", &certificate.certificate_chain_path),
        ];
        let named = paths.map(|(field, path)| (field, path.as_deref().unwrap_or_default()));
        if named.iter().all(|(_, path)| path.is_empty()) {
            let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
            self.errors.required(at, detail);
        }
        let [bundle, key, chain] =
            named.map(|(field, path)| if path.is_empty() { None } else { self.path(path, at, field) });
        CertificateSource {
            signer,
            key_type,
            max_expiration_seconds: certificate.max_expiration_seconds,
            user_annotations: annotations,
            bundle,
            key,
            chain,
            owner: self.owner(certificate.user, at),
        }
    }

    fn lifetime(&mut self, seconds: Option<i32>, signer: &str, at: &FieldPath) {
        let at = at.child("maxExpirationSeconds");
        let max_seconds = if is_kubernetes(signer) { MAX_KUBERNETES_LIFETIME } else { MAX_LIFETIME };
        let Some(seconds) = seconds else { return };
        let bound = match seconds {
            ..MIN_LIFETIME => format!(">= {MIN_LIFETIME}"),
            _ if seconds > max_seconds => format!("<= {max_seconds}"),
            _ => return,
        };
        let detail = format!("if provided, maxExpirationSeconds must be {bound}");
        self.errors.invalid(&at, &seconds.into(), &detail);
    }

    /// Reserves a path, which must be unique in the volume.
    fn path(&mut self, text: &str, at: &FieldPath, field: &str) -> Option<VolumePath> {
        let at = at.child(field);
        let path = match VolumePath::parse(text) {
            Ok(path) => path,
            Err(PathError::Empty(_)) if text.is_empty() => {
                self.errors.required(&at, "");
                return None;
            }
            Err(error) => {
                self.errors.invalid_str(&at, text, words(&error));
                return None;
            }
        };
        if !self.taken.insert(path.clone()) {
            self.errors.invalid_str(self.volume, text, "conflicting duplicate paths");
        }
        Some(path)
    }

    fn mode(&mut self, mode: Option<i32>, at: &FieldPath, field: &str) -> Option<u32> {
        let mode = mode?;
        let known = u32::try_from(mode).ok().filter(|mode| *mode <= 0o777);
        if known.is_none() {
            let detail = "must be a number between 0 and 0777 (octal), both inclusive";
            self.errors.invalid(&at.child(field), &mode.into(), detail);
        }
        known
    }

    fn owner(&mut self, user: Option<i64>, at: &FieldPath) -> Option<u32> {
        self.user(user, at, "user").or(self.default_owner)
    }

    fn user(&mut self, user: Option<i64>, at: &FieldPath, field: &str) -> Option<u32> {
        let user = user?;
        for words in names::in_range(user, 0, MAX_USER) {
            self.errors.invalid(&at.child(field), &user.into(), &words);
        }
        u32::try_from(user).ok()
    }
}

/// Returns the server's error message for such a path.
fn words(error: &PathError) -> &'static str {
    match error {
        PathError::Absolute(_) => "must be a relative path",
        PathError::Backstep(_) => "must not contain '..'",
        PathError::Reserved(_) => "must not start with '..'",
        PathError::Empty(_) => "must not be empty",
        PathError::TooLong => "must be less than or equal to 4096 characters",
        PathError::NameTooLong => "filenames must be less than or equal to 255 characters",
        PathError::Nul => "must not contain a NUL character",
    }
}
