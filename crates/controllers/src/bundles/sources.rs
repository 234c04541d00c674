//! Certificates in the sources of a Bundle.
//!
//! Every source is read even if another one fails, so that the status covers all; the first failure determines the
//! condition, as if reading had stopped there.
//!
//! The targets of a Bundle are not sources of it: otherwise a certificate in a target in the trust namespace would stay
//! in the Bundle forever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::field::quote;
use windlass_api::selector::labels::LabelSelector;
use windlass_api::trust_bundle::{
    Bundle, BundleSource, MAX_STATUS_BUNDLES, ObjectSource, SourceStatus, SourceStatusBundle, TargetTemplate,
    TrustBundleSource,
};

use super::certificate_set::{CertificateFilter, CertificateSet};
use super::package::CaPackage;
use super::target::{TargetKind, controller_of, managed_keys};
use crate::publisher::anchors::{TrustAnchor, digest};

/// A ConfigMap or Secret in the trust namespace. It may hold keys, so it has no `Debug`.
pub struct SourceObject {
    /// Labels of the object, which Bundle selectors match.
    pub labels: BTreeMap<String, String>,
    /// UID of the controlling owner.
    pub controller: Option<String>,
    /// Keys that a Bundle has written.
    pub managed: BTreeSet<String>,
    /// Whether it is a Secret with a private key.
    pub tls: bool,
    /// Data of the object by key; values of Secrets are already decoded.
    pub entries: BTreeMap<String, Vec<u8>>,
}

/// A ClusterTrustBundle that Bundles can use as a source.
#[derive(Clone, Debug, Default)]
pub struct SourceTrustBundle {
    /// Labels of the object, which Bundle selectors match.
    pub labels: BTreeMap<String, String>,
    /// UID of the controlling owner.
    pub controller: Option<String>,
    /// Signer name; empty if the bundle is not linked to a signer.
    pub signer: String,
    /// The `trustBundle` field: PEM certificates, not yet parsed.
    pub text: String,
}

/// Inputs of [`gather`].
#[derive(Clone, Copy)]
pub struct SourceInputs<'a> {
    /// Namespace of ConfigMaps and Secrets.
    pub trust_namespace: &'a str,
    /// Whether the Bundle also has targets in that namespace.
    pub is_target: bool,
    /// ConfigMaps in the trust namespace, by name.
    pub config_maps: &'a BTreeMap<String, Arc<SourceObject>>,
    /// Secrets in the trust namespace, by name.
    pub secrets: &'a BTreeMap<String, Arc<SourceObject>>,
    /// ClusterTrustBundles by name; `None` if the server does not serve them.
    pub trust_bundles: Option<&'a BTreeMap<String, Arc<SourceTrustBundle>>>,
    /// The default CA package; `None` if none is configured.
    pub package: Option<&'a CaPackage>,
    /// Certificates to leave out of the result.
    pub filters: CertificateFilter,
    /// Current time, against which expiry is checked.
    pub now: OffsetDateTime,
}

/// Result of reading all sources of one Bundle.
pub struct GatherResult {
    /// Status of each source, in order.
    pub sources: Vec<SourceStatus>,
    /// The certificates, or the first failure.
    pub result: Result<GatheredCertificates, SourceError>,
}

/// Certificates that were read from the sources.
#[derive(Clone, Debug)]
pub struct GatheredCertificates {
    /// The certificates; at least one.
    pub certificates: CertificateSet,
    /// Identifier of the default package, if it is used.
    pub package: Option<String>,
}

/// Reason for which there are no certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// A source does not exist, but may appear.
    NotFound(String),
    /// A source is invalid, for this reason.
    Build(String),
}

