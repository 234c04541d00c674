//! What the sources of a Bundle hold.
//!
//! Every source is looked at, whatever becomes of the others, so that the status tells of all; the
//! first that fails decides what is said of the Bundle, as it would if the rest were not looked at.
//!
//! What a Bundle itself has written is no source of it: a certificate that got into a target in the
//! trust namespace would otherwise be in the Bundle for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::field::quote;
use windlass_api::selector::labels::Selector;
use windlass_api::trust_bundle::{
    Bundle, ObjectSource, Source, SourceStatus, Template, TrustBundleSource,
};

use super::package::Package;
use super::pool::{Filters, Pool};
use super::target::{Kind, controller_of, managed_keys};

/// A ConfigMap or Secret in the trust namespace. It may hold keys, so it cannot be printed.
pub struct Held {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Who controls it, by uid.
    pub controller: Option<String>,
    /// The keys that a Bundle has written.
    pub managed: BTreeSet<String>,
    /// Whether it is a Secret with a private key.
    pub tls: bool,
    /// What it holds.
    pub entries: BTreeMap<String, Vec<u8>>,
}

/// A ClusterTrustBundle.
#[derive(Clone, Debug, Default)]
pub struct HeldAnchors {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Who controls it, by uid.
    pub controller: Option<String>,
    /// Who vouches for it; empty is nobody.
    pub signer: String,
    /// What it holds.
    pub text: String,
}

/// What there is to gather from.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Where ConfigMaps and Secrets are.
    pub trust_namespace: &'a str,
    /// Whether the Bundle's targets are there too.
    pub is_target: bool,
    /// ConfigMaps in it, by name.
    pub config_maps: &'a BTreeMap<String, Arc<Held>>,
    /// Secrets in it, by name.
    pub secrets: &'a BTreeMap<String, Arc<Held>>,
    /// ClusterTrustBundles by name; none if the server has none.
    pub trust_bundles: Option<&'a BTreeMap<String, Arc<HeldAnchors>>>,
    /// The default package.
    pub package: Option<&'a Package>,
    /// What is left out.
    pub filters: Filters,
    /// The time.
    pub now: OffsetDateTime,
}

/// What the sources gave.
pub struct Gathered {
    /// What each gave, in order.
    pub sources: Vec<SourceStatus>,
    /// The certificates, or why there are none.
    pub result: Result<Harvest, Failure>,
}

/// Certificates, and where they are from.
#[derive(Clone, Debug)]
pub struct Harvest {
    /// The certificates, at least one.
    pub pool: Pool,
    /// Which default package is in it.
    pub package: Option<String>,
}

/// Why there are no certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something is not there. It may come.
    NotFound(String),
    /// Something is wrong with what is there.
    Build(String),
}

/// Gathers what the sources hold.
pub fn gather(bundle: &Bundle, world: &World<'_>) -> Gathered {
    let mut pool = Pool::new(world.filters, world.now);
    let mut failure = None;
    let mut sources = Vec::new();
    for source in &bundle.spec.sources {
        let mut found = Found::new(world);
        let result = found.gather(bundle, source, world);
        let mut problem = found.remark;
        match result {
            Ok(()) => {}
            Err(Failure::NotFound(words)) if source.is_optional() => problem = Some(words),
            Err(error) => {
                problem = Some(error.words().to_owned());
                failure.get_or_insert(error);
                // What was read before the failure does not count.
                found.pool = Pool::new(world.filters, world.now);
            }
        }
        sources.push(SourceStatus {
            source: describe(source),
            objects: found.objects,
            certificates: found.pool.len() as u64,
            problem,
        });
        pool.absorb(found.pool);
    }
    let uses_package = |source: &Source| source.use_default_cas == Some(true);
    let package = bundle.spec.sources.iter().any(uses_package).then_some(world.package).flatten();
    let result = match failure {
        Some(failure) => Err(failure),
        None if pool.is_empty() => {
            Err(Failure::NotFound("couldn't find any valid certificates in bundle".to_owned()))
        }
        None => Ok(Harvest { pool, package: package.map(Package::id) }),
    };
    Gathered { sources, result }
}

/// What was found in one source.
struct Found {
    pool: Pool,
    objects: u64,
    remark: Option<String>,
}

impl Found {
    fn new(world: &World<'_>) -> Self {
        Self { pool: Pool::new(world.filters, world.now), objects: 0, remark: None }
    }

    fn gather(
        &mut self,
        bundle: &Bundle,
        source: &Source,
        world: &World<'_>,
    ) -> Result<(), Failure> {
        if let Some(source) = &source.config_map {
            return self.objects(Kind::ConfigMap, bundle, source, world);
        }
        if let Some(source) = &source.secret {
            return self.objects(Kind::Secret, bundle, source, world);
        }
        if let Some(text) = &source.in_line {
            let invalid = |error| format!("inline source contains invalid PEM data: {error}");
            return self.pool.add(text.as_bytes()).map_err(|error| Failure::Build(invalid(error)));
        }
        if let Some(source) = &source.cluster_trust_bundle {
            return self.trust_bundles(&bundle.metadata.uid, source, world);
        }
        if source.use_default_cas == Some(true) {
            return self.package(world.package);
        }
        Ok(())
    }

    fn package(&mut self, package: Option<&Package>) -> Result<(), Failure> {
        let Some(package) = package else {
            return Err(Failure::NotFound(NO_PACKAGE.to_owned()));
        };
        let invalid = |error| format!("default package contains invalid PEM data: {error}");
        let added = self.pool.add(package.bundle().as_bytes());
        added.map_err(|error| Failure::Build(invalid(error)))
    }

    fn objects(
        &mut self,
        kind: Kind,
        bundle: &Bundle,
        source: &ObjectSource,
        world: &World<'_>,
    ) -> Result<(), Failure> {
        let all = if kind == Kind::Secret { world.secrets } else { world.config_maps };
        let named = source.name.as_deref().filter(|name| !name.is_empty());
        let chosen = match named {
            Some(name) => {
                let words = || {
                    let (namespace, quoted) = (world.trust_namespace, quote(name));
                    let resource = if kind == Kind::Secret { "secrets" } else { "configmaps" };
                    format!(
                        "failed to get {kind} {namespace}/{name}: {resource} {quoted} not found"
                    )
                };
                let held = all.get(name).ok_or_else(|| Failure::NotFound(words()))?;
                vec![(name, held)]
            }
            None => self.selected(kind, source.selector.as_ref(), all, world.trust_namespace)?,
        };
        for (name, held) in chosen {
            let own = own_keys(kind, bundle, name, held, world.is_target);
            let at = Place { kind, namespace: world.trust_namespace, name };
            self.object(&at, source, held, &own, named.is_some())?;
        }
        Ok(())
    }

    fn selected<'a>(
        &mut self,
        kind: Kind,
        selector: Option<&Value>,
        all: &'a BTreeMap<String, Arc<Held>>,
        namespace: &str,
    ) -> Result<Vec<(&'a str, &'a Arc<Held>)>, Failure> {
        let selector = Selector::from_object(selector.unwrap_or(&Value::Null));
        let selector = selector.map_err(|error| {
            Failure::Build(format!(
                "failed to parse label selector as Selector for {kind} in namespace {namespace}: \
                 {error}"
            ))
        })?;
        let matches =
            |held: &Held| selector.matches(|key| held.labels.get(key).map(String::as_str));
        let chosen = all.iter().filter(|(_, held)| matches(held));
        let chosen: Vec<_> = chosen.map(|(name, held)| (name.as_str(), held)).collect();
        if chosen.is_empty() {
            self.remark =
                Some(format!("label selector {selector} for {kind} didn't match any resources"));
        }
        Ok(chosen)
    }

    /// Reads one object, but not what the Bundle has written into it.
    fn object(
        &mut self,
        at: &Place<'_>,
        source: &ObjectSource,
        held: &Held,
        own: &BTreeSet<&str>,
        named: bool,
    ) -> Result<(), Failure> {
        let Place { kind, namespace, name } = *at;
        let wanted = match source.key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) if own.contains(key) => return self.own(),
            Some(key) => match held.entries.get_key_value(key) {
                Some(entry) => vec![entry],
                // A target that was selected by its labels has only the keys of targets.
                None if !named && !own.is_empty() => return self.own(),
                None => {
                    return Err(Failure::NotFound(format!(
                        "no data found in {kind} {namespace}/{name} at key {}",
                        quote(key)
                    )));
                }
            },
            None if source.include_all_keys != Some(true) => Vec::new(),
            // All keys of such a Secret are a private key among others.
            None if held.tls => {
                return Err(Failure::Build(format!(
                    "includeAllKeys is not supported for TLS Secrets such as {namespace}/{name}"
                )));
            }
            None => held.entries.iter().filter(|(key, _)| !own.contains(key.as_str())).collect(),
        };
        self.objects += 1;
        for (key, text) in wanted {
            self.pool.add(text).map_err(|error| {
                let key = quote(key);
                let place = format!("{kind} {namespace}/{name} at key {key}");
                Failure::Build(format!("invalid PEM data in {place}: {error}"))
            })?;
        }
        Ok(())
    }

    fn own(&mut self) -> Result<(), Failure> {
        self.remark = Some("the Bundle's own target is not read".to_owned());
        Ok(())
    }

    fn trust_bundles(
        &mut self,
        own: &str,
        source: &TrustBundleSource,
        world: &World<'_>,
    ) -> Result<(), Failure> {
        let kind = Kind::ClusterTrustBundle;
        let Some(all) = world.trust_bundles else {
            return Err(Failure::NotFound(format!("the server has no {kind}s")));
        };
        let chosen = match source.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => {
                let words = || {
                    let resource = "clustertrustbundles.certificates.k8s.io";
                    format!("failed to get {kind} {name}: {resource} {} not found", quote(name))
                };
                let held = all.get(name).ok_or_else(|| Failure::NotFound(words()))?;
                vec![(name, held)]
            }
            None => self.signed(source, all)?,
        };
        for (name, held) in chosen {
            if held.controller.as_deref() == Some(own) {
                self.own()?;
                continue;
            }
            self.objects += 1;
            self.pool.add(held.text.as_bytes()).map_err(|error| {
                Failure::Build(format!("invalid PEM data in {kind} {name}: {error}"))
            })?;
        }
        Ok(())
    }

    fn signed<'a>(
        &mut self,
        source: &TrustBundleSource,
        all: &'a BTreeMap<String, Arc<HeldAnchors>>,
    ) -> Result<Vec<(&'a str, &'a Arc<HeldAnchors>)>, Failure> {
        let kind = Kind::ClusterTrustBundle;
        let signer = source.signer_name.as_deref().unwrap_or_default();
        let selector =
            Selector::from_object(source.label_selector.as_ref().unwrap_or(&Value::Null));
        let selector = selector.map_err(|error| {
            Failure::Build(format!(
                "failed to parse label selector as Selector for {kind}: {error}"
            ))
        })?;
        let chosen = all.iter().filter(|(_, held)| {
            held.signer == signer
                && selector.matches(|key| held.labels.get(key).map(String::as_str))
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

/// Where an entry is, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    kind: Kind,
    namespace: &'a str,
    name: &'a str,
}

const NO_PACKAGE: &str = "no default package was specified when trust-manager was started; default \
                          CAs not available";

/// The keys of an object that the Bundle writes, or has written.
fn own_keys<'a>(
    kind: Kind,
    bundle: &'a Bundle,
    name: &str,
    held: &'a Held,
    is_target: bool,
) -> BTreeSet<&'a str> {
    let mut own = BTreeSet::new();
    if name != bundle.metadata.name {
        return own;
    }
    if let Some(target) = bundle.spec.target.as_ref().filter(|_| is_target) {
        let template: Option<&Template> = match kind {
            Kind::ConfigMap => target.config_map.as_ref(),
            Kind::Secret => target.secret.as_ref(),
            Kind::ClusterTrustBundle => None,
        };
        own.extend(template.into_iter().flat_map(|template| target.keys(&template.key)));
    }
    if held.controller.as_ref() == Some(&bundle.metadata.uid) {
        own.extend(held.managed.iter().map(String::as_str));
    }
    own
}