/// Reads all sources.
pub fn gather(bundle: &Bundle, world: &SourceInputs<'_>) -> GatherResult {
    let mut pool = CertificateSet::new(world.filters, world.now);
    let mut failure = None;
    let mut sources = Vec::new();
    for source in &bundle.spec.sources {
        let mut found = SourceCertificates::new(world);
        let result = found.gather(bundle, source, world);
        let mut problem = found.remark;
        match result {
            Ok(()) => {}
            Err(SourceError::NotFound(words)) if source.is_optional() => problem = Some(words),
            Err(error) => {
                problem = Some(error.message().to_owned());
                failure.get_or_insert(error);
                // Certificates that were read before the failure are discarded.
                found.certificates = CertificateSet::new(world.filters, world.now);
                found.trust_bundles.clear();
            }
        }
        sources.push(SourceStatus {
            source: describe_source(source),
            objects: found.objects,
            certificates: found.certificates.len() as u64,
            problem,
            cluster_trust_bundles: found.trust_bundles,
        });
        pool.merge(found.certificates);
    }
    let uses_package = |source: &BundleSource| source.use_default_cas == Some(true);
    let package = bundle.spec.sources.iter().any(uses_package).then_some(world.package).flatten();
    let result = match failure {
        Some(failure) => Err(failure),
        None if pool.is_empty() => {
            Err(SourceError::NotFound("couldn't find any valid certificates in bundle".to_owned()))
        }
        None => Ok(GatheredCertificates { certificates: pool, package: package.map(CaPackage::id) }),
    };
    GatherResult { sources, result }
}

struct SourceCertificates {
    certificates: CertificateSet,
    objects: u64,
    remark: Option<String>,
    trust_bundles: Vec<SourceStatusBundle>,
}

impl SourceCertificates {
    fn new(world: &SourceInputs<'_>) -> Self {
        Self {
            certificates: CertificateSet::new(world.filters, world.now),
            objects: 0,
            remark: None,
            trust_bundles: Vec::new(),
        }
    }

    fn gather(
        &mut self,
        bundle: &Bundle,
        source: &BundleSource,
        world: &SourceInputs<'_>,
    ) -> Result<(), SourceError> {
        if let Some(source) = &source.config_map {
            return self.add_objects(TargetKind::ConfigMap, bundle, source, world);
        }
        if let Some(source) = &source.secret {
            return self.add_objects(TargetKind::Secret, bundle, source, world);
        }
        if let Some(text) = &source.in_line {
            let invalid = |error| format!("inline source contains invalid PEM data: {error}");
            return self
                .certificates
                .add(text.as_bytes())
                .map_err(|error| SourceError::Build(invalid(error)));
        }
        if let Some(source) = &source.cluster_trust_bundle {
            return self.add_trust_bundles(&bundle.metadata.uid, source, world);
        }
        if source.use_default_cas == Some(true) {
            return self.add_package(world.package);
        }
        Ok(())
    }

    fn add_package(&mut self, package: Option<&CaPackage>) -> Result<(), SourceError> {
        let Some(package) = package else {
            return Err(SourceError::NotFound(NO_PACKAGE.to_owned()));
        };
        let invalid = |error| format!("default package contains invalid PEM data: {error}");
        let added = self.certificates.add(package.bundle().as_bytes());
        added.map_err(|error| SourceError::Build(invalid(error)))
    }

    fn add_objects(
        &mut self,
        kind: TargetKind,
        bundle: &Bundle,
        source: &ObjectSource,
        world: &SourceInputs<'_>,
    ) -> Result<(), SourceError> {
        let all = if kind == TargetKind::Secret { world.secrets } else { world.config_maps };
        let named = source.name.as_deref().filter(|name| !name.is_empty());
        let chosen = match named {
            Some(name) => {
                let words = || {
                    let (namespace, quoted) = (world.trust_namespace, quote(name));
                    let resource = if kind == TargetKind::Secret { "secrets" } else { "configmaps" };
                    format!("failed to get {kind} {namespace}/{name}: {resource} {quoted} not found")
                };
                let held = all.get(name).ok_or_else(|| SourceError::NotFound(words()))?;
                vec![(name, held)]
            }
            None => self.select_objects(kind, source.selector.as_ref(), all, world.trust_namespace)?,
        };
        for (name, held) in chosen {
            let own = own_keys(kind, bundle, name, held, world.is_target);
            let at = SourceLocation { kind, namespace: world.trust_namespace, name };
            self.add_object(&at, source, held, &own, named.is_some())?;
        }
        Ok(())
    }