/// A source in words.
fn describe(source: &Source) -> String {
    let object = |kind: &str, source: &ObjectSource| {
        let which = match (source.name.as_deref(), &source.selector) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, selector) => selected(selector.as_ref()),
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
                let labels = selected(source.label_selector.as_ref());
                format!("clusterTrustBundle of {} {labels}", signer.unwrap_or_default())
            }
        };
    }
    let word = if source.in_line.is_some() { "inLine" } else { "useDefaultCAs" };
    word.to_owned()
}

fn selected(selector: Option<&Value>) -> String {
    match Selector::from_object(selector.unwrap_or(&Value::Null)) {
        Ok(selector) if selector.is_everything() => "(all)".to_owned(),
        Ok(selector) => format!("({selector})"),
        Err(_) => "(invalid selector)".to_owned(),
    }
}

impl Failure {
    /// What failed.
    pub fn words(&self) -> &str {
        match self {
            Self::NotFound(words) | Self::Build(words) => words,
        }
    }
}

impl Held {
    /// What matters of a ConfigMap.
    pub fn of_config_map(object: ConfigMap) -> Self {
        let binary = object.binary_data.unwrap_or_default().into_iter();
        let mut entries: BTreeMap<_, _> = binary.map(|(key, bytes)| (key, bytes.0)).collect();
        let data = object.data.unwrap_or_default().into_iter();
        entries.extend(data.map(|(key, text)| (key, text.into_bytes())));
        Self {
            controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
            managed: managed_keys(Kind::ConfigMap, &object.metadata),
            labels: object.metadata.labels.unwrap_or_default(),
            tls: false,
            entries,
        }
    }

    /// What matters of a Secret.
    pub fn of_secret(object: Secret) -> Self {
        let data = object.data.unwrap_or_default().into_iter();
        Self {
            controller: controller_of(&object.metadata).map(|owner| owner.uid.clone()),
            managed: managed_keys(Kind::Secret, &object.metadata),
            labels: object.metadata.labels.unwrap_or_default(),
            tls: object.type_.as_deref() == Some("kubernetes.io/tls"),
            entries: data.map(|(key, bytes)| (key, bytes.0)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