    fn select_objects<'a>(
        &mut self,
        kind: TargetKind,
        selector: Option<&Value>,
        all: &'a BTreeMap<String, Arc<SourceObject>>,
        namespace: &str,
    ) -> Result<Vec<(&'a str, &'a Arc<SourceObject>)>, SourceError> {
        let selector = LabelSelector::from_object(selector.unwrap_or(&Value::Null));
        let selector = selector.map_err(|error| {
            SourceError::Build(format!(
                "failed to parse label selector as Selector for {kind} in namespace {namespace}: {error}"
            ))
        })?;
        let matches = |held: &SourceObject| selector.matches(|key| held.labels.get(key).map(String::as_str));
        let chosen = all.iter().filter(|(_, held)| matches(held));
        let chosen: Vec<_> = chosen.map(|(name, held)| (name.as_str(), held)).collect();
        if chosen.is_empty() {
            self.remark = Some(format!("label selector {selector} for {kind} didn't match any resources"));
        }
        Ok(chosen)
    }

    /// Reads one object without the keys that the Bundle has written.
    fn add_object(
        &mut self,
        at: &SourceLocation<'_>,
        source: &ObjectSource,
        held: &SourceObject,
        own: &BTreeSet<&str>,
        named: bool,
    ) -> Result<(), SourceError> {
        let SourceLocation { kind, namespace, name } = *at;
        let wanted = match source.key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) if own.contains(key) => return self.skip_own_output(),
            Some(key) => match held.entries.get_key_value(key) {
                Some(entry) => vec![entry],
                // A selected object that is a target has only keys of targets.
                None if !named && !own.is_empty() => return self.skip_own_output(),
                None => {
                    return Err(SourceError::NotFound(format!(
                        "no data found in {kind} {namespace}/{name} at key {}",
                        quote(key)
                    )));
                }
            },
            None if source.include_all_keys != Some(true) => Vec::new(),
            // Reading all keys of such a Secret would include the private key.
            None if held.tls => {
                return Err(SourceError::Build(format!(
                    "includeAllKeys is not supported for TLS Secrets such as {namespace}/{name}"
                )));
            }
            None => held.entries.iter().filter(|(key, _)| !own.contains(key.as_str())).collect(),
        };
        self.objects += 1;
        for (key, text) in wanted {
            self.certificates.add(text).map_err(|error| {
                let key = quote(key);
                let place = format!("{kind} {namespace}/{name} at key {key}");
                SourceError::Build(format!("invalid PEM data in {place}: {error}"))
            })?;
        }
        Ok(())
    }

    fn skip_own_output(&mut self) -> Result<(), SourceError> {
        self.remark = Some("target of this Bundle; not read".to_owned());
        Ok(())
    }

    fn add_trust_bundles(
        &mut self,
        own: &str,
        source: &TrustBundleSource,
        world: &SourceInputs<'_>,
    ) -> Result<(), SourceError> {
        let kind = TargetKind::ClusterTrustBundle;
        let Some(all) = world.trust_bundles else {
            return Err(SourceError::NotFound(format!("the server does not serve {kind}s")));
        };
        let chosen = match source.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => {
                let words = || {
                    let resource = "clustertrustbundles.certificates.k8s.io";
                    format!("failed to get {kind} {name}: {resource} {} not found", quote(name))
                };
                let held = all.get(name).ok_or_else(|| SourceError::NotFound(words()))?;
                vec![(name, held)]
            }
            None => self.select_by_signer(source, all)?,
        };
        for (name, held) in chosen {
            if held.controller.as_deref() == Some(own) {
                self.skip_own_output()?;
                continue;
            }
            self.objects += 1;
            self.certificates
                .add(held.text.as_bytes())
                .map_err(|error| SourceError::Build(format!("invalid PEM data in {kind} {name}: {error}")))?;
            if self.trust_bundles.len() < MAX_STATUS_BUNDLES {
                let digest = digest(&TrustAnchor::parse_pem(&held.text));
                self.trust_bundles.push(SourceStatusBundle { name: name.to_owned(), digest });
            }
        }
        Ok(())
    }

    fn select_by_signer<'a>(
        &mut self,
        source: &TrustBundleSource,
        all: &'a BTreeMap<String, Arc<SourceTrustBundle>>,
    ) -> Result<Vec<(&'a str, &'a Arc<SourceTrustBundle>)>, SourceError> {
        let kind = TargetKind::ClusterTrustBundle;
        let signer = source.signer_name.as_deref().unwrap_or_default();
        let selector = LabelSelector::from_object(source.label_selector.as_ref().unwrap_or(&Value::Null));
        let selector = selector.map_err(|error| {
            SourceError::Build(format!("failed to parse label selector as Selector for {kind}: {error}"))
        })?;
        let chosen = all.iter().filter(|(_, held)| {
            held.signer == signer && selector.matches(|key| held.labels.get(key).map(String::as_str))
        });
        let chosen: Vec<_> = chosen.map(|(name, held)| (name.as_str(), held)).collect();
        if chosen.is_empty() {
            self.remark = Some(format!(
                "signer {signer} with label selector {selector} for {kind} didn't match any resources"
            ));
        }
        Ok(chosen)
    }
}

/// Location of an entry, for messages.
#[derive(Clone, Copy)]
struct SourceLocation<'a> {
    kind: TargetKind,
    namespace: &'a str,
    name: &'a str,
}

const NO_PACKAGE: &str = "no default package was specified when trust-manager was started; default \
                          CAs not available";

/// Lists the keys that the Bundle writes or has written.
fn own_keys<'a>(
    kind: TargetKind,
    bundle: &'a Bundle,
    name: &str,
    held: &'a SourceObject,
    is_target: bool,
) -> BTreeSet<&'a str> {
    let mut own = BTreeSet::new();
    if name != bundle.metadata.name {
        return own;
    }
    if let Some(target) = bundle.spec.target.as_ref().filter(|_| is_target) {
        let template: Option<&TargetTemplate> = match kind {
            TargetKind::ConfigMap => target.config_map.as_ref(),
            TargetKind::Secret => target.secret.as_ref(),
            TargetKind::ClusterTrustBundle => None,
        };
        own.extend(template.into_iter().flat_map(|template| target.keys(&template.key)));
    }
    if held.controller.as_ref() == Some(&bundle.metadata.uid) {
        own.extend(held.managed.iter().map(String::as_str));
    }
    own
}

fn describe_source(source: &BundleSource) -> String {
    let object = |kind: &str, source: &ObjectSource| {
        let which = match (source.name.as_deref(), &source.selector) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, selector) => describe_selector(selector.as_ref()),
        };
        match source.key.as_deref() {
            Some(key) if !key.is_empty() => format!("{kind} {which} at key {key}"),
            _ => format!("{kind} {which}"),
        }
    };
    if let Some(source) = &source.config_map {
        return object("configMap", source);
    }
    if let Some(source) = &source.secret {
        return object("secret", source);
    }
    if let Some(source) = &source.cluster_trust_bundle {
        return match (source.name.as_deref(), source.signer_name.as_deref()) {
            (Some(name), _) if !name.is_empty() => format!("clusterTrustBundle {name}"),
            (_, signer) => {
                let labels = describe_selector(source.label_selector.as_ref());
                format!("clusterTrustBundle of {} {labels}", signer.unwrap_or_default())
            }
        };
    }
    let word = if source.in_line.is_some() { "inLine" } else { "useDefaultCAs" };
    word.to_owned()
}

fn describe_selector(selector: Option<&Value>) -> String {
    match LabelSelector::from_object(selector.unwrap_or(&Value::Null)) {
        Ok(selector) if selector.is_everything() => "(all)".to_owned(),
        Ok(selector) => format!("({selector})"),
        Err(_) => "(invalid selector)".to_owned(),
    }
}

impl SourceError {
    /// Returns the error message, as the Bundle's condition reports it.
    pub fn message(&self) -> &str {
        match self {
            Self::NotFound(words) | Self::Build(words) => words,
        }
    }
}

impl SourceObject {
    /// Reads a ConfigMap.
    pub fn from_config_map(object: ConfigMap) -> Self {
        let binary = object.binary_data.unwrap_or_default().into_iter();
        let mut entries: BTreeMap<_, _> = binary.map(|(key, bytes)| (key, bytes.0)).collect();
        let data = object.data.unwrap_or_default().into_iter();
        entries.extend(data.map(|(key, text)| (key, text.into_bytes())));
        Self {
            controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
            managed: managed_keys(TargetKind::ConfigMap, &object.metadata),
            labels: object.metadata.labels.unwrap_or_default(),
            tls: false,
            entries,
        }
    }

    /// Reads a Secret.
    pub fn from_secret(object: Secret) -> Self {
        let data = object.data.unwrap_or_default().into_iter();
        Self {
            controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
            managed: managed_keys(TargetKind::Secret, &object.metadata),
            labels: object.metadata.labels.unwrap_or_default(),
            tls: object.type_.as_deref() == Some("kubernetes.io/tls"),
            entries: data.map(|(key, bytes)| (key, bytes.0)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
